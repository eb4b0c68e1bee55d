//! A set of tasks that shutdown can join: nothing is spawned and forgotten.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Tasks of one part, with the token that ends them.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Tasks {
    /// Tasks that end when `shutdown` is cancelled (or when [`Tasks::stop`] is called).
    pub fn new(shutdown: &CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), token: shutdown.child_token() }
    }

    /// The token that the tasks should watch.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Spawns a task. It must end by itself after the token was cancelled.
    pub fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(task.instrument(tracing::debug_span!("task", name)));
    }

    /// Spawns a task that is dropped at its next await point when the token is cancelled.
    pub fn spawn_until_stopped<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let token = self.token.clone();
        self.spawn(name, async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// How many tasks run.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Ends the tasks and waits for them, at most `patience`. True when all ended.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.token.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }

    /// Waits until the token is cancelled, then for the tasks, at most `patience`.
    pub async fn run_until_stopped(&self, patience: Duration) -> bool {
        self.token.cancelled().await;
        self.stop(patience).await
    }
}
