//! HorizontalPodAutoscalers: what is scaled, between which numbers, by which metrics.

use super::{Faults, get, list, quantity, required, text};
use crate::fault::{Fault, Path};
use serde_json::Value;

/// A HorizontalPodAutoscaler.
pub(super) fn autoscaler(o: &Value, version: &str, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    if s.get("minReplicas").and_then(Value::as_i64).is_some_and(|n| n < 1) {
        out.push(Fault::invalid(&p.child("minReplicas"), s["minReplicas"].clone(), "must be greater than or equal to 1"));
    }
    let max = s.get("maxReplicas").and_then(Value::as_i64).unwrap_or(0);
    match max {
        0 => out.push(Fault::required(&p.child("maxReplicas"), "")),
        n if n < 0 => out.push(Fault::invalid(&p.child("maxReplicas"), n, "must be greater than 0")),
        _ => {}
    }
    if s.get("minReplicas").and_then(Value::as_i64).is_some_and(|n| max < n) {
        out.push(Fault::invalid(&p.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`"));
    }
    let t = p.child("scaleTargetRef");
    for k in ["kind", "name"] {
        if required(&s["scaleTargetRef"], k, &t, out) {
            let v = text(&s["scaleTargetRef"], &format!("/{k}"));
            out.extend(crate::text::path_segment(v).into_iter().map(|m| Fault::invalid(&t.child(k), v, m)));
        }
    }
    if text(&s["scaleTargetRef"], "/apiVersion").is_empty() {
        out.push(Fault::invalid(&t.child("apiVersion"), "", "apiVersion must specify API group"));
    }
    if version == "v1" {
        // The server names the field of the newer version, which it converts to.
        if let Some(n) = s.get("targetCPUUtilizationPercentage").and_then(Value::as_i64).filter(|n| *n < 1) {
            out.push(Fault::invalid(&Path::new("spec.metrics[0].resource.target.averageUtilization"), n, "must be greater than 0"));
        }
        return;
    }
    for (i, m) in list(s, "/metrics").iter().enumerate() {
        let at = p.child("metrics").index(i);
        let kinds = [("Object", "object"), ("Pods", "pods"), ("Resource", "resource"), ("ContainerResource", "containerResource"), ("External", "external")];
        let ty = text(m, "/type");
        match kinds.iter().find(|(t, _)| *t == ty) {
            None if ty.is_empty() => out.push(Fault::required(&at.child("type"), "must specify a metric source type")),
            None => out.push(Fault::not_supported(&at.child("type"), ty, &["ContainerResource", "External", "Object", "Pods", "Resource"])),
            Some((_, field)) if get(m, field).is_none() => {
                out.push(Fault::required(&at.child(field), "must populate information for the given metric source"));
            }
            Some((_, field)) => source(field, &m[*field], &at.child(field), out),
        }
    }
}

/// One source of a metric and what it shall come to.
fn source(kind: &str, m: &Value, p: &Path, out: &mut Faults) {
    let at = p.child("target");
    let target = &m["target"];
    match kind {
        "resource" | "containerResource" => {
            if text(m, "/name").is_empty() {
                out.push(Fault::required(&p.child("name"), "must specify a resource name"));
            }
            if kind == "containerResource" && text(m, "/container").is_empty() {
                out.push(Fault::required(&p.child("container"), "must specify a container"));
            }
        }
        _ => {
            if kind == "object" {
                for k in ["kind", "name"] {
                    required(&m["describedObject"], k, &p.child("describedObject"), out);
                }
            }
            if text(m, "/metric/name").is_empty() {
                out.push(Fault::required(&p.child("metric").child("name"), "must specify a metric name"));
            }
        }
    }
    let (value, average, share) = (get(target, "value"), get(target, "averageValue"), get(target, "averageUtilization"));
    match text(target, "/type") {
        "Utilization" | "Value" | "AverageValue" => {}
        other => {
            if other.is_empty() {
                out.push(Fault::required(&at.child("type"), "must specify a metric target type"));
            }
            out.push(Fault::invalid(&at.child("type"), other, "must be either Utilization, Value, or AverageValue"));
        }
    }
    for (k, v) in [("value", value), ("averageValue", average)] {
        if let Some(v) = v {
            if quantity(v, &at.child(k), &mut Vec::new()).is_some_and(|q| q.sign() < 1) {
                out.push(Fault::invalid(&at.child(k), v.clone(), "must be positive"));
            }
        }
    }
    if let Some(n) = share.and_then(Value::as_i64).filter(|n| *n < 1) {
        out.push(Fault::invalid(&at.child("averageUtilization"), n, "must be greater than 0"));
    }
    match kind {
        "resource" | "containerResource" => match (share, average) {
            (None, None) => out.push(Fault::required(&at.child("averageUtilization"), "must set either a target raw value or a target utilization")),
            (Some(_), Some(_)) => out.push(Fault::forbidden(&at.child("averageValue"), "may not set both a target raw value and a target utilization")),
            _ => {}
        },
        "pods" if average.is_none() => out.push(Fault::required(&at.child("averageValue"), "must specify a positive target averageValue")),
        "pods" => {}
        _ => match (value, average) {
            (None, None) => out.push(Fault::required(&at.child("averageValue"), "must set either a target value for metric or a per-pod target")),
            (Some(_), Some(_)) if kind == "external" => out.push(Fault::forbidden(&at.child("value"), "may not set both a target value for metric and a per-pod target")),
            _ => {}
        },
    }
}
