//! Pod security of namespaces: their labels say which standard Pods must meet, and of which one people are only warned.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::pod_security::{Level, Standard, Version, Violation, judge};
use serde_json::{Value, json};

use crate::admission::{Admission, Operation, Request};
use crate::object::{self, at};
use crate::status::{ApiError, Cause};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// Pods of a namespace that are looked at when its label changes.
const MOST_PODS: usize = 3000;

struct Step;

/// The step of admission.
pub(crate) fn step() -> Arc<dyn Admission> {
    Arc::new(Step)
}

/// What the labels of a namespace ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    enforce: Standard,
    warn: Standard,
}

impl Policy {
    /// Reads labels; what they say wrongly was refused when they were written, and counts as the strictest here.
    fn of(namespace: &Value) -> Self {
        let label = |name: &str| at(namespace, &["metadata", "labels"]).and_then(|l| l.get(format!("{PREFIX}{name}"))).and_then(Value::as_str);
        let standard = |mode: &str| {
            let level = label(mode).map(|text| Level::parse(text).unwrap_or(Level::Restricted));
            let version = label(&format!("{mode}-version")).and_then(Version::parse).unwrap_or(Version::LATEST);
            level.map(|level| Standard { level, version })
        };
        let nothing = Standard { level: Level::Privileged, version: Version::LATEST };
        let enforce = standard("enforce").unwrap_or(nothing);
        Self { enforce, warn: standard("warn").unwrap_or(enforce) }
    }
}

fn told(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The template of Pods in an object that makes Pods.
fn template<'a>(request: &Request<'_>, object: &'a Value) -> Option<&'a Value> {
    match (request.resource.group.as_str(), request.resource.plural.as_str()) {
        ("", "podtemplates") => object.get("template"),
        ("", "replicationcontrollers") | ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") | ("batch", "jobs") => at(object, &["spec", "template"]),
        ("batch", "cronjobs") => at(object, &["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

/// Whether an update of a Pod changes what it does.
fn matters(old: &Value, new: &Value) -> bool {
    let mut fields = ["containers", "initContainers", "ephemeralContainers"].into_iter();
    fields.any(|field| at(old, &["spec", field]) != at(new, &["spec", field])) || at(old, &["metadata", "annotations"]) != at(new, &["metadata", "annotations"])
}

impl Admission for Step {
    fn validate(&self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        if request.operation == Operation::Delete {
            return Ok(Vec::new());
        }
        if request.resource.is("", "namespaces") {
            return if request.subresource.is_empty() { namespace(request, object) } else { Ok(Vec::new()) };
        }
        let is_pod = request.resource.is("", "pods") && matches!(request.subresource, "" | "ephemeralcontainers" | "resize");
        let pod = if is_pod {
            (request.old.is_none_or(|old| matters(old, object))).then_some(object)
        } else if request.subresource.is_empty() {
            template(request, object)
        } else {
            None
        };
        let Some(pod) = pod else { return Ok(Vec::new()) };
        let Some(entry) = request.core.store.latest("/namespaces", request.namespace) else { return Ok(Vec::new()) };
        let policy = Policy::of(&object::decode(&entry.value));
        if is_pod {
            let violations = judge(policy.enforce, pod);
            if !violations.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, told(&violations));
                return Err(ApiError::forbidden("", "pods", request.name, &why));
            }
        }
        let violations = judge(policy.warn, pod);
        Ok(if violations.is_empty() { Vec::new() } else { vec![format!("would violate PodSecurity \"{}\": {}", policy.warn, told(&violations))] })
    }
}

/// Labels of a namespace must make sense; of Pods that would not be let in any more people are told.
fn namespace(request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
    let faults = faults(object);
    if !faults.is_empty() && request.old.is_none_or(|old| at(old, &["metadata", "labels"]) != at(object, &["metadata", "labels"])) {
        return Err(ApiError::invalid("", "Namespace", request.name, faults));
    }
    let Some(old) = request.old else { return Ok(Vec::new()) };
    let (now, was) = (Policy::of(object).enforce, Policy::of(old).enforce);
    let looser = now.version == was.version && now.level <= was.level;
    if now == was || now.level == Level::Privileged || looser {
        return Ok(Vec::new());
    }
    // Pods that do the same are told of together.
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut seen, mut order) = (0, Vec::new());
    request.core.store.scan("/pods", &format!("{}/", request.name), &mut |entry| {
        seen += 1;
        if seen > MOST_PODS {
            return;
        }
        let pod = object::decode(&entry.value);
        let violations = judge(now, &pod);
        if violations.is_empty() {
            return;
        }
        let what = violations.iter().map(|v| v.what.as_str()).collect::<Vec<_>>().join(", ");
        if !groups.contains_key(&what) {
            order.push(what.clone());
        }
        groups.entry(what).or_default().push(object::name(&pod).to_owned());
    });
    if order.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = vec![format!("existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{now}\"", request.name)];
    if seen > MOST_PODS {
        out.push(format!("new PodSecurity enforce level only checked against the first {MOST_PODS} of {seen} existing pods"));
    }
    out.extend(order.iter().filter_map(|what| {
        let names = groups.get(what)?;
        let others = match names.len() {
            1 => String::new(),
            2 => " (and 1 other pod)".to_owned(),
            more => format!(" (and {} other pods)", more - 1),
        };
        Some(format!("{}{others}: {what}", names.first()?))
    }));
    Ok(out)
}

/// What the labels say wrongly.
fn faults(namespace: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        for (label, why) in [(mode.to_owned(), "must be one of privileged, baseline, restricted"), (format!("{mode}-version"), "must be \"latest\" or \"v1.x\"")] {
            let key = format!("{PREFIX}{label}");
            let Some(given) = at(namespace, &["metadata", "labels"]).and_then(|l| l.get(&key)) else { continue };
            let given = given.as_str().unwrap_or_default();
            let known = if label == mode { Level::parse(given).is_some() } else { Version::parse(given).is_some() };
            if !known {
                out.push(crate::rest::fault("FieldValueInvalid", &format!("metadata.labels[{key}]"), format!("Invalid value: {}: {why}", json!(given))));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tests::basics::Bench;

    fn labelled(name: &str, labels: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    }

    fn pod(name: &str, privileged: bool) -> Value {
        let context = if privileged { json!({"privileged": true}) } else { json!({}) };
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "i", "securityContext": context}]}})
    }

    async fn warnings(bench: &Bench, method: http::Method, path: &str, value: &Value) -> (u16, Vec<String>) {
        let kind = if method == http::Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(crate::body::full(serde_json::to_vec(value).unwrap())).unwrap();
        let response = bench.0.request(crate::Identity::master("admin"), request).await;
        let all = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().replace("\\\"", "\"")).collect();
        (response.status().as_u16(), all)
    }

    const SOFT: &str = "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

    #[tokio::test]
    async fn a_namespace_says_what_its_pods_may_do() {
        let bench = Bench::new().await;
        bench.post("/api/v1/namespaces", labelled("b", &json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}))).await;
        let (code, refused) = bench.post("/api/v1/namespaces/b/pods", pod("p", true)).await;
        let said = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"a\" must not set securityContext.privileged=true)";
        assert_eq!((code, refused["message"].as_str()), (403, Some(said)));
        let would = format!("299 - \"would violate PodSecurity \"restricted:latest\": {SOFT}\"");
        assert_eq!(warnings(&bench, http::Method::POST, "/api/v1/namespaces/b/pods", &pod("p", false)).await, (201, vec![would.clone()]));
        // What makes Pods is only warned of; so is it where Pods themselves are refused.
        bench.post("/api/v1/namespaces", labelled("r", &json!({"pod-security.kubernetes.io/enforce": "restricted"}))).await;
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("p", false)["spec"]});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
        assert_eq!(warnings(&bench, http::Method::POST, "/apis/apps/v1/namespaces/r/deployments", &deployment).await, (201, vec![would]));
        assert_eq!(bench.post("/api/v1/namespaces/r/pods", pod("p", false)).await.0, 403);
        // Nothing is asked of a Pod that is there already, unless it changes what it does.
        bench.merge("/api/v1/namespaces/b", json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})).await;
        assert_eq!(bench.merge("/api/v1/namespaces/b/pods/p", json!({"metadata": {"labels": {"x": "y"}}})).await.0, 200);
        let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}});
        assert_eq!(bench.merge("/api/v1/namespaces/b/pods/p/ephemeralcontainers", debug).await.0, 403);
    }

    #[tokio::test]
    async fn labels_of_namespaces_are_checked_and_tell_of_pods() {
        let bench = Bench::new().await;
        for (labels, said) in [
            (json!({"pod-security.kubernetes.io/enforce": "x"}), "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, baseline, restricted"),
            (json!({"pod-security.kubernetes.io/warn-version": "x"}), "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"x\": must be \"latest\" or \"v1.x\""),
        ] {
            let (code, refused) = bench.post("/api/v1/namespaces", labelled("n", &labels)).await;
            assert_eq!((code, refused["message"].as_str()), (422, Some(&*format!("Namespace \"n\" is invalid: {said}"))));
        }
        bench.post("/api/v1/namespaces", labelled("n", &json!({}))).await;
        for (name, privileged) in [("p1", false), ("p2", false), ("q", true)] {
            assert_eq!(bench.post("/api/v1/namespaces/n/pods", pod(name, privileged)).await.0, 201);
        }
        let change = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        let soft = "allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile";
        let (code, told) = warnings(&bench, http::Method::PATCH, "/api/v1/namespaces/n", &change).await;
        let expected = [
            "299 - \"existing pods in namespace \"n\" violate the new PodSecurity enforce level \"restricted:latest\"\"".to_owned(),
            format!("299 - \"p1 (and 1 other pod): {soft}\""),
            format!("299 - \"q: privileged, {soft}\""),
        ];
        assert_eq!((code, told), (200, expected.to_vec()));
    }
}
