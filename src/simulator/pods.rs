//! Pods as workloads see them: whose they are, how they fare, which goes first, and new ones from a template.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::controllers::kinds::POD;
use apiserver::controllers::{Call, Change, Key, Kind, Turn, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::{json, Value};

use crate::value::{
    at, condition, controller, int, list, name, namespace, owned_by, terminating, text, time, uid, Labels,
};

/// Whether a pod has ended.
pub(crate) fn ended(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether a pod counts: it has neither ended nor is it being deleted.
pub(crate) fn active(pod: &Value) -> bool {
    !ended(pod) && !terminating(pod)
}

/// Whether a pod is ready.
pub(crate) fn ready(pod: &Value) -> bool {
    condition(list(pod, &["status", "conditions"]), "Ready").is_some_and(|ready| text(ready, &["status"]) == "True")
}

/// Since when a pod is ready.
fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(list(pod, &["status", "conditions"]), "Ready")?;
    (text(ready, &["status"]) == "True").then(|| time(ready, &["lastTransitionTime"])).flatten()
}

/// Whether a pod was ready for `seconds`; if not yet, from when it will have been.
pub(crate) fn available(pod: &Value, seconds: i64, now: Timestamp) -> Result<(), Option<Timestamp>> {
    if !ready(pod) {
        return Err(None);
    }
    if seconds == 0 {
        return Ok(());
    }
    let from = ready_since(pod).map(|since| since + SignedDuration::from_secs(seconds));
    if from.is_some_and(|from| from <= now) { Ok(()) } else { Err(from) }
}

/// The pods of an owner, after it claims strays that its selector matches and releases those it does not match any more.
pub(crate) fn claim(world: &World<'_>, kind: &Kind, owner: &Value, selector: &Labels, turn: &mut Turn) -> Vec<Arc<Value>> {
    claim_kind(world, kind, owner, selector, &POD, turn)
}

/// As [`claim`], for dependents of any kind.
pub(crate) fn claim_kind(
    world: &World<'_>,
    kind: &Kind,
    owner: &Value,
    selector: &Labels,
    of: &Kind,
    turn: &mut Turn,
) -> Vec<Arc<Value>> {
    let me = uid(owner);
    let mut mine = Vec::new();
    for object in world.owned(me, of) {
        if !controller(&object).is_some_and(|(_, _, uid)| uid == me) {
            continue;
        }
        if selector.matches(&object) {
            mine.push(object);
        } else if !terminating(&object) && !terminating(owner) {
            turn.call(own(of, &object, None, me));
        }
    }
    if terminating(owner) {
        return mine;
    }
    for node in world.graph.strays(of, namespace(owner)) {
        let Some(object) = world.at(&node.key) else { continue };
        if controller(&object).is_none() && !terminating(&object) && selector.matches(&object) {
            turn.call(own(of, &object, Some(owned_by(kind, owner)), me));
            mine.push(object);
        }
    }
    mine
}

/// Adds or takes away a reference to an owner, for the object as it was read.
fn own(kind: &Kind, object: &Value, add: Option<Value>, owner: &str) -> Call {
    let mut owners: Vec<Value> =
        list(object, &["metadata", "ownerReferences"]).iter().filter(|o| text(o, &["uid"]) != owner).cloned().collect();
    owners.extend(add);
    let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
    let patch = json!({"metadata": {
        "uid": uid(object), "resourceVersion": text(object, &["metadata", "resourceVersion"]), "ownerReferences": owners,
    }});
    Call::merge(kind, namespace(object), name(object), "", patch)
}

/// A new pod from a workload's template.
pub(crate) fn from_template(kind: &Kind, owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({"ownerReferences": [owned_by(kind, owner)], "generateName": format!("{}-", name(owner))});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = at(template, &["metadata", field]) {
            metadata[field] = value.clone();
        }
    }
    json!({"metadata": metadata, "spec": template.get("spec").cloned().unwrap_or_else(|| json!({}))})
}

/// Orders active pods so that those to be deleted first come first.
pub(crate) fn by_worth(pods: &mut [Arc<Value>], now: Timestamp) {
    let mut crowd: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter() {
        *crowd.entry(text(pod, &["spec", "nodeName"]).to_owned()).or_default() += 1;
    }
    let rank = |pod: &Value| {
        let node = text(pod, &["spec", "nodeName"]);
        let phase = match text(pod, &["status", "phase"]) {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let cost: i64 =
            text(pod, &["metadata", "annotations", "controller.kubernetes.io/pod-deletion-cost"]).parse().unwrap_or(0);
        let restarts: i64 =
            list(pod, &["status", "containerStatuses"]).iter().filter_map(|c| int(c, &["restartCount"])).max().unwrap_or(0);
        let crowded = crowd.get(node).copied().unwrap_or(0);
        // Ready or made lately goes before ready or made long ago.
        let lately = |at: Option<Timestamp>| at.map_or(i64::MIN, |at| at.duration_since(now).as_secs().saturating_neg());
        (
            !node.is_empty(),
            phase,
            ready(pod),
            cost,
            std::cmp::Reverse(crowded),
            lately(ready_since(pod)),
            std::cmp::Reverse(restarts),
            lately(time(pod, &["metadata", "creationTimestamp"])),
        )
    };
    pods.sort_by_cached_key(|pod| rank(pod));
}

/// Wakes the workloads of a kind that a change of one of their dependents concerns.
pub(crate) fn owners(change: &Change, world: &World<'_>, kind: &Kind, of: &Kind, wake: &mut Vec<Key>) {
    if change.key.is(kind) {
        wake.push(change.key.clone());
        return;
    }
    if !change.key.is(of) {
        return;
    }
    let namespace = &change.key.namespace;
    match change.meta.controller() {
        Some(owner) if owner.kind == kind.kind && owner.api_version == kind.api_version => {
            wake.push(Key::new(kind.group, kind.plural, namespace, &owner.name));
        }
        Some(_) => {}
        None if change.deleted => {}
        None => wake.extend(world.graph.of_kind(kind, namespace).map(|node| node.key.clone())),
    }
    // A released object concerns the owner it had.
    for owner in &change.touched {
        if let Some(node) = world.graph.node_of(owner)
            && node.key.is(kind)
        {
            wake.push(node.key.clone());
        }
    }
}
