//! Time as a port: the real clock, and one that tests move by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What time it is, and waiting.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time, for what is written into objects.
    fn now(&self) -> Timestamp;
    /// Time that never jumps, counted from some fixed moment.
    fn monotonic(&self) -> Duration;
    /// Completes after `wait`.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Same, shared.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(wait).boxed()
    }
}

struct FakeState {
    elapsed: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

/// A clock that stands still until a test moves it.
#[derive(Clone)]
pub struct FakeClock {
    start: Timestamp,
    state: Arc<Mutex<FakeState>>,
}

impl FakeClock {
    /// Stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { start, state: Arc::new(Mutex::new(FakeState { elapsed: Duration::ZERO, sleepers: Vec::new() })) }
    }

    /// Moves time forward and wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.elapsed += by;
        let now = state.elapsed;
        let (due, rest) = std::mem::take(&mut state.sleepers).into_iter().partition::<Vec<_>, _>(|(at, _)| *at <= now);
        state.sleepers = rest;
        drop(state);
        for (_, wake) in due {
            let _ = wake.send(());
        }
    }

    /// How many sleepers wait.
    pub fn sleepers(&self) -> usize {
        let mut state = self.state.lock();
        state.sleepers.retain(|(_, wake)| !wake.is_closed());
        state.sleepers.len()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.state.lock().elapsed;
        jiff::SignedDuration::try_from(elapsed).ok().and_then(|d| self.start.checked_add(d).ok()).unwrap_or(Timestamp::MAX)
    }
    fn monotonic(&self) -> Duration {
        self.state.lock().elapsed
    }
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        if wait.is_zero() {
            return futures::future::ready(()).boxed();
        }
        let (wake, woken) = oneshot::channel();
        let at = state.elapsed + wait;
        state.sleepers.push((at, wake));
        async move {
            let _ = woken.await;
        }
        .boxed()
    }
}
