//! Takes the turns: changes in, decisions, calls out, retries and timers. The only place of the controllers that acts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures::future::{join_all, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Call, CallError, Change, Controller, Graph, Key, Turn, World};
use crate::auth::Objects;

/// A server as the runner uses it.
pub trait Backend: Objects + 'static {
    /// Sends a call. What it changed is seen by [`Objects`] when it returns.
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, CallError>>;
    /// The clock.
    fn now(&self) -> Timestamp;
}

/// What a feed delivers.
#[derive(Debug)]
pub enum FeedItem {
    /// Everything there is; what is not named is not there.
    Restart(Vec<Change>),
    /// One change.
    Change(Box<Change>),
    /// The server is gone.
    Closed,
}

/// The changes of a server's objects.
pub trait Feed: Send {
    /// The next item. Cancel safe.
    fn next(&mut self) -> BoxFuture<'_, FeedItem>;
    /// The next item if one is there.
    fn ready(&mut self) -> Option<FeedItem>;
}

/// Keys decided together; their calls go out together.
const BATCH: usize = 64;
/// The first wait after a failure, and the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(20);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(30);

type Job = (usize, Key);

struct Runner<B> {
    backend: Arc<B>,
    controllers: Vec<Box<dyn Controller>>,
    graph: Graph,
    queue: VecDeque<Job>,
    queued: BTreeSet<Job>,
    timers: BTreeMap<(Timestamp, Job), ()>,
    /// The timer of each job, so that an earlier wish replaces a later one.
    alarm: BTreeMap<Job, Timestamp>,
    failures: BTreeMap<Job, u32>,
}

/// Runs controllers over one server until shutdown or until the server is gone.
pub async fn run<B: Backend>(
    backend: Arc<B>,
    mut feed: impl Feed,
    controllers: Vec<Box<dyn Controller>>,
    shutdown: CancellationToken,
) {
    let mut runner = Runner {
        backend,
        controllers,
        graph: Graph::default(),
        queue: VecDeque::new(),
        queued: BTreeSet::new(),
        timers: BTreeMap::new(),
        alarm: BTreeMap::new(),
        failures: BTreeMap::new(),
    };
    loop {
        while let Some(item) = feed.ready() {
            if !runner.take(item) {
                return;
            }
        }
        runner.ring();
        if !runner.queue.is_empty() {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = runner.turn() => {}
            }
            continue;
        }
        let wait = runner.timers.keys().next().map(|(at, _)| at.duration_since(runner.backend.now()));
        let wait = wait.map_or(std::time::Duration::from_secs(3600), |wait| {
            std::time::Duration::try_from(wait.max(SignedDuration::from_millis(1))).unwrap_or_default()
        });
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            item = feed.next() => {
                if !runner.take(item) {
                    return;
                }
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

impl<B: Backend> Runner<B> {
    /// Takes an item in; false when the server is gone.
    fn take(&mut self, item: FeedItem) -> bool {
        match item {
            FeedItem::Closed => return false,
            FeedItem::Change(mut change) => {
                change.touched = self.graph.apply(&change);
                self.wake(std::slice::from_ref(&*change));
            }
            FeedItem::Restart(all) => {
                self.graph = Graph::default();
                for change in &all {
                    self.graph.apply(change);
                }
                self.wake(&all);
            }
        }
        true
    }

    fn wake(&mut self, changes: &[Change]) {
        let world = World { objects: self.backend.as_ref(), graph: &self.graph, now: self.backend.now() };
        let mut jobs: Vec<Job> = Vec::new();
        let mut keys = Vec::new();
        for change in changes {
            for (index, controller) in self.controllers.iter().enumerate() {
                controller.concerns(change, &world, &mut keys);
                jobs.extend(keys.drain(..).map(|key| (index, key)));
            }
        }
        for job in jobs {
            self.push(job);
        }
    }

    fn push(&mut self, job: Job) {
        if self.queued.insert(job.clone()) {
            self.queue.push_back(job);
        }
    }

    /// Queues the jobs whose time has come.
    fn ring(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = self.backend.now();
        while let Some(((at, job), ())) = self.timers.first_key_value().map(|(key, ())| (key.clone(), ())) {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.alarm.remove(&job);
            self.push(job);
        }
    }

    fn set_alarm(&mut self, job: Job, at: Timestamp) {
        if let Some(before) = self.alarm.get(&job) {
            if *before <= at {
                return;
            }
            self.timers.remove(&(*before, job.clone()));
        }
        self.alarm.insert(job.clone(), at);
        self.timers.insert((at, job), ());
    }

    /// Decides a batch of keys and performs what was decided.
    async fn turn(&mut self) {
        let now = self.backend.now();
        let mut work: Vec<(Job, Turn)> = Vec::new();
        while work.len() < BATCH
            && let Some(job) = self.queue.pop_front()
        {
            self.queued.remove(&job);
            let world = World { objects: self.backend.as_ref(), graph: &self.graph, now };
            let Some(controller) = self.controllers.get(job.0) else { continue };
            let turn = controller.decide(&job.1, &world);
            if let Some(again) = turn.again {
                self.set_alarm(job.clone(), now + again);
            }
            if turn.is_quiet() {
                self.failures.remove(&job);
            } else {
                work.push((job, turn));
            }
        }
        if work.is_empty() {
            return;
        }
        let backend = self.backend.clone();
        let mut running: FuturesUnordered<_> = work
            .into_iter()
            .map(|(job, turn)| {
                let backend = backend.clone();
                async move { (job, perform(backend.as_ref(), turn).await) }
            })
            .collect();
        let mut said_after: Vec<Turn> = Vec::new();
        while let Some((job, result)) = running.next().await {
            match result {
                Ok(()) => {
                    self.failures.remove(&job);
                }
                Err(error) => {
                    let world = World { objects: self.backend.as_ref(), graph: &self.graph, now: self.backend.now() };
                    let said = self.controllers.get(job.0).map(|controller| controller.failed(&job.1, &error, &world));
                    said_after.extend(said);
                    self.retry(job, &error);
                }
            }
        }
        drop(running);
        for turn in said_after {
            // Whether it could be said does not change what is to be done.
            let _ = perform(backend.as_ref(), turn).await;
        }
    }

    /// A failed job comes again, later each time; a lost race comes at once.
    fn retry(&mut self, job: Job, error: &CallError) {
        let failures = self.failures.entry(job.clone()).or_insert(0);
        let wait = FIRST_RETRY.checked_mul(1 << (*failures).min(12)).unwrap_or(LONGEST_RETRY).min(LONGEST_RETRY);
        *failures += 1;
        let controller = self.controllers.get(job.0).map_or("", |controller| controller.name());
        if *failures > 3 {
            tracing::warn!(controller, object = %job.1, error = %error, "the calls of a turn failed");
        } else {
            tracing::debug!(controller, object = %job.1, error = %error, "the calls of a turn failed");
        }
        let at = self.backend.now() + wait;
        self.set_alarm(job, at);
    }
}

async fn one<B: Backend>(backend: &B, call: Call) -> Result<(), CallError> {
    let (fine, aside) = (call.fine, call.aside);
    match backend.call(call).await {
        Ok(_) => Ok(()),
        Err(error) if aside || fine.contains(&error.code) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn perform<B: Backend>(backend: &B, turn: Turn) -> Result<(), CallError> {
    for stage in turn.stages {
        // All calls of a stage are sent even when one fails: they do not depend on each other.
        let results = join_all(stage.into_iter().map(|call| one(backend, call))).await;
        results.into_iter().collect::<Result<Vec<()>, CallError>>()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::super::kinds::CONFIG_MAP;
    use super::*;

    /// A server that refuses the first calls and tells of all.
    struct Stubborn {
        refuse: AtomicU32,
        calls: tokio::sync::mpsc::UnboundedSender<Call>,
    }

    impl Objects for Stubborn {
        fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }

        fn list(&self, _: &str, _: &str, _: Option<&str>) -> Vec<Arc<Value>> {
            Vec::new()
        }
    }

    impl Backend for Stubborn {
        fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, CallError>> {
            let refused = self.refuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            let result = if refused { Err(call.error(503, &json!({"message": "not now"}))) } else { Ok(json!({})) };
            let _ = self.calls.send(call);
            Box::pin(std::future::ready(result))
        }

        fn now(&self) -> Timestamp {
            Timestamp::now()
        }
    }

    struct Once(Option<FeedItem>);

    impl Feed for Once {
        fn next(&mut self) -> BoxFuture<'_, FeedItem> {
            Box::pin(std::future::pending())
        }

        fn ready(&mut self) -> Option<FeedItem> {
            self.0.take()
        }
    }

    /// Wants two stages done, and says what failed.
    struct Keen;

    impl Controller for Keen {
        fn name(&self) -> &'static str {
            "keen"
        }

        fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
            wake.push(change.key.clone());
        }

        fn decide(&self, key: &Key, _: &World<'_>) -> Turn {
            let mut turn = Turn::default();
            turn.call(Call::merge(&CONFIG_MAP, &key.namespace, "first", "", json!({})));
            turn.then();
            turn.call(Call::merge(&CONFIG_MAP, &key.namespace, "second", "", json!({})));
            turn
        }

        fn failed(&self, key: &Key, error: &CallError, _: &World<'_>) -> Turn {
            let mut turn = Turn::default();
            turn.call(Call::merge(&CONFIG_MAP, &key.namespace, "told", "", json!({"data": {"why": error.message}})));
            turn
        }
    }

    #[tokio::test]
    async fn a_failed_turn_is_told_and_tried_again() {
        let (calls, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let backend = Arc::new(Stubborn { refuse: AtomicU32::new(1), calls });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a", "uid": "1"}});
        let change = Change::of("", "configmaps", &object, false).expect("an object");
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(run(backend, Once(Some(FeedItem::Restart(vec![change]))), vec![Box::new(Keen)], shutdown.clone()));
        let mut order = Vec::new();
        for _ in 0..4 {
            let call = tokio::time::timeout(std::time::Duration::from_secs(20), seen.recv()).await.expect("in time").expect("a call");
            order.push(call.path.rsplit('/').next().unwrap_or("").to_owned());
        }
        assert_eq!(order, ["first", "told", "first", "second"], "the second stage waits for the first");
        shutdown.cancel();
        running.await.expect("it ends");
        assert!(seen.recv().await.is_none(), "nothing more is done");
    }
}
