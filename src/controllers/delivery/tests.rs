//! The branch writer against an API server in process and real repositories: what is rendered is what `git` shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Kind;
use api::clusters::ManagedCluster;
use api::gitops::{DeliveryMode, GitSource, GitTarget, GitTargetSpec};
use api::known::{annotation, label};
use cluster::{Client, Dynamic, Resource};
use engine::CancellationToken;
use serde_json::{Value, json};

use crate::Options;

mod releases;

const APPS: &str = "apps.clusternet.io/v1alpha1";
const NAMES: [&str; 3] = ["harbor", "meadow", "summit"];

struct Stage {
    dir: tempfile::TempDir,
    dynamic: Dynamic,
    stop: CancellationToken,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn resource(object: &Value) -> Resource {
    let (api_version, kind) = (api::object::text(object, "apiVersion"), api::object::text(object, "kind"));
    let (group, version) = api::object::split_api_version(api_version);
    let known = plan::kinds::Kinds::built_in();
    let info = known.get(api_version, kind).expect("a known kind");
    Resource { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural: info.plural.clone(), namespaced: info.namespaced }
}

impl Stage {
    async fn new() -> Self {
        let server = apiserver::ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
        let client: Client = cluster::in_process(server.service(apiserver::Identity::master("test")));
        let stop = CancellationToken::new();
        let stage = Self { dir: tempfile::tempdir().expect("directory"), dynamic: Dynamic::new(client.clone()), stop: stop.clone() };
        for definition in api::crds() {
            stage.apply(&serde_json::to_value(definition).expect("json")).await;
        }
        for namespace in ["clusternet-reserved", "fleet"] {
            stage.namespace(namespace).await;
        }
        for (at, name) in NAMES.iter().enumerate() {
            stage.namespace(&format!("clusternet-{name}")).await;
            let region = ["north", "south", "west"][at];
            let tier = if at == 0 { "edge" } else { "core" };
            stage
                .apply(&json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster",
                    "metadata": {"name": name, "namespace": format!("clusternet-{name}"), "labels": {"region": region, "tier": tier}},
                    "spec": {"clusterId": format!("00000000-0000-4000-8000-{at:012x}"), "syncMode": "Pull"}}))
                .await;
        }
        stage.git(stage.dir.path(), &["init", "-q", "--bare", "delivery.git"]);
        tokio::spawn(apiserver::controllers::run_local(server, apiserver::controllers::built_in(None), stop.clone()));
        let git = git::Git::new(git::Options { directory: stage.dir.path().join("mirrors"), local_threads: 2, network_threads: 2 });
        let pool = registry::Pool::default();
        let charts: Arc<dyn crate::ChartLookup> = Arc::new(crate::Repositories::new(client.clone(), pool.clone()));
        let options = Options { git: Some(git), charts: Some(charts), chart_pool: Some(pool), ..Options::standard() };
        tokio::spawn(crate::pipeline::run(client, options, stop));
        stage
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("delivery.git")
    }

    async fn namespace(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    async fn apply(&self, object: &Value) {
        let how = cluster::dynamic::ApplyAs { manager: "test", force: true, dry_run: false };
        self.dynamic.apply(&resource(object), object, how).await.unwrap_or_else(|e| panic!("{}: {object}", cluster::error::message(&e)));
    }

    async fn target(&self) {
        self.target_in(DeliveryMode::Commit).await;
    }

    async fn target_in(&self, mode: DeliveryMode) {
        let mut target = GitTarget::new("delivery", GitTargetSpec { url: self.repository().display().to_string(), mode, ..GitTargetSpec::default() });
        target.metadata.namespace = Some("fleet".to_owned());
        self.apply(&target.to_object()).await;
    }

    /// A hand-made Description of a Subscription that is bound to the cluster.
    async fn describe(&self, cluster: &str, objects: &[Value]) {
        let raw: Vec<api::Bytes> = objects.iter().map(|o| api::Bytes(o.to_string().into_bytes())).collect();
        self.apply(&json!({"apiVersion": APPS, "kind": "Description",
            "metadata": {"name": "web-abcde-generic", "namespace": format!("clusternet-{cluster}"), "labels": {label::SUBS_NAMESPACE: "fleet", label::SUBS_NAME: "web"}},
            "spec": {"deployer": "Generic", "raw": raw}}))
        .await;
    }

    #[track_caller]
    fn git(&self, at: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Somebody").env(format!("GIT_{who}_EMAIL"), "somebody@example.org");
        }
        let out = command.current_dir(at).args(["-c", "init.defaultBranch=main"]).args(args).output().expect("git runs");
        if !out.status.success() {
            return format!("failed: {}", String::from_utf8_lossy(&out.stderr));
        }
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn shown(&self, branch: &str, path: &str) -> String {
        self.git(&self.repository(), &["show", &format!("clusters/{branch}:{path}")])
    }

    fn commits(&self, branch: &str) -> String {
        self.git(&self.repository(), &["rev-list", "--count", &format!("clusters/{branch}")])
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !holds().await {
            assert!(began.elapsed() < Duration::from_secs(120), "never came: {what}; {}", self.status().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn status(&self) -> Value {
        let like = json!({"apiVersion": GitTarget::API_VERSION, "kind": "GitTarget"});
        self.dynamic.get(&resource(&like), "fleet", "delivery").await.map(|o| o["status"].clone()).unwrap_or_default()
    }

    async fn ready(&self) -> (String, String) {
        let status = self.status().await;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().find(|c| c["type"] == "Ready").map(|c| (text(&c["status"]), text(&c["message"]))).unwrap_or_default()
    }

    async fn told(&self, cluster: &str) -> BTreeMap<String, String> {
        let like = json!({"apiVersion": ManagedCluster::API_VERSION, "kind": "ManagedCluster"});
        let object = self.dynamic.get(&resource(&like), &format!("clusternet-{cluster}"), cluster).await.expect("there");
        api::object::annotations(&object)
    }

    async fn look_again(&self, wish: &str) {
        let like = json!({"apiVersion": GitTarget::API_VERSION, "kind": "GitTarget"});
        let patch = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUEST: wish}}});
        self.dynamic.merge_patch(&resource(&like), "fleet", "delivery", "", &patch, "test").await.expect("patched");
        self.until("the request is handled", async || self.status().await["lastHandledRequest"] == wish).await;
    }
}

fn config_map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}, "data": {"a": value}})
}

const PATH: &str = "fleet/web/configmap.shop.settings.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_follow_descriptions() {
    let stage = Stage::new().await;
    for name in NAMES {
        stage.describe(name, &[config_map("one")]).await;
    }
    stage.target().await;
    stage.until("all branches", async || stage.status().await["clusters"]["delivered"] == 3).await;
    assert_eq!(stage.shown("harbor", PATH), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: shop\ndata:\n  a: one");
    let tip = stage.git(&stage.repository(), &["rev-parse", "clusters/harbor"]);
    stage.until("the cluster is told", async || stage.told("harbor").await.get(annotation::DELIVERY_COMMIT) == Some(&tip)).await;
    assert_eq!(stage.told("harbor").await[annotation::DELIVERY_BRANCH], "clusters/harbor");
    // One cluster changes: one commit on one branch, with a message that says what.
    stage.describe("meadow", &[config_map("two")]).await;
    stage.until("the change", async || stage.shown("meadow", PATH).ends_with("two")).await;
    stage.look_again("1").await;
    assert_eq!((stage.commits("harbor"), stage.commits("meadow"), stage.commits("summit")), ("1".to_owned(), "2".to_owned(), "1".to_owned()));
    let message = stage.git(&stage.repository(), &["log", "-1", "--format=%B", "clusters/meadow"]);
    assert!(message.starts_with(&format!("meadow: {PATH}\n\n")) && message.contains("Anabranch-Renderer: anabranch/"), "{message}");
    assert_eq!(stage.git(&stage.repository(), &["fsck", "--strict"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_to_a_branch() {
    let stage = Stage::new().await;
    stage.describe("harbor", &[config_map("one")]).await;
    stage.target().await;
    stage.until("the branch", async || stage.shown("harbor", PATH).ends_with("one")).await;
    let work = stage.dir.path().join("work");
    stage.git(stage.dir.path(), &["clone", "-q", "-b", "clusters/harbor", "delivery.git", "work"]);
    std::fs::write(work.join(PATH), "by: hand\n").expect("file");
    std::fs::write(work.join("README.md"), "mine\n").expect("file");
    std::fs::write(work.join("fleet/web/NOTES.md"), "mine too\n").expect("file");
    for args in [&["add", "-A"][..], &["commit", "-q", "-m", "by hand"], &["push", "-q", "origin", "HEAD"]] {
        stage.git(&work, args);
    }
    // The next change meets a moved tip: it is rebuilt on it.
    stage.describe("harbor", &[config_map("two")]).await;
    stage.until("ours is back", async || stage.shown("harbor", PATH).ends_with("two")).await;
    assert_eq!((stage.shown("harbor", "README.md"), stage.shown("harbor", "fleet/web/NOTES.md")), ("mine".to_owned(), "mine too".to_owned()));
    assert_eq!(stage.commits("harbor"), "3");
    // Deleted by a person: made anew when somebody looks.
    stage.git(&stage.repository(), &["update-ref", "-d", "refs/heads/clusters/harbor"]);
    stage.look_again("2").await;
    stage.until("made anew", async || stage.shown("harbor", PATH).ends_with("two")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_branch_is_told_and_the_others_go() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new().await;
    let hook = stage.repository().join("hooks/update");
    std::fs::create_dir_all(stage.repository().join("hooks")).expect("hooks");
    std::fs::write(&hook, "#!/bin/sh\ncase $1 in */meadow) echo no pushes on Fridays >&2; exit 1;; esac\n").expect("hook");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("mode");
    for name in NAMES {
        stage.describe(name, &[config_map("one")]).await;
    }
    stage.target().await;
    stage.until("two branches", async || stage.status().await["clusters"] == json!({"matched": 3, "delivered": 2, "failed": 1})).await;
    let (verdict, message) = stage.ready().await;
    assert!(verdict == "False" && message.contains("no pushes on Fridays"), "{verdict} {message}");
    // The hook is gone and something changes: it goes.
    std::fs::remove_file(&hook).expect("removed");
    stage.describe("meadow", &[config_map("two")]).await;
    stage.until("the third", async || stage.ready().await.0 == "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_on_a_doubt() {
    let stage = Stage::new().await;
    // A branch of an earlier life: two Subscriptions.
    let marker = plan::tree::Marker { layout: 1, owner: "fleet/delivery".to_owned(), directories: ["fleet/web".to_owned(), "fleet/known".to_owned(), "fleet/gone".to_owned()].into(), releases: std::collections::BTreeSet::new() };
    let seed = stage.dir.path().join("seed");
    stage.git(stage.dir.path(), &["clone", "-q", "delivery.git", "seed"]);
    for path in ["fleet/web/configmap.shop.old.yaml", "fleet/known/configmap.shop.settings.yaml", "fleet/gone/configmap.shop.settings.yaml"] {
        std::fs::create_dir_all(seed.join(path).parent().expect("parent")).expect("directory");
        std::fs::write(seed.join(path), "apiVersion: v1\n").expect("file");
    }
    std::fs::write(seed.join(".anabranch.yaml"), marker.text()).expect("file");
    for args in [&["add", "-A"][..], &["commit", "-q", "-m", "earlier"], &["push", "-q", "origin", "HEAD:refs/heads/clusters/harbor"]] {
        stage.git(&seed, args);
    }
    // One of them is known to this parent, but was not scheduled yet.
    stage
        .apply(&json!({"apiVersion": APPS, "kind": "Subscription", "metadata": {"name": "known", "namespace": "fleet"},
            "spec": {"subscribers": [{"clusterAffinity": {}}], "feeds": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "y"}]}}))
        .await;
    stage.describe("harbor", &[config_map("one")]).await;
    stage.target().await;
    stage.until("the branch", async || stage.shown("harbor", PATH).ends_with("one")).await;
    let left = stage.git(&stage.repository(), &["ls-tree", "-r", "--name-only", "clusters/harbor"]);
    assert_eq!(left, ".anabranch.yaml\nfleet/known/configmap.shop.settings.yaml\nfleet/web/configmap.shop.settings.yaml");
}

/// The preview of a revision is, byte for byte, what the pipeline commits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_preview_is_the_branch() {
    let stage = Stage::new().await;
    let mut files = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples-repo");
    read(&root, &root, &mut files);
    let settings = plan::source::Settings { source: "fleet.demo".to_owned(), target_namespaces: Default::default() };
    let desired = plan::preview::desired(&files, &settings);
    let mut fleet = plan::preview::Fleet::default();
    let like = json!({"apiVersion": ManagedCluster::API_VERSION, "kind": "ManagedCluster"});
    for object in stage.dynamic.list(&resource(&like), "", None).await.expect("clusters").items {
        fleet.clusters.push(ManagedCluster::from_object(&object).expect("typed"));
    }
    let owner = plan::preview::Target { owner: "fleet/delivery".to_owned(), prefix: String::new() };
    let preview = plan::preview::compute(&desired, None, &fleet, &owner, &|_| None, jiff::Timestamp::UNIX_EPOCH, &plan::preview::NoCharts);
    let mut places: Vec<_> = desired.objects.keys().collect();
    places.sort_by_key(|p| p.wave());
    for place in places {
        stage.apply(&desired.objects[place].annotated("main@sha1:0")).await;
    }
    // The scheduler's part.
    for (key, bound) in &preview.subscriptions {
        let (namespace, name) = api::object::split_key(key);
        let like = json!({"apiVersion": APPS, "kind": "Subscription"});
        stage.dynamic.merge_patch(&resource(&like), namespace, name, "status", &json!({"status": bound.status}), "test").await.expect("bound");
    }
    stage.target().await;
    for name in NAMES {
        let tree = &preview.trees[&format!("clusternet-{name}/{name}")];
        stage.until(&format!("the branch of {name}"), async || {
            tree.files.iter().all(|(path, text)| stage.shown(name, path) == text.trim_end())
        })
        .await;
        let listed = stage.git(&stage.repository(), &["ls-tree", "-r", "--name-only", &format!("clusters/{name}")]);
        assert_eq!(listed.lines().map(str::to_owned).collect::<Vec<_>>(), tree.files.keys().cloned().collect::<Vec<_>>());
    }
}

fn read(root: &Path, dir: &Path, out: &mut BTreeMap<String, Arc<plan::source::Parsed>>) {
    for entry in std::fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            read(root, &path, out);
            continue;
        }
        let name = path.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
        if plan::source::is_wanted(&name) {
            let bytes = std::fs::read(&path).expect("bytes");
            out.insert(name.clone(), Arc::new(plan::source::read(&name, plan::source::Body::Bytes(&bytes))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_waits_for_a_person() {
    let stage = Stage::new().await;
    let proposed = |path: &str| stage.git(&stage.repository(), &["show", &format!("propose/clusters/harbor:{path}")]);
    stage.describe("harbor", &[config_map("one")]).await;
    stage.target_in(DeliveryMode::Propose).await;
    stage.until("the proposal", async || proposed(PATH).ends_with("one")).await;
    // Nothing moves the branch of the cluster, and its agent is told of nothing.
    stage.look_again("1").await;
    assert_eq!(stage.git(&stage.repository(), &["for-each-ref", "--format=%(refname:short)"]), "propose/clusters/harbor");
    assert_eq!(stage.told("harbor").await.get(annotation::DELIVERY_COMMIT), None);
    // Merged: the agent is told.
    let tip = stage.git(&stage.repository(), &["rev-parse", "propose/clusters/harbor"]);
    stage.git(&stage.repository(), &["update-ref", "refs/heads/clusters/harbor", &tip]);
    stage.look_again("2").await;
    stage.until("the cluster is told", async || stage.told("harbor").await.get(annotation::DELIVERY_COMMIT) == Some(&tip)).await;
    // The next change is the next proposal, on top of it.
    stage.describe("harbor", &[config_map("two")]).await;
    stage.until("the next proposal", async || proposed(PATH).ends_with("two")).await;
    assert!(stage.shown("harbor", PATH).ends_with("one"));
    assert_eq!(stage.git(&stage.repository(), &["rev-list", "--count", "clusters/harbor..propose/clusters/harbor"]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_tells_the_revision_of_its_sources() {
    let stage = Stage::new().await;
    stage.describe("harbor", &[config_map("one")]).await;
    stage.target().await;
    let source = json!({"apiVersion": GitSource::API_VERSION, "kind": "GitSource", "metadata": {"name": "shop", "namespace": "fleet"}, "spec": {"url": "https://git.example.org/shop"}});
    stage.apply(&source).await;
    // The second revision changes nothing in any branch.
    for revision in ["main@sha1:aaaa", "main@sha1:bbbb"] {
        let patch = json!({"status": {"lastAppliedRevision": revision}});
        stage.dynamic.merge_patch(&resource(&source), "fleet", "shop", "status", &patch, "test").await.expect("patched");
        stage.until(revision, async || stage.status().await["lastAppliedRevision"] == revision).await;
    }
}
