//! `anabranch bench tunnel`: requests into a child through the parent, the hub and the tunnel, beside the same requests directly.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::clusters::SyncMode;
use apiserver::load::{self, Target, What};
use cluster::Endpoint;
use engine::{CancellationToken, Tasks};
use serde_json::json;
use program::exit::print;
use program::part::{Reached, child_of};

use crate::args::TunnelBench;
use crate::demo::table;
use crate::embedded::{self, Keep, PartOptions, Role};

const NAME: &str = "harbor";
/// How long joining may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures and prints.
pub(super) async fn run(args: TunnelBench) -> Result<ExitCode> {
    ensure!(args.seconds > 0 && !args.clients.contains(&0), "measure for no time or with no clients");
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let scratch = super::Scratch::new(None, "tunnel")?;
    let measured = measure(&args, scratch.path(), &tasks).await;
    shutdown.cancel();
    tasks.stop(Duration::from_secs(10)).await;
    measured
}

async fn measure(args: &TunnelBench, dir: &std::path::Path, tasks: &Tasks) -> Result<ExitCode> {
    let loopback = Some(([127, 0, 0, 1], 0).into());
    let git = git::Git::new(git::Options { directory: dir.join("git"), local_threads: 1, network_threads: 1 });
    let parent = embedded::start(&Keep::Memory, &Role::Parent, loopback, tasks).await?;
    embedded::prepare_parent(&parent.admin()).await?;
    let token = embedded::bootstrap_token(&parent.admin()).await?;
    let mut options = PartOptions::usual(git.clone());
    options.source = false;
    let parts = embedded::start_parts(&parent, options, tasks);
    let (child, kubeconfig) = match &args.child {
        Some(path) => (child_of(Some(path)).await?, std::fs::read_to_string(path).with_context(|| format!("read the kubeconfig {}", path.display()))?),
        None => {
            let child = embedded::start(&Keep::Memory, &Role::Child(simulator::Options::with_nodes(1)), loopback, tasks).await?;
            let kubeconfig = child.kubeconfig(NAME).context("the child listens")?;
            (Reached { client: child.admin(), url: child.url }, kubeconfig)
        }
    };
    let endpoint = Endpoint { url: parent.url.clone(), ca_pem: Some(parent.ca().into_bytes()), ..Endpoint::default() };
    let mut options = agent::Options::usual(agent::Parent::at(endpoint), token.reveal(), git);
    options.cluster_name = NAME.to_owned();
    options.sync_mode = SyncMode::Push;
    options.app_pusher = true;
    options.child_url.clone_from(&child.url);
    options.lease = agent::Lease::RELAXED;
    options.tunnel = Some(Arc::new(agent::HubTunnel::to_url(&child.url)));
    embedded::start_agent(child.client, options, tasks.token(), tasks);

    let direct = Target::new(&kubeconfig)?;
    let through = Target::new(&parent.kubeconfig("parent").context("the parent listens")?)?
        .through(&format!("/apis/proxies.clusternet.io/v1alpha1/sockets/{NAME}/proxy/direct"));
    let most = args.clients.iter().copied().max().unwrap_or(1);
    load::prepare(&direct, most).await.context("prepare the child")?;
    let open = async {
        // The deployer's credential comes after the tunnel; before it the hub has no way in.
        while parts.hub.proxy().sessions().is_empty() || load::prepare(&through, 1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, open).await.context("wait for the tunnel")?;

    let mut rows = vec![["WHAT", "CLIENTS", "DIRECT /S", "P99 MS", "TUNNEL /S", "P99 MS", "RATIO"].map(str::to_owned)];
    for what in [What::Get, What::List] {
        for clients in &args.clients {
            let time = Duration::from_secs(args.seconds);
            let directly = load::measure(&direct, what, *clients, time, 1).await.context("measure the child directly")?;
            let tunnel = load::measure(&through, what, *clients, time, 2).await.context("measure the child through the tunnel")?;
            ensure!(directly.failed == 0 && tunnel.failed == 0, "{} requests failed directly, {} through the tunnel", directly.failed, tunnel.failed);
            let ratio = tunnel.per_second / directly.per_second.max(f64::MIN_POSITIVE);
            if args.json {
                print(&format!("{}\n", json!({"what": what.name(), "clients": clients, "direct": directly, "tunnel": tunnel, "ratio": ratio})));
                continue;
            }
            rows.push([
                what.name().to_owned(),
                clients.to_string(),
                format!("{:.0}", directly.per_second),
                format!("{:.2}", directly.p99_ms),
                format!("{:.0}", tunnel.per_second),
                format!("{:.2}", tunnel.p99_ms),
                format!("{ratio:.2}"),
            ]);
        }
    }
    if !args.json {
        print(&table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}
