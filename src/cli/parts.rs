//! The parts, each alone against a parent: hub, scheduler, controllers, source.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use engine::{CancellationToken, Tasks};
use kube::Client;

use crate::args::{ControllersArgs, PartArgs, SchedulerArgs};
use crate::exit::say;

/// An API server as its kubeconfig describes it.
pub(crate) struct Reached {
    /// A client.
    pub(crate) client: Client,
    /// Its URL.
    pub(crate) url: String,
}

/// The server of a kubeconfig, or the one the Pod runs in.
pub(crate) async fn child_of(kubeconfig: Option<&Path>) -> Result<Reached> {
    cluster::client::install_tls_provider();
    // In a Pod its own account comes first, elsewhere what kubectl would use.
    let in_pod = kube::Config::incluster();
    let config = match (kubeconfig, in_pod) {
        (None, Ok(config)) => config,
        _ => {
            let read = cluster::client::read_kubeconfig(kubeconfig).with_context(|| format!("read the kubeconfig {}", kubeconfig.map_or_else(|| "of the home folder".to_owned(), |path| path.display().to_string())))?;
            let read = read.context("find an API server: no --kubeconfig, no ~/.kube/config, and this is no Pod")?;
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.context("use the kubeconfig")?
        }
    };
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).with_context(|| format!("make a client for {url}"))?;
    Ok(Reached { client, url })
}

/// Opens the side door of a part.
pub(crate) async fn open_door(door: admin::Door, address: SocketAddr, filter: Option<admin::LogFilter>, tasks: &Tasks) -> Result<()> {
    if let Some(filter) = filter {
        door.log_filter(filter);
    }
    door.metrics(process_metrics());
    let token = tasks.token().clone();
    let (bound, serve) = door.open(address, async move { token.cancelled().await }).await?;
    say(&format!("health and metrics at http://{bound}"));
    tasks.spawn("admin", serve);
    Ok(())
}

/// What every process says of itself, under the names that Prometheus' own clients use.
fn process_metrics() -> impl Fn() -> String + Send + Sync + 'static {
    let registry = engine::Registry::new();
    let began = jiff::Timestamp::now().as_second();
    move || {
        registry.gauge("process_start_time_seconds", &[], began);
        // Pages of four KiB, as on every machine that this runs on; elsewhere the line is simply missing.
        let resident = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<i64>().ok());
        if let Some(pages) = resident {
            registry.gauge("process_resident_memory_bytes", &[], pages * 4096);
        }
        registry.gauge("anabranch_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        registry.render()
    }
}

/// Runs a part until it ends or the process is told to stop.
pub(crate) async fn finish<E>(part: impl Future<Output = Result<(), E>>, shutdown: &CancellationToken, tasks: &Tasks) -> Result<ExitCode>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let stop = async {
        let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(signal) => signal,
            Err(_) => return std::future::pending().await,
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(part);
    let ended = tokio::select! {
        ended = &mut part => ended,
        () = stop => {
            shutdown.cancel();
            tokio::time::timeout(Duration::from_secs(10), part).await.unwrap_or(Ok(()))
        }
    };
    tasks.stop(Duration::from_secs(5)).await;
    ended?;
    Ok(ExitCode::SUCCESS)
}

struct Part {
    client: Client,
    shutdown: CancellationToken,
    tasks: Tasks,
}

async fn part(args: &PartArgs, filter: Option<admin::LogFilter>, metrics: &engine::Registry) -> Result<Part> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let reached = child_of(args.kubeconfig.as_deref()).await?;
    let door = admin::Door::default();
    let registry = metrics.clone();
    door.metrics(move || registry.render());
    open_door(door, args.admin, filter, &tasks).await?;
    Ok(Part { client: reached.client, shutdown, tasks })
}

/// Who this process is in leader elections.
pub(crate) fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

/// Runs `lead` while this process holds the component's Lease.
async fn elected<F, Fut>(args: &PartArgs, part: &Part, component: &str, lead: F)
where
    F: Fn(CancellationToken) -> Fut,
    Fut: Future<Output = ()>,
{
    if args.no_leader_election {
        lead(part.tasks.token().clone()).await;
        return;
    }
    let options = engine::LeaseOptions::usual(api::known::namespace::SYSTEM, component, &identity());
    engine::Elector::new(part.client.clone(), options, engine::RealClock::shared()).run(part.tasks.token().clone(), lead).await;
}

fn git(args: &PartArgs) -> git::Git {
    git::Git::new(git::Options { directory: args.data_dir.join("git"), local_threads: 4, network_threads: 8 })
}

/// Runs the scheduler.
pub(crate) async fn scheduler(args: SchedulerArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let mut options = scheduler::Options::new(&identity());
    options.framework = crate::schedule::framework(args.config.as_deref())?;
    let args = args.part;
    options.leader_elect = !args.no_leader_election;
    let part = part(&args, filter, &options.metrics).await?;
    let run = scheduler::run(part.client, options, part.tasks.token().clone());
    finish(Box::pin(run), &part.shutdown, &part.tasks).await
}

/// Runs the controllers.
pub(crate) async fn controllers(args: ControllersArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let mut options = controllers::Options::standard();
    options.chart_pool = Some(registry::Pool::shared());
    options.git = Some(git(&args.part));
    let part = part(&args.part, filter, &options.metrics).await?;
    let (client, shutdown, tasks) = (part.client.clone(), part.shutdown.clone(), part.tasks.clone());
    if args.bootstrap_token {
        let client = client.clone();
        tasks.spawn_until_stopped("bootstrap token", async move { crate::embedded::ensure_bootstrap_token(&client).await });
    }
    let run = async {
        elected(&args.part, &part, api::known::component::CONTROLLER_MANAGER, |term| controllers::run(client.clone(), options.clone(), term)).await;
        Ok::<(), std::convert::Infallible>(())
    };
    finish(run, &shutdown, &tasks).await
}

/// Runs the source controller.
pub(crate) async fn source(args: PartArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let options = source::Options::usual(git(&args));
    let part = part(&args, filter, &options.metrics).await?;
    let (client, shutdown, tasks) = (part.client.clone(), part.shutdown.clone(), part.tasks.clone());
    let run = async {
        elected(&args, &part, "anabranch-source", |term| {
            let (client, options) = (client.clone(), options.clone());
            async move {
                if let Err(error) = source::run(client, options, term).await {
                    tracing::error!(%error, "the source controller ended");
                }
            }
        })
        .await;
        Ok::<(), std::convert::Infallible>(())
    };
    finish(run, &shutdown, &tasks).await
}
