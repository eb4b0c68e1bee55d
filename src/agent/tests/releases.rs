//! Helm releases, from a repository on loopback into the child.

use std::collections::BTreeMap;

use api::apps::{DescriptionPhase, HelmRelease};
use chart::Record;
use kube::api::{DeleteParams, Patch, PatchParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A chart archive of these files.
fn packed(name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("{name}/{path}"), text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// Serves charts (name, version, files) as a repository.
async fn repository(charts: &[(&str, &str, Vec<(&str, String)>)]) -> String {
    let mut served = BTreeMap::new();
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for (name, version, files) in charts {
        let mut all = vec![("Chart.yaml", format!("apiVersion: v2\nname: {name}\nversion: {version}\n"))];
        all.extend(files.iter().cloned());
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (*path, text.as_str())).collect();
        served.insert(format!("/{name}-{version}.tgz"), packed(name, &all));
        index.push_str(&format!("  {name}:\n  - {{name: {name}, version: {version}, urls: [{name}-{version}.tgz]}}\n"));
    }
    served.insert("/index.yaml".to_owned(), index.into_bytes());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 8192];
            let count = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..count]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (code, body) = served.get(path).map_or((404, Vec::new()), |body| (200, body.clone()));
            let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.write_all(&body).await;
        }
    });
    url
}

impl World {
    /// A Description of one chart and its HelmRelease.
    async fn release(&self, name: &str, url: &str, version: &str, more: Value, values: Option<Value>) {
        use base64::Engine as _;
        let raw = |value: &Value| base64::engine::general_purpose::STANDARD.encode(value.to_string());
        let mut spec = json!({"repo": url, "chart": "web", "version": version, "targetNamespace": "yard", "timeoutSeconds": 10});
        manifest::patch::merge(&mut spec, &more);
        let chart = json!({"metadata": {"name": name, "namespace": "fleet"}, "spec": spec});
        let description = put(
            &self.parent,
            json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description",
                "metadata": {"name": format!("{name}-helm"), "namespace": NAMESPACE},
                "spec": {"deployer": "Helm", "charts": [{"namespace": "fleet", "name": name}], "raw": [raw(&json!({}))], "chartRaw": [raw(&chart)]}}),
        )
        .await;
        spec["releaseName"] = json!(name);
        if let Some(values) = values {
            spec["overrides"] = json!(raw(&values));
        }
        put(
            &self.parent,
            json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "HelmRelease",
                "metadata": {"name": format!("{name}-helm-fleet-{name}"), "namespace": NAMESPACE, "finalizers": ["apps.clusternet.io/finalizer"],
                    "ownerReferences": [{"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description", "controller": true,
                        "name": format!("{name}-helm"), "uid": description["metadata"]["uid"]}]},
                "spec": spec}),
        )
        .await;
    }

    fn releases(&self) -> Api<HelmRelease> {
        Api::namespaced(self.parent.clone(), NAMESPACE)
    }

    async fn release_is(&self, name: &str, phase: &str, version: i32) -> api::apps::HelmReleaseStatus {
        let full = format!("{name}-helm-fleet-{name}");
        eventually("a release", || async {
            let status = self.releases().get(&full).await.unwrap().status.unwrap_or_default();
            if status.phase == phase && status.version == version { Ok(()) } else { Err(status) }
        })
        .await;
        self.releases().get(&full).await.unwrap().status.unwrap()
    }

    pub(super) async fn records(&self, name: &str) -> Vec<Record> {
        let list = Dynamic::new(self.child.clone()).list(&kind("v1", "Secret"), "yard", Some(&format!("owner=helm,name={name}"))).await.unwrap();
        let mut all: Vec<Record> = list.items.iter().map(|secret| Record::of_secret(secret).unwrap()).collect();
        all.sort_by_key(|r| r.version);
        all
    }

    /// Plays the Job controller once: the Job ends this way.
    async fn end_job(&self, name: &str, how: &str) {
        let jobs = kind("batch/v1", "Job");
        self.is_in_child(&jobs, "yard", name, |job| job.is_some_and(|job| job["metadata"]["deletionTimestamp"].is_null())).await;
        let now = "2026-01-01T00:00:00Z";
        let before = if how == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
        let mut status = json!({"startTime": now, "conditions": [
            {"type": before, "status": "True", "reason": "Test", "message": "so it was told", "lastTransitionTime": now, "lastProbeTime": now},
            {"type": how, "status": "True", "reason": "Test", "message": "so it was told", "lastTransitionTime": now, "lastProbeTime": now}]});
        if how == "Complete" {
            status["completionTime"] = json!(now);
        }
        Dynamic::new(self.child.clone()).merge_patch(&jobs, "yard", name, "status", &json!({"status": status}), "test").await.unwrap();
    }
}

const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Release.Name }}-PHASE\n  annotations: {helm.sh/hook: \"EVENTS\", helm.sh/hook-delete-policy: \"POLICY\"}\nspec:\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: b}]}\n";

fn job(phase: &str, events: &str, policy: &str) -> String {
    JOB.replace("PHASE", phase).replace("EVENTS", events).replace("POLICY", policy)
}

fn config_template() -> String {
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {oil: {{ .Values.oil | default \"rape\" | quote }}, revision: {{ .Release.Revision | quote }}}\n".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_comes_changes_and_goes_with_its_hooks() {
    let world = World::new().await;
    world.placed().await;
    let extra = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n".to_owned();
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}\n".to_owned();
    let first = vec![
        ("templates/a.yaml", config_template()),
        ("templates/extra.yaml", extra),
        ("templates/kept.yaml", kept),
        ("templates/before.yaml", job("before", "pre-install,pre-upgrade", "hook-succeeded")),
        ("templates/after.yaml", job("after", "post-delete", "before-hook-creation,hook-succeeded")),
        ("templates/NOTES.txt", "burns {{ .Values.oil | default \"rape\" }}".to_owned()),
        ("crds/lamp.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: lamps.craft.test}\nspec:\n  group: craft.test\n  scope: Namespaced\n  names: {plural: lamps, singular: lamp, kind: Lamp, listKind: LampList}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n".to_owned()),
        ("templates/lamp.yaml", "{{ if .Capabilities.APIVersions.Has \"craft.test/v1/Lamp\" }}apiVersion: craft.test/v1\nkind: Lamp\nmetadata: {name: one}\n{{ end }}".to_owned()),
    ];
    let second: Vec<_> = first.iter().filter(|(path, _)| !path.contains("extra") && !path.contains("kept")).cloned().collect();
    let url = repository(&[("web", "1.0.0", first)]).await;
    let next = repository(&[("web", "1.1.0", second)]).await;
    let agent = world.agent(world.options());

    world.release("lamp", &url, "1.0.0", json!({}), None).await;
    let maps = kind("v1", "ConfigMap");
    world.end_job("lamp-before", "Complete").await;
    let status = world.release_is("lamp", "deployed", 1).await;
    assert_eq!((status.description.as_str(), status.notes.as_str()), ("Install complete", "burns rape"));
    assert!(world.in_child(&kind("batch/v1", "Job"), "yard", "lamp-before").await.is_none(), "a hook that succeeded goes by its policy");
    let live = world.in_child(&maps, "yard", "lamp-settings").await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["meta.helm.sh/release-name"], "lamp");
    assert_eq!(live["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
    let lamps = Resource { group: "craft.test".into(), version: "v1".into(), kind: "Lamp".into(), plural: "lamps".into(), namespaced: true };
    assert!(world.in_child(&lamps, "yard", "one").await.is_some(), "templates see what crds/ brought");
    let records = world.records("lamp").await;
    assert_eq!((records.len(), records[0].info.status.as_str(), records[0].hooks[0].last_run.phase.is_empty()), (1, "deployed", true));
    assert_eq!(world.told("lamp-helm", |s| s.phase == Some(DescriptionPhase::Success)).await.reason, "");

    world.release("lamp", &next, "1.1.0", json!({}), Some(json!({"oil": "whale"}))).await;
    world.end_job("lamp-before", "Complete").await;
    world.release_is("lamp", "deployed", 2).await;
    assert_eq!(world.in_child(&maps, "yard", "lamp-settings").await.unwrap()["data"], json!({"oil": "whale", "revision": "2"}));
    assert!(world.in_child(&maps, "yard", "extra").await.is_none(), "what the new revision has not goes");
    assert!(world.in_child(&maps, "yard", "kept").await.is_some(), "unless its policy keeps it");
    let states: Vec<String> = world.records("lamp").await.into_iter().map(|r| r.info.status).collect();
    assert_eq!(states, ["superseded", "deployed"]);

    // A second HelmRelease of the release comes and goes: what runs stays.
    let mut twin = serde_json::to_value(world.releases().get("lamp-helm-fleet-lamp").await.unwrap()).unwrap();
    twin["metadata"] = json!({"name": "twin", "namespace": NAMESPACE, "finalizers": ["apps.clusternet.io/finalizer"]});
    put(&world.parent, twin).await;
    world.releases().delete("twin", &DeleteParams::default()).await.unwrap();
    eventually("the end of the twin", || async { match world.releases().get_opt("twin").await.unwrap() { None => Ok(()), left => Err(left.and_then(|l| l.status)) } }).await;
    assert_eq!(world.records("lamp").await.len(), 2);
    assert!(world.in_child(&maps, "yard", "lamp-settings").await.is_some());

    world.releases().delete("lamp-helm-fleet-lamp", &DeleteParams::default()).await.unwrap();
    world.end_job("lamp-after", "Complete").await;
    eventually("the end of the release", || async { match world.releases().get_opt("lamp-helm-fleet-lamp").await.unwrap() { None => Ok(()), left => Err(left.and_then(|l| l.status)) } }).await;
    assert!(world.records("lamp").await.is_empty());
    assert!(world.in_child(&maps, "yard", "lamp-settings").await.is_none());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_upgrade_goes_back_and_a_failed_atomic_install_goes() {
    let world = World::new().await;
    world.placed().await;
    let good = repository(&[("web", "1.0.0", vec![("templates/a.yaml", config_template())])]).await;
    let bad = repository(&[("web", "1.1.0", vec![("templates/a.yaml", config_template()), ("templates/h.yaml", job("check", "post-upgrade,post-install", ""))])]).await;
    let agent = world.agent(world.options());
    world.release("lamp", &good, "1.0.0", json!({}), None).await;
    world.release_is("lamp", "deployed", 1).await;
    world.release("lamp", &bad, "1.1.0", json!({"upgradeAtomic": true}), Some(json!({"oil": "whale"}))).await;
    world.end_job("lamp-check", "Failed").await;
    let status = world.release_is("lamp", "deployed", 3).await;
    assert_eq!(status.description, "Rollback to 1");
    let records = world.records("lamp").await;
    let states: Vec<&str> = records.iter().map(|r| r.info.status.as_str()).collect();
    assert_eq!(states, ["superseded", "failed", "deployed"]);
    assert!(records[1].info.description.contains("Upgrade \"lamp\" failed: failed post-upgrade: Job lamp-check"), "{}", records[1].info.description);
    assert_eq!(world.in_child(&kind("v1", "ConfigMap"), "yard", "lamp-settings").await.unwrap()["data"]["oil"], "rape");

    world.release("wick", &bad, "1.1.0", json!({"atomic": true}), None).await;
    world.end_job("wick-check", "Failed").await;
    let status = world.release_is("wick", "failed", 1).await;
    assert!(status.description.contains("has been uninstalled due to atomic being set"), "{}", status.description);
    assert!(world.records("wick").await.is_empty());
    world.told("wick-helm", |s| s.phase == Some(DescriptionPhase::Failure) && !s.reason.is_empty()).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_others_is_refused_and_a_missing_chart_is_told() {
    let world = World::new().await;
    world.placed().await;
    put(&world.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    put(&world.child, config("yard", "lamp-settings", "theirs")).await;
    let url = repository(&[("web", "1.0.0", vec![("templates/a.yaml", config_template())])]).await;
    let agent = world.agent(world.options());
    world.release("lamp", &url, "1.0.0", json!({}), None).await;
    let status = world.release_is("lamp", "failed", 0).await;
    assert!(status.description.starts_with("Unable to continue with install: ConfigMap \"lamp-settings\" in namespace \"yard\" exists"), "{}", status.description);
    assert!(world.records("lamp").await.is_empty(), "nothing was begun");
    world.release("wick", &url, "9.0.0", json!({}), None).await;
    let status = world.release_is("wick", "failed", 0).await;
    assert!(status.description.contains("fetch chart web: find version \"9.0.0\""), "{}", status.description);
    // It gets there once the way is free.
    world.releases().patch("lamp-helm-fleet-lamp", &PatchParams::default(), &Patch::Merge(json!({"spec": {"releaseName": "torch"}}))).await.unwrap();
    world.release_is("lamp", "deployed", 1).await;
    agent.stop().await;
}
