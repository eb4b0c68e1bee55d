//! Straight from Descriptions, as with a parent that is Clusternet's own.

use api::apps::DescriptionPhase::{Failure, Success};
use kube::api::{DeleteParams, Patch, PatchParams};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_come_are_mended_and_go() {
    let world = World::new().await;
    world.placed().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "kilns.craft.test", "labels": {"clusternet.io/created-by": "clusternet-hub"}},
        "spec": {"group": "craft.test", "scope": "Namespaced", "names": {"plural": "kilns", "singular": "kiln", "kind": "Kiln", "listKind": "KilnList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let kiln = json!({"apiVersion": "craft.test/v1", "kind": "Kiln", "metadata": {"name": "k", "namespace": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}}, "spec": {"heat": 9}});
    // Out of order on purpose.
    world.describe("pots-generic", &[kiln.clone(), config("yard", "a", "plain"), config("yard", "b", "plain"), crd.clone(), namespace("yard")]).await;
    let agent = world.agent(world.options());
    let status = world.told("pots-generic", |s| s.phase == Some(Success)).await;
    assert_eq!(status.manifest_statuses.len(), 5);
    assert_eq!(status.manifest_statuses[4].observed_status["phase"], "Active");
    let maps = kind("v1", "ConfigMap");
    let live = world.in_child(&maps, "yard", "a").await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["apps.clusternet.io/owned-by-description"], "clusternet-harbor.pots-generic");

    // Drift: a field that is ours is set back, what others added stays; what was deleted comes again.
    put(&world.child, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "yard"}, "data": {"mode": "changed", "extra": "mine"}})).await;
    world.is_in_child(&maps, "yard", "a", |o| o.is_some_and(|o| o["data"]["mode"] == "plain" && o["data"]["extra"] == "mine")).await;
    Dynamic::new(world.child.clone()).delete(&maps, "yard", "b", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    world.is_in_child(&maps, "yard", "b", |o| o.is_some()).await;

    // A feed is taken out: it goes, its status too.
    world.describe("pots-generic", &[kiln, config("yard", "a", "plain"), crd, namespace("yard")]).await;
    world.is_in_child(&maps, "yard", "b", |o| o.is_none()).await;
    let status = world.told("pots-generic", |s| s.manifest_statuses.len() == 4).await;
    assert_eq!(status.phase, Some(Success));

    // Deletion: everything goes, then the Description.
    world.descriptions().delete("pots-generic", &DeleteParams::default()).await.unwrap();
    eventually("the end of the Description", || async { match world.descriptions().get_opt("pots-generic").await.unwrap() { None => Ok(()), left => Err(left) } }).await;
    assert!(world.in_child(&maps, "yard", "a").await.is_none());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_namespace_is_said_and_heals() {
    let world = World::new().await;
    world.placed().await;
    let agent = world.agent(world.options());
    world.describe("boxes-generic", &[config("garret", "box", "plain"), namespace("attic"), config("attic", "other", "plain")]).await;
    let status = world.told("boxes-generic", |s| s.phase == Some(Failure)).await;
    assert_eq!(status.reason, "namespaces \"garret\" not found");
    world.is_in_child(&kind("v1", "ConfigMap"), "attic", "other", |o| o.is_some()).await;
    put(&world.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garret"}})).await;
    let status = world.told("boxes-generic", |s| s.phase == Some(Success)).await;
    assert_eq!(status.reason, "");
    agent.stop().await;
}

/// Versions of everything that an agent might write.
async fn versions(world: &World) -> Vec<String> {
    let mut out = Vec::new();
    let child = Dynamic::new(world.child.clone());
    for resource in [kind("v1", "ConfigMap"), kind("v1", "Namespace"), kind("v1", "Secret"), kind("apps/v1", "Deployment")] {
        for item in child.list(&resource, "", None).await.unwrap().items {
            out.push(format!("{} {} {}", resource.kind, item["metadata"]["name"], item["metadata"]["resourceVersion"]));
        }
    }
    for description in world.descriptions().list(&Default::default()).await.unwrap().items {
        out.push(format!("{:?} {:?}", description.metadata.name, description.metadata.resource_version));
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_nothing_new_writes_nothing() {
    let world = World::new().await;
    world.placed().await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "saw", "namespace": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "saw"}}, "template": {"metadata": {"labels": {"app": "saw"}},
            "spec": {"containers": [{"name": "main", "image": "web:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}]}}}});
    world.describe("yards-generic", &[namespace("yard"), config("yard", "a", "plain"), deployment]).await;
    let agent = world.agent(world.options());
    world.told("yards-generic", |s| s.phase == Some(Success)).await;
    agent.stop().await;
    let before = versions(&world).await;
    let observed = world.cluster().await.status.unwrap().last_observed_time;
    let agent = world.agent(world.options());
    eventually("a report of the second agent", || async { if world.cluster().await.status.unwrap().last_observed_time == observed { Err(()) } else { Ok(()) } }).await;
    // The second agent has looked at everything once a change comes through.
    world.describe("more-generic", &[config("yard", "new", "plain")]).await;
    world.told("more-generic", |s| s.phase == Some(Success)).await;
    let after = versions(&world).await;
    let changed: Vec<&String> = before.iter().filter(|v| !after.contains(v)).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_want_the_same_do_not_fight_and_the_last_one_takes_it_away() {
    let world = World::new().await;
    world.placed().await;
    let agent = world.agent(world.options());
    world.describe("first-generic", &[namespace("yard"), config("yard", "a", "plain")]).await;
    world.told("first-generic", |s| s.phase == Some(Success)).await;
    world.describe("second-generic", &[namespace("yard"), config("yard", "a", "plain")]).await;
    world.told("second-generic", |s| s.phase == Some(Success)).await;
    let maps = kind("v1", "ConfigMap");
    let uid = world.in_child(&maps, "yard", "a").await.unwrap()["metadata"]["uid"].clone();
    world.descriptions().delete("first-generic", &DeleteParams::default()).await.unwrap();
    eventually("the end of the first", || async { match world.descriptions().get_opt("first-generic").await.unwrap() { None => Ok(()), left => Err(left) } }).await;
    world.is_in_child(&maps, "yard", "a", |o| o.is_some_and(|o| o["metadata"]["annotations"]["apps.clusternet.io/owned-by-description"] == "clusternet-harbor.second-generic")).await;
    assert_eq!(world.in_child(&maps, "yard", "a").await.unwrap()["metadata"]["uid"], uid, "it never went");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kubectl_applied_is_taken_over() {
    let world = World::new().await;
    world.placed().await;
    put(&world.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    let maps = kind("v1", "ConfigMap");
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "yard", "labels": {"theirs": "stays"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "data": {"old": "1", "mode": "theirs"}});
    Dynamic::new(world.child.clone()).create(&maps, &theirs, "kubectl-client-side-apply").await.unwrap();
    world.describe("maps-generic", &[config("yard", "a", "plain")]).await;
    let agent = world.agent(world.options());
    world.told("maps-generic", |s| s.phase == Some(Success)).await;
    let live = world.in_child(&maps, "yard", "a").await.unwrap();
    assert_eq!(live["data"], json!({"mode": "plain"}), "fields of the client-side apply that are not wanted go");
    assert!(live["metadata"]["annotations"].get("kubectl.kubernetes.io/last-applied-configuration").is_none());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_push_the_agent_keeps_its_hands_off() {
    let world = World::new().await;
    world.placed().await;
    let clusters: Api<ManagedCluster> = Api::namespaced(world.parent.clone(), NAMESPACE);
    clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(json!({"spec": {"syncMode": "Push"}}))).await.unwrap();
    world.describe("maps-generic", &[namespace("yard")]).await;
    let mut options = world.options();
    options.app_pusher = true;
    let agent = world.agent(options);
    eventually("a report", || async { world.cluster().await.status.and_then(|s| s.last_observed_time).map(|_| ()).ok_or(()) }).await;
    clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(json!({"spec": {"syncMode": "Pull"}}))).await.unwrap();
    world.told("maps-generic", |s| s.phase == Some(Success)).await;
    let status = world.cluster().await.status.unwrap();
    assert!(status.healthz && status.app_pusher == Some(true) && status.k8s_version.starts_with("v1."), "{status:?}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_an_agent_that_never_prunes_the_parent_does_only_that() {
    let world = World::new().await;
    world.placed().await;
    let clusters: Api<ManagedCluster> = Api::namespaced(world.parent.clone(), NAMESPACE);
    clusters.patch_status("harbor", &PatchParams::default(), &Patch::Merge(json!({"status": {"appPusher": true}}))).await.unwrap();
    // What an agent of the original has deployed and told.
    put(&world.child, namespace("yard")).await;
    for name in ["a", "b", "c"] {
        let mut made = config("yard", name, "plain");
        made["metadata"]["annotations"] = json!({"apps.clusternet.io/owned-by-description": if name == "c" { "clusternet-other.pots-generic" } else { "clusternet-harbor.pots-generic" }});
        put(&world.child, made).await;
    }
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "new")]).await;
    let told = ["a", "b", "c"].map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "yard", "name": name}));
    let status = json!({"status": {"phase": "Success", "manifestStatuses": told}});
    world.descriptions().patch_status("pots-generic", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let stop = CancellationToken::new();
    let beside = tokio::spawn(Box::pin(crate::push(world.parent.clone(), world.child.clone(), NAMESPACE, "harbor", world.options(), stop.clone())));
    let maps = kind("v1", "ConfigMap");
    world.is_in_child(&maps, "yard", "b", |o| o.is_none()).await;
    assert_eq!(world.in_child(&maps, "yard", "a").await.unwrap()["data"]["mode"], "plain", "applying is the agent's");
    world.describe("pots-generic", &[namespace("yard")]).await;
    world.is_in_child(&maps, "yard", "a", |o| o.is_none()).await;
    // Another's object stays, and who deploys tells.
    assert!(world.in_child(&maps, "yard", "c").await.is_some());
    assert_eq!(world.descriptions().get("pots-generic").await.unwrap().status.unwrap().manifest_statuses.len(), 3);
    stop.cancel();
    beside.await.unwrap();
}
