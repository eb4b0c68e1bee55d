//! From a branch: fetched by commit id, applied, pruned by what the tree no longer has.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use api::apps::DescriptionPhase::Success;
use git::{Access, Content, Draft, ObjectId, RefUpdate, Signature, Url, Written};
use kube::api::{Patch, PatchParams};
use plan::tree::{Marker, object_file, part};

use super::*;

const BRANCH: &str = "clusters/harbor";

pub(super) struct Delivery {
    remote: git::Remote,
    url: String,
    /// Directories of rendered releases.
    pub(super) releases: std::collections::BTreeSet<String>,
    tip: Option<ObjectId>,
}

impl Delivery {
    pub(super) async fn new(world: &World) -> Self {
        let path = world.dir.path().join("delivery.git");
        let url = path.to_str().unwrap().to_owned();
        let remote = world.git.remote(&Url::from_str(&url).unwrap(), &Access::anonymous()).await.unwrap();
        remote.init().await.unwrap();
        Self { remote, url, releases: Default::default(), tip: None }
    }

    /// Commits what the Descriptions say, and these files besides.
    pub(super) async fn commit(&mut self, world: &World, more: &[(&str, &str)]) -> String {
        let mut files: BTreeMap<String, Content> = BTreeMap::new();
        let mut directories = std::collections::BTreeSet::new();
        for description in world.descriptions().list(&Default::default()).await.unwrap().items {
            if description.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let part = part(&description, object_file);
            directories.insert(part.directory.clone());
            for file in part.files {
                files.insert(format!("{}/{}", part.directory, file.name), Content::new(file.text.as_bytes().to_vec()));
            }
        }
        for (path, text) in more {
            if !self.releases.iter().any(|r| path.starts_with(r)) {
                directories.insert(path.rsplit_once('/').unwrap().0.to_owned());
            }
            files.insert((*path).to_owned(), Content::new(text.as_bytes().to_vec()));
        }
        let marker = Marker { layout: plan::tree::LAYOUT, owner: "fleet/delivery".into(), directories, releases: self.releases.clone() };
        files.insert(".anabranch.yaml".into(), Content::new(marker.text().into_bytes()));
        let who = Signature { name: "test".into(), email: "test@example.org".into(), seconds: 1_700_000_000, offset: 0 };
        let draft = Draft { parent: self.tip, files, ours: Arc::new(|_| true), message: Arc::new(|_| "state".into()), author: who.clone(), committer: who };
        let Written::Commit { id, objects, .. } = self.remote.write(vec![draft]).await.unwrap().remove(0).unwrap() else { panic!("no change") };
        let name = format!("refs/heads/{BRANCH}");
        let update = RefUpdate { name, old: self.tip.unwrap_or(ObjectId::ZERO), new: id, objects };
        self.remote.push(vec![update]).await.unwrap();
        self.tip = Some(id);
        id.to_string()
    }

    pub(super) async fn tell(&self, world: &World, commit: &str) {
        let clusters: Api<ManagedCluster> = Api::namespaced(world.parent.clone(), NAMESPACE);
        let patch = json!({"metadata": {"annotations": {"gitops.anabranch.io/delivery-url": self.url, "gitops.anabranch.io/delivery-branch": BRANCH,
            "gitops.anabranch.io/delivery-commit": commit}}});
        clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

async fn applied(world: &World, commit: &str) {
    eventually("the commit applied", || async {
        let said = world.cluster().await.metadata.annotations.unwrap_or_default().get("gitops.anabranch.io/applied-commit").cloned();
        if said.as_deref() == Some(commit) { Ok(()) } else { Err(said) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_branch_is_the_truth() {
    let world = World::new().await;
    world.placed().await;
    let mut delivery = Delivery::new(&world).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "one"), config("yard", "b", "one")]).await;
    let first = delivery.commit(&world, &[("README/notes.txt", "by hand")]).await;
    delivery.tell(&world, &first).await;
    let agent = world.agent(world.options());
    applied(&world, &first).await;
    let maps = kind("v1", "ConfigMap");
    assert_eq!(world.in_child(&maps, "yard", "a").await.unwrap()["data"]["mode"], "one");
    world.told("pots-generic", |s| s.phase == Some(Success) && s.manifest_statuses.len() == 3).await;

    // A Description that is not in the branch yet is not applied, and nothing is said about it.
    world.describe("late-generic", &[config("yard", "late", "one")]).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "two")]).await;
    let second = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &second).await;
    applied(&world, &second).await;
    assert_eq!(world.in_child(&maps, "yard", "a").await.unwrap()["data"]["mode"], "two");
    assert!(world.in_child(&maps, "yard", "b").await.is_none(), "pruned by the difference of the trees");
    world.told("late-generic", |s| s.phase == Some(Success)).await;
    agent.stop().await;

    // While no agent runs, an object leaves the branch, and its Description with it.
    world.descriptions().delete("late-generic", &Default::default()).await.unwrap();
    let third = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &third).await;
    let agent = world.agent(world.options());
    applied(&world, &third).await;
    assert!(world.in_child(&maps, "yard", "late").await.is_none());
    eventually("the end of the Description", || async { match world.descriptions().get_opt("late-generic").await.unwrap() { None => Ok(()), left => Err(left) } }).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_on_a_doubt() {
    let world = World::new().await;
    world.placed().await;
    let mut delivery = Delivery::new(&world).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "one"), config("yard", "b", "one")]).await;
    let first = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &first).await;
    let agent = world.agent(world.options());
    applied(&world, &first).await;
    // One file is broken: the others are applied, and what is missing stays.
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "two")]).await;
    let broken = delivery.commit(&world, &[("fleet/other/configmap.yard.c.yaml", "a: [")]).await;
    delivery.tell(&world, &broken).await;
    let maps = kind("v1", "ConfigMap");
    world.is_in_child(&maps, "yard", "a", |o| o.is_some_and(|o| o["data"]["mode"] == "two")).await;
    assert!(world.in_child(&maps, "yard", "b").await.is_some(), "not pruned");
    // A commit that does not exist changes nothing.
    delivery.tell(&world, "00000000000000000000000000000000deadbeef").await;
    let whole = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &whole).await;
    applied(&world, &whole).await;
    assert!(world.in_child(&maps, "yard", "b").await.is_none());
    agent.stop().await;
}
