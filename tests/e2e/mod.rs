//! From one commit to its clusters: the same walk for every pair of parent and child, each embedded or a real Kubernetes.
//!
//! On a real parent everything is installed from `deploy/`, and each part runs as a process with exactly the ServiceAccount
//! that `deploy/` gives it: a missing rule is a failing test.

mod forbidden;
mod helm;
mod parent;
mod tokens;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::embedded::{self, Keep, Role, Server};
use engine::{CancellationToken, Tasks};
use tokio::sync::Mutex;

use crate::bench::{Process, apply_all, documents, free_port};
use crate::kube::{self, ControlPlane};
use crate::suites::{self, On};
pub(crate) use parent::Parent;

/// One walk at a time: each starts several servers.
pub(crate) static ONE: Mutex<()> = Mutex::const_new(());

/// Where `deploy/` is.
pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// A child cluster.
enum Child {
    Embedded(Box<Server>, PathBuf, Tasks),
    Real(ControlPlane, PathBuf),
}

impl Child {
    async fn embedded(folder: &Path) -> Child {
        let tasks = Tasks::new(&CancellationToken::new());
        let role = Role::Child(simulator::Options::with_nodes(2));
        let server = embedded::start(&Keep::Folder(folder.join("child")), &role, Some(([127, 0, 0, 1], 0).into()), &tasks).await.unwrap();
        let path = folder.join("child.kubeconfig");
        std::fs::write(&path, server.kubeconfig("child").unwrap()).unwrap();
        Child::Embedded(Box::new(server), path, tasks)
    }

    async fn real(assets: &Path) -> Child {
        let plane = ControlPlane::start(assets).await;
        let mut objects = documents(&deploy().join("agent/namespace.yaml"));
        objects.extend(documents(&deploy().join("agent/install.yaml")));
        apply_all(&plane.admin, &objects).await;
        let account = plane.account("clusternet-agent").await;
        Child::Real(plane, account)
    }

    fn admin(&self) -> ::kube::Client {
        match self {
            Child::Embedded(server, ..) => server.admin(),
            Child::Real(plane, _) => plane.admin.clone(),
        }
    }

    /// With which the agent works in the child.
    fn kubeconfig(&self) -> &Path {
        match self {
            Child::Embedded(_, path, _) | Child::Real(_, path) => path,
        }
    }
}

/// The agent of a child, as a process. It begins in Push, so that the way through the tunnel is walked as well. Nobody tells it
/// the parent's CA: it trusts what is signed with the token.
fn agent(parent: &Parent, child: &Child, folder: &Path) -> Process {
    Process::start("agent", Path::new(env!("CARGO_BIN_EXE_anabranch")), folder, &[
        "agent".to_owned(),
        format!("--parent={}", parent.url()),
        format!("--token={}", parent.token()),
        format!("--kubeconfig={}", child.kubeconfig().display()),
        "--name=one".to_owned(),
        "--labels=walk=yes".to_owned(),
        "--sync-mode=push".to_owned(),
        format!("--data-dir={}", folder.join("agent").display()),
        format!("--admin=127.0.0.1:{}", free_port()),
    ])
}

async fn pair(real_parent: bool, real_child: bool) {
    let assets = if real_parent || real_child {
        let Some(assets) = kube::assets() else { return };
        assets
    } else {
        Path::new("")
    };
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let parent = if real_parent { Parent::real(assets, folder.path()).await } else { Parent::embedded(folder.path()).await };
    let child = if real_child { Child::real(assets).await } else { Child::embedded(folder.path()).await };
    let agent = agent(&parent, &child, folder.path());
    walk::walk(&parent, &child.admin(), folder.path()).await;
    if real_parent {
        walk::doors(&parent).await;
    }
    let mut refused = parent.refusals();
    refused.extend(agent.refusals());
    assert!(refused.is_empty(), "a rule is missing in deploy/:\n{}", refused.join("\n"));
    drop(agent);
    if let Child::Embedded(_, _, tasks) = &child {
        tasks.stop(std::time::Duration::from_secs(5)).await;
    }
    parent.stop().await;
    let child = if real_child { "a real" } else { "an embedded" };
    suites::passed(&format!("From a commit to {child} child"), if real_parent { On::Real } else { On::Embedded }, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_parent_and_child() {
    pair(false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_parent_and_real_child() {
    pair(false, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_parent_and_embedded_child() {
    pair(true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_parent_and_child() {
    pair(true, true).await;
}

/// The replicas take over from each other, and nothing is lost when the API server goes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_take_over() {
    let Some(assets) = kube::assets() else { return };
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let mut parent = Parent::real(assets, folder.path()).await;
    let child = Child::embedded(folder.path()).await;
    let agent = agent(&parent, &child, folder.path());
    walk::failures(&mut parent, &child.admin(), folder.path(), assets).await;
    drop(agent);
    if let Child::Embedded(_, _, tasks) = &child {
        tasks.stop(std::time::Duration::from_secs(5)).await;
    }
    parent.stop().await;
}

/// Shared by the parts of an embedded parent.
type Shared = Arc<Server>;
