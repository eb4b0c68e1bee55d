//! Clusternet's own parts beside ours. Runs where CLUSTERNET_BIN names a folder with its built parts (clusternet-hub,
//! clusternet-scheduler, clusternet-controller-manager, clusternet-agent); nothing of it is in this project.
//!
//! | test | who is whose |
//! |---|---|
//! | `their_agent_joins_our_parent` | our parent on a real Kubernetes, their agent |
//! | `our_agent_joins_their_parent` | their hub, scheduler and controllers, our agent |
//! | `their_kubectl_plugin_on_our_parent` | our parent, their plugin (kubectl-clusternet, where it is in the folder too) |
//! | `a_parent_is_taken_over` | their parent with a live Subscription, switched to our parts in place: nothing is written in the child |

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{Process, apply_all, documents, free_port, until};
use crate::kube::{self, ControlPlane};

/// Their bootstrap token here; any would do.
const TOKEN: &str = "07401b.f395accd246ae52d";

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
async fn prepare_parent(plane: &ControlPlane) {
    cli::embedded::prepare_parent(&plane.admin).await.unwrap();
    let (id, secret) = TOKEN.split_once('.').unwrap();
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusternet-mcs"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
                "auth-extra-groups": "system:bootstrappers:clusternet:register-cluster-token"},
        }),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "clusternet-hub-proxy", "namespace": "clusternet-system"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "clusternet-hub-proxy", "namespace": "clusternet-system", "annotations": {"kubernetes.io/service-account.name": "clusternet-hub-proxy"}},
        }),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "clusternet-hub", "namespace": "clusternet-system"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "clusternet:system:socketsproxy"},
            "rules": [
                {"apiGroups": ["proxies.clusternet.io"], "resources": ["sockets/proxy"], "verbs": ["*"]},
                {"apiGroups": [""], "resources": ["users"], "resourceNames": ["clusternet"], "verbs": ["impersonate"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/clusternet-token", "userextras/clusternet-certificate", "userextras/clusternet-privatekey"], "verbs": ["impersonate"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "clusternet:system:socketsproxy"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "clusternet:system:socketsproxy"},
            "subjects": [
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:unauthenticated"},
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
            ],
        }),
    ];
    apply_all(&plane.admin, &objects).await;
}

async fn prepare_child(plane: &ControlPlane) {
    let mut objects = documents(&crate::e2e::deploy().join("agent/namespace.yaml"));
    let installed = documents(&crate::e2e::deploy().join("agent/install.yaml"));
    // Deployments would only make Pods that nobody runs.
    objects.extend(installed.into_iter().filter(|object| object["kind"] != "Deployment"));
    apply_all(&plane.admin, &objects).await;
}

async fn lead_to(plane: &ControlPlane, port: u16, trusted: bool) {
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

/// Our four parts on a parent, as its administrator.
async fn our_parts(plane: &ControlPlane, folder: &Path) -> Vec<Process> {
    let port = free_port();
    lead_to(plane, port, true).await;
    let ours = Path::new(env!("CARGO_BIN_EXE_anabranch"));
    let mut parts = Vec::new();
    for part in ["hub", "scheduler", "controllers"] {
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

fn their_agent(bin: &Path, parent: &ControlPlane, child: &ControlPlane, folder: &Path, mode: &str) -> Process {
    let arguments = [
        format!("--kubeconfig={}", child.kubeconfig.display()),
        format!("--cluster-reg-token={TOKEN}"),
        format!("--cluster-reg-parent-url={}", parent.url),
        "--leader-elect=true".to_owned(),
        "--leader-elect-resource-namespace=clusternet-system".to_owned(),
        "--feature-gates=SocketConnection=true,AppPusher=true,Recovery=true,Predictor=false".to_owned(),
        format!("--cluster-sync-mode={mode}"),
        "--use-metrics-server=false".to_owned(),
        format!("--secure-port={}", free_port()),
        "--cluster-reg-name=one".to_owned(),
        "--cluster-labels=walk=yes".to_owned(),
    ];
    Process::start_with("their-agent", &bin.join("clusternet-agent"), folder, &arguments, &their_environment())
}

fn our_agent(parent: &ControlPlane, child: &ControlPlane, folder: &Path) -> Process {
    let ca = folder.join("parent-ca.crt");
    std::fs::write(&ca, &parent.ca).unwrap();
    Process::start("our-agent", Path::new(env!("CARGO_BIN_EXE_anabranch")), folder, &[
        "agent".to_owned(),
        format!("--parent={}", parent.url),
        format!("--token={TOKEN}"),
        format!("--parent-ca={}", ca.display()),
        format!("--kubeconfig={}", child.kubeconfig.display()),
        "--name=one".to_owned(),
        "--labels=walk=yes".to_owned(),
        format!("--data-dir={}", folder.join("agent").display()),
        format!("--admin=127.0.0.1:{}", free_port()),
    ])
}

async fn joined(plane: &ControlPlane) -> Value {
    until("the child joins and reports", || async {
        let list = get(&plane.admin, "/apis/clusters.clusternet.io/v1beta1/managedclusters").await?;
        let one = list["items"].as_array()?.first()?.clone();
        let ready = one["status"]["conditions"].as_array()?.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        (ready && one["status"]["k8sVersion"].is_string()).then_some(one)
    })
    .await
}

/// An application through the shadow API, and a Subscription of it.
async fn publish(plane: &ControlPlane, theme: &str) {
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    let shadow = "/apis/shadow/v1alpha1";
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}, "data": {"theme": theme}});
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    for (path, object) in [(format!("{shadow}/namespaces"), &namespace), (format!("{shadow}/namespaces/shop/configmaps"), &settings), (format!("{shadow}/namespaces/shop/deployments"), &web)] {
        until(&format!("{path} takes the template"), || async {
            match dynamic.call("POST", &path, Some("application/json"), Some(object)).await {
                Ok(_) => Some(()),
                Err(error) if cluster::trouble(&error) == cluster::Trouble::AlreadyExists => Some(()),
                Err(_) => None,
            }
        })
        .await;
    }
    let subscription = json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Subscription", "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {
            "subscribers": [{"clusterAffinity": {"matchLabels": {"walk": "yes"}}}],
            "feeds": [
                {"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": "shop"},
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"},
            ],
        },
    });
    apply_all(&plane.admin, &[subscription]).await;
}

const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";
const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const SHOP: &str = "/api/v1/namespaces/shop";

async fn arrived(child: &ControlPlane, theme: &str) {
    until(&format!("the child has the theme {theme}"), || async {
        let found = get(&child.admin, SETTINGS).await?;
        get(&child.admin, WEB).await?;
        (found["data"]["theme"] == theme).then_some(())
    })
    .await;
}

async fn versions(child: &ControlPlane) -> Vec<Value> {
    let mut out = Vec::new();
    for path in [SHOP, SETTINGS, WEB] {
        let found = get(&child.admin, path).await.unwrap();
        // What Kubernetes' own controllers write into the status is not ours.
        out.push(json!([found["metadata"]["uid"], found["metadata"]["generation"], found["metadata"]["resourceVersion"]]));
    }
    out
}

async fn retheme(plane: &ControlPlane, theme: &str) {
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    let path = "/apis/shadow/v1alpha1/namespaces/shop/configmaps/settings";
    dynamic.call("PATCH", path, Some("application/merge-patch+json"), Some(&json!({"data": {"theme": theme}}))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_agent_joins_our_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (ControlPlane::start(assets).await, ControlPlane::start(assets).await);
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let _parts = our_parts(&parent, folder.path()).await;
    let _agent = their_agent(&bin, &parent, &child, folder.path(), "Pull");
    let cluster = joined(&parent).await;
    assert_eq!(cluster["status"]["useSocket"], true, "{cluster}");
    publish(&parent, "autumn").await;
    arrived(&child, "autumn").await;
    retheme(&parent, "winter").await;
    arrived(&child, "winter").await;
    let through = format!("/apis/proxies.clusternet.io/v1alpha1/sockets/one/proxy/direct{SETTINGS}");
    until("the tunnel leads into the child", || get(&parent.admin, &through)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_agent_joins_their_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (ControlPlane::start(assets).await, ControlPlane::start(assets).await);
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let _parts = their_parts(&bin, &parent, folder.path()).await;
    let _agent = our_agent(&parent, &child, folder.path());
    joined(&parent).await;
    publish(&parent, "autumn").await;
    arrived(&child, "autumn").await;
    retheme(&parent, "winter").await;
    arrived(&child, "winter").await;
}

/// One command of their plugin; its output.
fn plugin(bin: &Path, kubeconfig: &Path, arguments: &[&str]) -> String {
    let run = std::process::Command::new(bin.join("kubectl-clusternet")).args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap();
    assert!(run.status.success(), "kubectl clusternet {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_kubectl_plugin_on_our_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    if !bin.join("kubectl-clusternet").is_file() {
        eprintln!("skipped, kubectl-clusternet is not in CLUSTERNET_BIN");
        return;
    }
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (ControlPlane::start(assets).await, ControlPlane::start(assets).await);
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let _parts = our_parts(&parent, folder.path()).await;
    let _agent = our_agent(&parent, &child, folder.path());
    let cluster = joined(&parent).await;
    let id = cluster["spec"]["clusterId"].as_str().unwrap();
    let file = folder.path().join("app.yaml");
    let app = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: web:1}]}\n";
    std::fs::write(&file, app).unwrap();
    let path = file.display().to_string();
    plugin(&bin, &parent.kubeconfig, &["apply", "-f", &path]);
    std::fs::write(&file, app.replace("web:1", "web:2")).unwrap();
    plugin(&bin, &parent.kubeconfig, &["apply", "-f", &path]);
    let image = plugin(&bin, &parent.kubeconfig, &["get", "deployment", "-n", "shop", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]);
    assert_eq!(image, "web:2");
    assert!(plugin(&bin, &parent.kubeconfig, &["get", "deployments", "-n", "shop"]).contains("web"));
    plugin(&bin, &parent.kubeconfig, &["scale", "deployment", "-n", "shop", "web", "--replicas=5"]);
    let stored = get(&parent.admin, "/apis/apps.clusternet.io/v1alpha1/namespaces/clusternet-reserved/manifests/deployments.shop.web").await.unwrap();
    assert_eq!(stored["template"]["spec"]["replicas"], 5);
    plugin(&bin, &parent.kubeconfig, &["label", "deployment", "-n", "shop", "web", "tier=front"]);
    plugin(&bin, &parent.kubeconfig, &["create", "configmap", "-n", "shop", "made", "--from-literal=a=b"]);
    plugin(&bin, &parent.kubeconfig, &["delete", "deployment", "-n", "shop", "web"]);
    assert!(get(&parent.admin, "/apis/apps.clusternet.io/v1alpha1/namespaces/clusternet-reserved/manifests/deployments.shop.web").await.is_none());
    let kubeconfig = child.kubeconfig.display().to_string();
    let through = plugin(&bin, &parent.kubeconfig, &["get", "namespaces", "--cluster-id", id, "--child-kubeconfig", &kubeconfig]);
    assert!(through.contains("clusternet-system"), "{through}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_taken_over() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = (ControlPlane::start(assets).await, ControlPlane::start(assets).await);
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let parts = their_parts(&bin, &parent, folder.path()).await;
    let agent = their_agent(&bin, &parent, &child, folder.path(), "Pull");
    joined(&parent).await;
    publish(&parent, "autumn").await;
    arrived(&child, "autumn").await;
    let base = |list: &Value| list["items"].as_array().unwrap().iter().map(|one| one["metadata"]["name"].clone()).collect::<Vec<_>>();
    let before = (versions(&child).await, base(&get(&parent.admin, "/apis/apps.clusternet.io/v1alpha1/bases").await.unwrap()));
    drop(parts);
    let parts = our_parts(&parent, folder.path()).await;
    // Our controllers have looked at everything when a new Subscription of theirs has gone through.
    let marker = json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Subscription", "metadata": {"name": "marker", "namespace": "shop"},
        "spec": {"subscribers": [{"clusterAffinity": {"matchLabels": {"walk": "yes"}}}], "feeds": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "marker", "namespace": "shop"}]},
    });
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker", "namespace": "shop"}, "data": {"a": "b"}});
    cluster::Dynamic::new(parent.admin.clone()).call("POST", "/apis/shadow/v1alpha1/namespaces/shop/configmaps", Some("application/json"), Some(&object)).await.unwrap();
    apply_all(&parent.admin, &[marker]).await;
    until("the new Subscription goes through", || get(&child.admin, "/api/v1/namespaces/shop/configmaps/marker")).await;
    let bases = base(&get(&parent.admin, "/apis/apps.clusternet.io/v1alpha1/bases").await.unwrap());
    assert!(before.1.iter().all(|name| bases.contains(name)) && bases.len() == before.1.len() + 1, "{:?} became {bases:?}", before.1);
    assert_eq!(versions(&child).await, before.0, "switching the parent's parts wrote into the child");
    // And the agent as well.
    drop(agent);
    let agent = our_agent(&parent, &child, folder.path());
    retheme(&parent, "winter").await;
    arrived(&child, "winter").await;
    let after = versions(&child).await;
    assert_eq!((&after[0], &after[2]), (&before.0[0], &before.0[2]), "switching the agent wrote what did not change");
    // Back again.
    drop((agent, parts));
    let _parts = their_parts(&bin, &parent, folder.path()).await;
    let _agent = their_agent(&bin, &parent, &child, folder.path(), "Pull");
    retheme(&parent, "spring").await;
    arrived(&child, "spring").await;
}
