//! Releases that the branch has rendered: these bytes are deployed, drift is put back, doubts change nothing.

use std::collections::BTreeMap;

use api::apps::HelmRelease;
use api::known::annotation;
use kube::api::{Patch, PatchParams};
use plan::rendered::{Made, Pin, answers_name, read_answers, render};

use super::branch::Delivery;
use super::*;

const NAME: &str = "lamp-helm-fleet-lamp";
const DIRECTORY: &str = "_bases/lamp/yard.lamp";

fn pin(of: &str) -> Pin {
    Pin { of: of.into(), version: "1.0.0".into(), kube: "v1.37.2".into(), api_versions: "v1:ConfigMap".into(), revision: 1, at: 1_700_000_000, ..Pin::default() }
}

impl World {
    /// The HelmRelease of a chart that nobody can fetch.
    async fn wish(&self, pin: &Pin, more: Value) -> HelmRelease {
        use base64::Engine as _;
        let raw = |value: &Value| base64::engine::general_purpose::STANDARD.encode(value.to_string());
        let mut spec = json!({"repo": "http://127.0.0.1:1", "chart": "web", "version": "1.0.0", "targetNamespace": "yard", "timeoutSeconds": 10});
        manifest::patch::merge(&mut spec, &more);
        let chart = json!({"metadata": {"name": "lamp", "namespace": "fleet"}, "spec": spec});
        put(
            &self.parent,
            json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description",
                "metadata": {"name": "lamp-helm", "namespace": NAMESPACE},
                "spec": {"deployer": "Helm", "charts": [{"namespace": "fleet", "name": "lamp"}], "raw": [raw(&json!({}))], "chartRaw": [raw(&chart)]}}),
        )
        .await;
        if spec.get("releaseName").is_none() {
            spec["releaseName"] = json!("lamp");
        }
        let made = put(
            &self.parent,
            json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "HelmRelease",
                "metadata": {"name": NAME, "namespace": NAMESPACE, "finalizers": ["apps.clusternet.io/finalizer"], "annotations": {annotation::RENDER: pin.text()}},
                "spec": spec}),
        )
        .await;
        serde_json::from_value(made).unwrap()
    }

    fn helm_releases(&self) -> Api<HelmRelease> {
        Api::namespaced(self.parent.clone(), NAMESPACE)
    }

    async fn phase(&self, phase: &str, version: i32) -> api::apps::HelmReleaseStatus {
        eventually("a release", || async {
            let status = self.helm_releases().get(NAME).await.unwrap().status.unwrap_or_default();
            if status.phase == phase && status.version == version { Ok(()) } else { Err(status) }
        })
        .await;
        self.helm_releases().get(NAME).await.unwrap().status.unwrap()
    }
}

/// Files of the release in the branch, as the parent renders them.
fn files(release: &HelmRelease, pin: &Pin, templates: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all: BTreeMap<String, Vec<u8>> = [("Chart.yaml".to_owned(), b"apiVersion: v2\nname: web\nversion: 1.0.0\n".to_vec())].into();
    all.extend(templates.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())));
    let chart = chart::load(all).unwrap();
    match render(&chart, release, pin, BTreeMap::new(), 7) {
        Made::Files(files) => files.iter().map(|f| (format!("{DIRECTORY}/{}", f.name), f.text.to_string())).collect(),
        other => panic!("{other:?}"),
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {oil: rape, pass: {{ randAlphaNum 6 }}}\n";
const NEXT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {oil: whale}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_the_branch_are_deployed_and_put_back() {
    let world = World::new().await;
    world.placed().await;
    let mut delivery = Delivery::new(&world).await;
    delivery.releases.insert(DIRECTORY.to_owned());
    let release = world.wish(&pin("one"), json!({})).await;
    let rendered = files(&release, &pin("one"), &[("templates/a.yaml", MAP)]);
    let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let first = delivery.commit(&world, &list).await;
    delivery.tell(&world, &first).await;
    let agent = world.agent(world.options());
    world.phase("deployed", 1).await;
    let maps = kind("v1", "ConfigMap");
    let live = world.in_child(&maps, "yard", "lamp-settings").await.unwrap();
    let record = &world.records("lamp").await[0];
    assert!(rendered.iter().any(|(path, text)| path.ends_with("/manifest.yaml") && *text == record.manifest), "the record holds the branch's bytes");
    assert_eq!(record.chart_text("name"), "web");

    // Changed, and then deleted, by hand: put back, with no new revision.
    let dynamic = Dynamic::new(world.child.clone());
    dynamic.merge_patch(&maps, "yard", "lamp-settings", "", &json!({"data": {"oil": "olive"}}), "somebody").await.unwrap();
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_some_and(|o| o["data"] == live["data"])).await;
    dynamic.delete(&maps, "yard", "lamp-settings", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_some_and(|o| o["data"] == live["data"])).await;
    assert_eq!(world.records("lamp").await.len(), 1);

    // A new wish waits for its files; one that cannot be rendered is told, and changes nothing.
    let release = world.wish(&pin("two"), json!({"wait": true})).await;
    let broken = Pin { fault: "render chart web: web/templates/a.yaml:4:2: no oil".into(), ..pin("two") };
    world.wish(&broken, json!({"wait": true})).await;
    let told = world.phase("failed", 1).await;
    assert!(told.description.contains("web/templates/a.yaml:4:2"), "{}", told.description);
    assert_eq!(world.in_child(&maps, "yard", "lamp-settings").await.unwrap()["data"], live["data"]);
    // Meanwhile what is deployed is put back as before.
    dynamic.delete(&maps, "yard", "lamp-settings", &Default::default(), cluster::dynamic::Propagation::Background).await.unwrap();
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_some_and(|o| o["data"] == live["data"])).await;
    let rendered = files(&release, &pin("two"), &[("templates/a.yaml", NEXT)]);
    let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    world.wish(&pin("two"), json!({"wait": true})).await;
    let second = delivery.commit(&world, &list).await;
    delivery.tell(&world, &second).await;
    world.phase("deployed", 2).await;
    assert_eq!(world.in_child(&maps, "yard", "lamp-settings").await.unwrap()["data"], json!({"oil": "whale"}));

    // Another namespace: the release goes where it was, and comes where it shall be.
    let release = world.wish(&pin("three"), json!({"targetNamespace": "shed"})).await;
    delivery.releases = ["_bases/lamp/shed.lamp".to_owned()].into();
    let rendered: Vec<(String, String)> = files(&release, &pin("three"), &[("templates/a.yaml", NEXT)]).into_iter().map(|(p, t)| (p.replace("yard.", "shed."), t)).collect();
    let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let third = delivery.commit(&world, &list).await;
    delivery.tell(&world, &third).await;
    world.is_in_child(&maps, "shed", "lamp-settings", |o| o.is_some()).await;
    world.is_in_child(&maps, "yard", "lamp-settings", |o| o.is_none()).await;
    assert!(world.records("lamp").await.is_empty(), "nothing is left where it was");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_templates_look_up_is_answered_once() {
    let world = World::new().await;
    world.placed().await;
    put(&world.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    put(&world.child, config("yard", "old", "whale")).await;
    let mut delivery = Delivery::new(&world).await;
    let there = ("v1".to_owned(), "ConfigMap".to_owned(), "yard".to_owned(), "old".to_owned());
    let gone = ("v1".to_owned(), "ConfigMap".to_owned(), "yard".to_owned(), "new".to_owned());
    let asking = Pin { asks: [there.clone(), gone.clone()].into(), ..pin("one") };
    world.wish(&asking, json!({})).await;
    let first = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &first).await;
    let agent = world.agent(world.options());
    let answered = |release: HelmRelease| release.metadata.annotations.unwrap_or_default().get(annotation::ANSWERED).cloned();
    let is_answered = async |want: &str| eventually("an answer", || async { answered(world.helm_releases().get(NAME).await.unwrap()).filter(|a| a == want).map(|_| ()).ok_or(()) }).await;
    is_answered("one/2").await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(world.parent.clone(), NAMESPACE);
    let read = async || read_answers(&secrets.get(&answers_name(NAME)).await.unwrap().data.unwrap()["answers"].0);
    let answers = read().await;
    assert_eq!((answers[&there].as_ref().map(|o| o["data"]["mode"].clone()), &answers[&gone]), (Some(json!("whale")), &None));
    // What came meanwhile does not change an answer to the same wish; a further question is added.
    put(&world.child, config("yard", "new", "rape")).await;
    let third = ("v1".to_owned(), "ConfigMap".to_owned(), "yard".to_owned(), "third".to_owned());
    world.wish(&Pin { asks: [there, gone.clone(), third].into(), ..pin("one") }, json!({})).await;
    is_answered("one/3").await;
    assert_eq!(read().await[&gone], None);
    assert!(world.records("lamp").await.is_empty(), "nothing is deployed without files");
    let patch = json!({"metadata": {"annotations": {annotation::RENDER: Value::Null}}});
    world.helm_releases().patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let told = world.phase("failed", 0).await;
    assert!(told.description.starts_with("fetch chart web"), "without a pin the agent renders itself: {}", told.description);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_with_a_branch_is_waited_for_and_never_rendered_here() {
    let world = World::new().await;
    world.placed().await;
    // The agent could fetch this chart, and must not.
    let url = super::releases::repository(&[("web", "1.0.0", vec![("templates/a.yaml", MAP.to_owned())])]).await;
    let more = json!({"repo": url});
    world.wish(&Pin { waits: "the kinds of its cluster".into(), ..Pin::default() }, more.clone()).await;
    let agent = world.agent(world.options());
    let waits_for = async |what: &str| {
        eventually("a word of what is waited for", || async {
            let status = world.helm_releases().get(NAME).await.unwrap().status.unwrap_or_default();
            if status.description.contains(what) && status.phase.is_empty() { Ok(()) } else { Err(status) }
        })
        .await;
        assert!(world.records("lamp").await.is_empty());
    };
    waits_for("waits for the kinds of its cluster").await;
    let release = world.wish(&pin("one"), more.clone()).await;
    waits_for("waits for the first commit").await;
    let mut delivery = Delivery::new(&world).await;
    let empty = delivery.commit(&world, &[]).await;
    delivery.tell(&world, &empty).await;
    waits_for("waits for its files").await;
    delivery.releases.insert(DIRECTORY.to_owned());
    let rendered = files(&release, &pin("one"), &[("templates/a.yaml", MAP)]);
    let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let first = delivery.commit(&world, &list).await;
    delivery.tell(&world, &first).await;
    world.phase("deployed", 1).await;
    let records = world.records("lamp").await;
    assert!(records.len() == 1 && rendered.iter().any(|(_, text)| *text == records[0].manifest));
    agent.stop().await;

    // The parent, where it applies itself, deploys the same bytes.
    let clusters: Api<ManagedCluster> = Api::namespaced(world.parent.clone(), NAMESPACE);
    let status = json!({"status": {"appPusher": true}});
    clusters.patch_status("harbor", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(json!({"spec": {"syncMode": "Push"}}))).await.unwrap();
    let release = world.wish(&pin("two"), more).await;
    let stop = engine::CancellationToken::new();
    let pushing = tokio::spawn({
        let (parent, child, options, stop) = (world.parent.clone(), world.child.clone(), world.options(), stop.clone());
        async move { Box::pin(crate::push(parent, child, NAMESPACE, "harbor", options, stop)).await }
    });
    let rendered = files(&release, &pin("two"), &[("templates/a.yaml", NEXT)]);
    let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let second = delivery.commit(&world, &list).await;
    delivery.tell(&world, &second).await;
    world.phase("deployed", 2).await;
    let records = world.records("lamp").await;
    assert!(records.len() == 2 && rendered.iter().any(|(_, text)| *text == records[1].manifest));
    stop.cancel();
    pushing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_was_there_before_is_told_of_and_goes_on_from_its_revision() {
    let world = World::new().await;
    world.placed().await;
    put(&world.child, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "yard"}})).await;
    for (version, status) in [(1, "superseded"), (2, "deployed")] {
        let mut record = chart::Record { name: "lamp".into(), namespace: "yard".into(), version, chart: json!({"metadata": {"name": "web", "version": "0.9.0"}}), ..Default::default() };
        record.info.status = status.into();
        world.keep_record(&record).await;
    }
    let mut delivery = Delivery::new(&world).await;
    delivery.releases.insert(DIRECTORY.to_owned());
    const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {revision: {{ .Release.Revision | quote }}, upgrade: {{ .Release.IsUpgrade | quote }}}\n";
    let release = world.wish(&pin("one"), json!({})).await;
    let deliver = async |delivery: &mut Delivery, pin: &Pin| {
        let rendered = files(&release, pin, &[("templates/a.yaml", TEMPLATE)]);
        let list: Vec<(&str, &str)> = rendered.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let commit = delivery.commit(&world, &list).await;
        delivery.tell(&world, &commit).await;
    };
    deliver(&mut delivery, &pin("one")).await;
    let agent = world.agent(world.options());
    let told = world.phase(plan::rendered::FOUND, 2).await;
    assert_eq!(told.description, "revision 2 of web 0.9.0 was there before");
    // The parent makes another pin of it, by the same wish.
    let now = world.helm_releases().get(NAME).await.unwrap();
    let next = plan::rendered::pin("one", &plan::rendered::Facts::default(), None, Some(&now));
    assert_eq!((next.revision, next.upgrade, next.over), (3, true, 2));
    world.wish(&next, json!({})).await;
    deliver(&mut delivery, &next).await;
    world.phase("deployed", 3).await;
    assert_eq!(world.in_child(&kind("v1", "ConfigMap"), "yard", "a").await.unwrap()["data"], json!({"revision": "3", "upgrade": "true"}));
    let states: Vec<_> = world.records("lamp").await.into_iter().map(|r| r.info.status).collect();
    assert_eq!(states, ["superseded", "superseded", "deployed"]);
    agent.stop().await;
}
