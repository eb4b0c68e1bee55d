//! Is a cluster heard, and what follows: Ready, ClusterInit, and the taints that come from them.

use std::sync::LazyLock;

use api::clusters::{ManagedCluster, ManagedClusterStatus};
use api::conditions::{self, Verdict};
use api::known::{annotation, condition, taint};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Deadline for clusters that do not say how often they report.
const UNKNOWN_GRACE: SignedDuration = SignedDuration::from_mins(9);
/// A cluster may miss this many reports; the third miss makes it unknown.
const MISSES: i64 = 3;
/// Shortest deadline: a fleet that reports every second must not flap with each slow request.
const SHORTEST_GRACE: SignedDuration = SignedDuration::from_secs(5);

/// Reason: the cluster never reported.
pub const NEVER_UPDATED: &str = "ClusterStatusNeverUpdated";
/// Reason: the cluster stopped reporting.
pub const STATUS_UNKNOWN: &str = "ClusterStatusUnknown";
/// Reason: initialisation is off for this cluster.
pub const INIT_DISABLED: &str = "ClusterInitDisabled";
/// Reason: the initialising workloads are not all there.
pub const INIT_WAITING: &str = "ClusterInitWaiting";
/// Reason: the initialising workloads are there.
pub const INIT_DONE: &str = "ClusterInitDone";

/// State of the Base that initialises a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitBase {
    /// Name of the Base.
    pub name: String,
    /// All its Descriptions are Success, and there is at least one.
    pub done: bool,
}

/// What the decision depends on.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The cluster.
    pub cluster: &'a ManagedCluster,
    /// Now.
    pub now: Timestamp,
    /// When the latest report was seen here, by our own clock: the child's clock may be wrong, and after the parent was down
    /// every report is old without any cluster being silent. `None` when the cluster was found silent at the start.
    pub seen_at: Option<Timestamp>,
    /// Whether new clusters are initialised before they are used (gate ClusterInit).
    pub init_enabled: bool,
    /// The Base that would initialise it.
    pub init_base: Option<InitBase>,
}

/// What to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// New conditions, when they differ.
    pub conditions: Option<Vec<Condition>>,
    /// Whether livez, readyz and healthz must be said to be false.
    pub silence: bool,
    /// New taints, when they differ.
    pub taints: Option<Vec<Taint>>,
    /// Base to write down as the one that initialises the cluster.
    pub init_base: Option<String>,
    /// Look again then, even when nothing changes.
    pub next: Option<Timestamp>,
}

static NO_STATUS: LazyLock<ManagedClusterStatus> = LazyLock::new(ManagedClusterStatus::default);

/// The status of a cluster, the empty one when it has none.
pub fn status(cluster: &ManagedCluster) -> &ManagedClusterStatus {
    cluster.status.as_ref().unwrap_or(&NO_STATUS)
}

/// How long a cluster may be silent.
pub fn grace(cluster: &ManagedCluster) -> SignedDuration {
    match status(cluster).heartbeat_frequency_seconds {
        Some(seconds) if seconds > 0 => SignedDuration::from_secs(seconds.saturating_mul(MISSES)).max(SHORTEST_GRACE),
        _ => UNKNOWN_GRACE,
    }
}

/// Decides.
pub fn decide(seen: &Seen<'_>) -> Plan {
    let cluster = seen.cluster;
    let status = status(cluster);
    let now = Time(seen.now);
    let mut list = status.conditions.clone();
    let heard = status.last_observed_time.as_ref().map(|t| t.0);
    let since = seen.seen_at.or(heard).or(cluster.metadata.creation_timestamp.as_ref().map(|t| t.0)).unwrap_or(seen.now);
    let deadline = since.saturating_add(grace(cluster)).unwrap_or(Timestamp::MAX);
    let lost = seen.now >= deadline;
    let mut changed = false;
    if lost {
        let (reason, message) = match heard {
            None => (NEVER_UPDATED, "the agent never reported the status of this cluster".to_owned()),
            Some(at) => (STATUS_UNKNOWN, format!("the agent has not reported since {at:.0}")),
        };
        changed |= conditions::set(&mut list, condition::READY, Verdict::Unknown, reason, &message, None, &now);
    }
    let mut init_base = None;
    let init = init_condition(seen, &mut init_base);
    changed |= conditions::set(&mut list, condition::CLUSTER_INIT, init.0, init.1, &init.2, None, &now);
    let silence = lost && (status.healthz || status.livez || status.readyz);
    let taints = taints(&cluster.spec.taints, &list);
    Plan {
        conditions: changed.then_some(list),
        silence,
        taints: (taints != cluster.spec.taints).then_some(taints),
        init_base,
        next: (!lost).then_some(deadline),
    }
}

fn init_condition(seen: &Seen<'_>, write: &mut Option<String>) -> (Verdict, &'static str, String) {
    let cluster = seen.cluster;
    let said = |key: &str| cluster.metadata.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str);
    if !seen.init_enabled {
        return (Verdict::True, INIT_DISABLED, "initialisation is not enabled".to_owned());
    }
    if said(annotation::SKIP_CLUSTER_INIT) == Some("true") {
        return (Verdict::True, INIT_DISABLED, "the cluster asks to skip initialisation".to_owned());
    }
    // Initialised is for ever: a later failure of those workloads is an ordinary failure.
    if conditions::find(&status(cluster).conditions, condition::CLUSTER_INIT).is_some_and(|c| c.status == "True" && c.reason == INIT_DONE) {
        return (Verdict::True, INIT_DONE, "the initialising workloads were deployed".to_owned());
    }
    match &seen.init_base {
        None => (Verdict::False, INIT_WAITING, "waits for a Subscription that initialises clusters".to_owned()),
        Some(base) => {
            if cluster.spec.cluster_init_base_name.is_none() {
                *write = Some(base.name.clone());
            }
            if base.done {
                (Verdict::True, INIT_DONE, "the initialising workloads were deployed".to_owned())
            } else {
                (Verdict::False, INIT_WAITING, format!("waits for the Descriptions of Base {}", base.name))
            }
        }
    }
}

/// Taints that follow from conditions; all others are left alone. Existing ones keep their place and their time.
pub fn taints(present: &[Taint], conditions: &[Condition]) -> Vec<Taint> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, key) in [(condition::READY, taint::UNSCHEDULABLE), (condition::CLUSTER_INIT, taint::INITIALIZATION)] {
        if let Some(found) = conditions::find(conditions, kind)
            && found.status != "True"
        {
            wanted.push((key, &found.reason));
        }
    }
    let managed = [taint::UNSCHEDULABLE, taint::INITIALIZATION];
    let mut out: Vec<Taint> = Vec::new();
    for old in present {
        if !managed.contains(&old.key.as_str()) {
            out.push(old.clone());
            continue;
        }
        if let Some(at) = wanted.iter().position(|(key, _)| *key == old.key) {
            let (_, reason) = wanted.remove(at);
            out.push(Taint { value: Some(reason.to_owned()), effect: taint::NO_SCHEDULE.to_owned(), ..old.clone() });
        }
    }
    for (key, reason) in wanted {
        out.push(Taint { key: key.to_owned(), value: Some(reason.to_owned()), effect: taint::NO_SCHEDULE.to_owned(), time_added: None });
    }
    out
}

/// True when a cluster cannot be reached, so that deletions must not wait for it: it has no ManagedCluster, or one that
/// reported once and is not Ready now.
pub fn is_lost(cluster: Option<&ManagedCluster>) -> bool {
    cluster.is_none_or(|c| conditions::find(&status(c).conditions, condition::READY).is_some_and(|ready| ready.status != "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap_or_default()
    }

    fn cluster(heard: Option<i64>, every: i64) -> ManagedCluster {
        let mut made = ManagedCluster::default();
        made.metadata.creation_timestamp = Some(Time(at(0)));
        let status = made.status.get_or_insert_default();
        status.last_observed_time = heard.map(|s| Time(at(s)));
        status.heartbeat_frequency_seconds = (every > 0).then_some(every);
        status.healthz = true;
        status.conditions = vec![Condition {
            type_: condition::READY.into(),
            status: "True".into(),
            reason: "ManagedClusterReady".into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(at(0)),
        }];
        made
    }

    fn run(cluster: &ManagedCluster, now: i64) -> Plan {
        decide(&Seen { cluster, now: at(now), seen_at: None, init_enabled: false, init_base: None })
    }

    #[test]
    fn our_own_clock_counts() {
        let seen = cluster(Some(100), 10);
        let run = |seen_at: i64, now: i64| decide(&Seen { cluster: &seen, now: at(now), seen_at: Some(at(seen_at)), init_enabled: false, init_base: None });
        assert_eq!(run(500, 529).next, Some(at(530)), "the child's clock is slow, or the parent was away");
        assert_eq!(ready(&run(500, 530)), Some(("Unknown".into(), STATUS_UNKNOWN.into())));
        assert_eq!(ready(&run(50, 80)), Some(("Unknown".into(), STATUS_UNKNOWN.into())), "the child's clock is fast");
    }

    fn ready(plan: &Plan) -> Option<(String, String)> {
        conditions::find(plan.conditions.as_deref()?, condition::READY).map(|c| (c.status.clone(), c.reason.clone()))
    }

    #[test]
    fn a_silent_cluster_is_unknown_at_its_deadline_and_not_before() {
        let seen = cluster(Some(100), 10);
        let before = run(&seen, 129);
        assert_eq!(ready(&before), Some(("True".into(), "ManagedClusterReady".into())));
        assert_eq!((before.silence, before.next, &before.taints), (false, Some(at(130)), &None));
        let after = run(&seen, 130);
        assert_eq!(ready(&after), Some(("Unknown".into(), STATUS_UNKNOWN.into())));
        assert!(after.silence && after.next.is_none());
        let taints = after.taints.expect("tainted");
        assert_eq!((taints[0].key.as_str(), taints[0].value.as_deref(), taints[0].effect.as_str()), (taint::UNSCHEDULABLE, Some(STATUS_UNKNOWN), "NoSchedule"));
    }

    #[test]
    fn never_heard_counts_from_creation() {
        let mut seen = cluster(None, 0);
        assert_eq!(run(&seen, 539).next, Some(at(540)));
        assert_eq!(ready(&run(&seen, 540)), Some(("Unknown".into(), NEVER_UPDATED.into())));
        seen.status.get_or_insert_default().heartbeat_frequency_seconds = Some(1);
        assert_eq!(run(&seen, 4).next, Some(at(5)), "never shorter than five seconds");
    }

    #[test]
    fn a_plan_on_the_planned_world_is_empty() {
        let mut seen = cluster(Some(100), 10);
        let plan = run(&seen, 200);
        seen.status.get_or_insert_default().conditions = plan.conditions.expect("changed");
        seen.spec.taints = plan.taints.expect("tainted");
        seen.status.get_or_insert_default().healthz = false;
        let again = run(&seen, 260);
        assert_eq!((again.conditions, again.taints, again.silence), (None, None, false));
    }

    #[test]
    fn both_taints_go_at_once_and_foreign_ones_stay() {
        let taint = |key: &str, value: &str| Taint { key: key.into(), value: Some(value.into()), effect: "NoSchedule".into(), time_added: None };
        let present = vec![taint(taint::UNSCHEDULABLE, "x"), taint("mine", "y"), taint(taint::INITIALIZATION, "z")];
        assert_eq!(taints(&present, &[]), vec![taint("mine", "y")]);
        let bad = vec![Condition { type_: condition::READY.into(), status: "False".into(), reason: "ManagedClusterNotReady".into(), message: String::new(), observed_generation: None, last_transition_time: Time(at(0)) }];
        assert_eq!(taints(&present, &bad), vec![taint(taint::UNSCHEDULABLE, "ManagedClusterNotReady"), taint("mine", "y")]);
    }

    #[test]
    fn initialisation_waits_for_its_base() {
        let seen = cluster(Some(100), 10);
        let run = |base: Option<InitBase>| decide(&Seen { cluster: &seen, now: at(101), seen_at: None, init_enabled: true, init_base: base });
        let init = |plan: &Plan| conditions::find(plan.conditions.as_deref().unwrap_or_default(), condition::CLUSTER_INIT).map(|c| (c.status.clone(), c.reason.clone()));
        let waiting = run(None);
        assert_eq!(init(&waiting), Some(("False".into(), INIT_WAITING.into())));
        assert_eq!(waiting.taints.as_deref().map(|t| t[0].key.as_str()), Some(taint::INITIALIZATION));
        let named = run(Some(InitBase { name: "b".into(), done: false }));
        assert_eq!(named.init_base.as_deref(), Some("b"));
        let done = run(Some(InitBase { name: "b".into(), done: true }));
        assert_eq!(init(&done), Some(("True".into(), INIT_DONE.into())));
        assert_eq!(done.taints, None);
    }

    #[test]
    fn lost_means_heard_once_and_silent_now() {
        let mut seen = cluster(Some(1), 1);
        assert!(!is_lost(Some(&seen)));
        seen.status.get_or_insert_default().conditions[0].status = "Unknown".into();
        assert!(is_lost(Some(&seen)) && is_lost(None));
        seen.status.get_or_insert_default().conditions.clear();
        assert!(!is_lost(Some(&seen)));
    }
}
