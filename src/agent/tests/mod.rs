//! Tests of the agent against API servers in this process: a parent with our kinds, and a child.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod branch;
mod direct;
mod handover;
mod joining;
mod predicting;
mod releases;
mod rendered;

use std::time::Duration;

use api::apps::Description;
use api::clusters::ManagedCluster;
use apiserver::{ApiServer, Identity};
use cluster::Client;
use cluster::dynamic::{ApplyAs, Dynamic};
use cluster::resource::{Resource, built_in};
use engine::CancellationToken;
use kube::Api;
use serde_json::{Value, json};
use store::Store;

use crate::{Join, Lease, Options, Parent};

pub(super) const NAMESPACE: &str = "clusternet-harbor";
pub(super) const ID: &str = "11111111-2222-3333-4444-555555555555";

/// A parent, a child, and what a test needs to look at them.
pub(super) struct World {
    pub(super) server: ApiServer,
    pub(super) parent: Client,
    pub(super) child: Client,
    pub(super) git: git::Git,
    pub(super) dir: tempfile::TempDir,
}

pub(super) async fn server() -> ApiServer {
    ApiServer::build(apiserver::Options::new(Store::memory())).await
}

pub(super) fn admin(server: &ApiServer) -> Client {
    cluster::in_process(server.service(Identity::master("test")))
}

pub(super) async fn put(client: &Client, object: Value) -> Value {
    let discovery = cluster::Discovery::new(client.clone());
    let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let resource = discovery.resolve(api_version, kind).await.unwrap();
    let how = ApplyAs { manager: "somebody", force: true, dry_run: false };
    Dynamic::new(client.clone()).apply(&resource, &object, how).await.unwrap()
}

/// Waits for a level, with a bound; then says what it was last.
pub(super) async fn eventually<T: std::fmt::Debug, F: Future<Output = Result<(), T>>>(what: &str, mut look: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let last = match look().await {
            Ok(()) => return,
            Err(last) => last,
        };
        assert!(tokio::time::Instant::now() < end, "{what} did not happen: {last:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) fn kind(api_version: &str, kind: &str) -> Resource {
    built_in(api_version, kind).unwrap()
}

impl World {
    pub(super) async fn new() -> Self {
        let server = server().await;
        let (parent, child) = (admin(&server), admin(&self::server().await));
        for crd in api::crds() {
            put(&parent, crd).await;
        }
        let dir = tempfile::tempdir().unwrap();
        let git = git::Git::new(git::Options { directory: dir.path().join("mirrors"), local_threads: 2, network_threads: 2 });
        let world = Self { server, parent, child, git, dir };
        eventually("the definitions", || async {
            let discovery = cluster::Discovery::new(world.parent.clone());
            discovery.resolve("apps.clusternet.io/v1alpha1", "Description").await.map(|_| ())?;
            discovery.resolve("clusters.clusternet.io/v1beta1", "ManagedCluster").await.map(|_| ())
        })
        .await;
        world
    }

    /// The cluster has its place in the parent.
    pub(super) async fn placed(&self) {
        put(&self.parent, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
        put(
            &self.parent,
            json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": "harbor", "namespace": NAMESPACE},
                "spec": {"clusterId": ID, "syncMode": "Pull"}}),
        )
        .await;
    }

    pub(super) fn options(&self) -> Options {
        let parent = self.parent.clone();
        let connect: crate::Connect = std::sync::Arc::new(move |_, _| Ok(parent.clone()));
        let mut options = Options::usual(Parent::with("in-process://parent", connect), "unused", self.git.clone());
        options.join = Join::Assigned { namespace: NAMESPACE.into(), cluster_name: "harbor".into(), auth: cluster::Auth::Anonymous };
        options.lease = Lease::RELAXED;
        options.report_every = Duration::from_secs(1);
        options
    }

    /// Runs an agent until the guard is dropped or stopped.
    pub(super) fn agent(&self, options: Options) -> Running {
        let stop = CancellationToken::new();
        let task = tokio::spawn(Box::pin(crate::run(self.child.clone(), options, stop.clone())));
        Running { stop, task }
    }

    pub(super) async fn describe(&self, name: &str, objects: &[Value]) {
        use base64::Engine as _;
        let raw: Vec<String> = objects.iter().map(|o| base64::engine::general_purpose::STANDARD.encode(o.to_string())).collect();
        put(
            &self.parent,
            json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description",
                "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": ["apps.clusternet.io/finalizer"],
                    "labels": {"apps.clusternet.io/subs.namespace": "fleet", "apps.clusternet.io/subs.name": name.trim_end_matches("-generic")}},
                "spec": {"deployer": "Generic", "raw": raw}}),
        )
        .await;
    }

    pub(super) fn descriptions(&self) -> Api<Description> {
        Api::namespaced(self.parent.clone(), NAMESPACE)
    }

    pub(super) async fn cluster(&self) -> ManagedCluster {
        Api::namespaced(self.parent.clone(), NAMESPACE).get("harbor").await.unwrap()
    }

    /// Waits until a Description's status is as wanted.
    pub(super) async fn told(&self, name: &str, as_wanted: impl Fn(&api::apps::DescriptionStatus) -> bool) -> api::apps::DescriptionStatus {
        let api = self.descriptions();
        eventually("the status of a Description", || async {
            let status = api.get(name).await.unwrap().status.unwrap_or_default();
            if as_wanted(&status) { Ok(()) } else { Err(status) }
        })
        .await;
        api.get(name).await.unwrap().status.unwrap_or_default()
    }

    pub(super) async fn in_child(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        Dynamic::new(self.child.clone()).get_opt(resource, namespace, name).await.unwrap()
    }

    pub(super) async fn is_in_child(&self, resource: &Resource, namespace: &str, name: &str, as_wanted: impl Fn(Option<&Value>) -> bool) {
        eventually("an object of the child", || async {
            let live = self.in_child(resource, namespace, name).await;
            if as_wanted(live.as_ref()) { Ok(()) } else { Err(live) }
        })
        .await;
    }
}

/// A running agent.
pub(super) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), crate::Error>>,
}

impl Running {
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"clusternet.io/created-by": "clusternet-hub"}}})
}

pub(super) fn config(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"clusternet.io/created-by": "clusternet-hub"}}, "data": {"mode": value}})
}
