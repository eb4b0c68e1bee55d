//! Which simulated node takes a pod.

use std::sync::Arc;

use apiserver::controllers::kinds::{NODE, POD};
use apiserver::controllers::World;
use serde_json::Value;

use crate::pods;
use crate::value::{at, condition, list, name, text, texts, uid};

/// Milli-units of a quantity; nothing when it cannot be read.
pub(crate) fn milli(quantity: &str) -> Option<i128> {
    let split = quantity.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'))?;
    let (number, unit) = if split == 0 { return None } else { quantity.split_at(split) };
    scaled(number, unit)
}

fn scaled(number: &str, unit: &str) -> Option<i128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let factor: i128 = match unit {
        "" => 1_000_000,
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000,
        "k" => 1_000_000_000,
        "M" => 1_000_000_000_000,
        "G" => 1_000_000_000_000_000,
        "T" => 1_000_000_000_000_000_000,
        "Ki" => 1024 * 1_000_000,
        "Mi" => 1024 * 1024 * 1_000_000,
        "Gi" => 1024 * 1024 * 1024 * 1_000_000,
        "Ti" => 1024 * 1024 * 1024 * 1024 * 1_000_000,
        _ => return None,
    };
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: String = part.chars().chain("000000".chars()).take(6).collect();
    let fraction: i128 = digits.parse().ok()?;
    let micro = whole.checked_mul(factor)?.checked_add(fraction.checked_mul(factor)? / 1_000_000)?;
    // Down to thousandths, rounded up: a need is never made smaller.
    Some((micro + 999) / 1000)
}

/// Milli-units of a quantity, zero when absent or unreadable.
fn amount(value: Option<&Value>) -> i128 {
    match value {
        Some(Value::String(text)) => milli(text).or_else(|| scaled(text, "")).unwrap_or(0),
        Some(Value::Number(number)) => i128::from(number.as_i64().unwrap_or(0)) * 1000,
        _ => 0,
    }
}

/// What a pod asks of a resource: the sum of its containers, or the largest init container.
pub(crate) fn request(pod: &Value, resource: &str) -> i128 {
    let of = |container: &Value| amount(at(container, &["resources", "requests", resource]));
    let sum: i128 = list(pod, &["spec", "containers"]).iter().map(of).sum();
    let most = list(pod, &["spec", "initContainers"]).iter().map(of).max().unwrap_or(0);
    sum.max(most)
}

fn term_matches(term: &Value, node: &Value) -> bool {
    let labels = texts(node, &["metadata", "labels"]);
    let holds = |expression: &Value, found: Option<&str>| {
        let values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
        match text(expression, &["operator"]) {
            "In" => found.is_some_and(|found| values.contains(&found)),
            "NotIn" => !found.is_some_and(|found| values.contains(&found)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" => number(found).zip(number(values.first().copied())).is_some_and(|(a, b)| a > b),
            "Lt" => number(found).zip(number(values.first().copied())).is_some_and(|(a, b)| a < b),
            _ => false,
        }
    };
    let (expressions, fields) = (list(term, &["matchExpressions"]), list(term, &["matchFields"]));
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|e| holds(e, labels.get(text(e, &["key"])).map(String::as_str)))
        && fields.iter().all(|e| text(e, &["key"]) == "metadata.name" && holds(e, Some(name(node))))
}

/// Whether selector and required affinity of a pod allow a node.
pub(crate) fn affine(pod: &Value, node: &Value) -> bool {
    let labels = texts(node, &["metadata", "labels"]);
    if !texts(pod, &["spec", "nodeSelector"]).iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    match at(pod, &["spec", "affinity", "nodeAffinity", REQUIRED]) {
        None => true,
        Some(required) => list(required, &["nodeSelectorTerms"]).iter().any(|term| term_matches(term, node)),
    }
}

/// Whether a pod stands all taints of a node that keep pods away.
pub(crate) fn tolerates(pod: &Value, node: &Value) -> bool {
    let tolerations = list(pod, &["spec", "tolerations"]);
    list(node, &["spec", "taints"]).iter().filter(|taint| text(taint, &["effect"]) != "PreferNoSchedule").all(|taint| {
        tolerations.iter().any(|toleration| {
            let (key, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
            let exists = text(toleration, &["operator"]) == "Exists";
            (effect.is_empty() || effect == text(taint, &["effect"]))
                && ((key.is_empty() && exists)
                    || (key == text(taint, &["key"]) && (exists || text(toleration, &["value"]) == text(taint, &["value"]))))
        })
    })
}

/// The node for a pod, or the words in which the scheduler says that there is none.
pub(crate) fn place(pod: &Value, world: &World<'_>) -> Result<String, String> {
    let nodes = world.all(&NODE);
    let total = nodes.len();
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    let mut reject = |reason: &'static str| match reasons.iter_mut().find(|(known, _)| *known == reason) {
        Some((_, count)) => *count += 1,
        None => reasons.push((reason, 1)),
    };
    let needs: Vec<(&'static str, &str, i128)> = [("Insufficient cpu", "cpu"), ("Insufficient memory", "memory")]
        .into_iter()
        .map(|(reason, resource)| (reason, resource, request(pod, resource)))
        .filter(|(_, _, need)| *need > 0)
        .collect();
    let placed: Vec<Arc<Value>> = if needs.is_empty() { Vec::new() } else { world.all(&POD) };
    let mut fitting: Vec<&Arc<Value>> = Vec::new();
    for node in &nodes {
        let ready = condition(list(node, &["status", "conditions"]), "Ready");
        let cordoned = at(node, &["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or(false);
        if cordoned || ready.is_none_or(|ready| text(ready, &["status"]) != "True") {
            reject(if cordoned { "node(s) were unschedulable" } else { "node(s) were not ready" });
        } else if !affine(pod, node) {
            reject("node(s) didn't match Pod's node affinity/selector");
        } else if !tolerates(pod, node) {
            reject("node(s) had untolerated taint(s)");
        } else if let Some((reason, ..)) = needs.iter().find(|(_, resource, need)| {
            let here = placed.iter().filter(|other| text(other, &["spec", "nodeName"]) == name(node) && !pods::ended(other));
            let used: i128 = here.map(|other| request(other, resource)).sum();
            used + need > amount(at(node, &["status", "allocatable", resource]))
        }) {
            reject(reason);
        } else {
            fitting.push(node);
        }
    }
    if fitting.is_empty() {
        let mut said: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        said.sort();
        let why = if said.is_empty() { "no nodes available to schedule pods".to_owned() } else { format!("0/{total} nodes are available: {}.", said.join(", ")) };
        return Err(why);
    }
    // The pod's uid is random: its sum spreads pods evenly without looking at all of them.
    let lot = uid(pod).bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    Ok(name(fitting[lot % fitting.len()]).to_owned())
}
