//! Placement: which clusters a Subscription gets, with how many replicas, and why.
//!
//! The framework follows the Kubernetes scheduler. All of it is pure: a [`Snapshot`] of clusters, a [`Request`] and the
//! answers of predictors in, a [`Decision`] out. The same input always gives the same decision.

pub mod admit;
pub mod cluster;
pub mod config;
pub mod cycle;
pub mod decision;
pub mod divide;
pub mod events;
pub mod explain;
mod failback;
mod finder;
pub mod framework;
mod leave;
pub mod plugins;
pub mod policy;
pub mod preempt;
pub mod request;
pub mod snapshot;
pub mod waits;
mod walk;
pub mod what_if;
#[cfg(test)]
mod tests;

pub use admit::{Admission, admit};
pub use cluster::ClusterInfo;
pub use config::{Config, ConfigError, Framework};
pub use cycle::{Begun, Pending, begin, finish};
pub use decision::{Decision, Outcome, Placement, Retry, same_bindings};
pub use events::Events;
pub use explain::Explain;
pub use finder::Finder;
pub use policy::Policy;
pub use request::{Left, Previous, Ready, Request, Subject, mark_left};
pub use snapshot::{ClusterChange, SelectorId, Snapshot};
