//! `anabranch demo`: parent, three child clusters and two repositories on this machine, and what happens between them.

pub(crate) mod repositories;
mod watch;

pub(crate) use watch::table;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::clusters::SyncMode;
use cluster::Endpoint;
use engine::{CancellationToken, Tasks};
use serde_json::json;
use tokio::time::Instant;
use program::exit::{print, say};

use crate::args::DemoArgs;
use crate::embedded::{self, Keep, PartOptions, Role, Server};

/// A child of the demo.
struct Child {
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    mode: SyncMode,
}

/// Three regions; the last has no access to Git and is served by Push.
const CHILDREN: [Child; 3] = [
    Child { name: "harbor", labels: &[("region", "north"), ("tier", "edge")], mode: SyncMode::Pull },
    Child { name: "meadow", labels: &[("region", "south"), ("tier", "core")], mode: SyncMode::Pull },
    Child { name: "summit", labels: &[("region", "west"), ("tier", "core")], mode: SyncMode::Push },
];

/// Simulated nodes of each child.
const NODES: u32 = 2;
/// The namespace of the demo's own GitSource and GitTarget.
const NAMESPACE: &str = api::known::namespace::SYSTEM;

/// Runs the demo.
pub(crate) async fn run(args: DemoArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    std::fs::create_dir_all(&args.dir).with_context(|| format!("make the folder {}", args.dir.display()))?;
    let dir = args.dir.canonicalize()?;
    let git = git::Git::new(git::Options { directory: dir.join("git"), local_threads: 4, network_threads: 4 });
    let fresh = repositories::prepare(&git, &dir, args.examples.as_deref()).await?;
    say(&if fresh {
        format!("made the repositories {}/source.git and {}/delivery.git", args.dir.display(), args.dir.display())
    } else {
        format!("found the repositories in {}", args.dir.display())
    });

    let parent = embedded::start(&Keep::Folder(dir.join("parent")), &Role::Parent, Some(args.listen), &tasks).await?;
    let kubeconfig = parent.kubeconfig("anabranch-demo").context("the parent listens")?;
    embedded::write_private(&dir.join("kubeconfig"), &kubeconfig)?;
    say(&format!("parent ready at {} after {} ms", parent.url, started.elapsed().as_millis()));
    embedded::prepare_parent(&parent.admin()).await?;
    let token = embedded::bootstrap_token(&parent.admin()).await?;
    let mut options = PartOptions::usual(git.clone());
    options.controllers.git = Some(git.clone());
    embedded::start_parts(&parent, options, &tasks);
    tell_repositories(&parent, &dir).await?;

    let watching = watch::start(&parent.admin(), &tasks);
    for child in &CHILDREN {
        start_child(child, &parent, &dir, &git, &token, &tasks).await?;
    }

    let deadline = args.once.then(|| started + args.timeout);
    let converged = wait(&watching, deadline, &shutdown).await;
    match converged {
        Ok(true) => say(&format!("all healthy after {:.1} s\n", started.elapsed().as_secs_f64())),
        Ok(false) => {}
        Err(error) => {
            print(&watching.table());
            stop(&shutdown, &tasks).await;
            return Err(error);
        }
    }
    print(&watching.table());
    if !args.once && !shutdown.is_cancelled() {
        say(&invitation(&dir));
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
        say("stopping");
    }
    stop(&shutdown, &tasks).await;
    Ok(ExitCode::SUCCESS)
}

async fn stop(shutdown: &CancellationToken, tasks: &Tasks) {
    shutdown.cancel();
    tasks.stop(Duration::from_secs(5)).await;
}

/// True when all is healthy; false when the user interrupted.
async fn wait(watching: &watch::Watching, deadline: Option<Instant>, shutdown: &CancellationToken) -> Result<bool> {
    let end = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = watching.converged(CHILDREN.len()) => Ok(true),
        () = end => bail!("not everything became healthy in time: {}", watching.waiting_for(CHILDREN.len())),
        _ = tokio::signal::ctrl_c() => {
            shutdown.cancel();
            Ok(false)
        }
    }
}

async fn start_child(child: &Child, parent: &Server, dir: &Path, git: &git::Git, token: &embedded::BootstrapToken, tasks: &Tasks) -> Result<()> {
    let folder = dir.join("children").join(child.name);
    let mut simulated = simulator::Options::with_nodes(NODES);
    simulated.node_labels.extend(child.labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let server = embedded::start(&Keep::Folder(folder.clone()), &Role::Child(simulated), Some(([127, 0, 0, 1], 0).into()), tasks).await?;
    if let Some(kubeconfig) = server.kubeconfig(child.name) {
        embedded::write_private(&folder.join("kubeconfig"), &kubeconfig)?;
    }
    let endpoint = Endpoint { url: parent.url.clone(), ca_pem: Some(parent.ca().into_bytes()), ..Endpoint::default() };
    let mut options = agent::Options::usual(agent::Parent::at(endpoint), token.reveal(), git.clone());
    options.cluster_name = child.name.to_owned();
    options.cluster_namespace = format!("clusternet-{}", child.name);
    options.labels = child.labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    options.sync_mode = child.mode;
    options.app_pusher = true;
    options.child_url.clone_from(&server.url);
    options.lease = agent::Lease::RELAXED;
    // Always the same one: after a crash it takes its lease up again, where another would wait until that runs out.
    options.identity = format!("anabranch-demo-{}", child.name);
    options.tunnel = Some(Arc::new(agent::HubTunnel::to_url(&server.url)));
    embedded::start_agent(server.admin(), options, tasks.token(), tasks);
    Ok(())
}

/// Makes the GitSource and the GitTarget of the repositories in `dir`.
pub(crate) async fn tell_repositories(parent: &Server, dir: &Path) -> Result<()> {
    let url = |name: &str| format!("file://{}", dir.join(name).display());
    let dynamic = cluster::Dynamic::new(parent.admin());
    let how = cluster::dynamic::ApplyAs { manager: "anabranch-demo", force: true, dry_run: false };
    let resource = |kind: &str, plural: &str| cluster::Resource {
        group: "gitops.anabranch.io".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
    };
    let object = |kind: &str, name: &str, spec: serde_json::Value| {
        json!({"apiVersion": "gitops.anabranch.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    };
    let source = object("GitSource", "demo", json!({"url": url("source.git"), "ref": {"branch": "main"}, "prune": true}));
    let target = object("GitTarget", "demo", json!({"url": url("delivery.git")}));
    dynamic.apply(&resource("GitTarget", "gittargets"), &target, how).await.context("apply the demo's GitTarget")?;
    dynamic.apply(&resource("GitSource", "gitsources"), &source, how).await.context("apply the demo's GitSource")?;
    Ok(())
}

/// What to try.
fn invitation(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "\n\
The demo stays up until Ctrl-C. In another terminal:\n\n  \
export KUBECONFIG={dir}/kubeconfig\n\n\
1. Look around:\n   \
kubectl get subscriptions,managedclusters,bases,descriptions -A\n   \
kubectl get --raw /apis/proxies.clusternet.io/v1alpha1/sockets/summit/proxy/direct/api/v1/pods | head -c 300\n\
2. Change something, push it, see it arrive:\n   \
git clone {dir}/source.git work && cd work && grep -rn 'replicas:' . | head\n   \
(edit, then) git commit -am 'Scale' && git push\n   \
git -C {dir}/delivery.git log --stat -1 clusters/harbor\n\
3. Take a cluster away and see its work move:\n   \
kubectl label managedcluster -n clusternet-meadow meadow region-\n"
    )
}
