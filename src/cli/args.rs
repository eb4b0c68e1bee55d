//! The arguments as they are typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Drives a fleet of Kubernetes clusters from Git
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, about, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) log: program::log::LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it all on this machine: parent, three child clusters, Git in between
    Demo(DemoArgs),
    /// Run parent, hub, scheduler, controllers and source controller in one process
    Up(UpArgs),
    /// Join a child cluster and keep it in sync
    Agent(program::agent::AgentArgs),
    /// Run the hub against a parent: tunnels, the way into children, the shadow API
    Hub(HubArgs),
    /// Run the scheduler against a parent
    Scheduler(SchedulerArgs),
    /// Run the controllers against a parent
    Controllers(ControllersArgs),
    /// Run the source controller against a parent
    Source(PartArgs),
    /// Show what a change of the repository would change in which clusters; exit code 2 when something does
    Plan(crate::review::PlanArgs),
    /// Show what the scheduler would do if something changed; touches nothing; exit code 2 when something moves
    Schedule(crate::schedule::ScheduleArgs),
    /// Render a chart as `helm template` does
    Template(TemplateArgs),
    /// Measure
    Bench(BenchArgs),
    /// Print the version
    Version,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Exit when everything is healthy instead of staying up
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: give up after this time
    #[arg(long, requires = "once", default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub(crate) timeout: Duration,
    /// Where all state lives
    #[arg(long, default_value = "anabranch-demo", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Repository to begin with; the built-in example when left out
    #[arg(long, value_name = "DIR")]
    pub(crate) examples: Option<PathBuf>,
    /// Address of the parent's API server; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Worker threads; all cores when left out
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UpArgs {
    /// Configuration file
    #[arg(long, short, default_value = "anabranch.yaml", value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Check the configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PartArgs {
    /// Kubeconfig of the parent; the Pod's ServiceAccount when left out
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address for health and metrics
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// Where Git mirrors are kept (source, controllers)
    #[arg(long, default_value = "anabranch-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Run without leader election
    #[arg(long)]
    pub(crate) no_leader_election: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ControllersArgs {
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Make the token with which clusters ask to join (Secret kube-system/bootstrap-token-anabra), unless it is there
    #[arg(long)]
    pub(crate) bootstrap_token: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HubArgs {
    /// Kubeconfig of the parent; the Pod's ServiceAccount when left out
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of the API for the parent's API server
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Address for the other replicas; this replica is alone when left out
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer_listen: Option<SocketAddr>,
    /// Where the other replicas reach this one, `host:port`; the bound address when left out
    #[arg(long, env = "ANABRANCH_PEER_ADDRESS", default_value = "", hide_default_value = true, value_name = "HOST:PORT")]
    pub(crate) peer_address: String,
    /// Serving certificate, PEM; self-signed when left out, and then trusted through the APIServices
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the serving certificate, PEM
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// CA of the serving certificate, PEM, to be written into the APIServices
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Further name or address in the self-signed certificate (can be repeated)
    #[arg(long = "tls-name", value_name = "NAME")]
    pub(crate) tls_names: Vec<String>,
    /// Name of the Service in the APIServices
    #[arg(long, default_value = "clusternet-hub", value_name = "NAME")]
    pub(crate) service: String,
    /// Address for health and metrics
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// Where Git mirrors are kept
    #[arg(long, default_value = "anabranch-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchedulerArgs {
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Configuration file with profiles, as Clusternet's and Kubernetes' schedulers have them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TemplateArgs {
    /// As `helm template` takes them: [NAME] CHART [flags]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Scheduling cycles over a model fleet, in process
    Schedule(ScheduleBench),
    /// From a push to every branch and every child, with a whole fleet in this process
    Path(PathBench),
    /// Requests into a child through the hub's tunnel, beside the same requests directly
    Tunnel(TunnelBench),
    /// Charts rendered cold, cached, and for a fleet; beside Helm when a helper is given
    Chart(crate::bench::chart::ChartBench),
    /// Requests to our API server, and to another beside it
    Api(crate::bench::api::ApiArgs),
    /// An embedded parent alone, for measuring and testing it from outside
    #[command(hide = true)]
    Serve(crate::bench::api::ServeArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScheduleBench {
    /// Number of clusters (can be repeated)
    #[arg(long, default_values_t = [10, 100, 1000, 10000], value_delimiter = ',', value_name = "N")]
    pub(crate) clusters: Vec<usize>,
    /// Cycles for each figure
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) cycles: usize,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PathBench {
    /// Number of clusters (can be repeated)
    #[arg(long, default_values_t = [10, 100, 1000], value_delimiter = ',', value_name = "N")]
    pub(crate) clusters: Vec<usize>,
    /// Changes for each figure
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) rounds: usize,
    /// Where repositories and the parent's store go; a temporary folder when left out
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TunnelBench {
    /// Clients at a time
    #[arg(long, default_values_t = [1, 16], value_delimiter = ',', value_name = "N")]
    pub(crate) clients: Vec<usize>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) seconds: u64,
    /// Kubeconfig of a real cluster to be the child, its first user an administrator with a client certificate; else an embedded one is made
    #[arg(long, value_name = "FILE")]
    pub(crate) child: Option<PathBuf>,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

/// `500ms`, `30s`, `5m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(split);
    let count: u64 = count.parse().map_err(|_| format!("`{text}` is no duration; write for example 30s, 5m or 500ms"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(count)),
        "s" | "" => Ok(Duration::from_secs(count)),
        "m" => Ok(Duration::from_secs(count * 60)),
        "h" => Ok(Duration::from_secs(count * 3600)),
        _ => Err(format!("`{text}` is no duration; write for example 30s, 5m or 500ms")),
    }
}
