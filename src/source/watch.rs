//! Local repositories are watched: a commit is seen at once, without a poll.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::gitops::GitSource;
use engine::{Cache, Key, Queue};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;

/// Which directory wakes which sources.
type Woken = Arc<Mutex<BTreeMap<PathBuf, Vec<Key>>>>;

/// The watcher of all local repositories of this process.
pub(crate) struct Watcher {
    inner: Mutex<RecommendedWatcher>,
    woken: Woken,
}

impl Watcher {
    pub(crate) fn start(queue: Queue<Key>, sources: Cache<GitSource>) -> Result<Self, notify::Error> {
        let woken: Woken = Arc::default();
        let known = woken.clone();
        let inner = notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
            Ok(event) if matters(&event) => {
                let known = known.lock();
                for (directory, keys) in known.iter() {
                    if event.paths.iter().any(|path| path.starts_with(directory)) {
                        queue.add_all(keys.iter().filter(|key| sources.get_key(key).is_some()).cloned());
                    }
                }
            }
            Ok(_) => {}
            // Events may be lost (an overflow): everybody looks again.
            Err(_) => queue.add_all(known.lock().values().flatten().cloned()),
        })?;
        Ok(Self { inner: Mutex::new(inner), woken })
    }

    /// Watches these directories for a source; what was watched already stays. False when one cannot be watched.
    pub(crate) fn watch(&self, key: &Key, points: &[(PathBuf, bool)]) -> bool {
        let mut woken = self.woken.lock();
        let mut all = true;
        for (path, below) in points {
            // The system reports real paths.
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            let keys = woken.entry(path.clone()).or_default();
            if keys.contains(key) {
                continue;
            }
            let mode = if *below { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            match self.inner.lock().watch(&path, mode) {
                Ok(()) => keys.push(key.clone()),
                Err(error) => {
                    tracing::warn!(object = %key, error = %error, "cannot watch a local repository, it is polled");
                    all = false;
                }
            }
        }
        all
    }

    /// Forgets a source.
    pub(crate) fn forget(&self, key: &Key) {
        let mut woken = self.woken.lock();
        let mut unused = Vec::new();
        for (path, keys) in woken.iter_mut() {
            keys.retain(|k| k != key);
            if keys.is_empty() {
                unused.push(path.clone());
            }
        }
        for path in unused {
            woken.remove(&path);
            // A directory that is gone is not watched any more either.
            let _ = self.inner.lock().unwatch(&path);
        }
    }
}

/// References and HEAD matter; lock files and objects do not.
fn matters(event: &notify::Event) -> bool {
    use notify::EventKind;
    let kind = matches!(event.kind, EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_));
    kind && event.paths.iter().any(|path| names_reference(path))
}

fn names_reference(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let inside = path.components().any(|part| part.as_os_str() == "refs");
    !name.ends_with(".lock") && (inside || matches!(name, "HEAD" | "packed-refs"))
}
