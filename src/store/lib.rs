//! Embedded object store: an ordered index of encoded objects in memory, revisions, a watch log, and one durable file.
//!
//! Invariants:
//! - A write is acknowledged only after it is on disk (SQLite in WAL mode, the log flushed); many writers share one commit.
//! - Readers and watchers never see a write that is not yet acknowledged as durable. Only [`Store::latest`] does, for the
//!   read-modify-write cycle: a write built on a pending one fails together with it.
//! - Revisions only grow, over restarts too. Events are published in the order of their revisions.
//! - A failed commit changes nothing: every write of it, and every write built on it, gets the error.

mod disk;
mod entry;
mod journal;
mod log;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::oneshot;

pub use disk::OpenError;
pub use entry::{Entry, Event, EventKind};
pub use watch::{Scope, Watch, WatchError};

use entry::ByKey;
use log::Log;
use watch::Watchers;

/// How much a store keeps and how much it may grow.
#[derive(Debug, Clone)]
pub struct Options {
    /// Events kept for watchers that resume; older ones are compacted.
    pub log_events: usize,
    /// Bytes of objects that the kept events may hold.
    pub log_bytes: usize,
    /// Events a watcher may lag behind before it is closed and has to list again.
    pub watch_lag: usize,
    /// Largest size of the file in bytes; a write that would exceed it gets [`WriteError::Disk`]. `None`: no limit.
    pub max_file_bytes: Option<u64>,
}

impl Options {
    /// For a parent: ten thousand clusters resume without listing again.
    #[must_use]
    pub fn durable() -> Self {
        Self { log_events: 100_000, log_bytes: 24 << 20, watch_lag: 16_384, max_file_bytes: None }
    }

    /// For tests and simulated children: a thousand of them live in one process.
    #[must_use]
    pub fn small() -> Self {
        Self { log_events: 2_048, log_bytes: 1 << 20, watch_lag: 4_096, max_file_bytes: None }
    }
}

/// What must hold for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No object may be stored under the key.
    Absent,
    /// The stored object must have exactly this revision.
    Revision(u64),
}

/// Why a write did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// `Expect::Absent`, but there is an object.
    #[error("create object: the key is taken")]
    Exists(Arc<Entry>),
    /// `Expect::Revision`, but the object has another revision (or is gone: `None`).
    #[error("write object: the revision is not the expected one")]
    Conflict(Option<Arc<Entry>>),
    /// The commit failed: disk full, I/O error. Nothing of it was stored; the text is SQLite's.
    #[error("commit to the store file: {0}")]
    Disk(Arc<str>),
    /// The store was closed.
    #[error("commit to the store file: the store is closed")]
    Closed,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The revision at which the page is consistent.
    pub revision: u64,
    /// In order of their keys.
    pub entries: Vec<Arc<Entry>>,
    /// How many entries follow after this page (0: this is the last one).
    pub remaining: usize,
}

/// Why a list was not possible.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The revision is older than the watch log reaches.
    #[error("list objects: revision {asked} is compacted, oldest is {oldest}")]
    Compacted {
        /// Revision asked for.
        asked: u64,
        /// Oldest revision that can be read.
        oldest: u64,
    },
    /// The revision lies in the future.
    #[error("list objects: revision {asked} does not exist yet, newest is {newest}")]
    Future {
        /// Revision asked for.
        asked: u64,
        /// Newest revision.
        newest: u64,
    },
}

/// Builds the bytes to store, given the revision that the write got.
pub type Encode<'a> = &'a mut dyn FnMut(u64) -> Bytes;

/// A write that passed its precondition and waits for the disk.
#[derive(Debug)]
#[must_use = "the write is durable only after `durable()`"]
pub struct Ticket {
    entry: Arc<Entry>,
    done: Option<oneshot::Receiver<Result<(), WriteError>>>,
}

impl Ticket {
    /// What was (or, for a removal, what is the last form of what was) written. Not to be shown before [`Ticket::durable`].
    #[must_use]
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Waits until the write is on disk and visible to readers and watchers.
    pub async fn durable(self) -> Result<Arc<Entry>, WriteError> {
        match self.done {
            None => Ok(self.entry),
            Some(done) => match done.await {
                Ok(Ok(())) => Ok(self.entry),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(WriteError::Closed),
            },
        }
    }
}

/// One write on its way to the disk.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) event: Arc<Event>,
    /// Row in the file.
    pub(crate) id: i64,
    pub(crate) done: oneshot::Sender<Result<(), WriteError>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeSet<ByKey>,
    watchers: Watchers,
}

/// Committed state.
#[derive(Debug)]
struct State {
    tables: HashMap<Arc<str>, Table>,
    log: Log,
    /// Watchers of all tables.
    everyone: Watchers,
}

/// What writers agree on before the disk is asked.
#[derive(Debug, Default)]
struct Submit {
    /// Last revision given out.
    revision: u64,
    /// Last row id given out.
    id: i64,
    /// Newest pending form by table and key; `None`: pending removal.
    pending: HashMap<(Arc<str>, Box<str>), (u64, Option<Arc<Entry>>)>,
    queue: Vec<Pending>,
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Inner {
    options: Options,
    durable: bool,
    state: RwLock<State>,
    submit: Mutex<Submit>,
    wake: Condvar,
    committed: AtomicU64,
    healthy: AtomicBool,
    commits: AtomicU64,
}

/// An object store; cheap to clone, closed when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
    _writer: Option<Arc<disk::Writer>>,
}

impl Store {
    /// A store without a file.
    #[must_use]
    pub fn memory() -> Self {
        Self::memory_with(Options::small())
    }

    /// A store without a file, with its own limits.
    #[must_use]
    pub fn memory_with(options: Options) -> Self {
        Self { inner: Arc::new(Inner::new(options, false, 1, 0, HashMap::new())), _writer: None }
    }

    /// Opens or creates the file at `path` and takes it for this process alone. Blocking: reads all objects.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let (disk, loaded) = disk::open(path, &options)?;
        let mut tables: HashMap<Arc<str>, Table> = HashMap::new();
        for entry in loaded.entries {
            tables.entry(entry.table.clone()).or_default().entries.insert(ByKey(entry));
        }
        let inner = Arc::new(Inner::new(options, true, loaded.revision, loaded.last_id, tables));
        let writer = disk::start(inner.clone(), disk)?;
        Ok(Self { inner, _writer: Some(Arc::new(writer)) })
    }

    /// The newest revision that readers see.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.committed.load(Ordering::Acquire)
    }

    /// The oldest revision a watch can resume from.
    #[must_use]
    pub fn oldest_revision(&self) -> u64 {
        self.inner.state.read().log.compacted()
    }

    /// False from a failed commit until one succeeds again (after a failed flush: until a new start).
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.inner.healthy.load(Ordering::Relaxed)
    }

    /// Commits made so far (for metrics: writes per commit show how well they are grouped).
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.inner.commits.load(Ordering::Relaxed)
    }

    /// Number of stored objects in a table.
    #[must_use]
    pub fn count(&self, table: &str) -> usize {
        self.inner.state.read().tables.get(table).map_or(0, |t| t.entries.len())
    }

    /// Tables with the number of their objects.
    #[must_use]
    pub fn tables(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.inner.state.read();
        let mut all: Vec<_> = state.tables.iter().map(|(name, t)| (name.clone(), t.entries.len())).collect();
        all.sort();
        all
    }

    /// The acknowledged object under a key.
    #[must_use]
    pub fn get(&self, table: &str, key: &str) -> Option<Arc<Entry>> {
        self.inner.state.read().tables.get(table)?.entries.get(key).map(|e| e.0.clone())
    }

    /// The newest form of an object, pending writes included: the ground for the next write, not to be shown to anybody.
    #[must_use]
    pub fn latest(&self, table: &str, key: &str) -> Option<Arc<Entry>> {
        if self.inner.durable {
            let submit = self.inner.submit.lock();
            if let Some((_, pending)) = pending_of(&submit, table, key) {
                return pending.clone();
            }
            // The lock is still held: a pending write cannot become committed and forgotten between the two looks.
            return self.get(table, key);
        }
        self.get(table, key)
    }

    /// Lists objects whose keys start with `prefix`, after the key `after` when given, at most `limit` (0: all).
    /// `at`: the state as of that revision, else the newest acknowledged one.
    pub fn list(&self, table: &str, prefix: &str, after: Option<&str>, limit: usize, at: Option<u64>) -> Result<Page, ListError> {
        let state = self.inner.state.read();
        let newest = self.inner.committed.load(Ordering::Acquire);
        let Some(at) = at.filter(|at| *at != newest) else {
            return Ok(page(state.tables.get(table), prefix, after, limit, newest));
        };
        if at > newest {
            return Err(ListError::Future { asked: at, newest });
        }
        if at < state.log.compacted() {
            return Err(ListError::Compacted { asked: at, oldest: state.log.compacted() });
        }
        // The state of then is the state of now with everything since undone, newest first.
        let mut then: BTreeSet<ByKey> = BTreeSet::new();
        let empty = BTreeSet::new();
        let now = state.tables.get(table).map_or(&empty, |t| &t.entries);
        for entry in from(now, prefix, after) {
            then.insert(ByKey(entry.clone()));
        }
        for event in state.log.since(at).rev() {
            let key: &str = &event.entry.key;
            if &*event.entry.table != table || !key.starts_with(prefix) || after.is_some_and(|a| key <= a) {
                continue;
            }
            match &event.previous {
                Some(previous) => {
                    then.replace(ByKey(previous.clone()));
                }
                None => {
                    then.remove(key);
                }
            }
        }
        drop(state);
        let total = then.len();
        let take = if limit == 0 { total } else { limit.min(total) };
        let entries: Vec<_> = then.into_iter().take(take).map(|e| e.0).collect();
        Ok(Page { revision: at, remaining: total - entries.len(), entries })
    }

    /// Calls `visit` for every acknowledged object of a table under `prefix` while the index is locked: keep it short.
    pub fn scan(&self, table: &str, prefix: &str, visit: &mut dyn FnMut(&Arc<Entry>)) {
        let state = self.inner.state.read();
        if let Some(table) = state.tables.get(table) {
            from(&table.entries, prefix, None).for_each(visit);
        }
    }

    /// Stores an object. `encode` gets the revision the write was given, since objects carry it inside; it runs under the
    /// writers' lock: only splice there.
    pub fn put(&self, table: &str, key: &str, expect: Expect, encode: Encode<'_>) -> Result<Ticket, WriteError> {
        self.submit(table, key, expect, false, encode)
    }

    /// Removes an object. `encode` builds its last form, which watchers get.
    pub fn remove(&self, table: &str, key: &str, expect: Expect, encode: Encode<'_>) -> Result<Ticket, WriteError> {
        self.submit(table, key, expect, true, encode)
    }

    fn submit(&self, table: &str, key: &str, expect: Expect, remove: bool, encode: Encode<'_>) -> Result<Ticket, WriteError> {
        let inner = &*self.inner;
        let mut submit = inner.submit.lock();
        if submit.closed {
            return Err(WriteError::Closed);
        }
        let (name, current) = {
            let state = inner.state.read();
            let found = state.tables.get_key_value(table);
            let name: Arc<str> = found.map_or_else(|| Arc::from(table), |(name, _)| name.clone());
            let current = match pending_of(&submit, table, key) {
                Some((_, pending)) => pending.clone(),
                None => found.and_then(|(_, t)| t.entries.get(key)).map(|e| e.0.clone()),
            };
            (name, current)
        };
        match (expect, &current) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(entry)) => return Err(WriteError::Exists(entry.clone())),
            (Expect::Revision(expected), Some(entry)) if entry.revision == expected => {}
            (Expect::Revision(_), _) => return Err(WriteError::Conflict(current)),
        }
        let revision = submit.revision + 1;
        let id = match &current {
            Some(entry) => entry.id,
            None => submit.id + 1,
        };
        let entry = Arc::new(Entry::new(name.clone(), key, id, revision, encode(revision)));
        submit.revision = revision;
        submit.id = submit.id.max(id);
        let kind = match (remove, &current) {
            (true, _) => EventKind::Deleted,
            (false, None) => EventKind::Added,
            (false, Some(_)) => EventKind::Modified,
        };
        let event = Arc::new(Event::new(kind, revision, entry.clone(), current));
        if !inner.durable {
            inner.publish(std::slice::from_ref(&event));
            return Ok(Ticket { entry, done: None });
        }
        submit.pending.insert((name, key.into()), (revision, (!remove).then(|| entry.clone())));
        let (done, receiver) = oneshot::channel();
        submit.queue.push(Pending { event, id, done });
        inner.wake.notify_one();
        Ok(Ticket { entry, done: Some(receiver) })
    }

    /// Events of a table after revision `from`, of the whole table or a part of it.
    pub fn watch(&self, table: &str, scope: Scope, from: u64) -> Result<Watch, WatchError> {
        // The write lock keeps events from being published between the look at the log and the enrolment.
        let mut state = self.inner.state.write();
        if from < state.log.compacted() {
            return Err(WatchError::Compacted { asked: from, oldest: state.log.compacted() });
        }
        let backlog: Vec<Arc<Event>> =
            state.log.since(from).filter(|e| &*e.entry.table == table && scope.holds(&e.entry.key)).cloned().collect();
        let name: Arc<str> = state.tables.get_key_value(table).map_or_else(|| Arc::from(table), |(n, _)| n.clone());
        let table = state.tables.entry(name).or_default();
        Ok(table.watchers.enrol(scope, backlog, self.inner.options.watch_lag))
    }

    /// Events of all tables after revision `from`.
    pub fn watch_all(&self, from: u64) -> Result<Watch, WatchError> {
        let mut state = self.inner.state.write();
        if from < state.log.compacted() {
            return Err(WatchError::Compacted { asked: from, oldest: state.log.compacted() });
        }
        let backlog: Vec<Arc<Event>> = state.log.since(from).cloned().collect();
        Ok(state.everyone.enrol(Scope::Table, backlog, self.inner.options.watch_lag))
    }

    /// Forgets events up to and including `revision`: older watches and lists get `Compacted`.
    pub fn compact(&self, revision: u64) {
        self.inner.state.write().log.compact(revision);
    }
}

/// A pending write by table and key. The map is small: what one commit holds.
fn pending_of<'a>(submit: &'a Submit, table: &str, key: &str) -> Option<&'a (u64, Option<Arc<Entry>>)> {
    if submit.pending.is_empty() {
        return None;
    }
    submit.pending.get(&(Arc::from(table), Box::from(key)))
}

fn from<'a>(entries: &'a BTreeSet<ByKey>, prefix: &'a str, after: Option<&str>) -> impl Iterator<Item = &'a Arc<Entry>> {
    let start: Bound<&str> = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    entries.range::<str, _>((start, Bound::Unbounded)).map(|e| &e.0).take_while(move |e| e.key.starts_with(prefix))
}

fn page(table: Option<&Table>, prefix: &str, after: Option<&str>, limit: usize, revision: u64) -> Page {
    let Some(table) = table else { return Page { revision, entries: Vec::new(), remaining: 0 } };
    let mut rest = from(&table.entries, prefix, after);
    if limit == 0 {
        return Page { revision, entries: rest.cloned().collect(), remaining: 0 };
    }
    let entries: Vec<_> = rest.by_ref().take(limit).cloned().collect();
    Page { revision, entries, remaining: rest.count() }
}

impl Inner {
    fn new(options: Options, durable: bool, revision: u64, id: i64, tables: HashMap<Arc<str>, Table>) -> Self {
        let log = Log::new(revision, options.log_events, options.log_bytes);
        Self {
            options,
            durable,
            state: RwLock::new(State { tables, log, everyone: Watchers::default() }),
            submit: Mutex::new(Submit { revision, id, ..Submit::default() }),
            wake: Condvar::new(),
            committed: AtomicU64::new(revision),
            healthy: AtomicBool::new(true),
            commits: AtomicU64::new(0),
        }
    }

    /// Makes committed events visible, in order.
    pub(crate) fn publish(&self, events: &[Arc<Event>]) {
        let mut state = self.state.write();
        let State { tables, log, everyone } = &mut *state;
        for event in events {
            if !tables.contains_key(&event.entry.table) {
                tables.insert(event.entry.table.clone(), Table::default());
            }
            if let Some(table) = tables.get_mut(&event.entry.table) {
                if event.kind == EventKind::Deleted {
                    table.entries.remove::<str>(&event.entry.key);
                } else {
                    table.entries.replace(ByKey(event.entry.clone()));
                }
                table.watchers.tell(event);
            }
            everyone.tell(event);
            log.push(event.clone());
        }
        if let Some(last) = events.last() {
            self.committed.store(last.revision, Ordering::Release);
        }
    }
}
