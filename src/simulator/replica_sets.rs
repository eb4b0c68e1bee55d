//! ReplicaSets and ReplicationControllers: as many pods as asked for, and the count of how they fare.

use std::sync::Arc;

use apiserver::controllers::kinds::{POD, REPLICATION_CONTROLLER, REPLICA_SET};
use apiserver::controllers::{Call, CallError, Change, Controller, Delete, Key, Kind, Turn, World};
use jiff::Timestamp;
use serde_json::{json, Value};

use crate::pods;
use crate::value::{at, compact, condition, int, list, namespace, second, terminating, text, texts, Labels};

/// Pods made or deleted in one turn at most; the next turn goes on.
const BURST: usize = 500;

/// Keeps the pods of ReplicaSets or of ReplicationControllers, which differ only in their selector.
#[derive(Debug)]
pub struct ReplicaSets {
    kind: &'static Kind,
}

impl ReplicaSets {
    /// For `apps/v1` ReplicaSets.
    pub fn new() -> Self {
        Self { kind: &REPLICA_SET }
    }

    /// For `v1` ReplicationControllers.
    pub fn replication_controllers() -> Self {
        Self { kind: &REPLICATION_CONTROLLER }
    }

    fn selector(&self, set: &Value) -> Option<Labels> {
        if self.kind == &REPLICA_SET {
            return Labels::read(at(set, &["spec", "selector"]));
        }
        Labels::read(Some(&json!({"matchLabels": at(set, &["spec", "selector"])?})))
    }
}

impl Default for ReplicaSets {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        "replicaset"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        pods::owners(change, world, self.kind, &POD, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(set) = world.at(key) else { return turn };
        let Some(selector) = self.selector(&set) else { return turn };
        let mine = pods::claim(world, self.kind, &set, &selector, &mut turn);
        let mut alive: Vec<Arc<Value>> = mine.iter().filter(|pod| pods::active(pod)).cloned().collect();
        let leaving = mine.iter().filter(|pod| terminating(pod) && !pods::ended(pod)).count();
        let wanted = usize::try_from(int(&set, &["spec", "replicas"]).unwrap_or(1)).unwrap_or(0);
        let mut settled = true;
        if !terminating(&set) {
            if alive.len() < wanted {
                settled = false;
                let template = at(&set, &["spec", "template"]).cloned().unwrap_or_default();
                let pod = pods::from_template(self.kind, &set, &template);
                for _ in 0..(wanted - alive.len()).min(BURST) {
                    turn.call(Call::create(&POD, namespace(&set), pod.clone()));
                }
            } else if alive.len() > wanted {
                let surplus = (alive.len() - wanted).min(BURST);
                pods::by_worth(&mut alive, world.now);
                for pod in &alive[..surplus] {
                    turn.call(Call::delete(&POD, pod, Delete::Background));
                }
            }
        }
        let status = self.status(&set, &alive, leaving, settled, world.now, &mut turn);
        let seen = int(&set, &["status", "observedGeneration"]) == int(&set, &["metadata", "generation"]);
        // While pods are being made, their changes bring the next turn; counting before is a write for nothing.
        if (settled || !seen) && set.get("status") != Some(&status) {
            turn.call(Call::status(self.kind, &set, status));
        }
        turn
    }

    fn failed(&self, key: &Key, error: &CallError, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let what = match error.method {
            "POST" if error.path.ends_with("/pods") => "FailedCreate",
            "DELETE" => "FailedDelete",
            _ => return turn,
        };
        let Some(set) = world.at(key) else { return turn };
        // Nothing can be made in a namespace that goes; that is no failure worth telling.
        if condition(list(&set, &["status", "conditions"]), "ReplicaFailure").is_some() || error.message.contains("is being terminated") {
            return turn;
        }
        let component = if key.group.is_empty() { "replication-controller" } else { "replicaset-controller" };
        turn.call(Call::event(&set, true, what, &error.message, component, world.now));
        let mut status = set.get("status").cloned().unwrap_or_else(|| json!({"replicas": 0}));
        let mut conditions = list(&status, &["conditions"]).to_vec();
        conditions.push(json!({
            "type": "ReplicaFailure", "status": "True", "reason": what, "message": error.message,
            "lastTransitionTime": second(world.now),
        }));
        status["conditions"] = Value::Array(conditions);
        turn.call(Call::status(self.kind, &set, status));
        turn
    }
}

impl ReplicaSets {
    fn status(&self, set: &Value, alive: &[Arc<Value>], leaving: usize, settled: bool, now: Timestamp, turn: &mut Turn) -> Value {
        let labels = texts(set, &["spec", "template", "metadata", "labels"]);
        let settle = int(set, &["spec", "minReadySeconds"]).unwrap_or(0);
        let (mut labelled, mut ready, mut available) = (0, 0, 0);
        for pod in alive {
            let own = texts(pod, &["metadata", "labels"]);
            labelled += i64::from(labels.iter().all(|(key, value)| own.get(key) == Some(value)));
            if pods::ready(pod) {
                ready += 1;
                match pods::available(pod, settle, now) {
                    Ok(()) => available += 1,
                    Err(Some(from)) => turn.again_at(from, now),
                    Err(None) => {}
                }
            }
        }
        let before = list(set, &["status", "conditions"]);
        let conditions: Vec<Value> =
            before.iter().filter(|c| !(settled && text(c, &["type"]) == "ReplicaFailure")).cloned().collect();
        let mut status = compact(vec![
            ("availableReplicas", json!(available)),
            ("conditions", json!(conditions)),
            ("fullyLabeledReplicas", json!(labelled)),
            ("observedGeneration", json!(int(set, &["metadata", "generation"]).unwrap_or(0))),
            ("readyReplicas", json!(ready)),
        ]);
        status["replicas"] = json!(alive.len());
        if self.kind == &REPLICA_SET {
            status["terminatingReplicas"] = json!(leaving);
        }
        status
    }
}
