//! What a child should have and what must go: from Descriptions or from a cluster's branch to desired objects, prunes, statuses.
//!
//! Invariants: an object has exactly one owner, the eldest Description that wants it, so that two Subscriptions never fight;
//! nothing goes that any Description still wants; a tree that cannot be read wholly never lets anything go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{DescriptionPhase, DescriptionStatus, Feed, ManifestStatus};
use api::known::annotation;
use api::object::{self, ObjectRef};
use serde_json::Value;

/// An object whatever its version: `apps/v1` and `apps/v1beta1` of one Deployment are the same object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Group of the kind.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Identity {
    /// Of a reference.
    pub fn of(id: &ObjectRef) -> Self {
        Self { group: id.group().to_owned(), kind: id.kind.clone(), namespace: id.namespace.clone(), name: id.name.clone() }
    }
}

/// A Description as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimant {
    /// Name of the Description (its namespace is the dedicated one).
    pub name: String,
    /// Creation, nanoseconds; absent for one that is not known to the parent.
    pub created: Option<i128>,
    /// It is being deleted: it wants nothing any more.
    pub deleting: bool,
    /// Objects in its order. Shared, so that an object that did not change is known by its address.
    pub objects: Vec<Arc<Value>>,
    /// What could not be read of it.
    pub faults: Vec<String>,
}

impl Claimant {
    /// Takes in raw objects; what is no object is a fault, in the words that Kubernetes uses.
    pub fn take<'a>(&mut self, raw: impl IntoIterator<Item = &'a [u8]>) {
        for bytes in raw {
            match serde_json::from_slice::<Value>(bytes) {
                Ok(object) if !object.is_object() => self.faults.push("an object is not a JSON object".to_owned()),
                Ok(object) => match missing(&object) {
                    None => self.objects.push(Arc::new(object)),
                    Some(field) => {
                        self.faults.push(format!("Object '{field}' is missing in '{}'", String::from_utf8_lossy(bytes)));
                    }
                },
                Err(error) => self.faults.push(format!("an object is not JSON: {error}")),
            }
        }
    }
}

fn missing(object: &Value) -> Option<&'static str> {
    if object::text(object, "kind").is_empty() {
        return Some("Kind");
    }
    if object::text(object, "apiVersion").is_empty() {
        return Some("apiVersion");
    }
    object::name(object).is_empty().then_some("name")
}

/// One object that the child should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Which.
    pub id: ObjectRef,
    /// As it should be.
    pub object: Arc<Value>,
    /// Description that owns it.
    pub owner: String,
}

/// All that the child should have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Objects.
    pub wants: BTreeMap<Identity, Want>,
    /// Per Description: its objects, in order.
    pub of: BTreeMap<String, Vec<Identity>>,
    /// Per Description: what is wrong with it before anything is applied.
    pub faults: BTreeMap<String, Vec<String>>,
}

/// Puts the claims together. The eldest Description owns an object; of one age, the first by name.
pub fn desire(claimants: &[Claimant]) -> Desired {
    let mut order: Vec<&Claimant> = claimants.iter().filter(|c| !c.deleting).collect();
    order.sort_by(|a, b| (a.created.is_none(), a.created, &a.name).cmp(&(b.created.is_none(), b.created, &b.name)));
    let mut out = Desired::default();
    for claimant in order {
        let list = out.of.entry(claimant.name.clone()).or_default();
        let faults = out.faults.entry(claimant.name.clone()).or_default();
        faults.extend(claimant.faults.iter().cloned());
        let mut mine: BTreeMap<Identity, &Arc<Value>> = BTreeMap::new();
        for object in &claimant.objects {
            let id = ObjectRef::of(object);
            let identity = Identity::of(&id);
            // A feed may be listed twice, by itself or once with its namespace and once without.
            if let Some(first) = mine.insert(identity.clone(), object) {
                if *first != *object {
                    faults.push(format!("{id} is there twice, in different forms"));
                }
                continue;
            }
            list.push(identity.clone());
            match out.wants.get(&identity) {
                None => {
                    out.wants.insert(identity, Want { id, object: object.clone(), owner: claimant.name.clone() });
                }
                Some(first) if first.object == *object => {}
                Some(first) => faults.push(format!("{id} is deployed by {} in another form", first.owner)),
            }
        }
    }
    out.faults.retain(|_, faults| !faults.is_empty());
    out
}

/// What must go: everything in `present` that nobody wants.
pub fn victims(present: &BTreeMap<Identity, ObjectRef>, desired: &Desired) -> Vec<ObjectRef> {
    present.iter().filter(|(identity, _)| !desired.wants.contains_key(identity)).map(|(_, id)| id.clone()).collect()
}

/// Objects that a Description's own status names: the inventory that survives restarts.
pub fn inventory(status: Option<&DescriptionStatus>) -> impl Iterator<Item = ObjectRef> + '_ {
    status.into_iter().flat_map(|s| &s.manifest_statuses).map(|m| ObjectRef {
        api_version: m.feed.api_version.clone(),
        kind: m.feed.kind.clone(),
        namespace: m.feed.namespace.clone(),
        name: m.feed.name.clone(),
    })
}

/// How an object is, as far as the parent is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Why it could not be applied.
    pub fault: Option<String>,
    /// Its `.status` in the child; null without one.
    pub status: Value,
}

/// Largest status of a Description, bytes: half of what etcd takes, since the spec lies beside it.
const STATUS_MAX: usize = 700_000;

/// The status of a Description.
pub fn status(name: &str, desired: &Desired, observed: &BTreeMap<Identity, Observed>) -> DescriptionStatus {
    let mut reasons: Vec<&str> = desired.faults.get(name).into_iter().flatten().map(String::as_str).collect();
    let mut statuses = Vec::new();
    for identity in desired.of.get(name).into_iter().flatten() {
        let Some(want) = desired.wants.get(identity) else { continue };
        let seen = observed.get(identity);
        if let Some(fault) = seen.and_then(|s| s.fault.as_deref()) {
            reasons.push(fault);
        }
        statuses.push(ManifestStatus {
            feed: Feed {
                api_version: want.id.api_version.clone(),
                kind: want.id.kind.clone(),
                namespace: want.id.namespace.clone(),
                name: want.id.name.clone(),
            },
            observed_status: seen.map(|s| s.status.clone()).unwrap_or_default(),
        });
    }
    bound(&mut statuses);
    let phase = if reasons.is_empty() { DescriptionPhase::Success } else { DescriptionPhase::Failure };
    DescriptionStatus { phase: Some(phase), reason: join(&reasons), manifest_statuses: statuses }
}

/// Several reasons as Kubernetes prints an aggregate: each once, in brackets when there are more than one.
fn join(reasons: &[&str]) -> String {
    let mut seen = BTreeSet::new();
    let unique: Vec<&str> = reasons.iter().copied().filter(|r| seen.insert(*r)).collect();
    match unique.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Leaves out the largest observed statuses until the whole fits; the list of objects is always whole.
fn bound(statuses: &mut [ManifestStatus]) {
    let size = |m: &ManifestStatus| serde_json::to_string(&m.observed_status).map_or(0, |s| s.len());
    let mut sizes: Vec<(usize, usize)> = statuses.iter().enumerate().map(|(at, m)| (size(m), at)).collect();
    let mut total: usize = sizes.iter().map(|(size, _)| size + 200).sum();
    sizes.sort_unstable();
    while total > STATUS_MAX {
        let Some((size, at)) = sizes.pop() else { return };
        if size <= "null".len() {
            return;
        }
        statuses[at].observed_status = Value::Null;
        total -= size;
    }
}

/// Who applies in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applier {
    /// The agent.
    Agent,
    /// The parent, through the tunnel or directly.
    Parent,
}

/// Whether a cluster's agent leaves it to the parent to take away what a Description no longer holds. Clusternet's own agent does, in
/// every mode; ours shows itself by the key that it joined with, or by the commit that it applied.
#[must_use]
pub fn leaves_pruning(cluster: &api::clusters::ManagedCluster) -> bool {
    let said = |key: &str| cluster.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(key));
    !said(annotation::AGENT_KEY) && !said(annotation::APPLIED_COMMIT)
}

/// Who holds a cluster that its agent syncs from a branch: a token that goes from hand to hand, so that there are never two
/// writers. Kept as an annotation of the ManagedCluster ([`annotation::APPLIER`]). Who has it gives it away; who has it not asks.
///
/// The agent gives when it cannot read the branch for a set time, or when the parent asked meanwhile; the parent asks when the
/// agent is silent, and takes when it gets no answer. The agent asks when it can read the branch again, and the parent gives
/// once its own writer has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// The agent; nothing is written down.
    #[default]
    Agent,
    /// The agent, which is silent; the parent asks.
    ParentAsks,
    /// The parent.
    Parent,
    /// The parent; the agent can read its branch again and asks.
    AgentAsks,
}

impl Holder {
    /// What a ManagedCluster says. A word that is not known is the agent's: nobody else may write on a doubt.
    pub fn of(cluster: &api::clusters::ManagedCluster) -> Self {
        let said = cluster.metadata.annotations.as_ref().and_then(|a| a.get(annotation::APPLIER));
        [Self::ParentAsks, Self::Parent, Self::AgentAsks].into_iter().find(|holder| holder.as_str() == said.map(String::as_str)).unwrap_or_default()
    }

    /// The annotation's value; none for the agent.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Agent => None,
            Self::ParentAsks => Some("parent-asks"),
            Self::Parent => Some("parent"),
            Self::AgentAsks => Some("agent-asks"),
        }
    }
}

/// Who applies, by the cluster's mode, what its agent offers (facts 4.5), and who holds it where the agent would.
pub fn applier(mode: api::clusters::SyncMode, app_pusher: bool, holder: Holder) -> Applier {
    use api::clusters::SyncMode;
    match mode {
        SyncMode::Push => Applier::Parent,
        SyncMode::Dual if app_pusher => Applier::Parent,
        SyncMode::Pull if app_pusher && matches!(holder, Holder::Parent | Holder::AgentAsks) => Applier::Parent,
        SyncMode::Pull | SyncMode::Dual => Applier::Agent,
    }
}

/// Drops `spec.replicas` of workloads that an autoscaler in the same desired set scales: otherwise the two would fight.
/// `live_replicas` tells the count in the child; a workload that exists keeps it, a new one starts with what is desired.
pub fn yield_to_autoscalers(desired: &mut Desired, live_replicas: impl Fn(&Identity) -> Option<i64>) {
    let mut scaled = BTreeSet::new();
    for want in desired.wants.values() {
        let target = match (want.id.group(), want.id.kind.as_str()) {
            ("autoscaling", "HorizontalPodAutoscaler") | ("keda.sh", "ScaledObject") => &want.object["spec"]["scaleTargetRef"],
            _ => continue,
        };
        let kind = target["kind"].as_str().unwrap_or("Deployment");
        let api_version = target["apiVersion"].as_str().unwrap_or("apps/v1");
        scaled.insert(Identity {
            group: object::split_api_version(api_version).0.to_owned(),
            kind: kind.to_owned(),
            namespace: want.id.namespace.clone(),
            name: target["name"].as_str().unwrap_or_default().to_owned(),
        });
    }
    for identity in scaled {
        if let Some(live) = live_replicas(&identity)
            && let Some(want) = desired.wants.get_mut(&identity)
            && want.object["spec"]["replicas"].as_i64().is_some_and(|wanted| wanted != live)
        {
            Arc::make_mut(&mut want.object)["spec"]["replicas"] = Value::from(live);
        }
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
