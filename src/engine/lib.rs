//! How turns are taken: queue, cache, back-off, lease, clock, the observe-check-decide-perform-settle loop, the ports.
//!
//! Parts build on four things: a [`Cache`] that follows a collection, a [`Queue`] of keys, a handler run by [`work`] or
//! a [`Controller`] run by [`run_controller`], and [`Tasks`] that are joined on shutdown. Nothing here polls: a key is
//! looked at because something changed, because its own turn asked for it, or because a failure is tried again.

pub mod cache;
pub mod clock;
pub mod events;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod tasks;
pub mod turn;

pub use cache::{Cache, Change, Key};
pub use clock::{Clock, FakeClock, RealClock};
pub use events::{EventKind, Recorder, Regarding};
pub use lease::{Elector, Leadership, LeaseOptions};
pub use metrics::Registry;
pub use queue::{Backoff, Queue, work};
pub use tasks::Tasks;
pub use tokio_util::sync::CancellationToken;
pub use turn::{Class, Controller, Next, Settled, TurnError, run_controller};
