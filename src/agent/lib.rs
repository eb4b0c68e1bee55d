//! Agent: joins, reports, syncs its branch into the child.
//!
//! One agent serves one child. It is state-based: whatever wakes it, it compares what the child should have with what it has.
//! Many agents may run in one process (simulated children); they share the Git pool and keep no threads of their own.

mod collect;
mod credential;
mod deployer;
mod join;
mod options;
mod predictor;
mod push;
mod release;
mod report;
mod session;
mod sync;
mod tunnel;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use engine::{CancellationToken, Clock, Elector, LeaseOptions, RealClock, Registry};
use kube::Client;

pub use options::{Connect, Join, Lease, Options, Parent, Tunnel, TunnelSession};
pub use predictor::{Predictor, PredictorOptions};
pub use push::push;
pub use tunnel::HubTunnel;

/// Why an agent ended. It does not end for anything that may heal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options cannot work.
    #[error("read the agent's options: {0}")]
    Options(String),
}

/// What all of one agent's modules share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) child: Client,
    pub(crate) options: Arc<Options>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Registry,
}

/// Runs an agent for the child behind `child` until shutdown.
///
/// # Errors
/// When the options cannot work. Everything else is tried again.
pub async fn run(child: Client, options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    options.check().map_err(Error::Options)?;
    let metrics = options.metrics.clone();
    let shared = Shared { child, options: Arc::new(options), clock: RealClock::shared(), metrics };
    session::ensure_namespace(&shared, &shutdown).await;
    let lease = &shared.options.lease;
    let election = LeaseOptions {
        namespace: shared.options.system_namespace.clone(),
        name: api::known::AGENT_LEASE.to_owned(),
        identity: shared.options.identity.clone(),
        duration: lease.duration,
        renew_deadline: lease.renew_deadline,
        retry_period: lease.retry_period,
    };
    let elector = Elector::new(shared.child.clone(), election, shared.clock.clone());
    let leadership = elector.leadership();
    elector
        .run(shutdown, |term| {
            let (shared, leadership) = (shared.clone(), leadership.clone());
            async move { Box::pin(session::lead(shared, leadership, term)).await }
        })
        .await;
    Ok(())
}
