//! Conversion between the versions of the built-in kinds that have two: events and HorizontalPodAutoscalers.

use serde_json::{Map, Value, json};

use crate::resource::claimed;

/// Fields of `v1` events beside those of `events.k8s.io/v1`.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Annotations in which `autoscaling/v1` keeps what it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

/// The object in another version of its kind; unchanged when there is nothing to convert.
pub(crate) fn native(object: Value, wanted: &str) -> Value {
    let (have, kind) = claimed(&object);
    match (kind, have, wanted) {
        ("Event", "v1", "events.k8s.io/v1") => rename(object, |(a, b)| (a, b)),
        ("Event", "events.k8s.io/v1", "v1") => rename(object, |(a, b)| (b, a)),
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => up(object),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => down(object),
        _ => object,
    }
}

fn rename(mut object: Value, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) -> Value {
    if let Some(map) = object.as_object_mut() {
        for pair in EVENT_NAMES {
            let (from, to) = direction(pair);
            if let Some(value) = map.remove(from) {
                map.insert(to.into(), value);
            }
        }
    }
    object
}

fn annotations(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = crate::object::metadata(object);
    let place = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !place.is_object() {
        *place = json!({});
    }
    crate::object::child_root(place)
}

fn parsed(text: Option<Value>) -> Option<Value> {
    serde_json::from_str(text?.as_str()?).ok()
}

fn up(mut object: Value) -> Value {
    let (metrics, behavior, conditions, current) = {
        let notes = annotations(&mut object);
        (parsed(notes.remove(METRICS)), parsed(notes.remove(BEHAVIOR)), parsed(notes.remove(CONDITIONS)), parsed(notes.remove(CURRENT)))
    };
    crate::rest::prune_empty(crate::object::metadata(&mut object));
    let spec = crate::object::child(&mut object, "spec");
    let target = spec.remove("targetCPUUtilizationPercentage");
    let mut all: Vec<Value> = metrics.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(percent) = target {
        all.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}));
    }
    if !all.is_empty() {
        spec.insert("metrics".into(), Value::Array(all));
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    let status = crate::object::child(&mut object, "status");
    let percent = status.remove("currentCPUUtilizationPercentage");
    let mut now: Vec<Value> = current.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(percent) = percent {
        now.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent, "averageValue": "0"}}}));
    }
    status.insert("currentMetrics".into(), if now.is_empty() { Value::Null } else { Value::Array(now) });
    if let Some(conditions) = conditions {
        status.insert("conditions".into(), conditions);
    }
    status.entry("desiredReplicas").or_insert(json!(0));
    object
}

fn down(mut object: Value) -> Value {
    let is_cpu = |metric: &Value| {
        metric.get("type") == Some(&json!("Resource"))
            && metric.pointer("/resource/name") == Some(&json!("cpu"))
            && metric.pointer("/resource/target/averageUtilization").is_none_or(|v| !v.is_null())
    };
    let spec = crate::object::child(&mut object, "spec");
    let behavior = spec.remove("behavior");
    let mut metrics = match spec.remove("metrics") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    if let Some(at) = metrics.iter().position(|m| is_cpu(m) && m.pointer("/resource/target/averageUtilization").is_some()) {
        let cpu = metrics.remove(at);
        if let Some(percent) = cpu.pointer("/resource/target/averageUtilization") {
            spec.insert("targetCPUUtilizationPercentage".into(), percent.clone());
        }
    }
    let status = crate::object::child(&mut object, "status");
    let conditions = status.remove("conditions").filter(|v| !v.is_null());
    let mut current = match status.remove("currentMetrics") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    if let Some(at) = current.iter().position(|m| is_cpu(m) && m.pointer("/resource/current/averageUtilization").is_some()) {
        let cpu = current.remove(at);
        if let Some(percent) = cpu.pointer("/resource/current/averageUtilization") {
            status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
    }
    status.entry("currentReplicas").or_insert(json!(0));
    let notes = annotations(&mut object);
    for (name, value) in [
        (METRICS, (!metrics.is_empty()).then_some(Value::Array(metrics))),
        (BEHAVIOR, behavior),
        (CURRENT, (!current.is_empty()).then_some(Value::Array(current))),
        (CONDITIONS, conditions),
    ] {
        if let Some(value) = value {
            notes.insert(name.into(), json!(value.to_string()));
        }
    }
    crate::rest::prune_empty(crate::object::metadata(&mut object));
    object
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn what_goes_down_comes_up_again() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"},
            "spec": {"maxReplicas": 3, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                {"type": "Pods", "pods": {"metric": {"name": "q"}}}]},
            "status": {"currentReplicas": 0, "desiredReplicas": 0, "currentMetrics": null}
        });
        let mut v1 = native(v2.clone(), "autoscaling/v1");
        assert_eq!(v1.pointer("/spec/targetCPUUtilizationPercentage"), Some(&json!(50)));
        v1["apiVersion"] = json!("autoscaling/v1");
        let mut again = native(v1, "autoscaling/v2");
        again["apiVersion"] = json!("autoscaling/v2");
        assert_eq!(again, v2);
        let event = json!({"kind": "Event", "apiVersion": "v1", "message": "m", "involvedObject": {"kind": "Pod"}});
        let new = native(event, "events.k8s.io/v1");
        assert_eq!((new.get("note"), new.pointer("/regarding/kind")), (Some(&json!("m")), Some(&json!("Pod"))));
    }
}
