//! The status of a Deployment: counts, and whether it is available and makes progress.

use apiserver::controllers::kinds::DEPLOYMENT;
use apiserver::controllers::Call;
use jiff::{SignedDuration, Timestamp};
use serde_json::{json, Value};

use super::sets::Set;
use super::Rollout;
use crate::value::{at, compact, condition, flag, int, list, second, text, time};

/// Sets a condition. Nothing changes when status and reason stay; the time of the transition stays when the status does.
pub(super) fn set_condition(status: &mut Value, kind: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let before = condition(list(status, &["conditions"]), kind);
    if before.is_some_and(|before| text(before, &["status"]) == value && text(before, &["reason"]) == reason) {
        return;
    }
    let since = before.filter(|before| text(before, &["status"]) == value).map(|b| text(b, &["lastTransitionTime"]).to_owned());
    let now = second(now);
    let new = json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": since.unwrap_or_else(|| now.clone()),
    });
    remove_condition(status, kind);
    match status["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(new),
        None => status["conditions"] = json!([new]),
    }
}

fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| text(condition, &["type"]) != kind);
    }
}

impl Rollout<'_> {
    fn sum(&self, field: &str) -> i64 {
        self.all().map(|set| set.count(field)).sum()
    }

    fn counts(&self) -> Value {
        let available = self.sum("availableReplicas");
        let mut status = compact(vec![
            ("availableReplicas", json!(available)),
            ("collisionCount", json!(self.collisions())),
            ("observedGeneration", json!(int(self.deployment, &["metadata", "generation"]).unwrap_or(0))),
            ("readyReplicas", json!(self.sum("readyReplicas"))),
            ("replicas", json!(self.sum("replicas"))),
            ("unavailableReplicas", json!((self.total() - available).max(0))),
            ("updatedReplicas", json!(self.new.as_ref().map_or(0, |new| new.count("replicas")))),
        ]);
        status["terminatingReplicas"] = json!(self.sum("terminatingReplicas"));
        status["conditions"] = json!(self.conditions());
        let least = self.replicas - self.unavailable;
        let (value, reason, message) = if available >= least {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set_condition(&mut status, "Available", value, reason, message, self.world.now);
        status
    }

    /// Whether a status shows the rollout done.
    fn done(&self, status: &Value) -> bool {
        let count = |field: &str| int(status, &[field]).unwrap_or(0);
        ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| count(field) == self.replicas)
            && count("observedGeneration") >= int(self.deployment, &["metadata", "generation"]).unwrap_or(0)
    }

    pub(super) fn complete(&self) -> bool {
        self.done(self.deployment.get("status").unwrap_or(&Value::Null))
    }

    fn deadline(&self) -> Option<i64> {
        // The largest number stands for no deadline.
        int(self.deployment, &["spec", "progressDeadlineSeconds"]).filter(|seconds| *seconds != i64::from(i32::MAX))
    }

    /// Writes the status when it changed. `rolling`: the turn moved a rollout on, so its progress is judged.
    pub(super) fn sync_status(&mut self, rolling: bool) {
        let mut status = self.counts();
        if self.deadline().is_none() {
            remove_condition(&mut status, "Progressing");
        } else {
            self.paused(&mut status);
            if rolling {
                self.progress(&mut status);
            }
        }
        if rolling {
            self.failures(&mut status);
        }
        if list(&status, &["conditions"]).is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("conditions");
        }
        if self.deployment.get("status") != Some(&status) {
            self.turn.call(Call::status(&DEPLOYMENT, self.deployment, status));
        } else if rolling {
            self.look_again(&status);
        }
    }

    /// Time that is spent paused must not count as lack of progress.
    fn paused(&self, status: &mut Value) {
        let reason = condition(self.conditions(), "Progressing").map_or("", |now| text(now, &["reason"])).to_owned();
        if reason == "ProgressDeadlineExceeded" {
            return;
        }
        let paused = flag(self.deployment, &["spec", "paused"]);
        let now = self.world.now;
        if paused && reason != "DeploymentPaused" {
            set_condition(status, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now);
        } else if !paused && reason == "DeploymentPaused" {
            set_condition(status, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now);
        }
    }

    fn progress(&self, status: &mut Value) {
        let now = self.world.now;
        let subject = |verb: &str| match &self.new {
            Some(new) => format!("ReplicaSet \"{}\" {verb}", new.name()),
            None => format!("Deployment \"{}\" {verb}", self.name()),
        };
        let before = condition(self.conditions(), "Progressing").cloned();
        if before.is_none()
            && let Some(new) = &self.new
        {
            let (reason, message) = if new.object().pointer("/metadata/uid").is_none() {
                ("NewReplicaSetCreated", format!("Created new replica set \"{}\"", new.name()))
            } else {
                ("FoundNewReplicaSet", format!("Found new replica set \"{}\"", new.name()))
            };
            set_condition(status, "Progressing", "True", reason, &message, now);
        }
        let reason = before.as_ref().map_or("", |before| text(before, &["reason"]));
        let count = |status: &Value, field: &str| int(status, &[field]).unwrap_or(0);
        let same = count(status, "replicas") == count(status, "updatedReplicas");
        if same && reason == "NewReplicaSetAvailable" {
            return;
        }
        let old = self.deployment.get("status").cloned().unwrap_or_default();
        let left = |status: &Value| count(status, "replicas") - count(status, "updatedReplicas");
        let grew = |field: &str| count(status, field) > count(&old, field);
        if self.done(status) {
            set_condition(status, "Progressing", "True", "NewReplicaSetAvailable", &subject("has successfully progressed."), now);
        } else if grew("updatedReplicas") || left(status) < left(&old) || grew("readyReplicas") || grew("availableReplicas") {
            // Progress is noted even when status and reason stay: the deadline counts from the last of it.
            let since = before
                .as_ref()
                .filter(|before| text(before, &["status"]) == "True")
                .map(|before| text(before, &["lastTransitionTime"]).to_owned());
            remove_condition(status, "Progressing");
            set_condition(status, "Progressing", "True", "ReplicaSetUpdated", &subject("is progressing."), now);
            if let Some(since) = since
                && let Some(condition) = status["conditions"].as_array_mut().and_then(|all| all.last_mut())
            {
                condition["lastTransitionTime"] = json!(since);
            }
        } else if self.timed_out(before.as_ref()) {
            set_condition(status, "Progressing", "False", "ProgressDeadlineExceeded", &subject("has timed out progressing."), now);
        }
    }

    /// When the deadline ends, counted from the last progress.
    fn end(&self, progressing: Option<&Value>) -> Option<Timestamp> {
        Some(time(progressing?, &["lastUpdateTime"])? + SignedDuration::from_secs(self.deadline()?))
    }

    fn timed_out(&self, progressing: Option<&Value>) -> bool {
        match progressing.map_or("", |condition| text(condition, &["reason"])) {
            "NewReplicaSetAvailable" => false,
            "ProgressDeadlineExceeded" => true,
            _ => self.end(progressing).is_some_and(|end| end < self.world.now),
        }
    }

    fn look_again(&mut self, status: &Value) {
        let progressing = condition(self.conditions(), "Progressing");
        let reason = progressing.map_or("", |condition| text(condition, &["reason"]));
        if self.done(status) || reason == "ProgressDeadlineExceeded" {
            return;
        }
        if let Some(end) = self.end(progressing) {
            self.turn.again_at(end + SignedDuration::from_secs(1), self.world.now);
        }
    }

    /// A set that cannot make its pods makes the Deployment say so.
    fn failures(&self, status: &mut Value) {
        let failure = |set: &Set| condition(list(set.object(), &["status", "conditions"]), "ReplicaFailure").cloned();
        let found = self.new.iter().chain(self.old.iter()).find_map(failure);
        match found {
            None => remove_condition(status, "ReplicaFailure"),
            Some(found) => {
                let field = |name: &str| text(&found, &[name]);
                set_condition(status, "ReplicaFailure", field("status"), field("reason"), field("message"), self.world.now);
            }
        }
        if at(status, &["conditions"]).is_none() {
            status["conditions"] = json!([]);
        }
    }
}
