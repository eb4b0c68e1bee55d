//! PodDisruptionBudgets: how many of the pods they cover are healthy, must be, and may be evicted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::{DEPLOYMENT, DISRUPTION_BUDGET, POD, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET};
use super::{Call, Change, Controller, Key, Turn, World};
use crate::auth::defaults::selects;
use crate::auth::{at, text};

/// Keeps the status of PodDisruptionBudgets.
#[derive(Debug, Default)]
pub struct Disruption;

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn int(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn healthy(pod: &Value) -> bool {
    let ready = |c: &Value| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True";
    text(pod, &["metadata", "deletionTimestamp"]).is_empty() && list(pod, &["status", "conditions"]).iter().any(ready)
}

/// A number, or a percentage of `total` rounded up.
fn share(value: &Value, total: i64) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            Some(percent.checked_mul(total)?.checked_add(99)?.div_euclid(100))
        }
        _ => None,
    }
}

/// How many pods the workloads of some pods want in all; nothing when a pod belongs to no workload that says it.
fn wanted(pods: &[Arc<Value>], namespace: &str, world: &World<'_>) -> Option<i64> {
    let mut sizes: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let owner = list(pod, &["metadata", "ownerReferences"]).iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
        let kind = [REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET].into_iter().find(|kind| kind.kind == text(owner, &["kind"]))?;
        let mut object = world.get(&kind, namespace, text(owner, &["name"]))?;
        let above = list(&object, &["metadata", "ownerReferences"]).iter().find(|owner| text(owner, &["kind"]) == DEPLOYMENT.kind).cloned();
        if let Some(deployment) = above.and_then(|above| world.get(&DEPLOYMENT, namespace, text(&above, &["name"]))) {
            object = deployment;
        }
        sizes.insert(text(&object, &["metadata", "uid"]).to_owned(), int(&object, &["spec", "replicas"]));
    }
    Some(sizes.values().sum())
}

impl Controller for Disruption {
    fn name(&self) -> &'static str {
        "disruption"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        if key.is(&DISRUPTION_BUDGET) {
            wake.push(key.clone());
        } else if [POD, DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET].iter().any(|kind| key.is(kind)) {
            wake.extend(world.graph.of_kind(&DISRUPTION_BUDGET, &key.namespace).map(|node| node.key.clone()));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(budget) = world.at(key) else { return turn };
        let none = Map::new();
        let selector = at(&budget, &["spec", "selector"]).filter(|selector| !selector.is_null());
        let pods: Vec<Arc<Value>> = match selector {
            None => Vec::new(),
            Some(selector) => world
                .list(&POD, &key.namespace)
                .into_iter()
                .filter(|pod| selects(selector, at(pod, &["metadata", "labels"]).and_then(Value::as_object).unwrap_or(&none)))
                .filter(|pod| !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed"))
                .collect(),
        };
        let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let numbers = match (at(&budget, &["spec", "maxUnavailable"]), at(&budget, &["spec", "minAvailable"])) {
            (Some(most), _) => wanted(&pods, &key.namespace, world)
                .and_then(|expected| Some((expected, (expected - share(most, expected)?).max(0)))),
            (None, Some(least @ Value::Number(_))) => share(least, count).map(|least| (count, least)),
            (None, Some(least)) => {
                wanted(&pods, &key.namespace, world).and_then(|expected| Some((expected, share(least, expected)?)))
            }
            (None, None) => Some((count, 0)),
        };
        let good = i64::try_from(pods.iter().filter(|pod| healthy(pod)).count()).unwrap_or(0);
        let (expected, desired) = numbers.unwrap_or((count, count));
        let allowed = if numbers.is_none() || expected == 0 { 0 } else { (good - desired).max(0) };
        let (value, reason) = match (numbers, allowed) {
            (None, _) => ("False", "SyncFailed"),
            (_, 0) => ("False", "InsufficientPods"),
            _ => ("True", "SufficientPods"),
        };
        let generation = int(&budget, &["metadata", "generation"]);
        let before = list(&budget, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "DisruptionAllowed");
        let since = before.filter(|before| text(before, &["status"]) == value).map(|before| text(before, &["lastTransitionTime"]));
        let since = since.map_or_else(|| world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), str::to_owned);
        let status = json!({
            "currentHealthy": good, "desiredHealthy": desired, "disruptionsAllowed": allowed, "expectedPods": expected,
            "observedGeneration": generation,
            "conditions": [{
                "type": "DisruptionAllowed", "status": value, "reason": reason, "message": "",
                "observedGeneration": generation, "lastTransitionTime": since,
            }],
        });
        if budget.get("status") != Some(&status) {
            turn.call(Call::status(&DISRUPTION_BUDGET, &budget, status));
        }
        turn
    }
}
