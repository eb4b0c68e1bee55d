//! Clusternet's own parts beside ours. Runs where CLUSTERNET_BIN names a folder with its built parts (clusternet-hub,
//! clusternet-scheduler, clusternet-controller-manager, clusternet-agent); nothing of it is in this project.
//!
//! | test | who is whose |
//! |---|---|
//! | `joins::their_agents_join_our_parent` | our parent on a real Kubernetes, their agents: one that pulls, one that is pushed to |
//! | `joins::our_agents_join_their_parent` | their hub, scheduler and controllers, our agents: one that pulls, one that is pushed to |
//! | `plugin::their_kubectl_plugin_on_our_parent` | our parent, their plugin (kubectl-clusternet, where it is in the folder too) |
//! | `takeover::*` | their parent with live Subscriptions, switched to our parts in place and back: nothing is written in the child |
//!
//! And clients that everybody uses: `clients::*` is a Go program on client-go and controller-runtime, built where Go is.

mod app;
mod clients;
mod joins;
mod plugin;
mod takeover;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{Process, apply_all, bootstrap_token, documents, free_port, until};
use crate::kube::{self, ControlPlane};

/// Their bootstrap token here; any would do.
pub(crate) const TOKEN: &str = "07401b.f395accd246ae52d";

/// Where their parts are; none where this test cannot run, which is told.
fn theirs() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CLUSTERNET_BIN")?);
    let parts = ["clusternet-hub", "clusternet-scheduler", "clusternet-controller-manager", "clusternet-agent"];
    let missing: Vec<&str> = parts.into_iter().filter(|part| !folder.join(part).is_file()).collect();
    assert!(missing.is_empty(), "CLUSTERNET_BIN={} lacks {}", folder.display(), missing.join(", "));
    Some(folder)
}

fn ready_to_run() -> Option<(PathBuf, &'static Path)> {
    let Some(theirs) = theirs() else {
        eprintln!("skipped, Clusternet's parts are missing: no CLUSTERNET_BIN");
        return None;
    };
    Some((theirs, kube::assets()?))
}

async fn get(client: &::kube::Client, path: &str) -> Option<Value> {
    cluster::Dynamic::new(client.clone()).call("GET", path, None, None).await.ok()
}

/// What every parent has, whoever works on it: definitions, namespaces, the bootstrap token and its rights.
pub(crate) async fn prepare_parent(plane: &ControlPlane) {
    cli::embedded::prepare_parent(&plane.admin).await.unwrap();
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusternet-mcs"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        bootstrap_token(TOKEN, None),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "clusternet-hub-proxy", "namespace": "clusternet-system"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "clusternet-hub-proxy", "namespace": "clusternet-system", "annotations": {"kubernetes.io/service-account.name": "clusternet-hub-proxy"}},
        }),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "clusternet-hub", "namespace": "clusternet-system"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}),
    ];
    apply_all(&plane.admin, &objects).await;
    // Who may use the tunnels is what an installation says.
    let mut installed = documents(&crate::e2e::deploy().join("parent/install.yaml"));
    installed.retain(|object| object["metadata"]["name"] == "clusternet:system:socketsproxy");
    assert_eq!(installed.len(), 2, "a role and its binding");
    apply_all(&plane.admin, &installed).await;
}

async fn prepare_child(plane: &ControlPlane) {
    let mut objects = documents(&crate::e2e::deploy().join("agent/namespace.yaml"));
    let installed = documents(&crate::e2e::deploy().join("agent/install.yaml"));
    // Deployments would only make Pods that nobody runs.
    objects.extend(installed.into_iter().filter(|object| object["kind"] != "Deployment"));
    apply_all(&plane.admin, &objects).await;
}

async fn lead_to(plane: &ControlPlane, port: u16, trusted: bool) {
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    for group in ["proxies.clusternet.io", "shadow"] {
        // A certificate authority and no verification exclude each other.
        let _ = dynamic.call("DELETE", &format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.{group}"), None, None).await;
    }
    let services: Vec<Value> = [("proxies.clusternet.io", 1000), ("shadow", 1)]
        .into_iter()
        .map(|(group, priority)| {
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1alpha1.{group}")},
                "spec": {"group": group, "version": "v1alpha1", "groupPriorityMinimum": priority, "versionPriority": 100, "insecureSkipTLSVerify": !trusted,
                    "service": {"name": "clusternet-hub", "namespace": "clusternet-system", "port": port}},
            })
        })
        .collect();
    apply_all(&plane.admin, &services).await;
}

async fn hub_answers(plane: &ControlPlane) {
    until("the hub answers through the parent", || get(&plane.admin, "/apis/proxies.clusternet.io/v1alpha1")).await;
}

/// Our parts on a parent, as its administrator.
async fn our_parts(plane: &ControlPlane, folder: &Path) -> Vec<Process> {
    some_of_our_parts(plane, folder, &["hub", "scheduler", "controllers"]).await
}

/// Some of them, the hub among them.
pub(crate) async fn some_of_our_parts(plane: &ControlPlane, folder: &Path, which: &[&str]) -> Vec<Process> {
    let port = free_port();
    lead_to(plane, port, true).await;
    let ours = Path::new(env!("CARGO_BIN_EXE_anabranch"));
    let mut parts = Vec::new();
    for &part in which {
        let mut arguments = vec![part.to_owned(), format!("--kubeconfig={}", plane.kubeconfig.display()), format!("--admin=127.0.0.1:{}", free_port())];
        if part == "hub" {
            arguments.push(format!("--listen=127.0.0.1:{port}"));
        }
        if part != "scheduler" {
            arguments.push(format!("--data-dir={}", folder.join(part).display()));
        }
        parts.push(Process::start(&format!("our-{part}"), ours, folder, &arguments));
    }
    hub_answers(plane).await;
    parts
}

/// Their three parts on a parent, as its administrator.
async fn their_parts(bin: &Path, plane: &ControlPlane, folder: &Path) -> Vec<Process> {
    let port = free_port();
    lead_to(plane, port, false).await;
    let kubeconfig = plane.kubeconfig.display();
    let usual = |name: &str, port: u16| {
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", folder.join(format!("{name}-certificates")).display()),
        ]
    };
    let mut hub = usual("hub", port);
    hub.extend([
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--feature-gates=SocketConnection=true,ShadowAPI=true".to_owned(),
        "--reserved-namespace=clusternet-reserved".to_owned(),
        format!("--peer-port={}", free_port()),
        "--tls-min-version=VersionTLS12".to_owned(),
    ]);
    let mut scheduler = usual("scheduler", free_port());
    scheduler.extend(["--leader-elect=false".to_owned(), "--feature-gates=FailOver=true,FeasibleClustersToleration=true".to_owned()]);
    let mut manager = usual("manager", free_port());
    manager.extend([
        "--leader-elect=false".to_owned(),
        "--reserved-namespace=clusternet-reserved".to_owned(),
        "--feature-gates=SocketConnection=true,Deployer=true,FeedInUseProtection=true,FeedInventory=true,ClusterInit=false".to_owned(),
        "--controllers=*".to_owned(),
    ]);
    let start = |name: &str, arguments: Vec<String>| Process::start_with(&format!("their-{name}"), &bin.join(format!("clusternet-{name}")), folder, &arguments, &their_environment());
    let parts = vec![start("hub", hub), start("scheduler", scheduler), start("controller-manager", manager)];
    hub_answers(plane).await;
    parts
}

fn their_environment() -> Vec<(&'static str, &'static str)> {
    vec![("SYSTEM_NAMESPACE", "clusternet-system"), ("RESERVED_NAMESPACE", "clusternet-reserved"), ("AGENT_NAMESPACE", "clusternet-system"), ("POD_NAME", "agent0")]
}

/// What an agent of either kind is told.
struct Joins<'a> {
    parent: &'a ControlPlane,
    child: &'a ControlPlane,
    folder: &'a Path,
    name: &'a str,
    /// Pull, Push or Dual.
    mode: &'a str,
}

fn their_agent(bin: &Path, joins: &Joins<'_>) -> Process {
    let port = free_port();
    let arguments = [
        format!("--kubeconfig={}", joins.child.kubeconfig.display()),
        format!("--cluster-reg-token={TOKEN}"),
        format!("--cluster-reg-parent-url={}", joins.parent.url),
        "--leader-elect=true".to_owned(),
        "--leader-elect-resource-namespace=clusternet-system".to_owned(),
        "--feature-gates=SocketConnection=true,AppPusher=true,Recovery=true,Predictor=true".to_owned(),
        format!("--cluster-sync-mode={}", joins.mode),
        "--use-metrics-server=false".to_owned(),
        "--predictor-direct-access=false".to_owned(),
        format!("--predictor-port={}", free_port()),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", joins.folder.join(format!("{}-certificates", joins.name)).display()),
        format!("--cluster-reg-name={}", joins.name),
        "--cluster-labels=walk=yes".to_owned(),
    ];
    Process::start_with(&format!("their-agent-{}", joins.name), &bin.join("clusternet-agent"), joins.folder, &arguments, &their_environment())
}

fn our_agent(joins: &Joins<'_>) -> Process {
    let ca = joins.folder.join("parent-ca.crt");
    std::fs::write(&ca, &joins.parent.ca).unwrap();
    Process::start(&format!("our-agent-{}", joins.name), Path::new(env!("CARGO_BIN_EXE_anabranch")), joins.folder, &[
        "agent".to_owned(),
        format!("--parent={}", joins.parent.url),
        format!("--token={TOKEN}"),
        format!("--parent-ca={}", ca.display()),
        format!("--kubeconfig={}", joins.child.kubeconfig.display()),
        format!("--name={}", joins.name),
        "--labels=walk=yes".to_owned(),
        format!("--sync-mode={}", joins.mode.to_lowercase()),
        format!("--predictor-port={}", free_port()),
        format!("--data-dir={}", joins.folder.join(format!("agent-{}", joins.name)).display()),
        format!("--admin=127.0.0.1:{}", free_port()),
    ])
}

/// The ManagedCluster of this name, once its agent has reported.
async fn joined(plane: &ControlPlane, name: &str) -> Value {
    until(&format!("{name} joins and reports"), || async {
        let list = get(&plane.admin, "/apis/clusters.clusternet.io/v1beta1/managedclusters").await?;
        let one = list["items"].as_array()?.iter().find(|one| one["metadata"]["name"] == name)?.clone();
        let ready = one["status"]["conditions"].as_array()?.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        (ready && one["status"]["k8sVersion"].is_string()).then_some(one)
    })
    .await
}
