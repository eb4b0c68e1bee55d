//! What an update of a Pod may change: of the Pod itself, through `resize`, through `ephemeralcontainers`.

use super::{Faults, get, list, map, text};
use crate::fault::{Fault, Path};
use crate::native::qos_class;
use serde_json::{Map, Value, json};

const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn spec() -> Path {
    Path::new("spec")
}

/// What an update of a Pod may not change.
pub(super) fn update(o: &Value, old: &Value, out: &mut Faults) {
    for k in ["containers", "initContainers"] {
        if list(o, &format!("/spec/{k}")).len() != list(old, &format!("/spec/{k}")).len() {
            out.push(Fault::forbidden(&spec().child(k), "pod updates may not add or remove containers"));
            return;
        }
    }
    if !deadline(o, old, out) {
        return;
    }
    tolerations(o, old, out);
    gates(o, old, out);
    if masked(o, old, out) != fixed(old) {
        out.push(Fault::forbidden(&spec(), format!("{MUTABLE}\n")));
    }
}

/// A deadline may come, and come nearer.
fn deadline(o: &Value, old: &Value, out: &mut Faults) -> bool {
    let p = spec().child("activeDeadlineSeconds");
    let (now, was) = (get(&o["spec"], "activeDeadlineSeconds").and_then(Value::as_i64), get(&old["spec"], "activeDeadlineSeconds").and_then(Value::as_i64));
    match (now, was) {
        (Some(n), _) if !(0..=i64::from(i32::MAX)).contains(&n) => out.push(Fault::invalid(&p, n, "must be between 0 and 2147483647, inclusive")),
        (Some(n), Some(was)) if was < n => out.push(Fault::invalid(&p, n, "must be less than or equal to previous value")),
        (None, Some(_)) => out.push(Fault::invalid(&p, json!(null), "must not update from a positive integer to nil value")),
        _ => return true,
    }
    false
}

/// Tolerations may be added; of those that are there only the seconds may change.
fn tolerations(o: &Value, old: &Value, out: &mut Faults) {
    let same = |a: &Value, b: &Value| ["key", "operator", "value", "effect"].iter().all(|k| a.get(*k) == b.get(*k));
    if !list(old, "/spec/tolerations").iter().all(|t| list(o, "/spec/tolerations").iter().any(|n| same(n, t))) {
        out.push(Fault::forbidden(&spec().child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// Gates may only go.
fn gates(o: &Value, old: &Value, out: &mut Faults) {
    for (i, gate) in list(o, "/spec/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        if !list(old, "/spec/schedulingGates").iter().any(|g| text(g, "/name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            out.push(Fault::forbidden(&spec().child("schedulingGates").index(i).child("name"), why));
        }
    }
}

/// The specification without what may change freely.
fn fixed(o: &Value) -> Map<String, Value> {
    let mut s = map(o, "/spec").clone();
    for k in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        s.remove(k);
    }
    for k in ["containers", "initContainers"] {
        for c in s.get_mut(k).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
            c.remove("image");
        }
    }
    s
}

/// The new specification, with what this Pod may change put back as it was.
fn masked(o: &Value, old: &Value, out: &mut Faults) -> Map<String, Value> {
    let (mut s, was) = (fixed(o), map(old, "/spec"));
    let grace = |s: &Map<String, Value>| s.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let mut back = |k: &str| match was.get(k) {
        Some(v) => s.insert(k.to_owned(), v.clone()),
        None => s.remove(k),
    };
    if grace(was).is_some_and(|n| n < 0) && grace(map(o, "/spec")) == Some(1) {
        back("terminationGracePeriodSeconds");
    }
    // While a gate holds it back, a Pod may be told more closely where to run.
    if !list(old, "/spec/schedulingGates").is_empty() {
        let selector = map(o, "/spec/nodeSelector");
        if map(old, "/spec/nodeSelector").iter().any(|(k, v)| selector.get(k) != Some(v)) {
            out.push(Fault::invalid(&spec().child("nodeSelector"), o["spec"]["nodeSelector"].clone(), "only additions to spec.nodeSelector are allowed (no mutations or deletions)"));
        }
        back("nodeSelector");
        node_affinity(o, old, out);
        match was.get("affinity") {
            None => {
                if let Some(a) = s.get_mut("affinity").and_then(Value::as_object_mut) {
                    a.remove("nodeAffinity");
                    if a.is_empty() {
                        s.remove("affinity");
                    }
                }
            }
            Some(a) => match (get(a, "nodeAffinity"), s.get_mut("affinity").and_then(Value::as_object_mut)) {
                (Some(v), Some(now)) => {
                    now.insert("nodeAffinity".to_owned(), v.clone());
                }
                (None, Some(now)) => {
                    now.remove("nodeAffinity");
                }
                (_, None) => {}
            },
        }
    }
    s
}

/// Terms that a node must fit may get further requirements, no fewer.
fn node_affinity(o: &Value, old: &Value, out: &mut Faults) {
    const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let (now, was) = (list(o, TERMS), list(old, TERMS));
    let p = spec().child("affinity").child("nodeAffinity").child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
    if was.is_empty() {
        return;
    }
    if now.len() != was.len() {
        out.push(Fault::invalid(&p, json!(now), "no additions/deletions to non-empty NodeSelectorTerms list are allowed"));
        return;
    }
    for (i, (now, was)) in now.iter().zip(was).enumerate() {
        let kept = ["/matchExpressions", "/matchFields"].iter().all(|k| list(now, k).starts_with(list(was, k)));
        if !kept {
            out.push(Fault::invalid(&p.index(i), now.clone(), "only additions are allowed (no mutations or deletions)"));
        }
    }
}

/// What `resize` may not do.
pub(super) fn resize(o: &Value, old: &Value, out: &mut Faults) {
    super::pod::spec(&o["spec"], &spec(), out);
    if !out.is_empty() {
        return;
    }
    let class = qos_class(old);
    if qos_class(o) != class {
        out.push(Fault::invalid(&spec(), class, "Pod QOS Class may not change as a result of resizing"));
    }
    for field in ["containers", "initContainers"] {
        for (i, (now, was)) in list(o, &format!("/spec/{field}")).iter().zip(list(old, &format!("/spec/{field}"))).enumerate() {
            let p = spec().child(field).index(i).child("resources");
            for (side, one) in [("requests", "resource requests"), ("limits", "resource limits")] {
                let pointer = format!("/resources/{side}");
                let (now, was) = (map(now, &pointer), map(was, &pointer));
                if was.keys().any(|k| !now.contains_key(k)) {
                    out.push(Fault::forbidden(&p.child(side), format!("{one} cannot be removed")));
                }
            }
        }
    }
    let rest = |o: &Value| {
        let mut s = map(o, "/spec").clone();
        for c in ["containers", "initContainers"].iter().filter_map(|k| s.remove(*k)).collect::<Vec<_>>() {
            for (i, mut c) in c.as_array().cloned().unwrap_or_default().into_iter().enumerate() {
                for side in ["requests", "limits"] {
                    if let Some(all) = c.pointer_mut(&format!("/resources/{side}")).and_then(Value::as_object_mut) {
                        all.retain(|k, _| !matches!(k.as_str(), "cpu" | "memory"));
                    }
                }
                // An empty list of resources is none.
                if let Some(r) = c.get_mut("resources").and_then(Value::as_object_mut) {
                    r.retain(|_, v| v.as_object().is_none_or(|m| !m.is_empty()));
                }
                s.insert(format!("{i} {}", text(&c, "/name")), c);
            }
        }
        s
    };
    if out.is_empty() && rest(o) != rest(old) {
        out.push(Fault::forbidden(&spec(), "only cpu and memory resources are mutable"));
    }
}

/// What `ephemeralcontainers` may not do.
pub(super) fn ephemeral(o: &Value, old: &Value, out: &mut Faults) {
    super::pod::ephemeral(&o["spec"], &spec(), out);
    let p = spec().child("ephemeralContainers");
    let now = list(o, "/spec/ephemeralContainers");
    for was in list(old, "/spec/ephemeralContainers") {
        let name = text(was, "/name");
        match now.iter().find(|c| text(c, "/name") == name) {
            None => out.push(Fault::forbidden(&p, format!("existing ephemeral containers {} may not be removed\n", crate::fault::quote(name)))),
            Some(c) if c != was => out.push(Fault::forbidden(&p, format!("existing ephemeral containers {} may not be changed\n", crate::fault::quote(name)))),
            Some(_) => {}
        }
    }
}
