//! What would happen to a fleet if something changed; nothing is touched, and the same functions decide that decide for real.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{FeedInventory, FeedInventorySpec, Subscription};
use api::clusters::ManagedCluster;
use api::known::taint;
use api::object;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::Serialize;

use super::admit::{Admission, admit};
use super::cluster::ClusterInfo;
use super::config::Framework;
use super::cycle::{Begun, begin, finish};
use super::decision::{Decision, Outcome};
use super::framework::Profile;
use super::request::{Previous, Request, Subject};
use super::snapshot::Snapshot;

/// A fleet, saved or live.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Clusters.
    pub clusters: Vec<ManagedCluster>,
    /// Subscriptions with their status.
    pub subscriptions: Vec<Subscription>,
    /// FeedInventories of the divided ones.
    pub inventories: Vec<FeedInventory>,
}

/// What predictors say, or would say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// What was answered about one feed in one cluster: cluster `namespace/name`, feed key.
    pub answered: BTreeMap<(String, String), Result<i32, String>>,
    /// Free replicas by cluster, `namespace/name`.
    pub by_cluster: BTreeMap<String, i32>,
    /// Free replicas of all others; not set means that they cannot say.
    pub otherwise: Option<i32>,
}

impl Free {
    fn of_feed(&self, cluster: &str, feed: &str) -> Result<i32, String> {
        match self.answered.get(&(cluster.to_owned(), feed.to_owned())) {
            Some(answer) => answer.clone(),
            None => self.of(cluster),
        }
    }

    fn of(&self, cluster: &str) -> Result<i32, String> {
        let known = self.by_cluster.get(cluster).copied().or(self.otherwise);
        known.ok_or_else(|| "free capacity is not known here; give it as an assumption".to_owned())
    }
}

/// A question to a cluster's predictor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Key of the feed.
    pub feed: String,
    /// Id of the cluster.
    pub id: String,
    /// Where its predictor is.
    pub predictor: super::cluster::Predictor,
    /// Whether the cluster keeps a tunnel.
    pub tunnel: bool,
    /// What one replica needs, as JSON.
    pub body: Vec<u8>,
}

/// What to ask before deciding about a fleet (or about one Subscription of it): each divided feed in each selected cluster.
pub fn questions(fleet: &Fleet, only: Option<&str>) -> Vec<Question> {
    let mut snapshot = Snapshot::new();
    for info in fleet.clusters.iter().filter_map(ClusterInfo::of) {
        snapshot.upsert(info);
    }
    let mut out = Vec::new();
    for subscription in &fleet.subscriptions {
        let subject = Subject::of(subscription, &mut snapshot);
        let inventory = fleet.inventories.iter().find(|inventory| key_of(&inventory.metadata) == subject.key);
        if !subject.is_dynamic() || only.is_some_and(|only| only != subject.key) {
            continue;
        }
        let mut slots: Vec<_> = subject.selectors.iter().flatten().flat_map(|id| snapshot.matches(*id)).copied().collect();
        slots.sort_unstable();
        slots.dedup();
        for order in inventory.iter().flat_map(|inventory| &inventory.spec.feeds).filter(|order| order.desired_replicas.is_some()) {
            let body = serde_json::to_vec(&order.replica_requirements).unwrap_or_default();
            for info in slots.iter().filter_map(|slot| snapshot.cluster(*slot)) {
                let Some(predictor) = info.predictor.clone() else { continue };
                let (cluster, feed) = (info.key.to_string(), order.feed.key());
                out.push(Question { cluster, feed, id: info.id.clone(), predictor, tunnel: info.tunnel, body: body.clone() });
            }
        }
    }
    out
}

/// A change to try.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A cluster joins.
    Join(Box<ManagedCluster>),
    /// A cluster is removed.
    Remove(String),
    /// A cluster gets a NoExecute taint.
    Drain(String),
    /// A cluster gets a NoSchedule taint.
    Cordon(String),
    /// A cluster stops reporting.
    Lose(String),
    /// A label of a cluster is set, or removed.
    Label {
        /// Cluster, `namespace/name`.
        cluster: String,
        /// Key.
        key: String,
        /// Value; `None` removes it.
        value: Option<String>,
    },
    /// The total of a divided feed changes.
    Replicas {
        /// Subscription, `namespace/name`.
        subscription: String,
        /// Key of the feed; empty means all feeds that have replicas.
        feed: String,
        /// New total.
        replicas: i32,
    },
}

/// A change that cannot be read or does not fit the fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The text is none of the known changes.
    #[error("read change {0:?}: expected join=, remove=, drain=, cordon=, lose=, label= or replicas=")]
    Unknown(String),
    /// The text lacks a part.
    #[error("read change {0:?}: expected {1}")]
    Form(String, &'static str),
    /// A part of the text cannot be meant.
    #[error("read change {0:?}: {1}")]
    Nonsense(String, String),
    /// There is no such cluster.
    #[error("apply change: there is no cluster {0:?}")]
    NoCluster(String),
    /// There is such a cluster already.
    #[error("apply change: the cluster {0:?} is there already")]
    Joined(String),
    /// There is no such feed.
    #[error("apply change: {0:?} has no divided feed {1:?}; it has {2}")]
    NoFeed(String, String, String),
    /// There is no such FeedInventory.
    #[error("apply change: {0:?} has no FeedInventory, so it has no replicas to change")]
    NoInventory(String),
}

impl Change {
    /// Reads `join=NS/NAME[:KEY=VALUE,…]`, `remove=NS/NAME`, `drain=NS/NAME`, `cordon=NS/NAME`, `lose=NS/NAME`, `label=NS/NAME:KEY=VALUE` (`KEY-` removes) or
    /// `replicas=NS/NAME[:FEED]=N`.
    pub fn parse(text: &str) -> Result<Self, ChangeError> {
        let (word, rest) = text.split_once('=').ok_or_else(|| ChangeError::Unknown(text.to_owned()))?;
        let form = |hint| ChangeError::Form(text.to_owned(), hint);
        let nonsense = |fault: String| ChangeError::Nonsense(text.to_owned(), fault);
        Ok(match word {
            "join" => {
                let hint = "join=NAMESPACE/NAME[:KEY=VALUE,...]";
                let (place, labels) = rest.split_once(':').unwrap_or((rest, ""));
                let (namespace, name) = place.split_once('/').ok_or_else(|| form(hint))?;
                let mut cluster = ManagedCluster::new(name, api::clusters::ManagedClusterSpec::default());
                cluster.metadata.namespace = Some(namespace.to_owned());
                let labels = labels.split(',').filter(|label| !label.is_empty());
                let labels: Option<BTreeMap<String, String>> =
                    labels.map(|label| label.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))).collect();
                let labels = labels.ok_or_else(|| form(hint))?;
                if !api::names::is_dns_label(namespace) {
                    return Err(nonsense(format!("{namespace:?} is no name of a namespace")));
                }
                if !api::names::is_dns_label(name) || name.len() > CLUSTER_NAME_MAX {
                    return Err(nonsense(format!("{name:?} is no name of a cluster: at most {CLUSTER_NAME_MAX} lower-case letters, digits and -")));
                }
                for (key, value) in &labels {
                    label_fault(key, Some(value)).map_or(Ok(()), |fault| Err(nonsense(fault)))?;
                }
                cluster.metadata.labels = Some(labels);
                // It predicts, so that an assumption about its free capacity counts.
                let address = "assumed".to_owned();
                cluster.status = Some(api::clusters::ManagedClusterStatus { predictor_enabled: true, predictor_address: address, ..Default::default() });
                Self::Join(Box::new(cluster))
            }
            "remove" => Self::Remove(rest.to_owned()),
            "drain" => Self::Drain(rest.to_owned()),
            "cordon" => Self::Cordon(rest.to_owned()),
            "lose" => Self::Lose(rest.to_owned()),
            "label" => {
                let (cluster, label) = rest.split_once(':').ok_or_else(|| form("label=NAMESPACE/NAME:KEY=VALUE"))?;
                let (key, value) = match label.split_once('=') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (label.strip_suffix('-').ok_or_else(|| form("label=NAMESPACE/NAME:KEY=VALUE or KEY-"))?, None),
                };
                label_fault(key, value.as_deref()).map_or(Ok(()), |fault| Err(nonsense(fault)))?;
                Self::Label { cluster: cluster.to_owned(), key: key.to_owned(), value }
            }
            "replicas" => {
                let hint = "replicas=NAMESPACE/NAME[:FEED]=NUMBER";
                let (head, number) = rest.rsplit_once('=').ok_or_else(|| form(hint))?;
                let replicas: i32 = number.parse().map_err(|_| form(hint))?;
                if replicas < 0 {
                    return Err(nonsense(format!("there are no {replicas} replicas: give 0 or more")));
                }
                let (subscription, feed) = head.split_once(':').unwrap_or((head, ""));
                Self::Replicas { subscription: subscription.to_owned(), feed: feed.to_owned(), replicas }
            }
            _ => return Err(ChangeError::Unknown(text.to_owned())),
        })
    }

    /// Makes the change in a copy of a fleet.
    pub fn apply(&self, fleet: &mut Fleet, now: Timestamp) -> Result<(), ChangeError> {
        let tainted = |fleet: &mut Fleet, key: &str, effect: &str| {
            let cluster = find(fleet, key)?;
            let taint = Taint {
                key: "anabranch.io/what-if".to_owned(),
                value: None,
                effect: effect.to_owned(),
                time_added: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)),
            };
            cluster.spec.taints.push(taint);
            Ok(())
        };
        match self {
            Self::Join(cluster) => {
                let key = key_of(&cluster.metadata);
                if find(fleet, &key).is_ok() {
                    return Err(ChangeError::Joined(key));
                }
                fleet.clusters.push((**cluster).clone());
            }
            Self::Remove(key) => {
                find(fleet, key)?;
                fleet.clusters.retain(|cluster| key_of(&cluster.metadata) != *key);
            }
            Self::Drain(key) => tainted(fleet, key, taint::NO_EXECUTE)?,
            Self::Cordon(key) => tainted(fleet, key, taint::NO_SCHEDULE)?,
            Self::Lose(key) => {
                let status = find(fleet, key)?.status.get_or_insert_default();
                let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
                let (kind, reason) = (api::known::condition::READY, api::reason::Reason::ClusterStatusUnknown);
                let unknown = api::conditions::Verdict::Unknown;
                api::conditions::set(&mut status.conditions, kind, unknown, reason.as_str(), "what if", None, &now);
            }
            Self::Label { cluster, key, value } => {
                let labels = find(fleet, cluster)?.metadata.labels.get_or_insert_default();
                match value {
                    Some(value) => _ = labels.insert(key.clone(), value.clone()),
                    None => _ = labels.remove(key),
                }
            }
            Self::Replicas { subscription, feed, replicas } => {
                let inventory = fleet.inventories.iter_mut().find(|inventory| key_of(&inventory.metadata) == *subscription);
                let inventory = inventory.ok_or_else(|| ChangeError::NoInventory(subscription.clone()))?;
                let divided = inventory.spec.feeds.iter().filter(|order| order.desired_replicas.is_some());
                let divided: Vec<String> = divided.map(|order| order.feed.key()).collect();
                if divided.is_empty() || (!feed.is_empty() && !divided.contains(feed)) {
                    let have = if divided.is_empty() { "none".to_owned() } else { divided.join(", ") };
                    return Err(ChangeError::NoFeed(subscription.clone(), feed.clone(), have));
                }
                for order in &mut inventory.spec.feeds {
                    if order.desired_replicas.is_some() && (feed.is_empty() || order.feed.key() == *feed) {
                        order.desired_replicas = Some(*replicas);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Longest name of a cluster that the API takes.
const CLUSTER_NAME_MAX: usize = 30;

fn label_fault(key: &str, value: Option<&str>) -> Option<String> {
    if !api::names::is_label_key(key) {
        return Some(format!("{key:?} is no key of a label"));
    }
    let value = value.filter(|value| !api::names::is_label_value(value))?;
    Some(format!("{value:?} is no value of a label"))
}

fn find<'a>(fleet: &'a mut Fleet, key: &str) -> Result<&'a mut ManagedCluster, ChangeError> {
    let cluster = fleet.clusters.iter_mut().find(|cluster| key_of(&cluster.metadata) == key);
    cluster.ok_or_else(|| ChangeError::NoCluster(key.to_owned()))
}

fn key_of(meta: &api::ObjectMeta) -> String {
    object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// A Subscription after its turn.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Where its feeds are.
    pub place: Previous,
    /// The decision, when one was due.
    pub decision: Option<Decision>,
}

/// Gives every Subscription one turn, the highest priorities first. Free capacity shrinks as replicas are placed.
pub fn schedule(fleet: &Fleet, framework: &Framework, free: &Free, now: Timestamp) -> BTreeMap<String, Settled> {
    let mut snapshot = Snapshot::new();
    for info in fleet.clusters.iter().filter_map(ClusterInfo::of) {
        snapshot.upsert(info);
    }
    let inventories: BTreeMap<String, Arc<FeedInventorySpec>> =
        fleet.inventories.iter().map(|inventory| (key_of(&inventory.metadata), Arc::new(inventory.spec.clone()))).collect();
    let mut order: Vec<&Subscription> = fleet.subscriptions.iter().collect();
    order.sort_by_cached_key(|subscription| (-i64::from(subscription.spec.priority()), key_of(&subscription.metadata)));
    let mut used: BTreeMap<Arc<str>, i32> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for subscription in order {
        let subject = Arc::new(Subject::of(subscription, &mut snapshot));
        let before = Previous::of(&subscription.status.clone().unwrap_or_default());
        let request = Request {
            subject: Arc::clone(&subject),
            previous: Arc::new(before.clone()),
            ready: Arc::default(),
            inventory: inventories.get(&subject.key).cloned(),
            now,
        };
        let profile = framework.profiles.get(&subject.spec.scheduler_name);
        let due = profile.filter(|_| admit(&snapshot, &framework.policy, &request) != Admission::No);
        let decision = due.map(|profile| decide(profile, framework, &snapshot, request, free, &used));
        let place = match decision.as_ref().map(|decision| &decision.outcome) {
            Some(Outcome::Bind(placement) | Outcome::Trim(placement)) => Previous::from(placement),
            Some(Outcome::Keep) | None => before.clone(),
        };
        for (cluster, more) in growth(&before, &place) {
            *used.entry(cluster).or_default() += more;
        }
        subject.release(&mut snapshot);
        out.insert(subject.key.clone(), Settled { place, decision });
    }
    out
}

/// One cycle with what predictors say; `used` was placed meanwhile.
fn decide(profile: &Profile, framework: &Framework, snapshot: &Snapshot, request: Request, free: &Free, used: &BTreeMap<Arc<str>, i32>) -> Decision {
    let mut pending = match begin(profile, &framework.policy, snapshot, request) {
        Begun::Settled(decision) => return *decision,
        Begun::Asks(pending) => pending,
    };
    let keys = Arc::clone(&pending.request().subject.feed_keys);
    let feeds: Vec<&str> = pending.feeds().iter().map(|feed| keys.get(*feed).map_or("", String::as_str)).collect();
    let clusters: Vec<(usize, Arc<str>)> = pending.clusters().map(|(number, info)| (number, Arc::clone(&info.key))).collect();
    for (number, key) in clusters {
        let left = |feed: &&str| free.of_feed(&key, feed).map(|free| (free - used.get(&key).copied().unwrap_or(0)).max(0));
        pending.answer(number, feeds.iter().map(left).collect());
    }
    *finish(profile, pending)
}

/// Decides about one Subscription as if its turn had come now, whether or not one is due; `None` when there is none of that
/// name. An error names a scheduler that nobody serves.
pub fn explain(fleet: &Fleet, key: &str, framework: &Framework, free: &Free, now: Timestamp) -> Option<Result<Decision, String>> {
    let subscription = fleet.subscriptions.iter().find(|subscription| key_of(&subscription.metadata) == key)?;
    let mut snapshot = Snapshot::new();
    for info in fleet.clusters.iter().filter_map(ClusterInfo::of) {
        snapshot.upsert(info);
    }
    let status = subscription.status.clone().unwrap_or_default();
    let subject = Arc::new(Subject::of(subscription, &mut snapshot));
    let Some(profile) = framework.profiles.get(&subject.spec.scheduler_name) else { return Some(Err(subject.spec.scheduler_name.clone())) };
    let inventory = fleet.inventories.iter().find(|inventory| key_of(&inventory.metadata) == key);
    let request = Request {
        previous: Arc::new(Previous::of(&status)),
        ready: Arc::new(super::request::Ready::of(&status)),
        inventory: inventory.map(|inventory| Arc::new(inventory.spec.clone())),
        subject,
        now,
    };
    Some(Ok(decide(profile, framework, &snapshot, request, free, &BTreeMap::new())))
}

fn growth(before: &Previous, after: &Previous) -> Vec<(Arc<str>, i32)> {
    let total = |place: &Previous, at: usize| -> i32 { place.replicas.values().filter_map(|shares| shares.get(at)).sum() };
    let had: BTreeMap<&Arc<str>, i32> = before.bindings.iter().enumerate().map(|(at, key)| (key, total(before, at))).collect();
    let more = |(at, key): (usize, &Arc<str>)| (Arc::clone(key), total(after, at) - had.get(key).copied().unwrap_or(0));
    after.bindings.iter().enumerate().map(more).filter(|(_, more)| *more > 0).collect()
}

/// What a change does to one Subscription in one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// Subscription, `namespace/name`.
    pub subscription: String,
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Feed, empty for the binding itself.
    pub feed: String,
    /// Replicas before; for the binding 1 or 0.
    pub before: i32,
    /// Replicas after; for the binding 1 or 0.
    pub after: i32,
}

/// The outcome of a what-if.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// What moves, in order of Subscription and cluster.
    pub effects: Vec<Effect>,
    /// What the scheduler would say about Subscriptions that it cannot place, or only with a warning.
    pub remarks: BTreeMap<String, Vec<String>>,
}

/// Settles a fleet as it is, makes the changes, settles it again, and tells the difference.
pub fn what_if(fleet: &Fleet, changes: &[Change], framework: &Framework, free: &Free, now: Timestamp) -> Result<Outlook, ChangeError> {
    let mut fleet = fleet.clone();
    let old: BTreeMap<String, Previous> = fleet
        .subscriptions
        .iter()
        .map(|subscription| (key_of(&subscription.metadata), Previous::of(&subscription.status.clone().unwrap_or_default())))
        .collect();
    let first = schedule(&fleet, framework, free, now);
    for subscription in &mut fleet.subscriptions {
        if let Some(settled) = first.get(&key_of(&subscription.metadata)) {
            settled.place.write(subscription.status.get_or_insert_default(), now);
        }
    }
    // What the first turn placed is no longer free in the second.
    let mut left = free.clone();
    for (subscription, settled) in old.iter().filter_map(|(key, old)| Some((old, first.get(key)?))) {
        for (cluster, more) in growth(subscription, &settled.place) {
            if let Ok(free) = left.of(&cluster) {
                left.by_cluster.insert(cluster.to_string(), (free - more).max(0));
            }
        }
    }
    for change in changes {
        change.apply(&mut fleet, now)?;
    }
    let second = schedule(&fleet, framework, &left, now);
    let mut outlook = Outlook::default();
    for (key, after) in &second {
        if let Some(before) = first.get(key) {
            compare(key, &before.place, &after.place, &mut outlook.effects);
        }
        if let Some(decision) = &after.decision {
            let mut words: Vec<String> = decision.warnings.iter().map(|(reason, text)| format!("{reason}: {text}")).collect();
            if !decision.is_bound() {
                words.insert(0, format!("{}: {}", decision.reason, decision.message));
            }
            if !words.is_empty() {
                outlook.remarks.insert(key.clone(), words);
            }
        }
    }
    Ok(outlook)
}

fn compare(subscription: &str, before: &Previous, after: &Previous, effects: &mut Vec<Effect>) {
    let clusters: BTreeSet<&Arc<str>> = before.bindings.iter().chain(after.bindings.iter()).collect();
    let at = |place: &Previous, cluster: &Arc<str>| place.bindings.iter().position(|have| have == cluster);
    let feeds: BTreeSet<&String> = before.replicas.keys().chain(after.replicas.keys()).collect();
    for cluster in clusters {
        let (was, is) = (at(before, cluster), at(after, cluster));
        let mut add = |feed: &str, before: i32, after: i32| {
            if before != after {
                let (subscription, cluster, feed) = (subscription.to_owned(), cluster.to_string(), feed.to_owned());
                effects.push(Effect { subscription, cluster, feed, before, after });
            }
        };
        add("", i32::from(was.is_some()), i32::from(is.is_some()));
        for feed in &feeds {
            let share = |place: &Previous, at: Option<usize>| {
                at.and_then(|at| place.replicas.get(*feed).and_then(|shares| shares.get(at))).copied().unwrap_or(0)
            };
            add(feed, share(before, was), share(after, is));
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Kind as _;
    use serde_json::json;

    use super::*;

    fn fleet() -> Fleet {
        let cluster = |name: &str| {
            ManagedCluster::from_object(&json!({
                "metadata": {"name": name, "namespace": "ns", "labels": {"team": "red"}},
                "spec": {"clusterId": name}, "status": {"predictorEnabled": true, "predictorAddress": "x"},
            }))
            .expect("a cluster")
        };
        let feed = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front"});
        let subscription = Subscription::from_object(&json!({
            "metadata": {"name": "split", "namespace": "fleet"},
            "spec": {
                "schedulingStrategy": "Dividing",
                "dividingScheduling": {"type": "Dynamic", "dynamicDividing": {"strategy": "Spread"}},
                "subscribers": [{"clusterAffinity": {"matchLabels": {"team": "red"}}}], "feeds": [feed],
            },
        }))
        .expect("a Subscription");
        let inventory = FeedInventory::from_object(&json!({
            "metadata": {"name": "split", "namespace": "fleet"},
            "spec": {"feeds": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front", "desiredReplicas": 6}]},
        }))
        .expect("an inventory");
        Fleet { clusters: vec![cluster("a"), cluster("b")], subscriptions: vec![subscription], inventories: vec![inventory] }
    }

    fn lines(changes: &[&str]) -> Vec<String> {
        let changes: Vec<Change> = changes.iter().map(|text| Change::parse(text).expect("a change")).collect();
        let free = Free { otherwise: Some(10), ..Free::default() };
        let outlook = what_if(&fleet(), &changes, &Framework::standard(), &free, Timestamp::UNIX_EPOCH).expect("fits");
        let short = |feed: &str| if feed.is_empty() { "bound" } else { "replicas" }.to_owned();
        outlook.effects.iter().map(|e| format!("{} {} {} -> {}", e.cluster, short(&e.feed), e.before, e.after)).collect()
    }

    #[test]
    fn one_is_explained_though_nothing_is_due() {
        let free = Free { answered: BTreeMap::from([(("ns/b".to_owned(), "apps/v1/Deployment/web/front".to_owned()), Err("answers 500".to_owned()))]), otherwise: Some(10), ..Free::default() };
        let fleet = fleet();
        assert_eq!(questions(&fleet, None).len(), 2);
        let said = explain(&fleet, "fleet/split", &Framework::standard(), &free, Timestamp::UNIX_EPOCH).expect("there").expect("served");
        assert_eq!(said.message, "bound to 1 of 2 clusters");
        assert!(said.explain.text().contains("ns/b     Predictor  Error  answers 500"), "{}", said.explain.text());
        assert!(explain(&fleet, "fleet/none", &Framework::standard(), &free, Timestamp::UNIX_EPOCH).is_none());
    }

    #[test]
    fn effects() {
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(lines(&["drain=ns/a"]), ["ns/a bound 1 -> 0", "ns/a replicas 3 -> 0", "ns/b replicas 3 -> 6"]);
        assert_eq!(lines(&["lose=ns/b"]), ["ns/a replicas 3 -> 6", "ns/b bound 1 -> 0", "ns/b replicas 3 -> 0"]);
        assert_eq!(lines(&["cordon=ns/a", "replicas=fleet/split=8"]), ["ns/b replicas 3 -> 5"]);
        assert_eq!(lines(&["label=ns/b:team=blue"]), ["ns/a replicas 3 -> 6", "ns/b bound 1 -> 0", "ns/b replicas 3 -> 0"]);
        assert_eq!(lines(&["join=ns/c:team=red", "replicas=fleet/split=30"]), ["ns/a replicas 3 -> 10", "ns/b replicas 3 -> 10", "ns/c bound 0 -> 1", "ns/c replicas 0 -> 10"]);
        let mut other = fleet();
        assert_eq!(Change::Drain("ns/x".into()).apply(&mut other, Timestamp::UNIX_EPOCH), Err(ChangeError::NoCluster("ns/x".into())));
        let refused = |text: &str, word: &str| {
            let said = Change::parse(text).and_then(|change| change.apply(&mut fleet(), Timestamp::UNIX_EPOCH)).expect_err(text).to_string();
            assert!(said.contains(word), "{text}: {said}");
        };
        refused("join=ns/a", "is there already");
        refused("join=ns/A_b", "no name of a cluster");
        refused(&format!("join=ns/{}", "x".repeat(31)), "at most 30");
        refused("join=N S/c", "no name of a namespace");
        refused("join=ns/c:a b=c", "no key of a label");
        refused("label=ns/a:k=no value", "no value of a label");
        refused("label=ns/a:-bad-", "no key of a label");
        refused("replicas=fleet/split=-1", "0 or more");
        refused("replicas=fleet/split:apps/v1/Deployment/web/nothere=3", "it has apps/v1/Deployment/web/front");
        refused("drain=ns/x", "there is no cluster");
        for bad in ["", "explode=ns/a", "join=c", "join=ns/c:team", "label=ns/a", "replicas=fleet/split=many"] {
            assert!(Change::parse(bad).is_err(), "{bad}");
        }
    }
}
