//! The agent as a program: joins a child from anywhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::clusters::SyncMode;
use clap::{Args as ClapArgs, ValueEnum};
use cluster::Endpoint;
use engine::{CancellationToken, Tasks};

use crate::part::{child_of, finish, open_door};

/// Keeps a child cluster in sync with its branch
#[derive(Debug, clap::Parser)]
#[command(name = "anabranch-agent", version, about, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    log: crate::log::LogArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

/// How an agent runs.
#[derive(Debug, ClapArgs)]
pub struct AgentArgs {
    /// URL of the parent's API server
    #[arg(long, env = "ANABRANCH_PARENT", value_name = "URL", value_parser = server_url)]
    pub parent: String,
    /// Bootstrap token, `id.secret`
    #[arg(long, env = "ANABRANCH_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: String,
    /// PEM file with the CA of the parent; when left out it is taken from the parent's cluster-info, which is signed with the token
    #[arg(long, value_name = "FILE")]
    pub parent_ca: Option<PathBuf>,
    /// Kubeconfig of the child; the Pod's ServiceAccount when left out
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the cluster; counts at the first join, as namespace, labels and mode do
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Wanted dedicated namespace in the parent
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Labels of the cluster, `key=value`
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Who applies: the agent from its branch (pull), the hub (push), or either (dual)
    #[arg(long, default_value = "pull", value_name = "MODE")]
    pub sync_mode: Mode,
    /// With --sync-mode pull: do not let the hub apply while the branch cannot be read
    #[arg(long)]
    pub no_takeover: bool,
    /// Port of 127.0.0.1 on which free capacity is predicted as well; the parent asks through the tunnel
    #[arg(long, value_name = "PORT")]
    pub predictor_port: Option<u16>,
    /// Address of another predictor, `HOST:PORT`, in place of the agent's own
    #[arg(long, value_name = "ADDRESS", conflicts_with = "predictor_port")]
    pub predictor_address: Option<String>,
    /// The parent asks the predictor at its address without the tunnel
    #[arg(long, requires = "predictor_address")]
    pub predictor_direct_access: bool,
    /// Where fetched objects are kept
    #[arg(long, default_value = "anabranch-agent", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Address for health and metrics
    #[arg(long, default_value = "127.0.0.1:10650", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// Worker threads
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// Who applies.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Mode {
    /// The agent applies from its branch
    Pull,
    /// The hub applies through the tunnel
    Push,
    /// The hub applies when it can, else the agent
    Dual,
}

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let args: Args = match crate::arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let filter = crate::log::start(&args.log, "info");
    crate::exit::conclude(crate::run(args.agent.threads, run(args.agent, filter)))
}

/// Runs an agent until it is told to stop.
///
/// # Errors
/// When the arguments cannot work, or the child cannot be reached.
pub async fn run(args: AgentArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    // Not by the parser of arguments, which would repeat the token.
    cluster::introduction::check(&args.token).context("read --token")?;
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
    open_door("agent", door, args.admin, filter, &tasks).await?;
    let run = agent::run(child.client, options, tasks.token().clone());
    finish(Box::pin(run), &shutdown, &tasks).await
}

/// Labels from `key=value` words.
fn labels(words: &[String]) -> Result<BTreeMap<String, String>> {
    words
        .iter()
        .map(|word| {
            let (key, value) = word.split_once('=').with_context(|| format!("label `{word}` is not of the form key=value"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Takes the URL of an API server, or says what it lacks.
fn server_url(text: &str) -> Result<String, String> {
    match text.parse::<http::Uri>() {
        Ok(url) if url.scheme_str() == Some("https") && url.host().is_some() => Ok(text.to_owned()),
        Ok(url) if url.scheme_str() == Some("http") => Err("the token would travel in clear text: write https://".to_owned()),
        Ok(_) => Err(format!("it is no URL: write https://{}", text.trim_start_matches('/'))),
        Err(error) => Err(error.to_string()),
    }
}
