//! The part as a whole: real `git`, our API server in process, no clock but the real one, every wait bounded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::Kind;
use api::gitops::{DeletionBudget, GitReference, GitSource, GitSourceSpec};
use engine::CancellationToken;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::Options;

struct Stage {
    dir: tempfile::TempDir,
    client: kube::Client,
    server: apiserver::ApiServer,
    stop: CancellationToken,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Stage {
    async fn new() -> Self {
        let server = apiserver::ApiServer::build(apiserver::Options::new(store::Store::memory())).await;
        let client = cluster::in_process(server.service(apiserver::Identity::master("test")));
        let dir = tempfile::tempdir().expect("directory");
        let stage = Self { dir, client, server, stop: CancellationToken::new() };
        let definitions = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        for definition in api::crds() {
            stage.apply(definitions, &serde_json::to_value(definition).expect("json")).await;
        }
        for namespace in ["clusternet-reserved", "clusternet-harbor", "clusternet-meadow", "clusternet-summit", "fleet"] {
            stage.apply(("", "v1", "Namespace"), &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        }
        stage.git(stage.dir.path(), &["init", "-q", "--bare", "source.git"]);
        stage.git(stage.dir.path(), &["clone", "-q", "source.git", "work"]);
        stage
    }

    fn all(&self, (group, version, kind): (&str, &str, &str)) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(group, version, kind))
    }

    async fn apply(&self, (group, version, kind): (&str, &str, &str), object: &Value) {
        let resource = resource(group, version, kind);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let api: Api<DynamicObject> = match text("namespace").as_str() {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        api.patch(&text("name"), &PatchParams::apply("test").force(), &Patch::Apply(object)).await.expect("applied");
    }

    fn run(&self) -> CancellationToken {
        let stop = self.stop.child_token();
        let options = Options {
            git: git::Git::new(git::Options { directory: self.dir.path().join("mirrors"), local_threads: 2, network_threads: 2 }),
            workers: 2,
            parallel: 8,
            clock: engine::RealClock::shared(),
            metrics: engine::Registry::new(),
        };
        let (client, token) = (self.client.clone(), stop.clone());
        tokio::spawn(async move { crate::run(client, options, token).await.expect("runs") });
        stop
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
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Commits these files (`None` removes one) and pushes; the commit.
    fn push(&self, files: &[(&str, Option<&str>)]) -> String {
        let work = self.work();
        for (path, content) in files {
            let at = work.join(path);
            match content {
                Some(content) => {
                    std::fs::create_dir_all(at.parent().expect("parent")).expect("directory");
                    std::fs::write(at, content).expect("file");
                }
                None => std::fs::remove_file(at).expect("file"),
            }
        }
        self.git(&work, &["add", "-A"]);
        self.git(&work, &["commit", "-q", "-m", "change"]);
        self.git(&work, &["push", "-q", "-f", "origin", "HEAD:main"]);
        self.git(&work, &["rev-parse", "HEAD"])
    }

    async fn source(&self, change: impl FnOnce(&mut GitSourceSpec)) {
        let mut spec = GitSourceSpec { url: self.dir.path().join("source.git").display().to_string(), ..GitSourceSpec::default() };
        change(&mut spec);
        let mut source = GitSource::new("shop", spec);
        source.metadata.namespace = Some("fleet".to_owned());
        Api::<GitSource>::namespaced(self.client.clone(), "fleet").create(&PostParams::default(), &source).await.expect("created");
    }

    async fn get(&self) -> GitSource {
        Api::<GitSource>::namespaced(self.client.clone(), "fleet").get("shop").await.expect("there")
    }

    /// Waits until the source says this about a commit: `Ready` status and reason.
    async fn until(&self, commit: &str, verdict: &str, reason: &str) -> GitSource {
        let began = Instant::now();
        loop {
            let source = self.get().await;
            let status = source.status.clone().unwrap_or_default();
            let ready = api::conditions::find(&status.conditions, "Ready");
            if status.last_attempted_revision.ends_with(commit) && ready.is_some_and(|c| c.status == verdict && c.reason == reason) {
                return source;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "not {verdict}/{reason} at {commit}: {}", serde_json::to_string_pretty(&status).unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn names(&self, kind: (&str, &str, &str)) -> Vec<String> {
        let list = self.all(kind).list(&ListParams::default()).await.expect("list");
        list.items.into_iter().filter_map(|o| o.metadata.name).collect()
    }
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    let kinds = plan::kinds::Kinds::built_in();
    let plural = kinds.get(&api::object::join_api_version(group, version), kind).map(|k| k.plural.clone()).unwrap_or_default();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
}

const MANIFEST: (&str, &str, &str) = ("apps.clusternet.io", "v1alpha1", "Manifest");
const SUBSCRIPTION: (&str, &str, &str) = ("apps.clusternet.io", "v1alpha1", "Subscription");

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\ndata: {{a: {value}}}\n")
}

/// Every file of the examples is taken by the parent as it is, and nothing is wrong with any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_are_applied() {
    let stage = Stage::new().await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples-repo");
    copy(&examples, &stage.work());
    let commit = stage.push(&[]);
    stage.run();
    stage.source(|_| {}).await;
    let source = stage.until(&commit, "True", "Succeeded").await;
    let status = source.status.expect("status");
    assert_eq!((status.fault_count, status.faults.len()), (0, 0));
    assert_eq!(status.inventory.kinds.get("Subscription.apps.clusternet.io"), Some(&4));
    assert_eq!(status.inventory.kinds.get("Localization.apps.clusternet.io"), Some(&4));
    assert_eq!(status.inventory.kinds.get("Namespace"), Some(&4));
    assert!(stage.names(MANIFEST).await.contains(&"deployments.storefront.web".to_owned()));
    // A second start with nothing new writes nothing.
    let before = stage.server.store().revision();
    stage.run();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.server.store().revision(), before);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("directory") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_and_what_disappears_is_deleted() {
    let stage = Stage::new().await;
    let first = stage.push(&[("a.yaml", Some(&config_map("a", "one"))), ("b.yaml", Some(&config_map("b", "one")))]);
    stage.run();
    stage.source(|spec| spec.interval = "1h".to_owned()).await;
    stage.until(&first, "True", "Succeeded").await;
    assert_eq!(stage.names(MANIFEST).await, ["configmaps.shop.a", "configmaps.shop.b"]);
    let api = stage.all(MANIFEST);
    let _ = api;
    // No poll for an hour: the watch of the local repository tells.
    let second = stage.push(&[("a.yaml", Some(&config_map("a", "two"))), ("b.yaml", None)]);
    stage.until(&second, "True", "Succeeded").await;
    let left = stage.all(MANIFEST).list(&ListParams::default()).await.expect("list").items;
    let gone = |o: &DynamicObject| o.metadata.deletion_timestamp.is_some();
    let left: Vec<&DynamicObject> = left.iter().filter(|o| !gone(o)).collect();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].data["template"]["data"]["a"], "two");
    let annotations = left[0].metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get(plan::source::annotation::REVISION), Some(&format!("main@sha1:{second}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broken_file_never_stops_the_others_and_never_deletes() {
    let stage = Stage::new().await;
    let first = stage.push(&[("a.yaml", Some(&config_map("a", "one"))), ("b.yaml", Some(&config_map("b", "one")))]);
    stage.run();
    stage.source(|_| {}).await;
    stage.until(&first, "True", "Succeeded").await;
    let second = stage.push(&[("a.yaml", Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n")), ("b.yaml", None), ("c.yaml", Some(&config_map("c", "one")))]);
    let source = stage.until(&second, "False", "FaultyFiles").await;
    let status = source.status.expect("status");
    assert_eq!(status.faults[0].path, "a.yaml");
    assert!(status.faults[0].line >= 3 && status.faults[0].column > 0, "{:?}", status.faults);
    assert_eq!(stage.names(MANIFEST).await, ["configmaps.shop.a", "configmaps.shop.b", "configmaps.shop.c"]);
    let ready = api::conditions::find(&status.conditions, "Ready").expect("ready");
    assert!(ready.message.contains("2 objects that disappeared are kept until every file can be read"), "{}", ready.message);
    // Mended: now what disappeared goes.
    let third = stage.push(&[("a.yaml", Some(&config_map("a", "two")))]);
    stage.until(&third, "True", "Succeeded").await;
    assert_eq!(stage.names(MANIFEST).await, ["configmaps.shop.a", "configmaps.shop.c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_or_vanished_repository_deletes_nothing() {
    let stage = Stage::new().await;
    let first = stage.push(&[("a.yaml", Some(&config_map("a", "one"))), ("b.yaml", Some(&config_map("b", "one"))), ("README.md", Some("x"))]);
    stage.run();
    stage.source(|spec| {
        spec.reference = Some(GitReference { branch: "main".to_owned(), ..GitReference::default() });
        spec.deletion_budget = Some(DeletionBudget { max_objects: Some(1), max_percent: None });
    })
    .await;
    stage.until(&first, "True", "Succeeded").await;
    let second = stage.push(&[("a.yaml", None), ("b.yaml", None)]);
    stage.until(&second, "False", "PruneRefused").await;
    assert_eq!(stage.names(MANIFEST).await.len(), 2);
    // The branch is deleted: said, nothing else.
    stage.git(&stage.dir.path().join("source.git"), &["update-ref", "-d", "refs/heads/main"]);
    stage.until(&second, "False", "RevisionNotFound").await;
    assert_eq!(stage.names(MANIFEST).await.len(), 2);
    // A person approves the revision that deletes.
    stage.git(&stage.work(), &["push", "-q", "-f", "origin", "HEAD:main"]);
    let patch = json!({"metadata": {"annotations": {api::known::annotation::APPROVED: second}}});
    Api::<GitSource>::namespaced(stage.client.clone(), "fleet").patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("approved");
    stage.until(&second, "True", "Succeeded").await;
    assert_eq!(stage.names(MANIFEST).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_push_is_followed_and_refused_objects_are_named() {
    let stage = Stage::new().await;
    let first = stage.push(&[("a.yaml", Some(&config_map("a", "one")))]);
    stage.run();
    stage.source(|_| {}).await;
    stage.until(&first, "True", "Succeeded").await;
    stage.git(&stage.work(), &["commit", "-q", "--amend", "-m", "rewritten"]);
    // A Subscription in a namespace that does not exist: the API server says so, and the other object still goes.
    let lost = "apiVersion: apps.clusternet.io/v1alpha1\nkind: Subscription\nmetadata: {name: web, namespace: nowhere}\nspec:\n  subscribers: [{clusterAffinity: {}}]\n  feeds: [{apiVersion: v1, kind: ConfigMap, name: a, namespace: shop}]\n";
    let second = stage.push(&[("a.yaml", Some(&config_map("a", "two"))), ("sub.yaml", Some(lost))]);
    let source = stage.until(&second, "False", "ApplyFailed").await;
    let faults: BTreeMap<String, String> = source.status.expect("status").faults.into_iter().map(|f| (format!("{} {}:{}", f.object, f.path, f.line), f.message)).collect();
    let message = faults.get("Subscription.apps.clusternet.io nowhere/web sub.yaml:1").expect("named");
    assert!(message.contains("nowhere"), "{message}");
    // It is tried again until the namespace is there.
    stage.apply(("", "v1", "Namespace"), &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})).await;
    stage.until(&second, "True", "Succeeded").await;
    assert_eq!(stage.names(SUBSCRIPTION).await, ["web"]);
    let _ = GitSource::KIND;
}
