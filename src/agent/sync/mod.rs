//! Keeps the child as its branch, or its Descriptions, say: applies, prunes, mends drift, reports per Description.
//!
//! One turn at a time per agent. A turn reads everything and compares; what woke it is never used. Nothing is pruned unless
//! the whole of what is wanted could be read.

mod branch;
mod handover;
mod observed;
mod settle;
mod turn;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::Description;
use api::clusters::ManagedCluster;
use api::known::{annotation, manager};
use api::object::ObjectRef;
use cluster::Target;
use cluster::apply::{Applier, Desired as Prepared};
use engine::{Backoff, Cache, Next, Queue, Recorder, Tasks, work};
use plan::sync::{Desired, Holder, Identity};

use crate::release::{self, Releases};
use crate::session::Session;
use branch::Tree;
use watches::Watches;

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Compare and apply.
    Apply,
    /// Tell the parent how the objects are.
    Status,
    /// Look at the branch although nobody told of a change.
    Poll,
}

/// Changes of objects' status are told together when they come within this time.
const GATHER: Duration = Duration::from_millis(50);

/// What is remembered from turn to turn. All of it can be found again; it saves work.
#[derive(Default)]
struct State {
    /// Branch mode: the tree that was read last.
    tree: Option<Tree>,
    /// On the parent's side: the tree whose rendered releases are deployed; objects come from Descriptions.
    releases: Option<Tree>,
    /// Newest commit that polling found; the annotation counts again once it changes.
    polled: Option<(String, String)>,
    /// Direct mode: parsed objects of a Description by name: uid, generation, objects.
    parsed: BTreeMap<String, Parsed>,
    /// What the child should have.
    desired: Desired,
    /// Objects that may be in the child because of us.
    present: BTreeMap<Identity, ObjectRef>,
    /// Descriptions whose status was read for what they left in the child.
    learned: BTreeSet<String>,
    /// Commit of a former process whose tree was read for what it left in the child.
    learned_commit: Option<String>,
    /// Objects ready to be applied, with the wish that they were made from.
    prepared: BTreeMap<Identity, (plan::sync::Want, Prepared)>,
    /// Why objects could not be applied.
    faults: BTreeMap<Identity, String>,
    /// Description -> whether the tree holds exactly what it says: its status means its spec.
    in_step: BTreeMap<String, InStep>,
    /// Expected files of Descriptions: uid, generation -> name and blob.
    expected: BTreeMap<String, branch::Expected>,
}

/// A Description's parsed objects.
struct Parsed {
    uid: String,
    generation: Option<i64>,
    claimant: plan::sync::Claimant,
}

/// Whether what was applied is what the Description says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InStep {
    /// It is, apart from objects that cannot be files.
    Yes(Vec<String>),
    /// The branch has not caught up.
    NotYet,
}

/// The syncer of a session.
pub(crate) struct Syncer {
    session: Arc<Session>,
    queue: Queue<Turn>,
    clusters: Cache<ManagedCluster>,
    descriptions: Cache<Description>,
    applier: Arc<Applier>,
    watches: Watches,
    recorder: Recorder,
    /// Since when the branch cannot be read, as monotonic time.
    unreadable_since: parking_lot::Mutex<Option<Duration>>,
    releases: Arc<Releases>,
    state: tokio::sync::Mutex<State>,
}

/// Begins to sync.
pub(crate) fn start(session: &Arc<Session>, tasks: &Tasks) {
    let queue: Queue<Turn> =
        Queue::with(session.shared.clock.clone(), Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) });
    let clusters: Cache<ManagedCluster> = Cache::new();
    let descriptions: Cache<Description> = Cache::new();
    {
        let queue = queue.clone();
        clusters.on_change(move |change| {
            // What the agent offers says whether the parent may apply; its first report may come after everything else.
            let offers = |c: &ManagedCluster| c.status.as_ref().and_then(|status| status.app_pusher);
            if change.touches(|c| (c.spec.sync_mode, delivery(c), Holder::of(c), offers(c))) {
                queue.add(Turn::Apply);
            }
        });
    }
    {
        let queue = queue.clone();
        descriptions.on_change(move |change| {
            // Statuses are our own words; a foreign hand in one is set right by the next turn.
            if change.touches(|d| (d.spec.clone(), d.metadata.deletion_timestamp.clone(), d.metadata.uid.clone())) {
                queue.add(Turn::Apply);
            } else if change.touches(|d| d.status.clone()) {
                queue.add_after(Turn::Status, GATHER);
            }
        });
    }
    let applier = Arc::new(Applier::new(session.shared.child.clone(), manager::AGENT, session.shared.options.limits));
    let recorder = Recorder::start(session.parent.clone(), api::known::component::AGENT, session.shared.clock.clone(), session.shared.metrics.clone(), tasks);
    let watches = Watches::new(session.namespace.clone(), applier.clone(), queue.clone(), tasks.clone());
    let releases = release::start(session, &descriptions, &recorder, tasks);
    let syncer = Arc::new(Syncer {
        session: session.clone(),
        queue: queue.clone(),
        clusters: clusters.clone(),
        descriptions: descriptions.clone(),
        applier,
        watches,
        recorder,
        unreadable_since: parking_lot::Mutex::default(),
        releases,
        state: tokio::sync::Mutex::default(),
    });
    let parent = session.parent.clone();
    clusters.follow(
        "managedcluster",
        parent.clone(),
        Target::of::<ManagedCluster>(&session.namespace).fields(format!("metadata.name={}", session.cluster_name)),
        tasks,
    );
    descriptions.follow("descriptions", parent, Target::of::<Description>(&session.namespace), tasks);
    let token = tasks.token().clone();
    tasks.spawn("sync", async move {
        let ready = async {
            clusters.synced().await;
            descriptions.synced().await;
        };
        tokio::select! {
            () = ready => {}
            () = token.cancelled() => return,
        }
        syncer.queue.add(Turn::Apply);
        syncer.queue.add_after(Turn::Poll, syncer.poll_pause());
        work(queue, 1, token, move |turn| {
            let syncer = syncer.clone();
            async move { Box::pin(syncer.take(turn)).await }
        })
        .await;
    });
}

/// Where the cluster's branch is, as the parent tells: url, branch, commit, Secret.
fn delivery(cluster: &ManagedCluster) -> Option<Delivery> {
    let said = |key: &str| cluster.metadata.annotations.as_ref()?.get(key).filter(|v| !v.is_empty()).cloned();
    Some(Delivery {
        url: said(annotation::DELIVERY_URL)?,
        branch: said(annotation::DELIVERY_BRANCH).unwrap_or_default(),
        commit: said(annotation::DELIVERY_COMMIT)?,
        secret: said(annotation::DELIVERY_SECRET),
    })
}

/// Where a cluster's branch is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Delivery {
    url: String,
    branch: String,
    commit: String,
    secret: Option<String>,
}

impl Syncer {
    fn cluster(&self) -> Option<Arc<ManagedCluster>> {
        self.clusters.get(&self.session.namespace, &self.session.cluster_name)
    }

    fn poll_pause(&self) -> Duration {
        self.session.shared.options.poll_every.mul_f64(rand::random_range(0.75..1.25))
    }

    async fn take(&self, turn: Turn) -> Next {
        // A replica that lost the lease must not touch the child.
        if !self.session.leadership.holds() {
            return Next::After(Duration::from_secs(1));
        }
        match turn {
            Turn::Apply => self.apply().await,
            Turn::Status => {
                let state = self.state.lock().await;
                self.tell(&state).await
            }
            Turn::Poll => {
                self.poll().await;
                Next::After(self.poll_pause())
            }
        }
    }
}
