//! Giving a cluster back: first the parent's writer ends, then the annotation goes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::clusters::ManagedCluster;
use apiserver::{ApiServer, Identity};
use engine::{CancellationToken, Key};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use plan::sync::Holder;
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::push::Pusher;
use crate::{Hub, Options};

/// Counts the writers at work; each takes a moment to end.
#[derive(Default)]
struct Counting {
    running: Arc<AtomicUsize>,
    started: AtomicUsize,
    clusters: std::sync::OnceLock<Api<ManagedCluster>>,
}

impl Pusher for Counting {
    fn run(&self, _: kube::Client, _: kube::Client, _: Key, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let (running, clusters) = (self.running.clone(), self.clusters.get().unwrap().clone());
        running.fetch_add(1, Ordering::SeqCst);
        self.started.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            stop.cancelled().await;
            // Whoever looks before this writer has ended sees that the parent still holds the cluster.
            assert_ne!(holder(&clusters).await, Holder::Agent);
            running.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while !look().await {
        assert!(tokio::time::Instant::now() < end, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const ID: &str = "11111111-2222-3333-4444-555555555555";

/// A parent with one cluster in Pull that lets the hub in, and a hub that its agent has dialled.
async fn stage(options: Options) -> (Api<ManagedCluster>, Hub, CancellationToken) {
    let server = ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
    let parent = cluster::in_process(server.service(Identity::master("test")));
    let definitions: Api<CustomResourceDefinition> = Api::all(parent.clone());
    for definition in api::crds() {
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(parent.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "clusternet-harbor"}})).unwrap()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(parent.clone(), "clusternet-harbor");
    secrets.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": crate::credentials::DEPLOYER_SECRET}})).unwrap()).await.unwrap();
    let clusters: Api<ManagedCluster> = Api::namespaced(parent.clone(), "clusternet-harbor");
    let made = json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster",
        "metadata": {"name": "harbor", "namespace": "clusternet-harbor", "annotations": {"gitops.anabranch.io/agent-key": "sha256:aa"}}, "spec": {"clusterId": ID, "syncMode": "Pull"}});
    eventually("the definition of ManagedCluster", async || clusters.list(&ListParams::default()).await.is_ok()).await;
    clusters.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
    clusters.patch_status("harbor", &PatchParams::default(), &Patch::Merge(json!({"status": {"appPusher": true}}))).await.unwrap();
    let stop = CancellationToken::new();
    let hub = Hub::start(parent, options, &stop);
    let (near, far) = tokio::io::duplex(1 << 16);
    for (socket, role) in [(near, Role::Server), (far, Role::Client)] {
        let socket = WebSocketStream::from_raw_socket(socket, role, None).await;
        let (tunnel, run) = tunnel::session(socket, wire::Limits::PEER, Arc::new(|_, stream: tunnel::Stream| Box::pin(async move { stream.refuse("a test") })));
        if role == Role::Server {
            hub.proxy().sessions().add(ID, tunnel);
        }
        tokio::spawn(async move { drop(run.await) });
    }
    (clusters, hub, stop)
}

async fn annotate(clusters: &Api<ManagedCluster>, annotations: serde_json::Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn holder(clusters: &Api<ManagedCluster>) -> Holder {
    Holder::of(&clusters.get("harbor").await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_ends_before_the_cluster_goes_back() {
    let pusher = Arc::new(Counting::default());
    let (clusters, _hub, stop) = stage(Options { pusher: Some(pusher.clone()), ..Options::default() }).await;
    pusher.clusters.set(clusters.clone()).ok().unwrap();
    for round in 1..=3 {
        annotate(&clusters, json!({"gitops.anabranch.io/applier": "parent"})).await;
        eventually("a writer of the parent", async || pusher.running.load(Ordering::SeqCst) == 1).await;
        annotate(&clusters, json!({"gitops.anabranch.io/applier": "agent-asks"})).await;
        eventually("the cluster going back", async || holder(&clusters).await == Holder::Agent).await;
        assert_eq!(pusher.running.load(Ordering::SeqCst), 0, "two writers");
        assert_eq!(pusher.started.load(Ordering::SeqCst), round);
    }
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_agent_is_asked_and_then_relieved() {
    let pusher = Arc::new(Counting::default());
    let silence = Duration::from_millis(200);
    let (clusters, _hub, stop) = stage(Options { pusher: Some(pusher.clone()), silence, ..Options::default() }).await;
    pusher.clusters.set(clusters.clone()).ok().unwrap();
    annotate(&clusters, json!({"gitops.anabranch.io/delivery-commit": "b", "gitops.anabranch.io/applied-commit": "a"})).await;
    eventually("the parent asking", async || holder(&clusters).await != Holder::Agent).await;
    eventually("a writer of the parent", async || pusher.running.load(Ordering::SeqCst) == 1).await;
    assert_eq!(holder(&clusters).await, Holder::Parent);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_up_to_date_may_be_silent() {
    let pusher = Arc::new(Counting::default());
    let (clusters, _hub, stop) = stage(Options { pusher: Some(pusher), silence: Duration::from_millis(40), ..Options::default() }).await;
    annotate(&clusters, json!({"gitops.anabranch.io/delivery-commit": "a", "gitops.anabranch.io/applied-commit": "a"})).await;
    // Many times the silence, counted in answers of the parent.
    for _ in 0..200 {
        assert_eq!(holder(&clusters).await, Holder::Agent);
        tokio::task::yield_now().await;
    }
    stop.cancel();
}

/// Only counts.
struct Beside(Arc<AtomicUsize>);

impl Pusher for Beside {
    fn run(&self, _: kube::Client, _: kube::Client, _: Key, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let running = self.0.clone();
        running.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            stop.cancelled().await;
            running.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_an_agent_of_the_original_the_parent_prunes() {
    let running = Arc::new(AtomicUsize::new(0));
    let (clusters, hub, stop) = stage(Options { pusher: Some(Arc::new(Beside(running.clone()))), ..Options::default() }).await;
    annotate(&clusters, json!({"gitops.anabranch.io/agent-key": null})).await;
    eventually("a writer beside the agent", async || running.load(Ordering::SeqCst) == 1).await;
    annotate(&clusters, json!({"gitops.anabranch.io/agent-key": "sha256:aa"})).await;
    eventually("the end of it", async || running.load(Ordering::SeqCst) == 0).await;
    // Its credential carries a finalizer, which nobody else takes off.
    let secrets: Api<Secret> = Api::namespaced(hub.client.clone(), "clusternet-harbor");
    let mark = json!({"metadata": {"finalizers": ["apps.clusternet.io/finalizer"]}});
    secrets.patch(crate::credentials::DEPLOYER_SECRET, &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
    secrets.delete(crate::credentials::DEPLOYER_SECRET, &kube::api::DeleteParams::default()).await.unwrap();
    eventually("the credential going", async || secrets.get_opt(crate::credentials::DEPLOYER_SECRET).await.unwrap().is_none()).await;
    stop.cancel();
}
