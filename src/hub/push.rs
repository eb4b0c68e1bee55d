//! The Push path: for clusters that the parent applies in, one pusher each, through the cluster's tunnel.
//!
//! What a pusher does is not the hub's to know: it is handed in ([`Pusher`]) and is the same engine that agents use. The hub
//! decides for whom one runs, and makes the way into the child.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::clusters::ManagedCluster;
use apiserver::body::{BoxError, full};
use engine::{CancellationToken, Key};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use plan::sync::{Applier, applier};

use crate::Hub;

/// Applies what one cluster should have, until it is told to stop.
pub trait Pusher: Send + Sync {
    /// Runs for a cluster; `child` leads into it, `parent` is the hub's own client.
    fn run(&self, parent: kube::Client, child: kube::Client, cluster: Key, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

/// Keeps one pusher for each cluster that the parent applies in and whose tunnel ends here: of several replicas of the hub,
/// the one that the agent dialled applies.
pub(crate) fn start(hub: &Hub, pusher: Arc<dyn Pusher>) {
    let running: Arc<Mutex<BTreeMap<Key, CancellationToken>>> = Arc::default();
    let watched = hub.clone();
    let turn = Arc::new(move |key: &Key, cluster: Option<&Arc<ManagedCluster>>| {
        let wanted = cluster.is_some_and(|cluster| {
            let offers = cluster.status.as_ref().is_some_and(|status| status.app_pusher == Some(true));
            applier(cluster.spec.sync_mode, offers) == Applier::Parent && watched.proxy.sessions().get(&cluster.spec.cluster_id).is_some()
        });
        let mut running = running.lock();
        match (wanted, running.contains_key(key)) {
            (true, false) => {
                let stop = watched.tasks.token().child_token();
                running.insert(key.clone(), stop.clone());
                let child = watched.child(key);
                let task = pusher.run(watched.client.clone(), child, key.clone(), stop);
                watched.tasks.spawn("push", task);
                tracing::info!(cluster = %key, "the hub applies in this cluster");
            }
            (false, true) => {
                if let Some(stop) = running.remove(key) {
                    stop.cancel();
                    tracing::info!(cluster = %key, "the hub no longer applies in this cluster");
                }
            }
            _ => {}
        }
    });
    let on_change = turn.clone();
    hub.clusters.on_change(move |change| on_change(change.key, change.new));
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
