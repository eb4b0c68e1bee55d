//! The Push path: for clusters that the parent applies in, one pusher each, through the cluster's tunnel.
//!
//! What a pusher does is not the hub's to know: it is handed in ([`Pusher`]) and is the same engine that agents use. The hub
//! decides for whom one runs, and makes the way into the child. One runs as well beside agents that leave pruning to the parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::{Description, HelmRelease};
use api::clusters::ManagedCluster;
use api::known::{finalizer, manager};
use apiserver::body::{BoxError, full};
use engine::{CancellationToken, Key};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use plan::sync::{Applier, Holder, applier, leaves_pruning};
use serde_json::json;

use crate::Hub;
use crate::credentials::DEPLOYER_SECRET;

/// Between two looks at whether a credential is still needed.
const LOOK: Duration = Duration::from_secs(1);

/// Applies what one cluster should have, until it is told to stop.
pub trait Pusher: Send + Sync {
    /// Runs for a cluster; `child` leads into it, `parent` is the hub's own client.
    fn run(&self, parent: kube::Client, child: kube::Client, cluster: Key, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

/// The pushers that run: how to stop one, and what tells that it has ended.
#[derive(Clone, Default)]
pub(crate) struct Pushers(Arc<Mutex<BTreeMap<Key, (CancellationToken, CancellationToken)>>>);

impl Pushers {
    /// Stops a cluster's pusher, if one runs; completes when it writes no more.
    pub(crate) async fn stop(&self, key: &Key) {
        let Some((stop, ended)) = self.0.lock().get(key).cloned() else { return };
        stop.cancel();
        ended.cancelled().await;
        // Only now: whoever asks meanwhile waits for the same end, and no second writer starts beside one that is ending. A cluster that
        // is wanted again by then is taken up at its agent's next report.
        let mut running = self.0.lock();
        if running.get(key).is_some_and(|(_, ended)| ended.is_cancelled()) {
            running.remove(key);
            tracing::info!(cluster = %key, "the hub no longer writes in this cluster");
        }
    }
}

/// Keeps one pusher for each cluster that the parent applies in and whose tunnel ends here: of several replicas of the hub,
/// the one that the agent dialled applies.
pub(crate) fn start(hub: &Hub, pusher: Arc<dyn Pusher>) -> Pushers {
    let pushers = Pushers::default();
    let (watched, running) = (hub.clone(), pushers.clone());
    let turn = Arc::new(move |key: &Key, cluster: Option<&Arc<ManagedCluster>>| {
        let holder = cluster.map(|cluster| Holder::of(cluster)).unwrap_or_default();
        let wanted = cluster.is_some_and(|cluster| {
            (applier(cluster.spec.sync_mode, offers(cluster), holder) == Applier::Parent || offers(cluster) && leaves_pruning(cluster))
                && watched.proxy.sessions().get(&cluster.spec.cluster_id).is_some()
                // An agent that just joined uploads it after it dialled; before that every request would fail.
                && watched.proxy.secrets().get(&key.namespace, DEPLOYER_SECRET).is_some()
        });
        let runs = running.0.lock().contains_key(key);
        // Who is asked for the cluster starts no writer; `takeover` gives it back.
        if wanted && !runs && holder != Holder::AgentAsks {
            let (stop, ended) = (watched.tasks.token().child_token(), CancellationToken::new());
            running.0.lock().insert(key.clone(), (stop.clone(), ended.clone()));
            let task = pusher.run(watched.client.clone(), watched.child(key), key.clone(), stop);
            watched.tasks.spawn("push", async move {
                let _guard = ended.drop_guard();
                task.await;
            });
            tracing::info!(cluster = %key, "the hub writes in this cluster");
        } else if !wanted && runs {
            let (running, key) = (running.clone(), key.clone());
            watched.tasks.spawn("push", async move { running.stop(&key).await });
        }
    });
    let on_change = turn.clone();
    hub.clusters.on_change(move |change| on_change(change.key, change.new));
    let (on_secret, clusters) = (turn.clone(), hub.clusters.clone());
    let going = hub.clone();
    hub.proxy.secrets().on_change(move |change| {
        for cluster in clusters.in_namespace(&change.key.namespace) {
            on_secret(&Key::of(cluster.as_ref()), Some(&cluster));
        }
        if change.new.is_some_and(|secret| is_held(&secret.metadata)) {
            going.tasks.spawn_until_stopped("let a credential go", let_go(going.clone(), change.key.clone()));
        }
    });
    let (clusters, sessions) = (hub.clusters.clone(), hub.proxy.sessions().clone());
    hub.tasks.spawn_until_stopped("push sessions", async move {
        let mut changes = sessions.changes();
        let mut before = BTreeSet::new();
        while changes.changed().await.is_ok() {
            let now: BTreeSet<String> = sessions.clusters().into_iter().collect();
            for id in now.symmetric_difference(&before) {
                for cluster in clusters.by(crate::locate::BY_ID, id) {
                    turn(&Key::of(cluster.as_ref()), Some(&cluster));
                }
            }
            before = now;
        }
    });
    pushers
}

/// Whether it is being deleted, and stays for the finalizer that Clusternet's agents put on it.
fn is_held(meta: &api::ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some() && meta.finalizers.iter().flatten().any(|one| one == finalizer::APP)
}

/// Takes the finalizer off a credential once nothing is left that has to be taken back with it.
async fn let_go(hub: Hub, key: Key) {
    let first = kube::api::ListParams::default().limit(1);
    let descriptions: Api<Description> = Api::namespaced(hub.client.clone(), &key.namespace);
    let releases: Api<HelmRelease> = Api::namespaced(hub.client.clone(), &key.namespace);
    let secrets: Api<Secret> = Api::namespaced(hub.client.clone(), &key.namespace);
    while let Some(secret) = hub.proxy.secrets().get_key(&key).filter(|secret| is_held(&secret.metadata)) {
        let left = match (descriptions.list(&first).await, releases.list(&first).await) {
            (Ok(descriptions), Ok(releases)) => !descriptions.items.is_empty() || !releases.items.is_empty(),
            _ => true,
        };
        if !left {
            let rest: Vec<&String> = secret.metadata.finalizers.iter().flatten().filter(|one| *one != finalizer::APP).collect();
            let patch = json!({"metadata": {"resourceVersion": secret.metadata.resource_version, "finalizers": rest}});
            let how = PatchParams { field_manager: Some(manager::HUB.to_owned()), ..PatchParams::default() };
            if let Err(error) = secrets.patch(&key.name, &how, &Patch::Merge(&patch)).await {
                tracing::debug!(secret = %key, error = cluster::error::message(&error), "cannot let a credential go yet");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether a cluster lets the parent in.
pub(crate) fn offers(cluster: &ManagedCluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.app_pusher == Some(true))
}

impl Hub {
    /// A client into a child, as its deployer; each request takes the tunnel that is open then.
    pub fn child(&self, cluster: &Key) -> kube::Client {
        let (hub, key) = (self.clone(), cluster.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (hub, key) = (hub.clone(), key.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.map_err(|error| -> BoxError { error.into() })?.to_bytes();
                let cluster = hub.clusters.get_key(&key).ok_or_else(|| -> BoxError { format!("cluster {key} is gone").into() })?;
                let answer: Response<apiserver::Body> = hub.proxy.call(&cluster, Request::from_parts(parts, full(bytes))).await?;
                Ok::<_, BoxError>(answer)
            }
        });
        cluster::in_process(service)
    }
}
