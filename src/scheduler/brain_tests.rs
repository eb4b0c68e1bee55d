//! A model world around the brain: events in any order, slow and failing writes, late watches; in the end all is placed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use api::Kind as _;
use api::apps::{FeedInventory, Subscription};
use api::clusters::ManagedCluster;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::placement::{Framework, Outcome};
use proptest::prelude::*;
use serde_json::json;

use crate::bind::conditions_after;
use crate::brain::{Again, Brain, Decided, Work, Written, changed};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Default)]
struct World {
    version: u64,
    now: i64,
    clusters: BTreeMap<String, ManagedCluster>,
    subscriptions: BTreeMap<String, Subscription>,
    totals: BTreeMap<String, i32>,
    watch: VecDeque<Subscription>,
    writes: Vec<Box<Decided>>,
}

impl World {
    fn at(&self) -> Timestamp {
        Timestamp::from_second(self.now).expect("in range")
    }

    fn cluster(&mut self, brain: &mut Brain, name: &str, team: u8, taint: bool) {
        let team = ["red", "blue"][usize::from(team % 2)];
        let taints = if taint { json!([{"key": "k", "effect": "NoExecute"}]) } else { json!([]) };
        let cluster = ManagedCluster::from_object(&json!({
            "metadata": {"name": name, "namespace": "ns", "labels": {"team": team}},
            "spec": {"clusterId": name, "taints": taints},
        }))
        .expect("a cluster");
        brain.cluster(&cluster);
        self.clusters.insert(name.to_owned(), cluster);
    }

    fn subscription(&mut self, name: &str, team: u8, divides: bool, priority: i32) {
        let selector = match team % 3 {
            0 => json!({}),
            1 => json!({"matchLabels": {"team": "red"}}),
            _ => json!({"matchLabels": {"team": "blue"}}),
        };
        let mut made = Subscription::from_object(&json!({
            "metadata": {"name": name, "namespace": "fleet", "uid": name},
            "spec": {
                "schedulingStrategy": if divides { "Dividing" } else { "Replication" },
                "dividingScheduling": {"type": "Static"}, "priority": priority,
                "subscribers": [{"clusterAffinity": selector, "weight": 1}],
                "feeds": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front"}],
            },
        }))
        .expect("a Subscription");
        made.status = self.subscriptions.get(name).and_then(|old| old.status.clone());
        let generation = self.subscriptions.get(name).and_then(|old| old.metadata.generation).unwrap_or(0) + 1;
        made.metadata.generation = Some(generation);
        self.store(made);
    }

    fn store(&mut self, mut subscription: Subscription) {
        self.version += 1;
        subscription.metadata.resource_version = Some(self.version.to_string());
        self.watch.push_back(subscription.clone());
        self.subscriptions.insert(subscription.metadata.name.clone().unwrap_or_default(), subscription);
    }

    fn inventory(&mut self, brain: &mut Brain, name: &str, total: i32) {
        let inventory = FeedInventory::from_object(&json!({
            "metadata": {"name": name, "namespace": "fleet"},
            "spec": {"feeds": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "web", "name": "front", "desiredReplicas": total}]},
        }))
        .expect("an inventory");
        brain.inventory(&inventory);
        self.totals.insert(name.to_owned(), total);
    }

    /// One watch event reaches the scheduler.
    fn hear(&mut self, brain: &mut Brain) -> bool {
        let Some(event) = self.watch.pop_front() else { return false };
        brain.subscription(&event);
        true
    }

    fn decide(&mut self, brain: &mut Brain) -> bool {
        match brain.next(self.at(), true) {
            Some(Work::Write(decided)) => self.writes.push(decided),
            Some(Work::Ask(..)) => unreachable!("nothing here is dynamic"),
            None => return false,
        }
        true
    }

    /// A write arrives at the server, in any order, and may be refused as the server refuses stale ones.
    fn write(&mut self, brain: &mut Brain, which: usize, broken: bool) {
        if self.writes.is_empty() {
            return;
        }
        let decided = self.writes.remove(which % self.writes.len());
        let name = decided.key.rsplit('/').next().unwrap_or_default().to_owned();
        let now = Time(self.at());
        let Some(mut object) = self.subscriptions.get(&name).cloned() else {
            brain.written(&decided, Err(Again::Never), self.at());
            return;
        };
        let stale = object.metadata.resource_version.as_deref() != Some(&decided.entry.resource_version);
        if broken || stale {
            brain.written(&decided, Err(Again::Backoff), self.at());
            return;
        }
        let after = conditions_after(&decided.entry.conditions, &decided.decision, decided.entry.subject.generation, None, &now);
        let placement = changed(&decided.decision, &decided.entry.previous);
        if placement.is_none() && after == decided.entry.conditions {
            brain.written(&decided, Ok(None), self.at());
            return;
        }
        let status = object.status.get_or_insert_default();
        if let Some(placement) = placement {
            status.binding_clusters = placement.bindings.iter().map(|key| key.to_string()).collect();
            status.replicas = placement.replicas.clone();
            status.spec_hash = placement.spec_hash;
            status.desired_releases = i32::try_from(placement.bindings.len()).expect("few");
        }
        status.conditions.clone_from(&after);
        self.store(object);
        let written = Written { resource_version: self.version.to_string(), conditions: after };
        brain.written(&decided, Ok(Some(written)), self.at());
    }

    /// Nothing new happens; all that is under way ends.
    fn quiet(&mut self, brain: &mut Brain) {
        for _ in 0..300 {
            let mut busy = false;
            while self.hear(brain) || self.decide(brain) {
                busy = true;
            }
            while !self.writes.is_empty() {
                self.write(brain, 0, false);
                busy = true;
            }
            match brain.next_deadline() {
                Some(deadline) => self.now = self.now.max(deadline.as_second() + 1),
                None if !busy => return,
                None => {}
            }
        }
        panic!("it never gets quiet");
    }

    fn fits(&self, subscription: &Subscription) -> BTreeSet<String> {
        let selector = api::selector::Selector::from_label_selector(&subscription.spec.subscribers[0].cluster_affinity).expect("valid");
        let fits = |cluster: &&ManagedCluster| {
            cluster.spec.taints.is_empty() && selector.matches(cluster.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
        };
        self.clusters.values().filter(fits).map(|cluster| format!("ns/{}", cluster.metadata.name.as_deref().unwrap_or_default())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_quiet_everything_is_placed(steps in proptest::collection::vec((0u8..12, 0usize..4, 0u8..6, any::<bool>()), 1..70)) {
        let mut world = World::default();
        let mut brain = Brain::new(Framework::standard());
        for (what, which, number, flag) in steps {
            let name = NAMES[which];
            match what {
                0 | 1 => world.cluster(&mut brain, name, number, flag && number > 3),
                2 => {
                    world.clusters.remove(name);
                    brain.cluster_gone(&format!("ns/{name}"));
                }
                3 | 4 => world.subscription(name, number, flag, i32::from(number)),
                5 => {
                    // Deletion reaches the scheduler after all that was before it.
                    while world.hear(&mut brain) {}
                    world.subscriptions.remove(name);
                    brain.subscription_gone(&format!("fleet/{name}"));
                }
                6 => world.inventory(&mut brain, name, i32::from(number) * 3),
                7 => _ = world.hear(&mut brain),
                8 => _ = world.decide(&mut brain),
                9 => world.write(&mut brain, which, flag && number == 0),
                10 => world.now += i64::from(number),
                _ => {
                    // Somebody else writes into the status.
                    if let Some(mut object) = world.subscriptions.get(name).cloned() {
                        object.status.get_or_insert_default().completed_releases += 1;
                        world.store(object);
                    }
                }
            }
        }
        world.quiet(&mut brain);
        let versions = world.version;
        for subscription in world.subscriptions.values() {
            let name = subscription.metadata.name.clone().unwrap_or_default();
            let status = subscription.status.clone().unwrap_or_default();
            let bound: BTreeSet<String> = status.binding_clusters.iter().cloned().collect();
            let fits = world.fits(subscription);
            let divides = subscription.spec.scheduling_strategy == api::apps::SchedulingStrategy::Dividing;
            if fits.is_empty() || (divides && !world.totals.contains_key(&name)) {
                continue;
            }
            prop_assert_eq!(status.spec_hash, subscription.spec.hash(), "{} was not decided on", name);
            if divides {
                prop_assert!(bound.is_subset(&fits), "{name} is bound to {bound:?} of {fits:?}");
                let sum: i32 = status.replicas.values().flatten().sum();
                prop_assert_eq!(Some(&sum), world.totals.get(&name));
            } else {
                prop_assert_eq!(bound, fits, "{}", name);
            }
        }
        // And nothing more is written.
        world.quiet(&mut brain);
        prop_assert_eq!(world.version, versions);
    }
}

#[test]
fn higher_priority_goes_first() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    world.cluster(&mut brain, "a", 0, false);
    for (name, priority) in [("a", 1), ("b", 9), ("c", 5)] {
        world.subscription(name, 0, false, priority);
    }
    while world.hear(&mut brain) {}
    while world.decide(&mut brain) {}
    let order: Vec<&str> = world.writes.iter().map(|decided| &*decided.key).collect();
    assert_eq!(order, ["fleet/b", "fleet/c", "fleet/a"]);
    assert!(world.writes.iter().all(|decided| matches!(decided.decision.outcome, Outcome::Bind(_))));
}

#[test]
fn one_cycle_in_ten_is_measured() {
    let metrics = engine::Registry::new();
    let framework = Framework::standard();
    let meter = crate::meter::Meter::new(&framework, metrics.clone(), engine::RealClock::shared());
    let (mut world, mut brain) = (World::default(), Brain::new(framework).measured(meter));
    for (name, taint) in [("a", true), ("b", false), ("c", false)] {
        world.cluster(&mut brain, name, 0, taint);
    }
    for number in 0..11 {
        let name = format!("s{number}");
        world.inventory(&mut brain, &name, 4);
        world.subscription(&name, 0, true, 0);
    }
    while world.hear(&mut brain) {}
    while world.decide(&mut brain) {}
    assert_eq!(world.writes.len(), 11);
    let text = metrics.render();
    let counted = |name: &str, labels: &[&str]| -> Vec<&str> {
        let name = format!("clusternet_scheduler_{name}_duration_seconds_count");
        let lines = text.lines().filter(|line| line.starts_with(&name) && labels.iter().all(|label| line.contains(label)));
        lines.filter_map(|line| line.rsplit(' ').next()).collect()
    };
    // The first cycle and the eleventh.
    for point in ["Filter", "Assign"] {
        let (point, profile) = (format!("extension_point=\"{point}\""), "profile=\"default\"");
        assert_eq!(counted("framework_extension_point", &[&point, "status=\"Success\"", profile]), ["2"], "{text}");
    }
    // Of each plugin's questions about clusters the first, which is the tainted one.
    let taints = ["plugin=\"TaintToleration\"", "extension_point=\"Filter\"", "status=\"Unschedulable"];
    assert_eq!(counted("plugin_execution", &taints), ["2"], "{text}");
}

/// A stage for dynamic dividing: `used` tells what each cluster holds, so that predictors can answer.
fn answered(brain: &mut Brain, key: &crate::queue::Key, mut pending: plan::placement::Pending, free: &BTreeMap<String, i32>, now: Timestamp) -> Option<Box<Decided>> {
    let clusters: Vec<(usize, String)> = pending.clusters().map(|(number, info)| (number, info.name.clone())).collect();
    let feeds = pending.feeds().len();
    for (number, name) in clusters {
        pending.answer(number, Ok(vec![free.get(&name).copied().unwrap_or(0); feeds]));
    }
    brain.answered(key, pending, now)
}

fn dynamic(world: &mut World, brain: &mut Brain, name: &str, priority: i32, total: i32) {
    world.subscription(name, 0, true, priority);
    if let Some(subscription) = world.watch.back_mut() {
        subscription.spec.dividing_scheduling = serde_json::from_value(json!({"type": "Dynamic", "dynamicDividing": {"strategy": "Spread"}})).expect("valid");
        world.subscriptions.insert(name.to_owned(), subscription.clone());
    }
    world.inventory(brain, name, total);
    while world.hear(brain) {}
}

fn predicting(world: &mut World, brain: &mut Brain, name: &str) {
    let cluster = ManagedCluster::from_object(&json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterId": name}, "status": {"predictorEnabled": true, "predictorAddress": "x"},
    }))
    .expect("a cluster");
    brain.cluster(&cluster);
    world.clusters.insert(name.to_owned(), cluster);
}

fn shares(world: &World, name: &str) -> Vec<i32> {
    let status = world.subscriptions.get(name).and_then(|one| one.status.clone()).unwrap_or_default();
    status.replicas.values().next().cloned().unwrap_or_default()
}

/// Takes turns until nothing is due now; free capacity is `room` less what the statuses hold.
fn run_dynamic(world: &mut World, brain: &mut Brain, room: &[(&str, i32)]) {
    for _ in 0..50 {
        let mut free: BTreeMap<String, i32> = room.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        for status in world.subscriptions.values().filter_map(|one| one.status.as_ref()) {
            for shares in status.replicas.values() {
                for (cluster, share) in status.binding_clusters.iter().zip(shares) {
                    *free.get_mut(cluster.trim_start_matches("ns/")).expect("known") -= share;
                }
            }
        }
        match brain.next(world.at(), true) {
            Some(Work::Write(decided)) => world.writes.push(decided),
            Some(Work::Ask(key, pending)) => {
                if let Some(decided) = answered(brain, &key, pending, &free, world.at()) {
                    world.writes.push(decided);
                }
            }
            None => return,
        }
        while !world.writes.is_empty() {
            world.write(brain, 0, false);
            while world.hear(brain) {}
        }
    }
    panic!("it never gets quiet");
}

#[test]
fn lower_priorities_give_way_and_do_not_come_back() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    predicting(&mut world, &mut brain, "a");
    dynamic(&mut world, &mut brain, "low", 1, 5);
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    assert_eq!(shares(&world, "low"), [5]);
    world.now += 21;
    dynamic(&mut world, &mut brain, "high", 9, 4);
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    // One place is free, three are made. Two are taken at once, one when it is sure that the first was not counted twice.
    assert_eq!((shares(&world, "high"), shares(&world, "low")), (vec![3], vec![2]));
    let low = world.subscriptions.get("low").and_then(|one| one.status.clone()).expect("a status");
    let told = api::conditions::find(&low.conditions, "Scheduled").expect("told");
    assert!(told.message.contains("fleet/high"), "{}", told.message);
    world.now += 6;
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    world.now += 60;
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    assert_eq!((shares(&world, "high"), shares(&world, "low")), (vec![4], vec![2]));
}

#[test]
fn who_may_not_preempt_waits_for_room() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    predicting(&mut world, &mut brain, "a");
    dynamic(&mut world, &mut brain, "low", 1, 5);
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    world.now += 21;
    world.subscription("high", 0, true, 9);
    if let Some(subscription) = world.watch.back_mut() {
        subscription.spec.preemption_policy = Some(api::apps::PreemptionPolicy::PreemptNever);
        subscription.spec.dividing_scheduling = serde_json::from_value(json!({"type": "Dynamic", "dynamicDividing": {"strategy": "Spread"}})).expect("valid");
        world.subscriptions.insert("high".to_owned(), subscription.clone());
    }
    world.inventory(&mut brain, "high", 4);
    while world.hear(&mut brain) {}
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    assert_eq!((shares(&world, "high"), shares(&world, "low")), (vec![1], vec![5]));
    // Room is given up: the waiting one is told.
    world.subscriptions.remove("low");
    brain.subscription_gone("fleet/low");
    run_dynamic(&mut world, &mut brain, &[("a", 6)]);
    assert_eq!(shares(&world, "high"), [4]);
}

#[test]
fn what_was_just_placed_is_not_given_away_again() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    predicting(&mut world, &mut brain, "a");
    let stale = BTreeMap::from([("a".to_owned(), 6)]);
    for (name, want) in [("one", vec![5]), ("two", vec![1])] {
        dynamic(&mut world, &mut brain, name, 0, 5);
        while let Some(work) = brain.next(world.at(), true) {
            match work {
                Work::Write(decided) => world.writes.push(decided),
                // The predictor does not see the new Pods yet.
                Work::Ask(key, pending) => world.writes.extend(answered(&mut brain, &key, pending, &stale, world.at())),
            }
            while !world.writes.is_empty() {
                world.write(&mut brain, 0, false);
                while world.hear(&mut brain) {}
            }
        }
        assert_eq!(shares(&world, name), want);
    }
}

#[test]
fn static_shares_follow_a_cluster_that_joins() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    world.cluster(&mut brain, "a", 0, false);
    world.subscription("a", 0, true, 0);
    world.inventory(&mut brain, "a", 6);
    world.quiet(&mut brain);
    assert_eq!(shares(&world, "a"), [6]);
    world.cluster(&mut brain, "b", 0, false);
    world.quiet(&mut brain);
    assert_eq!(shares(&world, "a"), [3, 3]);
}

#[test]
fn slow_predictors_hold_up_nobody() {
    let mut world = World::default();
    let mut brain = Brain::new(Framework::standard());
    world.cluster(&mut brain, "a", 0, false);
    world.subscription("a", 0, true, 9);
    world.subscription("b", 0, false, 1);
    if let Some(subscription) = world.watch.front_mut() {
        subscription.spec.dividing_scheduling = serde_json::from_value(json!({"type": "Dynamic", "dynamicDividing": {"strategy": "Spread"}})).expect("valid");
    }
    world.inventory(&mut brain, "a", 3);
    while world.hear(&mut brain) {}
    // Nobody may ask: the dynamic one waits, the other one goes.
    assert!(matches!(brain.next(world.at(), false), Some(Work::Write(decided)) if &*decided.key == "fleet/b"));
    assert!(brain.next(world.at(), false).is_none());
    assert!(matches!(brain.next(world.at(), true), Some(Work::Ask(key, _)) if &*key == "fleet/a"));
    assert!(brain.next(world.at(), true).is_none());
}
