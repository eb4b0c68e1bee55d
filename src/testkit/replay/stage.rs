//! The stage of a case: a parent with all parts, and three children with agents, as the recorder had them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use api::clusters::SyncMode;
use cli::embedded::{self, Keep, PartOptions, Role};
use cluster::Endpoint;
use engine::{CancellationToken, Tasks};
use serde_json::Value;

use super::case::Places;
use super::Given;
use super::wire::Server;
use crate::serve::{repository, serve};

/// Name, mode and labels of the recorder's children.
const CHILDREN: [(&str, SyncMode, [(&str, &str); 3]); 3] = [
    ("harbor", SyncMode::Dual, [("tier", "edge"), ("zone", "north"), ("stage", "live")]),
    ("meadow", SyncMode::Push, [("tier", "core"), ("zone", "north"), ("stage", "live")]),
    ("summit", SyncMode::Pull, [("tier", "core"), ("zone", "south"), ("stage", "trial")]),
];

/// How long the agents may take to join.
const JOIN: Duration = Duration::from_secs(300);

/// A running stage.
pub(super) struct Stage {
    parent: Server,
    children: BTreeMap<String, Server>,
    kubeconfigs: BTreeMap<String, String>,
    places: Places,
    shutdown: CancellationToken,
    tasks: Tasks,
    /// A parent that was given lives as long as the stage.
    given: Option<Given>,
}

/// A parent, and how it is reached.
struct Parent {
    server: Server,
    url: String,
    ca: String,
    token: String,
    kubeconfig: Option<String>,
    given: Option<Given>,
}

impl Parent {
    /// One in this process.
    async fn embedded(options: PartOptions, tasks: &Tasks) -> Result<Parent> {
        let parent = embedded::start(&Keep::Memory, &Role::Parent, Some(([127, 0, 0, 1], 0).into()), tasks).await?;
        embedded::prepare_parent(&parent.admin()).await?;
        let token = embedded::bootstrap_token(&parent.admin()).await?.reveal().to_owned();
        embedded::start_parts(&parent, options, tasks);
        let server = Server::new(parent.admin(), Some(parent.api.store().clone()));
        Ok(Parent { server, token, ca: parent.ca(), kubeconfig: parent.kubeconfig("parent"), url: parent.url, given: None })
    }
}

impl Stage {
    /// Sets up the stage that a case wants, on a parent in this process or on the one that is given.
    pub(super) async fn open(case: &Path, charts: &Path, given: Option<Given>) -> Result<Stage> {
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new(&shutdown);
        let helper = serve(Arc::new(repository(charts)?), &tasks).await?;
        let settings = std::fs::read_to_string(case.join("case.yaml")).unwrap_or_default();
        let scheduler_only = case.join("clusters.yaml").exists() || settings.contains("stage: sched");
        let listen = Some(([127, 0, 0, 1], 0).into());
        let directory = std::env::temp_dir().join(format!("anabranch-replay-{}-{}", std::process::id(), rand_suffix(case)));
        let git = git::Git::new(git::Options { directory, local_threads: 1, network_threads: 1 });
        let mut options = PartOptions::usual(git.clone());
        options.source = false;
        // What the recordings show is the original's policy; ours keeps bindings when nothing fits.
        let usual = scheduler::Policy::clusternet();
        let policy = scheduler::Policy {
            fail_over: !settings.contains("failOver: false"),
            percentage_of_clusters_to_tolerate: if settings.contains("toleration: false") { 0 } else { usual.percentage_of_clusters_to_tolerate },
            ..usual
        };
        if scheduler_only {
            // There the deployer was the only controller, so that clusters need no heartbeat.
            options.controllers.disabled.extend(["clusterlifecycle", "crrapprover"].map(str::to_owned));
        }
        options.scheduler.framework = plan::placement::Framework::with_policy(policy);
        let parent = match given {
            Some(given) => {
                embedded::start_inner_parts(&given.admin, options, &tasks);
                Parent { server: Server::new(given.admin.clone(), None), url: given.url.clone(), ca: given.ca.clone(), token: given.token.clone(), kubeconfig: None, given: Some(given) }
            }
            None => Parent::embedded(options, &tasks).await?,
        };
        let mut stage = Stage {
            parent: parent.server,
            children: BTreeMap::new(),
            kubeconfigs: parent.kubeconfig.into_iter().map(|text| ("parent".to_owned(), text)).collect(),
            places: Places { charts: helper.replace("127.0.0.1", "localhost"), predictor: helper, cluster_ids: BTreeMap::new() },
            shutdown,
            tasks: tasks.clone(),
            given: parent.given,
        };
        if scheduler_only {
            return Ok(stage);
        }
        for (name, mode, labels) in CHILDREN {
            let child = embedded::start(&Keep::Memory, &Role::Child(simulator::Options::with_nodes(0)), listen, &tasks).await?;
            let endpoint = Endpoint { url: parent.url.clone(), ca_pem: Some(parent.ca.clone().into_bytes()), ..Endpoint::default() };
            let mut options = agent::Options::usual(agent::Parent::at(endpoint), &parent.token, git.clone());
            options.cluster_name = name.to_owned();
            options.cluster_namespace = format!("clusternet-{name}");
            options.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            options.sync_mode = mode;
            options.app_pusher = true;
            options.child_url.clone_from(&child.url);
            options.lease = agent::Lease::RELAXED;
            options.tunnel = Some(Arc::new(agent::HubTunnel::to_url(&child.url)));
            embedded::start_agent(child.admin(), options, tasks.token(), &tasks);
            stage.kubeconfigs.extend(child.kubeconfig(name).map(|text| (name.to_owned(), text)));
            stage.children.insert(name.to_owned(), Server::new(child.admin(), Some(child.api.store().clone())));
        }
        stage.joined().await?;
        Ok(stage)
    }

    /// Waits until all clusters are there, ready and reachable.
    async fn joined(&mut self) -> Result<()> {
        let start = tokio::time::Instant::now();
        loop {
            let clusters = self.parent.items("/apis/clusters.clusternet.io/v1beta1/managedclusters").await?;
            let secrets = self.parent.items("/api/v1/secrets?fieldSelector=metadata.name%3Dchild-cluster-deployer").await?;
            let ready = clusters.iter().filter(|cluster| cluster["status"]["appPusher"] == true && cluster["status"]["readyz"] == true);
            if ready.count() == CHILDREN.len() && secrets.len() == CHILDREN.len() {
                for cluster in &clusters {
                    let text = |path: &str| cluster.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                    self.places.cluster_ids.insert(text("/metadata/name"), text("/spec/clusterId"));
                }
                return Ok(());
            }
            if start.elapsed() > JOIN {
                bail!("{} of {} clusters joined in time", clusters.len(), CHILDREN.len());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The parent.
    pub(super) fn parent(&self) -> &Server {
        &self.parent
    }

    /// A child.
    pub(super) fn child(&self, name: &str) -> Option<&Server> {
        self.children.get(name)
    }

    /// Ways into the servers for other programs, by name.
    pub(super) fn kubeconfigs(&self) -> &BTreeMap<String, String> {
        &self.kubeconfigs
    }

    /// All children.
    pub(super) fn children(&self) -> &BTreeMap<String, Server> {
        &self.children
    }

    /// How much was written to each server so far: equal answers mean that nothing was.
    pub(super) async fn revisions(&self) -> Result<Vec<String>> {
        let mut all = Vec::with_capacity(1 + self.children.len());
        for server in std::iter::once(&self.parent).chain(self.children.values()) {
            all.push(server.revision().await?);
        }
        Ok(all)
    }

    /// Whether the parent is the one that was given.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// What stands for something of this run.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Cluster id and name of every child.
    pub(super) fn cluster_ids(&self) -> Vec<(String, String)> {
        self.places.cluster_ids.iter().map(|(name, id)| (id.clone(), name.clone())).collect()
    }

    /// Ends everything.
    pub(super) async fn close(self) {
        self.shutdown.cancel();
        self.tasks.stop(Duration::from_secs(3)).await;
    }
}

fn rand_suffix(case: &Path) -> String {
    case.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
