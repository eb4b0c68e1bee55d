//! Tables of the override engine; objects and answers follow the recorded ones of the original.

use api::apps::{GlobalizationSpec, LocalizationSpec};
use serde_json::json;

use super::*;
use crate::shares::{Change, published};

fn stall() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "stall", "namespace": "market", "labels": {"app": "stall"}, "uid": "of-a-dry-run", "managedFields": []},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "market/stall:2.0", "ports": [{"containerPort": 8080}]}]}}},
        "status": {}})
}

fn target() -> ObjectRef {
    ObjectRef::of(&stall())
}

fn feed() -> api::apps::Feed {
    (&target()).into()
}

fn entry(kind: OverrideType, value: &str) -> OverrideConfig {
    OverrideConfig { name: "e".to_owned(), kind, value: value.to_owned(), ..OverrideConfig::default() }
}

fn global(name: &str, priority: i32, created: i64, overrides: Vec<OverrideConfig>) -> Arc<Override> {
    let mut object = Globalization::new(name, GlobalizationSpec { priority, overrides, feed: feed(), ..GlobalizationSpec::default() });
    object.metadata.creation_timestamp = Some(api::Time(jiff::Timestamp::from_second(created).expect("in range")));
    Arc::new(Override::global(&object))
}

fn local(name: &str, priority: i32, created: i64, overrides: Vec<OverrideConfig>) -> Arc<Override> {
    let mut object = Localization::new(name, LocalizationSpec { priority, overrides, feed: feed(), ..LocalizationSpec::default() });
    object.metadata.namespace = Some("clusternet-harbor".to_owned());
    object.metadata.creation_timestamp = Some(api::Time(jiff::Timestamp::from_second(created).expect("in range")));
    Arc::new(Override::local(&object))
}

fn merge_entry(value: &str) -> Vec<OverrideConfig> {
    vec![entry(OverrideType::MergePatch, value)]
}

fn run(mut overrides: Vec<Arc<Override>>) -> Result<(Value, Vec<Finding>), String> {
    order(&mut overrides);
    apply_to_object(&target(), stall(), &overrides).map_err(|fault| fault.to_string())
}

fn who(key: &str) -> String {
    format!(r#"{{"metadata": {{"annotations": {{"from": "{key}"}}}}}}"#)
}

/// Case 11: Globalizations before Localizations whatever their numbers, then by priority.
#[test]
fn localizations_beat_globalizations() {
    let (object, _) = run(vec![
        local("l-late", 400, 1, merge_entry(&who("l-late"))),
        global("g-late", 900, 1, merge_entry(&who("g-late"))),
        local("l-early", 10, 1, merge_entry(r#"{"metadata": {"annotations": {"from": "l-early", "colour": "blue"}}}"#)),
        global("g-early", 100, 1, merge_entry("metadata:\n  annotations:\n    early: \"true\"\n    colour: green\n")),
    ])
    .expect("applies");
    assert_eq!(object["metadata"]["annotations"], json!({"from": "l-late", "colour": "blue", "early": "true"}));
}

/// Case 12, over the turn of a minute, where the original compares only the seconds (pitfall 1).
#[test]
fn the_younger_of_equals_wins_also_over_a_minute() {
    for (older, younger) in [(10, 15), (58, 61), (59, 3600)] {
        let (object, _) = run(vec![global("a", 500, younger, merge_entry(&who("younger"))), global("b", 500, older, merge_entry(&who("older")))]).expect("applies");
        assert_eq!(object["metadata"]["annotations"]["from"], "younger", "{older} {younger}");
    }
    let (object, _) = run(vec![global("b", 500, 1, merge_entry(&who("b"))), global("a", 500, 1, merge_entry(&who("a")))]).expect("applies");
    assert_eq!(object["metadata"]["annotations"]["from"], "b", "names decide at last");
}

/// Cases 14 and 15.
#[test]
fn json_patches() {
    let good = r#"[{"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "till", "image": "market/till:1.1"}},
        {"op": "add", "path": "/metadata/labels/lane", "value": "fast"}, {"op": "remove", "path": "/spec/template/spec/containers/0/ports"}]"#;
    let second = "- op: test\n  path: /spec/replicas\n  value: 5\n- op: move\n  from: /metadata/labels/lane\n  path: /metadata/labels/aisle\n";
    let (object, findings) = run(vec![local("l", 500, 1, vec![entry(OverrideType::JSONPatch, good), entry(OverrideType::JSONPatch, second)])]).expect("applies");
    assert_eq!(object["metadata"]["labels"], json!({"app": "stall", "aisle": "fast"}));
    assert_eq!(object["spec"]["template"]["spec"]["containers"][1]["name"], "till");
    assert!(findings.is_empty() && object.get("status").is_none() && object["metadata"].get("uid").is_none());

    for missing in [r#"[{"op": "replace", "path": "/spec/replicas", "value": 7}, {"op": "remove", "path": "/spec/noSuchField"}]"#, r#"[{"op": "replace", "path": "/spec/template/spec/containers/4/image", "value": "x"}]"#] {
        let (object, findings) = run(vec![local("l", 500, 1, vec![entry(OverrideType::JSONPatch, missing)])]).expect("passes");
        assert_eq!(object["spec"], stall()["spec"]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].by, "Localization clusternet-harbor/l");
    }
    let failing = r#"[{"op": "test", "path": "/spec/replicas", "value": 99}]"#;
    assert!(run(vec![local("l", 500, 1, vec![entry(OverrideType::JSONPatch, failing)])]).expect_err("fails").contains("test of /spec/replicas failed"));
}

/// Case 84: what makes no sense.
#[test]
fn odd_values() {
    let fails = [
        entry(OverrideType::JSONPatch, "{}"),
        entry(OverrideType::JSONPatch, r#"[{"op": "twist", "path": "/data/x"}]"#),
        entry(OverrideType::MergePatch, "[1, 2]"),
        entry(OverrideType::MergePatch, "null"),
        entry(OverrideType::MergePatch, "\"text\""),
        entry(OverrideType::MergePatch, "{\"metadata\": [\n"),
        OverrideConfig { field_path: "data/x".to_owned(), field_format: Some(FieldFormat::JSON), ..entry(OverrideType::FieldMergePatch, "{\"a\": 1}") },
        OverrideConfig { field_path: "/metadata/name".to_owned(), ..entry(OverrideType::FieldMergePatch, "{\"a\": 1}") },
    ];
    for one in fails {
        assert!(run(vec![local("l", 500, 1, vec![one.clone()])]).is_err(), "{one:?}");
    }
    assert!(local("l", 500, 1, vec![entry(OverrideType::MergePatch, "[1]"), entry(OverrideType::MergePatch, "{\"a\": ")]).faults().len() == 1);
    let passes = [
        (entry(OverrideType::JSONPatch, "null"), 0),
        (entry(OverrideType::JSONPatch, r#"[{"op": "add", "value": 1}]"#), 1),
        (entry(OverrideType::MergePatch, " \n"), 0),
        (OverrideConfig { override_chart: true, ..entry(OverrideType::MergePatch, r#"{"spec": null}"#) }, 0),
    ];
    for (one, found) in passes {
        let (object, findings) = run(vec![local("l", 500, 1, vec![one.clone()])]).expect("passes");
        assert_eq!((object["spec"].clone(), findings.len()), (stall()["spec"].clone(), found), "{one:?}");
    }
    let (object, _) = run(vec![local("l", 500, 1, vec![entry(OverrideType::JSONPatch, r#"[{"op": "replace", "path": "", "value": {"a": 1}}]"#)])]).expect("passes");
    assert_eq!(object, json!({"a": 1}), "an object without a kind is rendered and refused by the cluster");
    let (object, _) = run(vec![local("l", 500, 1, vec![entry(OverrideType::Helm, "metadata: {y: \"3\"}")])]).expect("passes");
    assert_eq!(object["metadata"]["true"], "3");
}

/// Case 30.
#[test]
fn chart_values_merge_and_keep_null() {
    let chart = ObjectRef { api_version: "apps.clusternet.io/v1alpha1".into(), kind: "HelmChart".into(), namespace: "fleet".into(), name: "lantern".into() };
    let helm = |value: &str| entry(OverrideType::Helm, value);
    let mut overrides = vec![
        local("l", 500, 1, vec![helm("shutter: null"), helm(r#"{"extra": {"deep": {"er": true}}, "oil": "olive"}"#)]),
        global("all", 100, 1, vec![helm("oil: whale\nwick:\n  length: 20\ncolours: [white, red]\n")]),
        global("north", 50, 1, vec![helm(r#"{"wick": {"material": "flax"}, "colours": ["green"]}"#)]),
    ];
    order(&mut overrides);
    let (values, findings) = apply_to_values(&chart, &overrides).expect("applies");
    let want = json!({"colours": ["white", "red"], "extra": {"deep": {"er": true}}, "oil": "olive", "shutter": null, "wick": {"length": 20, "material": "flax"}});
    assert_eq!((values, findings.len()), (Some(want), 0));

    let object = json!({"metadata": {"name": "lantern"}, "spec": {"chart": "lantern", "targetNamespace": "lights", "version": "1.0.0"}});
    let over = OverrideConfig { override_chart: true, ..helm(r#"{"metadata": {"labels": {"a": "b"}}, "spec": {"version": "1.1.0", "chart": "other", "targetNamespace": "elsewhere"}}"#) };
    let (object, _) = apply_to_chart(&chart, object, &[global("g", 1, 1, vec![over])]).expect("applies");
    assert_eq!(object, json!({"metadata": {"name": "lantern", "labels": {"a": "b"}}, "spec": {"chart": "lantern", "targetNamespace": "lights", "version": "1.1.0"}}));
    assert_eq!(apply_to_values(&chart, &[local("l", 1, 1, vec![entry(OverrideType::JSONPatch, r#"[{"op": "add", "path": "/a", "value": 1}]"#)])]).expect("passes").0, None);
}

/// Case 36: the generated share wins over 999 and over an older 1000, and loses to nothing global.
#[test]
fn shares_compete_by_age_at_their_priority() {
    let replicas = |n: i32| vec![entry(OverrideType::JSONPatch, &format!(r#"[{{"op": "replace", "path": "/spec/replicas", "value": {n}}}]"#))];
    let share = |created| Arc::new(Override::share("clusternet-harbor", "", &target(), &[Change::Set("/spec/replicas".to_owned(), 3)], created));
    let nanos = |s: i128| Some(s * 1_000_000_000);
    for (others, created, want) in [
        (vec![local("mild", 999, 99, replicas(50))], nanos(50), 3),
        (vec![local("strong", 1000, 1, replicas(50))], nanos(50), 3),
        (vec![local("strong", 1000, 1, replicas(50))], None, 3),
        (vec![local("strong", 1000, 50, replicas(50))], nanos(50), 3),
        (vec![local("younger", 1000, 99, replicas(50))], nanos(50), 50),
        (vec![local("strong", 1000, 50, replicas(50))], nanos(50), 3),
        (vec![global("wide", 1000, 99, replicas(70))], nanos(50), 3),
    ] {
        let mut overrides = others;
        overrides.push(share(created));
        let (object, _) = run(overrides).expect("applies");
        assert_eq!(object["spec"]["replicas"], want);
    }
    assert_eq!(published(&[Change::Set("/spec/replicas".to_owned(), 0)]), r#"[{"path":"/spec/replicas","value":0,"op":"replace"}]"#);
}

/// Case 23, and selectors that make no sense.
#[test]
fn globalizations_pick_clusters() {
    let labels: BTreeMap<String, String> = [("tier".to_owned(), "edge".to_owned())].into();
    let affinity = |selector: Value| {
        let spec = GlobalizationSpec { cluster_affinity: serde_json::from_value(selector).expect("a selector"), feed: feed(), ..GlobalizationSpec::default() };
        Override::global(&Globalization::new("g", spec)).matches_cluster("clusternet-harbor", &labels)
    };
    assert!(affinity(Value::Null) && affinity(json!({})) && affinity(json!({"matchLabels": {"tier": "edge"}})));
    assert!(affinity(json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["core"]}]})));
    assert!(!affinity(json!({"matchLabels": {"tier": "core"}})));
    assert!(!affinity(json!({"matchExpressions": [{"key": "tier", "operator": "Near"}]})));
}
