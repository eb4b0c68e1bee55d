//! Built-in controllers of one server: a single task over all changes of its objects, cheap enough for a thousand servers in a process.
//!
//! A [`Controller`] is pure: it names the objects a [`Change`] concerns and decides, from what is stored and `now`, which
//! [`Call`]s to make. The [`runner`] alone performs them, takes turns, retries and keeps time. The workload controllers of the
//! simulator are written against the same trait, so that a server can run both kinds in one task.

pub mod accounts;
pub mod addresses;
pub mod bootstrap;
pub mod built_in;
pub mod call;
pub mod certificates;
pub mod disruption;
pub mod endpoints;
pub mod flows;
pub mod garbage;
pub mod graph;
pub mod kinds;
pub mod local;
pub mod namespaces;
pub mod policies;
pub mod quota;
pub mod roles;
pub mod runner;
pub mod storage;
pub mod tokens;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

pub use built_in::{built_in, run_local};
pub use call::{Call, CallError, Delete};
pub use graph::Graph;
pub use kinds::Kind;
pub use runner::{run, Backend, Feed, FeedItem};

use crate::auth::Objects;

/// Names one object of a server. `group` is empty for the core group, `namespace` at the cluster scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// API group.
    pub group: Arc<str>,
    /// Plural resource name.
    pub plural: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.into(), plural: plural.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Whether the object is of this kind.
    pub fn is(&self, kind: &Kind) -> bool {
        *self.group == *kind.group && *self.plural == *kind.plural
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " {}", self.namespace)?;
        }
        write!(f, "/{}", self.name)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether the owner manages this object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// The metadata that controllers look at without reading the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Unique id.
    pub uid: String,
    /// Owners.
    pub owner_references: Vec<Owner>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Set when the object is being deleted.
    pub deletion_timestamp: Option<String>,
}

impl Meta {
    /// Whether the object is being deleted.
    pub fn terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The managing owner.
    pub fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Shell {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: Meta,
}

/// What happened to one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which object.
    pub key: Key,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its metadata (of a deleted object: the last known).
    pub meta: Meta,
    /// Whether it is gone.
    pub deleted: bool,
    /// Uids of the owners it had before or has now; filled in when the change is taken into the graph.
    pub touched: Vec<Arc<str>>,
}

impl Change {
    /// Reads the metadata of an encoded object; nothing when the bytes are no object.
    pub fn read(group: &str, plural: &str, bytes: &[u8], deleted: bool) -> Option<Self> {
        let shell: Shell = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            key: Key::new(group, plural, &shell.metadata.namespace, &shell.metadata.name),
            api_version: shell.api_version,
            kind: shell.kind,
            meta: shell.metadata,
            deleted,
            touched: Vec::new(),
        })
    }

    /// The change that an object stands for.
    pub fn of(group: &str, plural: &str, object: &serde_json::Value, deleted: bool) -> Option<Self> {
        let shell: Shell = Shell::deserialize(object).ok()?;
        Some(Self {
            key: Key::new(group, plural, &shell.metadata.namespace, &shell.metadata.name),
            api_version: shell.api_version,
            kind: shell.kind,
            meta: shell.metadata,
            deleted,
            touched: Vec::new(),
        })
    }
}

/// What a decision sees: the stored objects and who owns what.
pub struct World<'a> {
    /// The objects.
    pub objects: &'a dyn Objects,
    /// Their owners.
    pub graph: &'a Graph,
    /// The time of the decision.
    pub now: Timestamp,
}

impl World<'_> {
    /// One object.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<serde_json::Value>> {
        self.objects.get(kind.group, kind.plural, namespace, name)
    }

    /// The object a key names.
    pub fn at(&self, key: &Key) -> Option<Arc<serde_json::Value>> {
        self.objects.get(&key.group, &key.plural, &key.namespace, &key.name)
    }

    /// All objects of a kind in a namespace.
    pub fn list(&self, kind: &Kind, namespace: &str) -> Vec<Arc<serde_json::Value>> {
        self.objects.list(kind.group, kind.plural, Some(namespace))
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &Kind) -> Vec<Arc<serde_json::Value>> {
        self.objects.list(kind.group, kind.plural, None)
    }

    /// The objects of a kind that have an owner reference with this uid, in order of their names.
    pub fn owned(&self, uid: &str, kind: &Kind) -> Vec<Arc<serde_json::Value>> {
        let mut keys: Vec<&Key> =
            self.graph.dependents(uid).map(|node| &node.key).filter(|key| key.is(kind)).collect();
        keys.sort();
        keys.into_iter().filter_map(|key| self.at(key)).collect()
    }
}

/// What a controller wants done for one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Calls in stages: those of one stage go out together, the next stage only when all of the one before succeeded.
    pub stages: Vec<Vec<Call>>,
    /// Look again after this time, whatever happens until then.
    pub again: Option<SignedDuration>,
}

impl Turn {
    /// Adds a call to the current stage.
    pub fn call(&mut self, call: Call) {
        match self.stages.last_mut() {
            Some(stage) => stage.push(call),
            None => self.stages.push(vec![call]),
        }
    }

    /// Opens the next stage.
    pub fn then(&mut self) {
        if self.stages.last().is_some_and(|stage| !stage.is_empty()) {
            self.stages.push(Vec::new());
        }
    }

    /// Asks for another look after a time; the earliest wish counts.
    pub fn again_in(&mut self, after: SignedDuration) {
        let after = after.max(SignedDuration::from_millis(1));
        self.again = Some(self.again.map_or(after, |before| before.min(after)));
    }

    /// Asks for another look at a moment.
    pub fn again_at(&mut self, moment: Timestamp, now: Timestamp) {
        self.again_in(moment.duration_since(now));
    }

    /// Whether nothing is to be done now.
    pub fn is_quiet(&self) -> bool {
        self.stages.iter().all(Vec::is_empty)
    }
}

/// One built-in controller. It keeps no state that a restart would miss.
pub trait Controller: Send {
    /// Its name in logs.
    fn name(&self) -> &'static str;
    /// The keys to look at because of a change.
    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>);
    /// What to do about a key.
    fn decide(&self, key: &Key, world: &World<'_>) -> Turn;
    /// What to say, before the next try, about a turn that failed; its calls are made once and their failure is no matter.
    fn failed(&self, key: &Key, error: &CallError, world: &World<'_>) -> Turn {
        let _ = (key, error, world);
        Turn::default()
    }
}
