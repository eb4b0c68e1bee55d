//! How a part finds its server, opens its side door, and ends.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use engine::{CancellationToken, Tasks};
use kube::Client;

use crate::exit::say;

/// An API server as its kubeconfig describes it.
pub struct Reached {
    /// A client.
    pub client: Client,
    /// Its URL.
    pub url: String,
}

/// The server of a kubeconfig, or the one the Pod runs in.
pub async fn child_of(kubeconfig: Option<&Path>) -> Result<Reached> {
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

/// Opens the side door of a part; `part` is its word on the command line.
pub async fn open_door(part: &'static str, door: admin::Door, address: SocketAddr, filter: Option<admin::LogFilter>, tasks: &Tasks) -> Result<()> {
    if let Some(filter) = filter {
        door.log_filter(filter);
    }
    door.metrics(process_metrics(part));
    let token = tasks.token().clone();
    let (bound, serve) = door.open(address, async move { token.cancelled().await }).await?;
    say(&format!("health and metrics at http://{bound}"));
    tasks.spawn("admin", serve);
    Ok(())
}

/// What every process says of itself, under the names that Prometheus' own clients use.
fn process_metrics(part: &'static str) -> impl Fn() -> String + Send + Sync + 'static {
    let registry = engine::Registry::new();
    let began = jiff::Timestamp::now().as_second();
    move || {
        registry.gauge("process_start_time_seconds", &[], began);
        // Pages of four KiB, as on every machine that this runs on; elsewhere the line is simply missing.
        let resident = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<i64>().ok());
        if let Some(pages) = resident {
            registry.gauge("process_resident_memory_bytes", &[], pages * 4096);
        }
        registry.gauge("anabranch_build_info", &[("part", part), ("version", env!("CARGO_PKG_VERSION"))], 1);
        registry.render()
    }
}

/// Runs a part until it ends or the process is told to stop.
pub async fn finish<E>(part: impl Future<Output = Result<(), E>>, shutdown: &CancellationToken, tasks: &Tasks) -> Result<ExitCode>
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
