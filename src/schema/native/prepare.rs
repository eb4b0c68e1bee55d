//! What a server does to built-in objects between decoding and validation: status, generation, derived fields.

use super::{get, text};
use crate::catalog::Resource;
use crate::fields::Set;
use serde_json::{Map, Value, json};

/// Kinds whose generation counts changes of spec.
fn counts(r: &Resource) -> bool {
    matches!(
        (r.group, r.plural),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
            | ("networking.k8s.io", "ingresses" | "networkpolicies" | "ingressclasses" | "servicecidrs" | "ipaddresses")
            | ("policy", "poddisruptionbudgets")
            | ("flowcontrol.apiserver.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("scheduling.k8s.io", _)
            | ("discovery.k8s.io", "endpointslices")
            | ("autoscaling", _)
            | ("resource.k8s.io", _)
            | ("", "pods" | "podtemplates" | "replicationcontrollers")
    ) && !matches!((r.group, r.plural), ("resource.k8s.io", "resourceclaims" | "resourceclaimtemplates") | ("networking.k8s.io", "servicecidrs" | "ipaddresses"))
}

/// Kinds whose whole body (not only spec) is the specification.
fn flat(r: &Resource) -> bool {
    matches!((r.group, r.plural), ("discovery.k8s.io", _) | ("scheduling.k8s.io", _) | ("", "podtemplates"))
        || (r.group == "admissionregistration.k8s.io" && r.plural.ends_with("webhookconfigurations"))
}

fn has_status(r: &Resource) -> bool {
    r.subresource("status").is_some()
}

fn put(o: &mut Value, field: &str, v: Option<Value>) {
    if let Some(m) = o.as_object_mut() {
        match v {
            Some(v) => m.insert(field.to_owned(), v),
            None => m.remove(field),
        };
    }
}

fn set_generation(o: &mut Value, n: i64) {
    if let Some(m) = o.get_mut("metadata").and_then(Value::as_object_mut) {
        m.insert("generation".into(), json!(n));
    }
}

/// The status a new object starts with.
fn first_status(r: &Resource) -> Value {
    match (r.group, r.plural) {
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "pods") => json!({"phase": "Pending"}),
        ("", "persistentvolumes" | "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("apps", "replicasets") | ("", "replicationcontrollers") => json!({"replicas": 0}),
        ("apps", "statefulsets") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets") => json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}),
        ("policy", "poddisruptionbudgets") => json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
        ("autoscaling", "horizontalpodautoscalers") if r.version == "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
        ("autoscaling", "horizontalpodautoscalers") => json!({"currentMetrics": null, "desiredReplicas": 0}),
        _ => json!({}),
    }
}

/// Before validation of a new object.
pub(crate) fn prepare_create(r: &Resource, o: &mut Value) {
    if r.plural == "customresourcedefinitions" {
        crd_status(o);
    } else if has_status(r) && !matches!((r.group, r.plural), ("", "nodes")) {
        put(o, "status", Some(first_status(r)));
    }
    if r.group == "storage.k8s.io" && r.plural == "volumeattachments" {
        put(o, "status", Some(json!({"attached": false})));
    }
    if counts(r) {
        set_generation(o, 1);
    }
    match (r.group, r.plural) {
        ("", "namespaces") => {
            let finalizers = o.pointer("/spec/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
            if !finalizers.iter().any(|f| f == "kubernetes") {
                let mut all = finalizers;
                all.push(json!("kubernetes"));
                put(o, "spec", Some(json!({"finalizers": all})));
            }
        }
        ("", "pods") => {
            let qos = qos_class(o);
            o["status"]["qosClass"] = json!(qos);
        }
        ("", "secrets") => write_only(o, "stringData"),
        ("batch", "jobs") => job_labels(o),
        ("apps", "daemonsets") => template_generation(o, 1),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            put(o, "status", Some(json!({})));
        }
        ("apiregistration.k8s.io", "apiservices") => put(o, "status", Some(json!({}))),
        _ => {}
    }
}

fn crd_status(o: &mut Value) {
    put(o, "status", Some(json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []})));
    crd_stored(o);
}

/// The version that is stored now joins those that were ever stored.
fn crd_stored(o: &mut Value) {
    let versions = o.pointer("/spec/versions").and_then(Value::as_array);
    let now = versions.into_iter().flatten().find(|v| get(v, "storage") == Some(&json!(true))).and_then(|v| v.get("name").cloned());
    if let (Some(now), Some(Value::Array(stored))) = (now, o.pointer_mut("/status/storedVersions"))
        && !stored.contains(&now)
    {
        stored.push(now);
    }
}

/// `stringData` is merged into `data` and never stored.
fn write_only(o: &mut Value, field: &str) {
    use base64::Engine;
    let Some(Value::Object(strings)) = o.as_object_mut().and_then(|m| m.remove(field)) else { return };
    if strings.is_empty() {
        return;
    }
    let data = &mut o["data"];
    if !data.is_object() {
        *data = json!({});
    }
    for (k, v) in strings {
        data[k] = json!(base64::engine::general_purpose::STANDARD.encode(v.as_str().unwrap_or_default()));
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// How often a DaemonSet's template changed, kept in an annotation.
fn template_generation(o: &mut Value, n: i64) {
    let Some(m) = o.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let a = m.entry("annotations").or_insert_with(|| json!({}));
    if a.is_null() {
        *a = json!({});
    }
    a[TEMPLATE_GENERATION] = json!(n.to_string());
}

/// Labels and selector that a server gives a Job which does not bring its own; needs the UID (set before).
fn job_labels(o: &mut Value) {
    if o.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let (name, uid) = (text(o, "/metadata/name").to_owned(), text(o, "/metadata/uid").to_owned());
    if uid.is_empty() {
        return;
    }
    let meta = &mut o["spec"]["template"]["metadata"];
    if !meta.is_object() {
        *meta = json!({});
    }
    if !meta["labels"].is_object() {
        meta["labels"] = json!({});
    }
    for (k, v) in [("batch.kubernetes.io/controller-uid", &uid), ("batch.kubernetes.io/job-name", &name), ("controller-uid", &uid), ("job-name", &name)] {
        meta["labels"][k] = json!(v);
    }
    let labels = meta["labels"].clone();
    if o["metadata"].get("labels").is_none_or(|l| l.as_object().is_none_or(Map::is_empty)) {
        o["metadata"]["labels"] = labels;
    }
    if !o["spec"]["selector"].is_object() {
        o["spec"]["selector"] = json!({});
    }
    if !o["spec"]["selector"]["matchLabels"].is_object() {
        o["spec"]["selector"]["matchLabels"] = json!({});
    }
    let labels = &mut o["spec"]["selector"]["matchLabels"];
    if labels.get("batch.kubernetes.io/controller-uid").is_none() {
        labels["batch.kubernetes.io/controller-uid"] = json!(uid);
    }
}

/// Quality of service: all limits equal requests, some set, none set.
pub(crate) fn qos_class(o: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    let lists = [super::list(o, "/spec/containers"), super::list(o, "/spec/initContainers")];
    for c in lists.into_iter().flatten() {
        for r in ["cpu", "memory"] {
            let get = |side: &str| c.pointer(&format!("/resources/{side}/{r}")).and_then(Value::as_str).and_then(|t| crate::Quantity::parse(t).ok()).filter(|q| q.sign() > 0);
            let (limit, request) = (get("limits"), get("requests"));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some_and(|l| request.is_none_or(|q| q.nanos() == l.nanos()));
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Before validation of an update.
pub(crate) fn prepare_update(r: &Resource, o: &mut Value, old: &Value, subresource: Option<&str>) {
    let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
    match generation {
        Some(g) => set_generation(o, g),
        None => {
            if let Some(m) = o.get_mut("metadata").and_then(Value::as_object_mut) {
                m.remove("generation");
            }
        }
    }
    match subresource {
        Some("status") => {
            // Only status changes; metadata follows but for what only the main endpoint may write.
            let body: Vec<String> = old.as_object().into_iter().flatten().map(|(k, _)| k.clone()).chain(o.as_object().into_iter().flatten().map(|(k, _)| k.clone())).collect();
            for k in body {
                if !matches!(k.as_str(), "apiVersion" | "kind" | "metadata" | "status") {
                    put(o, &k, old.get(&k).cloned());
                }
            }
            for k in kept_by_status(r) {
                let v = old.pointer(&format!("/metadata/{k}")).cloned();
                if let Some(m) = o.get_mut("metadata") {
                    put(m, k, v);
                }
            }
        }
        Some(k @ ("resize" | "ephemeralcontainers")) => {
            only_containers(o, old, k);
            if specification(r, o) != specification(r, old) {
                set_generation(o, generation.unwrap_or(0) + 1);
            }
        }
        Some(_) => {}
        None => {
            if has_status(r) {
                put(o, "status", old.get("status").cloned());
            }
            if r.plural == "customresourcedefinitions" {
                crd_stored(o);
            }
            if r.group.is_empty() && r.plural == "secrets" {
                write_only(o, "stringData");
            }
            if r.group.is_empty() && r.plural == "namespaces" {
                put(o, "spec", old.get("spec").cloned());
            }
            if r.group == "apps" && r.plural == "daemonsets" {
                let was = super::map(old, "/metadata/annotations").get(TEMPLATE_GENERATION).and_then(Value::as_str).and_then(|n| n.parse().ok()).unwrap_or(1);
                let changed = o.pointer("/spec/template") != old.pointer("/spec/template");
                template_generation(o, was + i64::from(changed));
            }
            // What was asked to be signed stays what it was; a change is dropped, not refused.
            if r.group == "certificates.k8s.io" && r.plural == "certificatesigningrequests" {
                put(o, "spec", old.get("spec").cloned());
            }
            if r.group.is_empty() && r.plural == "services" {
                service_update(o, old);
            }
            if counts(r) && specification(r, o) != specification(r, old) {
                set_generation(o, generation.unwrap_or(0) + 1);
            }
        }
    }
}

/// Of what came through a subresource of a Pod, only its own part counts: sizes, or ephemeral containers.
fn only_containers(o: &mut Value, old: &Value, subresource: &str) {
    let given = std::mem::replace(o, old.clone());
    for k in ["managedFields", "resourceVersion"] {
        let v = given.pointer(&format!("/metadata/{k}")).cloned();
        if let Some(m) = o.get_mut("metadata") {
            put(m, k, v);
        }
    }
    if subresource == "ephemeralcontainers" {
        let v = given.pointer("/spec/ephemeralContainers").cloned();
        if let Some(s) = o.get_mut("spec") {
            put(s, "ephemeralContainers", v);
        }
        return;
    }
    for list in ["/spec/containers", "/spec/initContainers"] {
        let given = super::list(&given, list);
        for c in o.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(twin) = given.iter().find(|g| text(g, "/name") == text(c, "/name")) else { continue };
            for k in ["resources", "resizePolicy"] {
                put(c, k, twin.get(k).cloned());
            }
        }
    }
}

/// Metadata that status updates of a kind cannot write.
fn kept_by_status(r: &Resource) -> &'static [&'static str] {
    match (r.group, r.plural) {
        ("", "pods") => &["deletionTimestamp", "ownerReferences"],
        ("apps", "deployments") => &["labels"],
        ("apiextensions.k8s.io", _) => &["labels", "annotations", "finalizers", "ownerReferences"],
        _ => &[],
    }
}

fn specification(r: &Resource, o: &Value) -> Value {
    let mut m: Map<String, Value> = o.as_object().cloned().unwrap_or_default();
    m.remove("metadata");
    m.remove("status");
    if !flat(r) {
        m.retain(|k, _| k == "spec");
    }
    Value::Object(m)
}

/// What depends on a Service's type: an update keeps what was allocated, since it cannot know it, and drops what its new type has
/// no use for, unless it says something new about it.
fn service_update(o: &mut Value, old: &Value) {
    let (now, was) = (ServiceNeeds::of(o), ServiceNeeds::of(old));
    let Some(spec) = o.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let before = super::map(old, "/spec");
    let given = |spec: &Map<String, Value>, k: &str| spec.get(k).is_some_and(|v| !v.is_null() && v != "" && v != 0);
    let mut both = |needed: bool, needs: bool, fields: &[&str]| {
        for k in fields.iter().filter(|_| needed) {
            if needs {
                if let Some(v) = before.get(*k).filter(|_| !given(spec, k)) {
                    spec.insert((*k).to_owned(), v.clone());
                }
            } else if spec.get(*k) == before.get(*k) {
                spec.remove(*k);
            }
        }
    };
    both(was.address, now.address, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    both(was.health_port, now.health_port, &["healthCheckNodePort"]);
    // Nothing to keep of these: who leaves them out means it.
    for (needed, needs, field) in [
        (was.traffic, now.traffic, "externalTrafficPolicy"),
        (was.address, now.address, "internalTrafficPolicy"),
        (was.balancer, now.balancer, "allocateLoadBalancerNodePorts"),
        (was.balancer, now.balancer, "loadBalancerClass"),
    ] {
        both(needed && !needs, false, &[field]);
    }
    if was.ports && !now.ports && numbers(spec) == numbers(before) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
            port.remove("nodePort");
        }
    }
}

/// The node ports of a Service.
fn numbers(spec: &Map<String, Value>) -> std::collections::BTreeSet<i64> {
    let ports = spec.get("ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(|p| p.get("nodePort").and_then(Value::as_i64)).filter(|n| *n != 0).collect()
}

/// What a Service of a type needs.
struct ServiceNeeds {
    address: bool,
    ports: bool,
    health_port: bool,
    traffic: bool,
    balancer: bool,
}

impl ServiceNeeds {
    fn of(o: &Value) -> Self {
        let kind = text(o, "/spec/type");
        let balancer = kind == "LoadBalancer";
        let ports = balancer || kind == "NodePort";
        Self {
            address: ports || matches!(kind, "ClusterIP" | ""),
            ports,
            health_port: balancer && text(o, "/spec/externalTrafficPolicy") == "Local",
            traffic: ports || !super::list(o, "/spec/externalIPs").is_empty(),
            balancer,
        }
    }
}

/// Fields that writes through an endpoint cannot own.
pub(crate) fn reset_fields(r: &Resource, subresource: Option<&str>) -> Set {
    let status = has_status(r) && !matches!((r.group, r.plural), ("", "nodes"));
    match subresource {
        Some("status") => match (r.group, r.plural) {
            ("", "pods") => Set::of_fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
            ("apps", "deployments") => Set::of_fields(&[&["spec"], &["metadata", "labels"]]),
            ("apiextensions.k8s.io", _) => Set::of_fields(&[&["metadata", "deletionTimestamp"], &["metadata", "labels"], &["metadata", "annotations"], &["metadata", "finalizers"], &["metadata", "ownerReferences"], &["spec"]]),
            _ => Set::of_fields(&[&["spec"]]),
        },
        Some(_) => Set::new(),
        None if status => Set::of_fields(&[&["status"]]),
        None => Set::new(),
    }
}
