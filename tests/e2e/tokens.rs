//! Agents and bootstrap tokens: wrong and expired ones are said, waited for, and leave nothing in the parent; a parent that was made
//! anew at the old place, with other keys, gets its agents back.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{Child, ONE, Parent};
use crate::bench::{Process, apply_all, bootstrap_token, free_port, until, until_so};

async fn clusters(parent: &Parent) -> Vec<Value> {
    let list = cluster::Dynamic::new(parent.admin()).call("GET", "/apis/clusters.clusternet.io/v1beta1/managedclusters", None, None).await.unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

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
    apply_all(&parent.admin(), &[bootstrap_token(EXPIRED, Some("2020-01-01T00:00:00Z"))]).await;
    let ca = folder.path().join("parent-ca.crt");
    std::fs::write(&ca, parent.ca()).unwrap();
    let ca = [format!("--parent-ca={}", ca.display())];
    let wrong = format!("{}.0123456789abcdef", parent.token().split_once('.').unwrap().0);
    let cases: [(&str, &str, &[String], &str); 5] = [
        ("wrong", &wrong, &[], "its secret half is wrong"),
        ("unknown", "abcdef.0123456789abcdef", &[], "does not know the bootstrap token abcdef"),
        ("expired", EXPIRED, &[], "does not know the bootstrap token 0exp1r"),
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
    let mut malformed = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let said = malformed.args(["agent", "--parent=https://127.0.0.1:1", "--token=something"]).output().unwrap();
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(1) && words.contains("the bootstrap token is malformed") && !words.contains("something"), "{words}");
    let requests = cluster::Dynamic::new(parent.admin()).call("GET", "/apis/clusters.clusternet.io/v1beta1/clusterregistrationrequests", None, None).await.unwrap();
    assert_eq!(requests["items"].as_array().map(Vec::len), Some(0), "{requests}");
    parent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_made_anew_gets_its_agents_back() {
    const TOKEN: &str = "again0.0123456789abcdef";
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let child = Child::embedded(folder.path()).await;
    let port = free_port();
    let mut joined = None;
    for generation in ["first", "second"] {
        let own = folder.path().join(generation);
        std::fs::create_dir(&own).unwrap();
        let parent = Parent::embedded_at(&own, port).await;
        apply_all(&parent.admin(), &[bootstrap_token(TOKEN, Some("2099-01-01T00:00:00Z"))]).await;
        let agent = joined.get_or_insert_with(|| agent("agent", &parent, &child, folder.path(), TOKEN, &["--name=back".to_owned()]));
        until(&format!("the agent has joined the {generation} parent"), || async {
            let ready = clusters(&parent).await.iter().any(|one| one["metadata"]["name"] == "back" && one["status"]["readyz"] == true);
            ready.then_some(())
        })
        .await;
        assert!(agent.runs());
        parent.stop().await;
    }
    drop(joined);
    if let Child::Embedded(_, _, tasks) = &child {
        tasks.stop(Duration::from_secs(5)).await;
    }
}
