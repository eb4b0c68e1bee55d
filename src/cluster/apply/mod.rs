//! The apply engine: desired objects in, an outcome for each out. Used by the agent and by the hub.
//!
//! Server-side apply with one field manager, in waves (namespaces, definitions, the rest by kind), bounded in parallel, each
//! object on its own: one that is refused never holds back another. Invariants: nothing is written when nothing would
//! change; nothing is deleted that does not carry the owner's mark; no object is deleted under another uid than the one
//! that was looked at.

pub mod adopt;
mod outcome;
pub mod owned;
mod prune;
#[cfg(test)]
mod tests;
mod undeclared;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::known::annotation::OWNED_BY_DESCRIPTION;
use api::object::{self, ObjectRef};
use futures::StreamExt as _;
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

pub use outcome::{Action, Done, Fault, FaultReason, Outcome};
pub use prune::{Pruned, Victim};

use crate::discovery::{Discovery, Unresolved};
use crate::dynamic::{ApplyAs, Dynamic, Precondition, Propagation};
use crate::resource::Resource;

/// Annotation of a desired object: what to do when the server refuses to change an immutable field.
pub const ON_IMMUTABLE: &str = "gitops.anabranch.io/on-immutable";

/// What to do when the server refuses to change an immutable field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnImmutable {
    /// Say so and leave the object as it is. The default: deleting is never implied.
    #[default]
    Fail,
    /// Leave the object as it is, silently.
    Keep,
    /// Delete it and make it anew.
    Recreate,
}

/// An object as it should be, ready to be applied.
#[derive(Clone, Debug)]
pub struct Desired {
    id: ObjectRef,
    owner: String,
    object: Arc<Value>,
    hash: [u8; 32],
    on_immutable: OnImmutable,
}

impl Desired {
    /// Prepares an object: drops system metadata, status and other tools' records, marks it with its owner
    /// (`<namespace>.<description>`). An object without apiVersion, kind or name is refused.
    pub fn new(mut object: Value, owner: &str) -> Result<Self, Fault> {
        adopt::clean(&mut object);
        adopt::annotate(&mut object, &BTreeMap::from([(OWNED_BY_DESCRIPTION, owner)]));
        let id = ObjectRef::of(&object);
        if id.api_version.is_empty() || id.kind.is_empty() || id.name.is_empty() {
            return Err(Fault::new(FaultReason::Invalid, format!("{id} needs apiVersion, kind and metadata.name")));
        }
        let on_immutable = match object::annotation(&object, ON_IMMUTABLE).map(str::to_ascii_lowercase).as_deref() {
            Some("recreate") => OnImmutable::Recreate,
            Some("keep") => OnImmutable::Keep,
            _ => OnImmutable::Fail,
        };
        let hash = manifest::fingerprint(&object);
        Ok(Self { id, owner: owner.to_owned(), object: Arc::new(object), hash, on_immutable })
    }

    /// Which object.
    pub fn id(&self) -> &ObjectRef {
        &self.id
    }

    /// `<namespace>.<description>`.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The object as it will be applied.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Digest of what will be applied.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}

/// What is known of an object that we applied.
#[derive(Clone, Debug)]
struct Remembered {
    hash: [u8; 32],
    uid: String,
    /// Digest of what we own in it; see [`owned::ownership`].
    ownership: u64,
    /// Version of the object that the digest is of; 0 when the server's versions are no numbers.
    version: u64,
    /// Somebody changed or removed a field of ours, or the object itself.
    drifted: bool,
}

/// What a watch showed last of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    uid: String,
    ownership: u64,
    version: u64,
    /// It is gone, or on its way.
    going: bool,
}

impl Sighting {
    fn of(live: &Value, manager: &str) -> Self {
        Self {
            uid: object::uid(live).to_owned(),
            ownership: owned::ownership(live, manager),
            version: object::resource_version(live).parse().unwrap_or(0),
            going: object::is_deleting(live),
        }
    }

    /// True when it shows that what we wrote at `known` did not stay. An older sighting shows nothing.
    fn tells_drift(&self, known: &Remembered) -> bool {
        let older = self.version != 0 && known.version != 0 && self.version < known.version;
        !older && (self.going || self.uid != known.uid || self.ownership != known.ownership)
    }
}

/// Settings of an [`Applier`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests at once.
    pub parallel: usize,
    /// How long a CustomResourceDefinition may take to be established.
    pub establish: Duration,
    /// How long a deletion may take before an object is made anew.
    pub recreate: Duration,
}

impl Default for Limits {
    /// 16 at once keeps an API server busy without crowding it; a definition is established within a second on any
    /// healthy server, and finalizers get half a minute.
    fn default() -> Self {
        Self { parallel: 16, establish: Duration::from_secs(30), recreate: Duration::from_secs(30) }
    }
}

/// Applies objects to one cluster.
pub struct Applier {
    dynamic: Dynamic,
    discovery: Arc<Discovery>,
    manager: &'static str,
    limits: Limits,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    applied: BTreeMap<ObjectRef, Remembered>,
    /// Last sightings, of objects that a caller watches. A sighting may come before the answer to the write that caused it.
    sightings: BTreeMap<ObjectRef, Sighting>,
}

impl Applier {
    /// An applier for a cluster, with a memory of nothing.
    pub fn new(client: Client, manager: &'static str, limits: Limits) -> Self {
        Self {
            dynamic: Dynamic::new(client.clone()),
            discovery: Arc::new(Discovery::new(client)),
            manager,
            limits,
            memory: Mutex::new(Memory::default()),
        }
    }

    /// The discovery cache that the applier uses.
    pub fn discovery(&self) -> &Arc<Discovery> {
        &self.discovery
    }

    /// The requests' client.
    pub fn dynamic(&self) -> &Dynamic {
        &self.dynamic
    }

    /// Takes note of an object as a watch shows it (`None`: it is gone). True when it drifted from what was applied: the next
    /// [`Applier::apply`] mends it. Unknown objects never drift.
    pub fn observe(&self, id: &ObjectRef, live: Option<&Value>) -> bool {
        let mut memory = self.memory.lock();
        let Some(live) = live else {
            memory.sightings.remove(id);
            let Some(known) = memory.applied.get_mut(id) else { return false };
            known.drifted = true;
            return true;
        };
        let sighting = Sighting::of(live, self.manager);
        let drifted = match memory.applied.get_mut(id) {
            Some(known) => {
                known.drifted |= sighting.tells_drift(known);
                known.drifted
            }
            None => false,
        };
        memory.sightings.insert(id.clone(), sighting);
        drifted
    }

    /// True when the object was applied in exactly this form and nobody is known to have touched it since.
    pub fn is_current(&self, desired: &Desired) -> bool {
        self.memory.lock().applied.get(&desired.id).is_some_and(|known| known.hash == desired.hash && !known.drifted)
    }

    /// Forgets an object: the next apply looks at it anew.
    pub fn forget(&self, id: &ObjectRef) {
        let mut memory = self.memory.lock();
        memory.applied.remove(id);
        memory.sightings.remove(id);
    }

    /// Applies objects in waves. One outcome per object, in the order given.
    pub async fn apply(&self, desired: &[Desired]) -> Vec<Outcome> {
        let mut waves: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(desired.len());
        for (at, want) in desired.iter().enumerate() {
            outcomes.push(None);
            if let Some(known) = self.memory.lock().applied.get(&want.id)
                && known.hash == want.hash
                && !known.drifted
            {
                outcomes[at] = Some(Outcome::done(want, Action::Unchanged, known.uid.clone(), None));
                continue;
            }
            waves.entry(manifest::order::rank(&want.id.kind)).or_default().push(at);
        }
        for (_, wave) in waves {
            let mut running = futures::stream::iter(wave.into_iter().map(|at| async move { (at, self.apply_one(&desired[at]).await) }))
                .buffer_unordered(self.limits.parallel.max(1));
            while let Some((at, outcome)) = running.next().await {
                outcomes[at] = Some(outcome);
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    async fn apply_one(&self, want: &Desired) -> Outcome {
        match self.try_apply(want).await {
            Ok(done) => Outcome { id: want.id.clone(), owner: want.owner.clone(), done: Ok(done) },
            Err(fault) => {
                self.forget(&want.id);
                Outcome { id: want.id.clone(), owner: want.owner.clone(), done: Err(fault) }
            }
        }
    }

    async fn try_apply(&self, want: &Desired) -> Result<Done, Fault> {
        let resource = self.resolve(&want.id).await?;
        check_scope(&resource, &want.id)?;
        let known = self.memory.lock().applied.get(&want.id).cloned();
        // Applied by us before and untouched: its state is known, so the read can be left out.
        let before = match &known {
            Some(known) if !known.drifted => None,
            _ => {
                let live = self.dynamic.get_opt(&resource, &want.id.namespace, &want.id.name).await.map_err(|e| self.refused(&e))?;
                match live {
                    Some(live) => {
                        if object::is_deleting(&live) {
                            return Err(Fault::new(FaultReason::Terminating, format!("{} is being deleted", want.id)));
                        }
                        if owned::is_applied(&want.object, &live, self.manager) || adopt::stands(&want.object, &live) {
                            self.remember(want, &live);
                            self.after(want, Some(live.clone())).await?;
                            return Ok(Done { action: Action::Unchanged, uid: object::uid(&live).to_owned(), live: Some(live) });
                        }
                        self.adopt(&resource, &want.id, &live).await?;
                        Some((object::uid(&live).to_owned(), object::resource_version(&live).to_owned()))
                    }
                    None => Some((String::new(), String::new())),
                }
            }
        };
        let (live, recreated) = match self.write(&resource, want).await {
            Ok(live) => (live, false),
            Err(error) => {
                let fault = self.refused(&error);
                if fault.reason != FaultReason::Immutable {
                    return Err(fault);
                }
                match want.on_immutable {
                    OnImmutable::Fail => return Err(fault),
                    OnImmutable::Keep => {
                        let live = self.dynamic.get(&resource, &want.id.namespace, &want.id.name).await.map_err(|e| self.refused(&e))?;
                        self.remember(want, &live);
                        return Ok(Done { action: Action::Kept, uid: object::uid(&live).to_owned(), live: Some(live) });
                    }
                    OnImmutable::Recreate => (self.recreate(&resource, want).await?, true),
                }
            }
        };
        self.remember(want, &live);
        self.after(want, None).await?;
        let uid = object::uid(&live).to_owned();
        let action = match (&before, &known) {
            _ if recreated => Action::Recreated,
            (Some((before, _)), _) if *before != uid => Action::Created,
            (Some((_, version)), _) if version == object::resource_version(&live) => Action::Unchanged,
            (None, Some(known)) if known.uid != uid => Action::Created,
            _ => Action::Configured,
        };
        Ok(Done { action, uid, live: Some(live) })
    }

    /// Writes the object, without the fields that the server's schema does not have.
    async fn write(&self, resource: &Resource, want: &Desired) -> Result<Value, kube::Error> {
        let how = ApplyAs { manager: self.manager, force: true, dry_run: false };
        let refused = match self.dynamic.apply(resource, &want.object, how).await {
            Err(kube::Error::Api(status)) => status,
            other => return other,
        };
        let mut object = Value::clone(&want.object);
        let without = undeclared::strip(&mut object, &refused.message);
        if without.is_empty() {
            return Err(kube::Error::Api(refused));
        }
        tracing::info!(object = %want.id, fields = without.join(", "), "applied without fields that the cluster does not know");
        self.dynamic.apply(resource, &object, how).await
    }

    async fn resolve(&self, id: &ObjectRef) -> Result<Resource, Fault> {
        self.discovery.resolve(&id.api_version, &id.kind).await.map_err(|e| match e {
            Unresolved::NoSuchKind { .. } => Fault::new(FaultReason::NoSuchKind, e.to_string()),
            Unresolved::GroupDown { .. } => Fault::new(FaultReason::Unavailable, e.to_string()),
            Unresolved::Discovery(error) => self.refused(&error),
        })
    }

    fn refused(&self, error: &kube::Error) -> Fault {
        let fault = Fault::of(error);
        if fault.reason == FaultReason::NoSuchKind {
            // The catalogue is out of date: a definition went away.
            self.discovery.expire();
        }
        fault
    }

    fn remember(&self, want: &Desired, live: &Value) {
        let written = Sighting::of(live, self.manager);
        let mut known =
            Remembered { hash: want.hash, uid: written.uid, ownership: written.ownership, version: written.version, drifted: false };
        let mut memory = self.memory.lock();
        // Somebody may have been there between our write and this moment.
        known.drifted = memory.sightings.get(&want.id).is_some_and(|seen| seen.version > known.version && seen.tells_drift(&known));
        memory.applied.insert(want.id.clone(), known);
    }

    async fn adopt(&self, resource: &Resource, id: &ObjectRef, live: &Value) -> Result<(), Fault> {
        let mut live = std::borrow::Cow::Borrowed(live);
        // A busy controller may change the object between our read and the patch.
        for _ in 0..5 {
            let Some(patch) = adopt::patch(&live, self.manager) else { return Ok(()) };
            match self.dynamic.json_patch(resource, &id.namespace, &id.name, "", &patch, self.manager).await {
                Ok(_) => {
                    tracing::info!(object = %id, "took over from a client-side apply");
                    return Ok(());
                }
                Err(error) if matches!(crate::trouble(&error), crate::Trouble::Conflict | crate::Trouble::Invalid) => {
                    live = std::borrow::Cow::Owned(
                        self.dynamic.get(resource, &id.namespace, &id.name).await.map_err(|e| self.refused(&e))?,
                    );
                }
                Err(error) => return Err(self.refused(&error)),
            }
        }
        Err(Fault::new(FaultReason::Conflict, format!("{id} changes too often to take it over")))
    }

    async fn recreate(&self, resource: &Resource, want: &Desired) -> Result<Value, Fault> {
        let id = &want.id;
        if let Some(live) = self.dynamic.get_opt(resource, &id.namespace, &id.name).await.map_err(|e| self.refused(&e))? {
            // Only what is ours is deleted, also here.
            if object::annotation(&live, OWNED_BY_DESCRIPTION).is_none() {
                return Err(Fault::new(FaultReason::Immutable, format!("{id} has an immutable field to change, and was not made by us, so it is not made anew")));
            }
            let uid = object::uid(&live).to_owned();
            let only_if = Precondition { uid: Some(uid.clone()), resource_version: None };
            match self.dynamic.delete(resource, &id.namespace, &id.name, &only_if, Propagation::Background).await {
                Ok(()) => {}
                Err(error) if crate::trouble(&error) == crate::Trouble::NotFound => {}
                Err(error) => return Err(self.refused(&error)),
            }
            self.wait_gone(resource, id, &uid).await?;
        }
        self.write(resource, want).await.map_err(|e| self.refused(&e))
    }

    async fn wait_gone(&self, resource: &Resource, id: &ObjectRef, uid: &str) -> Result<(), Fault> {
        let end = Instant::now() + self.limits.recreate;
        let mut wait = Duration::from_millis(10);
        loop {
            let live = self.dynamic.get_opt(resource, &id.namespace, &id.name).await.map_err(|e| self.refused(&e))?;
            if live.as_ref().map(object::uid) != Some(uid) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Fault::new(FaultReason::Terminating, format!("{id} is being deleted, to be made anew, and does not go")));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }

    /// What must be true of an object before the next wave begins: definitions are served.
    async fn after(&self, want: &Desired, live: Option<Value>) -> Result<(), Fault> {
        if want.id.kind != "CustomResourceDefinition" || want.id.group() != "apiextensions.k8s.io" {
            return Ok(());
        }
        let Some(resource) = crate::resource::built_in(&want.id.api_version, &want.id.kind) else { return Ok(()) };
        let end = Instant::now() + self.limits.establish;
        let mut wait = Duration::from_millis(5);
        let mut live = live;
        loop {
            let now = match live.take() {
                Some(live) => live,
                None => self.dynamic.get(&resource, "", &want.id.name).await.map_err(|e| self.refused(&e))?,
            };
            let condition = |kind: &str| {
                now["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind).cloned().unwrap_or_default()
            };
            if condition("Established")["status"] == "True" {
                self.discovery.expire();
                return Ok(());
            }
            let names = condition("NamesAccepted");
            if names["status"] == "False" {
                let why = names["message"].as_str().unwrap_or("its names are taken");
                return Err(Fault::new(FaultReason::NotEstablished, format!("{} is not accepted: {why}", want.id)));
            }
            if Instant::now() >= end {
                return Err(Fault::new(FaultReason::NotEstablished, format!("{} is not established after {} s", want.id, self.limits.establish.as_secs())));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }
}

fn check_scope(resource: &Resource, id: &ObjectRef) -> Result<(), Fault> {
    match (resource.namespaced, id.namespace.is_empty()) {
        (true, true) => Err(Fault::new(FaultReason::Invalid, format!("{id} needs metadata.namespace"))),
        (false, false) => Err(Fault::new(FaultReason::Invalid, format!("{id} is cluster-scoped and must not have metadata.namespace"))),
        _ => Ok(()),
    }
}
