//! Ownership as a real server records it.

use super::*;
use crate::{Kind, catalog};
use serde_json::{Value, json};

fn kind(group: &str, name: &str) -> Kind {
    catalog::by_kind(group, "v1", name).and_then(Kind::native).expect("kind")
}

fn write<'a>(manager: &'a str, api_version: &'a str) -> Write<'a> {
    Write { manager, api_version, subresource: None, now: "2026-01-01T00:00:00Z", served: &[] }
}

fn entry(o: &Value, manager: &str) -> Value {
    let list = o.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    list.into_iter().find(|e| e["manager"] == manager).map_or(Value::Null, |e| e["fieldsV1"].clone())
}

#[test]
fn creation_of_a_deployment_is_owned_like_kubectl_create_does() {
    let k = kind("apps", "Deployment");
    let d = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"app": "a"}}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut d = k.decode(d).expect("reads").object;
    k.default(&mut d);
    track_update(&k, None, &mut d, &write("kubectl-create", "apps/v1"));
    let want = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}}}});
    assert_eq!(entry(&d, "kubectl-create"), want);
}

#[test]
fn apply_conflicts_and_force() {
    let k = kind("", "ConfigMap");
    let cm = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": data});
    let one = apply(&k, None, &cm(json!({"a": "1", "b": "1"})), &write("one", "v1"), false).expect("applies");
    assert_eq!(entry(&one, "one"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
    let e = apply(&k, Some(&one), &cm(json!({"a": "2"})), &write("two", "v1"), false).expect_err("conflict");
    assert_eq!(e.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    let two = apply(&k, Some(&one), &cm(json!({"a": "2"})), &write("two", "v1"), true).expect("forced");
    assert_eq!(two["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(entry(&two, "one"), json!({"f:data": {"f:b": {}}}));
    // A shared field stays while somebody owns it.
    let three = apply(&k, Some(&two), &cm(json!({"b": "1"})), &write("two", "v1"), false).expect("applies");
    assert_eq!(three["data"], json!({"b": "1"}));
    let same = apply(&k, Some(&three), &cm(json!({"b": "1"})), &Write { now: "2027-01-01T00:00:00Z", ..write("two", "v1") }, false).expect("applies");
    assert_eq!(same, three);
}

#[test]
fn typed_faults() {
    let k = kind("apps", "Deployment");
    let d = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}, "spec": {"foo": 1}});
    let e = apply(&k, None, &d, &write("m", "apps/v1"), false).expect_err("unknown field");
    assert_eq!(e.to_string(), "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema");
}

#[test]
fn keyed_lists_take_default_keys() {
    let k = kind("", "Service");
    let s = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    let s = apply(&k, None, &s, &write("m", "v1"), false).expect("applies");
    assert_eq!(entry(&s, "m"), json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}));
    assert_eq!(s["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
}

#[test]
fn eleven_updaters_become_ten() {
    let k = kind("", "ConfigMap");
    let mut live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}});
    track_update(&k, None, &mut live, &write("creator", "v1"));
    live["data"]["seed"] = json!("1");
    let mut old = live.clone();
    track_update(&k, None, &mut old, &write("m00", "v1"));
    for i in 1..14 {
        let mut new = old.clone();
        new["data"][format!("k{i}")] = json!("v");
        let (name, now) = (format!("m{i:02}"), format!("2026-01-01T00:00:{i:02}Z"));
        track_update(&k, Some(&old), &mut new, &Write { manager: &name, now: &now, ..write("", "v1") });
        old = new;
    }
    let list = old.pointer("/metadata/managedFields").and_then(Value::as_array).expect("list");
    assert_eq!(list.len(), 10);
    assert!(list.iter().any(|e| e["manager"] == "ancient-changes"));
}

#[test]
fn sets_survive_their_encoding() {
    let v = json!({"f:a": {".": {}, "f:b": {}}, "k:{\"x\":1}": {}, "v:\"s\"": {}, "i:3": {}});
    assert_eq!(Set::decode(&v).expect("decodes").encode(), v);
    assert!(Set::decode(&json!({"q": {}})).is_err());
}
