//! Work queue: one entry per key, one worker per key at a time, delays, back-off, bounded workers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, RealClock};
use crate::turn::Next;

/// How long a failing key waits.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

impl Default for Backoff {
    /// 50 ms doubling to 30 s: a lost race is tried again at once, a broken server is not hammered.
    fn default() -> Self {
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// Wait after `failures` failures in a row (1 = the first), between 80 % and 120 % of the doubled value.
    pub fn wait(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(u32::MAX));
        doubled.min(self.longest).mul_f64(rand::random_range(0.8..1.2))
    }
}

struct State<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, or to be put there when their running turn ends.
    wanted: BTreeSet<K>,
    running: BTreeSet<K>,
    delayed: BTreeMap<(Duration, u64), K>,
    delay_of: BTreeMap<K, (Duration, u64)>,
    failures: BTreeMap<K, u32>,
    sequence: u64,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    backoff: Backoff,
}

/// A queue of keys. Cloning shares it.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Ord + Clone + Send + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Send + 'static> Queue<K> {
    /// An empty queue on the real clock.
    pub fn new() -> Self {
        Self::with(RealClock::shared(), Backoff::default())
    }

    /// An empty queue.
    pub fn with(clock: Arc<dyn Clock>, backoff: Backoff) -> Self {
        let state = State {
            ready: VecDeque::new(),
            wanted: BTreeSet::new(),
            running: BTreeSet::new(),
            delayed: BTreeMap::new(),
            delay_of: BTreeMap::new(),
            failures: BTreeMap::new(),
            sequence: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new(), clock, backoff }) }
    }

    /// Wants a turn for the key, now. A key that already waits stays where it is; a key whose turn runs gets another one after it.
    pub fn add(&self, key: K) {
        let mut state = self.shared.state.lock();
        if add(&mut state, key) {
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    /// Wants turns for many keys with one lock.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        let mut state = self.shared.state.lock();
        let mut any = false;
        for key in keys {
            any |= add(&mut state, key);
        }
        drop(state);
        if any {
            self.shared.changed.notify_one();
        }
    }

    /// Wants a turn after a wait. The earlier of two waits counts.
    pub fn add_after(&self, key: K, wait: Duration) {
        if wait.is_zero() {
            return self.add(key);
        }
        let at = self.shared.clock.monotonic() + wait;
        let mut state = self.shared.state.lock();
        if let Some(old) = state.delay_of.get(&key).copied() {
            if old.0 <= at {
                return;
            }
            state.delayed.remove(&old);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.delayed.insert(slot, key.clone());
        state.delay_of.insert(key, slot);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Wants a turn after the back-off of one more failure. Returns the wait.
    pub fn add_failed(&self, key: K) -> Duration {
        let failures = {
            let mut state = self.shared.state.lock();
            let count = state.failures.entry(key.clone()).or_insert(0);
            *count += 1;
            *count
        };
        let wait = self.shared.backoff.wait(failures);
        self.add_after(key, wait);
        wait
    }

    /// The key went well: its back-off starts over.
    pub fn forget(&self, key: &K) {
        self.shared.state.lock().failures.remove(key);
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Keys that wait for a worker.
    pub fn len(&self) -> usize {
        self.shared.state.lock().ready.len()
    }

    /// True when no key waits, runs, or is due later.
    pub fn is_idle(&self) -> bool {
        let state = self.shared.state.lock();
        state.ready.is_empty() && state.running.is_empty() && state.delayed.is_empty()
    }

    /// True when no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes up to `most` keys; they count as running until [`Queue::done`].
    pub fn take(&self, most: usize) -> Vec<K> {
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state.lock();
        while let Some(((at, _), _)) = state.delayed.first_key_value() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = state.delayed.pop_first() {
                state.delay_of.remove(&key);
                add(&mut state, key);
            }
        }
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(key) = state.ready.pop_front() else { break };
            state.wanted.remove(&key);
            state.running.insert(key.clone());
            taken.push(key);
        }
        taken
    }

    /// The turn of the key ended; if it was wanted meanwhile it waits again.
    pub fn done(&self, key: &K) {
        let mut state = self.shared.state.lock();
        state.running.remove(key);
        if state.wanted.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    /// Completes when something was added, or when the next delayed key is due. May complete early.
    pub async fn changed(&self) {
        let next = self.shared.state.lock().delayed.first_key_value().map(|((at, _), _)| *at);
        match next {
            None => self.shared.changed.notified().await,
            Some(at) => {
                let wait = at.saturating_sub(self.shared.clock.monotonic());
                tokio::select! {
                    () = self.shared.changed.notified() => {}
                    () = self.shared.clock.sleep(wait) => {}
                }
            }
        }
    }

    /// Takes the outcome of a turn into account: back-off, wait, or nothing.
    pub fn settle(&self, key: &K, next: &Next) {
        match next {
            Next::Done => self.forget(key),
            Next::After(wait) => {
                self.forget(key);
                self.add_after(key.clone(), *wait);
            }
            Next::Again => {
                self.add_failed(key.clone());
            }
        }
        self.done(key);
    }
}

/// True when the key became ready.
fn add<K: Ord + Clone>(state: &mut State<K>, key: K) -> bool {
    if !state.wanted.insert(key.clone()) {
        return false;
    }
    if state.running.contains(&key) {
        return false;
    }
    state.ready.push_back(key);
    true
}

/// Runs `handler` for every key of the queue, at most `workers` at a time, until `shutdown`; running turns are awaited.
///
/// A handler that panics is logged and its key tried again with back-off: one bad object never stops the others.
pub async fn work<K, F, Fut>(queue: Queue<K>, workers: usize, shutdown: CancellationToken, handler: F)
where
    K: Ord + Clone + Send + Sync + std::fmt::Debug + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Next> + Send + 'static,
{
    let handler = Arc::new(handler);
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        if shutdown.is_cancelled() {
            break;
        }
        let free = workers.max(1).saturating_sub(running.len());
        for key in queue.take(free) {
            let (queue, handler) = (queue.clone(), handler.clone());
            running.spawn(async move {
                // The call itself may panic too, so it stands inside.
                let turn = AssertUnwindSafe(async { handler(key.clone()).await }).catch_unwind().await;
                let next = turn.unwrap_or_else(|_| {
                    tracing::error!(key = ?key, "a turn panicked");
                    Next::Again
                });
                queue.settle(&key, &next);
            });
        }
        if running.len() >= workers.max(1) {
            tokio::select! {
                _ = running.join_next() => {}
                () = shutdown.cancelled() => break,
            }
        } else {
            tokio::select! {
                () = queue.changed() => {}
                _ = running.join_next(), if !running.is_empty() => {}
                () = shutdown.cancelled() => break,
            }
        }
    }
    while running.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
