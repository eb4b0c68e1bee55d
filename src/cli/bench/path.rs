//! `anabranch bench path`: from a push to every branch and every child, with a whole fleet in this process.
//!
//! Everything on the way is what production runs: a durable parent, source, scheduler, controllers, a delivery repository on
//! disk, one agent a child. Only the wires are short: children and agents reach their servers in this process, without TLS.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::clusters::ManagedCluster;
use api::known::annotation;
use apiserver::Identity;
use cluster::Target;
use engine::{Cache, CancellationToken, Tasks};
use git::{Content, ObjectId, Remote};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use program::exit::{print, say};

use super::Scratch;
use crate::args::PathBench;
use crate::demo::{repositories, table, tell_repositories};
use crate::embedded::{self, Keep, PartOptions, Role, Server};

/// A change that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    clusters: usize,
    /// `all` or `one`.
    touched: &'static str,
    rounds: usize,
    /// Median seconds from the end of the push until every touched branch has its new tip.
    tips_s: f64,
    /// Median seconds from the end of the push until every touched child has applied it.
    applied_s: f64,
    /// The slowest round.
    applied_max_s: f64,
    /// Commits to the delivery repository, a round.
    commits: usize,
    /// Bytes of Git objects that one agent read, a round.
    bytes_per_agent: u64,
    /// Most memory the process had, MiB.
    peak_mib: u64,
}

/// Measures and prints.
pub(super) async fn run(args: PathBench) -> Result<ExitCode> {
    ensure!(args.rounds > 0, "--rounds must be at least 1");
    ensure!(args.clusters.iter().all(|count| *count > 0), "--clusters must be at least 1");
    let mut rows = vec![["CLUSTERS", "TOUCHED", "TIPS S", "APPLIED S", "SLOWEST S", "COMMITS", "BYTES/AGENT", "PEAK MIB"].map(str::to_owned)];
    for count in &args.clusters {
        let scratch = Scratch::new(args.dir.as_deref(), &count.to_string())?;
        for row in fleet(*count, args.rounds, scratch.path()).await? {
            if args.json {
                print(&format!("{}\n", serde_json::to_string(&row)?));
            }
            rows.push([
                row.clusters.to_string(),
                row.touched.to_owned(),
                format!("{:.3}", row.tips_s),
                format!("{:.3}", row.applied_s),
                format!("{:.3}", row.applied_max_s),
                row.commits.to_string(),
                row.bytes_per_agent.to_string(),
                row.peak_mib.to_string(),
            ]);
        }
    }
    if !args.json {
        print(&table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn name_of(index: usize) -> String {
    format!("c{index:05}")
}

/// Commits of one cluster as the parent knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Commits {
    /// What a round began with.
    before: Option<String>,
    delivered: Option<String>,
    applied: Option<String>,
}

impl Commits {
    fn moved(&self) -> bool {
        self.delivered.is_some() && self.delivered != self.before
    }

    fn done(&self) -> bool {
        self.moved() && self.applied == self.delivered
    }
}

/// The clusters of a round. Counted as they change: looking at all of them at each change would cost more than what is measured.
#[derive(Debug, Default)]
struct Round {
    clusters: BTreeMap<String, Commits>,
    moved: usize,
    done: usize,
}

impl Round {
    /// Whether the cluster's commits have changed; heartbeats of a large fleet never end.
    fn note(&mut self, cluster: &ManagedCluster) -> bool {
        let Some(name) = &cluster.metadata.name else { return false };
        let commits = self.clusters.entry(name.clone()).or_default();
        let old = commits.clone();
        let (moved, done) = (commits.moved(), commits.done());
        let told = |key: &str| cluster.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned();
        commits.delivered = told(annotation::DELIVERY_COMMIT);
        commits.applied = told(annotation::APPLIED_COMMIT);
        self.moved = self.moved + usize::from(commits.moved()) - usize::from(moved);
        self.done = self.done + usize::from(commits.done()) - usize::from(done);
        *commits != old
    }

    /// Begins a round: nothing has moved.
    fn begin(&mut self) {
        for commits in self.clusters.values_mut() {
            commits.before.clone_from(&commits.delivered);
        }
        (self.moved, self.done) = (0, 0);
    }
}

/// The fleet as the parent knows it.
struct Fleet {
    round: Arc<Mutex<Round>>,
    changed: watch::Receiver<u64>,
}

impl Fleet {
    fn follow(client: Client, tasks: &Tasks) -> Self {
        let (bell, changed) = watch::channel(0);
        let clusters: Cache<ManagedCluster> = Cache::new();
        let round = Arc::new(Mutex::new(Round::default()));
        let noted = round.clone();
        clusters.on_change(move |change| {
            if change.new.is_some_and(|cluster| noted.lock().note(cluster)) {
                bell.send_modify(|count| *count += 1);
            }
        });
        clusters.follow("clusters", client, Target::of::<ManagedCluster>(""), tasks);
        Self { round, changed }
    }

    /// Waits until `touched` clusters have another delivered commit than when the round began, and then until those are applied;
    /// both instants.
    async fn moved(&self, touched: usize) -> Result<(Instant, Instant)> {
        let mut changed = self.changed.clone();
        let mut tips = None;
        let wait = async {
            loop {
                changed.borrow_and_update();
                let (moved, done) = {
                    let round = self.round.lock();
                    (round.moved, round.done)
                };
                if moved >= touched {
                    let tips = *tips.get_or_insert_with(Instant::now);
                    if done == moved {
                        return Ok((tips, Instant::now()));
                    }
                }
                changed.changed().await.context("watch the clusters")?;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| {
            let round = self.round.lock();
            format!("{} of {touched} branches have moved after {PATIENCE:?}; {} clusters have applied what moved", round.moved, round.done)
        })?
    }
}

/// The source repository: one Subscription for the fleet, an override for one cluster.
fn files(fleet: &str, one: &str, special: &str) -> BTreeMap<String, Content> {
    let mut files = BTreeMap::new();
    let mut feeds = String::from("  - {apiVersion: v1, kind: Namespace, name: yard}\n");
    let mut put = |path: String, text: String| {
        files.insert(path, Content::new(text.into_bytes()));
    };
    put("yard/namespace.yaml".into(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: yard}\n".into());
    for n in 0..10 {
        let mode = if n == 0 { fleet } else { "same" };
        put(format!("yard/map-{n}.yaml"), format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{n}, namespace: yard}}\ndata: {{mode: {mode:?}}}\n"));
        feeds.push_str(&format!("  - {{apiVersion: v1, kind: ConfigMap, name: map-{n}, namespace: yard}}\n"));
    }
    put(
        "subscription.yaml".into(),
        format!(
            "apiVersion: apps.clusternet.io/v1alpha1\nkind: Subscription\nmetadata: {{name: yard, namespace: default}}\nspec:\n  subscribers:\n  - clusterAffinity: {{}}\n  feeds:\n{feeds}"
        ),
    );
    put(
        "one.yaml".into(),
        format!(
            "apiVersion: apps.clusternet.io/v1alpha1\nkind: Localization\nmetadata: {{name: one, namespace: clusternet-{special}}}\nspec:\n  overridePolicy: ApplyNow\n  feed: {{apiVersion: v1, kind: ConfigMap, name: map-1, namespace: yard}}\n  overrides:\n  - {{name: one, type: MergePatch, value: '{{\"data\":{{\"one\":\"{one}\"}}}}'}}\n"
        ),
    );
    files
}

/// Starts a fleet, changes it, and measures.
async fn fleet(count: usize, rounds: usize, dir: &Path) -> Result<Vec<Row>> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let measured = measure(count, rounds, dir, &tasks).await;
    shutdown.cancel();
    tasks.stop(Duration::from_secs(20)).await;
    measured
}

async fn measure(count: usize, rounds: usize, dir: &Path, tasks: &Tasks) -> Result<Vec<Row>> {
    let git = git::Git::new(git::Options { directory: dir.join("git"), local_threads: 4, network_threads: 4 });
    let source = repositories::make(&git, dir).await?;
    // Loopback, so that the parent has keys and its CA; the agents do not use it.
    let parent = embedded::start(&Keep::Folder(dir.join("parent")), &Role::Parent, Some(([127, 0, 0, 1], 0).into()), tasks).await?;
    embedded::prepare_parent(&parent.admin()).await?;
    let mut options = PartOptions::usual(git.clone());
    options.controllers.git = Some(git.clone());
    embedded::start_parts(&parent, options, tasks);
    tell_repositories(&parent, dir).await?;
    let fleet = Fleet::follow(parent.admin(), tasks);

    // The last cluster's agent has a Git pool of its own, so that what one agent reads can be counted.
    let apart = git::Git::new(git::Options { directory: dir.join("git-apart"), local_threads: 1, network_threads: 1 });
    let mut children = Vec::with_capacity(count);
    for index in 0..count {
        let git = if index + 1 == count { &apart } else { &git };
        children.push(start_child(&name_of(index), &parent, git, tasks).await?);
    }
    let special = name_of(count - 1);
    let delivery: git::Url = format!("file://{}/delivery.git", dir.display()).parse().context("name the delivery repository")?;
    let counted = apart.remote(&delivery, &git::Access::anonymous()).await?;

    let began = Instant::now();
    let mut tip = repositories::commit(&source, None, files("0", "0", &special), "Begin").await?;
    fleet.moved(count).await?;
    settle(&fleet, &counted).await;
    say(&format!("{count} clusters have their first state after {:.2} s", began.elapsed().as_secs_f64()));

    let mut rows = Vec::new();
    for touched in ["all", "one"] {
        let mut taken = Vec::new();
        let (mut commits, mut bytes) = (0, 0);
        reset_peak();
        for round in 1..=rounds {
            let (all, one) = if touched == "all" { (round.to_string(), "0".to_owned()) } else { (rounds.to_string(), round.to_string()) };
            fleet.round.lock().begin();
            let read = counted.bytes_received();
            tip = push(&source, tip, &all, &one, &special).await?;
            let pushed = Instant::now();
            let (tips, applied) = fleet.moved(if touched == "all" { count } else { 1 }).await?;
            taken.push(((tips - pushed).as_secs_f64(), (applied - pushed).as_secs_f64()));
            settle(&fleet, &counted).await;
            commits += fleet.round.lock().moved;
            bytes += counted.bytes_received() - read;
            verify(&children, &all, &one).await?;
        }
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = taken.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        rows.push(Row {
            clusters: count,
            touched,
            rounds,
            tips_s: median(|t| t.0),
            applied_s: median(|t| t.1),
            applied_max_s: taken.iter().map(|t| t.1).fold(0.0, f64::max),
            commits: commits / rounds,
            bytes_per_agent: bytes / rounds as u64,
            peak_mib: peak_mib(),
        });
    }
    Ok(rows)
}

async fn push(source: &Remote, tip: ObjectId, all: &str, one: &str, special: &str) -> Result<ObjectId> {
    repositories::commit(source, Some(tip), files(all, one, special), &format!("Change to {all} and {one}")).await
}

/// Waits until nothing has moved for a while, so that one round does not pay for another.
async fn settle(fleet: &Fleet, counted: &Remote) {
    let state = || (fleet.changed.borrow().to_owned(), counted.bytes_received());
    let mut last = state();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = state();
        if now == last {
            return;
        }
        last = now;
    }
}

/// Asks every child whether it has what was pushed.
async fn verify(children: &[Server], all: &str, one: &str) -> Result<()> {
    for (index, child) in children.iter().enumerate() {
        let maps: Api<ConfigMap> = Api::namespaced(child.admin(), "yard");
        let value = |map: ConfigMap, key: &str| map.data.and_then(|data| data.get(key).cloned()).unwrap_or_default();
        let found = value(maps.get("map-0").await.context("read the ConfigMap map-0 of a child")?, "mode");
        ensure!(found == all, "child {} has {found:?}, wanted {all:?}: it says it applied what it did not", name_of(index));
        if index + 1 == children.len() {
            let found = value(maps.get("map-1").await.context("read the ConfigMap map-1 of a child")?, "one");
            ensure!(found == one, "child {} has {found:?}, wanted {one:?}", name_of(index));
        }
    }
    Ok(())
}

async fn start_child(name: &str, parent: &Server, git: &git::Git, tasks: &Tasks) -> Result<Server> {
    let namespace = format!("clusternet-{name}");
    let client = parent.admin();
    let made: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &made).await.context("create a dedicated namespace")?;
    let made: ManagedCluster = serde_json::from_value(json!({
        "apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterId": uuid_of(name), "clusterType": "StandardCluster", "syncMode": "Pull"},
    }))?;
    Api::namespaced(client, &namespace).create(&PostParams::default(), &made).await.context("create a ManagedCluster")?;
    let child = embedded::start(&Keep::Memory, &Role::Child(simulator::Options::with_nodes(1)), None, tasks).await?;
    // As the fleet's administrator: what the roles of real agents allow is not what is measured.
    let to_parent = parent.client(Identity::master(name));
    let connect: agent::Connect = Arc::new(move |_, _| Ok(to_parent.clone()));
    let mut options = agent::Options::usual(agent::Parent::with("in-process://parent", connect), "unused", git.clone());
    options.join = agent::Join::Assigned { namespace, cluster_name: name.to_owned(), auth: cluster::Auth::Anonymous };
    options.cluster_name = name.to_owned();
    options.lease = agent::Lease::RELAXED;
    embedded::start_agent(child.admin(), options, tasks.token(), tasks);
    Ok(child)
}

/// An id in the form of a UUID, from the digits of the name.
fn uuid_of(name: &str) -> String {
    format!("11111111-2222-3333-4444-{:0>12}", name.trim_start_matches('c'))
}

/// Forgets the most memory this process had.
fn reset_peak() {
    // Refused where the kernel does not know it: then the figure is that of the whole run.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory this process had since then, MiB.
fn peak_mib() -> u64 {
    super::status_kib("self", "VmHWM").unwrap_or(0) / 1024
}
