//! The turn that all controllers share: observe, check, decide, perform, settle.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::metrics::Registry;
use crate::queue::{Queue, work};

/// When a key gets its next turn, apart from changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to wait for.
    Done,
    /// Look again after this long.
    After(Duration),
    /// It failed: look again with back-off.
    Again,
}

/// What kind of error ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try again with back-off.
    Again,
    /// Somebody else wrote in between: ordinary, and tried again on what they wrote. Nobody is told.
    Race,
    /// Try again after this long.
    After(Duration),
    /// A person or another part must change something; that change wakes the key.
    Stalled,
    /// A mistake in this program; looked at again rarely.
    Bug,
}

impl Class {
    fn label(self) -> &'static str {
        match self {
            Class::Again => "again",
            Class::Race => "race",
            Class::After(_) => "after",
            Class::Stalled => "stalled",
            Class::Bug => "bug",
        }
    }
}

/// A key whose turn met a bug is looked at again after this long.
const AFTER_BUG: Duration = Duration::from_secs(600);

/// An error that can end a turn.
#[derive(Debug)]
pub struct TurnError {
    /// CamelCase word from a closed list: condition reason, event reason and metric label.
    pub reason: &'static str,
    /// What to do about it.
    pub class: Class,
    /// What failed with which object.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl TurnError {
    /// An error with its reason and class.
    pub fn new(reason: &'static str, class: Class, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { reason, class, source: source.into() }
    }

    /// An API server's refusal, classified by its code.
    pub fn api(reason: &'static str, error: kube::Error) -> Self {
        use cluster::Trouble;
        let class = match cluster::trouble(&error) {
            Trouble::Throttled(Some(wait)) => Class::After(wait),
            Trouble::Invalid | Trouble::Broken => Class::Stalled,
            Trouble::Conflict => Class::Race,
            _ => Class::Again,
        };
        Self::new(reason, class, error)
    }
}

impl Display for TurnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for TurnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// What a turn leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// When to look again.
    pub next: Next,
    /// Whether anything in the world was changed: such turns are logged at info.
    pub changed: bool,
}

impl Settled {
    /// Nothing changed, nothing to wait for.
    pub const QUIET: Settled = Settled { next: Next::Done, changed: false };
}

/// One controller. Only `observe`, `perform` and `report` touch the world; `check` and `decide` and `settle` belong
/// into the `plan` room and are called from here as plain functions.
pub trait Controller: Send + Sync + 'static {
    /// What gets a turn.
    type Key: Ord + Clone + Debug + Display + Send + Sync + 'static;
    /// One consistent reading of the world around the key.
    type Seen: Send;
    /// The reading, checked: nothing optional left.
    type Checked: Send;
    /// What to do.
    type Plan: Send + Sync;
    /// How one step went.
    type Outcome: Send + Sync;
    /// What to tell the user.
    type Status: Send;

    /// Name in logs and metrics.
    fn name(&self) -> &'static str;
    /// Reads everything; `None` when there is nothing to do for the key (it is gone and nothing remains of it).
    fn observe(&self, key: &Self::Key) -> impl Future<Output = Result<Option<Self::Seen>, TurnError>> + Send;
    /// Parses and resolves; all faults at once.
    fn check(&self, seen: Self::Seen) -> Result<Self::Checked, TurnError>;
    /// Decides. Total: no error, no clock, no log.
    fn decide(&self, checked: Self::Checked) -> Self::Plan;
    /// Writes; each step carries its precondition.
    fn perform(&self, key: &Self::Key, plan: &Self::Plan) -> impl Future<Output = Vec<Self::Outcome>> + Send;
    /// Summarises. Conditions are decided here and nowhere else.
    fn settle(&self, plan: &Self::Plan, outcomes: &[Self::Outcome]) -> (Option<Self::Status>, Settled);
    /// Writes the status, if it changed.
    fn report(&self, key: &Self::Key, status: Self::Status) -> impl Future<Output = Result<(), TurnError>> + Send;
    /// Hears of an error that ended a turn (for a condition or an event). Called once per turn.
    fn failed(&self, _key: &Self::Key, _error: &TurnError) -> impl Future<Output = ()> + Send {
        async {}
    }
}

async fn turn<C: Controller>(controller: &C, key: &C::Key) -> Result<Settled, TurnError> {
    let Some(seen) = controller.observe(key).await? else { return Ok(Settled::QUIET) };
    let plan = controller.decide(controller.check(seen)?);
    let outcomes = controller.perform(key, &plan).await;
    let (status, settled) = controller.settle(&plan, &outcomes);
    if let Some(status) = status {
        controller.report(key, status).await?;
    }
    Ok(settled)
}

/// Maps how a turn ended to what comes next; logs and counts it. The only place where errors are logged.
pub fn conclude(controller: &'static str, key: &dyn Display, ended: Result<Settled, &TurnError>, metrics: &Registry) -> Next {
    match ended {
        Ok(settled) => {
            metrics.count("turns_total", &[("controller", controller), ("result", "ok")], 1);
            if settled.changed {
                tracing::debug!(controller, object = %key, "turn changed something");
            } else {
                tracing::debug!(controller, object = %key, "turn changed nothing");
            }
            settled.next
        }
        Err(error) => {
            metrics.count("turns_total", &[("controller", controller), ("result", error.class.label())], 1);
            let text = cluster::error::chain(error);
            match error.class {
                Class::Bug => tracing::error!(controller, object = %key, reason = error.reason, error = text, "turn failed"),
                Class::Race => tracing::debug!(controller, object = %key, error = text, "turn lost a race"),
                _ => tracing::warn!(controller, object = %key, reason = error.reason, error = text, "turn failed"),
            }
            match error.class {
                Class::Again | Class::Race => Next::Again,
                Class::After(wait) => Next::After(wait),
                Class::Stalled => Next::Done,
                Class::Bug => Next::After(AFTER_BUG),
            }
        }
    }
}

/// Gives turns to the keys of the queue until shutdown.
pub async fn run_controller<C: Controller>(
    controller: Arc<C>,
    queue: Queue<C::Key>,
    workers: usize,
    clock: Arc<dyn Clock>,
    metrics: Registry,
    shutdown: CancellationToken,
) {
    work(queue, workers, shutdown, move |key| {
        let (controller, clock, metrics) = (controller.clone(), clock.clone(), metrics.clone());
        async move {
            let began = clock.monotonic();
            let ended = turn(controller.as_ref(), &key).await;
            metrics.observe("turn_seconds", &[("controller", controller.name())], clock.monotonic().saturating_sub(began));
            if let Err(error) = &ended {
                controller.failed(&key, error).await;
            }
            let ended = ended.as_ref().map(Clone::clone);
            conclude(controller.name(), &key, ended, &metrics)
        }
    })
    .await;
}
