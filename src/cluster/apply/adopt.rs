//! Takes over objects that a client-side apply made: kubectl's, or Clusternet's own.
//!
//! Client-side apply records what it set as an *update* of its manager, so that a field dropped from the desired object would
//! stay for ever. Adoption moves those entries into our own apply entry and removes the last-applied annotations; the
//! server-side apply that follows then removes what is no longer wanted. (What `csaupgrade` of client-go does.)

use std::collections::BTreeMap;

use api::known::annotation::{KUBECTL_LAST_APPLIED, LAST_APPLIED};
use api::object;
use serde_json::{Map, Value, json};

use super::owned::{entries, is_client_side};

/// The JSON patch that adopts `live` for `manager`, or `None` when there is nothing to adopt.
/// It tests the resource version, so that it never works on an object it has not seen.
pub fn patch(live: &Value, manager: &str) -> Option<Value> {
    let annotations = live["metadata"]["annotations"].as_object();
    let marks: Vec<&str> = [LAST_APPLIED, KUBECTL_LAST_APPLIED]
        .into_iter()
        .filter(|key| annotations.is_some_and(|a| a.contains_key(*key)))
        .collect();
    if marks.is_empty() {
        return None;
    }
    let (mut ours, mut rest) = gather(live, manager, is_client_side);
    let mut operations = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]})];
    if let Some(mut ours) = ours.take() {
        if let Some(fields) = ours["fieldsV1"].as_object_mut() {
            for mark in &marks {
                disown(fields, mark);
            }
        }
        rest.insert(0, ours);
        operations.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": rest}));
    }
    for mark in marks {
        let escaped = mark.replace('~', "~0").replace('/', "~1");
        operations.push(json!({"op": "remove", "path": format!("/metadata/annotations/{escaped}")}));
    }
    Some(Value::Array(operations))
}

/// True when Clusternet applied exactly `desired` before us and it still stands: then taking the object over can wait until something
/// is to be changed. Doubt is false, and costs one write.
pub fn stands(desired: &Value, live: &Value) -> bool {
    let last = object::annotation(live, LAST_APPLIED).and_then(|text| serde_json::from_str::<Value>(text).ok());
    last.is_some_and(|mut last| {
        clean(&mut last);
        last == *desired && holds(live, desired)
    })
}

/// Whether everything in `part` is in `whole`, where a server adds defaults.
pub fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part))),
        (Value::Array(whole), Value::Array(part)) => whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| holds(whole, part)),
        _ => whole == part,
    }
}

/// The JSON patch that moves what other managers own into the apply entry of `manager`: the entries that `theirs` names.
/// `None` when there is no such entry. It tests the resource version as well.
pub fn take_over(live: &Value, manager: &str, theirs: impl Fn(&Value) -> bool) -> Option<Value> {
    let is_ours = |entry: &Value| entry["operation"] == "Apply" && entry["manager"] == manager;
    if !entries(live).any(|entry| !is_ours(entry) && theirs(entry)) {
        return None;
    }
    let (ours, mut rest) = gather(live, manager, theirs);
    rest.extend(ours);
    Some(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": rest},
    ]))
}

/// One apply entry of `manager` with its own fields and those of the entries that `theirs` names; and all other entries.
fn gather(live: &Value, manager: &str, theirs: impl Fn(&Value) -> bool) -> (Option<Value>, Vec<Value>) {
    let is_ours = |entry: &Value| {
        entry["operation"] == "Apply" && entry["manager"] == manager && entry.get("subresource").is_none_or(|s| s == "")
    };
    let mut ours: Option<Value> = None;
    let mut rest = Vec::new();
    for entry in entries(live) {
        if !theirs(entry) && !is_ours(entry) {
            rest.push(entry.clone());
            continue;
        }
        let fields = entry.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default();
        match &mut ours {
            None => {
                let mut first = entry.clone();
                first["operation"] = json!("Apply");
                first["manager"] = json!(manager);
                ours = Some(first);
            }
            Some(ours) => {
                if let Some(into) = ours["fieldsV1"].as_object_mut() {
                    merge(into, &fields);
                }
            }
        }
    }
    (ours, rest)
}

/// Union of two field sets.
fn merge(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, fields) in more {
        match (into.get_mut(key).and_then(Value::as_object_mut), fields.as_object()) {
            (Some(into), Some(fields)) => merge(into, fields),
            _ => {
                into.insert(key.clone(), fields.clone());
            }
        }
    }
}

/// Takes an annotation out of a field set: it is removed by the same patch.
fn disown(fields: &mut Map<String, Value>, annotation: &str) {
    if let Some(annotations) =
        fields.get_mut("f:metadata").and_then(|m| m.get_mut("f:annotations")).and_then(Value::as_object_mut)
    {
        annotations.remove(&format!("f:{annotation}"));
    }
}

/// Drops what must never be applied: system metadata, status, and other tools' records of what they applied.
pub fn clean(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    map.remove("status");
    let namespace = map.get("kind").is_some_and(|kind| kind == "Namespace") && map.get("apiVersion").is_some_and(|version| version == "v1");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"]
        {
            metadata.remove(field);
        }
        // The server writes this one itself, and Clusternet records it with a random ending.
        if namespace && let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("kubernetes.io/metadata.name");
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            annotations.remove(KUBECTL_LAST_APPLIED);
        }
    }
}

/// Sets annotations of an object, making the map when it is absent or null.
pub fn annotate(object: &mut Value, annotations: &BTreeMap<&str, &str>) {
    let Some(map) = object.as_object_mut() else { return };
    let metadata = map.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let slot = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    if let Some(slot) = slot.as_object_mut() {
        for (key, value) in annotations {
            slot.insert((*key).to_owned(), json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_kubectl_is_adopted_with_all_its_fields() {
        let live = json!({"metadata": {"name": "a", "resourceVersion": "7",
            "annotations": {KUBECTL_LAST_APPLIED: "{}", "keep": "me"},
            "managedFields": [
                {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:data": {"f:x": {}}, "f:metadata": {"f:annotations": {".": {}, (format!("f:{KUBECTL_LAST_APPLIED}")): {}}}}},
                {"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:y": {}}}},
                {"manager": "us", "operation": "Apply", "fieldsV1": {"f:data": {"f:z": {}}}}]}});
        let patch = patch(&live, "us").expect("something to adopt");
        assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        let fields = &patch[1]["value"];
        assert_eq!(fields.as_array().expect("list").len(), 2);
        assert_eq!(fields[0]["manager"], "us");
        assert_eq!(fields[0]["operation"], "Apply");
        assert_eq!(fields[0]["fieldsV1"], json!({"f:data": {"f:x": {}, "f:z": {}}, "f:metadata": {"f:annotations": {".": {}}}}));
        assert_eq!(patch[2]["path"], "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
    }

    #[test]
    fn an_object_without_marks_is_left_alone() {
        let live = json!({"metadata": {"resourceVersion": "7", "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {}}}]}});
        assert_eq!(patch(&live, "us"), None);
    }

    #[test]
    fn what_a_server_wrote_is_not_applied() {
        let mut object = json!({"kind": "X", "metadata": {"name": "a", "uid": "1", "managedFields": [], "annotations": {LAST_APPLIED: "{}", "b": "c"}}, "status": {}});
        clean(&mut object);
        annotate(&mut object, &BTreeMap::from([("owner", "me")]));
        assert_eq!(object, json!({"kind": "X", "metadata": {"name": "a", "annotations": {"b": "c", "owner": "me"}}}));
    }

    /// What Clusternet's agent made of `desired`, with a default of the server.
    fn of_theirs(desired: &Value) -> Value {
        let mut live = desired.clone();
        let mut last = desired.clone();
        last["metadata"]["generation"] = json!(1);
        live["metadata"]["annotations"][LAST_APPLIED] = json!(last.to_string());
        live["metadata"]["uid"] = json!("1");
        live["spec"]["ports"][0]["protocol"] = json!("TCP");
        live["status"] = json!({"seen": 1});
        live
    }

    #[test]
    fn what_clusternet_applied_stands_until_something_is_to_change() {
        let desired = json!({"kind": "X", "metadata": {"name": "a", "annotations": {"owner": "me"}}, "spec": {"replicas": 2, "ports": [{"port": 80}]}});
        let live = of_theirs(&desired);
        assert!(stands(&desired, &live));
        for (path, value) in [("/spec/replicas", json!(3)), ("/metadata/annotations/owner", json!("other")), ("/spec/ports", json!([{"port": 80}, {"port": 81}]))] {
            // Somebody changed the object; something else is wanted.
            let (mut drifted, mut other) = (live.clone(), desired.clone());
            *drifted.pointer_mut(path).unwrap() = value.clone();
            assert!(!stands(&desired, &drifted), "{path}");
            *other.pointer_mut(path).unwrap() = value;
            assert!(!stands(&other, &live), "{path}");
        }
        // A field that is no longer wanted.
        let mut less = desired.clone();
        less["spec"].as_object_mut().unwrap().remove("replicas");
        assert!(!stands(&less, &live));
        let mut kubectl = live;
        kubectl["metadata"]["annotations"] = json!({"owner": "me", KUBECTL_LAST_APPLIED: "{}"});
        assert!(!stands(&desired, &kubectl));
    }
}
