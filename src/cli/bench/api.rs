//! `anabranch bench api`: requests per second, latencies and memory of our API server, and of another one beside it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use apiserver::load::{self, Row, Target, What};
use engine::{CancellationToken, Tasks};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use program::exit::{print, say};

use crate::demo::table;
use crate::embedded::{self, Keep, Role};

/// Arguments of `bench api`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// Clients at a time
    #[arg(long, default_values_t = [1, 10, 100], value_delimiter = ',', value_name = "N")]
    clients: Vec<usize>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 5, value_name = "N")]
    seconds: u64,
    /// Then fill the namespace to this many objects and tell the memory; 0 leaves it out
    #[arg(long, default_value_t = 0, value_name = "N")]
    objects: u64,
    /// Kubeconfig of another server to measure the same way, in the same run
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Processes of the other server, for its memory
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    pids: Vec<u32>,
    /// Where our server keeps its objects; a folder of its own that goes afterwards when left out
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a row
    #[arg(long)]
    json: bool,
}

/// Arguments of `bench serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where objects, keys and the kubeconfig are kept
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Address; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
}

/// An embedded parent alone: its API server with the controllers that belong to it.
pub(crate) async fn serve(args: ServeArgs) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    std::fs::create_dir_all(&args.dir).with_context(|| format!("make the folder {}", args.dir.display()))?;
    let server = embedded::start(&Keep::Folder(args.dir.clone()), &Role::Parent, Some(args.listen), &tasks).await?;
    let path = args.dir.join("kubeconfig");
    embedded::write_private(&path, &server.kubeconfig("anabranch").context("the server listens")?)?;
    print(&format!("{}\n", path.display()));
    let token = tasks.token().clone();
    let wait = async move {
        token.cancelled().await;
        Ok::<(), std::convert::Infallible>(())
    };
    program::part::finish(wait, &shutdown, &tasks).await
}

/// A server in a process of its own; it ends with this value.
struct Ours {
    process: tokio::process::Child,
    kubeconfig: PathBuf,
}

async fn start(dir: &Path) -> Result<Ours> {
    let program = std::env::current_exe().context("find this program")?;
    let mut process = tokio::process::Command::new(program)
        .args(["bench", "serve", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start the server")?;
    let out = process.stdout.take().context("read what the server says")?;
    let line = tokio::time::timeout(Duration::from_secs(30), BufReader::new(out).lines().next_line()).await.context("wait for the server")??;
    let kubeconfig = PathBuf::from(line.context("start the server: it ended")?);
    Ok(Ours { process, kubeconfig })
}

/// Resident memory of processes, MiB; nothing where the system does not tell.
fn memory(pids: &[u32]) -> Option<f64> {
    if pids.is_empty() {
        return None;
    }
    pids.iter().map(|pid| super::status_kib(&pid.to_string(), "VmRSS")).sum::<Option<u64>>().map(super::mib)
}

struct Subject {
    name: &'static str,
    target: Target,
    pids: Vec<u32>,
}

fn subject(name: &'static str, kubeconfig: &Path, pids: Vec<u32>) -> Result<Subject> {
    let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("read the kubeconfig {}", kubeconfig.display()))?;
    Ok(Subject { name, target: Target::new(&text)?, pids })
}

fn mib(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.0}"))
}

/// Measures and prints.
pub(crate) async fn run(args: ApiArgs) -> Result<ExitCode> {
    if args.clients.contains(&0) || args.seconds == 0 {
        bail!("measure for no time or with no clients");
    }
    let own = args.dir.is_none().then(|| std::env::temp_dir().join(format!("anabranch-bench-{}", std::process::id())));
    let dir = args.dir.clone().or_else(|| own.clone()).context("a folder")?;
    let result = measured(&args, &dir).await;
    if let Some(own) = own {
        // What is left in a folder for temporary files is the system's to clear.
        let _ = std::fs::remove_dir_all(own);
    }
    result
}

async fn measured(args: &ApiArgs, dir: &Path) -> Result<ExitCode> {
    let mut ours = start(dir).await?;
    let pids = ours.process.id().into_iter().collect();
    let mut subjects = vec![subject("anabranch", &ours.kubeconfig, pids)?];
    if let Some(path) = &args.against {
        subjects.push(subject("other", path, args.pids.clone())?);
    }
    let most = args.clients.iter().copied().max().unwrap_or(1);
    for subject in &subjects {
        load::prepare(&subject.target, most).await.with_context(|| format!("prepare {}", subject.name))?;
    }
    let idle: Vec<Option<f64>> = subjects.iter().map(|subject| memory(&subject.pids)).collect();
    let mut rows = vec![["SERVER", "WHAT", "CLIENTS", "PER SECOND", "P50 MS", "P99 MS", "FAILED"].map(str::to_owned)];
    let run = u64::from(std::process::id());
    for what in What::ALL {
        for clients in &args.clients {
            for subject in &subjects {
                let row = load::measure(&subject.target, what, *clients, Duration::from_secs(args.seconds), run).await;
                let row: Row = row.with_context(|| format!("measure {} of {}", what.name(), subject.name))?;
                if args.json {
                    let mut value = serde_json::to_value(&row)?;
                    value["server"] = json!(subject.name);
                    print(&format!("{value}\n"));
                    continue;
                }
                say(&format!("{} {} {}: {:.0} a second", subject.name, what.name(), clients, row.per_second));
                rows.push([
                    subject.name.to_owned(),
                    what.name().to_owned(),
                    clients.to_string(),
                    format!("{:.0}", row.per_second),
                    format!("{:.2}", row.p50_ms),
                    format!("{:.2}", row.p99_ms),
                    row.failed.to_string(),
                ]);
            }
        }
    }
    if !args.json {
        print(&table(&rows));
    }
    memories(args, &subjects, &idle).await?;
    ours.process.start_kill().context("stop the server")?;
    ours.process.wait().await.context("wait for the server's end")?;
    Ok(ExitCode::SUCCESS)
}

async fn memories(args: &ApiArgs, subjects: &[Subject], idle: &[Option<f64>]) -> Result<()> {
    let mut rows = vec![["SERVER", "OBJECTS", "IDLE MIB", "FULL MIB", "FILL SECONDS"].map(str::to_owned)];
    for (subject, idle) in subjects.iter().zip(idle) {
        let started = Instant::now();
        if args.objects > 0 {
            load::fill(&subject.target, args.objects).await.with_context(|| format!("fill {}", subject.name))?;
        }
        let (full, took) = (memory(&subject.pids), started.elapsed().as_secs_f64());
        if args.json {
            print(&format!("{}\n", json!({"server": subject.name, "objects": args.objects, "idle_mib": idle, "full_mib": full, "fill_seconds": took})));
            continue;
        }
        rows.push([subject.name.to_owned(), args.objects.to_string(), mib(*idle), mib(full), format!("{took:.1}")]);
    }
    if !args.json {
        print(&format!("\n{}", table(&rows)));
    }
    Ok(())
}
