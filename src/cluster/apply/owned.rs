//! Field ownership as `managedFields` records it: what our manager owns, and whether an object already is as desired.
//!
//! Everything here is pure. The live object's own `managedFields` tell how lists merge (by key, by value, whole), so that
//! no schema is needed to compare a desired object with what the server made of it.

use serde_json::{Map, Value};

/// The entry of a manager's server-side applies, if there is one.
pub fn applied_fields<'a>(live: &'a Value, manager: &str) -> Option<&'a Map<String, Value>> {
    entries(live)
        .find(|e| e["manager"] == manager && e["operation"] == "Apply" && e.get("subresource").is_none_or(|s| s == ""))
        .and_then(|e| e.get("fieldsV1"))
        .and_then(Value::as_object)
}

/// All entries of `managedFields`.
pub fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live["metadata"]["managedFields"].as_array().into_iter().flatten()
}

/// Managers whose updates are client-side applies.
const CLIENT_SIDE: [&str; 6] = [
    "kubectl-client-side-apply",
    "kubectl",
    "before-first-apply",
    "clusternet-agent",
    "clusternet-controller-manager",
    "clusternet-hub",
];

/// Whether an entry of `managedFields` is of a client-side apply.
pub(super) fn is_client_side(entry: &Value) -> bool {
    entry["operation"] == "Update"
        && entry.get("subresource").is_none_or(|s| s == "")
        && entry["manager"].as_str().is_some_and(|m| CLIENT_SIDE.contains(&m))
}

/// Stable digest of what our manager owns, or, of an object that it has not taken over yet, what client-side applies own; 0 when
/// that is nothing. Equal digests mean that nobody took or removed a field of ours in between: a change or removal by another
/// manager takes the field out of our entry.
pub fn ownership(live: &Value, manager: &str) -> u64 {
    let fields: Vec<Value> = match applied_fields(live, manager) {
        Some(fields) => vec![Value::Object(fields.clone())],
        None => entries(live).filter(|entry| is_client_side(entry)).map(|entry| entry["fieldsV1"].clone()).collect(),
    };
    if fields.is_empty() {
        return 0;
    }
    manifest::fingerprint(&Value::Array(fields)).iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// True when applying `desired` as `manager` would change nothing: every field of `desired` is owned by the manager and
/// has that value, and the manager owns nothing else. Doubt is false, and costs only a request.
pub fn is_applied(desired: &Value, live: &Value, manager: &str) -> bool {
    let Some(fields) = applied_fields(live, manager) else { return false };
    let (Some(desired), Some(live)) = (desired.as_object(), live.as_object()) else { return false };
    covers_map(desired, live, fields, true)
}

/// Fields that identify the object; they are never owned.
const IDENTITY: [&str; 2] = ["apiVersion", "kind"];

fn covers_map(desired: &Map<String, Value>, live: &Map<String, Value>, owned: &Map<String, Value>, root: bool) -> bool {
    let mut seen = 0;
    for (name, want) in desired {
        if root && IDENTITY.contains(&name.as_str()) {
            continue;
        }
        if root && name == "metadata" {
            let (Some(want), Some(have)) = (want.as_object(), live.get("metadata").and_then(Value::as_object)) else { return false };
            let mut want = want.clone();
            want.remove("name");
            want.remove("namespace");
            let empty = Map::new();
            let fields = owned.get("f:metadata").and_then(Value::as_object);
            if fields.is_some() {
                seen += 1;
            }
            if !covers_map(&want, have, fields.unwrap_or(&empty), false) {
                return false;
            }
            continue;
        }
        let Some(fields) = owned.get(&format!("f:{name}")).and_then(Value::as_object) else { return false };
        seen += 1;
        let Some(have) = live.get(name) else { return false };
        if !covers(want, have, fields) {
            return false;
        }
    }
    // "." says that the container itself is owned too; it stands for no field of its own.
    owned.keys().filter(|key| *key != ".").count() == seen
}

fn covers(want: &Value, have: &Value, owned: &Map<String, Value>) -> bool {
    let inner = owned.keys().any(|key| key != ".");
    match (want, have) {
        // A leaf, an atomic list or map, or an empty container.
        _ if !inner => want == have,
        (Value::Object(want), Value::Object(have)) => covers_map(want, have, owned, false),
        (Value::Array(want), Value::Array(have)) => covers_list(want, have, owned),
        _ => false,
    }
}

fn covers_list(want: &[Value], have: &[Value], owned: &Map<String, Value>) -> bool {
    let mut seen = 0;
    let mut last = 0;
    for item in want {
        let mut found = None;
        for (key, fields) in owned {
            let matches = if let Some(keys) = key.strip_prefix("k:") {
                serde_json::from_str::<Map<String, Value>>(keys).is_ok_and(|keys| has_keys(item, &keys))
            } else if let Some(value) = key.strip_prefix("v:") {
                serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item)
            } else {
                false
            };
            if matches {
                found = Some((key, fields));
                break;
            }
        }
        let Some((key, fields)) = found else { return false };
        seen += 1;
        let position = if let Some(keys) = key.strip_prefix("k:") {
            let Ok(keys) = serde_json::from_str::<Map<String, Value>>(keys) else { return false };
            have.iter().position(|have| has_keys(have, &keys))
        } else {
            have.iter().position(|have| have == item)
        };
        let Some(position) = position else { return false };
        // The order of our items is ours as well.
        if position < last {
            return false;
        }
        last = position;
        let (Some(item), Some(have), Some(fields)) = (item.as_object(), have[position].as_object(), fields.as_object()) else {
            if have[position] != *item {
                return false;
            }
            continue;
        };
        if !covers_map(item, have, fields, false) {
            return false;
        }
    }
    owned.keys().filter(|key| *key != ".").count() == seen
}

fn has_keys(item: &Value, keys: &Map<String, Value>) -> bool {
    // A key that the item leaves out has been defaulted by the server (`protocol: TCP`): then only the others identify it.
    keys.iter().all(|(name, value)| item.get(name).is_none_or(|have| have == value))
        && keys.keys().any(|name| item.get(name).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "front", "namespace": "web", "uid": "1", "labels": {"app": "front", "other": "x"},
                "managedFields": [
                    {"manager": "anabranch-agent", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}},
                        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                            "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
                                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}, "f:args": {}}}}}}}},
                    {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}]},
            "spec": {"replicas": 2, "paused": false, "template": {"spec": {"containers": [
                {"name": "side", "image": "s"},
                {"name": "c", "image": "i:1", "args": ["a"], "imagePullPolicy": "Always", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}
        })
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "front", "namespace": "web", "labels": {"app": "front"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "c", "image": "i:1", "args": ["a"], "ports": [{"containerPort": 80}]}]}}}
        })
    }

    fn check(change: impl Fn(&mut Value), expect: bool) {
        let mut desired = desired();
        change(&mut desired);
        assert_eq!(is_applied(&desired, &live(), "anabranch-agent"), expect, "{desired:#}");
    }

    #[test]
    fn equal_up_to_defaults_and_what_others_own() {
        check(|_| {}, true);
    }

    #[test]
    fn every_difference_counts() {
        check(|d| d["spec"]["replicas"] = json!(3), false);
        check(|d| d["metadata"]["labels"]["more"] = json!("x"), false);
        check(|d| d["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["a", "b"]), false);
        check(|d| d["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(81), false);
        check(|d| d["spec"]["paused"] = json!(false), false);
        // A field that is no longer wanted must be taken back.
        check(|d| drop(d["spec"].as_object_mut().expect("map").remove("replicas")), false);
        check(|d| drop(d["metadata"].as_object_mut().expect("map").remove("labels")), false);
        check(|d| d["spec"]["template"]["spec"]["containers"].as_array_mut().expect("list").clear(), false);
    }

    #[test]
    fn a_foreign_hand_shows_in_the_ownership() {
        let before = ownership(&live(), "anabranch-agent");
        let mut touched = live();
        touched["status"] = json!({"replicas": 1});
        touched["metadata"]["labels"]["other"] = json!("y");
        assert_eq!(ownership(&touched, "anabranch-agent"), before);
        touched["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].as_object_mut().expect("map").remove("f:replicas");
        assert_ne!(ownership(&touched, "anabranch-agent"), before);
        assert_eq!(ownership(&live(), "somebody"), 0);
    }

    #[test]
    fn an_object_that_was_never_applied_is_not_applied() {
        assert!(!is_applied(&desired(), &live(), "somebody"));
        assert!(!is_applied(&json!({}), &json!({}), "anabranch-agent"));
    }

    #[test]
    fn of_an_object_that_is_not_taken_over_client_side_applies_count() {
        let live = |fields: Value| {
            json!({"metadata": {"managedFields": [
                {"manager": "clusternet-agent", "operation": "Update", "fieldsV1": fields},
                {"manager": "clusternet-agent", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "somebody", "operation": "Update", "fieldsV1": {"f:spec": {"f:b": {}}}},
            ]}})
        };
        let both = ownership(&live(json!({"f:spec": {"f:a": {}, "f:c": {}}})), "us");
        assert_ne!(both, 0);
        // Somebody took a field.
        assert_ne!(both, ownership(&live(json!({"f:spec": {"f:a": {}}})), "us"));
        assert_eq!(ownership(&json!({"metadata": {}}), "us"), 0);
    }
}
