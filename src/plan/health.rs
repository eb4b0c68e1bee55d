//! Is an object healthy: what kstatus and Argo CD would say, per kind, from its spec and status alone.

use serde_json::Value;

/// How an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It does what it should.
    Healthy,
    /// It is on its way.
    Progressing,
    /// It does not get there by itself.
    Degraded,
}

impl Health {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
        }
    }
}

/// Health with the reason for people; empty when healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub health: Health,
    /// Why.
    pub message: String,
}

impl Finding {
    fn healthy() -> Self {
        Self { health: Health::Healthy, message: String::new() }
    }
    fn progressing(message: impl Into<String>) -> Self {
        Self { health: Health::Progressing, message: message.into() }
    }
    fn degraded(message: impl Into<String>) -> Self {
        Self { health: Health::Degraded, message: message.into() }
    }
}

/// Assesses an object. `object` needs apiVersion, kind, metadata.generation, spec and status; unknown kinds are judged by
/// their conditions, and are healthy without any.
pub fn assess(object: &Value) -> Finding {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Finding::progressing("is being deleted");
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if let Some(behind) = behind(object) {
        return behind;
    }
    match (group, kind) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set(object),
        ("batch", "Job") => job(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "Service") => service(object),
        ("", "Namespace") => phase(object, &["Active", ""]),
        ("networking.k8s.io", "Ingress") => Finding::healthy(),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("policy", "PodDisruptionBudget") | ("autoscaling", "HorizontalPodAutoscaler") | ("batch", "CronJob") => Finding::healthy(),
        ("apiregistration.k8s.io", "APIService") => required(object, "Available"),
        _ => conditions(object),
    }
}

/// The controller of the object has not seen its newest generation.
fn behind(object: &Value) -> Option<Finding> {
    let generation = object["metadata"]["generation"].as_i64()?;
    let observed = object["status"]["observedGeneration"].as_i64()?;
    (observed < generation).then(|| Finding::progressing(format!("generation {generation} is not observed yet")))
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn text(condition: &Value) -> String {
    let (reason, message) = (condition["reason"].as_str().unwrap_or_default(), condition["message"].as_str().unwrap_or_default());
    match (reason.is_empty(), message.is_empty()) {
        (_, false) if reason.is_empty() => message.to_owned(),
        (_, false) => format!("{reason}: {message}"),
        _ => reason.to_owned(),
    }
}

fn number(object: &Value, path: [&str; 2], absent: i64) -> i64 {
    object[path[0]][path[1]].as_i64().unwrap_or(absent)
}

fn deployment(object: &Value) -> Finding {
    let wanted = number(object, ["spec", "replicas"], 1);
    if object["spec"]["paused"] == true {
        return Finding::progressing("is paused");
    }
    if object["status"]["observedGeneration"].is_null() {
        return Finding::progressing("is not observed yet");
    }
    if let Some(progress) = condition(object, "Progressing")
        && progress["status"] == "False"
        && progress["reason"] == "ProgressDeadlineExceeded"
    {
        return Finding::degraded(text(progress));
    }
    if let Some(failure) = condition(object, "ReplicaFailure")
        && failure["status"] == "True"
    {
        return Finding::degraded(text(failure));
    }
    let updated = number(object, ["status", "updatedReplicas"], 0);
    let total = number(object, ["status", "replicas"], 0);
    let available = number(object, ["status", "availableReplicas"], 0);
    if updated < wanted {
        return Finding::progressing(format!("{updated} of {wanted} replicas are updated"));
    }
    if total > updated {
        return Finding::progressing(format!("{} old replicas are left", total - updated));
    }
    if available < wanted {
        return Finding::progressing(format!("{available} of {wanted} replicas are available"));
    }
    Finding::healthy()
}

fn stateful_set(object: &Value) -> Finding {
    let wanted = number(object, ["spec", "replicas"], 1);
    if object["status"]["observedGeneration"].is_null() {
        return Finding::progressing("is not observed yet");
    }
    let ready = number(object, ["status", "readyReplicas"], 0);
    if ready < wanted {
        return Finding::progressing(format!("{ready} of {wanted} replicas are ready"));
    }
    if object["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Finding::healthy();
    }
    let partition = object["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    let updated = number(object, ["status", "updatedReplicas"], 0);
    if partition > 0 {
        let due = (wanted - partition).max(0);
        if updated < due {
            return Finding::progressing(format!("{updated} of {due} replicas above the partition are updated"));
        }
        return Finding::healthy();
    }
    if object["status"]["updateRevision"] != object["status"]["currentRevision"] {
        return Finding::progressing(format!("{updated} of {wanted} replicas are updated"));
    }
    Finding::healthy()
}

fn daemon_set(object: &Value) -> Finding {
    if object["status"]["observedGeneration"].is_null() {
        return Finding::progressing("is not observed yet");
    }
    let wanted = number(object, ["status", "desiredNumberScheduled"], 0);
    let updated = number(object, ["status", "updatedNumberScheduled"], 0);
    let available = number(object, ["status", "numberAvailable"], 0);
    if object["spec"]["updateStrategy"]["type"] != "OnDelete" && updated < wanted {
        return Finding::progressing(format!("{updated} of {wanted} nodes have the update"));
    }
    if available < wanted {
        return Finding::progressing(format!("{available} of {wanted} nodes are available"));
    }
    Finding::healthy()
}

fn replica_set(object: &Value) -> Finding {
    if let Some(failure) = condition(object, "ReplicaFailure")
        && failure["status"] == "True"
    {
        return Finding::degraded(text(failure));
    }
    let wanted = number(object, ["spec", "replicas"], 1);
    let available = number(object, ["status", "availableReplicas"], 0);
    if available < wanted {
        return Finding::progressing(format!("{available} of {wanted} replicas are available"));
    }
    Finding::healthy()
}

fn job(object: &Value) -> Finding {
    if let Some(failed) = condition(object, "Failed")
        && failed["status"] == "True"
    {
        return Finding::degraded(text(failed));
    }
    if condition(object, "Complete").is_some_and(|c| c["status"] == "True") {
        return Finding::healthy();
    }
    if condition(object, "Suspended").is_some_and(|c| c["status"] == "True") {
        return Finding::progressing("is suspended");
    }
    let (active, done) = (number(object, ["status", "active"], 0), number(object, ["status", "succeeded"], 0));
    Finding::progressing(format!("{active} pods run, {done} are done"))
}

/// Reasons of a waiting container from which it does not recover without a change.
const STUCK: [&str; 7] =
    ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"];

fn pod(object: &Value) -> Finding {
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in object["status"][list].as_array().into_iter().flatten() {
            let waiting = &container["state"]["waiting"];
            if waiting["reason"].as_str().is_some_and(|reason| STUCK.contains(&reason)) {
                return Finding::degraded(format!("container {}: {}", container["name"].as_str().unwrap_or_default(), text(waiting)));
            }
        }
    }
    match object["status"]["phase"].as_str().unwrap_or("Pending") {
        "Succeeded" => Finding::healthy(),
        "Failed" => Finding::degraded(text(&object["status"])),
        "Running" => match condition(object, "Ready") {
            Some(ready) if ready["status"] == "True" => Finding::healthy(),
            Some(ready) => Finding::progressing(text(ready)),
            None => Finding::progressing("is not ready yet"),
        },
        _ => match condition(object, "PodScheduled") {
            Some(scheduled) if scheduled["status"] == "False" => Finding::progressing(text(scheduled)),
            _ => Finding::progressing("is pending"),
        },
    }
}

fn phase(object: &Value, healthy: &[&str]) -> Finding {
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    if healthy.contains(&phase) { Finding::healthy() } else { Finding::progressing(format!("phase {phase}")) }
}

fn claim(object: &Value) -> Finding {
    match object["status"]["phase"].as_str().unwrap_or_default() {
        "Bound" => Finding::healthy(),
        "Lost" => Finding::degraded("its volume is lost"),
        _ => Finding::progressing("is not bound"),
    }
}

fn service(object: &Value) -> Finding {
    let waits = object["spec"]["type"] == "LoadBalancer"
        && object["status"]["loadBalancer"]["ingress"].as_array().is_none_or(Vec::is_empty);
    if waits { Finding::progressing("has no load balancer address yet") } else { Finding::healthy() }
}

fn definition(object: &Value) -> Finding {
    if let Some(names) = condition(object, "NamesAccepted")
        && names["status"] == "False"
    {
        return Finding::degraded(text(names));
    }
    required(object, "Established")
}

fn required(object: &Value, kind: &str) -> Finding {
    match condition(object, kind) {
        Some(found) if found["status"] == "True" => Finding::healthy(),
        Some(found) if found["status"] == "False" => Finding::degraded(text(found)),
        _ => Finding::progressing(format!("is not {kind} yet")),
    }
}

/// kstatus' rules for kinds that nobody knows: Stalled, Reconciling, Ready (or Available, Established).
fn conditions(object: &Value) -> Finding {
    if let Some(stalled) = condition(object, "Stalled")
        && stalled["status"] == "True"
    {
        return Finding::degraded(text(stalled));
    }
    if let Some(working) = condition(object, "Reconciling")
        && working["status"] == "True"
    {
        return Finding::progressing(text(working));
    }
    for kind in ["Ready", "Available"] {
        if let Some(found) = condition(object, kind) {
            return match found["status"].as_str() {
                Some("True") => Finding::healthy(),
                Some("False") => Finding::degraded(text(found)),
                _ => Finding::progressing(text(found)),
            };
        }
    }
    Finding::healthy()
}

/// The worst of several findings, with its message; healthy when there is none.
pub fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Finding {
    let mut out = Finding::healthy();
    for finding in findings {
        if finding.health > out.health {
            out = finding.clone();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, health: Health, words: &str) {
        let found = assess(&object);
        assert_eq!(found.health, health, "{object}: {}", found.message);
        assert!(found.message.contains(words), "{:?} should say {words:?}", found.message);
    }

    fn deployment(status: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status})
    }

    #[test]
    fn deployments() {
        check(deployment(json!({})), Health::Progressing, "not observed");
        check(deployment(json!({"observedGeneration": 1})), Health::Progressing, "generation 2");
        check(deployment(json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 3})), Health::Progressing, "1 of 3");
        check(deployment(json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4})), Health::Progressing, "1 old");
        check(deployment(json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2})), Health::Progressing, "2 of 3");
        check(deployment(json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3})), Health::Healthy, "");
        check(
            deployment(json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long"}]})),
            Health::Degraded,
            "too long",
        );
    }

    #[test]
    fn other_workloads() {
        let sts = |status: Value| json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": status});
        check(sts(json!({"observedGeneration": 1, "readyReplicas": 1})), Health::Progressing, "1 of 2");
        check(sts(json!({"observedGeneration": 1, "readyReplicas": 2, "updateRevision": "b", "currentRevision": "a", "updatedReplicas": 1})), Health::Progressing, "1 of 2");
        check(sts(json!({"observedGeneration": 1, "readyReplicas": 2, "updateRevision": "a", "currentRevision": "a"})), Health::Healthy, "");
        let ds = |status: Value| json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "status": status});
        check(ds(json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1})), Health::Progressing, "1 of 2");
        check(ds(json!({"observedGeneration": 1, "desiredNumberScheduled": 0})), Health::Healthy, "");
        let job = |status: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "status": status});
        check(job(json!({"active": 1})), Health::Progressing, "1 pods");
        check(job(json!({"conditions": [{"type": "Complete", "status": "True"}]})), Health::Healthy, "");
        check(job(json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]})), Health::Degraded, "BackoffLimitExceeded");
    }

    #[test]
    fn pods_and_the_rest() {
        let pod = |status: Value| json!({"apiVersion": "v1", "kind": "Pod", "status": status});
        check(pod(json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]})), Health::Degraded, "ImagePullBackOff");
        check(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})), Health::Healthy, "");
        check(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}), Health::Progressing, "not bound");
        check(json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer"}}), Health::Progressing, "address");
        check(json!({"apiVersion": "v1", "kind": "ConfigMap"}), Health::Healthy, "");
        check(json!({"apiVersion": "a/v1", "kind": "Gizmo", "status": {"conditions": [{"type": "Ready", "status": "False", "message": "broken"}]}}), Health::Degraded, "broken");
        check(json!({"apiVersion": "a/v1", "kind": "Gizmo", "status": {"conditions": [{"type": "Reconciling", "status": "True", "reason": "Busy"}]}}), Health::Progressing, "Busy");
        check(json!({"apiVersion": "a/v1", "kind": "Gizmo", "metadata": {"deletionTimestamp": "now"}}), Health::Progressing, "deleted");
        check(json!({}), Health::Healthy, "");
    }
}
