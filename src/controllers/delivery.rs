//! Branch writer: the rendered Descriptions of each cluster become the cluster's branch in the delivery repository.
//!
//! Level-based like everything: a change of a Description only marks its cluster; the turn reads the caches, rebuilds the trees of the
//! marked clusters, commits those that differ, pushes all of them at once with the tips they were built on, and tells the agents.
//!
//! Invariants: a tree is rebuilt whole and only from synced caches; a branch is only moved from the tip that was read; an equal tree
//! makes no commit; files that are not ours are kept; a directory disappears only when its Subscription does.

mod access;
mod announce;
#[cfg(test)]
mod tests;
mod trees;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::{Description, Subscription};
use api::clusters::ManagedCluster;
use api::gitops::{GitSource, GitTarget};
use api::known::annotation;
use engine::{Cache, CancellationToken, Clock, Key, Next, Queue, Recorder, Registry, Tasks};
use kube::Client;
use parking_lot::Mutex;

pub(crate) use self::access::{Place, Unusable, remote};
use self::trees::Trees;

/// A burst of changes is over when it was quiet for this long.
const QUIET: Duration = Duration::from_millis(30);
/// A burst that does not end is served after this long anyway.
const LONGEST: Duration = Duration::from_millis(300);
/// How long turns under way may take after shutdown was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the branch writer shares with the deploy pipeline.
#[derive(Clone)]
pub(crate) struct Context {
    /// The parent.
    pub(crate) client: Client,
    /// The repositories of this process.
    pub(crate) git: git::Git,
    /// Rendered state.
    pub(crate) descriptions: Cache<Description>,
    /// Rendered charts.
    pub(crate) renders: Arc<crate::rendering::Renders>,
    /// The fleet.
    pub(crate) clusters: Cache<ManagedCluster>,
    /// For provenance, and to know what a missing Description means.
    pub(crate) subscriptions: Cache<Subscription>,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Counters.
    pub(crate) metrics: Registry,
    /// Events.
    pub(crate) recorder: Recorder,
}

/// Clusters that wait for a look, by target.
#[derive(Default)]
struct Marks {
    /// Clusters (by their keys) whose Descriptions or labels changed.
    changed: BTreeMap<Key, BTreeSet<Key>>,
    /// Clusters that were deleted while we looked.
    gone: BTreeMap<Key, BTreeSet<Key>>,
    /// All clusters of these targets.
    everything: BTreeSet<Key>,
    /// When the burst began, and when it was last fed.
    burst: Option<(Duration, Duration)>,
}

/// The branch writer.
pub(crate) struct Writer {
    pub(crate) context: Context,
    pub(crate) targets: Cache<GitTarget>,
    pub(crate) sources: Cache<GitSource>,
    queue: Queue<Key>,
    marks: Mutex<Marks>,
    pub(crate) trees: Mutex<Trees>,
    states: Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<turn::State>>>>,
}

/// Runs until `shutdown` is cancelled.
pub(crate) async fn run(context: Context, shutdown: CancellationToken) {
    let tasks = Tasks::new(&shutdown);
    let writer = Arc::new(Writer {
        queue: Queue::with(context.clock.clone(), engine::Backoff::default()),
        targets: Cache::new(),
        sources: Cache::new(),
        marks: Mutex::default(),
        trees: Mutex::default(),
        states: Mutex::default(),
        context,
    });
    writer.listen();
    let client = writer.context.client.clone();
    writer.targets.follow("follow gittargets", client.clone(), cluster::Target::of::<GitTarget>(""), &tasks);
    writer.sources.follow("follow gitsources", client, cluster::Target::of::<GitSource>(""), &tasks);
    let all = async {
        writer.targets.synced().await;
        writer.sources.synced().await;
        writer.context.descriptions.synced().await;
        writer.context.clusters.synced().await;
        writer.context.subscriptions.synced().await;
    };
    tokio::select! {
        () = all => {}
        () = shutdown.cancelled() => {}
    }
    let worker = writer.clone();
    tasks.spawn(
        "delivery",
        engine::work(writer.queue.clone(), 4, tasks.token().clone(), move |key| {
            let writer = worker.clone();
            async move { writer.take(&key).await }
        }),
    );
    tasks.run_until_stopped(PATIENCE).await;
}

impl Writer {
    /// Hears what may change a branch.
    fn listen(self: &Arc<Self>) {
        let writer = self.clone();
        self.context.descriptions.on_change(move |change| {
            // Status is the agents' business; the generation tells a change of the spec without comparing megabytes.
            if change.touches(|d| (d.metadata.generation, d.metadata.labels.clone(), d.metadata.deletion_timestamp.is_some())) {
                writer.mark_namespace(&change.key.namespace);
            }
        });
        let writer = Arc::downgrade(self);
        self.context.renders.on_change(move |namespace| {
            if let Some(writer) = writer.upgrade() {
                writer.mark_namespace(namespace);
            }
        });
        let writer = self.clone();
        self.context.clusters.on_change(move |change| {
            if change.new.is_none() {
                writer.mark_gone(change.key);
            } else if change.touches(|c| (c.metadata.labels.clone(), c.metadata.deletion_timestamp.is_some(), announce::of(c))) {
                writer.mark([change.key.clone()]);
            }
        });
        let writer = self.clone();
        self.context.subscriptions.on_change(move |change| {
            // A Subscription that is gone, or bound elsewhere, frees its directories.
            let bound = |s: &Subscription| (s.metadata.deletion_timestamp.is_some(), s.status.as_ref().map(|status| status.binding_clusters.clone()));
            if change.touches(bound) {
                let of = |s: Option<&Arc<Subscription>>| s.and_then(|s| s.status.as_ref()).map(|s| s.binding_clusters.clone()).unwrap_or_default();
                let keys: BTreeSet<Key> = of(change.old).iter().chain(&of(change.new)).map(|text| key_of(text)).collect();
                writer.mark(keys);
            }
        });
        let writer = self.clone();
        self.sources.on_change(move |change| {
            let applied = |s: &GitSource| s.status.as_ref().is_some_and(|status| !status.last_applied_revision.is_empty());
            if change.old.is_some() && change.touches(applied) {
                writer.mark_everything();
            } else if change.touches(|s| s.status.as_ref().map(|status| status.last_applied_revision.clone())) {
                // Whatever it changed has been marked; the targets have a newer revision to tell of.
                writer.queue.add_all(writer.targets.list().iter().map(|t| Key::of(&**t)));
            }
        });
        let writer = self.clone();
        self.targets.on_change(move |change| {
            let asked = |t: &GitTarget| t.metadata.annotations.as_ref().and_then(|a| a.get(annotation::RECONCILE_REQUEST)).cloned();
            if change.touches(|t| (t.metadata.generation, t.metadata.deletion_timestamp.is_some(), asked(t))) {
                writer.marks.lock().everything.insert(change.key.clone());
                writer.queue.add(change.key.clone());
            }
        });
    }

    fn mark_namespace(&self, namespace: &str) {
        let keys: Vec<Key> = self.context.clusters.in_namespace(namespace).iter().map(|c| Key::of(&**c)).collect();
        self.mark(keys);
    }

    fn mark(&self, clusters: impl IntoIterator<Item = Key>) {
        let clusters: Vec<Key> = clusters.into_iter().collect();
        if clusters.is_empty() {
            return;
        }
        self.feed(|marks, target| marks.changed.entry(target.clone()).or_default().extend(clusters.iter().cloned()));
    }

    fn mark_gone(&self, cluster: &Key) {
        self.feed(|marks, target| {
            marks.gone.entry(target.clone()).or_default().insert(cluster.clone());
        });
    }

    fn mark_everything(&self) {
        self.feed(|marks, target| {
            marks.everything.insert(target.clone());
        });
    }

    fn feed(&self, note: impl Fn(&mut Marks, &Key)) {
        let targets: Vec<Key> = self.targets.list().iter().map(|t| Key::of(&**t)).collect();
        let now = self.context.clock.monotonic();
        {
            let mut marks = self.marks.lock();
            for target in &targets {
                note(&mut marks, target);
            }
            let began = marks.burst.map_or(now, |(began, _)| began);
            marks.burst = Some((began, now));
        }
        self.queue.add_all(targets);
    }

    /// Waits until the burst of changes is over.
    async fn settle_burst(&self) {
        loop {
            let now = self.context.clock.monotonic();
            let Some((began, last)) = self.marks.lock().burst else { return };
            let quiet = now.saturating_sub(last);
            if quiet >= QUIET || now.saturating_sub(began) >= LONGEST {
                self.marks.lock().burst = None;
                return;
            }
            self.context.clock.sleep(QUIET - quiet).await;
        }
    }

    /// One turn of a target.
    async fn take(self: &Arc<Self>, key: &Key) -> Next {
        self.settle_burst().await;
        let state = self.states.lock().entry(key.clone()).or_default().clone();
        let mut state = state.lock().await;
        let (changed, gone, everything) = {
            let mut marks = self.marks.lock();
            (marks.changed.remove(key).unwrap_or_default(), marks.gone.remove(key).unwrap_or_default(), marks.everything.remove(key))
        };
        let Some(target) = self.targets.get_key(key).filter(|t| t.metadata.deletion_timestamp.is_none()) else {
            self.states.lock().remove(key);
            return Next::Done;
        };
        state.note(changed, gone, everything);
        let began = self.context.clock.monotonic();
        let next = self.turn(key, &target, &mut state).await;
        let faulty = i64::try_from(state.faults.len()).unwrap_or(i64::MAX);
        self.context.metrics.gauge("delivery_faulty_branches", &[("target", &key.to_string())], faulty);
        self.context.metrics.observe("delivery_turn_seconds", &[], self.context.clock.monotonic().saturating_sub(began));
        next
    }
}

/// The key of `namespace/name`.
fn key_of(text: &str) -> Key {
    let (namespace, name) = api::object::split_key(text);
    Key::new(namespace, name)
}
