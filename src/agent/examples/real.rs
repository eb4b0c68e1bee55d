//! Joins a real child to a real parent and checks the whole life of a Description: `real PARENT_KUBECONFIG CHILD_KUBECONFIG`.
//!
//! Runs the registration and life cycle controllers with the parent's administrator, and an agent that knows nothing but the
//! parent's URL, its CA and a bootstrap token. Exits with 0 when everything came out as it should.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, missing_docs, reason = "a check for people")]

use std::time::{Duration, Instant};

use api::apps::{Description, DescriptionPhase};
use api::clusters::ManagedCluster;
use base64::Engine as _;
use cluster::dynamic::{ApplyAs, Dynamic};
use cluster::{Client, Discovery, Endpoint};
use controllers::{lifecycle, registration};
use engine::{CancellationToken, RealClock, Recorder, Registry, Tasks};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

async fn put(client: &Client, object: Value) -> Value {
    let resource = Discovery::new(client.clone()).resolve(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).await.unwrap();
    Dynamic::new(client.clone()).apply(&resource, &object, ApplyAs { manager: "check", force: true, dry_run: false }).await.unwrap()
}

async fn wait<T: std::fmt::Debug, F: Future<Output = Result<(), T>>>(what: &str, mut look: impl FnMut() -> F) {
    let began = Instant::now();
    loop {
        let last = match look().await {
            Ok(()) => break,
            Err(last) => last,
        };
        assert!(began.elapsed() < Duration::from_secs(40), "{what}: {last:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{what}: {:.3} s", began.elapsed().as_secs_f64());
}

fn map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}}, "data": {"mode": value}})
}

async fn describe(parent: &Client, namespace: &str, objects: &[Value]) {
    let raw: Vec<String> = objects.iter().map(|o| base64::engine::general_purpose::STANDARD.encode(o.to_string())).collect();
    put(parent, json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description",
        "metadata": {"name": "pots-generic", "namespace": namespace, "finalizers": ["apps.clusternet.io/finalizer"]}, "spec": {"deployer": "Generic", "raw": raw}})).await;
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let texts: Vec<String> = (0..2).map(|_| std::fs::read_to_string(args.next().expect("two kubeconfigs")).unwrap()).collect();
    let parent = cluster::client::from_kubeconfig(&texts[0], None).await.unwrap();
    let child = cluster::client::from_kubeconfig(&texts[1], None).await.unwrap();
    let config = kube::config::Kubeconfig::from_yaml(&texts[0]).unwrap();
    let server = config.clusters[0].cluster.clone().unwrap();
    let ca_pem = server.certificate_authority_data.map(|d| base64::engine::general_purpose::STANDARD.decode(d).unwrap());
    for crd in api::crds() {
        put(&parent, crd).await;
    }
    put(&parent, json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-07401b", "namespace": "kube-system"},
        "stringData": {"token-id": "07401b", "token-secret": "f395accd246ae52d", "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:clusternet:register-cluster-token"}})).await;
    let stop = CancellationToken::new();
    let tasks = Tasks::new(&stop);
    let context = registration::Context { client: parent.clone(), clock: RealClock::shared(), recorder: Recorder::silent(), metrics: Registry::new() };
    let joining = registration::Options { workers: 4, ensure_bootstrap_rbac: true, ..Default::default() };
    tasks.spawn("registration", registration::run(context.clone(), joining, tasks.token().clone()));
    tasks.spawn("lifecycle", lifecycle::run(context, lifecycle::Options { workers: 4, ..Default::default() }, tasks.token().clone()));
    let endpoint = Endpoint { url: server.server.unwrap(), ca_pem, ..Endpoint::default() };
    let git = git::Git::new(git::Options { directory: std::env::temp_dir().join("anabranch-real-check"), local_threads: 1, network_threads: 1 });
    let mut options = agent::Options::usual(agent::Parent::at(endpoint), "07401b.f395accd246ae52d", git);
    options.cluster_name = "harbor".into();
    options.report_every = Duration::from_secs(2);
    let (child_of_agent, token) = (child.clone(), tasks.token().clone());
    tasks.spawn("agent", async move { Box::pin(agent::run(child_of_agent, options, token)).await.unwrap() });

    let clusters: Api<ManagedCluster> = Api::all(parent.clone());
    wait("joined and reported", || async {
        let list = clusters.list(&Default::default()).await.unwrap().items;
        if list.iter().any(|c| c.status.as_ref().is_some_and(|s| s.healthz)) { Ok(()) } else { Err(list) }
    })
    .await;
    let cluster = clusters.list(&Default::default()).await.unwrap().items.remove(0);
    let namespace = cluster.metadata.namespace.clone().unwrap();
    println!("{} {:?}", namespace, cluster.status.map(|s| (s.k8s_version, s.platform, s.service_cidr)));
    let descriptions: Api<Description> = Api::namespaced(parent.clone(), &namespace);
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "kilns.craft.test", "labels": {"clusternet.io/created-by": "clusternet-hub"}},
        "spec": {"group": "craft.test", "scope": "Namespaced", "names": {"plural": "kilns", "singular": "kiln", "kind": "Kiln", "listKind": "KilnList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let kiln = json!({"apiVersion": "craft.test/v1", "kind": "Kiln", "metadata": {"name": "k", "namespace": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}}, "spec": {"heat": 9}});
    let yard = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}}});
    let saw = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "saw", "namespace": "yard", "labels": {"clusternet.io/created-by": "clusternet-hub"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "saw"}}, "template": {"metadata": {"labels": {"app": "saw"}},
            "spec": {"containers": [{"name": "main", "image": "web:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}], "resources": {"requests": {"cpu": "1000m"}}}]}}}});
    let everything = [kiln, map("one"), crd, saw, yard.clone()];
    describe(&parent, &namespace, &everything).await;
    let success = |wanted: usize| {
        let descriptions = descriptions.clone();
        move || {
            let descriptions = descriptions.clone();
            async move {
                let status = descriptions.get("pots-generic").await.unwrap().status.unwrap_or_default();
                let seen = status.manifest_statuses.iter().filter(|m| m.feed.kind != "Deployment" || !m.observed_status["observedGeneration"].is_null()).count();
                if status.phase == Some(DescriptionPhase::Success) && seen == wanted { Ok(()) } else { Err(status) }
            }
        }
    };
    wait("namespace, definition, object, workload deployed", success(5)).await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(child.clone(), "yard");
    let mode = |wanted: &'static str| {
        let maps = maps.clone();
        move || {
            let maps = maps.clone();
            async move {
                let found = maps.get_opt("a").await.unwrap().and_then(|m| m.data).and_then(|mut d| d.remove("mode"));
                if found.as_deref() == Some(wanted) { Ok(()) } else { Err(found) }
            }
        }
    };
    put(&child, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "yard"}, "data": {"mode": "drifted"}})).await;
    wait("drift mended", mode("one")).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    wait("deleted object made again", mode("one")).await;
    let mut changed = everything.clone();
    changed[1] = map("two");
    describe(&parent, &namespace, &changed).await;
    wait("change applied", mode("two")).await;
    describe(&parent, &namespace, &[yard]).await;
    wait("objects pruned", || async { match maps.get_opt("a").await.unwrap() { None => Ok(()), left => Err(left) } }).await;
    descriptions.delete("pots-generic", &DeleteParams::default()).await.unwrap();
    wait("description let go", || async { match descriptions.get_opt("pots-generic").await.unwrap() { None => Ok(()), left => Err(left) } }).await;
    tasks.stop(Duration::from_secs(10)).await;
    println!("ok");
}
