//! Round trips of kinds, API defaults, and freshness of the generated schemas.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Kind, apps, clusters, gitops, object};

fn round_trip<K: Kind>(object: Value) {
    let read = K::from_object(&object).expect("readable");
    assert_eq!(read.to_object(), object);
}

#[test]
fn what_is_written_is_what_was_read() {
    round_trip::<apps::Subscription>(json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Subscription", "metadata": {"name": "a", "namespace": "b"},
        "spec": {
            "schedulerName": "default", "schedulingStrategy": "Dividing", "preemptionPolicy": "PreemptNever", "schedulingBySubGroup": false,
            "dividingScheduling": {"type": "Dynamic", "dynamicDividing": {"strategy": "Binpack", "maxClusters": 2}},
            "subscribers": [{"clusterAffinity": {}, "weight": 3, "subGroupStrategy": {}}],
            "feeds": [{"apiVersion": "v1", "kind": "Namespace", "name": "x"}],
        },
        "status": {"bindingClusters": ["n/a"], "replicas": {"v1/Namespace/x": []}, "specHash": 4294967295u64, "desiredReleases": 1},
    }));
    round_trip::<apps::Manifest>(json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Manifest", "metadata": {"name": "namespaces.x"},
        "template": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}, "anything": [1, null]},
    }));
    round_trip::<apps::Description>(json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Description", "metadata": {"name": "a-generic"},
        "spec": {"deployer": "Generic", "raw": ["e30=", "Zm9v"]}, "status": {"phase": "Success"},
    }));
    round_trip::<clusters::ManagedCluster>(json!({
        "apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": "harbor"},
        "spec": {"clusterId": "x", "syncMode": "Dual", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"healthz": false, "livez": false, "readyz": true, "allocatable": {"cpu": "16"}, "kubeQPS": 50.5},
    }));
    round_trip::<apps::FeedInventory>(json!({
        "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "FeedInventory", "metadata": {"name": "a"},
        "spec": {"feeds": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "replicaRequirements": {"resources": {}}}]},
    }));
}

#[test]
fn defaults_are_the_servers() {
    let sub = apps::Subscription::from_object(&json!({"spec": {"subscribers": [], "feeds": []}})).expect("readable");
    assert_eq!(
        sub.to_object()["spec"],
        json!({"schedulerName": "default", "schedulingStrategy": "Replication", "preemptionPolicy": "PreemptLowerPriority", "subscribers": [], "feeds": []})
    );
    let chart = apps::HelmChart::from_object(&json!({"spec": {"repo": "r", "chart": "c"}})).expect("readable");
    assert_eq!((chart.spec.options.timeout_seconds, chart.spec.options.create_namespace), (300, Some(true)));
    let loc = apps::Localization::from_object(&json!({"spec": {}})).expect("readable");
    assert_eq!((loc.spec.priority, loc.spec.override_policy), (500, apps::OverridePolicy::ApplyLater));
    let source = gitops::GitSource::from_object(&json!({"spec": {"url": "/r"}})).expect("readable");
    assert!(source.spec.prune && source.spec.depth == 1 && source.spec.interval == "1m");
    assert_eq!(gitops::GitTargetSpec::default().branch_of("ns", "harbor"), "clusters/harbor");
    // A watch must survive objects that are not yet complete.
    assert!(clusters::ManagedCluster::from_object(&json!({"metadata": {"name": "x"}})).is_ok());
}

#[test]
fn the_crds_are_structural() {
    fn walk(path: &str, schema: &Value) {
        let fields = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
        let typed = ["type", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"].iter().any(|key| fields.contains_key(*key));
        assert!(typed, "{path} has no type");
        for key in ["nullable", "$ref", "oneOf", "allOf", "title", "x-required", "x-default"] {
            assert!(!fields.contains_key(key), "{path} has {key}");
        }
        let properties = fields.get("properties").and_then(Value::as_object);
        for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(name.as_str().is_some_and(|name| properties.is_some_and(|have| have.contains_key(name))), "{path} requires {name}");
        }
        properties.into_iter().flatten().for_each(|(name, inner)| walk(&format!("{path}.{name}"), inner));
        for key in ["items", "additionalProperties"] {
            fields.get(key).into_iter().for_each(|inner| walk(&format!("{path}[{key}]"), inner));
        }
    }
    let crds = crate::crds();
    assert_eq!(crds.len(), 14);
    for crd in &crds {
        walk(object::name(crd), &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    }
}

#[test]
fn generated_schemas_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let hint = "stale; run `cargo run -p anabranch-api --example generate`";
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|_| panic!("{} is missing; {hint}", path.display()));
    let crds = crate::crds();
    for crd in &crds {
        let path = root.join("crds").join(format!("{}.yaml", object::name(crd)));
        let have: Value = serde_yaml::from_str(&read(&path)).expect("YAML");
        assert!(have == *crd, "{} is {hint}", path.display());
    }
    let schemas = crate::schemas();
    for (name, schema) in &schemas {
        let path = root.join("json").join(name);
        let have: Value = serde_json::from_str(&read(&path)).expect("JSON");
        assert!(have == *schema, "{} is {hint}", path.display());
    }
    for (folder, count) in [("crds", crds.len()), ("json", schemas.len())] {
        assert_eq!(fs::read_dir(root.join(folder)).expect("readable").count(), count, "files too many in schemas/{folder}");
    }
}
