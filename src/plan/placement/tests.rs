//! Recorded decisions of Clusternet's scheduler, and properties that hold for any input.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Kind;
use api::apps::{DividingScheduling, DividingType, DynamicDividing, Feed, FeedInventorySpec, FeedOrder, SchedulingStrategy, Subscriber, Subscription, SubscriptionStatus};
use api::apps::DividingStrategy;
use api::reason::Reason;
use jiff::Timestamp;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    case: String,
    fail_over: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    clusters: Vec<Row>,
    subscriptions: Vec<Wanted>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<k8s_openapi::api::core::v1::Taint>,
    #[serde(default)]
    not_ready: bool,
    /// Free replicas, or an address that fails.
    predictor: Option<Value>,
}

#[derive(Deserialize)]
struct Wanted {
    name: String,
    spec: Value,
    inventory: Option<Vec<FeedOrder>>,
    status: Option<SubscriptionStatus>,
}

impl Row {
    fn info(&self) -> ClusterInfo {
        ClusterInfo {
            key: format!("{}/{}", self.namespace, self.name).into(),
            name: self.name.clone(),
            id: self.name.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            not_ready_since: self.not_ready.then(|| at(0)),
            predictor: self.predictor.as_ref().map(|p| cluster::Predictor { address: p.to_string(), direct: true }),
            tunnel: false,
            capacity_mark: 0,
        }
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

/// A small world: clusters with free capacity, and the statuses that decisions leave.
struct World {
    snapshot: Snapshot,
    free: BTreeMap<String, Result<i32, String>>,
    framework: Framework,
    statuses: BTreeMap<String, SubscriptionStatus>,
    now: i64,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self { snapshot: Snapshot::new(), free: BTreeMap::new(), framework: Framework::with_policy(policy), statuses: BTreeMap::new(), now: 100 }
    }

    fn set(&mut self, info: ClusterInfo, free: Option<Result<i32, String>>) {
        if let Some(free) = free {
            self.free.insert(info.key.to_string(), free);
        }
        self.snapshot.upsert(info);
    }

    /// One turn: admission, cycle, and the status that binding would write.
    fn turn(&mut self, subscription: &Subscription, inventory: Option<Vec<FeedOrder>>) -> Option<Decision> {
        let subject = Arc::new(Subject::of(subscription, &mut self.snapshot));
        let key = subject.key.clone();
        let request = Request {
            subject: Arc::clone(&subject),
            previous: Arc::new(Previous::of(self.statuses.get(&key).unwrap_or(&SubscriptionStatus::default()))),
            ready: Arc::new(Ready::of(self.statuses.get(&key).unwrap_or(&SubscriptionStatus::default()))),
            inventory: inventory.map(|feeds| Arc::new(FeedInventorySpec { feeds })),
            now: at(self.now),
        };
        let profile = self.framework.profiles.get(&subscription.spec.scheduler_name).cloned();
        let decision = profile.filter(|_| admit(&self.snapshot, &self.framework.policy, &request) != Admission::No).map(|profile| {
            match begin(&profile, &self.framework.policy, &self.snapshot, request) {
                Begun::Settled(decision) => *decision,
                Begun::Asks(mut pending) => {
                    let clusters: Vec<_> = pending.clusters().map(|(number, info)| (number, info.key.to_string())).collect();
                    for (number, key) in clusters {
                        let free = self.free.get(&key).cloned().unwrap_or_else(|| Err("no such predictor".to_owned()));
                        let feeds = pending.feeds().len();
                        pending.answer(number, free.map(|free| vec![free; feeds]));
                    }
                    *finish(&profile, pending)
                }
            }
        });
        subject.release(&mut self.snapshot);
        if let Some(Decision { outcome: Outcome::Bind(placement) | Outcome::Trim(placement), .. }) = &decision {
            let status = self.statuses.entry(key).or_default();
            Previous::from(placement).write(status, at(self.now));
            assert!(placement.is_in(&Previous::of(status)));
        }
        decision
    }
}

/// What is right where the recording is marked wrong, by case, step and Subscription.
fn corrected(case: &str, step: usize, name: &str, wanted: &mut SubscriptionStatus) {
    let deployment = "apps/v1/Deployment/notes/bell";
    match (case, step, name) {
        // Fail-over moves the share of the lost cluster.
        ("56-not-ready-failover-on", 2 | 3, "split") => {
            wanted.binding_clusters.retain(|key| !key.ends_with("birch"));
            wanted.replicas.insert(deployment.to_owned(), vec![5, 4]);
            wanted.desired_releases = 2;
        }
        // A cluster that is gone is unbound at once.
        ("59-cluster-added-and-removed", 3, "split") => {
            wanted.binding_clusters = vec!["clusternet-aster/aster".to_owned(), "clusternet-birch/birch".to_owned()];
            wanted.replicas.insert(deployment.to_owned(), vec![4, 3]);
        }
        // One cluster of two groups is bound once.
        ("69-sub-groups-replication", _, "in-two-groups") => {
            wanted.binding_clusters.dedup();
            wanted.desired_releases = 1;
        }
        // A tie by chance: equal weights in one subscriber. Ours goes by name.
        ("63-static-overlap-and-no-weight", _, "group-weight") => {
            wanted.replicas.insert("apps/v1/Deployment/tally/main".to_owned(), vec![4, 1, 5, 3]);
        }
        // Binpack packs: six replicas fit exactly into the second cluster.
        ("78-dynamic-options", _, "binpack") => {
            wanted.binding_clusters = vec!["clusternet-birch/birch".to_owned()];
            wanted.replicas = BTreeMap::from([("apps/v1/Deployment/tally/main".to_owned(), vec![6]), ("v1/Namespace/tally".to_owned(), vec![])]);
            wanted.desired_releases = 1;
        }
        _ => {}
    }
}

#[test]
fn recorded_cases() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("recorded.json")).expect("recorded cases");
    let mut failures = Vec::new();
    for case in cases {
        let mut world = World::new(Policy { fail_over: case.fail_over, ..Policy::clusternet() });
        for (index, step) in case.steps.iter().enumerate() {
            let gone: Vec<String> = world.snapshot.iter().map(|c| c.key.to_string()).filter(|key| !step.clusters.iter().any(|row| *row.info().key == **key)).collect();
            for key in gone {
                world.snapshot.remove(&key);
            }
            for row in &step.clusters {
                let free = row.predictor.as_ref().map(|p| p.as_i64().map(|n| i32::try_from(n).expect("small")).ok_or_else(|| "answers 500".to_owned()));
                world.set(row.info(), free);
            }
            for wanted in &step.subscriptions {
                let subscription = Subscription::from_object(&json!({"metadata": {"name": wanted.name, "namespace": "fleet"}, "spec": wanted.spec})).expect("a Subscription");
                let said = world.turn(&subscription, wanted.inventory.clone());
                let mut right = wanted.status.clone().unwrap_or_default();
                corrected(&case.case, index + 1, &wanted.name, &mut right);
                let have = world.statuses.get(&format!("fleet/{}", wanted.name)).cloned().unwrap_or_default();
                if have != right {
                    let said = said.map(|said| said.message).unwrap_or_default();
                    failures.push(format!("{} step {} {}: {said}\n  have {have:?}\n  want {right:?}", case.case, index + 1, wanted.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n{}", failures.len(), failures.join("\n"));
}

fn plain(name: &str, labels: &[(&str, &str)]) -> ClusterInfo {
    let row = Row {
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        taints: Vec::new(),
        not_ready: false,
        predictor: Some(json!(1)),
    };
    row.info()
}

fn taint(effect: &str, since: Option<i64>) -> k8s_openapi::api::core::v1::Taint {
    k8s_openapi::api::core::v1::Taint {
        key: "flood".to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: since.map(|second| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(second))),
    }
}

fn copies() -> Subscription {
    let mut sub = Subscription::new("copies", api::apps::SubscriptionSpec { subscribers: vec![Subscriber::default()], ..Default::default() });
    sub.metadata.namespace = Some("fleet".to_owned());
    sub
}

fn divided(kind: DividingType, dynamic: Option<DynamicDividing>, weights: &[(&str, i32)]) -> Subscription {
    let mut sub = copies();
    sub.spec.scheduling_strategy = SchedulingStrategy::Dividing;
    sub.spec.dividing_scheduling = Some(DividingScheduling { kind, dynamic_dividing: dynamic });
    sub.spec.feeds = vec![feed()];
    if !weights.is_empty() {
        sub.spec.subscribers = weights
            .iter()
            .map(|(name, weight)| Subscriber {
                cluster_affinity: serde_json::from_value(json!({"matchLabels": {"name": name}})).expect("a selector"),
                weight: *weight,
                ..Subscriber::default()
            })
            .collect();
    }
    sub
}

fn feed() -> Feed {
    Feed { kind: "Deployment".into(), api_version: "apps/v1".into(), namespace: "web".into(), name: "front".into() }
}

fn order(replicas: i32) -> Option<Vec<FeedOrder>> {
    Some(vec![FeedOrder { feed: feed(), desired_replicas: Some(replicas), ..FeedOrder::default() }])
}

fn shares(world: &World) -> Vec<(String, i32)> {
    let status = &world.statuses["fleet/copies"];
    let list = status.replicas.get(&feed().key()).cloned().unwrap_or_default();
    status.binding_clusters.iter().map(|key| key.trim_start_matches("ns/").to_owned()).zip(list).collect()
}

fn bindings(world: &World) -> Vec<&str> {
    world.statuses["fleet/copies"].binding_clusters.iter().map(|key| key.trim_start_matches("ns/")).collect()
}

#[test]
fn no_schedule_never_evicts_and_no_execute_does() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b", "c"] {
        world.set(plain(name, &[]), None);
    }
    let sub = copies();
    world.turn(&sub, None);
    assert_eq!(bindings(&world), ["a", "b", "c"]);
    world.set(ClusterInfo { taints: vec![taint("NoSchedule", None)], ..plain("a", &[]) }, None);
    world.set(ClusterInfo { taints: vec![taint("NoExecute", None)], ..plain("b", &[]) }, None);
    world.turn(&sub, None);
    assert_eq!(bindings(&world), ["a", "c"]);
    // A new cluster with NoSchedule is not taken.
    world.set(ClusterInfo { taints: vec![taint("NoSchedule", None)], ..plain("d", &[]) }, None);
    world.turn(&sub, None);
    assert_eq!(bindings(&world), ["a", "c"]);
    // NoExecute everywhere unbinds, though nothing else fits; a selector that matches nothing does not.
    for name in ["a", "c"] {
        world.set(ClusterInfo { taints: vec![taint("NoExecute", None)], ..plain(name, &[]) }, None);
    }
    let said = world.turn(&sub, None).expect("a decision");
    assert_eq!((said.reason, bindings(&world).len()), (Reason::NoFeasibleCluster, 0));
}

#[test]
fn nothing_is_cleared_because_nothing_fits() {
    let mut world = World::new(Policy::default());
    world.set(plain("a", &[]), None);
    world.turn(&copies(), None);
    let mut sub = copies();
    sub.spec.subscribers[0].cluster_affinity = serde_json::from_value(json!({"matchLabels": {"tpyo": "x"}})).expect("a selector");
    let said = world.turn(&sub, None).expect("a decision");
    assert_eq!(said.outcome, Outcome::Keep);
    assert!(said.message.contains("no cluster is selected"), "{}", said.message);
    assert_eq!(bindings(&world), ["a"]);
    world.snapshot.remove("ns/a");
    assert_eq!(world.turn(&sub, None).expect("a decision").reason, Reason::NoClusters);
    assert_eq!(bindings(&world), ["a"]);
}

#[test]
fn tolerations_with_seconds_end() {
    let mut world = World::new(Policy::default());
    world.set(plain("a", &[]), None);
    world.set(plain("b", &[]), None);
    let mut sub = copies();
    sub.spec.cluster_tolerations = serde_json::from_value(json!([{"key": "flood", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])).expect("tolerations");
    world.turn(&sub, None);
    world.set(ClusterInfo { taints: vec![taint("NoExecute", Some(90))], ..plain("b", &[]) }, None);
    let said = world.turn(&sub, None).expect("a decision");
    assert_eq!((bindings(&world), said.recheck), (vec!["a", "b"], Some(at(150))));
    world.now = 150;
    world.turn(&sub, None);
    assert_eq!(bindings(&world), ["a"]);
}

#[test]
fn fail_over_moves_and_never_moves_back_by_itself() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b", "c"] {
        world.set(plain(name, &[("name", name)]), Some(Ok(10)));
    }
    let sub = divided(DividingType::Dynamic, Some(DynamicDividing::default()), &[]);
    world.turn(&sub, order(9));
    assert_eq!(shares(&world), [("a".into(), 3), ("b".into(), 3), ("c".into(), 3)]);
    world.set(ClusterInfo { not_ready_since: Some(at(0)), ..plain("b", &[("name", "b")]) }, None);
    world.turn(&sub, order(9));
    assert_eq!(shares(&world), [("a".into(), 5), ("c".into(), 4)]);
    world.set(plain("b", &[("name", "b")]), None);
    assert!(world.turn(&sub, order(9)).is_none());
    assert_eq!(shares(&world), [("a".into(), 5), ("c".into(), 4)]);
    // What runs there is not free; on a fresh division it is in nobody's way.
    for (name, free) in [("a", 5), ("c", 6)] {
        world.set(plain(name, &[("name", name)]), Some(Ok(free)));
    }
    let mut wish = sub.clone();
    wish.metadata.annotations = Some(BTreeMap::from([(api::known::annotation::REBALANCE.to_owned(), "1".to_owned())]));
    world.turn(&wish, order(9));
    assert_eq!(shares(&world), [("a".into(), 3), ("b".into(), 3), ("c".into(), 3)]);
}

/// Static dividing follows the clusters there are; what was left because it failed comes back on request only.
#[test]
fn static_shares_follow_the_clusters() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b"] {
        world.set(plain(name, &[("team", "red")]), None);
    }
    let mut sub = divided(DividingType::Static, None, &[]);
    sub.spec.subscribers[0].weight = 1;
    let turn = |world: &mut World, sub: &Subscription, total: i32, want: &[(&str, i32)]| {
        world.turn(sub, order(total));
        let want: Vec<(String, i32)> = want.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
        assert_eq!(shares(world), want);
    };
    turn(&mut world, &sub, 6, &[("a", 3), ("b", 3)]);
    world.set(plain("c", &[("team", "red")]), None);
    turn(&mut world, &sub, 6, &[("a", 2), ("b", 2), ("c", 2)]);
    // It is lost, and comes back.
    let lost = ClusterInfo { not_ready_since: Some(at(0)), ..plain("b", &[("team", "red")]) };
    world.set(lost.clone(), None);
    turn(&mut world, &sub, 6, &[("a", 3), ("c", 3)]);
    world.set(plain("b", &[("team", "red")]), None);
    turn(&mut world, &sub, 6, &[("a", 3), ("c", 3)]);
    // Another one joins: that is no reason to go back.
    world.set(plain("d", &[("team", "red")]), None);
    turn(&mut world, &sub, 6, &[("a", 2), ("c", 2), ("d", 2)]);
    // A change of the total is.
    turn(&mut world, &sub, 8, &[("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
    // Who chose so goes back at once.
    sub.metadata.annotations = Some(BTreeMap::from([(api::known::annotation::FAILBACK.to_owned(), "auto".to_owned())]));
    world.set(lost, None);
    turn(&mut world, &sub, 8, &[("a", 3), ("c", 3), ("d", 2)]);
    world.set(plain("b", &[("team", "red")]), None);
    turn(&mut world, &sub, 8, &[("a", 2), ("b", 2), ("c", 2), ("d", 2)]);
    // The original does none of it.
    let mut world = World::new(Policy::clusternet());
    world.set(plain("a", &[]), None);
    let mut sub = divided(DividingType::Static, None, &[]);
    sub.spec.subscribers[0].weight = 1;
    turn(&mut world, &sub, 6, &[("a", 6)]);
    world.set(plain("b", &[]), None);
    assert!(world.turn(&sub, order(6)).is_none());
}

/// A pick of some clusters leaves a lost one, copies to all stay.
#[test]
fn picks_are_made_anew_when_a_cluster_is_lost() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b"] {
        world.set(plain(name, &[]), None);
    }
    let mut pick = copies();
    pick.spec.scheduling_by_sub_group = Some(true);
    pick.spec.subscribers[0].sub_group_strategy = Some(api::apps::SubGroupStrategy { min_clusters: 1 });
    world.turn(&pick, None);
    assert_eq!(bindings(&world), ["a"]);
    world.set(ClusterInfo { not_ready_since: Some(at(0)), ..plain("a", &[]) }, None);
    world.turn(&pick, None);
    assert_eq!(bindings(&world), ["b"]);
    world.turn(&copies(), None);
    assert_eq!(bindings(&world), ["a", "b"]);
}

#[test]
fn a_graceful_static_move_waits_for_its_replacements() {
    let mut world = World::new(Policy::default());
    world.set(plain("a", &[]), None);
    let mut sub = divided(DividingType::Static, None, &[]);
    sub.spec.subscribers[0].weight = 1;
    sub.metadata.annotations = Some(BTreeMap::from([(api::known::annotation::FAILOVER.to_owned(), "graceful".to_owned())]));
    let ready = |world: &mut World, counts: &[(&str, i32)]| {
        let details: Vec<Value> = counts.iter().map(|(id, count)| json!({"clusterId": id, "available": true, "replicaStatus": {"readyReplicas": count}})).collect();
        let status = world.statuses.get_mut("fleet/copies").expect("a status");
        status.aggregated_statuses = serde_json::from_value(json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front", "feedStatusDetails": details,
        }]))
        .expect("a status");
    };
    world.turn(&sub, order(4));
    ready(&mut world, &[("a", 4)]);
    world.set(plain("b", &[]), None);
    for _ in 0..2 {
        let said = world.turn(&sub, order(4)).expect("a decision");
        assert_eq!(shares(&world), [("a".into(), 4), ("b".into(), 2)]);
        assert_eq!(said.warnings[0].0, Reason::FailingOver);
    }
    ready(&mut world, &[("a", 4), ("b", 2)]);
    world.turn(&sub, order(4));
    assert_eq!(shares(&world), [("a".into(), 2), ("b".into(), 2)]);
}

#[test]
fn weights_of_zero_divide_evenly_with_a_warning() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b"] {
        world.set(plain(name, &[("name", name)]), None);
    }
    let said = world.turn(&divided(DividingType::Static, None, &[("a", 0), ("b", 0)]), order(5)).expect("a decision");
    assert_eq!(said.warnings[0].0, Reason::ZeroWeights);
    assert_eq!(shares(&world), [("a".into(), 3), ("b".into(), 2)]);
}

fn dynamic(value: Value) -> Option<DynamicDividing> {
    Some(serde_json::from_value(value).expect("dynamicDividing"))
}

#[test]
fn options_of_dynamic_dividing() {
    let stage = |frees: &[(&str, &str, i32)]| {
        let mut world = World::new(Policy::default());
        for (name, zone, free) in frees {
            world.set(plain(name, &[("name", name), ("zone", zone)]), Some(Ok(*free)));
        }
        world
    };
    let check = |options: Value, total: i32, want: &[(&str, i32)]| {
        let mut world = stage(&[("a", "x", 3), ("b", "y", 6), ("c", "y", 9)]);
        let said = world.turn(&divided(DividingType::Dynamic, dynamic(options.clone()), &[]), order(total)).expect("a decision");
        let want: Vec<(String, i32)> = want.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
        assert_eq!(shares(&world), want, "{options} {}", said.message);
    };
    check(json!({"strategy": "Spread"}), 6, &[("a", 1), ("b", 2), ("c", 3)]);
    check(json!({"strategy": "Spread", "maxClusters": 1}), 6, &[("c", 6)]);
    check(json!({"strategy": "Spread", "maxClusters": 2}), 6, &[("b", 2), ("c", 4)]);
    check(json!({"strategy": "Binpack"}), 9, &[("c", 9)]);
    check(json!({"strategy": "Binpack"}), 2, &[("a", 2)]);
    check(json!({"strategy": "Binpack"}), 14, &[("b", 5), ("c", 9)]);
    check(json!({"strategy": "Binpack", "minClusters": 2}), 3, &[("b", 1), ("c", 2)]);
    let prefer_a = json!([{"weight": 10, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a"]}]}}]);
    check(json!({"strategy": "Spread", "preferredClusters": prefer_a}), 4, &[("a", 3), ("b", 0), ("c", 1)]);
    check(json!({"strategy": "Binpack", "preferredClusters": prefer_a}), 4, &[("a", 3), ("b", 1)]);
    let hard = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    check(json!({"strategy": "Spread", "topologySpreadConstraints": hard}), 6, &[("a", 3), ("b", 1), ("c", 2)]);
    // Zone x is full at three, so zone y takes no more than one above it.
    check(json!({"strategy": "Spread", "topologySpreadConstraints": hard}), 12, &[("a", 3), ("b", 2), ("c", 2)]);
    let soft = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    check(json!({"strategy": "Spread", "topologySpreadConstraints": soft}), 12, &[("a", 3), ("b", 4), ("c", 5)]);
    let mut world = stage(&[("a", "x", 3)]);
    let said = world.turn(&divided(DividingType::Dynamic, dynamic(json!({"strategy": "Spread", "minClusters": 2})), &[]), order(2)).expect("a decision");
    assert_eq!((said.outcome, said.reason), (Outcome::Keep, Reason::ConstraintNotMet));
}

#[test]
fn totals_beyond_all_sense_are_divided_in_bounded_time() {
    let mut world = World::new(Policy::default());
    for (name, zone) in [("a", "x"), ("b", "y"), ("c", "y")] {
        world.set(plain(name, &[("zone", zone)]), Some(Ok(i32::MAX)));
    }
    let spread = |when: &str| dynamic(json!({"strategy": "Spread", "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}]}));
    world.turn(&divided(DividingType::Dynamic, spread("ScheduleAnyway"), &[]), order(i32::MAX));
    let sum: i64 = shares(&world).iter().map(|(_, share)| i64::from(*share)).sum();
    assert_eq!(sum, i64::from(i32::MAX));
    world.statuses.clear();
    world.turn(&divided(DividingType::Dynamic, spread("DoNotSchedule"), &[]), order(i32::MAX));
    let placed = shares(&world);
    assert!((placed[0].1 - placed[1].1 - placed[2].1).abs() <= 1, "{placed:?}");
}

#[test]
fn a_failing_predictor_does_not_fail_the_rest() {
    let mut world = World::new(Policy::default());
    world.set(plain("a", &[]), Some(Ok(5)));
    world.set(plain("b", &[]), Some(Err("answers 500".to_owned())));
    let sub = divided(DividingType::Dynamic, Some(DynamicDividing::default()), &[]);
    let said = world.turn(&sub, order(7)).expect("a decision");
    assert_eq!(shares(&world), [("a".into(), 5)]);
    let reasons: Vec<Reason> = said.warnings.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, [Reason::PredictorUnavailable, Reason::InsufficientCapacity]);
    assert_eq!(said.retry, Retry::OnEvent);
    assert!(said.wake.meets(Events::PREDICTOR) && said.wake.meets(Events::CAPACITY));
    // It comes back: the rest is placed, nothing moves. What a predictor says is what is left.
    world.set(plain("a", &[]), Some(Ok(0)));
    world.set(plain("b", &[]), Some(Ok(5)));
    world.turn(&sub, order(7));
    assert_eq!(shares(&world), [("a".into(), 5), ("b".into(), 2)]);
}

#[test]
fn a_graceful_move_waits_for_its_replacements() {
    let mut world = World::new(Policy::default());
    for name in ["a", "b"] {
        world.set(plain(name, &[]), Some(Ok(10)));
    }
    let mut sub = divided(DividingType::Dynamic, Some(DynamicDividing::default()), &[]);
    sub.metadata.annotations = Some(BTreeMap::from([(api::known::annotation::FAILOVER.to_owned(), "graceful".to_owned())]));
    world.turn(&sub, order(4));
    assert_eq!(shares(&world), [("a".into(), 2), ("b".into(), 2)]);
    world.set(ClusterInfo { taints: vec![taint("NoExecute", None)], ..plain("a", &[]) }, None);
    for _ in 0..2 {
        let said = world.turn(&sub, order(4)).expect("a decision");
        assert_eq!(shares(&world), [("a".into(), 2), ("b".into(), 4)]);
        assert_eq!((said.warnings[0].0, said.retry), (Reason::FailingOver, Retry::OnEvent));
        assert!(said.wake.meets(Events::HEALTH));
    }
    let status = world.statuses.get_mut("fleet/copies").expect("a status");
    status.aggregated_statuses = serde_json::from_value(json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front",
        "feedStatusDetails": [{"clusterId": "b", "available": true, "replicaStatus": {"readyReplicas": 4}}],
    }])).expect("a status");
    world.turn(&sub, order(4));
    assert_eq!(shares(&world), [("b".into(), 4)]);
    assert!(world.turn(&sub, order(4)).is_none());
}

#[test]
fn explanations_are_tables() {
    let mut world = World::new(Policy::default());
    world.set(plain("a", &[]), Some(Ok(5)));
    world.set(ClusterInfo { taints: vec![taint("NoSchedule", None)], ..plain("b", &[]) }, Some(Ok(5)));
    let said = world.turn(&divided(DividingType::Dynamic, Some(DynamicDividing::default()), &[]), order(7)).expect("a decision");
    let text = said.explain.text();
    let want = "clusters 2, selected 2, feasible 1

why clusters were rejected
COUNT  REASON
1      had taint {flood: }, that the subscription didn't tolerate

rejected
CLUSTER  PLUGIN           CODE                          REASON
ns/b     TaintToleration  UnschedulableAndUnresolvable  had taint {flood: }, that the subscription didn't tolerate

apps/v1/Deployment/web/front: 5 of 7 replicas placed
CLUSTER  WEIGHT  FREE  BEFORE  NOW
ns/a     0       5     0       5
";
    assert!(text.starts_with(want), "{text}");
    assert!(text.contains("would be tried again when a cluster joins, or "), "{text}");
}

#[test]
fn configuration() {
    let build = |value: Value| {
        let config: Config = serde_json::from_value(value).expect("a configuration");
        Framework::build(&config, &[]).map(|framework| framework.profiles.keys().cloned().collect::<Vec<_>>()).map_err(|fault| fault.path)
    };
    assert_eq!(Framework::standard().profiles.len(), 1);
    assert_eq!(build(json!({})), Ok(vec!["default".to_owned()]));
    assert_eq!(build(json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]})), Ok(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(build(json!({"profiles": [{"schedulerName": "a"}, {}]})), Err("profiles[1].schedulerName".to_owned()));
    assert_eq!(build(json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]})), Err("profiles[1].schedulerName".to_owned()));
    assert_eq!(build(json!({"profiles": [{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}]})), Err("profiles[0].plugins.bind".to_owned()));
    assert_eq!(build(json!({"profiles": [{"plugins": {"score": {"enabled": [{"name": "TaintToleration", "weight": 0}]}}}]})), Err("profiles[0].plugins.score.enabled[0].weight".to_owned()));
    assert_eq!(build(json!({"profiles": [{"plugins": {"filter": {"enabled": [{"name": "Nobody"}]}}}]})), Err("profiles[0].plugins.filter.enabled[0].name".to_owned()));
    let config: Config = serde_json::from_value(json!({"percentageofclusterstotolerate": 40})).expect("a configuration");
    assert_eq!(Framework::build(&config, &[]).expect("valid").policy.percentage_of_clusters_to_tolerate, 40);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn static_sums_are_exact(total in 0i64..10_000, weights in proptest::collection::vec(0i64..1000, 0..40)) {
        let shares = divide::by_weight(total, &weights);
        let sum: i64 = shares.iter().sum();
        prop_assert_eq!(sum, if weights.iter().any(|weight| *weight > 0) { total } else { 0 });
        prop_assert!(shares.iter().zip(&weights).all(|(share, weight)| *weight > 0 || *share == 0));
    }

    #[test]
    fn dynamic_sums_are_exact_and_within_capacity(amount in 0i64..100_000, capacity in proptest::collection::vec(0i64..10_000, 0..40)) {
        let shares = divide::by_capacity(amount, &capacity);
        prop_assert_eq!(shares.iter().sum::<i64>(), amount.min(capacity.iter().sum()));
        prop_assert!(shares.iter().zip(&capacity).all(|(share, free)| share <= free));
    }

    #[test]
    fn dynamic_is_monotone_and_stable(
        frees in proptest::collection::vec(0i32..50, 1..8),
        totals in proptest::collection::vec(0i32..120, 1..6),
        packs: bool,
        most in proptest::option::of(1i32..4),
    ) {
        let mut world = World::new(Policy::default());
        for (index, free) in frees.iter().enumerate() {
            let name = format!("c{index}");
            world.set(plain(&name, &[("name", name.as_str()), ("zone", ["x", "y"][index % 2])]), Some(Ok(*free)));
        }
        let options = DynamicDividing {
            strategy: if packs { DividingStrategy::Binpack } else { DividingStrategy::Spread },
            max_clusters: most,
            ..DynamicDividing::default()
        };
        let sub = divided(DividingType::Dynamic, Some(options), &[]);
        let mut before: BTreeMap<String, i32> = BTreeMap::new();
        for total in totals {
            world.turn(&sub, order(total));
            let status = world.statuses.get("fleet/copies").cloned().unwrap_or_default();
            let now: BTreeMap<String, i32> = if status.binding_clusters.is_empty() { BTreeMap::new() } else { shares(&world).into_iter().collect() };
            let (sum_before, sum_now): (i32, i32) = (before.values().sum(), now.values().sum());
            prop_assert!(sum_now <= total);
            let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for name in names {
                let (was, is) = (before.get(name).copied().unwrap_or(0), now.get(name).copied().unwrap_or(0));
                if total >= sum_before { prop_assert!(is >= was, "{name} was {was}, is {is} at {total}"); }
                if total <= sum_before { prop_assert!(is <= was, "{name} was {was}, is {is} at {total}"); }
            }
            if let Some(most) = most {
                prop_assert!(now.values().filter(|share| **share > 0).count() <= usize::try_from(most).expect("small"));
            }
            // Nothing moves when nothing changed. The capacity is what is left.
            for (name, share) in &now {
                let taken = share - before.get(name).copied().unwrap_or(0);
                if let Some(Ok(free)) = world.free.get_mut(&format!("ns/{name}")) { *free -= taken; }
            }
            world.turn(&sub, order(total));
            let again: BTreeMap<String, i32> = world.statuses.get("fleet/copies").filter(|s| !s.binding_clusters.is_empty()).map(|_| shares(&world).into_iter().collect()).unwrap_or_default();
            if sum_now == total { prop_assert_eq!(&again, &now); }
            before = again;
        }
    }

    #[test]
    fn the_order_of_arrival_means_nothing(seed in 0u64..1000, count in 0usize..12, dynamic: bool) {
        let mut order_of: Vec<usize> = (0..count).collect();
        order_of.sort_by_key(|index| api::names::stable_hash(&[&seed.to_string(), &index.to_string()]));
        let kind = if dynamic { DividingType::Dynamic } else { DividingType::Static };
        let mut sub = divided(kind, Some(DynamicDividing::default()), &[]);
        sub.spec.subscribers[0].weight = 1;
        let run = |indexes: &[usize]| {
            let mut world = World::new(Policy::default());
            for index in indexes {
                let name = format!("c{index}");
                world.set(plain(&name, &[]), Some(Ok(i32::try_from(index * 7 % 5).expect("small"))));
            }
            world.turn(&sub, order(11));
            world.statuses.get("fleet/copies").cloned()
        };
        let sorted: Vec<usize> = (0..count).collect();
        prop_assert_eq!(run(&order_of), run(&sorted));
    }
}
