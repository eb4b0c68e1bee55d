//! The pipeline against an API server in process: what a user makes, and the state it settles in.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use api::known::{annotation, condition, label};
use cluster::{Client, Dynamic, Resource};
use engine::CancellationToken;
use serde_json::{Value, json};

use crate::Options;

const APPS: &str = "apps.clusternet.io/v1alpha1";
const CLUSTERS: &str = "clusters.clusternet.io/v1beta1";

fn resource(api_version: &str, kind: &str) -> Resource {
    let (group, version) = api::object::split_api_version(api_version);
    let known = plan::kinds::Kinds::built_in();
    let info = known.get(api_version, kind).expect("a known kind");
    Resource { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural: info.plural.clone(), namespaced: info.namespaced }
}

struct Stage {
    dynamic: Dynamic,
    stop: CancellationToken,
    names: Vec<String>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Stage {
    /// A parent with these clusters, each labelled with its place in the list, and the pipeline running.
    async fn new(names: &[String]) -> Self {
        Self::with(names, Options::standard()).await
    }

    async fn with(names: &[String], options: Options) -> Self {
        let server = apiserver::ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
        let client: Client = cluster::in_process(server.service(apiserver::Identity::master("test")));
        let stop = CancellationToken::new();
        let stage = Self { dynamic: Dynamic::new(client.clone()), stop: stop.clone(), names: names.to_vec() };
        for definition in api::crds() {
            stage.create(&serde_json::to_value(definition).expect("json")).await;
        }
        for namespace in [api::known::namespace::RESERVED, "fleet"] {
            stage.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        }
        for (at, name) in names.iter().enumerate() {
            let namespace = format!("clusternet-{name}");
            stage.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
            stage
                .create(&json!({"apiVersion": CLUSTERS, "kind": "ManagedCluster",
                    "metadata": {"name": name, "namespace": namespace, "labels": {"at": at.to_string()}},
                    "spec": {"clusterId": format!("00000000-0000-4000-8000-{at:012x}"), "syncMode": "Pull"}}))
                .await;
        }
        tokio::spawn(apiserver::controllers::run_local(server, apiserver::controllers::built_in(None), stop.clone()));
        tokio::spawn(super::run(client, options, stop));
        stage
    }

    async fn create(&self, object: &Value) -> Value {
        let resource = resource(api::object::text(object, "apiVersion"), api::object::text(object, "kind"));
        self.dynamic.create(&resource, object, "test").await.unwrap_or_else(|e| panic!("{}: {object}", cluster::error::message(&e)))
    }

    async fn patch(&self, kind: &str, namespace: &str, name: &str, sub: &str, patch: Value) {
        self.dynamic.merge_patch(&resource(APPS, kind), namespace, name, sub, &patch, "test").await.expect("patched");
    }

    async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.dynamic.get_opt(&resource(APPS, kind), namespace, name).await.expect("read")
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        self.dynamic.list(&resource(APPS, kind), "", None).await.expect("listed").items
    }

    async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.dynamic.delete(&resource(APPS, kind), namespace, name, &cluster::dynamic::Precondition::default(), cluster::dynamic::Propagation::Background).await.expect("deleted");
    }

    async fn manifest(&self, object: Value) {
        let known = plan::kinds::Kinds::built_in();
        let info = known.get(api::object::text(&object, "apiVersion"), api::object::text(&object, "kind")).expect("a known kind");
        let mut manifest = plan::shadow::manifest(info, &object).expect("fits");
        manifest["metadata"]["namespace"] = json!(api::known::namespace::RESERVED);
        self.create(&manifest).await;
    }

    async fn config_map(&self, name: &str, value: &str) {
        self.manifest(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"k": value}})).await;
    }

    /// A Subscription that is bound to all clusters, as the scheduler would do it.
    async fn subscribe(&self, name: &str, feeds: Value, more: Value) {
        let mut spec = json!({"subscribers": [{"clusterAffinity": {}}], "feeds": feeds});
        manifest::patch::merge(&mut spec, &more);
        self.create(&json!({"apiVersion": APPS, "kind": "Subscription", "metadata": {"name": name, "namespace": "fleet"}, "spec": spec})).await;
        let mut bound: Vec<String> = self.names.iter().map(|n| format!("clusternet-{n}/{n}")).collect();
        bound.sort();
        self.patch("Subscription", "fleet", name, "status", json!({"status": {"bindingClusters": bound, "specHash": 1, "desiredReleases": bound.len()}})).await;
    }

    /// Rendered objects by cluster namespace and name of the object.
    async fn rendered(&self) -> BTreeMap<(String, String), Value> {
        let mut out = BTreeMap::new();
        for description in self.list("Description").await {
            let description: api::apps::Description = serde_json::from_value(description).expect("a Description");
            for raw in &description.spec.raw {
                let object: Value = serde_json::from_slice(&raw.0).expect("JSON");
                out.insert((description.metadata.namespace.clone().unwrap_or_default(), api::object::name(&object).to_owned()), object);
            }
        }
        out
    }

    /// Waits for a level, at most ten seconds.
    #[track_caller]
    fn wait<'a, T, F>(&'a self, what: &'static str, mut look: impl FnMut() -> F + 'a) -> impl Future<Output = T> + 'a
    where
        F: Future<Output = Option<T>> + 'a,
    {
        let place = std::panic::Location::caller();
        async move {
            let until = Instant::now() + Duration::from_secs(120);
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                if Instant::now() > until {
                    let mut state = String::new();
                    for kind in ["Subscription", "Base", "Description", "Manifest", "Localization"] {
                        for object in self.list(kind).await {
                            state.push_str(&manifest::emit(&object));
                            state.push_str("---\n");
                        }
                    }
                    panic!("{place}: not reached: {what}\n{state}");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn config_maps(names: &[&str]) -> Value {
    json!(names.iter().map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": name})).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_reaches_its_descriptions_and_goes_again() {
    let stage = Stage::new(&names(&["harbor", "meadow"])).await;
    stage.config_map("a", "1").await;
    stage.config_map("b", "1").await;
    stage.subscribe("s", config_maps(&["a", "b"]), json!({})).await;
    stage.wait("four rendered objects", || async { (stage.rendered().await.len() == 4).then_some(()) }).await;

    // Labels that say who uses a feed.
    let manifest = stage
        .wait("labels of the users on the Manifest", || async {
            let manifest = stage.get("Manifest", "clusternet-reserved", "configmaps.n.a").await?;
            let users = api::object::labels(&manifest).into_iter().filter(|(k, v)| plan::render::is_user_label(k, v)).count();
            (users == 3).then_some(manifest)
        })
        .await;
    assert_eq!(manifest["metadata"]["finalizers"], json!(["apps.clusternet.io/finalizer", "apps.clusternet.io/feed-protection"]));

    // A changed template arrives everywhere; one write per Description.
    stage.patch("Manifest", "clusternet-reserved", "configmaps.n.a", "", json!({"template": {"data": {"k": "2"}}})).await;
    stage
        .wait("the new template", || async {
            let rendered = stage.rendered().await;
            (rendered.values().filter(|o| o["data"]["k"] == "2").count() == 2).then_some(())
        })
        .await;

    // Status is summed up from what clusters report.
    for description in stage.list("Description").await {
        let statuses = json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"}, {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "b"}]);
        stage.patch("Description", api::object::namespace(&description), api::object::name(&description), "status", json!({"status": {"phase": "Success", "manifestStatuses": statuses}})).await;
    }
    let subscription = stage
        .wait("completed releases", || async {
            let subscription = stage.get("Subscription", "fleet", "s").await?;
            (subscription["status"]["completedReleases"] == 2).then_some(subscription)
        })
        .await;
    assert_eq!(subscription["status"]["aggregatedStatuses"][0]["feedStatusDetails"][1]["clusterName"], "meadow");
    assert_eq!(subscription["status"]["aggregatedStatuses"][0]["feedStatusSummary"], json!({"available": true, "replicaStatus": {}}));

    // A feed in use is not deleted; once nothing uses it, it goes.
    stage.delete("Manifest", "clusternet-reserved", "configmaps.n.b").await;
    stage
        .wait("the reason why the Manifest stays", || async {
            let manifest = stage.get("Manifest", "clusternet-reserved", "configmaps.n.b").await?;
            api::object::annotation(&manifest, annotation::FEED_PROTECTION).map(str::to_owned)
        })
        .await;
    stage.patch("Subscription", "fleet", "s", "", json!({"spec": {"feeds": config_maps(&["a"])}})).await;
    stage.wait("the Manifest to go", || async { stage.get("Manifest", "clusternet-reserved", "configmaps.n.b").await.is_none().then_some(()) }).await;
    stage.wait("two rendered objects", || async { (stage.rendered().await.len() == 2).then_some(()) }).await;

    // Deletion: Descriptions wait for their deployer, everything else for them.
    stage.delete("Subscription", "fleet", "s").await;
    stage
        .wait("Descriptions that are being deleted", || async {
            let descriptions = stage.list("Description").await;
            descriptions.iter().all(api::object::is_deleting).then_some(())
        })
        .await;
    assert!(stage.get("Subscription", "fleet", "s").await.is_some());
    for description in stage.list("Description").await {
        stage.patch("Description", api::object::namespace(&description), api::object::name(&description), "", json!({"metadata": {"finalizers": null}})).await;
    }
    stage.wait("everything to be gone", || async { (stage.list("Subscription").await.is_empty() && stage.list("Base").await.is_empty()).then_some(()) }).await;
    stage
        .wait("labels of users to go", || async {
            let manifest = stage.get("Manifest", "clusternet-reserved", "configmaps.n.a").await?;
            (!api::object::labels(&manifest).iter().any(|(k, v)| plan::render::is_user_label(k, v))).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_apply_by_policy_and_say_what_they_missed() {
    let stage = Stage::new(&names(&["harbor", "meadow"])).await;
    stage.config_map("a", "1").await;
    stage.subscribe("s", config_maps(&["a"]), json!({})).await;
    stage.wait("two rendered objects", || async { (stage.rendered().await.len() == 2).then_some(()) }).await;
    let feed = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"});
    let merge = |value: &str| json!([{"name": "m", "type": "MergePatch", "value": value}]);
    stage.create(&json!({"apiVersion": APPS, "kind": "Globalization", "metadata": {"name": "later"}, "spec": {"feed": feed, "overrides": merge(r#"{"data": {"later": "seen"}}"#)}})).await;
    stage
        .wait("the link of the Globalization", || async {
            let object = stage.get("Globalization", "", "later").await?;
            api::object::labels(&object).values().any(|v| v == "ConfigMap").then_some(())
        })
        .await;
    assert!(stage.rendered().await.values().all(|o| o["data"].get("later").is_none()));
    let patch = json!([{"name": "nowhere", "type": "JSONPatch", "value": r#"[{"op": "remove", "path": "/data/none"}]"#}]);
    stage
        .create(&json!({"apiVersion": APPS, "kind": "Localization", "metadata": {"name": "now", "namespace": "clusternet-harbor"},
            "spec": {"overridePolicy": "ApplyNow", "feed": feed, "overrides": patch}}))
        .await;
    stage.wait("the waiting override on both clusters", || async { stage.rendered().await.values().all(|o| o["data"]["later"] == "seen").then_some(()) }).await;
    let told = stage
        .wait("the condition", || async {
            let subscription = stage.get("Subscription", "fleet", "s").await?;
            let conditions = subscription["status"]["conditions"].as_array()?.clone();
            conditions.into_iter().find(|c| c["type"] == condition::OVERRIDES_APPLIED && c["status"] == "False")
        })
        .await;
    assert!(told["message"].as_str().is_some_and(|m| m.contains("nowhere") && m.contains("harbor") && !m.contains("meadow")), "{told}");
    stage.delete("Localization", "clusternet-harbor", "now").await;
    stage.wait("the Localization to go", || async { stage.get("Localization", "clusternet-harbor", "now").await.is_none().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_divided_workload_never_gets_more_than_its_share() {
    let stage = Stage::new(&names(&["harbor", "meadow"])).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "voices", "namespace": "choir"},
        "spec": {"replicas": 10, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    stage.manifest(deployment).await;
    let feeds = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "choir", "name": "voices"}]);
    let spec = json!({"subscribers": [{"clusterAffinity": {}}], "feeds": feeds, "schedulingStrategy": "Dividing", "dividingScheduling": {"type": "Static"}});
    stage.create(&json!({"apiVersion": APPS, "kind": "Subscription", "metadata": {"name": "choirs", "namespace": "fleet"}, "spec": spec})).await;
    let inventory = stage.wait("the FeedInventory", || async { stage.get("FeedInventory", "fleet", "choirs").await }).await;
    assert_eq!(inventory["spec"]["feeds"][0]["desiredReplicas"], 10);
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let heard = seen.clone();
    let client = stage.dynamic.client().clone();
    let stop = stage.stop.clone();
    tokio::spawn(async move {
        let follow = cluster::follow::<api::apps::Description>(client, cluster::Target::of::<api::apps::Description>(""), move |event| {
            let items = match event {
                cluster::Event::Reset(items) => items,
                cluster::Event::Apply(item) => vec![item],
                _ => Vec::new(),
            };
            for item in items {
                for raw in &item.spec.raw {
                    let object: Value = serde_json::from_slice(&raw.0).expect("JSON");
                    heard.lock().push(object["spec"]["replicas"].as_i64().unwrap_or(-1));
                }
            }
            std::ops::ControlFlow::Continue(())
        });
        tokio::select! { _ = follow => {}, () = stop.cancelled() => {} }
    });
    let bound = ["clusternet-harbor/harbor", "clusternet-meadow/meadow"];
    let status = |shares: [i32; 2]| json!({"status": {"bindingClusters": bound, "specHash": 1, "desiredReleases": 2, "replicas": {"apps/v1/Deployment/choir/voices": shares}}});
    stage.patch("Subscription", "fleet", "choirs", "status", status([7, 3])).await;
    stage.wait("shares published", || async { (stage.list("Localization").await.len() == 2).then_some(()) }).await;
    stage.wait("shares rendered", || async { (stage.rendered().await.len() == 2).then_some(()) }).await;
    stage.patch("Subscription", "fleet", "choirs", "status", status([4, 6])).await;
    stage
        .wait("new shares", || async {
            let values: Vec<i64> = stage.rendered().await.values().filter_map(|o| o["spec"]["replicas"].as_i64()).collect();
            let published = stage.list("Localization").await;
            let published = published.iter().filter(|l| l["spec"]["overrides"][0]["value"].as_str().is_some_and(|v| v.contains(":6,") || v.contains(":4,"))).count();
            (values == [4, 6] && published == 2).then_some(())
        })
        .await;
    stage.delete("Subscription", "fleet", "choirs").await;
    stage.wait("Descriptions that are being deleted", || async { stage.list("Description").await.iter().all(api::object::is_deleting).then_some(()) }).await;
    assert!(seen.lock().iter().all(|n| [7, 3, 4, 6].contains(n)), "{:?}", seen.lock());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_by_hand_works_with_labels_and_without() {
    let stage = Stage::new(&names(&["harbor"])).await;
    stage.config_map("a", "1").await;
    stage.create(&json!({"apiVersion": APPS, "kind": "Base", "metadata": {"name": "hut", "namespace": "clusternet-harbor"}, "spec": {"feeds": config_maps(&["a"])}})).await;
    let description = stage.wait("its Description", || async { stage.get("Description", "clusternet-harbor", "hut-generic").await }).await;
    assert_eq!(api::object::label(&description, label::CLUSTER_NAME), Some("harbor"));
    assert_eq!(api::object::label(&description, label::SUBS_UID), Some(""));
    stage.delete("Base", "clusternet-harbor", "hut").await;
    stage.wait("its deletion", || async { stage.get("Description", "clusternet-harbor", "hut-generic").await.filter(api::object::is_deleting) }).await;
    stage.patch("Description", "clusternet-harbor", "hut-generic", "", json!({"metadata": {"finalizers": null}})).await;
    stage.wait("the Base to go", || async { stage.get("Base", "clusternet-harbor", "hut").await.is_none().then_some(()) }).await;
}

/// Pitfall C1.1: nothing waits for what cannot exist any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_does_not_wait_for_a_cluster_that_is_gone_or_silent() {
    let stage = Stage::new(&names(&["harbor", "meadow"])).await;
    stage.config_map("a", "1").await;
    stage.subscribe("s", config_maps(&["a"]), json!({})).await;
    stage.wait("two rendered objects", || async { (stage.rendered().await.len() == 2).then_some(()) }).await;
    stage.delete("Subscription", "fleet", "s").await;
    stage.wait("Descriptions that are being deleted", || async { stage.list("Description").await.iter().all(api::object::is_deleting).then_some(()) }).await;
    assert_eq!(stage.list("Description").await.len(), 2, "both clusters are waited for");
    let unknown = json!([{"type": "Ready", "status": "Unknown", "reason": "ClusterStatusUnknown", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let clusters = resource(CLUSTERS, "ManagedCluster");
    stage.dynamic.merge_patch(&clusters, "clusternet-harbor", "harbor", "status", &json!({"status": {"conditions": unknown}}), "test").await.expect("patched");
    let none = cluster::dynamic::Precondition::default();
    stage.dynamic.delete(&clusters, "clusternet-meadow", "meadow", &none, cluster::dynamic::Propagation::Background).await.expect("deleted");
    stage.wait("everything to be gone", || async { (stage.list("Subscription").await.is_empty() && stage.list("Base").await.is_empty()).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_touches_a_hundred_clusters_with_one_write_each() {
    let clusters: Vec<String> = (0..100).map(|n| format!("c{n:03}")).collect();
    let stage = Stage::new(&clusters).await;
    stage.config_map("a", "1").await;
    stage.config_map("b", "1").await;
    stage.subscribe("s", config_maps(&["a", "b"]), json!({})).await;
    stage.wait("all rendered", || async { (stage.rendered().await.len() == 200).then_some(()) }).await;
    let versions = |descriptions: &[Value]| -> BTreeMap<String, i64> {
        descriptions.iter().map(|d| (api::object::namespace(d).to_owned(), d["metadata"]["generation"].as_i64().unwrap_or(0))).collect()
    };
    let before = versions(&stage.list("Description").await);
    stage.patch("Manifest", "clusternet-reserved", "configmaps.n.a", "", json!({"template": {"data": {"k": "2"}}})).await;
    stage.wait("all rendered anew", || async { (stage.rendered().await.values().filter(|o| o["data"]["k"] == "2").count() == 100).then_some(()) }).await;
    let after = versions(&stage.list("Description").await);
    assert!(after.iter().all(|(namespace, generation)| before.get(namespace).is_some_and(|b| b + 1 == *generation)), "{before:?} {after:?}");
}

/// A repository that is slow, and has version 1 only.
struct OneVersion;

impl crate::ChartLookup for OneVersion {
    fn look<'a>(&'a self, _: &'a str, options: &'a api::apps::HelmOptions) -> futures::future::BoxFuture<'a, crate::ChartAnswer> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if options.chart_version == "1" { crate::ChartAnswer::Found } else { crate::ChartAnswer::NotFound("no such version".to_owned()) }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_that_became_unknown_leaves_what_is_deployed() {
    let stage = Stage::with(&names(&["harbor"]), Options { charts: Some(std::sync::Arc::new(OneVersion)), ..Options::standard() }).await;
    let chart = json!({"repo": "http://charts.example.org", "chart": "lantern", "version": "1", "targetNamespace": "lights"});
    stage.create(&json!({"apiVersion": APPS, "kind": "HelmChart", "metadata": {"name": "lantern", "namespace": "fleet"}, "spec": chart})).await;
    stage.subscribe("s", json!([{"apiVersion": APPS, "kind": "HelmChart", "namespace": "fleet", "name": "lantern"}]), json!({})).await;
    let versions = || async {
        let descriptions = stage.list("Description").await;
        let one: api::apps::Description = serde_json::from_value(descriptions.first()?.clone()).expect("a Description");
        let chart: Value = serde_json::from_slice(&one.spec.chart_raw.first()?.0).expect("JSON");
        Some((chart["spec"]["version"].clone(), chart["spec"]["wait"].clone()))
    };
    let before = stage.wait("a Description of the chart", versions).await;
    for version in ["9", "1"] {
        stage.patch("HelmChart", "fleet", "lantern", "", json!({"spec": {"version": version}})).await;
        let phase = if version == "1" { "Found" } else { "NotFound" };
        stage.wait("the answer", || async { (stage.get("HelmChart", "fleet", "lantern").await?["status"]["phase"] == phase).then_some(()) }).await;
        assert_eq!(versions().await.as_ref(), Some(&before), "version {version}");
    }
    // Whatever else changes still arrives.
    stage.patch("HelmChart", "fleet", "lantern", "", json!({"spec": {"wait": true}})).await;
    stage.wait("the change", || async { (versions().await?.1 == true).then_some(()) }).await;
}
