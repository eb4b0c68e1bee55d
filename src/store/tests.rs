//! The store's promises: order, preconditions, resuming, compaction, durability, recovery.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use proptest::prelude::*;

use crate::{EventKind, Expect, ListError, OpenError, Options, Scope, Store, WatchError, WriteError};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("anabranch-store-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn put(store: &Store, key: &str, expect: Expect, text: &str) -> Result<u64, WriteError> {
    let ticket = store.put("v1/configmaps", key, expect, &mut |r| Bytes::from(format!("{text}@{r}")))?;
    Ok(ticket.durable().await?.revision)
}

async fn remove(store: &Store, key: &str, revision: u64) -> Result<u64, WriteError> {
    let ticket = store.remove("v1/configmaps", key, Expect::Revision(revision), &mut |_| Bytes::from_static(b"gone"))?;
    Ok(ticket.durable().await?.revision)
}

fn keys(store: &Store, prefix: &str, after: Option<&str>, limit: usize, at: Option<u64>) -> (Vec<String>, usize) {
    let page = store.list("v1/configmaps", prefix, after, limit, at).unwrap();
    (page.entries.iter().map(|e| format!("{}={}", e.key, String::from_utf8_lossy(&e.value))).collect(), page.remaining)
}

#[tokio::test]
async fn preconditions_are_kept() {
    let dir = Dir::new("preconditions");
    for store in [Store::memory(), Store::open(&dir.file(), Options::durable()).unwrap()] {
        let first = put(&store, "a/x", Expect::Absent, "1").await.unwrap();
        assert!(matches!(put(&store, "a/x", Expect::Absent, "2").await, Err(WriteError::Exists(e)) if e.revision == first));
        let second = put(&store, "a/x", Expect::Revision(first), "2").await.unwrap();
        assert!(matches!(put(&store, "a/x", Expect::Revision(first), "3").await, Err(WriteError::Conflict(Some(e))) if e.revision == second));
        assert!(matches!(put(&store, "a/y", Expect::Revision(first), "3").await, Err(WriteError::Conflict(None))));
        let third = remove(&store, "a/x", second).await.unwrap();
        assert!(third > second && store.get("v1/configmaps", "a/x").is_none());
        assert!(put(&store, "a/x", Expect::Absent, "4").await.unwrap() > third);
    }
}

#[tokio::test]
async fn lists_page_and_look_back() {
    let store = Store::memory();
    for key in ["a/1", "a/2", "b/1", "a/3"] {
        put(&store, key, Expect::Absent, "v").await.unwrap();
    }
    let then = store.revision();
    assert_eq!(keys(&store, "a/", None, 2, None), (vec!["a/1=v@2".into(), "a/2=v@3".into()], 1));
    let two = store.get("v1/configmaps", "a/2").unwrap().revision;
    remove(&store, "a/2", two).await.unwrap();
    put(&store, "a/4", Expect::Absent, "w").await.unwrap();
    assert_eq!(keys(&store, "a/", Some("a/1"), 0, Some(then)), (vec!["a/2=v@3".into(), "a/3=v@5".into()], 0));
    assert_eq!(keys(&store, "a/", Some("a/1"), 0, None).0, ["a/3=v@5", "a/4=w@7"]);
    assert!(matches!(store.list("v1/configmaps", "", None, 0, Some(99)), Err(ListError::Future { .. })));
    store.compact(then + 1);
    assert!(matches!(store.list("v1/configmaps", "", None, 0, Some(then)), Err(ListError::Compacted { .. })));
}

#[tokio::test]
async fn watches_resume_by_scope_and_end_when_they_lag() {
    let store = Store::memory_with(Options { watch_lag: 3, ..Options::small() });
    let start = store.revision();
    let one = put(&store, "a/x", Expect::Absent, "1").await.unwrap();
    put(&store, "ab/x", Expect::Absent, "1").await.unwrap();
    let mut all = store.watch("v1/configmaps", Scope::Table, start).unwrap();
    let mut under = store.watch("v1/configmaps", Scope::Under("a".into()), start).unwrap();
    let mut key = store.watch("v1/configmaps", Scope::Key("a/x".into()), one).unwrap();
    remove(&store, "a/x", one).await.unwrap();
    let event = all.next().await.unwrap();
    assert_eq!((event.kind, event.revision), (EventKind::Added, one));
    assert_eq!(under.next().await.unwrap().revision, one);
    assert_eq!(under.next().await.unwrap().kind, EventKind::Deleted);
    assert!(under.try_next().is_none());
    let gone = key.next().await.unwrap();
    assert_eq!((gone.kind, gone.previous.as_ref().unwrap().revision), (EventKind::Deleted, one));
    for n in 0..9 {
        put(&store, &format!("c/{n}"), Expect::Absent, "v").await.unwrap();
    }
    let mut seen = 0;
    while all.next().await.is_some() {
        seen += 1;
    }
    assert!(seen < 11, "a watcher that lags is closed, got {seen} events");
}

#[tokio::test]
async fn old_events_are_compacted() {
    let store = Store::memory_with(Options { log_events: 4, ..Options::small() });
    for n in 0..9 {
        put(&store, &format!("c/{n}"), Expect::Absent, "v").await.unwrap();
    }
    assert!(matches!(store.watch("v1/configmaps", Scope::Table, 2), Err(WatchError::Compacted { asked: 2, oldest: 6 })));
    assert!(store.watch("v1/configmaps", Scope::Table, 6).is_ok());
}

#[tokio::test]
async fn a_new_start_finds_what_was_acknowledged() {
    let dir = Dir::new("restart");
    let (kept, newest) = {
        let store = Store::open(&dir.file(), Options::durable()).unwrap();
        assert!(matches!(Store::open(&dir.file(), Options::durable()), Err(OpenError::Locked)));
        let a = put(&store, "a/x", Expect::Absent, "1").await.unwrap();
        let b = put(&store, "a/y", Expect::Absent, "2").await.unwrap();
        (a, remove(&store, "a/y", b).await.unwrap())
    };
    let store = Store::open(&dir.file(), Options::durable()).unwrap();
    assert_eq!(store.revision(), newest, "the removal's revision is not given out again");
    assert_eq!(keys(&store, "", None, 0, None).0, [format!("a/x=1@{kept}")]);
    assert!(matches!(store.watch("v1/configmaps", Scope::Table, kept), Err(WatchError::Compacted { .. })));
    assert!(store.watch("v1/configmaps", Scope::Table, newest).is_ok());
    assert_eq!(put(&store, "a/y", Expect::Absent, "3").await.unwrap(), newest + 1);
}

#[tokio::test]
async fn a_file_of_somebody_else_is_left_alone() {
    let dir = Dir::new("foreign");
    std::fs::write(dir.file(), b"this is a text that a person wrote, certainly not a database of any kind").unwrap();
    assert!(matches!(Store::open(&dir.file(), Options::durable()), Err(OpenError::Foreign)));
    std::fs::remove_file(dir.file()).unwrap();
    let other = rusqlite::Connection::open(dir.file()).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(other);
    assert!(matches!(Store::open(&dir.file(), Options::durable()), Err(OpenError::Foreign)));
    std::fs::remove_file(dir.file()).unwrap();
    drop(Store::open(&dir.file(), Options::durable()).unwrap());
    let newer = rusqlite::Connection::open(dir.file()).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    assert!(matches!(Store::open(&dir.file(), Options::durable()), Err(OpenError::Format { found: 99, .. })));
}

#[tokio::test]
async fn writers_share_commits_and_build_on_pending_writes() {
    let dir = Dir::new("group");
    let store = Store::open(&dir.file(), Options::durable()).unwrap();
    let first = put(&store, "a/x", Expect::Absent, "0").await.unwrap();
    let mut tickets = Vec::new();
    for n in 0..500 {
        let latest = store.latest("v1/configmaps", "a/x").unwrap();
        let ticket = store.put("v1/configmaps", "a/x", Expect::Revision(latest.revision), &mut |_| Bytes::from(n.to_string())).unwrap();
        tickets.push(ticket);
    }
    for ticket in tickets {
        ticket.durable().await.unwrap();
    }
    assert_eq!(store.revision(), first + 500);
    assert!(store.commits() < 300, "{} commits", store.commits());
    assert_eq!(&*store.get("v1/configmaps", "a/x").unwrap().value, b"499");
}

#[tokio::test]
async fn the_log_goes_ahead_and_a_copy_made_at_any_time_opens() {
    let dir = Dir::new("ahead");
    let store = Store::open(&dir.file(), Options::durable()).unwrap();
    let log = dir.0.join("store.db-wal");
    let mut lengths = std::collections::BTreeSet::new();
    for n in 0..400 {
        put(&store, &format!("a/{n:03}"), Expect::Absent, &"x".repeat(3000)).await.unwrap();
        lengths.insert(std::fs::metadata(&log).unwrap().len());
        if n % 57 == 0 {
            // What a power failure would leave.
            let copy = Dir::new(&format!("ahead-{n}"));
            std::fs::copy(dir.file(), copy.file()).unwrap();
            std::fs::copy(&log, copy.0.join("store.db-wal")).unwrap();
            let then = Store::open(&copy.file(), Options::durable()).unwrap();
            assert_eq!((then.count("v1/configmaps"), then.revision()), (n + 1, store.revision()));
            put(&then, "a/more", Expect::Absent, "y").await.unwrap();
            drop(then);
            assert_eq!(Store::open(&copy.file(), Options::durable()).unwrap().count("v1/configmaps"), n + 2);
        }
    }
    assert!(lengths.len() < 20, "it grew {} times in 400 commits", lengths.len());
}

#[tokio::test]
async fn a_full_disk_is_an_error_to_the_writer_and_passes() {
    let dir = Dir::new("full");
    let store = Store::open(&dir.file(), Options { max_file_bytes: Some(256 << 10), ..Options::durable() }).unwrap();
    let big = "x".repeat(20_000);
    let mut stored = Vec::new();
    let error = loop {
        match put(&store, &format!("a/{}", stored.len()), Expect::Absent, &big).await {
            Ok(revision) => stored.push(revision),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::Disk(_)), "{error}");
    assert!(!store.healthy() && stored.len() > 2);
    assert_eq!(store.revision(), *stored.last().unwrap(), "a failed write takes no revision");
    assert_eq!(keys(&store, "", None, 0, None).0.len(), stored.len());
    remove(&store, "a/0", stored[0]).await.unwrap();
    remove(&store, "a/1", stored[1]).await.unwrap();
    assert!(store.healthy(), "space came back");
    put(&store, "a/0", Expect::Absent, &big).await.unwrap();
    let expected = stored.len() - 1;
    drop(store);
    let store = Store::open(&dir.file(), Options::durable()).unwrap();
    assert_eq!(keys(&store, "", None, 0, None).0.len(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any sequence of writes: the list at any revision the log reaches is what a model remembers of that revision.
    #[test]
    fn the_past_is_what_it_was(steps in prop::collection::vec((0u8..6, any::<bool>()), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = Store::memory();
            let mut model: BTreeMap<String, u64> = BTreeMap::new();
            let mut history = vec![(store.revision(), model.clone())];
            for (key, delete) in steps {
                let key = format!("n/{key}");
                match (model.get(&key).copied(), delete) {
                    (Some(at), true) => {
                        remove(&store, &key, at).await.unwrap();
                        model.remove(&key);
                    }
                    (Some(at), false) => {
                        model.insert(key.clone(), put(&store, &key, Expect::Revision(at), "v").await.unwrap());
                    }
                    (None, _) => {
                        model.insert(key.clone(), put(&store, &key, Expect::Absent, "v").await.unwrap());
                    }
                }
                history.push((store.revision(), model.clone()));
            }
            for (at, expected) in history {
                let page = store.list("v1/configmaps", "", None, 0, Some(at)).unwrap();
                let found: BTreeMap<String, u64> = page.entries.iter().map(|e| (e.key.to_string(), e.revision)).collect();
                assert_eq!(found, expected);
            }
        });
    }
}
