//! The walk: a commit arrives, drift is undone, what leaves Git leaves the child, the tunnel leads into it, failures are survived.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::parent::{Parent, Real};
use crate::bench::{apply_all, git, until};

/// A source and a delivery repository, and a working copy.
struct Repositories {
    work: std::path::PathBuf,
    delivery: std::path::PathBuf,
}

impl Repositories {
    async fn make(parent: &Parent, folder: &Path) -> Repositories {
        let (source, delivery, work) = (folder.join("source.git"), folder.join("delivery.git"), folder.join("work"));
        for bare in [&source, &delivery] {
            git(folder, &["init", "-q", "--bare", "-b", "main", &bare.display().to_string()]);
        }
        git(folder, &["clone", "-q", &source.display().to_string(), "work"]);
        git(&work, &["checkout", "-q", "-B", "main"]);
        let url = |path: &Path| format!("file://{}", path.display());
        let object = |kind: &str, spec: Value| {
            json!({"apiVersion": "gitops.anabranch.io/v1alpha1", "kind": kind, "metadata": {"name": "walk", "namespace": "clusternet-system"}, "spec": spec})
        };
        let source = object("GitSource", json!({"url": url(&source), "ref": {"branch": "main"}, "prune": true, "interval": "2s"}));
        apply_all(&parent.admin(), &[object("GitTarget", json!({"url": url(&delivery)})), source]).await;
        Repositories { work, delivery }
    }

    fn commit(&self, files: &[(&str, Option<&str>)]) {
        for (name, text) in files {
            match text {
                Some(text) => std::fs::write(self.work.join(name), text).unwrap(),
                None => std::fs::remove_file(self.work.join(name)).unwrap(),
            }
        }
        git(&self.work, &["add", "-A"]);
        git(&self.work, &["commit", "-q", "-m", "change"]);
        git(&self.work, &["push", "-q", "origin", "main"]);
    }
}

const APP: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {theme: autumn}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:1}]}
"#;
const EXTRA: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: shop}\ndata: {a: \"1\"}\n";
const SUBSCRIPTION: &str = r#"
apiVersion: apps.clusternet.io/v1alpha1
kind: Subscription
metadata: {name: shop, namespace: shop}
spec:
  subscribers: [{clusterAffinity: {matchLabels: {walk: "yes"}}}]
  feeds:
  - {apiVersion: v1, kind: Namespace, name: shop}
  - {apiVersion: v1, kind: ConfigMap, name: settings, namespace: shop}
  - {apiVersion: apps/v1, kind: Deployment, name: web, namespace: shop}
"#;
const EXTRA_FEED: &str = "  - {apiVersion: v1, kind: ConfigMap, name: extra, namespace: shop}\n";

async fn get(client: &kube::Client, path: &str) -> Option<Value> {
    cluster::Dynamic::new(client.clone()).call("GET", path, None, None).await.ok()
}

async fn patch(client: &kube::Client, path: &str, with: Value) {
    cluster::Dynamic::new(client.clone()).call("PATCH", path, Some("application/merge-patch+json"), Some(&with)).await.unwrap();
}

const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";
const OTHER: &str = "/api/v1/namespaces/shop/configmaps/extra";
const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";

async fn theme(child: &kube::Client, wanted: &str) {
    until(&format!("the child's theme is {wanted}"), || async {
        let found = get(child, SETTINGS).await?;
        (found["data"] == json!({"theme": wanted})).then_some(())
    })
    .await;
}

async fn cluster(parent: &kube::Client) -> (String, Value) {
    let found: Value = until("the child joins and is ready", || async {
        let list = get(parent, "/apis/clusters.clusternet.io/v1beta1/managedclusters").await?;
        let one = list["items"].as_array()?.first()?.clone();
        let ready = one["status"]["conditions"].as_array()?.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        ready.then_some(one)
    })
    .await;
    let meta = &found["metadata"];
    let path = format!("/apis/clusters.clusternet.io/v1beta1/namespaces/{}/managedclusters/{}", meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap());
    (path, found)
}

async fn delivered(parent: &kube::Client) {
    until("the Description says Success for every object", || async {
        let list = get(parent, "/apis/apps.clusternet.io/v1alpha1/descriptions").await?;
        let one = list["items"].as_array()?.iter().find(|d| d["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("-generic")))?;
        (one["status"]["phase"] == "Success").then_some(())
    })
    .await;
}

/// The whole walk.
pub(super) async fn walk(parent: &Parent, child: &kube::Client, folder: &Path) {
    let admin = parent.admin();
    let repositories = Repositories::make(parent, folder).await;
    let (cluster_path, managed) = cluster(&admin).await;
    // Push: the hub applies through the tunnel; the agent never does in this mode.
    let feeds = format!("{SUBSCRIPTION}{EXTRA_FEED}");
    repositories.commit(&[("app.yaml", Some(APP)), ("extra.yaml", Some(EXTRA)), ("subscription.yaml", Some(&feeds))]);
    theme(child, "autumn").await;
    until("the child has all that was committed", || async { get(child, OTHER).await.and(get(child, WEB).await) }).await;
    delivered(&admin).await;
    let branch = until("the cluster has its branch", || async {
        let refs = git(&repositories.delivery, &["for-each-ref", "--format=%(refname:short)", "refs/heads/clusters"]);
        (!refs.is_empty()).then_some(refs)
    })
    .await;
    assert_eq!(branch, "clusters/one");
    let files = git(&repositories.delivery, &["ls-tree", "-r", "--name-only", "clusters/one"]);
    for file in ["shop/shop/configmap.shop.settings.yaml", "shop/shop/deployment.apps.shop.web.yaml", "shop/shop/namespace._.shop.yaml"] {
        assert!(files.lines().any(|line| line == file), "{file} is not in the branch:\n{files}");
    }

    a_twin_goes(&admin, child).await;

    // kubectl's way into the child, by id and by name.
    let id = managed["spec"]["clusterId"].as_str().unwrap();
    for name in [id, "one"] {
        let through = format!("/apis/proxies.clusternet.io/v1alpha1/sockets/{name}/proxy/direct{SETTINGS}");
        let found: Value = until("the tunnel leads into the child", || async { get(&admin, &through).await }).await;
        assert_eq!(found["data"], json!({"theme": "autumn"}));
    }
    // A template through the shadow API is tried out by the parent and takes no effect there.
    let shadowed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shadowed", "namespace": "nowhere"}, "data": {"a": "b"}});
    let dynamic = cluster::Dynamic::new(admin.clone());
    dynamic.call("POST", "/apis/shadow/v1alpha1/namespaces/nowhere/configmaps", Some("application/json"), Some(&shadowed)).await.unwrap();
    assert!(get(&admin, "/apis/apps.clusternet.io/v1alpha1/namespaces/clusternet-reserved/manifests/configmaps.nowhere.shadowed").await.is_some());
    let broken = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not_A_Name", "namespace": "nowhere"}});
    let refused = dynamic.call("POST", "/apis/shadow/v1alpha1/namespaces/nowhere/configmaps", Some("application/json"), Some(&broken)).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");

    // Templates do not hold up the deletion of the parent's namespace of their name.
    apply_all(&admin, &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})]).await;
    dynamic.call("DELETE", "/api/v1/namespaces/nowhere", None, None).await.unwrap();
    until("the parent's namespace goes", || async { get(&admin, "/api/v1/namespaces/nowhere").await.is_none().then_some(()) }).await;

    // Pull from here on: the agent follows its branch.
    patch(&admin, &cluster_path, json!({"spec": {"syncMode": "Pull"}})).await;
    repositories.commit(&[("app.yaml", Some(&APP.replace("autumn", "winter")))]);
    theme(child, "winter").await;
    // Drift is undone.
    patch(child, SETTINGS, json!({"data": {"theme": "mine"}})).await;
    theme(child, "winter").await;
    // What leaves Git leaves the child, and nothing else does.
    repositories.commit(&[("extra.yaml", None), ("subscription.yaml", Some(SUBSCRIPTION))]);
    until("the removed feed is gone", || async { get(child, OTHER).await.is_none().then_some(()) }).await;
    assert!(get(child, SETTINGS).await.is_some() && get(child, WEB).await.is_some());
    // All of it goes.
    repositories.commit(&[("subscription.yaml", None)]);
    until("nothing of the Subscription is left", || async { (get(child, WEB).await.is_none() && get(child, SETTINGS).await.is_none()).then_some(()) }).await;
    until("the Bases are gone", || async {
        let list = get(&admin, "/apis/apps.clusternet.io/v1alpha1/bases").await?;
        list["items"].as_array()?.is_empty().then_some(())
    })
    .await;
}

/// Clusternet's controllers at times make two Bases for one cluster. The second goes, and its Description with it whatever finalizers that
/// has, so that no agent deletes what it names.
async fn a_twin_goes(admin: &kube::Client, child: &kube::Client) {
    const APPS: &str = "/apis/apps.clusternet.io/v1alpha1/namespaces";
    const HOLD: &str = "example.com/hold";
    let dynamic = cluster::Dynamic::new(admin.clone());
    let whole = |list: &Value| list["items"].as_array().unwrap().iter().find(|one| one["metadata"]["name"].as_str().unwrap().starts_with("shop-")).unwrap().clone();
    let stays = whole(&get(admin, "/apis/apps.clusternet.io/v1alpha1/bases").await.unwrap());
    let description = whole(&get(admin, "/apis/apps.clusternet.io/v1alpha1/descriptions").await.unwrap());
    let namespace = stays["metadata"]["namespace"].as_str().unwrap();
    let before = get(child, WEB).await.unwrap();
    let like = |of: &Value, name: &str, owner: Value| {
        json!({
            "apiVersion": of["apiVersion"], "kind": of["kind"], "spec": of["spec"],
            "metadata": {"name": name, "namespace": namespace, "labels": of["metadata"]["labels"], "finalizers": ["apps.clusternet.io/finalizer", HOLD], "ownerReferences": owner},
        })
    };
    // Held, so that there is time for its Description.
    let twin = dynamic.call("POST", &format!("{APPS}/{namespace}/bases"), Some("application/json"), Some(&like(&stays, "shop-zzzzz", json!([])))).await.unwrap();
    let owner = json!([{"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Base", "name": "shop-zzzzz", "uid": twin["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    let second = like(&description, "shop-zzzzz-generic", owner);
    let _ = dynamic.call("POST", &format!("{APPS}/{namespace}/descriptions"), Some("application/json"), Some(&second)).await;
    let (base, made) = (format!("{APPS}/{namespace}/bases/shop-zzzzz"), format!("{APPS}/{namespace}/descriptions/shop-zzzzz-generic"));
    until("the twin is being deleted", || async { get(admin, &base).await?["metadata"]["deletionTimestamp"].is_string().then_some(()) }).await;
    until("its Description is gone", || async { get(admin, &made).await.is_none().then_some(()) }).await;
    patch(admin, &base, json!({"metadata": {"finalizers": null}})).await;
    until("the twin is gone", || async { get(admin, &base).await.is_none().then_some(()) }).await;
    let after = get(child, WEB).await.expect("the workload is there");
    let same = |field: &str| before.pointer(field) == after.pointer(field);
    assert!(same("/metadata/uid") && same("/metadata/annotations/apps.clusternet.io~1owned-by-description"), "{before} {after}");
    assert!(get(admin, &format!("{APPS}/{namespace}/bases/{}", stays["metadata"]["name"].as_str().unwrap())).await.is_some());
}

/// Every part is ready, or says what it waits for; its metrics can be read by Prometheus.
pub(super) async fn doors(parent: &Parent) {
    let Parent::Real(real) = parent else { return };
    for (name, port) in &real.doors {
        let (code, text) = ask(*port, "/readyz?verbose").await;
        let standing_by = text.contains("another replica leads");
        assert!(code == 200 || standing_by, "{name} is not ready: {text}");
        let (code, text) = ask(*port, "/metrics").await;
        assert_eq!(code, 200, "{name}");
        let faults = crate::exposition::faults(&text);
        assert!(faults.is_empty(), "{name}: {}", faults.join("\n"));
        assert!(text.contains("process_start_time_seconds"), "{name} does not say since when it runs:\n{text}");
    }
}

async fn ask(port: u16, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

async fn leader(admin: &kube::Client, lease: &str) -> Option<String> {
    let found = get(admin, &format!("/apis/coordination.k8s.io/v1/namespaces/clusternet-system/leases/{lease}")).await?;
    found["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
}

/// Which process says that it leads.
fn leads(real: &Real, part: &str, holder: &str) -> String {
    let named = |name: &&String| name.starts_with(part) && real.processes[*name].said().contains(&format!("identity=\"{holder}\""));
    real.processes.keys().find(named).unwrap_or_else(|| panic!("no {part} says that it is {holder}")).clone()
}

/// Leaders are killed, the API server goes away under way: each change still arrives, once.
pub(super) async fn failures(parent: &mut Parent, child: &kube::Client, folder: &Path, assets: &Path) {
    let admin = parent.admin();
    let repositories = Repositories::make(parent, folder).await;
    let (cluster_path, _) = cluster(&admin).await;
    patch(&admin, &cluster_path, json!({"spec": {"syncMode": "Pull"}})).await;
    repositories.commit(&[("app.yaml", Some(APP)), ("subscription.yaml", Some(SUBSCRIPTION))]);
    theme(child, "autumn").await;
    delivered(&admin).await;
    let Parent::Real(real) = parent else { panic!("a real parent") };
    for (part, lease) in [("scheduler", "clusternet-scheduler"), ("controllers", "clusternet-controller-manager"), ("source", "anabranch-source")] {
        let holder = until("somebody leads", || leader(&admin, lease)).await;
        let name = leads(real, part, &holder);
        real.processes.get_mut(&name).unwrap().kill();
        let killed = Instant::now();
        until(&format!("another {part} leads"), || async { leader(&admin, lease).await.filter(|now| *now != holder) }).await;
        // The lease is 15 s; whoever waits looks every 2 s.
        assert!(killed.elapsed() < Duration::from_secs(30), "{part} was without a leader for {:?}", killed.elapsed());
    }
    repositories.commit(&[("app.yaml", Some(&APP.replace("autumn", "winter")))]);
    theme(child, "winter").await;
    // The API server goes away while a change is on its way.
    repositories.commit(&[("app.yaml", Some(&APP.replace("autumn", "spring")))]);
    real.plane.restart(assets).await;
    theme(child, "spring").await;
    // The replica of the hub that holds no tunnel sends requests on; when the other one dies the agent dials anew.
    real.processes.get_mut("hub-2").unwrap().kill();
    until("the tunnel leads into the child", || get(&admin, "/apis/proxies.clusternet.io/v1alpha1/sockets/one/proxy/direct/version")).await;
    // Without any hub the parent itself stays quick.
    real.processes.get_mut("hub-1").unwrap().kill();
    for path in ["/apis", "/api/v1/namespaces", "/apis/apps.clusternet.io/v1alpha1/subscriptions"] {
        let asked = Instant::now();
        assert!(get(&admin, path).await.is_some(), "{path} is not answered without a hub");
        assert!(asked.elapsed() < Duration::from_secs(3), "{path} took {:?} without a hub", asked.elapsed());
    }
    // Nothing was doubled: one Base for the one cluster.
    let bases = get(&admin, "/apis/apps.clusternet.io/v1alpha1/bases").await.unwrap();
    assert_eq!(bases["items"].as_array().unwrap().len(), 1, "{bases}");
    // Nor was anything committed twice: every commit changed something.
    let trees = git(&repositories.delivery, &["log", "--format=%T", "clusters/one"]);
    let trees: Vec<&str> = trees.lines().collect();
    assert!(trees.len() >= 3 && trees.windows(2).all(|pair| pair[0] != pair[1]), "{trees:?}");
}
