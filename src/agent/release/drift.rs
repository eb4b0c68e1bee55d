//! Drift of releases: what somebody changed or deleted in the child is put back, without a new revision.
//!
//! Watches only wake: per kind in use one, of Helm's objects, without their content. What a release should be is what its record says,
//! and whether an object is so is told by its own field ownership, as for ordinary objects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::object::{self, ObjectRef};
use chart::Record;
use cluster::apply::{adopt, owned};
use cluster::{Event, Object, Target, follow};
use engine::{CancellationToken, Key, Queue, Tasks};
use futures::StreamExt as _;
use parking_lot::Mutex;
use plan::sync::{Claimant, Identity, desire, yield_to_autoscalers};
use serde_json::Value;

use super::Turn;
use super::deploy::Job;
use super::error::DeployError;
use super::objects::{Child, MANAGED_BY, MANAGER, RELEASE_NAME, RELEASE_NAMESPACE};

/// Changes that come within this time are looked at together.
const GATHER: Duration = Duration::from_millis(100);
/// Objects that are read at a time.
const PARALLEL: usize = 8;

/// What is remembered of an object: its release, and digest of what is ours in it.
type Seen = BTreeMap<ObjectRef, (Key, u64)>;

/// The watches.
pub(super) struct Drift {
    child: Child,
    queue: Queue<Turn>,
    tasks: Tasks,
    /// Releases by namespace and name, and the kinds of each.
    releases: Arc<Mutex<BTreeMap<(String, String), Key>>>,
    kinds: Mutex<BTreeMap<Key, BTreeSet<(String, String)>>>,
    seen: Arc<Mutex<Seen>>,
    running: Mutex<BTreeMap<(String, String), CancellationToken>>,
}

impl Drift {
    pub(super) fn new(child: Child, queue: Queue<Turn>, tasks: Tasks) -> Self {
        Self { child, queue, tasks, releases: Arc::default(), kinds: Mutex::default(), seen: Arc::default(), running: Mutex::default() }
    }

    /// Watches the kinds of a release's objects.
    async fn watch(&self, key: &Key, owner: (String, String), objects: &[Value]) {
        self.releases.lock().insert(owner, key.clone());
        let kinds: BTreeSet<(String, String)> = objects.iter().map(|o| (object::text(o, "apiVersion").to_owned(), object::text(o, "kind").to_owned())).collect();
        self.kinds.lock().insert(key.clone(), kinds.clone());
        self.tidy();
        for kind in kinds {
            if self.running.lock().contains_key(&kind) {
                continue;
            }
            let Ok(resource) = self.child.discovery.resolve(&kind.0, &kind.1).await else { continue };
            let mut target = Target::new(&resource, "").labels(format!("{MANAGED_BY}=Helm"));
            target.metadata_only = true;
            let stop = self.tasks.token().child_token();
            if self.running.lock().insert(kind.clone(), stop.clone()).is_some() {
                continue;
            }
            let sink = Sink { kind, queue: self.queue.clone(), releases: self.releases.clone(), seen: self.seen.clone() };
            let client = self.child.dynamic.client().clone();
            self.tasks.spawn("release watch", async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = follow::<Object>(client, target, move |event| { sink.take(event); ControlFlow::Continue(()) }) => {}
                }
            });
        }
    }

    /// Stops the watches of kinds that no release has.
    fn tidy(&self) {
        let wanted: BTreeSet<(String, String)> = self.kinds.lock().values().flatten().cloned().collect();
        self.running.lock().retain(|kind, stop| {
            let keep = wanted.contains(kind);
            if !keep {
                stop.cancel();
                self.seen.lock().retain(|id, _| (&id.api_version, &id.kind) != (&kind.0, &kind.1));
            }
            keep
        });
    }

    /// A release is gone, or changes now: what happens to its objects is our own doing.
    pub(super) fn forget(&self, key: &Key) {
        self.releases.lock().retain(|_, of| of != key);
        self.kinds.lock().remove(key);
        self.seen.lock().retain(|_, (of, _)| of != key);
        self.tidy();
    }

    /// Somebody else applies now.
    pub(super) fn stop(&self) {
        self.kinds.lock().clear();
        self.releases.lock().clear();
        self.tidy();
        self.seen.lock().clear();
    }

    /// Puts back what is not as the record says. The number of objects that were.
    pub(super) async fn mend(&self, key: &Key, job: &Job<'_>, record: &Record) -> Result<usize, DeployError> {
        let objects = job.objects(&record.manifest).await?;
        self.watch(key, (record.namespace.clone(), record.name.clone()), &objects).await;
        let reads: Vec<_> = objects.iter().map(|object| self.child.live(object)).collect();
        let mut reads = futures::stream::iter(reads).buffered(PARALLEL);
        let mut live: Vec<Option<Value>> = Vec::with_capacity(objects.len());
        while let Some(read) = reads.next().await {
            live.push(read?);
        }
        drop(reads);
        let replicas: BTreeMap<Identity, i64> = objects
            .iter()
            .zip(&live)
            .filter_map(|(object, live)| Some((Identity::of(&ObjectRef::of(object)), live.as_ref()?["spec"]["replicas"].as_i64()?)))
            .collect();
        let claimant = Claimant { name: key.name.to_string(), objects: objects.iter().cloned().map(Arc::new).collect(), ..Claimant::default() };
        let mut desired = desire(&[claimant]);
        yield_to_autoscalers(&mut desired, |identity| replicas.get(identity).copied());
        let until = job.until();
        let mut mended = 0;
        for (object, live) in objects.iter().zip(&live) {
            let id = ObjectRef::of(object);
            let Some(want) = desired.wants.get(&Identity::of(&id)) else { continue };
            let as_wanted = match live {
                Some(live) => {
                    // Of another Helm, and as that left it.
                    let untouched = || owned::applied_fields(live, MANAGER).is_none() && adopt::holds(live, &want.object);
                    object::is_deleting(live) || owned::is_applied(&want.object, live, MANAGER) || untouched()
                }
                // It is meant to go by itself.
                None => id.kind == "Job" && object["spec"].get("ttlSecondsAfterFinished").is_some_and(|ttl| !ttl.is_null()),
            };
            if as_wanted {
                continue;
            }
            let before = live.as_ref().map(|live| object::resource_version(live).to_owned());
            let now = self.child.apply(&want.object, false, until).await?;
            if before.as_deref() != Some(object::resource_version(&now)) {
                tracing::info!(release = %key, object = %id, "put back");
                mended += 1;
            }
        }
        Ok(mended)
    }
}

/// Where a watch's events go.
struct Sink {
    kind: (String, String),
    queue: Queue<Turn>,
    releases: Arc<Mutex<BTreeMap<(String, String), Key>>>,
    seen: Arc<Mutex<Seen>>,
}

impl Sink {
    fn wake(&self, key: &Key) {
        self.queue.add_after(Turn::Release(key.clone()), GATHER);
    }

    fn id(&self, item: &Value) -> ObjectRef {
        let (namespace, name) = (object::namespace(item).to_owned(), object::name(item).to_owned());
        ObjectRef { api_version: self.kind.0.clone(), kind: self.kind.1.clone(), namespace, name }
    }

    fn take(&self, event: Event<Object>) {
        match event {
            Event::Reset(items) => {
                let there: BTreeSet<ObjectRef> = items.iter().map(|item| self.id(&item.0)).collect();
                for item in &items {
                    self.show(&item.0);
                }
                let of_kind = |id: &ObjectRef| id.api_version == self.kind.0 && id.kind == self.kind.1;
                let gone: Vec<ObjectRef> = self.seen.lock().keys().filter(|id| of_kind(id) && !there.contains(id)).cloned().collect();
                for id in gone {
                    self.gone(&id);
                }
            }
            Event::Apply(item) => self.show(&item.0),
            Event::Delete(item) => self.gone(&self.id(&item.0)),
            Event::Failed { error, .. } => {
                tracing::debug!(kind = self.kind.1, error = cluster::error::message(&error), "cannot watch a kind of a release");
            }
        }
    }

    fn show(&self, item: &Value) {
        let id = self.id(item);
        let digest = owned::ownership(item, MANAGER);
        let at = |key: &str| object::annotation(item, key).unwrap_or_default().to_owned();
        let of = self.releases.lock().get(&(at(RELEASE_NAMESPACE), at(RELEASE_NAME))).cloned();
        let before = self.seen.lock().get(&id).cloned();
        let Some(key) = of.or_else(|| before.as_ref().map(|(key, _)| key.clone())) else { return };
        if before.is_some_and(|(_, known)| known != digest) {
            self.wake(&key);
        }
        self.seen.lock().insert(id, (key, digest));
    }

    fn gone(&self, id: &ObjectRef) {
        if let Some((key, _)) = self.seen.lock().remove(id) {
            self.wake(&key);
        }
    }
}
