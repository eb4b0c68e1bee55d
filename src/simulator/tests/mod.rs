//! Whole children in process: what users create turns into what real controllers would have made of it.

mod model;

use std::time::Duration;

use apiserver::controllers::{built_in, run_local};
use apiserver::{ApiServer, Identity};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::SignedDuration;
use serde_json::{json, Value};
use tokio_util::sync::CancellationToken;

use crate::value::{condition, int, list, name, text};
use crate::{controllers, Options, FAIL};

/// How long anything in here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A child with its controllers.
struct Child {
    server: ApiServer,
    shutdown: CancellationToken,
}

impl Drop for Child {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Child {
    async fn new(nodes: u32) -> Self {
        let server = ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
        let shutdown = CancellationToken::new();
        let mut options = Options::with_nodes(nodes);
        options.start_delay = SignedDuration::from_millis(5);
        options.stop_delay = SignedDuration::from_millis(5);
        options.run_time = SignedDuration::from_millis(5);
        let mut all = built_in(None);
        all.extend(controllers(options));
        tokio::spawn(run_local(server.clone(), all, shutdown.clone()));
        Self { server, shutdown }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .expect("a request");
        let response = self.server.request(Identity::master("test"), request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        self.send("GET", path, "application/json", &Value::Null).await.1
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.send("POST", path, "application/json", &body).await;
        assert_eq!(code, 201, "{answer}");
        answer
    }

    async fn merge(&self, path: &str, body: Value) {
        let (code, answer) = self.send("PATCH", path, "application/merge-patch+json", &body).await;
        assert_eq!(code, 200, "{answer}");
    }

    async fn delete(&self, path: &str, options: Value) {
        let (code, answer) = self.send("DELETE", path, "application/json", &options).await;
        assert!(code < 300, "{answer}");
    }

    /// Waits until what is at a path satisfies a condition; says what was there last when it never does.
    async fn wait(&self, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.server.store().watch_all(self.server.store().revision()).expect("a watch");
        let mut last = Value::Null;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.get(path).await;
                if done(&last) {
                    return;
                }
                if watch.next().await.is_none() {
                    watch = self.server.store().watch_all(self.server.store().revision()).expect("a watch");
                }
            }
        })
        .await;
        assert!(found.is_ok(), "{path} never {what}: {}", serde_json::to_string_pretty(&last).unwrap_or_default());
        last
    }
}

/// A child whose simulation runs through a client, as it would against any API server.
async fn far_child(nodes: u32) -> Child {
    let server = ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
    let shutdown = CancellationToken::new();
    tokio::spawn(run_local(server.clone(), built_in(None), shutdown.clone()));
    let client = kube::Client::new(server.service(Identity::master("simulator")), "default");
    let mut options = Options::with_nodes(nodes);
    options.start_delay = SignedDuration::from_millis(5);
    options.stop_delay = SignedDuration::from_millis(5);
    tokio::spawn(crate::run(client, options, shutdown.clone()));
    Child { server, shutdown }
}

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn deployment(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image)},
    })
}

fn items(list: &Value) -> &[Value] {
    crate::value::list(list, &["items"])
}

fn progressing(deployment: &Value) -> &str {
    condition(list(deployment, &["status", "conditions"]), "Progressing").map_or("", |c| text(c, &["reason"]))
}

fn rolled_out(object: &Value, replicas: i64) -> bool {
    let count = |field: &str| int(object, &["status", field]).unwrap_or(0);
    ["replicas", "updatedReplicas", "availableReplicas", "readyReplicas"].iter().all(|field| count(field) == replicas)
        && count("observedGeneration") == int(object, &["metadata", "generation"]).unwrap_or(0)
}

#[tokio::test]
async fn a_deployment_turns_healthy_and_rolls() {
    let child = Child::new(2).await;
    child.post(&format!("{APPS}/deployments"), deployment(3, "a")).await;
    let web = format!("{APPS}/deployments/web");
    let up = child.wait(&web, "was up", |web| rolled_out(web, 3) && progressing(web) == "NewReplicaSetAvailable").await;
    let available = condition(list(&up, &["status", "conditions"]), "Available").expect("a condition");
    assert_eq!(text(available, &["reason"]), "MinimumReplicasAvailable");
    assert_eq!(text(&up, &["metadata", "annotations", "deployment.kubernetes.io/revision"]), "1");
    let first = child.get(&format!("{APPS}/replicasets")).await;
    assert_eq!(items(&first).len(), 1);

    child.merge(&web, json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}})).await;
    child.wait(&web, "rolled", |web| rolled_out(web, 3) && progressing(web) == "NewReplicaSetAvailable").await;
    let sets = child.get(&format!("{APPS}/replicasets")).await;
    let sizes: Vec<(i64, String)> = items(&sets)
        .iter()
        .map(|set| {
            let revision = text(set, &["metadata", "annotations", "deployment.kubernetes.io/revision"]).to_owned();
            (int(set, &["spec", "replicas"]).unwrap_or(0), revision)
        })
        .collect();
    assert!(sizes.contains(&(0, "1".into())) && sizes.contains(&(3, "2".into())), "{sizes:?}");
    child
        .wait(&format!("{CORE}/pods"), "had only new pods", |pods| {
            items(pods).len() == 3 && items(pods).iter().all(|pod| text(&pod["spec"]["containers"][0], &["image"]) == "b")
        })
        .await;

    // Back to the first template: its set is used again, with a new number.
    child.merge(&web, json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}}})).await;
    let back = child.wait(&web, "rolled back", |web| rolled_out(web, 5)).await;
    assert_eq!(text(&back, &["metadata", "annotations", "deployment.kubernetes.io/revision"]), "3");
    assert_eq!(items(&child.get(&format!("{APPS}/replicasets")).await).len(), 2);

    child.merge(&web, json!({"spec": {"replicas": 0}})).await;
    child.wait(&format!("{CORE}/pods"), "lost its pods", |pods| items(pods).is_empty()).await;
    child.delete(&web, json!({"propagationPolicy": "Background"})).await;
    child.wait(&format!("{APPS}/replicasets"), "lost its sets", |sets| items(sets).is_empty()).await;
}

#[tokio::test]
async fn without_nodes_pods_stay_pending() {
    let child = Child::new(0).await;
    child.post(&format!("{APPS}/deployments"), deployment(2, "a")).await;
    let status = child
        .wait(&format!("{APPS}/deployments/web"), "counted", |web| {
            int(web, &["status", "updatedReplicas"]) == Some(2) && progressing(web) == "ReplicaSetUpdated"
        })
        .await;
    let status = status["status"].clone();
    assert_eq!(
        (int(&status, &["replicas"]), int(&status, &["unavailableReplicas"]), int(&status, &["terminatingReplicas"])),
        (Some(2), Some(2), Some(0))
    );
    let progress = condition(list(&status, &["conditions"]), "Progressing").expect("a condition");
    assert!(text(progress, &["message"]).starts_with("ReplicaSet \"web-") && text(progress, &["message"]).ends_with("\" is progressing."));
    let available = condition(list(&status, &["conditions"]), "Available").expect("a condition");
    assert_eq!(text(available, &["message"]), "Deployment does not have minimum availability.");
}

#[tokio::test]
async fn a_failing_image_blocks_a_rollout() {
    let child = Child::new(1).await;
    child.post(&format!("{APPS}/deployments"), deployment(2, "a")).await;
    let web = format!("{APPS}/deployments/web");
    child.wait(&web, "was up", |web| rolled_out(web, 2)).await;
    let bad = json!({"spec": {"template": {"metadata": {"annotations": {FAIL: "ImagePullBackOff"}}}}});
    child.merge(&web, bad).await;
    let pods = child
        .wait(&format!("{CORE}/pods"), "had a failing pod", |pods| {
            items(pods).iter().any(|pod| {
                list(pod, &["status", "containerStatuses"])
                    .iter()
                    .any(|container| text(container, &["state", "waiting", "reason"]) == "ImagePullBackOff")
            })
        })
        .await;
    assert_eq!(items(&pods).len(), 3, "the old pods stay");
    let status = child.get(&web).await;
    assert_eq!(int(&status, &["status", "availableReplicas"]), Some(2));
}

#[tokio::test]
async fn a_stateful_set_goes_in_order() {
    let child = Child::new(1).await;
    let mut set = deployment(3, "a");
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("web");
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    child.post(&format!("{APPS}/statefulsets"), set).await;
    let path = format!("{APPS}/statefulsets/web");
    child.wait(&path, "was up", |set| rolled_out(set, 3)).await;
    let pods = child.get(&format!("{CORE}/pods")).await;
    let names: Vec<&str> = items(&pods).iter().map(name).collect();
    assert_eq!(names, ["web-0", "web-1", "web-2"]);
    child
        .wait(&format!("{CORE}/persistentvolumeclaims"), "were bound", |claims| {
            items(claims).len() == 3 && items(claims).iter().all(|claim| text(claim, &["status", "phase"]) == "Bound")
        })
        .await;
    child.merge(&path, json!({"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}})).await;
    let done = child.wait(&path, "was updated", |set| {
        rolled_out(set, 2) && text(set, &["status", "currentRevision"]) == text(set, &["status", "updateRevision"])
    });
    let done = done.await;
    assert_eq!(int(&done, &["status", "currentReplicas"]), Some(2));
    let pods = child.get(&format!("{CORE}/pods")).await;
    assert!(items(&pods).iter().all(|pod| text(&pod["spec"]["containers"][0], &["image"]) == "b"));
    assert_eq!(items(&child.get(&format!("{APPS}/controllerrevisions")).await).len(), 2);
}

#[tokio::test]
async fn a_daemon_set_is_on_every_node() {
    let child = Child::new(3).await;
    let mut set = deployment(1, "a");
    set["kind"] = json!("DaemonSet");
    set["spec"].as_object_mut().expect("a map").remove("replicas");
    child.post(&format!("{APPS}/daemonsets"), set).await;
    let path = format!("{APPS}/daemonsets/web");
    let up = |set: &Value| {
        ["desiredNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"]
            .iter()
            .all(|field| int(set, &["status", field]) == Some(3))
    };
    child.wait(&path, "was up", up).await;
    let pods = child.get(&format!("{CORE}/pods")).await;
    let nodes: std::collections::BTreeSet<&str> = items(&pods).iter().map(|pod| text(pod, &["spec", "nodeName"])).collect();
    assert_eq!(nodes.len(), 3);
    child.merge(&path, json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}})).await;
    child
        .wait(&format!("{CORE}/pods"), "were replaced", |pods| {
            items(pods).len() == 3 && items(pods).iter().all(|pod| text(&pod["spec"]["containers"][0], &["image"]) == "b")
        })
        .await;
    child.wait(&path, "was up again", up).await;
}

fn job(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}}},
    });
    if let (Some(own), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
        own.extend(more.clone());
    }
    object
}

fn ended<'a>(job: &'a Value, kind: &str) -> Option<&'a str> {
    condition(list(job, &["status", "conditions"]), kind).filter(|c| text(c, &["status"]) == "True").map(|c| text(c, &["reason"]))
}

#[tokio::test]
async fn jobs_heed_their_policies() {
    let child = Child::new(1).await;
    let exits = |mut job: Value, code: &str| {
        job["spec"]["template"]["metadata"]["annotations"] = json!({crate::EXIT_CODE: code});
        job
    };
    let rules = |action: &str| json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [7]}}]});
    child.post(&format!("{BATCH}/jobs"), exits(job("fatal", json!({"podFailurePolicy": rules("FailJob")})), "7")).await;
    let done = child.wait(&format!("{BATCH}/jobs/fatal"), "failed", |job| ended(job, "Failed").is_some()).await;
    assert_eq!(ended(&done, "Failed"), Some("PodFailurePolicy"));
    let message = text(condition(list(&done, &["status", "conditions"]), "Failed").expect("it"), &["message"]);
    assert!(message.starts_with("Container main for pod default/fatal-") && message.ends_with(" failed with exit code 7 matching FailJob rule at index 0"), "{message}");
    let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 2, "podFailurePolicy": rules("FailIndex")});
    child.post(&format!("{BATCH}/jobs"), exits(job("lost", indexed), "7")).await;
    let done = child.wait(&format!("{BATCH}/jobs/lost"), "failed", |job| ended(job, "Failed").is_some()).await;
    assert_eq!((ended(&done, "Failed"), text(&done, &["status", "failedIndexes"]), int(&done, &["status", "failed"])), (Some("FailedIndexes"), "0-2", Some(3)));
    let most = json!({"completionMode": "Indexed", "completions": 9, "parallelism": 9, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1});
    child.post(&format!("{BATCH}/jobs"), exits(job("many", most), "1")).await;
    let done = child.wait(&format!("{BATCH}/jobs/many"), "failed", |job| ended(job, "Failed").is_some()).await;
    assert_eq!(ended(&done, "Failed"), Some("MaxFailedIndexesExceeded"));
    let mut leader = job("leader", json!({"completionMode": "Indexed", "completions": 2, "parallelism": 1, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}));
    leader["spec"]["template"]["metadata"]["annotations"] = json!({crate::EXIT_CODE: "0"});
    child.post(&format!("{BATCH}/jobs"), leader).await;
    let done = child.wait(&format!("{BATCH}/jobs/leader"), "ended", |job| ended(job, "Complete").is_some()).await;
    assert_eq!(ended(&done, "SuccessCriteriaMet"), Some("SuccessPolicy"));
    assert_eq!(text(condition(list(&done, &["status", "conditions"]), "Complete").expect("it"), &["message"]), "Matched rules at index 0");
    // Failures that are ignored do not count; their pods are let go.
    child.post(&format!("{BATCH}/jobs"), exits(job("patient", json!({"backoffLimit": 0, "podFailurePolicy": rules("Ignore")})), "7")).await;
    let pods = "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dpatient";
    let let_go = |pod: &Value| text(pod, &["status", "phase"]) == "Failed" && list(pod, &["metadata", "finalizers"]).is_empty();
    child.wait(pods, "was let go", |all| list(all, &["items"]).iter().any(let_go)).await;
    let patient = child.get(&format!("{BATCH}/jobs/patient")).await;
    assert_eq!((ended(&patient, "Failed"), int(&patient, &["status", "failed"]).unwrap_or(0)), (None, 0));
}

#[tokio::test]
async fn jobs_end() {
    let child = Child::new(1).await;
    child.post(&format!("{BATCH}/jobs"), job("sweep", json!({"completions": 3, "parallelism": 2}))).await;
    let done = child.wait(&format!("{BATCH}/jobs/sweep"), "ended", |job| ended(job, "Complete").is_some()).await;
    assert_eq!(ended(&done, "Complete"), Some("CompletionsReached"));
    assert_eq!((int(&done, &["status", "succeeded"]), int(&done, &["status", "failed"])), (Some(3), None));
    assert!(!text(&done, &["status", "completionTime"]).is_empty());

    let mut failing = job("drop", json!({"backoffLimit": 0}));
    failing["spec"]["template"]["metadata"] = json!({"annotations": {crate::EXIT_CODE: "1"}});
    child.post(&format!("{BATCH}/jobs"), failing).await;
    let done = child.wait(&format!("{BATCH}/jobs/drop"), "failed", |job| ended(job, "Failed").is_some()).await;
    assert_eq!(ended(&done, "Failed"), Some("BackoffLimitExceeded"));

    let mut late = job("late", json!({"activeDeadlineSeconds": 1}));
    late["spec"]["template"]["metadata"] = json!({"annotations": {crate::RUN_SECONDS: "1000"}});
    child.post(&format!("{BATCH}/jobs"), late).await;
    let done = child.wait(&format!("{BATCH}/jobs/late"), "was late", |job| ended(job, "Failed").is_some()).await;
    assert_eq!(ended(&done, "Failed"), Some("DeadlineExceeded"));
    let mut endless = job("endless", json!({}));
    endless["spec"]["template"]["metadata"] = json!({"annotations": {crate::RUN_SECONDS: "1000"}});
    child.post(&format!("{BATCH}/jobs"), endless).await;
    child.wait(&format!("{BATCH}/jobs/endless"), "was running", |job| int(job, &["status", "ready"]) == Some(1)).await;
    // Pods of jobs are held by nobody once the jobs are gone, ended or not.
    for name in ["sweep", "drop", "late", "endless"] {
        child.delete(&format!("{BATCH}/jobs/{name}"), json!({"propagationPolicy": "Background"})).await;
    }
    child.wait(&format!("{CORE}/pods"), "were cleared away", |pods| items(pods).is_empty()).await;
}

#[tokio::test]
async fn a_job_made_by_hand_is_none_of_its_cron_job() {
    let child = Child::new(1).await;
    let spec = job("x", json!({}))["spec"].clone();
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}});
    let cron = child.post(&format!("{BATCH}/cronjobs"), cron).await;
    // As `kubectl create job --from=cronjob/c` makes them; the other as the schedule does.
    for (name, note) in [("manual", "cronjob.kubernetes.io/instantiate"), ("due", "batch.kubernetes.io/cronjob-scheduled-timestamp")] {
        let mut made = job(name, json!({}));
        made["metadata"]["annotations"] = json!({note: "2026-01-01T00:00:00Z"});
        made["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": text(&cron, &["metadata", "uid"]), "controller": true}]);
        made["spec"]["template"]["metadata"] = json!({"annotations": {crate::RUN_SECONDS: "1000"}});
        child.post(&format!("{BATCH}/jobs"), made).await;
        child.wait(&format!("{BATCH}/jobs/{name}"), "ran", |job| int(job, &["status", "ready"]) == Some(1)).await;
    }
    let cron = child.wait(&format!("{BATCH}/cronjobs/c"), "saw its job", |cron| !list(cron, &["status", "active"]).is_empty()).await;
    let named: Vec<&str> = list(&cron, &["status", "active"]).iter().map(|job| text(job, &["name"])).collect();
    assert_eq!(named, ["due"]);
}

#[tokio::test]
async fn a_suspended_job_has_not_failed() {
    let child = Child::new(1).await;
    let mut long = job("pause", json!({"backoffLimit": 1, "parallelism": 2, "completions": 4}));
    long["spec"]["template"]["metadata"] = json!({"annotations": {crate::RUN_SECONDS: "1000"}});
    let path = format!("{BATCH}/jobs/pause");
    child.post(&format!("{BATCH}/jobs"), long).await;
    for _ in 0..4 {
        child.wait(&path, "ran", |job| int(job, &["status", "ready"]) == Some(2)).await;
        // Fewer at once is as little a failure as none at all.
        child.merge(&path, json!({"spec": {"parallelism": 1}})).await;
        child.wait(&path, "shrank", |job| int(job, &["status", "active"]) == Some(1) && int(job, &["status", "terminating"]) == Some(0)).await;
        child.merge(&path, json!({"spec": {"suspend": true}})).await;
        let rests = child.wait(&path, "was suspended", |job| int(job, &["status", "active"]).is_none() && int(job, &["status", "terminating"]) == Some(0)).await;
        assert_eq!(condition(list(&rests, &["status", "conditions"]), "Suspended").map(|c| text(c, &["status"])), Some("True"));
        child.merge(&path, json!({"spec": {"suspend": false, "parallelism": 2}})).await;
    }
    let runs = child.wait(&path, "ran", |job| int(job, &["status", "ready"]) == Some(2)).await;
    assert_eq!((int(&runs, &["status", "failed"]), ended(&runs, "Failed"), ended(&runs, "FailureTarget")), (None, None, None));
}

#[tokio::test]
async fn services_find_ready_pods() {
    let child = Child::new(1).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    child.post(&format!("{CORE}/services"), service).await;
    child.wait(&format!("{CORE}/endpoints/web"), "was made", |endpoints| endpoints["kind"] == "Endpoints").await;
    child.post(&format!("{APPS}/deployments"), deployment(2, "a")).await;
    child
        .wait(&format!("{CORE}/endpoints/web"), "had addresses", |endpoints| {
            list(&endpoints["subsets"][0], &["addresses"]).len() == 2
        })
        .await;
    child
        .wait("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "had endpoints", |slices| {
            items(slices).len() == 1
                && list(&items(slices)[0], &["endpoints"]).iter().filter(|e| e["conditions"]["ready"] == true).count() == 2
        })
        .await;
    let balanced = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "wide"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    child.post(&format!("{CORE}/services"), balanced).await;
    child
        .wait(&format!("{CORE}/services/wide"), "got an address", |service| {
            list(service, &["status", "loadBalancer", "ingress"]).len() == 1
        })
        .await;
    child.delete(&format!("{CORE}/services/wide"), Value::Null).await;
    child.delete(&format!("{CORE}/services/web"), Value::Null).await;
    child.wait(&format!("{CORE}/endpoints"), "were removed", |all| items(all).is_empty()).await;
    child.wait("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "were removed", |all| items(all).is_empty()).await;
}

#[tokio::test]
async fn namespaces_are_furnished_and_emptied() {
    let child = Child::new(1).await;
    child.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    child.wait("/api/v1/namespaces/yard/serviceaccounts/default", "was made", |account| account["kind"] == "ServiceAccount").await;
    child.wait("/api/v1/namespaces/yard/configmaps/kube-root-ca.crt", "was made", |map| map["kind"] == "ConfigMap").await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    child.post("/api/v1/namespaces/yard/configmaps", held).await;
    let mut web = deployment(2, "a");
    web["metadata"]["namespace"] = json!("yard");
    child.post("/apis/apps/v1/namespaces/yard/deployments", web).await;
    child.wait("/apis/apps/v1/namespaces/yard/deployments/web", "was up", |web| rolled_out(web, 2)).await;
    child.delete("/api/v1/namespaces/yard", Value::Null).await;
    let waits = child
        .wait("/api/v1/namespaces/yard", "said what it waits for", |namespace| {
            condition(list(namespace, &["status", "conditions"]), "NamespaceFinalizersRemaining")
                .is_some_and(|c| text(c, &["message"]).ends_with("example.com/hold in 1 resource instances"))
        })
        .await;
    assert_eq!(text(&waits, &["status", "phase"]), "Terminating");
    child.merge("/api/v1/namespaces/yard/configmaps/held", json!({"metadata": {"finalizers": null}})).await;
    child.wait("/api/v1/namespaces/yard", "was gone", |namespace| namespace["code"] == 404).await;
    assert!(items(&child.get("/api/v1/pods").await).is_empty());
}

#[tokio::test]
async fn dependents_follow_their_owners() {
    let child = Child::new(0).await;
    let map = |name: &str, owners: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
    };
    let maps = format!("{CORE}/configmaps");
    let owner = |object: &Value, block: bool| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name(object), "uid": object["metadata"]["uid"],
            "blockOwnerDeletion": block,
        })
    };
    let (a, b) = (child.post(&maps, map("a", json!([]))).await, child.post(&maps, map("b", json!([]))).await);
    child.post(&maps, map("of-a", json!([owner(&a, true)]))).await;
    child.post(&maps, map("of-both", json!([owner(&a, false), owner(&b, false)]))).await;
    let unknown = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "u"}]);
    child.post(&maps, map("of-unknown", unknown)).await;
    child.post(&maps, map("of-nobody", json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]))).await;
    child.wait(&format!("{maps}/of-nobody"), "was collected", |map| map["code"] == 404).await;
    child.delete(&format!("{maps}/a"), json!({"propagationPolicy": "Foreground"})).await;
    child.wait(&format!("{maps}/a"), "was gone", |map| map["code"] == 404).await;
    assert_eq!(child.get(&format!("{maps}/of-a")).await["code"], 404, "the dependent went first");
    child
        .wait(&format!("{maps}/of-both"), "lost one owner", |map| list(map, &["metadata", "ownerReferences"]).len() == 1)
        .await;
    child.delete(&format!("{maps}/b"), json!({"propagationPolicy": "Orphan"})).await;
    child.wait(&format!("{maps}/b"), "was gone", |map| map["code"] == 404).await;
    let left = child.get(&format!("{maps}/of-both")).await;
    assert!(list(&left, &["metadata", "ownerReferences"]).is_empty(), "{left}");
    assert_eq!(child.get(&format!("{maps}/of-unknown")).await["kind"], "ConfigMap", "nothing is deleted on a doubt");
}

#[tokio::test]
async fn the_same_through_a_client() {
    let child = far_child(2).await;
    child.post(&format!("{APPS}/deployments"), deployment(3, "a")).await;
    let web = format!("{APPS}/deployments/web");
    child.wait(&web, "was up", |web| rolled_out(web, 3) && progressing(web) == "NewReplicaSetAvailable").await;
    assert_eq!(items(&child.get(&format!("{CORE}/pods")).await).len(), 3, "no pod is made twice by a stale look");
    child.merge(&web, json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}})).await;
    child.wait(&web, "rolled", |web| rolled_out(web, 3) && progressing(web) == "NewReplicaSetAvailable").await;
    child.delete(&web, json!({"propagationPolicy": "Background"})).await;
    child.wait(&format!("{CORE}/pods"), "lost its pods", |pods| items(pods).is_empty()).await;
}
