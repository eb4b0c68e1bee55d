//! Whose a cluster in Pull is while its branch cannot be synced: the hub's half of [`plan::sync::Holder`].
//!
//! Giving back needs the pusher to have ended; asking needs an agent that is silent though its tunnel is open. Both write with the
//! version they read, so that of two hubs one wins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::clusters::{ManagedCluster, SyncMode};
use api::known::{annotation, manager};
use engine::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::sync::Holder;
use serde_json::json;
use tokio::time::Instant;

use crate::Hub;
use crate::push::{Pushers, offers};

/// How long a replica without the cluster's tunnel leaves the answer to the one that has it.
const ELSEWHERE: Duration = Duration::from_secs(15);

/// Begins to give back what agents ask for, and to ask for what silent agents hold.
pub(crate) fn start(hub: &Hub, pushers: &Pushers, silence: Duration) {
    let (giving, pushers) = (hub.clone(), pushers.clone());
    hub.clusters.on_change(move |change| {
        let Some(cluster) = change.new.filter(|cluster| Holder::of(cluster) == Holder::AgentAsks) else { return };
        let (hub, pushers, cluster, key) = (giving.clone(), pushers.clone(), Arc::clone(cluster), change.key.clone());
        giving.tasks.spawn_until_stopped("give back", async move {
            pushers.stop(&key).await;
            if hub.proxy.sessions().get(&cluster.spec.cluster_id).is_none() {
                // Another replica has the tunnel, and perhaps a writer that must end first. Where none has, none can write.
                tokio::time::sleep(ELSEWHERE).await;
            }
            // A lost race brings a new version, and with it the next try.
            pass(&hub, &cluster, Holder::Agent).await;
        });
    });
    let hub = hub.clone();
    let tasks = hub.tasks.clone();
    tasks.spawn_until_stopped("silence", async move {
        let mut heard = BTreeMap::new();
        let mut ticks = tokio::time::interval((silence / 8).max(Duration::from_millis(20)));
        loop {
            ticks.tick().await;
            listen(&hub, &mut heard, silence).await;
        }
    });
}

/// What was heard of an agent last, and since when nothing else was. The hub's own clock counts: those of children may be wrong.
type Heard = BTreeMap<Key, ((Option<Time>, Holder), Instant)>;

async fn listen(hub: &Hub, heard: &mut Heard, silence: Duration) {
    let clusters = hub.clusters.list();
    let now = Instant::now();
    let mut still = BTreeMap::new();
    for cluster in &clusters {
        let key = Key::of(cluster.as_ref());
        let holder = Holder::of(cluster);
        let said = (cluster.status.as_ref().and_then(|status| status.last_observed_time.clone()), holder);
        let since = match heard.remove(&key) {
            Some((before, since)) if before == said => since,
            _ => now,
        };
        still.insert(key, (said, since));
        if cluster.spec.sync_mode != SyncMode::Pull || !offers(cluster) || !behind(cluster) || now - since < silence {
            continue;
        }
        // Without a tunnel there is no way into the child, and nothing to be gained.
        if hub.proxy.sessions().get(&cluster.spec.cluster_id).is_none() {
            continue;
        }
        let next = match holder {
            Holder::Agent => Holder::ParentAsks,
            // Asked, and silent for as long again: an agent that hangs does not write.
            Holder::ParentAsks => Holder::Parent,
            Holder::Parent | Holder::AgentAsks => continue,
        };
        tracing::warn!(cluster = %cluster.metadata.name.as_deref().unwrap_or_default(), "an agent is silent while its branch waits");
        pass(hub, cluster, next).await;
    }
    *heard = still;
}

/// Whether the branch has a commit that is not applied.
fn behind(cluster: &ManagedCluster) -> bool {
    let note = |key: &str| cluster.metadata.annotations.as_ref().and_then(|a| a.get(key));
    note(annotation::DELIVERY_COMMIT).is_some_and(|commit| note(annotation::APPLIED_COMMIT) != Some(commit))
}

/// Writes down who holds a cluster, unless it changed since it was read.
async fn pass(hub: &Hub, cluster: &ManagedCluster, holder: Holder) {
    let (namespace, name) = (cluster.metadata.namespace.as_deref().unwrap_or_default(), cluster.metadata.name.as_deref().unwrap_or_default());
    let api: Api<ManagedCluster> = Api::namespaced(hub.client.clone(), namespace);
    let patch = json!({"metadata": {
        "resourceVersion": cluster.metadata.resource_version, "annotations": {annotation::APPLIER: holder.as_str()},
    }});
    let how = PatchParams { field_manager: Some(manager::HUB.to_owned()), ..PatchParams::default() };
    if let Err(error) = api.patch(name, &how, &Patch::Merge(&patch)).await {
        tracing::debug!(cluster = name, error = cluster::error::message(&error), "cannot write down who applies");
    }
}
