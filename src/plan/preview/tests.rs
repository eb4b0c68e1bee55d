//! The examples as a fleet sees them, and what a reviewer of a change is told.

use std::path::Path;

use api::clusters::ManagedClusterSpec;

use super::*;
use crate::source::{Body, is_wanted, read};

fn cluster(name: &str, labels: &[(&str, &str)]) -> ManagedCluster {
    let mut out = ManagedCluster::new(name, ManagedClusterSpec { cluster_id: stable_uid(name), ..ManagedClusterSpec::default() });
    out.metadata.namespace = Some(format!("clusternet-{name}"));
    out.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    out
}

fn fleet() -> Fleet {
    Fleet {
        clusters: vec![
            cluster("harbor", &[("region", "north"), ("tier", "edge")]),
            cluster("meadow", &[("region", "south"), ("tier", "core")]),
            cluster("summit", &[("region", "west"), ("tier", "core")]),
        ],
        ..Fleet::default()
    }
}

fn examples() -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, out: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).expect("directory") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                walk(root, &path, out);
            } else {
                let name = path.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
                out.insert(name, std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples-repo");
    let mut out = BTreeMap::new();
    walk(&root, &root, &mut out);
    out
}

fn state(files: &BTreeMap<String, String>, fleet: &Fleet) -> State {
    let parsed = files.iter().filter(|(p, _)| is_wanted(p)).map(|(p, t)| (p.clone(), Arc::new(read(p, Body::Bytes(t.as_bytes()))))).collect();
    let settings = Settings { source: "fleet.demo".to_owned(), target_namespaces: Default::default() };
    let target = Target { owner: "fleet/delivery".to_owned(), prefix: String::new() };
    compute(&desired(&parsed, &settings), None, fleet, &target, &|_| None, Timestamp::UNIX_EPOCH, &NoCharts)
}

#[test]
fn the_examples() {
    let state = state(&examples(), &fleet());
    assert_eq!(state.faults, []);
    let bound: Vec<String> = state.subscriptions.iter().map(|(k, b)| format!("{k}: {}", b.status.binding_clusters.join(" "))).collect();
    assert_eq!(
        bound,
        [
            "edge-cache/cache: clusternet-harbor/harbor",
            "monitoring/probe: clusternet-harbor/harbor clusternet-meadow/meadow clusternet-summit/summit",
            "orders/worker: clusternet-meadow/meadow clusternet-summit/summit",
            "storefront/web: clusternet-harbor/harbor clusternet-meadow/meadow clusternet-summit/summit",
        ]
    );
    assert!(state.subscriptions.values().all(|b| b.findings.is_empty()), "{:?}", state.subscriptions);
    let file = |cluster: &str, path: &str| state.trees[&format!("clusternet-{cluster}/{cluster}")].files.get(path).map(|t| t.to_string()).unwrap_or_default();
    let harbor = file("harbor", "storefront/web/configmap.storefront.settings.yaml");
    assert!(harbor.contains("greeting: Welcome to the harbor\n") && harbor.contains("theme: plain\n") && harbor.contains("seconds: 600\n"), "{harbor}");
    let meadow = file("meadow", "storefront/web/configmap.storefront.settings.yaml");
    assert!(meadow.contains("greeting: Welcome to the meadow\n") && meadow.contains("theme: spring\n") && meadow.contains("seconds: 60\n"), "{meadow}");
    let web = file("harbor", "storefront/web/deployment.apps.storefront.web.yaml");
    assert!(web.contains("  replicas: 1\n") && web.contains("fleet.example.org/contact: storefront-team@example.org\n"), "{web}");
    assert!(file("meadow", "orders/worker/deployment.apps.orders.worker.yaml").contains("  replicas: 4\n"));
    assert!(file("summit", "orders/worker/deployment.apps.orders.worker.yaml").contains("  replicas: 2\n"));
    assert!(file("summit", "edge-cache/cache/statefulset.apps.edge-cache.cache.yaml").is_empty());
}

#[test]
fn nothing_changes_by_computing_again() {
    let (files, fleet) = (examples(), fleet());
    let first = state(&files, &fleet);
    let mut shuffled = fleet.clone();
    shuffled.clusters.reverse();
    let second = state(&files, &Fleet { bindings: first.bindings(), ..shuffled });
    assert_eq!(first.trees, second.trees);
    assert!(compare(&first, &second).is_empty());
    assert_eq!(text(&compare(&first, &second)), "nothing changes in any cluster\n");
}

#[track_caller]
fn check(path: &str, from: &str, to: &str, expect: &str) {
    let (mut files, fleet) = (examples(), fleet());
    let base = state(&files, &fleet);
    let changed = files[path].replacen(from, to, 1);
    assert_ne!(changed, files[path]);
    files.insert(path.to_owned(), changed);
    let head = state(&files, &Fleet { bindings: base.bindings(), ..fleet });
    assert_eq!(text(&compare(&base, &head)), expect);
}

#[test]
fn what_a_reviewer_is_told() {
    check(
        "apps/storefront/localizations.yaml",
        "Welcome to the harbor",
        "Ahoy",
        "1 cluster (harbor): 1 changed\n  ~ storefront/web/configmap.storefront.settings.yaml\n      data.greeting: \"Welcome to the harbor\" -> \"Ahoy\"\n",
    );
    check(
        "apps/orders/subscription.yaml",
        "weight: 2",
        "weight: 1",
        "Subscription orders/worker\n  ~ apps/v1/Deployment/orders/worker: meadow 4 -> 3, summit 2 -> 3\n1 cluster (meadow): 1 changed\n  ~ orders/worker/deployment.apps.orders.worker.yaml\n      spec.replicas: 4 -> 3\n1 cluster (summit): 1 changed\n  ~ orders/worker/deployment.apps.orders.worker.yaml\n      spec.replicas: 2 -> 3\n",
    );
    check(
        "apps/storefront/base.yaml",
        "web:1.4.0",
        "web:1.5.0",
        "3 clusters (harbor, meadow, summit): 1 changed\n  ~ storefront/web/deployment.apps.storefront.web.yaml\n      spec.template.spec.containers[name=web].image: \"registry.example.org/storefront/web:1.4.0\" -> \"registry.example.org/storefront/web:1.5.0\"\n",
    );
    check(
        "apps/edge-cache/all.yaml",
        "tier: edge",
        "tier: core",
        "Subscription edge-cache/cache\n  + meadow, summit\n  - harbor\n2 clusters (meadow, summit): 3 new\n  + edge-cache/cache/namespace._.edge-cache.yaml\n  + edge-cache/cache/service.edge-cache.cache.yaml\n  + edge-cache/cache/statefulset.apps.edge-cache.cache.yaml\n1 cluster (harbor): 3 gone\n  - edge-cache/cache/namespace._.edge-cache.yaml\n  - edge-cache/cache/service.edge-cache.cache.yaml\n  - edge-cache/cache/statefulset.apps.edge-cache.cache.yaml\n",
    );
}

#[test]
fn secrets_do_not_travel() {
    let (mut files, fleet) = (examples(), fleet());
    let secret = |value: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: token, namespace: monitoring}}\ndata: {{token: {value}}}\n");
    let with = |text: String| text.replace("  - apiVersion: v1\n    kind: Namespace\n    name: monitoring", "  - apiVersion: v1\n    kind: Secret\n    name: token\n    namespace: monitoring\n  - apiVersion: v1\n    kind: Namespace\n    name: monitoring");
    let subscription = with(files["apps/monitoring/subscription.yaml"].clone());
    files.insert("apps/monitoring/subscription.yaml".to_owned(), subscription);
    files.insert("apps/monitoring/secret.yaml".to_owned(), secret("b2xk"));
    let base = state(&files, &fleet);
    files.insert("apps/monitoring/secret.yaml".to_owned(), secret("bmV3"));
    let head = state(&files, &fleet);
    let report = compare(&base, &head);
    let all = format!("{}{}{}", text(&report), markdown(&report), serde_json::to_string(&report).expect("json"));
    assert!(all.contains("data.token") && !all.contains("b2xk") && !all.contains("bmV3"), "{all}");
}

/// One answer for every release.
struct One(Result<Arc<chart::Chart>, String>);

impl Charts for One {
    fn chart(&self, _: &api::apps::HelmRelease, _: &str) -> Option<Result<Arc<chart::Chart>, String>> {
        Some(self.0.clone())
    }

    fn digest(&self, _: &str) -> Option<String> {
        None
    }

    fn salt(&self) -> &[u8] {
        b"salt"
    }
}

#[test]
fn releases_are_shown_as_the_branch_will_have_them() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {kube: {{ .Capabilities.KubeVersion.Version }}, pass: {{ randAlphaNum 9 }}, old: {{ (lookup \"v1\" \"Secret\" \"yard\" \"s\").kind | default \"none\" }}}\n";
    let files = [("Chart.yaml", "apiVersion: v2\nname: lamp\nversion: 1.0.0\n"), ("templates/a.yaml", text)];
    let one = One(Ok(Arc::new(chart::load(files.into_iter().map(|(p, t)| (p.to_owned(), t.as_bytes().to_vec())).collect()).expect("a chart"))));
    let source = "apiVersion: apps.clusternet.io/v1alpha1\nkind: HelmChart\nmetadata: {name: lamp, namespace: shop}\nspec: {repo: 'https://charts.example.org', chart: lamp, targetNamespace: yard}\n---\napiVersion: apps.clusternet.io/v1alpha1\nkind: Subscription\nmetadata: {name: lamps, namespace: shop}\nspec:\n  schedulingStrategy: Replication\n  subscribers: [{clusterAffinity: {}}]\n  feeds: [{apiVersion: apps.clusternet.io/v1alpha1, kind: HelmChart, name: lamp, namespace: shop}]\n";
    let parsed = [("a.yaml".to_owned(), Arc::new(read("a.yaml", Body::Bytes(source.as_bytes()))))].into();
    let settings = Settings { source: "fleet.demo".to_owned(), target_namespaces: Default::default() };
    let mut fleet = fleet();
    fleet.clusters.truncate(1);
    fleet.clusters[0].metadata.annotations = Some([(api::known::annotation::API_VERSIONS.to_owned(), "v1:ConfigMap".to_owned())].into());
    fleet.clusters[0].status = Some(api::clusters::ManagedClusterStatus { k8s_version: "v1.37.2".to_owned(), ..Default::default() });
    let target = Target { owner: "fleet/delivery".to_owned(), prefix: String::new() };
    let show = |fleet: &Fleet| compute(&desired(&parsed, &settings), None, fleet, &target, &|_| None, Timestamp::UNIX_EPOCH, &one);
    let state = show(&fleet);
    let tree = &state.trees["clusternet-harbor/harbor"];
    let manifest = tree.files["shop/lamps/yard.lamp/manifest.yaml"].to_string();
    assert!(manifest.contains("kube: v1.37.2") && manifest.contains("old: none"), "{manifest}");
    assert!(state.subscriptions["shop/lamps"].findings.iter().any(|f| f.contains("looks up objects")), "{:?}", state.subscriptions["shop/lamps"].findings);
    let release = manifest::parse(&tree.files["shop/lamps/yard.lamp/release.yaml"], &manifest::Limits::FILE).expect("YAML");
    let key = format!("clusternet-harbor/{}", object::text(&release, "helmRelease"));
    // What the agent told before is used, and everything else stays the same.
    let asked = ("v1".to_owned(), "Secret".to_owned(), "yard".to_owned(), "s".to_owned());
    fleet.known.answers.insert(key, ("before".to_owned(), [(asked, Some(serde_json::json!({"kind": "Secret"})))].into()));
    let next = show(&fleet).trees["clusternet-harbor/harbor"].files["shop/lamps/yard.lamp/manifest.yaml"].to_string();
    assert_eq!(next, manifest.replace("old: none", "old: Secret"));
    // What does not render any more stays in the branch.
    let none = One(Err("the chart is gone".to_owned()));
    let broken = compute(&desired(&parsed, &settings), Some(&state), &fleet, &target, &|_| None, Timestamp::UNIX_EPOCH, &none);
    assert_eq!(broken.trees["clusternet-harbor/harbor"].files, tree.files);
    assert!(broken.subscriptions["shop/lamps"].findings.iter().any(|f| f.contains("the chart is gone")), "{:?}", broken.subscriptions["shop/lamps"].findings);
    let gone = compute(&Desired::default(), Some(&state), &fleet, &target, &|_| None, Timestamp::UNIX_EPOCH, &none);
    assert_eq!(gone.trees["clusternet-harbor/harbor"].files.len(), 1, "what is not wanted any more does not");
}

#[test]
fn what_cannot_be_rendered_stays() {
    let (mut files, fleet) = (examples(), fleet());
    let base = state(&files, &fleet);
    let deployed = State::deployed(base.descriptions.values().map(|one| (**one).clone()));
    let upon = |before: &State, files: &BTreeMap<String, String>| {
        let parsed = files.iter().filter(|(p, _)| is_wanted(p)).map(|(p, t)| (p.clone(), Arc::new(read(p, Body::Bytes(t.as_bytes()))))).collect();
        let settings = Settings { source: "fleet.demo".to_owned(), target_namespaces: Default::default() };
        let target = Target { owner: "fleet/delivery".to_owned(), prefix: String::new() };
        compute(&desired(&parsed, &settings), Some(before), &fleet, &target, &|_| None, Timestamp::UNIX_EPOCH, &NoCharts)
    };
    let next = |files: &BTreeMap<String, String>| upon(&base, files);
    assert_eq!(next(&files).trees, base.trees);
    let localization = |policy: &str, path: &str| {
        let patch = format!("[{{\"op\":\"replace\",\"path\":\"{path}\",\"value\":\"Ahoy\"}}]");
        format!("apiVersion: apps.clusternet.io/v1alpha1\nkind: Localization\nmetadata: {{name: new, namespace: clusternet-harbor}}\nspec:\n  overridePolicy: {policy}\n  priority: 900\n  feed: {{apiVersion: v1, kind: ConfigMap, name: settings, namespace: storefront}}\n  overrides: [{{name: a, type: JSONPatch, value: '{patch}'}}]\n")
    };
    files.insert("apps/storefront/new.yaml".to_owned(), localization("ApplyNow", "/data/greeting/deeper/still"));
    let broken = next(&files);
    assert_eq!(broken.trees, base.trees);
    assert_ne!(broken.subscriptions["storefront/web"].findings, base.subscriptions["storefront/web"].findings);
    files.insert("apps/storefront/new.yaml".to_owned(), localization("ApplyLater", "/data/greeting"));
    assert_eq!(next(&files).trees, base.trees, "nothing calls for it yet");
    // One that waits already is told from one that was applied by what is deployed, and comes with the next change.
    let waiting = upon(&deployed, &files);
    assert_eq!(waiting.trees, base.trees);
    let mut more = files.clone();
    let changed = more["apps/storefront/base.yaml"].replace("web:1.4.0", "web:1.5.0");
    more.insert("apps/storefront/base.yaml".to_owned(), changed);
    let both = text(&compare(&waiting, &upon(&waiting, &more)));
    assert!(both.contains("web:1.5.0") && both.contains("Ahoy"), "{both}");
    files.insert("apps/storefront/new.yaml".to_owned(), localization("ApplyNow", "/data/greeting"));
    assert_ne!(next(&files).trees, base.trees);
}
