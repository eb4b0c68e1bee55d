//! Agents and parents of either kind: they join, report, take what is published, and the tunnel leads into their clusters.

use std::path::Path;

use serde_json::{Value, json};

use super::app::{self, Charts};
use super::{Joins, get, joined, our_agent, our_parts, prepare_child, prepare_parent, ready_to_run, their_agent, their_parts};
use crate::bench::{Process, apply_all, until, until_so};
use crate::kube::ControlPlane;

/// A child with a node, so that there is something to predict.
async fn with_a_node(plane: &ControlPlane) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    apply_all(&plane.admin, &[node]).await;
    let dynamic = cluster::Dynamic::new(plane.admin.clone());
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True", "reason": "Fine", "message": "fine"}]}});
    dynamic.call("PATCH", "/api/v1/nodes/node/status", Some("application/merge-patch+json"), Some(&status)).await.unwrap();
    // The server marks every new node as not ready.
    dynamic.call("PATCH", "/api/v1/nodes/node", Some("application/merge-patch+json"), Some(&json!({"spec": {"taints": null}}))).await.unwrap();
}

/// The same for whoever is the parent, and whoever the agents are.
async fn walk(parent: &ControlPlane, children: [(&str, &ControlPlane); 2], agents: &[Process], folder: &Path) {
    let charts = Charts::serve(folder).await;
    let mut clusters = Vec::new();
    for (name, _) in children {
        clusters.push(joined(parent, name).await);
    }
    for cluster in &clusters {
        let status = &cluster["status"];
        assert_eq!(status["useSocket"], true, "{cluster}");
        assert_eq!((&status["allocatable"]["cpu"], &status["nodeStatistics"]["readyNodes"]), (&json!("4"), &json!(1)), "{cluster}");
    }
    // The override is for one cluster only: each gets its own.
    for (cluster, (_, child)) in clusters.iter().zip(children) {
        app::publish(parent, &charts, cluster).await;
        app::arrived(parent, child, cluster, "autumn").await;
    }
    app::without_twins(parent, children.map(|(_, child)| child)).await;
    app::retheme(parent, "winter").await;
    for (cluster, (_, child)) in clusters.iter().zip(children) {
        app::arrived(parent, child, cluster, "winter").await;
    }
    for cluster in &clusters {
        let id = cluster["spec"]["clusterId"].as_str().unwrap();
        let versioned = format!("/apis/proxies.clusternet.io/v1alpha1/sockets/{id}/proxy/direct/version");
        let version = until("the tunnel leads into the child", || get(&parent.admin, &versioned)).await;
        assert!(version["gitVersion"].is_string(), "{version}");
    }
    drift_is_mended(children).await;
    divided_by_room(parent, &clusters, children).await;
    what_goes_leaves(parent, children).await;
    assert!(agents.iter().all(Process::runs), "an agent ended");
}

/// Somebody changes a child.
async fn drift_is_mended(children: [(&str, &ControlPlane); 2]) {
    for (name, child) in children {
        let dynamic = cluster::Dynamic::new(child.admin.clone());
        dynamic.call("PATCH", app::SETTINGS, Some("application/merge-patch+json"), Some(&json!({"data": {"theme": "mine"}}))).await.unwrap();
        until(&format!("the change in {name} is undone"), || async { (get(&child.admin, app::SETTINGS).await?["data"]["theme"] == "winter").then_some(()) }).await;
        dynamic.call("DELETE", app::SETTINGS, None, None).await.unwrap();
        until(&format!("what was deleted in {name} is back"), || async { (get(&child.admin, app::SETTINGS).await?["data"]["theme"] == "winter").then_some(()) }).await;
    }
}

/// A Subscription that is divided by the room that the clusters' own predictors see.
async fn divided_by_room(parent: &ControlPlane, clusters: &[Value], children: [(&str, &ControlPlane); 2]) {
    app::publish_by_room(parent, 8).await;
    let path = "/apis/apps.clusternet.io/v1alpha1/namespaces/shop/subscriptions/roomy";
    let shares = until_so("the room of both clusters is asked for", || async {
        let found = get(&parent.admin, path).await.unwrap_or_default();
        let shares = &found["status"]["replicas"]["apps/v1/Deployment/shop/roomy"];
        if shares.as_array().is_some_and(|shares| shares.len() == clusters.len()) { Ok(shares.clone()) } else { Err(found["status"].to_string()) }
    })
    .await;
    // Equal room, equal shares.
    assert_eq!(shares, json!([4, 4]));
    for (name, child) in children {
        until(&format!("{name} has its share"), || async { (get(&child.admin, "/apis/apps/v1/namespaces/shop/deployments/roomy").await?["spec"]["replicas"] == 4).then_some(()) }).await;
    }
}

/// A feed is taken out, a Subscription goes, and with them what they brought.
async fn what_goes_leaves(parent: &ControlPlane, children: [(&str, &ControlPlane); 2]) {
    let dynamic = cluster::Dynamic::new(parent.admin.clone());
    let feeds = json!({"spec": {"feeds": [{"apiVersion": "v1", "kind": "Namespace", "name": "shop"}, {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": "shop"}]}});
    dynamic.call("PATCH", "/apis/apps.clusternet.io/v1alpha1/namespaces/shop/subscriptions/shop", Some("application/merge-patch+json"), Some(&feeds)).await.unwrap();
    for (name, child) in children {
        until(&format!("the feed leaves {name}"), || async { get(&child.admin, "/apis/apps/v1/namespaces/shop/deployments/web").await.is_none().then_some(()) }).await;
    }
    for name in ["roomy", "lights"] {
        dynamic.call("DELETE", &format!("/apis/apps.clusternet.io/v1alpha1/namespaces/shop/subscriptions/{name}"), None, None).await.unwrap();
    }
    for (name, child) in children {
        for path in ["/apis/apps/v1/namespaces/shop/deployments/roomy", "/api/v1/namespaces/lights/configmaps/lantern"] {
            until(&format!("{path} leaves {name}"), || async { get(&child.admin, path).await.is_none().then_some(()) }).await;
        }
    }
    until("nothing of it is left in the parent", || async {
        let made = app::made(parent).await;
        made.iter().all(|one| !one.contains("roomy") && !one.contains("lights")).then_some(())
    })
    .await;
}

/// A parent, and two children with a node each.
async fn planes(assets: &Path) -> (ControlPlane, ControlPlane, ControlPlane) {
    let (parent, one, two) = tokio::join!(ControlPlane::start(assets), ControlPlane::start(assets), ControlPlane::start(assets));
    prepare_parent(&parent).await;
    for child in [&one, &two] {
        prepare_child(child).await;
        with_a_node(child).await;
    }
    (parent, one, two)
}

/// The children with the modes that their agents join in.
fn joins<'a>(parent: &'a ControlPlane, one: &'a ControlPlane, two: &'a ControlPlane, folder: &'a Path) -> [Joins<'a>; 2] {
    [("pulls", one, "Pull"), ("pushed", two, "Push")].map(|(name, child, mode)| Joins { parent, child, folder, name, mode })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_agents_join_our_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (parent, one, two) = planes(assets).await;
    let _parts = our_parts(&parent, folder).await;
    let agents = joins(&parent, &one, &two, folder).map(|joins| their_agent(&bin, &joins));
    walk(&parent, [("pulls", &one), ("pushed", &two)], &agents, folder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_agents_join_their_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (parent, one, two) = planes(assets).await;
    let _parts = their_parts(&bin, &parent, folder).await;
    let agents = joins(&parent, &one, &two, folder).map(|joins| our_agent(&joins));
    walk(&parent, [("pulls", &one), ("pushed", &two)], &agents, folder).await;
}
