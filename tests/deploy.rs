//! `deploy/`: the kustomizations are the charts, rendered; nothing runs as root or as cluster-admin; images need no registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bench::documents;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn files(folder: &Path, base: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, base, found);
        } else {
            found.insert(path.strip_prefix(base).unwrap().display().to_string(), std::fs::read(&path).unwrap());
        }
    }
}

/// A chart of ours, rendered by our own engine with default values and these.
fn rendered(name: &str, set: &[&str]) -> String {
    let folder = root().join("deploy/chart").join(name);
    let mut found = BTreeMap::new();
    files(&folder, &folder, &mut found);
    let chart = chart::load(found).unwrap();
    let given = chart::Given { set: set.iter().map(|text| (*text).to_owned()).collect(), ..chart::Given::default() };
    let mut request = chart::Request { name: name.to_owned(), namespace: "clusternet-system".to_owned(), ..chart::Request::default() };
    request.values = given.merge(&|file| Err(format!("no file {file}"))).unwrap();
    chart::template(&chart, &request).unwrap().text
}

fn parsed(text: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_yaml::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap()).filter(|one| !one.is_null()).collect()
}

#[test]
fn kustomizations_are_the_charts() {
    for (chart, file) in [("anabranch", "parent/install.yaml"), ("anabranch-agent", "agent/install.yaml")] {
        let have = std::fs::read_to_string(root().join("deploy").join(file)).unwrap();
        assert!(have == rendered(chart, &[]), "deploy/{file} is stale; run `sh deploy/generate.sh`");
    }
    let mut crds = documents(&root().join("deploy/parent/crds.yaml"));
    crds.sort_by_key(|crd| crd["metadata"]["name"].to_string());
    let mut wanted: Vec<Value> = std::fs::read_dir(root().join("schemas/crds")).unwrap().flat_map(|entry| documents(&entry.unwrap().path())).collect();
    wanted.sort_by_key(|crd| crd["metadata"]["name"].to_string());
    assert!(crds == wanted, "deploy/parent/crds.yaml is stale; run `sh deploy/generate.sh`");
}

#[test]
fn charts_render_with_other_values() {
    let text = rendered("anabranch", &["hub.replicas=1", "tls.secretName=t", "anonymousProxy=true", "networkPolicy.enabled=false", "admissionPolicy.enabled=false", "bootstrapToken.create=false"]);
    assert!(text.contains("--tls-cert=/tls/tls.crt") && text.contains("system:unauthenticated"), "{text}");
    assert!(!text.contains("kind: NetworkPolicy") && !text.contains("ValidatingAdmissionPolicy") && !text.contains("--bootstrap-token"));
    assert!(!text.contains("name: anabranch-hub\n  namespace: clusternet-system\n  labels:\n    app.kubernetes.io/name: anabranch\n    app.kubernetes.io/component: hub\n    app.kubernetes.io/part-of: anabranch\n    app.kubernetes.io/version: \"0.1.0\"\nspec:\n  maxUnavailable"), "one replica needs no budget");
    let text = rendered("anabranch-agent", &["parent.token=a.b", "parent.ca=PEM", "cluster.name=one", "cluster.labels.env=prod"]);
    assert!(text.contains("regToken: \"a.b\"") && text.contains("--parent-ca=/parent/ca.crt") && text.contains("--name=one") && text.contains("--labels=env=prod"), "{text}");
    parsed(&text);
}

#[test]
fn every_pod_is_confined() {
    let mut all = parsed(&rendered("anabranch", &[]));
    all.extend(parsed(&rendered("anabranch-agent", &[])));
    let deployments: Vec<&Value> = all.iter().filter(|object| object["kind"] == "Deployment").collect();
    assert_eq!(deployments.len(), 5);
    for deployment in deployments {
        let name = &deployment["metadata"]["name"];
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert!(deployment["spec"]["replicas"].as_u64().unwrap() >= 2, "{name}");
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"]["drop"][0], "ALL", "{name}");
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            assert!(container[probe]["httpGet"]["path"].is_string(), "{name} {probe}");
        }
        assert!(container["resources"]["requests"]["memory"].is_string() && container["resources"]["limits"]["memory"].is_string(), "{name}");
        // Arguments that the program does not know would only show in a cluster.
        let arguments: Vec<String> = container["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
        // The agent's image holds `anabranch agent` alone.
        let alone = container["image"].as_str().unwrap().starts_with("anabranch-agent:");
        let checked = command.args(alone.then_some("agent")).args(&arguments).arg("--help").env("ANABRANCH_PARENT", "https://x").env("ANABRANCH_TOKEN", "a.b").output().unwrap();
        assert!(checked.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&checked.stderr));
    }
    for binding in all.iter().filter(|object| object["kind"] == "ClusterRoleBinding") {
        assert_ne!(binding["roleRef"]["name"], "cluster-admin", "{binding}");
    }
}

/// Every metric that an alert or a panel names is one that the parts write.
#[test]
fn alerts_and_panels_name_metrics_that_exist() {
    let mut sources = String::new();
    let mut found = BTreeMap::new();
    files(&root().join("src"), &root(), &mut found);
    for (name, bytes) in found {
        if name.ends_with(".rs") {
            sources.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    let rules = &documents(&root().join("deploy/monitoring/rules.yaml"))[0];
    let board: Value = serde_json::from_slice(&std::fs::read(root().join("deploy/monitoring/dashboard.json")).unwrap()).unwrap();
    let mut expressions: Vec<&str> = rules["groups"][0]["rules"].as_array().unwrap().iter().map(|rule| rule["expr"].as_str().unwrap()).collect();
    for panel in board["panels"].as_array().unwrap() {
        expressions.extend(panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap()));
    }
    assert!(expressions.len() > 15);
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("anabranch_") || word.starts_with("clusternet_") || word.starts_with("process_")) {
            let name = word.trim_end_matches("_bucket").trim_end_matches("_count_").to_owned();
            let bare = name.trim_start_matches("anabranch_").to_owned();
            let known = [&name, &bare].iter().any(|name| sources.contains(&format!("\"{name}\"")));
            assert!(known, "{word} in `{expression}` is written nowhere");
        }
    }
}
