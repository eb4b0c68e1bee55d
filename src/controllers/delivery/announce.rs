//! Tells agents where their branch is: annotations on the ManagedCluster, written when the branch has moved.

use std::sync::Arc;

use api::clusters::ManagedCluster;
use api::gitops::GitTarget;
use api::known::{annotation, manager};
use engine::Cache;
use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// How many clusters are told at once.
const PARALLEL: usize = 64;

/// Where an agent finds its branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) url: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) commit: Option<String>,
    pub(super) secret: Option<String>,
}

/// What a cluster was told.
pub(super) fn of(cluster: &ManagedCluster) -> Delivery {
    let get = |key: &str| cluster.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned();
    Delivery {
        url: get(annotation::DELIVERY_URL),
        branch: get(annotation::DELIVERY_BRANCH),
        commit: get(annotation::DELIVERY_COMMIT),
        secret: get(annotation::DELIVERY_SECRET),
    }
}

/// What a cluster shall be told by a target.
pub(super) fn wanted(target: &GitTarget, branch: &str, commit: git::ObjectId) -> Delivery {
    let spec = &target.spec;
    let url = if spec.agent_url.is_empty() { &spec.url } else { &spec.agent_url };
    Delivery {
        url: Some(url.clone()),
        branch: Some(branch.to_owned()),
        commit: Some(commit.to_string()),
        secret: spec.agent_secret_ref.as_ref().map(|r| r.name.clone()),
    }
}

/// Tells these clusters; those that could not be told are returned.
pub(super) async fn tell(client: &Client, cache: &Cache<ManagedCluster>, news: Vec<(Arc<ManagedCluster>, Delivery)>) -> Vec<engine::Key> {
    let news: Vec<(Arc<ManagedCluster>, Delivery)> = news.into_iter().filter(|(cluster, delivery)| of(cluster) != *delivery).collect();
    let calls = news.into_iter().map(|(cluster, delivery)| async move {
        let key = engine::Key::of(&*cluster);
        let api: Api<ManagedCluster> = Api::namespaced(client.clone(), &key.namespace);
        let patch = json!({"metadata": {"annotations": {
            annotation::DELIVERY_URL: delivery.url,
            annotation::DELIVERY_BRANCH: delivery.branch,
            annotation::DELIVERY_COMMIT: delivery.commit,
            annotation::DELIVERY_SECRET: delivery.secret,
        }}});
        let parameters = PatchParams { field_manager: Some(manager::CONTROLLERS.to_owned()), ..PatchParams::default() };
        match api.patch(&key.name, &parameters, &Patch::Merge(&patch)).await {
            Ok(answer) => {
                cache.assume(answer);
                None
            }
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => {
                tracing::warn!(cluster = %key, error = cluster::error::message(&error), "cannot tell a cluster of its branch");
                Some(key)
            }
        }
    });
    futures::stream::iter(calls).buffer_unordered(PARALLEL).filter_map(|failed| async move { failed }).collect().await
}
