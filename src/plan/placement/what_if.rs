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

/// What predictors would say, since nobody is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// Free replicas by cluster, `namespace/name`.
    pub by_cluster: BTreeMap<String, i32>,
    /// Free replicas of all others; not set means that they cannot say.
    pub otherwise: Option<i32>,
}

impl Free {
    fn of(&self, cluster: &str) -> Result<i32, String> {
        let known = self.by_cluster.get(cluster).copied().or(self.otherwise);
        known.ok_or_else(|| "free capacity is not known here; give it as an assumption".to_owned())
    }
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
    #[error("read change {0:?}: expected remove=, drain=, cordon=, lose=, label= or replicas=")]
    Unknown(String),
    /// The text lacks a part.
    #[error("read change {0:?}: expected {1}")]
    Form(String, &'static str),
    /// There is no such cluster.
    #[error("apply change: there is no cluster {0:?}")]
    NoCluster(String),
    /// There is no such FeedInventory.
    #[error("apply change: {0:?} has no FeedInventory, so it has no replicas to change")]
    NoInventory(String),
}

impl Change {
    /// Reads `remove=NS/NAME`, `drain=NS/NAME`, `cordon=NS/NAME`, `lose=NS/NAME`, `label=NS/NAME:KEY=VALUE` (`KEY-` removes) or
    /// `replicas=NS/NAME[:FEED]=N`.
    pub fn parse(text: &str) -> Result<Self, ChangeError> {
        let (word, rest) = text.split_once('=').ok_or_else(|| ChangeError::Unknown(text.to_owned()))?;
        let form = |hint| ChangeError::Form(text.to_owned(), hint);
        Ok(match word {
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
                Self::Label { cluster: cluster.to_owned(), key: key.to_owned(), value }
            }
            "replicas" => {
                let hint = "replicas=NAMESPACE/NAME[:FEED]=NUMBER";
                let (head, number) = rest.rsplit_once('=').ok_or_else(|| form(hint))?;
                let replicas = number.parse().map_err(|_| form(hint))?;
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
            Self::Join(cluster) => fleet.clusters.push((**cluster).clone()),
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
        let decision = due.map(|profile| match begin(profile, &framework.policy, &snapshot, request) {
            Begun::Settled(decision) => *decision,
            Begun::Asks(mut pending) => {
                let feeds = pending.feeds().len();
                let clusters: Vec<(usize, Arc<str>)> = pending.clusters().map(|(number, info)| (number, Arc::clone(&info.key))).collect();
                for (number, key) in clusters {
                    let left = free.of(&key).map(|free| (free - used.get(&key).copied().unwrap_or(0)).max(0));
                    pending.answer(number, left.map(|left| vec![left; feeds]));
                }
                *finish(profile, pending)
            }
        });
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
            let status = subscription.status.get_or_insert_default();
            status.binding_clusters = settled.place.bindings.iter().map(|key| key.to_string()).collect();
            status.replicas = settled.place.replicas.clone();
            status.spec_hash = settled.place.spec_hash;
            status.desired_releases = settled.place.desired_releases;
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
        let free = Free { by_cluster: BTreeMap::new(), otherwise: Some(10) };
        let outlook = what_if(&fleet(), &changes, &Framework::standard(), &free, Timestamp::UNIX_EPOCH).expect("fits");
        let short = |feed: &str| if feed.is_empty() { "bound" } else { "replicas" }.to_owned();
        outlook.effects.iter().map(|e| format!("{} {} {} -> {}", e.cluster, short(&e.feed), e.before, e.after)).collect()
    }

    #[test]
    fn effects() {
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(lines(&["drain=ns/a"]), ["ns/a bound 1 -> 0", "ns/a replicas 3 -> 0", "ns/b replicas 3 -> 6"]);
        assert_eq!(lines(&["lose=ns/b"]), ["ns/a replicas 3 -> 6", "ns/b bound 1 -> 0", "ns/b replicas 3 -> 0"]);
        assert_eq!(lines(&["cordon=ns/a", "replicas=fleet/split=8"]), ["ns/b replicas 3 -> 5"]);
        assert_eq!(lines(&["label=ns/b:team=blue"]), ["ns/a replicas 3 -> 6", "ns/b bound 1 -> 0", "ns/b replicas 3 -> 0"]);
        let mut other = fleet();
        assert_eq!(Change::Drain("ns/x".into()).apply(&mut other, Timestamp::UNIX_EPOCH), Err(ChangeError::NoCluster("ns/x".into())));
        for bad in ["", "explode=ns/a", "label=ns/a", "replicas=fleet/split=many"] {
            assert!(Change::parse(bad).is_err(), "{bad}");
        }
    }
}
