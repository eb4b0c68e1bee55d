//! Many agents in one process: `fleet [CLUSTERS]` prints how long a change of every branch takes to be applied everywhere.
//!
//! Parent and children are API servers in this process, branches lie in a repository of this machine. Only the agents' share of
//! the way is measured: from telling the commits to the last child that has them.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, missing_docs, reason = "a bench")]

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clusters::ManagedCluster;
use apiserver::{ApiServer, Identity};
use base64::Engine as _;
use cluster::dynamic::{ApplyAs, Dynamic};
use cluster::{Client, Discovery};
use engine::{CancellationToken, Tasks};
use futures::StreamExt as _;
use git::{Access, Content, Draft, ObjectId, RefUpdate, Signature, Url, Written};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use plan::tree::{Marker, object_file};
use serde_json::{Value, json};
use store::Store;

async fn put(client: &Client, discovery: &Discovery, object: Value) {
    let resource = discovery.resolve(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).await.unwrap();
    Dynamic::new(client.clone()).apply(&resource, &object, ApplyAs { manager: "bench", force: true, dry_run: false }).await.unwrap();
}

async fn server() -> Client {
    let server = ApiServer::build(apiserver::Options::new(Store::memory())).await;
    cluster::in_process(server.service(Identity::master("bench")))
}

fn objects(value: &str) -> Vec<Value> {
    let labels = json!({"clusternet.io/created-by": "clusternet-hub"});
    let mut out = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard", "labels": labels}})];
    for n in 0..10 {
        let value = if n == 0 { value } else { "same" };
        out.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{n}"), "namespace": "yard", "labels": labels}, "data": {"mode": value}}));
    }
    out
}

struct Fleet {
    parent: Client,
    discovery: Discovery,
    remote: git::Remote,
    url: String,
    tips: BTreeMap<String, ObjectId>,
}

impl Fleet {
    async fn describe(&self, name: &str, value: &str) {
        let raw: Vec<String> = objects(value).iter().map(|o| base64::engine::general_purpose::STANDARD.encode(o.to_string())).collect();
        put(&self.parent, &self.discovery, json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description",
            "metadata": {"name": "pots-abcde-generic", "namespace": format!("clusternet-{name}"), "finalizers": ["apps.clusternet.io/finalizer"],
                "labels": {"apps.clusternet.io/subs.namespace": "fleet", "apps.clusternet.io/subs.name": "pots"}}, "spec": {"deployer": "Generic", "raw": raw}})).await;
    }

    /// Commits to the branches of these clusters, and pushes once.
    async fn commit(&mut self, names: &[String], value: &str) {
        let mut files = BTreeMap::new();
        for object in objects(value) {
            let file = object_file(object.to_string().as_bytes()).unwrap();
            files.insert(format!("fleet/pots/{}", file.name), Content::new(file.text.as_bytes().to_vec()));
        }
        let marker = Marker { layout: plan::tree::LAYOUT, owner: "fleet/delivery".into(), directories: BTreeSet::from(["fleet/pots".to_owned()]) };
        files.insert(".anabranch.yaml".into(), Content::new(marker.text().into_bytes()));
        let who = Signature { name: "bench".into(), email: "bench@example.org".into(), seconds: 1_700_000_000, offset: 0 };
        let drafts = names.iter().map(|name| Draft { parent: self.tips.get(name).copied(), files: files.clone(), ours: Arc::new(|_| true), message: Arc::new(|_| "state".into()), author: who.clone(), committer: who.clone() });
        let written = self.remote.write(drafts.collect()).await.unwrap();
        let mut updates = Vec::new();
        for (name, written) in names.iter().zip(written) {
            let Written::Commit { id, objects, .. } = written.unwrap() else { panic!("no change") };
            let old = self.tips.insert(name.clone(), id).unwrap_or(ObjectId::ZERO);
            updates.push(RefUpdate { name: format!("refs/heads/clusters/{name}"), old, new: id, objects });
        }
        self.remote.push(updates).await.unwrap();
    }

    async fn tell(&self, names: &[String]) {
        futures::stream::iter(names)
            .for_each_concurrent(16, |name| async move {
                let api: Api<ManagedCluster> = Api::namespaced(self.parent.clone(), &format!("clusternet-{name}"));
                let patch = json!({"metadata": {"annotations": {"gitops.anabranch.io/delivery-url": self.url, "gitops.anabranch.io/delivery-branch": format!("clusters/{name}"),
                    "gitops.anabranch.io/delivery-commit": self.tips[name].to_string()}}});
                api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            })
            .await;
    }

    async fn applied(&self, names: &[String]) {
        let api: Api<ManagedCluster> = Api::all(self.parent.clone());
        let end = Instant::now() + Duration::from_secs(300);
        loop {
            let list = api.list(&ListParams::default()).await.unwrap().items;
            let done = list.iter().filter(|c| {
                let name = c.metadata.name.as_ref().unwrap();
                names.contains(name) && c.metadata.annotations.as_ref().and_then(|a| a.get("gitops.anabranch.io/applied-commit")) == Some(&self.tips[name].to_string())
            });
            let done = done.count();
            if done == names.len() {
                return;
            }
            assert!(Instant::now() < end, "{done} of {} applied", names.len());
            tokio::time::sleep(Duration::from_millis(if names.len() > 10 { 50 } else { 2 })).await;
        }
    }
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines().find_map(|l| l.strip_prefix("VmRSS:")).and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[tokio::main]
async fn main() {
    let count: usize = std::env::args().nth(1).map_or(100, |n| n.parse().unwrap());
    let names: Vec<String> = (0..count).map(|n| format!("c{n:05}")).collect();
    let dir = tempfile::tempdir().unwrap();
    let git = git::Git::new(git::Options { directory: dir.path().join("mirrors"), local_threads: 2, network_threads: 2 });
    let url = dir.path().join("delivery.git").to_str().unwrap().to_owned();
    let remote = git.remote(&Url::from_str(&url).unwrap(), &Access::anonymous()).await.unwrap();
    remote.init().await.unwrap();
    let parent = server().await;
    for crd in api::crds() {
        put(&parent, &Discovery::new(parent.clone()), crd).await;
    }
    let mut fleet = Fleet { discovery: Discovery::new(parent.clone()), parent: parent.clone(), remote, url, tips: BTreeMap::new() };
    for name in &names {
        put(&parent, &fleet.discovery, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("clusternet-{name}")}})).await;
        put(&parent, &fleet.discovery, json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": name, "namespace": format!("clusternet-{name}")},
            "spec": {"clusterId": format!("11111111-2222-3333-4444-{:0>12}", name.trim_start_matches('c')), "syncMode": "Pull"}})).await;
        fleet.describe(name, "zero").await;
    }
    println!("{count} places made, {} MB", memory());
    let stop = CancellationToken::new();
    let tasks = Tasks::new(&stop);
    for name in &names {
        let child = server().await;
        let to_parent = parent.clone();
        let connect: agent::Connect = Arc::new(move |_, _| Ok(to_parent.clone()));
        let mut options = agent::Options::usual(agent::Parent::with("in-process://parent", connect), "unused", git.clone());
        options.join = agent::Join::Assigned { namespace: format!("clusternet-{name}"), cluster_name: name.clone(), auth: cluster::Auth::Anonymous };
        options.lease = agent::Lease::RELAXED;
        let token = tasks.token().clone();
        tasks.spawn("agent", async move { Box::pin(agent::run(child, options, token)).await.unwrap() });
    }
    fleet.commit(&names, "zero").await;
    let began = Instant::now();
    fleet.tell(&names).await;
    fleet.applied(&names).await;
    println!("first state in {count} clusters: {:.3} s, {} MB", began.elapsed().as_secs_f64(), memory());
    for round in ["one", "two"] {
        for name in &names {
            fleet.describe(name, round).await;
        }
        fleet.commit(&names, round).await;
        let began = Instant::now();
        fleet.tell(&names).await;
        fleet.applied(&names).await;
        println!("one line in all {count}: {:.3} s, {} MB", began.elapsed().as_secs_f64(), memory());
    }
    let one = vec![names[count / 2].clone()];
    let mut times = Vec::new();
    for round in 0..10 {
        let value = format!("single-{round}");
        fleet.describe(&one[0], &value).await;
        fleet.commit(&one, &value).await;
        let began = Instant::now();
        fleet.tell(&one).await;
        fleet.applied(&one).await;
        times.push(began.elapsed());
    }
    times.sort();
    println!("one line in one of {count}: p50 {:.1} ms, most {:.1} ms", times[5].as_secs_f64() * 1e3, times[9].as_secs_f64() * 1e3);
    tasks.stop(Duration::from_secs(20)).await;
}
