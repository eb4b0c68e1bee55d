//! The durable file: SQLite in WAL mode, written by one thread that commits what has gathered and brings the log to the disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use crate::entry::{Entry, Event, EventKind};
use crate::journal::Journal;
use crate::{Inner, Options, Pending, WriteError};

/// `AnaB`, in SQLite's header field for the application.
const APPLICATION_ID: i32 = 0x416e_6142;
/// Version of the file's layout. 1: tables `objects` and `meta`.
const FORMAT: i32 = 1;
const PAGE_BYTES: u64 = 4096;
/// Pages in the write-ahead log before they are copied into the file.
const CHECKPOINT_PAGES: i32 = 4000;
/// How often a store with a failed commit looks whether the disk takes writes again.
const RETRY: Duration = Duration::from_millis(500);
/// How long a locked file is waited for: a process that was killed holds its lock until the system has put it away.
const LOCKED: Duration = Duration::from_secs(2);
/// Most writes in one commit: bounds the time a first writer waits for the crowd behind it.
const BATCH: usize = 2048;

/// Why a store file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("open the store file: another process uses it")]
    Locked,
    /// It was not made by us.
    #[error("open the store file: it is not a store of this program")]
    Foreign,
    /// A newer version of the program made it.
    #[error("open the store file: it has format {found}, this program knows up to {known}")]
    Format {
        /// Format of the file.
        found: i32,
        /// Newest format known.
        known: i32,
    },
    /// A row makes no sense.
    #[error("open the store file: it is damaged: {0}")]
    Damaged(String),
    /// SQLite or the file system said no.
    #[error("open the store file")]
    Sqlite(#[source] rusqlite::Error),
    /// The file system said no to the log beside the file.
    #[error("open the store file's log")]
    Log(#[source] std::io::Error),
    /// The writer's thread could not be started.
    #[error("start the store's writer")]
    Thread(#[source] std::io::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::NotADatabase) => Self::Foreign,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            _ => Self::Sqlite(error),
        }
    }
}

pub(crate) struct Loaded {
    pub(crate) revision: u64,
    pub(crate) last_id: i64,
    pub(crate) entries: Vec<Arc<Entry>>,
}

/// The open database and its log.
#[derive(Debug)]
pub(crate) struct Disk {
    file: Connection,
    journal: Journal,
}

pub(crate) fn open(path: &Path, options: &Options) -> Result<(Disk, Loaded), OpenError> {
    let mut file = Connection::open(path)?;
    file.busy_timeout(LOCKED)?;
    // Exclusive mode keeps the lock from the first access to the end, and needs no shared memory file.
    file.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    file.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // SQLite brings to the disk what it needs to recover; that each commit reaches it is the journal's part.
    file.pragma_update(None, "synchronous", "NORMAL")?;
    file.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    file.pragma_update(None, "cache_size", -4096)?;
    if let Some(max) = options.max_file_bytes {
        file.pragma_update_and_check(None, "max_page_count", i64::try_from((max / PAGE_BYTES).max(1)).unwrap_or(i64::MAX), |_| Ok(()))?;
    }
    let transaction = file.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let application: i32 = transaction.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let format: i32 = transaction.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_master", [], |r| r.get(0))?;
    if tables == 0 {
        transaction.execute_batch(
            "CREATE TABLE objects (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL);
             CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
             INSERT INTO meta VALUES ('revision', 1);",
        )?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    } else if application != APPLICATION_ID {
        return Err(OpenError::Foreign);
    } else if format > FORMAT {
        return Err(OpenError::Format { found: format, known: FORMAT });
    }
    let loaded = load(&transaction)?;
    transaction.commit()?;
    let mut journal = Journal::open(path).map_err(OpenError::Log)?;
    journal.sync().map_err(OpenError::Log)?;
    Ok((Disk { file, journal }, loaded))
}

fn load(file: &Connection) -> Result<Loaded, OpenError> {
    let revision: i64 = file.query_row("SELECT value FROM meta WHERE name = 'revision'", [], |r| r.get(0))?;
    let mut names: HashMap<String, Arc<str>> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    let mut entries = Vec::new();
    let mut last_id = 0;
    let mut rows = file.prepare("SELECT id, kind, name, revision, value FROM objects ORDER BY id")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let (id, kind, key, at): (i64, String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let value: Vec<u8> = row.get(4)?;
        let table = names.entry(kind).or_insert_with_key(|k| Arc::from(k.as_str())).clone();
        let at = u64::try_from(at).map_err(|_| OpenError::Damaged(format!("row {id} has revision {at}")))?;
        if !seen.insert((table.clone(), key.clone())) {
            return Err(OpenError::Damaged(format!("key {key} of {table} is there twice")));
        }
        last_id = last_id.max(id);
        entries.push(Arc::new(Entry::new(table, &key, id, at, Bytes::from(value))));
    }
    let revision = u64::try_from(revision).map_err(|_| OpenError::Damaged(format!("revision is {revision}")))?;
    Ok(Loaded { revision, last_id, entries })
}

/// The writer's thread; dropping it lets the queue run empty, then ends the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.submit.lock().closed = true;
        self.inner.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in the writer was already printed; nothing is left to do about it here.
            let _ = thread.join();
        }
    }
}

pub(crate) fn start(inner: Arc<Inner>, disk: Disk) -> Result<Writer, OpenError> {
    let own = inner.clone();
    let thread = std::thread::Builder::new().name("store".into()).spawn(move || run(&own, disk)).map_err(OpenError::Thread)?;
    Ok(Writer { inner, thread: Some(thread) })
}

fn run(inner: &Inner, Disk { file, mut journal }: Disk) {
    let file = &file;
    // After a failed flush nobody knows what the disk holds, and another flush may succeed without having written it: only
    // a new start, which reads what is there, helps.
    let mut lost: Option<Fault> = None;
    loop {
        let batch = {
            let mut submit = inner.submit.lock();
            while submit.queue.is_empty() {
                if submit.closed {
                    drop(submit);
                    // Folds the log into the file, so that the next start reads one file only. Failing is harmless.
                    let _ = file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
                    return;
                }
                if inner.healthy.load(Ordering::Relaxed) {
                    inner.wake.wait(&mut submit);
                } else {
                    inner.wake.wait_for(&mut submit, RETRY);
                    if lost.is_none() && submit.queue.is_empty() && !submit.closed && probe(file, submit.revision).is_ok() {
                        inner.healthy.store(true, Ordering::Relaxed);
                        tracing::info!("the store takes writes again");
                    }
                }
            }
            if submit.queue.len() <= BATCH {
                std::mem::take(&mut submit.queue)
            } else {
                submit.queue.drain(..BATCH).collect()
            }
        };
        if let Some(fault) = &lost {
            fail(inner, file, batch, fault);
            continue;
        }
        if let Err(error) = write(file, &batch) {
            fail(inner, file, batch, &Fault::Sqlite(error));
        } else if let Err(error) = journal.sync() {
            fail(inner, file, batch, lost.insert(Fault::Flush(error)));
        } else {
            settle(inner, batch);
        }
    }
}

/// Why a commit failed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Sqlite(rusqlite::Error),
    #[error("flush the log, a new start is needed: {0}")]
    Flush(std::io::Error),
}

fn write(file: &Connection, batch: &[Pending]) -> rusqlite::Result<()> {
    file.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    // Several writes of one object in a batch: only the last one needs to reach the disk.
    let mut last: HashMap<i64, usize> = HashMap::with_capacity(batch.len());
    for (index, pending) in batch.iter().enumerate() {
        last.insert(pending.id, index);
    }
    for (index, Pending { event, id, .. }) in batch.iter().enumerate() {
        if last.get(id) != Some(&index) {
            continue;
        }
        if event.kind == EventKind::Deleted {
            file.prepare_cached("DELETE FROM objects WHERE id = ?1")?.execute([id])?;
        } else {
            let entry = &event.entry;
            file.prepare_cached("INSERT OR REPLACE INTO objects (id, kind, name, revision, value) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![id, &*entry.table, &*entry.key, entry.revision.cast_signed(), &*entry.value])?;
        }
    }
    if let Some(newest) = batch.last() {
        file.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'revision'")?.execute([newest.event.revision.cast_signed()])?;
    }
    file.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Whether the disk takes a write: rewrites the revision, which changes nothing.
fn probe(file: &Connection, revision: u64) -> rusqlite::Result<()> {
    file.execute("CREATE TABLE IF NOT EXISTS probe (value BLOB)", [])?;
    file.execute("INSERT INTO probe VALUES (zeroblob(65536))", [])?;
    file.execute("DELETE FROM probe", [])?;
    file.execute("UPDATE meta SET value = ?1 WHERE name = 'revision'", [revision.cast_signed()])?;
    Ok(())
}

fn settle(inner: &Inner, batch: Vec<Pending>) {
    let events: Vec<Arc<Event>> = batch.iter().map(|p| p.event.clone()).collect();
    {
        // Under the writers' lock, so that `latest` never finds an object neither pending nor committed.
        let mut submit = inner.submit.lock();
        inner.publish(&events);
        for event in &events {
            let key = (event.entry.table.clone(), event.entry.key.clone());
            if submit.pending.get(&key).is_some_and(|(revision, _)| *revision == event.revision) {
                submit.pending.remove(&key);
            }
        }
    }
    inner.commits.fetch_add(1, Ordering::Relaxed);
    if !inner.healthy.swap(true, Ordering::Relaxed) {
        tracing::info!("the store takes writes again");
    }
    for pending in batch {
        // A writer who stopped waiting loses nothing: the write is done.
        let _ = pending.done.send(Ok(()));
    }
}

fn fail(inner: &Inner, file: &Connection, batch: Vec<Pending>, error: &Fault) {
    if !file.is_autocommit()
        && let Err(error) = file.execute_batch("ROLLBACK")
    {
        tracing::error!(%error, "roll back a failed commit");
    }
    let queued = {
        let mut submit = inner.submit.lock();
        submit.pending.clear();
        submit.revision = inner.committed.load(Ordering::Acquire);
        std::mem::take(&mut submit.queue)
    };
    if inner.healthy.swap(false, Ordering::Relaxed) {
        tracing::error!(%error, "the store file takes no writes");
    }
    let text: Arc<str> = Arc::from(error.to_string());
    for pending in batch.into_iter().chain(queued) {
        let _ = pending.done.send(Err(WriteError::Disk(text.clone())));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{Expect, Store};

    #[tokio::test]
    async fn a_disk_that_lost_a_write_gets_no_more() {
        let path = std::env::temp_dir().join(format!("anabranch-store-lost-{}.db", std::process::id()));
        let (mut disk, loaded) = open(&path, &Options::durable()).unwrap();
        disk.journal = Journal::broken();
        let inner = Arc::new(Inner::new(Options::durable(), true, loaded.revision, loaded.last_id, HashMap::new()));
        let store = Store { inner: inner.clone(), _writer: Some(Arc::new(start(inner, disk).unwrap())) };
        for name in ["a", "b"] {
            let ticket = store.put("v1/configmaps", name, Expect::Absent, &mut |_| Bytes::from_static(b"v")).unwrap();
            let error = ticket.durable().await.unwrap_err();
            assert!(matches!(&error, WriteError::Disk(text) if text.starts_with("flush the log")), "{error}");
            assert!(!store.healthy() && store.get("v1/configmaps", name).is_none());
        }
        assert_eq!(store.revision(), loaded.revision);
        drop(store);
        std::fs::remove_file(path).unwrap();
    }
}
