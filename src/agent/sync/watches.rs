//! Watches of the child: one per kind in use, of our objects only, reduced at intake, stopped when unused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::known::annotation::OWNED_BY_DESCRIPTION;
use api::known::{component, label};
use api::object::{self, ObjectRef};
use cluster::apply::Applier;
use cluster::{Event, Object, Target, follow};
use engine::{CancellationToken, Queue, Tasks};
use parking_lot::Mutex;
use plan::sync::{Desired, Identity};
use serde_json::Value;

use super::{GATHER, Turn};

/// What is kept of a live object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Live {
    /// Which.
    pub(super) id: ObjectRef,
    /// Its `.status`; null without one.
    pub(super) status: Value,
    /// `spec.replicas`, where there is one.
    pub(super) replicas: Option<i64>,
    /// The server's version of it.
    version: u64,
}

/// A kind that is watched.
struct Watch {
    /// Whether only labelled objects are asked for.
    labelled: bool,
    stop: CancellationToken,
}

/// All watches of a child.
pub(super) struct Watches {
    /// Dedicated namespace; objects marked by others are passed over.
    namespace: String,
    applier: Arc<Applier>,
    queue: Queue<Turn>,
    tasks: Tasks,
    live: Arc<Mutex<BTreeMap<Identity, Live>>>,
    running: Mutex<BTreeMap<(String, String), Watch>>,
    /// Watches that only wake: path of the collection -> stop.
    triggers: Mutex<BTreeMap<String, CancellationToken>>,
}

/// Objects that went through the pipeline carry one of these labels.
fn selector() -> String {
    format!("{} in ({},{})", label::CREATED_BY, component::CONTROLLER_MANAGER, component::HUB)
}

fn is_labelled(object: &Value) -> bool {
    matches!(object::label(object, label::CREATED_BY), Some(component::CONTROLLER_MANAGER | component::HUB))
}

impl Watches {
    pub(super) fn new(namespace: String, applier: Arc<Applier>, queue: Queue<Turn>, tasks: Tasks) -> Self {
        Self { namespace, applier, queue, tasks, live: Arc::default(), running: Mutex::default(), triggers: Mutex::default() }
    }

    /// A live object.
    pub(super) fn live(&self, identity: &Identity) -> Option<Live> {
        self.live.lock().get(identity).cloned()
    }

    /// Everything of ours that the watches show.
    pub(super) fn owned(&self) -> Vec<(Identity, ObjectRef)> {
        self.live.lock().iter().map(|(identity, live)| (identity.clone(), live.id.clone())).collect()
    }

    /// Takes in an object that was read or written just now, unless its watch has shown something newer meanwhile.
    pub(super) fn assume(&self, id: &ObjectRef, live: &Value) {
        let now = reduce(id, live);
        let mut all = self.live.lock();
        if all.get(&Identity::of(id)).is_none_or(|known| known.version <= now.version) {
            all.insert(Identity::of(id), now);
        }
    }

    /// Watches the kinds of what is wanted, and no others.
    pub(super) async fn ensure(&self, desired: &Desired) {
        let mut kinds: BTreeMap<(String, String), bool> = BTreeMap::new();
        for want in desired.wants.values() {
            let labelled = kinds.entry((want.id.api_version.clone(), want.id.kind.clone())).or_insert(true);
            *labelled &= is_labelled(&want.object);
        }
        // A kind keeps its watch while leftovers of it are known.
        let left: BTreeSet<(String, String)> =
            self.live.lock().values().map(|l| (l.id.api_version.clone(), l.id.kind.clone())).collect();
        {
            let mut running = self.running.lock();
            running.retain(|kind, watch| {
                let keep = match kinds.get(kind) {
                    Some(labelled) => watch.labelled == *labelled || !watch.labelled,
                    None => left.contains(kind),
                };
                if !keep {
                    watch.stop.cancel();
                }
                keep
            });
        }
        for ((api_version, kind), labelled) in kinds {
            let key = (api_version, kind);
            if self.running.lock().contains_key(&key) {
                continue;
            }
            // Not known yet: its definition failed, which is reported; the next turn tries again.
            let Ok(resource) = self.applier.discovery().resolve(&key.0, &key.1).await else { continue };
            let mut target = Target::new(&resource, "");
            if labelled {
                target = target.labels(selector());
            }
            let stop = self.tasks.token().child_token();
            self.running.lock().insert(key.clone(), Watch { labelled, stop: stop.clone() });
            let sink = Sink {
                kind: key,
                namespace: self.namespace.clone(),
                applier: self.applier.clone(),
                queue: self.queue.clone(),
                live: self.live.clone(),
            };
            let client = self.applier.dynamic().client().clone();
            self.tasks.spawn("watch", async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = follow::<Object>(client, target, move |event| { sink.take(event); ControlFlow::Continue(()) }) => {}
                }
            });
        }
    }

    /// Wakes the sync when something of these collections comes, which was missing when objects were applied.
    pub(super) fn wake_on(&self, collections: &BTreeSet<&'static str>) {
        let mut triggers = self.triggers.lock();
        triggers.retain(|path, stop| {
            let keep = collections.contains(path.as_str());
            if !keep {
                stop.cancel();
            }
            keep
        });
        for path in collections {
            if triggers.contains_key(*path) {
                continue;
            }
            let stop = self.tasks.token().child_token();
            triggers.insert((*path).to_owned(), stop.clone());
            let target = Target { path: (*path).to_owned(), labels: None, fields: None, metadata_only: true };
            let (client, queue) = (self.applier.dynamic().client().clone(), self.queue.clone());
            self.tasks.spawn("trigger", async move {
                let wake = move |event: Event<Object>| {
                    if matches!(event, Event::Apply(_)) {
                        queue.add(Turn::Apply);
                    }
                    ControlFlow::Continue(())
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = follow::<Object>(client, target, wake) => {}
                }
            });
        }
    }

    /// Stops all watches and forgets what they showed: somebody else applies now.
    pub(super) fn stop(&self) {
        for (_, watch) in std::mem::take(&mut *self.running.lock()) {
            watch.stop.cancel();
        }
        for (_, stop) in std::mem::take(&mut *self.triggers.lock()) {
            stop.cancel();
        }
        self.live.lock().clear();
    }
}

fn reduce(id: &ObjectRef, live: &Value) -> Live {
    Live {
        id: id.clone(),
        status: live.get("status").cloned().unwrap_or_default(),
        replicas: live["spec"]["replicas"].as_i64(),
        version: object::resource_version(live).parse().unwrap_or(0),
    }
}

/// Where a watch's events go.
struct Sink {
    kind: (String, String),
    namespace: String,
    applier: Arc<Applier>,
    queue: Queue<Turn>,
    live: Arc<Mutex<BTreeMap<Identity, Live>>>,
}

impl Sink {
    fn take(&self, event: Event<Object>) {
        match event {
            Event::Reset(items) => {
                let mut there = BTreeSet::new();
                for item in items {
                    if let Some(identity) = self.show(item.0) {
                        there.insert(identity);
                    }
                }
                let gone: Vec<ObjectRef> = {
                    let live = self.live.lock();
                    let of_kind = |l: &&Live| l.id.api_version == self.kind.0 && l.id.kind == self.kind.1;
                    live.values().filter(of_kind).filter(|l| !there.contains(&Identity::of(&l.id))).map(|l| l.id.clone()).collect()
                };
                for id in gone {
                    self.gone(&id);
                }
            }
            Event::Apply(item) => {
                self.show(item.0);
            }
            Event::Delete(item) => {
                let id = self.id(&item.0);
                if self.is_ours(&item.0) {
                    self.gone(&id);
                }
            }
            Event::Failed { error, .. } => {
                tracing::debug!(kind = self.kind.1, error = cluster::error::message(&error), "cannot watch a kind in the child");
            }
        }
    }

    fn id(&self, item: &Value) -> ObjectRef {
        // Items of a list come without apiVersion and kind.
        ObjectRef {
            api_version: self.kind.0.clone(),
            kind: self.kind.1.clone(),
            namespace: object::namespace(item).to_owned(),
            name: object::name(item).to_owned(),
        }
    }

    fn is_ours(&self, item: &Value) -> bool {
        object::annotation(item, OWNED_BY_DESCRIPTION)
            .and_then(|mark| mark.split_once('.'))
            .is_some_and(|(namespace, _)| namespace == self.namespace)
    }

    fn show(&self, item: Value) -> Option<Identity> {
        let id = self.id(&item);
        let identity = Identity::of(&id);
        // Looked at even without our mark: taking the mark away is drift as well.
        let drifted = self.applier.observe(&id, Some(&item));
        if drifted {
            self.queue.add(Turn::Apply);
        }
        if !self.is_ours(&item) {
            if !drifted {
                return None;
            }
            return Some(identity);
        }
        let now = reduce(&id, &item);
        let before = self.live.lock().insert(identity.clone(), now.clone());
        match before {
            None => {
                // Left over, perhaps: the next turn knows.
                self.queue.add_after(Turn::Apply, GATHER);
            }
            Some(before) if before.status != now.status => self.queue.add_after(Turn::Status, GATHER),
            Some(_) => {}
        }
        Some(identity)
    }

    fn gone(&self, id: &ObjectRef) {
        self.live.lock().remove(&Identity::of(id));
        if self.applier.observe(id, None) {
            self.queue.add(Turn::Apply);
        }
    }
}
