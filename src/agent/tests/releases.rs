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
pub(super) async fn repository(charts: &[(&str, &str, Vec<(&str, String)>)]) -> String {
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

    /// Writes a revision into the child, as another Helm would.
    pub(super) async fn keep_record(&self, record: &Record) {
        let mut secret = record.secret(("modifiedAt", 1)).unwrap();
        secret["metadata"]["namespace"] = json!(record.namespace);
        put(&self.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": record.namespace}})).await;
        put(&self.child, secret).await;
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
    // What runs is not what is wanted: it is told so, with what runs.
    let status = world.release_is("lamp", "failed", 3).await;
    let status_of_lamp = status.description.clone();
    assert!(status.description.starts_with("Upgrade \"lamp\" failed: failed post-upgrade: Job lamp-check") && status.description.ends_with("revision 3 runs: web 1.0.0 (Rollback to 1)"), "{}", status.description);
    world.told("lamp-helm", |s| s.phase == Some(DescriptionPhase::Failure) && s.reason == status.description).await;
    let records = world.records("lamp").await;
    let states: Vec<&str> = records.iter().map(|r| r.info.status.as_str()).collect();
    assert_eq!(states, ["superseded", "failed", "deployed"]);
    assert!(records[1].info.description.contains("Upgrade \"lamp\" failed: failed post-upgrade: Job lamp-check"), "{}", records[1].info.description);
    assert_eq!(world.in_child(&kind("v1", "ConfigMap"), "yard", "lamp-settings").await.unwrap()["data"]["oil"], "rape");

    world.release("wick", &bad, "1.1.0", json!({"atomic": true}), None).await;
    world.end_job("wick-check", "Failed").await;
    let status = world.release_is("wick", "failed", 0).await;
    assert!(status.description.contains("has been uninstalled due to atomic being set"), "{}", status.description);
    assert!(world.records("wick").await.is_empty());
    world.told("wick-helm", |s| s.phase == Some(DescriptionPhase::Failure) && !s.reason.is_empty()).await;

    // Until their time has come neither is tried again, whatever wakes, and whoever leads; what runs is put back meanwhile.
    let (maps, jobs) = (kind("v1", "ConfigMap"), kind("batch/v1", "Job"));
    let dynamic = Dynamic::new(world.child.clone());
    for job in ["wick-check", "lamp-check"] {
        dynamic.delete(&jobs, "yard", job, &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    }
    dynamic.merge_patch(&maps, "yard", "lamp-settings", "", &json!({"data": {"oil": "olive"}}), "somebody").await.unwrap();
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_some_and(|o| o["data"]["oil"] == "rape")).await;
    agent.stop().await;
    dynamic.delete(&maps, "yard", "lamp-settings", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    let agent = world.agent(world.options());
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_some_and(|o| o["data"]["oil"] == "rape")).await;
    world.release("spare", &good, "1.0.0", json!({}), None).await;
    world.release_is("spare", "deployed", 1).await;
    assert_eq!(world.release_is("lamp", "failed", 3).await.description, status_of_lamp);
    assert_eq!(world.records("lamp").await.len(), 3);
    assert!(world.records("wick").await.is_empty());
    for job in ["wick-check", "lamp-check"] {
        assert!(world.in_child(&jobs, "yard", job).await.is_none(), "{job} ran again");
    }
    // Another wish is tried at once.
    world.release("lamp", &good, "1.0.0", json!({"upgradeAtomic": true}), None).await;
    world.release_is("lamp", "deployed", 3).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_helm_does_is_noticed_and_put_back() {
    let world = World::new().await;
    world.placed().await;
    let url = repository(&[("web", "1.0.0", vec![("templates/a.yaml", config_template())])]).await;
    let agent = world.agent(world.options());
    let values = Some(json!({"oil": "whale"}));
    world.release("lamp", &url, "1.0.0", json!({}), values.clone()).await;
    world.release_is("lamp", "deployed", 1).await;
    let maps = kind("v1", "ConfigMap");

    // A person upgrades: their Helm leaves the same fields to the same manager, and a revision.
    let mut first = world.records("lamp").await.remove(0);
    let mut second = Record { version: 2, config: json!({"oil": "olive"}), manifest: first.manifest.replace("whale", "olive"), ..first.clone() };
    first.info.status = "superseded".into();
    second.info.description = "by hand".into();
    let theirs = chart::yaml::decode::decode_ints(second.manifest.split_once("\n").unwrap().1.as_bytes()).unwrap().to_json();
    let mut object = world.in_child(&maps, "yard", "lamp-settings").await.unwrap();
    object["data"] = theirs["data"].clone();
    for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    let how = ApplyAs { manager: "helm", force: true, dry_run: false };
    Dynamic::new(world.child.clone()).apply(&maps, &object, how).await.unwrap();
    for record in [&first, &second] {
        world.keep_record(record).await;
    }
    world.release_is("lamp", "deployed", 3).await;
    assert_eq!(world.in_child(&maps, "yard", "lamp-settings").await.unwrap()["data"]["oil"], "whale");

    // What another Helm has at work is waited for, and not taken for our own after having been told of.
    let described = async |what: &str| {
        eventually("a word", || async {
            let status = world.releases().get("lamp-helm-fleet-lamp").await.unwrap().status.unwrap_or_default();
            if status.description.starts_with(what) { Ok(()) } else { Err(status) }
        })
        .await;
    };
    let pending = |at: String| {
        let mut record = Record { version: 4, ..second.clone() };
        record.info.status = "pending-upgrade".into();
        record.info.last_deployed = at;
        record
    };
    world.keep_record(&pending(jiff::Timestamp::now().to_string())).await;
    described("waits for revision 4, which another Helm has at work").await;
    world.release_is("lamp", "deployed", 3).await;
    let (secrets, dynamic) = (kind("v1", "Secret"), Dynamic::new(world.child.clone()));
    dynamic.delete(&secrets, "yard", "sh.helm.release.v1.lamp.v4", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    described("Upgrade complete").await;

    // A revision that nobody can read is told by its Secret, and one that never came to its end does not stay pending.
    let broken = json!({"data": {"release": api::Bytes(b"nothing".to_vec())}});
    dynamic.merge_patch(&secrets, "yard", "sh.helm.release.v1.lamp.v1", "", &broken, "somebody").await.unwrap();
    let status = world.release_is("lamp", "failed", 3).await;
    assert!(status.description.starts_with("read the revision in the Secret yard/sh.helm.release.v1.lamp.v1"), "{}", status.description);
    world.keep_record(&pending("2020-01-01T00:00:00Z".into())).await;
    dynamic.delete(&secrets, "yard", "sh.helm.release.v1.lamp.v1", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    world.release_is("lamp", "deployed", 5).await;
    let states: Vec<_> = world.records("lamp").await.into_iter().map(|r| (r.version, r.info.status)).collect();
    assert_eq!(states, [(2, "superseded".to_owned()), (3, "superseded".to_owned()), (4, "failed".to_owned()), (5, "deployed".to_owned())]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_a_watched_kind_is_put_back_from_its_first_moment() {
    let world = World::new().await;
    world.placed().await;
    let url = repository(&[("web", "1.0.0", vec![("templates/a.yaml", config_template())])]).await;
    let agent = world.agent(world.options());
    let (maps, dynamic) = (kind("v1", "ConfigMap"), Dynamic::new(world.child.clone()));
    for name in ["lamp", "wick", "torch"] {
        world.release(name, &url, "1.0.0", json!({}), None).await;
        world.release_is(name, "deployed", 1).await;
        let object = format!("{name}-settings");
        let uid = world.in_child(&maps, "yard", &object).await.unwrap()["metadata"]["uid"].clone();
        dynamic.delete(&maps, "yard", &object, &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
        world.is_in_child(&maps, "yard", &object, |o| o.is_some_and(|o| o["metadata"]["uid"] != uid)).await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_values_stay_and_are_those_of_the_seed_that_was_given() {
    let world = World::new().await;
    world.placed().await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {oil: {{ .Values.oil }}, pass: {{ randAlphaNum 12 }}}\n".to_owned();
    // Not a hook: without `wait`, waitForJob waits for nothing.
    let work = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: {{ .Release.Name }}-work}\nspec:\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: b}]}\n".to_owned();
    let url = repository(&[("web", "1.0.0", vec![("templates/a.yaml", map), ("templates/b.yaml", work)])]).await;
    let seeds = plan::rendered::seeds_name("wick-helm");
    let given = json!({"wick-helm-fleet-wick": api::Bytes(b"7".to_vec())});
    put(&world.parent, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": seeds, "namespace": NAMESPACE}, "data": given})).await;
    let agent = world.agent(world.options());
    let maps = kind("v1", "ConfigMap");
    let mut found = BTreeMap::new();
    for (version, oil) in [(1, "whale"), (2, "rape")] {
        for name in ["lamp", "wick", "torch"] {
            world.release(name, &url, "1.0.0", json!({"waitForJob": true}), Some(json!({"oil": oil}))).await;
            world.release_is(name, "deployed", version).await;
            let live = world.in_child(&maps, "yard", &format!("{name}-settings")).await.unwrap();
            assert_eq!(live["data"]["oil"], oil);
            let pass = live["data"]["pass"].as_str().unwrap().to_owned();
            assert_eq!(found.entry(name).or_insert_with(|| pass.clone()), &pass, "{name}");
        }
    }
    assert_eq!(found.values().collect::<std::collections::BTreeSet<_>>().len(), 3, "each release has its own");
    let salt = world.in_child(&kind("v1", "Secret"), "clusternet-system", api::known::secret::RENDER_SALT).await;
    assert!(salt.is_some(), "where the parent gives no seed, the child keeps a salt");
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
