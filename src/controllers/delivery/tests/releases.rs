//! Charts rendered into branches: files, faults that keep what is there, lookups that are asked and answered, charts beside manifests.

use api::apps::{HelmChart, HelmRelease};
use plan::rendered::Pin;

use super::*;

const RELEASE: &str = "web-abcde-helm-fleet-lamp";
const MANIFEST: &str = "fleet/web/yard.lamp/manifest.yaml";

impl Stage {
    /// Commits a chart to the source repository and says that its GitSource has applied that.
    async fn chart(&self, version: &str, template: &str) {
        let work = self.dir.path().join("source");
        if !work.exists() {
            self.git(self.dir.path(), &["init", "-q", "source"]);
        }
        let chart = work.join("charts/lamp");
        std::fs::create_dir_all(chart.join("templates")).expect("directory");
        std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: lamp\nversion: {version}\n")).expect("file");
        std::fs::write(chart.join("values.yaml"), "oil: rape\n").expect("file");
        std::fs::write(chart.join("templates/a.yaml"), template).expect("file");
        for args in [&["add", "-A"][..], &["commit", "-q", "-m", version]] {
            self.git(&work, args);
        }
        let commit = self.git(&work, &["rev-parse", "HEAD"]);
        let like = json!({"apiVersion": "gitops.anabranch.io/v1alpha1", "kind": "GitSource", "metadata": {"name": "charts", "namespace": "fleet"}, "spec": {"url": work.display().to_string()}});
        self.apply(&like).await;
        // As a source says it that is through with a revision of which another file is broken.
        let ready = json!({"type": "Ready", "status": "False", "reason": "InvalidObjects", "message": "x.yaml:1:1: no", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"lastAttemptedRevision": format!("main@sha1:{commit}"), "conditions": [ready]}});
        self.dynamic.merge_patch(&resource(&like), "fleet", "charts", "status", &patch, "test").await.expect("patched");
    }

    fn helm_chart(&self, path: &str) -> Value {
        json!({"apiVersion": APPS, "kind": "HelmChart", "metadata": {"name": "lamp", "namespace": "fleet",
                "labels": {label::SOURCE: api::names::label_value("fleet.charts")}, "annotations": {annotation::CHART_PATH: path}},
            "spec": {"repo": "https://git.example.org/fleet", "chart": "lamp", "targetNamespace": "yard"}})
    }

    async fn release(&self) -> HelmRelease {
        let like = json!({"apiVersion": APPS, "kind": "HelmRelease"});
        let found = self.dynamic.get_opt(&resource(&like), "clusternet-harbor", RELEASE).await.expect("read");
        found.and_then(|object| HelmRelease::from_object(&object).ok()).unwrap_or_default()
    }

    async fn pinned(&self) -> Pin {
        Pin::read(&self.release().await).unwrap_or_default()
    }

    async fn helm_description(&self, values: &Value) {
        let raw = |value: &Value| api::Bytes(value.to_string().into_bytes());
        let chart = self.helm_chart("charts/lamp");
        let chart = json!({"metadata": chart["metadata"], "spec": chart["spec"]});
        self.apply(&json!({"apiVersion": APPS, "kind": "Description",
            "metadata": {"name": "web-abcde-helm", "namespace": "clusternet-harbor", "labels": {label::SUBS_NAMESPACE: "fleet", label::SUBS_NAME: "web"}},
            "spec": {"deployer": "Helm", "charts": [{"namespace": "fleet", "name": "lamp"}], "raw": [raw(values)], "chartRaw": [raw(&chart)]}}))
        .await;
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  oil: {{ .Values.oil }}\n  pass: {{ randAlphaNum 9 }}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_shows_what_charts_render_to() {
    let stage = Stage::new().await;
    stage.chart("1.0.0", MAP).await;
    stage.apply(&stage.helm_chart("charts/none")).await;
    let like = stage.helm_chart("");
    let status = async || {
        let object = stage.dynamic.get(&resource(&like), "fleet", "lamp").await.expect("there");
        HelmChart::from_object(&object).ok().and_then(|c| c.status).unwrap_or_default()
    };
    stage.until("the chart is not found", async || status().await.reason.starts_with("there is no charts/none/Chart.yaml in main@sha1:")).await;
    stage.apply(&stage.helm_chart("charts/lamp")).await;
    stage.until("the chart is found", async || status().await.phase == Some(api::apps::HelmChartPhase::Found)).await;

    // Of a cluster that has a branch, but is not known yet, the release waits: its agent must not render it.
    stage.target().await;
    stage.helm_description(&json!({"oil": "whale"})).await;
    stage.until("a pin that waits", async || Pin::read(&stage.release().await).is_some_and(|pin| pin.of.is_empty() && pin.waits.contains("kinds"))).await;
    let cluster = json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster"});
    let facts = json!({"metadata": {"annotations": {annotation::API_VERSIONS: "v1:ConfigMap,Secret"}}});
    stage.dynamic.merge_patch(&resource(&cluster), "clusternet-harbor", "harbor", "", &facts, "test").await.expect("patched");
    let status = json!({"status": {"k8sVersion": "v1.37.2"}});
    stage.dynamic.merge_patch(&resource(&cluster), "clusternet-harbor", "harbor", "status", &status, "test").await.expect("patched");
    stage.until("the rendered release", async || stage.shown("harbor", MANIFEST).contains("oil: whale")).await;
    let first = stage.shown("harbor", MANIFEST);
    assert!(first.starts_with("---\n# Source: lamp/templates/a.yaml\n"), "{first}");
    let release = stage.shown("harbor", "fleet/web/yard.lamp/release.yaml");
    assert!(release.contains(&format!("helmRelease: {RELEASE}")) && release.contains("kubeVersion: v1.37.2"), "{release}");
    assert!(stage.shown("harbor", ".anabranch.yaml").contains("releases:\n- fleet/web/yard.lamp"));
    let commits = stage.commits("harbor");

    // Looked at again, it is the same: random values come from a seed.
    stage.look_again("1").await;
    assert_eq!(stage.commits("harbor"), commits);
    // A chart that does not render any more changes nothing, and says where.
    stage.chart("1.0.1", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {oil: {{ .Values.oil.of.what }}}\n").await;
    stage.until("the fault", async || stage.pinned().await.fault.contains("lamp/templates/a.yaml:4:")).await;
    stage.look_again("2").await;
    assert_eq!(stage.shown("harbor", MANIFEST), first);
    // Mended, with other values: the password stays, since its draw is the same.
    stage.chart("1.0.2", MAP).await;
    stage.helm_description(&json!({"oil": "olive"})).await;
    stage.until("it renders again", async || stage.shown("harbor", MANIFEST).contains("oil: olive")).await;
    assert_eq!(stage.shown("harbor", MANIFEST), first.replace("whale", "olive"));
    assert_eq!(stage.pinned().await.fault, "");

    // Lookups wait for the agent's answer.
    let asks = "{{ $old := lookup \"v1\" \"Secret\" \"yard\" \"pass\" }}apiVersion: v1\nkind: Secret\nmetadata: {name: pass}\ndata: {p: {{ $old.data.p }}}\n";
    stage.chart("1.1.0", asks).await;
    stage.until("the question", async || stage.pinned().await.asks.len() == 1).await;
    let pin = stage.pinned().await;
    let asked = pin.asks.first().cloned().expect("asked");
    assert_eq!(asked, ("v1".into(), "Secret".into(), "yard".into(), "pass".into()));
    assert!(stage.shown("harbor", MANIFEST).contains("oil: olive"), "until then it stays");
    let answers = plan::rendered::write_answers(&[(asked, Some(json!({"data": {"p": "b2xk"}})))].into());
    stage.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": plan::rendered::answers_name(RELEASE), "namespace": "clusternet-harbor"}, "data": {"of": api::Bytes(pin.of.clone().into_bytes()), "answers": api::Bytes(answers.into_bytes())}})).await;
    let told = json!({"metadata": {"annotations": {annotation::ANSWERED: pin.answered()}}});
    stage.dynamic.merge_patch(&resource(&json!({"apiVersion": APPS, "kind": "HelmRelease"})), "clusternet-harbor", RELEASE, "", &told, "test").await.expect("patched");
    stage.until("the answer", async || stage.shown("harbor", MANIFEST).contains("{p: b2xk}")).await;

    // While its writer is suspended the cluster has a branch all the same. Without a writer there is nothing to pin, and the agent gets the
    // seed by which a branch would show the release.
    let target = json!({"apiVersion": GitTarget::API_VERSION, "kind": "GitTarget"});
    stage.dynamic.merge_patch(&resource(&target), "fleet", "delivery", "", &json!({"spec": {"suspend": true}}), "test").await.expect("patched");
    stage.look_again("3").await;
    assert!(Pin::read(&stage.release().await).is_some());
    stage.dynamic.delete(&resource(&target), "fleet", "delivery", &cluster::dynamic::Precondition::default(), cluster::dynamic::Propagation::Background).await.expect("deleted");
    stage.until("no pin", async || Pin::read(&stage.release().await).is_none()).await;
    assert!(stage.shown("harbor", MANIFEST).contains("{p: b2xk}"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret"});
    let seeds = stage.dynamic.get(&resource(&secret), "clusternet-harbor", &plan::rendered::seeds_name("web-abcde-helm")).await.expect("seeds");
    assert!(seeds["data"][RELEASE].is_string(), "{seeds}");

    // A release goes with its Description, also when its chart went before.
    let description = json!({"apiVersion": APPS, "kind": "Description"});
    let held = json!({"metadata": {"finalizers": [api::known::finalizer::APP]}});
    stage.dynamic.merge_patch(&resource(&description), "clusternet-harbor", "web-abcde-helm", "", &held, "test").await.expect("patched");
    for (like, namespace, name) in [(like, "fleet", "lamp"), (description, "clusternet-harbor", "web-abcde-helm")] {
        stage.dynamic.delete(&resource(&like), namespace, name, &cluster::dynamic::Precondition::default(), cluster::dynamic::Propagation::Background).await.expect("deleted");
    }
    stage.until("the release goes", async || stage.release().await.metadata.deletion_timestamp.is_some() || stage.release().await.metadata.uid.is_none()).await;
}
