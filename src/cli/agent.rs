//! `anabranch agent`: joins a child from anywhere.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::clusters::SyncMode;
use cluster::Endpoint;
use engine::{CancellationToken, Tasks};

use crate::args::{AgentArgs, Mode};
use crate::embedded::labels;
use crate::parts::{child_of, finish, open_door};

/// Runs an agent until it is told to stop.
pub(crate) async fn run(args: AgentArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let child = child_of(args.kubeconfig.as_deref()).await?;
    let ca_pem = match &args.parent_ca {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("read the CA file {}", path.display()))?),
        None => None,
    };
    let endpoint = Endpoint { url: args.parent.clone(), ca_pem, ..Endpoint::default() };
    let git = git::Git::new(git::Options { directory: args.data_dir.join("git"), local_threads: 2, network_threads: 2 });
    let mut options = agent::Options::usual(agent::Parent::at(endpoint), &args.token, git);
    options.cluster_name = args.name.clone().unwrap_or_default();
    options.cluster_namespace = args.namespace.clone().unwrap_or_default();
    options.labels = labels(&args.labels)?;
    (options.sync_mode, options.app_pusher) = match args.sync_mode {
        Mode::Pull => (SyncMode::Pull, !args.no_takeover),
        Mode::Push => (SyncMode::Push, true),
        Mode::Dual => (SyncMode::Dual, true),
    };
    options.child_url.clone_from(&child.url);
    options.tunnel = Some(Arc::new(agent::HubTunnel::to_url(&child.url)));
    if let Some(predictor) = &mut options.predictor {
        predictor.listen = args.predictor_port.map(|port| ([127, 0, 0, 1], port).into());
        if let Some(port) = args.predictor_port {
            predictor.address = format!("localhost:{port}");
        }
        if let Some(address) = &args.predictor_address {
            *predictor = agent::PredictorOptions { address: address.clone(), direct: args.predictor_direct_access, own: false, listen: None };
        }
    }
    let door = admin::Door::default();
    let metrics = options.metrics.clone();
    door.metrics(move || metrics.render());
    open_door(door, args.admin, filter, &tasks).await?;
    let run = agent::run(child.client, options, tasks.token().clone());
    finish(Box::pin(run), &shutdown, &tasks).await
}
