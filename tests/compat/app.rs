//! What the tests publish: replicated, divided and overridden objects and a chart; and what of it a child holds.

use std::path::Path;
use std::sync::Arc;

use engine::{CancellationToken, Tasks};
use serde_json::{Value, json};

use super::get;
use crate::bench::{apply_all, until, until_so};
use crate::kube::ControlPlane;

const APPS: &str = "/apis/apps.clusternet.io/v1alpha1";
const SHADOW: &str = "/apis/shadow/v1alpha1/namespaces/shop";
pub(super) const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";
/// Everything that comes into a child.
const ALL: [&str; 6] = [
    "/api/v1/namespaces/shop",
    SETTINGS,
    "/apis/apps/v1/namespaces/shop/deployments/web",
    "/apis/apps/v1/namespaces/shop/deployments/spread",
    "/api/v1/namespaces/lights/configmaps/lantern",
    "/api/v1/namespaces/lights/secrets/sh.helm.release.v1.lantern.v1",
];

/// A repository with one chart; it is served until the value goes.
pub(super) struct Charts {
    pub url: String,
    _tasks: Tasks,
}

impl Charts {
    pub(super) async fn serve(folder: &Path) -> Charts {
        let chart = folder.join("charts/lantern");
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: lantern\nversion: 1.0.0\n").unwrap();
        std::fs::write(chart.join("values.yaml"), "color: white\n").unwrap();
        let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  color: {{ .Values.color }}\n";
        std::fs::write(chart.join("templates/light.yaml"), template).unwrap();
        let tasks = Tasks::new(&CancellationToken::new());
        let files = Arc::new(testkit::serve::repository(&folder.join("charts")).unwrap());
        Charts { url: testkit::serve::serve(files, &tasks).await.unwrap(), _tasks: tasks }
    }
}

/// A template through the shadow API, once it answers.
async fn template(plane: &ControlPlane, path: &str, object: &Value) {
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    until_so(&format!("{path} takes the template"), || async {
        match dynamic.call("POST", path, Some("application/json"), Some(object)).await {
            Err(error) if cluster::trouble(&error) != cluster::Trouble::AlreadyExists => Err(cluster::error::message(&error)),
            _ => Ok(()),
        }
    })
    .await;
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}},
    })
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data})
}

fn subscription(name: &str, mut spec: Value, feeds: &[[&str; 3]]) -> Value {
    let feeds: Vec<Value> = feeds
        .iter()
        .map(|[api_version, kind, name]| match *kind {
            "Namespace" => json!({"apiVersion": api_version, "kind": kind, "name": name}),
            _ => json!({"apiVersion": api_version, "kind": kind, "name": name, "namespace": "shop"}),
        })
        .collect();
    spec["feeds"] = json!(feeds);
    json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Subscription", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn everywhere() -> Value {
    json!({"subscribers": [{"clusterAffinity": {"matchLabels": {"walk": "yes"}}}]})
}

/// A cluster that nobody drives, so that what is divided has another place.
async fn silent_cluster(plane: &ControlPlane) {
    let id = "00000000-0000-4000-8000-00000000abcd";
    let labels = json!({"clusternet.io/created-by": "clusternet-agent", "clusters.clusternet.io/cluster-id": id, "clusters.clusternet.io/cluster-name": "silent"});
    let mut marked = labels.clone();
    marked["silent"] = json!("yes");
    apply_all(&plane.admin, &[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusternet-silent", "labels": labels}}),
        json!({
            "apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": "silent", "namespace": "clusternet-silent", "labels": marked},
            "spec": {"clusterId": id, "syncMode": "Pull"},
        }),
    ])
    .await;
}

/// Replicated, with overrides for all and for one; divided in the ratio 1 to 2; and a chart.
pub(super) async fn publish(plane: &ControlPlane, charts: &Charts, cluster: &Value) {
    silent_cluster(plane).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    template(plane, "/apis/shadow/v1alpha1/namespaces", &namespace).await;
    template(plane, &format!("{SHADOW}/configmaps"), &config_map("settings", json!({"theme": "autumn"}))).await;
    template(plane, &format!("{SHADOW}/deployments"), &deployment("web", 2)).await;
    template(plane, &format!("{SHADOW}/deployments"), &deployment("spread", 8)).await;
    let feed = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "name": name, "namespace": "shop"});
    let over = |kind: &str, namespace: Option<&Value>, name: &str, feed: Value, how: &str, value: &str| {
        let mut object = json!({
            "apiVersion": "apps.clusternet.io/v1alpha1", "kind": kind, "metadata": {"name": name},
            "spec": {"overridePolicy": "ApplyNow", "feed": feed, "overrides": [{"name": name, "type": how, "value": value}]},
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.clone();
        }
        object
    };
    let divided = json!({
        "schedulingStrategy": "Dividing", "dividingScheduling": {"type": "Static"},
        "subscribers": [{"clusterAffinity": {"matchLabels": {"walk": "yes"}}, "weight": 1}, {"clusterAffinity": {"matchLabels": {"silent": "yes"}}, "weight": 2}],
    });
    apply_all(&plane.admin, &[
        json!({
            "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "HelmChart", "metadata": {"name": "lantern", "namespace": "shop"},
            "spec": {"repo": charts.url.replace("127.0.0.1", "localhost"), "chart": "lantern", "version": "1.0.0", "targetNamespace": "lights"},
        }),
        over("Globalization", None, "shine", feed("v1", "ConfigMap", "settings"), "MergePatch", r#"{"data":{"light":"on"}}"#),
        over("Globalization", None, "tint", feed("apps.clusternet.io/v1alpha1", "HelmChart", "lantern"), "Helm", r#"{"color":"amber"}"#),
        over("Localization", Some(&cluster["metadata"]["namespace"]), "image", feed("apps/v1", "Deployment", "web"), "JSONPatch", r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"main:2"}]"#),
        subscription("shop", everywhere(), &[["v1", "Namespace", "shop"], ["v1", "ConfigMap", "settings"], ["apps/v1", "Deployment", "web"]]),
        subscription("lights", everywhere(), &[["apps.clusternet.io/v1alpha1", "HelmChart", "lantern"]]),
        subscription("spread", divided, &[["apps/v1", "Deployment", "spread"]]),
    ])
    .await;
}

/// Deletes what Clusternet's controllers made twice: at times they make two Bases for one cluster, and never look at the older again.
/// Who pushes deletes what the twin named, its Namespace too: the children are waited for until they have it anew.
pub(super) async fn without_twins(parent: &ControlPlane, children: [&ControlPlane; 2]) {
    let list = get(&parent.admin, &format!("{APPS}/bases")).await.unwrap();
    let mut bases: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
    // Of charts it may stay: both name the same release, and with either of them their hub would uninstall it for good.
    bases.retain(|base| base["spec"]["feeds"][0]["kind"] != "HelmChart");
    // The newest first, as they choose.
    bases.sort_by_key(|base| std::cmp::Reverse(base["metadata"]["creationTimestamp"].as_str().unwrap()));
    let mut seen = std::collections::BTreeSet::new();
    for base in bases {
        let meta = &base["metadata"];
        let (namespace, name) = (meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap());
        if !seen.insert((namespace, meta["labels"]["apps.clusternet.io/subs.uid"].as_str().unwrap())) {
            let path = format!("{APPS}/namespaces/{namespace}/bases/{name}");
            cluster::Dynamic::new(parent.admin.clone()).call("DELETE", &path, None, None).await.unwrap();
            // With its Descriptions: before they are gone, what they named still goes from the child.
            until(&format!("{path} goes"), || async { made(parent).await.iter().all(|one| !one.contains(name)).then_some(()) }).await;
        }
    }
    for child in children {
        let stands = || async { get(&child.admin, "/api/v1/namespaces/shop").await?["metadata"]["deletionTimestamp"].is_null().then_some(()) };
        until("the child's namespace is there to stay", stands).await;
    }
}

/// A Deployment, divided by the room that the clusters have.
pub(super) async fn publish_by_room(plane: &ControlPlane, replicas: u32) {
    let mut roomy = deployment("roomy", replicas);
    roomy["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    template(plane, &format!("{SHADOW}/deployments"), &roomy).await;
    let mut spec = everywhere();
    spec["schedulingStrategy"] = json!("Dividing");
    spec["dividingScheduling"] = json!({"type": "Dynamic", "dynamicDividing": {"strategy": "Spread"}});
    apply_all(&plane.admin, &[subscription("roomy", spec, &[["apps/v1", "Deployment", "roomy"]])]).await;
}

/// Another Subscription, of one object.
pub(super) async fn publish_one(plane: &ControlPlane, name: &str) {
    template(plane, &format!("{SHADOW}/configmaps"), &config_map(name, json!({"a": "b"}))).await;
    apply_all(&plane.admin, &[subscription(name, everywhere(), &[["v1", "ConfigMap", name]])]).await;
}

/// Waits for it.
pub(super) async fn has_one(child: &ControlPlane, name: &str) {
    let path = format!("/api/v1/namespaces/shop/configmaps/{name}");
    until(&format!("the child has {name}"), || get(&child.admin, &path)).await;
}

/// Changes the template.
pub(super) async fn retheme(plane: &ControlPlane, theme: &str) {
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    let path = format!("{SHADOW}/configmaps/settings");
    dynamic.call("PATCH", &path, Some("application/merge-patch+json"), Some(&json!({"data": {"theme": theme}}))).await.unwrap();
}

/// Waits until everything is in the child as published, and the parent says so.
pub(super) async fn arrived(parent: &ControlPlane, child: &ControlPlane, cluster: &Value, theme: &str) {
    let wanted = json!({
        "settings": {"theme": theme, "light": "on"}, "image": "main:2", "replicas": 2, "light": {"color": "amber"}, "release": "sh.helm.release.v1.lantern.v1",
    });
    let descriptions = format!("{APPS}/namespaces/{}/descriptions", cluster["metadata"]["namespace"].as_str().unwrap());
    until_so(&format!("the child has everything: {wanted}"), || async {
        let mut found = Vec::new();
        for path in ALL {
            found.push(get(&child.admin, path).await.unwrap_or_default());
        }
        let list = get(&parent.admin, &descriptions).await.unwrap_or_default();
        let told: Vec<Value> = list["items"].as_array().into_iter().flatten().map(|one| json!([one["metadata"]["name"], one["status"]["phase"], one["status"]["reason"]])).collect();
        let is = json!({
            "settings": found[1]["data"], "image": found[2]["spec"]["template"]["spec"]["containers"][0]["image"], "replicas": found[3]["spec"]["replicas"],
            "light": found[4]["data"], "release": found[5]["metadata"]["name"],
        });
        let well = told.iter().filter(|one| one[1] == "Success").count();
        if is == wanted && well >= 3 { Ok(()) } else { Err(format!("but {is}, {told:?}")) }
    })
    .await;
}

/// uid, generation and resourceVersion of everything in the child, once nothing changes any more.
pub(super) async fn versions(child: &ControlPlane) -> Vec<Value> {
    let last = std::cell::RefCell::new((Vec::new(), 0));
    until("nothing changes in the child", || async {
        let mut out = Vec::new();
        for path in ALL {
            let found = get(&child.admin, path).await?;
            out.push(json!([found["kind"], found["metadata"]["name"], found["metadata"]["uid"], found["metadata"]["generation"], found["metadata"]["resourceVersion"]]));
        }
        let mut last = last.borrow_mut();
        if last.0 == out {
            last.1 += 1;
        } else {
            *last = (out.clone(), 0);
        }
        (last.1 >= 15).then_some(out)
    })
    .await
}

/// Names of all Bases and Descriptions in the parent.
pub(super) async fn made(parent: &ControlPlane) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["bases", "descriptions", "helmreleases"] {
        let list = get(&parent.admin, &format!("{APPS}/{kind}")).await.unwrap();
        names.extend(list["items"].as_array().unwrap().iter().map(|one| format!("{kind} {}/{}", one["metadata"]["namespace"], one["metadata"]["name"])));
    }
    names.sort();
    names
}
