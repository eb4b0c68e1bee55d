//! A stored object and an event about it.

use std::any::Any;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// A stored object: encoded bytes under a key of a table.
pub struct Entry {
    /// Table: one kind of object.
    pub table: Arc<str>,
    /// Key within the table; parts are separated by `/`.
    pub key: Box<str>,
    /// Revision of the write that made this form.
    pub revision: u64,
    /// The encoded object.
    pub value: Bytes,
    pub(crate) id: i64,
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Entry {
    pub(crate) fn new(table: Arc<str>, key: &str, id: i64, revision: u64, value: Bytes) -> Self {
        Self { table, key: key.into(), revision, value, id, derived: OnceLock::new() }
    }

    /// What a reader derives from the bytes (labels, say), computed at most once. All callers must ask for one type;
    /// another type than the first gets `None`.
    pub fn derived<T: Any + Send + Sync>(&self, derive: impl FnOnce(&Bytes) -> T) -> Option<&T> {
        self.derived.get_or_init(|| Box::new(derive(&self.value))).downcast_ref()
    }
}

impl fmt::Debug for Entry {
    // The value may be a Secret: it is not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{} ({} bytes)", self.table, self.key, self.revision, self.value.len())
    }
}

/// Orders entries of one table by key.
#[derive(Debug, Clone)]
pub(crate) struct ByKey(pub(crate) Arc<Entry>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was not there before.
    Added,
    /// It has a new form.
    Modified,
    /// It is gone; the event holds its last form.
    Deleted,
}

/// One write, as watchers see it.
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Revision of the write.
    pub revision: u64,
    /// The new form (of a removal: the last form, with the revision of the removal).
    pub entry: Arc<Entry>,
    /// The form before.
    pub previous: Option<Arc<Entry>>,
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Event {
    pub(crate) fn new(kind: EventKind, revision: u64, entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { kind, revision, entry, previous, derived: OnceLock::new() }
    }

    /// What watchers share about this event (its encoded form, say), computed at most once; see [`Entry::derived`].
    pub fn derived<T: Any + Send + Sync>(&self, derive: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.derived.get_or_init(|| Box::new(derive(self))).downcast_ref()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.entry)
    }
}
