//! The life of a cluster over an API server in this process, with a clock that the test moves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use apiserver::{ApiServer, Identity};
use cluster::dynamic::{ApplyAs, Dynamic};
use engine::{FakeClock, Recorder, Registry};
use kube::Client;
use store::Store;

use super::*;

async fn put(client: &Client, object: Value) {
    let resource = cluster::Discovery::new(client.clone()).resolve(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).await.unwrap();
    Dynamic::new(client.clone()).apply(&resource, &object, ApplyAs { manager: "test", force: true, dry_run: false }).await.unwrap();
}

async fn eventually(what: &str, clock: &FakeClock, api: &Api<ManagedCluster>, level: impl Fn(&ManagedCluster) -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let now = api.get("harbor").await.unwrap();
        if level(&now) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{what} did not happen at {}: {:#?} {:#?}", clock.now(), now.spec, now.status);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

use engine::Clock as _;

fn ready(cluster: &ManagedCluster) -> Option<(String, String)> {
    api::conditions::find(&status(cluster).conditions, condition::READY).map(|c| (c.status.clone(), c.reason.clone()))
}

fn report(at: Timestamp) -> Value {
    json!({"status": {"lastObservedTime": Time(at), "heartbeatFrequencySeconds": 10, "healthz": true, "livez": true, "readyz": true,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ManagedClusterReady", "message": "", "lastTransitionTime": Time(at)}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cluster_is_tainted_at_its_deadline_and_forgiven_when_it_reports() {
    let server = ApiServer::build(apiserver::Options::new(Store::memory())).await;
    let client = cluster::in_process(server.service(Identity::master("test")));
    for crd in api::crds() {
        put(&client, crd).await;
    }
    put(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusternet-harbor"}})).await;
    put(&client, json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": "harbor", "namespace": "clusternet-harbor"},
        "spec": {"clusterId": "11111111-2222-3333-4444-555555555555", "syncMode": "Pull", "taints": [{"key": "mine", "value": "x", "effect": "NoExecute"}]}})).await;
    let clusters: Api<ManagedCluster> = Api::namespaced(client.clone(), "clusternet-harbor");
    // The child's clock is an hour late: that alone must not make it lost.
    let clock = FakeClock::at(Timestamp::from_second(1_800_000_000).unwrap());
    let late = Timestamp::from_second(1_800_000_000 - 3600).unwrap();
    let say = |at: Timestamp| {
        let clusters = clusters.clone();
        async move { clusters.patch_status("harbor", &PatchParams::default(), &Patch::Merge(&report(at))).await.unwrap() }
    };
    say(late).await;
    let stop = CancellationToken::new();
    let context = Context { client: client.clone(), clock: Arc::new(clock.clone()), recorder: Recorder::silent(), metrics: Registry::new() };
    let running = tokio::spawn(run(context, Options { cluster_init: false, workers: 1 }, stop.clone()));
    eventually("initialisation said", &clock, &clusters, |c| status(c).conditions.iter().any(|c| c.type_ == "ClusterInit" && c.status == "True")).await;
    clock.advance(Duration::from_secs(29));
    assert_eq!(ready(&clusters.get("harbor").await.unwrap()), Some(("True".into(), "ManagedClusterReady".into())));
    // From here on time passes by itself: how far the controller is with its last turn does not matter.
    eventually("unknown and tainted", &clock, &clusters, |c| {
        clock.advance(Duration::from_secs(1));
        ready(c) == Some(("Unknown".into(), "ClusterStatusUnknown".into())) && c.spec.taints.len() == 2 && !status(c).healthz
    })
    .await;
    say(late.saturating_add(jiff::SignedDuration::from_secs(40)).unwrap()).await;
    eventually("forgiven", &clock, &clusters, |c| c.spec.taints.len() == 1 && c.spec.taints[0].key == "mine").await;
    stop.cancel();
    running.await.unwrap();
}
