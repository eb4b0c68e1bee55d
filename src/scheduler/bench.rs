//! Benchmarks of scheduling, as library code: `anabranch bench schedule` prints the rows.
//!
//! The brain is the production one; binding is done in memory, including the status patch as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::apps::{
    DividingScheduling, DividingStrategy, DividingType, DynamicDividing, Feed, FeedInventory, FeedInventorySpec, FeedOrder,
    SchedulingStrategy, Subscriber, Subscription, SubscriptionSpec,
};
use api::clusters::{ManagedCluster, ManagedClusterSpec, ManagedClusterStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use plan::placement::Framework;
use serde::Serialize;

use crate::bind::{conditions_after, patch};
use crate::brain::{Brain, Decided, Work, Written, changed};

/// What is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Copies to all clusters.
    Replication,
    /// Divided by weight.
    Static,
    /// Divided by capacity, spread.
    Spread,
    /// Divided by capacity, packed.
    Binpack,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 4] = [Self::Replication, Self::Static, Self::Spread, Self::Binpack];
}

/// One row of the cycle bench.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleRow {
    /// Strategy.
    pub strategy: Strategy,
    /// Clusters.
    pub clusters: usize,
    /// Cycles that were timed.
    pub cycles: usize,
    /// Median of a cycle, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of a cycle, milliseconds.
    pub p99_ms: f64,
    /// Cycles per second.
    pub per_second: f64,
    /// Resident memory of the process afterwards, MiB; 0 where the system does not say.
    pub memory_mib: f64,
}

/// The row of the burst bench.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BurstRow {
    /// Subscriptions at once.
    pub subscriptions: usize,
    /// Clusters.
    pub clusters: usize,
    /// Seconds until all were bound, status patches made.
    pub seconds: f64,
    /// Bindings per second.
    pub per_second: f64,
    /// Bytes of status patches.
    pub patch_bytes: usize,
    /// Resident memory of the process afterwards, MiB; 0 where the system does not say.
    pub memory_mib: f64,
}

/// Times `cycles` decisions over `clusters` clusters; every cycle sees one cluster change its label before.
pub fn cycles(strategy: Strategy, clusters: usize, cycles: usize) -> CycleRow {
    let mut brain = brain(clusters);
    let mut subscription = subscription(strategy, 0);
    let total = i32::try_from(clusters).unwrap_or(i32::MAX).saturating_mul(3);
    let mut server = Server::default();
    let mut times = Vec::with_capacity(cycles);
    for cycle in 0..cycles {
        // The priority changes, so that the spec does and a decision is due; the total changes, so that replicas move.
        subscription.spec.priority = Some(i32::try_from(cycle % 1000).unwrap_or(0));
        server.stamp(&mut subscription);
        if strategy != Strategy::Replication {
            brain.inventory(&inventory(0, total + i32::try_from(cycle % 7).unwrap_or(0)));
        }
        brain.subscription(&subscription);
        let started = Instant::now();
        let mut decided = None;
        while let Some(work) = brain.next(now(), true) {
            decided = match work {
                Work::Ask(key, pending) => answered(&mut brain, key, pending),
                Work::Write(decided) => Some(decided),
            };
            if decided.is_some() {
                break;
            }
        }
        times.push(started.elapsed());
        if let Some(decided) = decided {
            server.bind(&mut brain, &decided);
            server.read_back(&mut subscription, &decided);
        }
    }
    let whole: Duration = times.iter().sum();
    times.sort();
    let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied().unwrap_or_default();
    CycleRow {
        strategy,
        clusters,
        cycles,
        p50_ms: at(0.5).as_secs_f64() * 1e3,
        p99_ms: at(0.99).as_secs_f64() * 1e3,
        per_second: cycles as f64 / whole.as_secs_f64().max(1e-9),
        memory_mib: resident_mib(),
    }
}

/// Binds many Subscriptions that appear at once.
pub fn burst(subscriptions: usize, clusters: usize) -> BurstRow {
    let mut brain = brain(clusters);
    let mut server = Server::default();
    let started = Instant::now();
    for index in 0..subscriptions {
        let mut subscription = subscription(Strategy::Replication, index);
        server.stamp(&mut subscription);
        brain.subscription(&subscription);
    }
    let mut bound = 0usize;
    while let Some(work) = brain.next(now(), true) {
        if let Work::Write(decided) = work {
            server.bind(&mut brain, &decided);
            bound += 1;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    BurstRow {
        subscriptions: bound,
        clusters,
        seconds,
        per_second: bound as f64 / seconds.max(1e-9),
        patch_bytes: server.bytes,
        memory_mib: resident_mib(),
    }
}

/// A stand-in for the parent: counts versions and makes the patches that would be sent.
#[derive(Default)]
struct Server {
    version: u64,
    bytes: usize,
}

impl Server {
    fn stamp(&mut self, subscription: &mut Subscription) {
        self.version += 1;
        subscription.metadata.resource_version = Some(self.version.to_string());
        subscription.metadata.generation = Some(i64::try_from(self.version).unwrap_or(i64::MAX));
    }

    fn bind(&mut self, brain: &mut Brain, decided: &Decided) {
        let entry = &decided.entry;
        let after = conditions_after(&entry.conditions, &decided.decision, entry.subject.generation, None, &Time(now()));
        let placement = changed(&decided.decision, &entry.previous);
        let body = patch(placement, entry, entry.is_fresh, &entry.resource_version, &entry.previous, &entry.conditions, &after);
        let written = body.ok().flatten().map(|body| {
            self.bytes += body.body.len();
            self.version += 1;
            Written { resource_version: self.version.to_string(), conditions: after }
        });
        brain.written(decided, Ok(written), now());
    }

    fn read_back(&mut self, subscription: &mut Subscription, decided: &Decided) {
        if let Some(placement) = changed(&decided.decision, &decided.entry.previous) {
            let status = subscription.status.get_or_insert_default();
            status.binding_clusters = placement.bindings.iter().map(|key| key.to_string()).collect();
            status.replicas = placement.replicas.clone();
            status.spec_hash = placement.spec_hash;
            status.desired_releases = i32::try_from(placement.bindings.len()).unwrap_or(i32::MAX);
        }
    }
}

fn answered(brain: &mut Brain, key: Arc<str>, mut pending: plan::placement::Pending) -> Option<Box<Decided>> {
    let feeds = pending.feeds().len();
    let numbers: Vec<usize> = pending.clusters().map(|(number, _)| number).collect();
    for number in numbers {
        let free = i32::try_from(number % 17).unwrap_or(0) + 1;
        pending.answer(number, Ok(vec![free; feeds]));
    }
    brain.answered(&key, pending, now())
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn brain(clusters: usize) -> Brain {
    let framework = Framework::standard();
    // Measured as the scheduler's own is.
    let meter = crate::meter::Meter::new(&framework, engine::Registry::new(), engine::RealClock::shared());
    let mut brain = Brain::new(framework).measured(meter);
    for index in 0..clusters {
        brain.cluster(&cluster(index));
    }
    brain
}

fn cluster(index: usize) -> ManagedCluster {
    let name = format!("cluster-{index:05}");
    let mut made = ManagedCluster::new(&name, ManagedClusterSpec { cluster_id: format!("{index:032x}"), ..ManagedClusterSpec::default() });
    made.metadata.namespace = Some(format!("clusternet-{index:05}"));
    made.metadata.labels = Some(BTreeMap::from([
        ("region".to_owned(), format!("region-{}", index % 5)),
        ("stage".to_owned(), ["live", "trial"][index % 2].to_owned()),
        ("fleet".to_owned(), "all".to_owned()),
    ]));
    made.status = Some(ManagedClusterStatus {
        predictor_enabled: true,
        predictor_direct_access: true,
        predictor_address: format!("http://{name}:8080"),
        ..ManagedClusterStatus::default()
    });
    made
}

fn feed(index: usize) -> Feed {
    Feed { kind: "Deployment".into(), api_version: "apps/v1".into(), namespace: "web".into(), name: format!("front-{index}") }
}

fn inventory(index: usize, replicas: i32) -> FeedInventory {
    let order = FeedOrder { feed: feed(index), desired_replicas: Some(replicas), ..FeedOrder::default() };
    let mut made = FeedInventory::new(&format!("sub-{index}"), FeedInventorySpec { feeds: vec![order] });
    made.metadata.namespace = Some("fleet".to_owned());
    made
}

fn subscription(strategy: Strategy, index: usize) -> Subscription {
    let dynamic = |strategy| DividingScheduling {
        kind: DividingType::Dynamic,
        dynamic_dividing: Some(DynamicDividing { strategy, ..DynamicDividing::default() }),
    };
    let dividing = match strategy {
        Strategy::Replication => None,
        Strategy::Static => Some(DividingScheduling::default()),
        Strategy::Spread => Some(dynamic(DividingStrategy::Spread)),
        Strategy::Binpack => Some(dynamic(DividingStrategy::Binpack)),
    };
    let affinity = LabelSelector { match_labels: Some(BTreeMap::from([("fleet".to_owned(), "all".to_owned())])), match_expressions: None };
    let spec = SubscriptionSpec {
        scheduling_strategy: if dividing.is_some() { SchedulingStrategy::Dividing } else { SchedulingStrategy::Replication },
        dividing_scheduling: dividing,
        subscribers: vec![Subscriber { cluster_affinity: affinity, weight: 1, sub_group_strategy: None }],
        feeds: vec![feed(index)],
        ..SubscriptionSpec::default()
    };
    let mut made = Subscription::new(&format!("sub-{index}"), spec);
    made.metadata.namespace = Some("fleet".to_owned());
    made.metadata.uid = Some(format!("uid-{index}"));
    made
}

/// Resident memory of this process in MiB, where `/proc` says it.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
