//! Controllers: registration, life cycle, deploy pipeline, overrides, status, branch writer.
//!
//! The deploy pipeline is one [`World`](world::World) of caches with one queue per controller; its turns read the caches,
//! ask `plan` what to do, and perform that. Nothing is polled: a turn is taken because something changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{CancellationToken, Clock, RealClock, Registry, Tasks};
use kube::Client;

pub mod charts;
mod delivery;
mod gitcharts;
pub mod lifecycle;
pub mod pipeline;
pub mod registration;

mod parsed;
mod perform;
mod rendering;
mod turns;
mod world;

pub use charts::{ChartAnswer, ChartLookup, Repositories};
pub use gitcharts::ChartDirectory;

/// How the controllers behave.
#[derive(Clone)]
pub struct Options {
    /// Controllers that are left out, by Clusternet's names: `crrapprover`, `clusterlifecycle`, `deployer`.
    pub disabled: BTreeSet<String>,
    /// Namespace of the Manifests.
    pub reserved_namespace: String,
    /// Turns that run at a time, per controller of the pipeline.
    pub workers: usize,
    /// Registration of clusters.
    pub registration: registration::Options,
    /// Life cycle of clusters.
    pub lifecycle: lifecycle::Options,
    /// Who knows whether a chart exists; without it charts are deployed unverified, unless `chart_pool` is there.
    pub charts: Option<Arc<dyn ChartLookup>>,
    /// Chart repositories that are asked when `charts` is not given.
    pub chart_pool: Option<registry::Pool>,
    /// The repositories of this process; without them no branches are written.
    pub git: Option<git::Git>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Registry,
}

impl Options {
    /// What suits a parent of up to some thousand clusters.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            disabled: BTreeSet::new(),
            reserved_namespace: api::known::namespace::RESERVED.to_owned(),
            workers: 64,
            registration: registration::Options { workers: 8, ..registration::Options::default() },
            lifecycle: lifecycle::Options { workers: 8, ..lifecycle::Options::default() },
            charts: None,
            chart_pool: None,
            git: None,
            clock: RealClock::shared(),
            metrics: Registry::new(),
        }
    }
}

/// How long turns under way may take after shutdown was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs all controllers until shutdown.
pub async fn run(client: Client, mut options: Options, shutdown: CancellationToken) {
    if let (None, Some(pool)) = (&options.charts, &options.chart_pool) {
        options.charts = Some(Arc::new(Repositories::new(client.clone(), pool.clone())));
    }
    let tasks = Tasks::new(&shutdown);
    let recorder = engine::Recorder::start(
        client.clone(),
        api::known::component::CONTROLLER_MANAGER,
        options.clock.clone(),
        options.metrics.clone(),
        &tasks,
    );
    let context = registration::Context { client: client.clone(), clock: options.clock.clone(), recorder, metrics: options.metrics.clone() };
    let runs = |name: &str| !options.disabled.contains(name);
    if runs("crrapprover") {
        tasks.spawn("registration", registration::run(context.clone(), options.registration.clone(), tasks.token().clone()));
    }
    if runs("clusterlifecycle") {
        tasks.spawn("lifecycle", lifecycle::run(context, options.lifecycle, tasks.token().clone()));
    }
    if runs("deployer") {
        tasks.spawn("pipeline", pipeline::run(client, options, tasks.token().clone()));
    }
    tasks.run_until_stopped(PATIENCE).await;
}
