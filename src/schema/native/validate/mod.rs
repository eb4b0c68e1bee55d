//! Validation of built-in kinds, with the field faults of a real server.

mod access;
mod autoscaler;
mod core;
mod crd;
mod job_rules;
mod network;
mod pod;
mod pod_settings;
mod pod_update;
mod service;
mod storage;
mod workload;

use super::meta::{self, NameRule};
use super::{get, list, map, text};
use crate::catalog::Resource;
use crate::fault::{Fault, Path};
use crate::quantity::Quantity;
use crate::text as words;
use serde_json::{Map, Value, json};

pub(super) type Faults = Vec<Fault>;

fn name_rule(r: &Resource) -> NameRule {
    match (r.group, r.plural) {
        ("", "namespaces") => NameRule::Label,
        // Since 1.34 Service names may begin with a digit.
        ("", "services") => NameRule::Label,
        ("apps", "statefulsets") => NameRule::Label,
        // The name of an IPv6 address has colons in it.
        ("rbac.authorization.k8s.io", _) | ("networking.k8s.io", "ipaddresses") => NameRule::PathSegment,
        ("flowcontrol.apiserver.k8s.io", _) => NameRule::Subdomain,
        _ => NameRule::Subdomain,
    }
}

/// Faults of a new object.
pub(crate) fn validate_create(r: &Resource, object: &Value) -> Faults {
    if !r.stored() {
        return Vec::new();
    }
    let mut out = match (r.group, r.plural) {
        // Events of either group are checked on their own terms.
        ("" | "events.k8s.io", "events") => meta::validate(object, true, NameRule::Subdomain),
        ("certificates.k8s.io", "clustertrustbundles") => meta::validate(object, false, NameRule::PathSegment),
        _ => meta::validate(object, r.namespaced, name_rule(r)),
    };
    finalizers(r, object, &mut out);
    body(r, object, None, &mut out);
    out
}

/// Finalizers of core kinds are standard ones or have a domain.
fn finalizers(r: &Resource, o: &Value, out: &mut Faults) {
    if !matches!(r.group, "" | "apps" | "batch" | "networking.k8s.io" | "autoscaling" | "policy" | "rbac.authorization.k8s.io" | "storage.k8s.io") {
        return;
    }
    for (i, f) in list(o, "/metadata/finalizers").iter().enumerate() {
        let f = f.as_str().unwrap_or_default();
        if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
            out.push(Fault::invalid(&Path::new("metadata").child("finalizers").index(i), f, "name is neither a standard finalizer name nor is it fully qualified"));
        }
    }
}

/// Faults of an update.
pub(crate) fn validate_update(r: &Resource, object: &Value, old: &Value, subresource: Option<&str>) -> Faults {
    let mut out = meta::validate_update(object, old);
    match subresource {
        None => {
            body(r, object, Some(old), &mut out);
            changes(r, object, old, &mut out);
        }
        Some("status") => status(r, object, &mut out),
        Some("resize") => pod_update::resize(object, old, &mut out),
        Some("ephemeralcontainers") => pod_update::ephemeral(object, old, &mut out),
        Some(_) => {}
    }
    out
}

fn body(r: &Resource, o: &Value, old: Option<&Value>, out: &mut Faults) {
    match (r.group, r.plural) {
        ("", "pods") => pod::pod(o, old, out),
        ("", "podtemplates") => pod::template(&o["template"], &Path::new("template"), out),
        ("", "replicationcontrollers") => workload::replication_controller(o, out),
        ("apps", "deployments") => workload::deployment(o, out),
        ("apps", "replicasets") => workload::replica_set(o, out),
        ("apps", "statefulsets") => workload::stateful_set(o, out),
        ("apps", "daemonsets") => workload::daemon_set(o, out),
        ("apps", "controllerrevisions") => workload::controller_revision(o, old, out),
        ("batch", "jobs") => workload::job(o, &Path::new("spec"), old.is_none(), out),
        ("batch", "cronjobs") => workload::cron_job(o, out),
        ("", "services") => service::service(o, out),
        ("", "configmaps") => core::config_map(o, out),
        ("", "secrets") => core::secret(o, out),
        ("", "endpoints") => core::endpoints(o, out),
        ("", "events") => core::event(o, "involvedObject", out),
        ("events.k8s.io", "events") => core::event(o, "regarding", out),
        ("", "resourcequotas") => core::resource_quota(o, out),
        ("", "limitranges") => core::limit_range(o, out),
        ("", "nodes") => core::node(o, out),
        ("", "persistentvolumes") => storage::persistent_volume(o, out),
        ("", "persistentvolumeclaims") => storage::claim(&o["spec"], &Path::new("spec"), out),
        ("storage.k8s.io", "storageclasses") => storage::storage_class(o, out),
        ("storage.k8s.io", "csidrivers") => storage::csi_driver(o, out),
        ("scheduling.k8s.io", "priorityclasses") => core::priority_class(o, out),
        ("coordination.k8s.io", "leases") => core::lease(o, out),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => access::role(o, r.namespaced, out),
        ("rbac.authorization.k8s.io", _) => access::binding(o, r.namespaced, out),
        ("networking.k8s.io", "ingresses") => network::ingress(o, out),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(o, out),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(o, out),
        ("networking.k8s.io", "ipaddresses") => network::ip_address(o, out),
        ("networking.k8s.io", "servicecidrs") => network::service_cidr(o, out),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(o, out),
        ("policy", "poddisruptionbudgets") => workload::disruption_budget(o, out),
        ("autoscaling", "horizontalpodautoscalers") => autoscaler::autoscaler(o, r.version, out),
        ("apiextensions.k8s.io", _) => crd::definition(o, out),
        ("apiregistration.k8s.io", _) => access::api_service(o, out),
        ("admissionregistration.k8s.io", p) => access::admission(p, o, out),
        ("certificates.k8s.io", "certificatesigningrequests") => access::signing_request(o, out),
        ("certificates.k8s.io", "clustertrustbundles") => access::trust_bundle(o, out),
        ("node.k8s.io", _) => core::runtime_class(o, out),
        _ => {}
    }
}

fn status(r: &Resource, o: &Value, out: &mut Faults) {
    if r.group == "apps" {
        for k in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "fullyLabeledReplicas", "observedGeneration"] {
            if let Some(n) = o.pointer(&format!("/status/{k}")) {
                not_negative(n, &Path::new("status").child(k), out);
            }
        }
    }
}

const IMMUTABLE: &str = "field is immutable";

/// What an update may not change.
fn changes(r: &Resource, o: &Value, old: &Value, out: &mut Faults) {
    let mut fixed = |pointer: &str, path: &str, words: &str| {
        let (a, b) = (o.pointer(pointer).cloned().unwrap_or_default(), old.pointer(pointer).cloned().unwrap_or_default());
        if a != b {
            out.push(Fault::invalid(&Path::new(path), a, words));
        }
    };
    match (r.group, r.plural) {
        ("apps", "deployments" | "daemonsets" | "replicasets") => fixed("/spec/selector", "spec.selector", IMMUTABLE),
        ("apps", "statefulsets") => workload::stateful_set_update(o, old, out),
        ("batch", "jobs") => workload::job_update(o, old, out),
        ("", "pods") => pod_update::update(o, old, out),
        ("", "services") => service::update(o, old, out),
        ("", "configmaps" | "secrets") => core::data_update(r.plural, o, old, out),
        ("", "persistentvolumeclaims") => storage::claim_update(o, old, out),
        ("", "persistentvolumes") => storage::volume_update(o, old, out),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => fixed("/roleRef", "roleRef", "cannot change roleRef"),
        ("storage.k8s.io", "storageclasses") => storage::class_update(o, old, out),
        ("scheduling.k8s.io", "priorityclasses") => {
            if o.get("value") != old.get("value") {
                out.push(Fault::forbidden(&Path::new("value"), "may not be changed in an update."));
            }
            if o.get("preemptionPolicy") != old.get("preemptionPolicy") {
                out.push(Fault::invalid(&Path::new("preemptionPolicy"), o.get("preemptionPolicy").cloned().unwrap_or_default(), IMMUTABLE));
            }
        }
        ("networking.k8s.io", "ingressclasses") => fixed("/spec/controller", "spec.controller", IMMUTABLE),
        ("networking.k8s.io", "ipaddresses") => fixed("/spec/parentRef", "spec.parentRef", IMMUTABLE),
        ("apiextensions.k8s.io", _) => crd::update(o, old, out),
        ("discovery.k8s.io", _) => fixed("/addressType", "addressType", IMMUTABLE),
        ("coordination.k8s.io", _) => {}
        _ => {}
    }
}

/// `must be greater than or equal to 0`.
pub(super) fn not_negative(v: &Value, p: &Path, out: &mut Faults) {
    if v.as_i64().is_some_and(|n| n < 0) {
        out.push(Fault::invalid(p, v.clone(), "must be greater than or equal to 0"));
    }
}

/// Each of these fields, when set, is not negative.
pub(super) fn none_negative(o: &Value, fields: &[&str], p: &Path, out: &mut Faults) {
    for f in fields {
        if let Some(v) = get(o, f) {
            not_negative(v, &p.child(f), out);
        }
    }
}

/// One of a closed list; absent values are required when `must`.
pub(super) fn one_of(o: &Value, field: &str, allowed: &[&str], must: bool, p: &Path, out: &mut Faults) {
    match get(o, field).and_then(Value::as_str).filter(|s| !s.is_empty()) {
        None if must => out.push(Fault::required(&p.child(field), "")),
        Some(s) if !allowed.contains(&s) => out.push(Fault::not_supported(&p.child(field), s, allowed)),
        _ => {}
    }
}

/// A non-empty text.
pub(super) fn required(o: &Value, field: &str, p: &Path, out: &mut Faults) -> bool {
    let missing = get(o, field).and_then(Value::as_str).is_none_or(str::is_empty);
    if missing {
        out.push(Fault::required(&p.child(field), ""));
    }
    !missing
}

/// Faults of a text by its rule.
pub(super) fn ruled(o: &Value, field: &str, rule: fn(&str) -> Vec<String>, p: &Path, out: &mut Faults) {
    if let Some(s) = get(o, field).and_then(Value::as_str).filter(|s| !s.is_empty()) {
        out.extend(rule(s).into_iter().map(|m| Fault::invalid(&p.child(field), s, m)));
    }
}

/// An integer or a percentage, not negative.
pub(super) fn int_or_percent(v: &Value, p: &Path, out: &mut Faults) {
    match v {
        Value::String(s) if words::is_percent(s) => {}
        Value::String(s) => out.push(Fault::invalid(p, s.as_str(), "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")),
        n => not_negative(n, p, out),
    }
}

/// At most 100 percent.
pub(super) fn at_most_all(v: &Value, p: &Path, out: &mut Faults) {
    if let Some(s) = v.as_str() {
        if s.strip_suffix('%').and_then(|n| n.parse::<i64>().ok()).is_some_and(|n| n > 100) {
            out.push(Fault::invalid(p, s, "must not be greater than 100%"));
        }
    }
}

/// A label selector.
pub(super) fn selector(v: &Value, p: &Path, out: &mut Faults) {
    for (k, x) in map(v, "/matchLabels") {
        let at = p.child("matchLabels");
        out.extend(words::qualified_name(k).into_iter().map(|m| Fault::invalid(&at, k.as_str(), m)));
        let x = x.as_str().unwrap_or_default();
        out.extend(words::label_value(x).into_iter().map(|m| Fault::invalid(&at.key(k), x, m)));
    }
    for (i, e) in list(v, "/matchExpressions").iter().enumerate() {
        let at = p.child("matchExpressions").index(i);
        let values = list(e, "/values");
        match text(e, "/operator") {
            "In" | "NotIn" if values.is_empty() => out.push(Fault::required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")),
            "Exists" | "DoesNotExist" if !values.is_empty() => out.push(Fault::forbidden(&at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => out.push(Fault::invalid(&at.child("operator"), other, "not a valid selector operator")),
        }
        let key = text(e, "/key");
        out.extend(words::qualified_name(key).into_iter().map(|m| Fault::invalid(&at.child("key"), key, m)));
        for (j, x) in values.iter().enumerate() {
            let x = x.as_str().unwrap_or_default();
            out.extend(words::label_value(x).into_iter().map(|m| Fault::invalid(&at.child("values").index(j), x, m)));
        }
    }
}

/// Whether the operators of a selector are known and have the values they need; others select nothing at all.
pub(super) fn is_valid_selector(s: &Value) -> bool {
    let mut faults = Vec::new();
    selector(s, &Path::root(), &mut faults);
    faults.is_empty()
}

/// Whether labels fit a selector.
pub(super) fn selects(s: &Value, labels: &Map<String, Value>) -> bool {
    map(s, "/matchLabels").iter().all(|(k, v)| labels.get(k) == Some(v))
        && list(s, "/matchExpressions").iter().all(|e| {
            let found = labels.get(text(e, "/key"));
            let listed = found.is_some_and(|v| list(e, "/values").contains(v));
            match text(e, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

pub(super) fn is_empty_selector(s: &Value) -> bool {
    map(s, "/matchLabels").is_empty() && list(s, "/matchExpressions").is_empty()
}

/// A quantity that is not negative.
pub(super) fn quantity(v: &Value, p: &Path, out: &mut Faults) -> Option<Quantity> {
    let q = v.as_str().and_then(|s| Quantity::parse(s).ok())?;
    if q.sign() < 0 {
        out.push(Fault::invalid(p, v.clone(), "must be greater than or equal to 0"));
    }
    Some(q)
}

pub(super) fn port(v: &Value, p: &Path, out: &mut Faults) {
    match v {
        Value::String(s) => out.extend(words::port_name(s).into_iter().map(|m| Fault::invalid(p, s.as_str(), m))),
        n => out.extend(words::port_number(n.as_i64().unwrap_or(0)).into_iter().map(|m| Fault::invalid(p, n.clone(), m))),
    }
}

/// An object whose only purpose is to be shown in a fault.
pub(super) fn shown(v: &Value) -> Value {
    if v.is_null() { json!(null) } else { v.clone() }
}

#[cfg(test)]
mod tests;
