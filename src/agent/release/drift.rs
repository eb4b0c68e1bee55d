//! Drift of releases: what somebody changed or deleted in the child is put back, without a new revision.
//!
//! Watches only wake: per kind in use one, of Helm's objects, without their content, and one of the records, for what somebody does
//! with a Helm. What a release should be is what its record says, and whether an object is so is told by its own field ownership, as for
//! ordinary objects. Each look at a release leaves behind what it saw, so that a watch that begins later tells of what came between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::apps::HelmRelease;
use api::object::{self, ObjectRef};
use chart::Record;
use cluster::apply::{adopt, owned};
use cluster::{Event, Object, Target, follow};
use engine::{Cache, CancellationToken, Key, Queue, Tasks};
use futures::StreamExt as _;
use parking_lot::Mutex;
use plan::sync::{Claimant, Identity, desire, yield_to_autoscalers};
use serde_json::Value;

use super::Turn;
use super::deploy::Job;
use super::error::DeployError;
use super::objects::{Child, MANAGED_BY, MANAGER, RELEASE_NAME, RELEASE_NAMESPACE};
use super::storage::{Known, secrets};

/// Changes that come within this time are looked at together.
const GATHER: Duration = Duration::from_millis(100);
/// Objects that are read at a time.
const PARALLEL: usize = 8;

/// A kind: apiVersion and kind.
type KindOf = (String, String);
/// What is remembered of an object: namespace and name of its release, and digest of what is ours in it.
type Seen = BTreeMap<ObjectRef, (String, u64)>;

/// The watches.
pub(super) struct Drift {
    wake: Wake,
    child: Child,
    tasks: Tasks,
    kinds: Mutex<BTreeMap<Key, BTreeSet<KindOf>>>,
    seen: Arc<Mutex<Seen>>,
    running: Mutex<BTreeMap<KindOf, CancellationToken>>,
    records: Mutex<Option<CancellationToken>>,
}

/// Who is woken.
#[derive(Clone)]
struct Wake {
    queue: Queue<Turn>,
    /// By the place of their releases.
    releases: Cache<HelmRelease>,
    /// Those that are worked on: what happens to their objects is our own doing.
    busy: Arc<Mutex<BTreeSet<Key>>>,
}

impl Wake {
    fn knows(&self, place: &str) -> bool {
        !self.releases.keys_by(PLACE, place).is_empty()
    }

    /// Wakes the HelmReleases of a release.
    fn at(&self, place: &str) {
        for key in self.releases.keys_by(PLACE, place) {
            if !self.busy.lock().contains(&key) {
                self.queue.add_after(Turn::Release(key), GATHER);
            }
        }
    }
}

/// Index of HelmReleases by namespace and name of their releases.
pub(super) const PLACE: &str = "place";

impl Drift {
    /// `releases` must have the index [`PLACE`].
    pub(super) fn new(child: Child, queue: Queue<Turn>, releases: Cache<HelmRelease>, tasks: Tasks) -> Self {
        let wake = Wake { queue, releases, busy: Arc::default() };
        Self { wake, child, tasks, kinds: Mutex::default(), seen: Arc::default(), running: Mutex::default(), records: Mutex::default() }
    }

    /// Watches the records of releases from now on.
    pub(super) fn watch_records(&self) {
        let mut running = self.records.lock();
        if running.is_some() {
            return;
        }
        let mut target = Target::new(&secrets(), "").labels("owner=helm");
        target.metadata_only = true;
        let stop = self.tasks.token().child_token();
        *running = Some(stop.clone());
        let (wake, known) = (self.wake.clone(), self.child.records.clone());
        let client = self.child.dynamic.client().clone();
        self.tasks.spawn("release records watch", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow::<Object>(client, target, move |event| { take_record(&wake, &known, event); ControlFlow::Continue(()) }) => {}
            }
        });
    }

    /// Watches the kinds of a release's objects.
    async fn watch(&self, key: &Key, objects: &[Value]) {
        let kinds: BTreeSet<KindOf> = objects.iter().map(|o| (object::text(o, "apiVersion").to_owned(), object::text(o, "kind").to_owned())).collect();
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
            {
                let mut running = self.running.lock();
                // Another release may have begun it meanwhile: two would be one too many, and the first is not to be lost.
                if running.contains_key(&kind) {
                    continue;
                }
                running.insert(kind.clone(), stop.clone());
            }
            let sink = Sink { kind, wake: self.wake.clone(), seen: self.seen.clone() };
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
        let wanted: BTreeSet<KindOf> = self.kinds.lock().values().flatten().cloned().collect();
        self.running.lock().retain(|kind, stop| {
            let keep = wanted.contains(kind);
            if !keep {
                stop.cancel();
                self.seen.lock().retain(|id, _| (&id.api_version, &id.kind) != (&kind.0, &kind.1));
            }
            keep
        });
    }

    /// A release changes now, until [`Self::changed`]: what happens to its objects is our own doing.
    pub(super) fn changes(&self, key: &Key) {
        self.wake.busy.lock().insert(key.clone());
    }

    /// A release was changed: what happens from now on is somebody else's doing.
    pub(super) fn changed(&self, key: &Key) {
        self.wake.busy.lock().remove(key);
    }

    /// A release is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.changed(key);
        self.kinds.lock().remove(key);
        self.tidy();
    }

    /// Somebody else applies now.
    pub(super) fn stop(&self) {
        self.kinds.lock().clear();
        self.tidy();
        self.seen.lock().clear();
        if let Some(running) = self.records.lock().take() {
            running.cancel();
        }
    }

    /// Remembers an object as it was seen.
    fn note(&self, place: &str, id: &ObjectRef, live: &Value) {
        self.seen.lock().insert(id.clone(), (place.to_owned(), owned::ownership(live, MANAGER)));
    }

    /// Puts back what is not as the record says. The number of objects that were.
    pub(super) async fn mend(&self, key: &Key, job: &Job<'_>, record: &Record) -> Result<usize, DeployError> {
        let objects = job.objects(&record.manifest).await?;
        let place = format!("{}/{}", record.namespace, record.name);
        self.watch(key, &objects).await;
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
            if let Some(live) = live {
                self.note(&place, &id, live);
            }
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
            self.note(&place, &id, &now);
            if before.as_deref() != Some(object::resource_version(&now)) {
                tracing::info!(release = %key, object = %id, "put back");
                mended += 1;
            }
        }
        Ok(mended)
    }
}

/// Takes an event of the records: what we have not read or written ourselves wakes.
fn take_record(wake: &Wake, known: &Known, event: Event<Object>) {
    let place = |namespace: &str, secret: &str| {
        // Its name tells the release: sh.helm.release.v1.NAME.vN.
        let name = secret.strip_prefix("sh.helm.release.v1.").and_then(|rest| rest.rsplit_once(".v")).map_or("", |(name, _)| name);
        format!("{namespace}/{name}")
    };
    let show = |item: &Value| {
        let place = place(object::namespace(item), object::name(item));
        if wake.knows(&place) && known.note(item) {
            wake.at(&place);
        }
    };
    let gone = |namespace: &str, name: &str| {
        if known.gone(namespace, name) {
            wake.at(&place(namespace, name));
        }
    };
    match event {
        Event::Reset(items) => {
            let there: BTreeSet<(&str, &str)> = items.iter().map(|item| (object::namespace(&item.0), object::name(&item.0))).collect();
            for (namespace, name) in known.all() {
                if !there.contains(&(namespace.as_str(), name.as_str())) {
                    gone(&namespace, &name);
                }
            }
            items.iter().for_each(|item| show(&item.0));
        }
        Event::Apply(item) => show(&item.0),
        Event::Delete(item) => gone(object::namespace(&item.0), object::name(&item.0)),
        Event::Failed { error, .. } => tracing::debug!(error = cluster::error::message(&error), "cannot watch the records of releases"),
    }
}

/// Where the events of a kind's watch go.
struct Sink {
    kind: KindOf,
    wake: Wake,
    seen: Arc<Mutex<Seen>>,
}

impl Sink {
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
        let at = |key: &str| object::annotation(item, key).unwrap_or_default();
        let place = format!("{}/{}", at(RELEASE_NAMESPACE), at(RELEASE_NAME));
        let before = self.seen.lock().get(&id).cloned();
        if let Some((of, known)) = &before
            && (*known != digest || *of != place)
        {
            self.wake.at(of);
        }
        // Also of a release that is being deployed just now, and of an object whose marks were taken off.
        let of = if self.wake.knows(&place) { Some(place) } else { before.map(|(of, _)| of) };
        if let Some(of) = of {
            self.seen.lock().insert(id, (of, digest));
        }
    }

    fn gone(&self, id: &ObjectRef) {
        let before = self.seen.lock().remove(id);
        if let Some((of, _)) = before {
            self.wake.at(&of);
        }
    }
}
