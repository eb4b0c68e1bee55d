//! Scheduler: queue, snapshot, cycle, assume, bind.
//!
//! One task decides, many write: decisions are taken one after the other on one snapshot and assumed at once, so that the
//! next one sees them; writing and asking predictors happen beside it. The scheduler writes the status of Subscriptions
//! and events, nothing else, and only while it leads.

pub mod bench;
pub mod bind;
pub mod brain;
#[cfg(test)]
mod brain_tests;
pub mod extend;
mod meter;
pub mod predict;
mod preempt;
mod promises;
pub mod queue;
pub mod records;
mod run;

use std::sync::Arc;
use std::time::Duration;

use engine::Registry;
use plan::placement::Framework;

pub use brain::Brain;
pub use extend::{Extension, Permits};
pub use plan::placement::Policy;
pub use run::run;

/// Settings of a scheduler.
#[derive(Clone)]
pub struct Options {
    /// Profiles and choices.
    pub framework: Framework,
    /// Name among the candidates of the election; unique per process.
    pub identity: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Whether to stand for election; without it this process must be the only scheduler.
    pub leader_elect: bool,
    /// Longest wait for one answer of a predictor.
    pub predictor_timeout: Duration,
    /// Writes at once.
    pub binders: usize,
    /// Cycles that wait for predictors at once.
    pub asking: usize,
    /// Plugins that act, by the names that profiles call them.
    pub extensions: Vec<Arc<dyn Extension>>,
    /// Decisions that wait for permission.
    pub permits: Permits,
    /// Metrics.
    pub metrics: Registry,
}

impl Options {
    /// The usual settings.
    pub fn new(identity: &str) -> Self {
        Self {
            framework: Framework::standard(),
            identity: identity.to_owned(),
            namespace: api::known::namespace::SYSTEM.to_owned(),
            leader_elect: true,
            predictor_timeout: Duration::from_secs(20),
            binders: 32,
            asking: 16,
            extensions: Vec::new(),
            permits: Permits::default(),
            metrics: Registry::new(),
        }
    }
}

/// Why a scheduler could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has no profile.
    #[error("run scheduler: there is no profile")]
    NoProfile,
}
