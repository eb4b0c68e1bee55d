//! Agents with a wrong or an expired bootstrap token: they say so, wait, and nothing of them is in the parent.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{Child, ONE, Parent};
use crate::bench::{Process, free_port, until_so};

const EXPIRED: &str = "0exp1r.0123456789abcdef";

fn agent(name: &str, parent: &Parent, child: &Child, folder: &Path, token: &str, further: &[String]) -> Process {
    let mut arguments = vec![
        "agent".to_owned(),
        format!("--parent={}", parent.url()),
        format!("--token={token}"),
        format!("--kubeconfig={}", child.kubeconfig().display()),
        format!("--data-dir={}", folder.join(name).display()),
        format!("--admin=127.0.0.1:{}", free_port()),
    ];
    arguments.extend_from_slice(further);
    Process::start(name, Path::new(env!("CARGO_BIN_EXE_anabranch")), folder, &arguments)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_or_expired_token_is_said() {
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let parent = Parent::embedded(folder.path()).await;
    let (id, secret) = EXPIRED.split_once('.').unwrap();
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": secret, "expiration": "2020-01-01T00:00:00Z",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
        },
    });
    crate::bench::apply_all(&parent.admin(), &[token]).await;
    let ca = folder.path().join("parent-ca.crt");
    std::fs::write(&ca, parent.ca()).unwrap();
    let ca = [format!("--parent-ca={}", ca.display())];
    let wrong = format!("{}.0123456789abcdef", parent.token().split_once('.').unwrap().0);
    let cases: [(&str, &str, &[String], &str); 6] = [
        ("wrong", &wrong, &[], "its secret half is wrong"),
        ("unknown", "abcdef.0123456789abcdef", &[], "does not know the bootstrap token abcdef"),
        ("expired", EXPIRED, &[], "does not know the bootstrap token 0exp1r"),
        ("no-token", "something", &[], "--parent-ca"),
        ("wrong-with-ca", &wrong, &ca, "does not accept the bootstrap token"),
        ("expired-with-ca", EXPIRED, &ca, "does not accept the bootstrap token"),
    ];
    for (name, token, further, words) in cases {
        // A child of its own: the lease of an agent that was killed lives on for a while.
        let own = folder.path().join(name);
        std::fs::create_dir(&own).unwrap();
        let child = Child::embedded(&own).await;
        let agent = agent(name, &parent, &child, &own, token, further);
        until_so(&format!("the agent with the {name} token says"), || async {
            let said = agent.said();
            if said.contains(words) { Ok(()) } else { Err(said) }
        })
        .await;
        assert!(agent.runs(), "{name}: it waits for a better day");
        assert!(!agent.said().contains("0123456789abcdef"), "{name}: a token is never told");
        drop(agent);
        if let Child::Embedded(_, _, tasks) = &child {
            tasks.stop(Duration::from_secs(5)).await;
        }
    }
    let requests = cluster::Dynamic::new(parent.admin()).call("GET", "/apis/clusters.clusternet.io/v1beta1/clusterregistrationrequests", None, None).await.unwrap();
    assert_eq!(requests["items"].as_array().map(Vec::len), Some(0), "{requests}");
    parent.stop().await;
}
