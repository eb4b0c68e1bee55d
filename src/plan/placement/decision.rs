//! The end of a cycle: where the feeds go, why, and what would bring the Subscription back.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::reason::Reason;
use jiff::Timestamp;

use super::events::Events;
use super::explain::Explain;
use super::request::{Left, Previous};

/// Where the feeds go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `namespace/name` of the clusters, sorted.
    pub bindings: Arc<[Arc<str>]>,
    /// Replicas by feed key, aligned with the bindings; empty lists for feeds without replicas.
    pub replicas: BTreeMap<String, Vec<i32>>,
    /// Hash of the spec that was decided on.
    pub spec_hash: u64,
    /// Clusters that were left because they failed, and get nothing by themselves.
    pub left: Left,
}

impl Placement {
    /// Whether a status says the same already.
    pub fn is_in(&self, previous: &Previous) -> bool {
        same_bindings(&self.bindings, &previous.bindings)
            && previous.spec_hash == self.spec_hash
            && previous.left == self.left
            && previous.replicas == self.replicas
            && usize::try_from(previous.desired_releases).unwrap_or(0) == self.bindings.len()
    }
}

impl From<&Placement> for Previous {
    fn from(placement: &Placement) -> Self {
        Self {
            bindings: Arc::clone(&placement.bindings),
            replicas: placement.replicas.clone(),
            spec_hash: placement.spec_hash,
            desired_releases: i32::try_from(placement.bindings.len()).unwrap_or(i32::MAX),
            left: Arc::clone(&placement.left),
        }
    }
}

/// Whether two lists name the same clusters; names are shared, so that most comparisons look at pointers only.
pub fn same_bindings(a: &Arc<[Arc<str>]>, b: &Arc<[Arc<str>]>) -> bool {
    Arc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| Arc::ptr_eq(a, b) || a == b))
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bind to this.
    Bind(Placement),
    /// Leave the bindings as they are.
    Keep,
    /// Nothing fits, but what must be left is unbound.
    Trim(Placement),
}

/// What brings a Subscription back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is done.
    Done,
    /// An event of the decision's set.
    OnEvent,
    /// Back-off, then the same again.
    Backoff,
}

/// The end of a cycle.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What is to be done.
    pub outcome: Outcome,
    /// One word for the condition.
    pub reason: Reason,
    /// One line for the condition.
    pub message: String,
    /// What should be known about a decision that stands.
    pub warnings: Vec<(Reason, String)>,
    /// What brings it back.
    pub retry: Retry,
    /// Events that are worth another try.
    pub wake: Events,
    /// Instant at which to look again, since a toleration ends then.
    pub recheck: Option<Timestamp>,
    /// Replicas that found no place, by feed index.
    pub missing: BTreeMap<usize, i64>,
    /// Clusters in which that room must be made; empty when it may be made anywhere.
    pub narrow: Vec<Arc<str>>,
    /// A permit plugin wants the binding to wait.
    pub wait: bool,
    /// The record.
    pub explain: Explain,
}

impl Decision {
    /// Whether the Subscription has found its clusters.
    pub fn is_bound(&self) -> bool {
        matches!(self.outcome, Outcome::Bind(_)) && self.reason == Reason::Scheduled
    }
}
