//! The predictor as a scheduler asks it: HTTP over a byte stream, nodes and Pods of the child behind it.

use std::sync::Arc;

use engine::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::predictor::Predictor;

/// Asks on a connection of its own; code and body.
async fn ask(predictor: &Arc<Predictor>, method: &str, path: &str, body: &str) -> (u16, String) {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(predictor.clone().serve(far));
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    near.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    near.read_to_string(&mut text).await.unwrap();
    serving.await.unwrap();
    let code = text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, text.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_capacity_follows_nodes_and_pods() {
    let child = admin(&server().await);
    let node = |name: &str, cpu: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}});
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(child.clone());
    put(&child, node("one", "4")).await;
    let status = kube::api::Patch::Merge(json!({"status": node("one", "4")["status"]}));
    nodes.patch_status("one", &kube::api::PatchParams::default(), &status).await.unwrap();
    let tasks = Tasks::new(&CancellationToken::new());
    let predictor = Predictor::new(child.clone(), tasks.clone());
    let question = r#"{"resources":{"requests":{"cpu":"1"}}}"#;
    assert_eq!(ask(&predictor, "POST", "/replicas/predict", question).await, (200, r#"{"replicas":{"default":4}}"#.to_owned()));
    put(&child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    put(&child, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "yard"}, "spec": {
        "nodeName": "one", "containers": [{"name": "m", "image": "i", "resources": {"requests": {"cpu": "2500m"}}}]}}))
    .await;
    eventually("the Pod counts", || async {
        let answer = ask(&predictor, "POST", "/replicas/predict", question).await;
        if answer == (200, r#"{"replicas":{"default":1}}"#.to_owned()) { Ok(()) } else { Err(answer) }
    })
    .await;
    assert_eq!(ask(&predictor, "GET", "/replicas/unscheduled", "").await, (200, r#"{"replicas":{}}"#.to_owned()));
    assert_eq!(ask(&predictor, "POST", "/replicas/predict", "{").await.0, 400);
    assert_eq!(ask(&predictor, "GET", "/replicas/predict", "").await.0, 405);
    assert_eq!(ask(&predictor, "GET", "/else", "").await.0, 404);
    tasks.stop(Duration::from_secs(5)).await;
}
