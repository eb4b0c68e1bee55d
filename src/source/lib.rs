//! Source controller: Git repositories into the parent.
//!
//! For every GitSource: resolve its revision, read its tree from the object database, decide by `plan::source`, apply what
//! changed server-side as `anabranch-source`, delete what disappeared when nothing is in doubt, and say in the status how it went.
//!
//! Invariants: an object whose digest is unchanged costs no request; one broken file never stops the others and never deletes;
//! a turn never trusts the event that woke it, it resolves the revision again.

mod inventory;
mod state;
mod turn;
mod watch;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::gitops::GitSource;
use api::known::annotation;
use engine::{Cache, CancellationToken, Clock, Key, Queue, Recorder, Registry, Tasks};
use kube::Client;

use crate::inventory::Inventories;
use crate::worker::Worker;

/// How the source controller works.
#[derive(Clone)]
pub struct Options {
    /// The repositories of this process.
    pub git: git::Git,
    /// How many GitSources are worked on at once.
    pub workers: usize,
    /// How many objects of one GitSource are applied at once.
    pub parallel: usize,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Registry,
}

impl Options {
    /// What suits a parent with a handful of sources.
    #[must_use]
    pub fn usual(git: git::Git) -> Self {
        Self { git, workers: 4, parallel: 16, clock: engine::RealClock::shared(), metrics: Registry::new() }
    }
}

/// Why the source controller could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The watcher of local repositories does not start; polling would still work, but nobody would know why it is slow.
    #[error("watch local repositories")]
    Watch {
        /// What the system said.
        #[source]
        source: notify::Error,
    },
}

/// How long shutdown waits for turns under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let tasks = Tasks::new(&shutdown);
    let queue: Queue<Key> = Queue::with(options.clock.clone(), engine::Backoff::default());
    let recorder = Recorder::start(client.clone(), api::known::manager::SOURCE, options.clock.clone(), options.metrics.clone(), &tasks);

    let sources: Cache<GitSource> = Cache::new();
    let wake = queue.clone();
    sources.on_change(move |change| {
        // A status of our own making wakes nobody; a new generation, a request or an approval does.
        let wanted = change.touches(|source| {
            let meta = &source.metadata;
            let asked = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).cloned();
            (meta.generation, meta.deletion_timestamp.is_some(), asked(annotation::RECONCILE_REQUEST), asked(annotation::APPROVED))
        });
        if wanted {
            wake.add(change.key.clone());
        }
    });

    let inventories = Inventories::start(&client, &tasks, {
        let (queue, sources) = (queue.clone(), sources.clone());
        move |label: &str| {
            // An object of ours is gone: its source looks again. The label of a long name is a hash, so all are asked.
            for source in sources.list() {
                let key = Key::of(&*source);
                if api::names::label_value(&format!("{}.{}", key.namespace, key.name)) == label {
                    queue.add(key);
                }
            }
        }
    });
    let watcher = watch::Watcher::start(queue.clone(), sources.clone()).map_err(|source| Error::Watch { source })?;
    sources.follow("follow gitsources", client.clone(), cluster::Target::of::<GitSource>(""), &tasks);

    let worker = Arc::new(Worker::new(client, options.clone(), sources.clone(), inventories, watcher, recorder));
    let stop = tasks.token().clone();
    tasks.spawn("sources", async move {
        tokio::select! {
            () = sources.synced() => {}
            () = stop.cancelled() => return,
        }
        let names = worker.clone();
        engine::work(queue, options.workers, stop, move |key| {
            let worker = names.clone();
            async move { worker.turn(&key).await }
        })
        .await;
    });
    tasks.run_until_stopped(PATIENCE).await;
    Ok(())
}
