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
    let own = ["source.impersonate[0].namespace=team-a", "source.impersonate[0].accounts={deployer}", "hub.tries={example.com}", "networkPolicy.schedulerPorts={443,16443}"];
    let all = parsed(&rendered("anabranch", &own));
    let named = |kind: &str, name: &str| all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name).unwrap_or_else(|| panic!("no {kind} {name}"));
    let role = named("Role", "anabranch:source-acts-as");
    assert_eq!((&role["metadata"]["namespace"], &role["rules"][0]["resourceNames"]), (&"team-a".into(), &serde_json::json!(["deployer"])));
    assert!(named("ClusterRole", "clusternet:hub").to_string().contains("\"example.com\""));
    assert!(named("NetworkPolicy", "anabranch-scheduler").to_string().contains("16443"));
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

/// The rules of every role that an account of ours has, by the name of the role.
fn given(all: &[Value]) -> Vec<(String, Value)> {
    let bindings = all.iter().filter(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")) && one["subjects"][0]["kind"] == "ServiceAccount");
    let roles: Vec<&Value> = bindings.map(|binding| &binding["roleRef"]["name"]).collect();
    let of_ours = all.iter().filter(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")) && roles.contains(&&one["metadata"]["name"]));
    of_ours.flat_map(|role| role["rules"].as_array().unwrap().iter().map(|rule| (role["metadata"]["name"].as_str().unwrap().to_owned(), rule.clone()))).collect()
}

/// What RBAC itself can hold back is not left to a policy; and where no policy can be had, nothing leans on one. What an account can
/// do with its rules is tried in `e2e::forbidden`.
#[test]
fn no_role_gives_what_it_need_not() {
    let with = parsed(&rendered("anabranch", &[]));
    let without = parsed(&rendered("anabranch", &["admissionPolicy.enabled=false"]));
    let has = |rule: &Value, list: &str, word: &str| rule[list].as_array().is_some_and(|all| all.iter().any(|one| one == word));
    for (all, policies) in [(&with, true), (&without, false)] {
        for (role, rule) in given(all) {
            let everything = |list: &str| has(&rule, list, "*");
            assert!(!everything("apiGroups"), "{role}: of every group: {rule}");
            // "*" is tokens, evictions and exec too; and no policy may speak about policies.
            assert!(!(has(&rule, "apiGroups", "") && everything("resources")), "{role}: every kind of the core group: {rule}");
            assert!(!has(&rule, "apiGroups", "admissionregistration.k8s.io"), "{role}: policies: {rule}");
            assert!(!has(&rule, "verbs", "impersonate"), "{role}: as somebody else: {rule}");
            let named = rule["resourceNames"].is_array();
            assert!(policies || named || !(has(&rule, "verbs", "escalate") || has(&rule, "verbs", "bind")), "{role}: {rule}");
            assert!(policies || role != "clusternet:hub" || named || !has(&rule, "verbs", "create") || !has(&rule, "resources", "pods"), "{role}: {rule}");
        }
    }
    assert!(given(&with).len() > 30, "{}", given(&with).len());
    let policies: Vec<&Value> = with.iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy").collect();
    for policy in &policies {
        let name = &policy["metadata"]["name"];
        assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{name}");
        let bound = with.iter().any(|one| one["kind"] == "ValidatingAdmissionPolicyBinding" && one["spec"]["policyName"] == *name && one["spec"]["validationActions"][0] == "Deny");
        assert!(bound, "{name} is not in force");
    }
    assert_eq!(policies.len(), 5);
    // Users go through the tunnels as the one user whom they must be allowed to impersonate.
    let proxy = with.iter().find(|one| one["kind"] == "ClusterRoleBinding" && one["metadata"]["name"] == "clusternet:system:socketsproxy").unwrap();
    assert_eq!(proxy["subjects"], serde_json::json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "clusternet"}]));
}

/// What holds users' objects is not deleted with a release.
#[test]
fn what_users_stored_is_kept() {
    let all = parsed(&rendered("anabranch", &[]));
    assert!(all.iter().all(|one| one["kind"] != "CustomResourceDefinition"), "a definition among the templates goes with the release, and takes all objects along");
    for namespace in all.iter().filter(|one| one["kind"] == "Namespace") {
        assert_eq!(namespace["metadata"]["annotations"]["helm.sh/resource-policy"], "keep", "{namespace}");
    }
}

/// The selectors of an expression: metric, then label, operator and value of each condition.
fn selectors(expression: &str) -> Vec<(&str, Vec<(&str, &str, &str)>)> {
    let mut found = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let name = expression[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
        let inner = expression[at + 1..].split('}').next().unwrap();
        let condition = |text: &'_ str| -> (usize, usize) { (text.find(['=', '!']).unwrap(), text.find('"').unwrap()) };
        let conditions = inner.split(',').map(|text| {
            let (operator, quote) = condition(text);
            (text[..operator].trim(), &text[operator..quote], text[quote..].trim().trim_matches('"'))
        });
        found.push((name, conditions.collect()));
    }
    found
}

/// Labels after `by`.
fn grouped_by(expression: &str) -> Vec<&str> {
    expression.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(',')).map(str::trim).filter(|label| *label != "le").collect()
}

/// Labels and values that an alert names are those with which the code writes the metric; an alert waits for no series that is
/// only there once something went well, and for no name that whoever scrapes chooses.
#[test]
fn alerts_name_labels_that_exist() {
    let mut found = BTreeMap::new();
    files(&root().join("src"), &root(), &mut found);
    let sources: Vec<String> = found.into_iter().filter(|(name, _)| name.ends_with(".rs")).map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).collect();
    // What stands around a metric's name, wherever it is written.
    let around = |metric: &str| -> String {
        let bare = metric.trim_end_matches("_bucket").trim_start_matches("anabranch_");
        let mut text = String::new();
        for source in &sources {
            for name in [format!("\"{bare}\""), format!("\"anabranch_{bare}\"")] {
                for (at, _) in source.match_indices(&name) {
                    let (mut from, mut to) = (at.saturating_sub(600), (at + 300).min(source.len()));
                    while !source.is_char_boundary(from) {
                        from -= 1;
                    }
                    while !source.is_char_boundary(to) {
                        to += 1;
                    }
                    text.push_str(&source[from..to]);
                }
            }
        }
        text
    };
    let said = |value: &str| sources.iter().any(|source| source.contains(&format!("\"{value}\"")));
    let rules = &documents(&root().join("deploy/monitoring/rules.yaml"))[0];
    let mut seen = 0;
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let (alert, expression) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        assert!(!expression.contains("== 0") && !expression.contains("!="), "{alert}: a series that does not exist is neither zero nor another");
        let metrics: Vec<&str> = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("anabranch_") || word.starts_with("clusternet_")).collect();
        for (metric, conditions) in selectors(expression) {
            for (label, operator, values) in conditions {
                assert!(metric != "up" && label != "job", "{alert}: whoever scrapes chooses the job");
                assert!(around(metric).contains(&format!("\"{label}\"")), "{alert}: {metric} has no label {label}");
                assert!(["=", "=~"].contains(&operator), "{alert}: {operator}");
                for value in values.split('|') {
                    assert!(said(value), "{alert}: {label}={value} is written nowhere");
                    seen += 1;
                }
            }
        }
        let words = rule["annotations"].as_object().unwrap().values().filter_map(Value::as_str).flat_map(|text| text.split("$labels.").skip(1));
        let shown = words.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap());
        for label in shown.chain(grouped_by(expression)) {
            assert!(metrics.iter().any(|metric| around(metric).contains(&format!("\"{label}\""))), "{alert}: no metric of it has the label {label}");
        }
    }
    assert!(seen > 8, "{seen}");
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
