//! How much many simulated children cost: `fleet [CHILDREN] [NODES]` starts them, gives each a Deployment, waits until all are
//! up, changes a ConfigMap in each, and prints times and memory.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, reason = "an example talks to people and may stop")]

use std::time::Instant;

use apiserver::controllers::{built_in, run_local};
use apiserver::{ApiServer, Identity};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("").to_owned();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat.rsplit(')').next().unwrap_or("").split_whitespace().filter_map(|f| f.parse().ok()).collect();
    fields.get(10..12).map_or(0.0, |times| times.iter().sum::<f64>() / 100.0)
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).expect("a request");
    let response = server.request(Identity::master("fleet"), request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u32>().ok());
    let (children, nodes) = (arguments.next().unwrap_or(100), arguments.next().unwrap_or(1));
    let shutdown = CancellationToken::new();
    let begin = Instant::now();
    let mut servers = Vec::new();
    for _ in 0..children {
        let server = ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
        let mut options = simulator::Options::with_nodes(nodes);
        options.start_delay = SignedDuration::ZERO;
        let mut all = built_in(None);
        all.extend(simulator::controllers(options));
        tokio::spawn(run_local(server.clone(), all, shutdown.clone()));
        servers.push(server);
    }
    println!("{children} children built: {:?}, {} MB, {:.1} s of CPU", begin.elapsed(), resident(), processor());
    let begin = Instant::now();
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "a"}]}}},
    });
    for server in &servers {
        let (code, answer) = send(server, "POST", "/apis/apps/v1/namespaces/default/deployments", &web).await;
        assert_eq!(code, 201, "{answer}");
    }
    for server in &servers {
        let mut watch = server.store().watch("apps/deployments", store::Scope::Table, server.store().revision()).expect("a watch");
        loop {
            let (_, web) = send(server, "GET", "/apis/apps/v1/namespaces/default/deployments/web", &Value::Null).await;
            if web["status"]["availableReplicas"] == 2 {
                break;
            }
            watch.next().await;
        }
    }
    let revisions: u64 = servers.iter().map(|server| server.store().revision()).sum();
    println!("all up: {:?}, {} MB, {:.1} s of CPU, {} revisions a child", begin.elapsed(), resident(), processor(), revisions / u64::from(children));
    let before = processor();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    println!("3 s at rest: {:.2} s of CPU, {} MB", processor() - before, resident());
    shutdown.cancel();
}
