//! How an object becomes a Manifest: name, labels, template (facts of the shadow API, section 5.5).

use std::collections::BTreeMap;

use api::known::{annotation, component, label, namespace as names};
use api::names::{is_dns_subdomain, is_label_value};
use api::object::{self, Gvk};
use serde_json::{Map, Value, json};

use crate::kinds::KindInfo;

/// Why an object cannot be stored as a Manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShadowFault {
    /// The document is no object with apiVersion, kind and name.
    #[error("the object has no {0}")]
    Lacks(&'static str),
    /// The name of the object does not fit into a label value.
    #[error("metadata.labels: Invalid value: {0:?}: {1}")]
    Label(String, &'static str),
    /// The name of the Manifest would be no name.
    #[error("metadata.name: Invalid value: {0:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character")]
    Name(String),
}

/// The name of the Manifest of an object: `<plural>.<namespace>.<name>`, of a cluster-scoped one `<plural>.<name>`.
#[must_use]
pub fn manifest_name(plural: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{plural}.{name}") } else { format!("{plural}.{namespace}.{name}") }
}

/// The labels that say what a Manifest (or HelmChart) wraps.
#[must_use]
pub fn config_labels(gvk: &Gvk, namespace: &str, name: &str) -> BTreeMap<String, String> {
    [
        (label::CONFIG_GROUP, gvk.group.as_str()),
        (label::CONFIG_VERSION, gvk.version.as_str()),
        (label::CONFIG_KIND, gvk.kind.as_str()),
        (label::CONFIG_NAME, name),
        (label::CONFIG_NAMESPACE, namespace),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect()
}

/// All labels of the Manifest of an object: its own, and those of [`config_labels`].
#[must_use]
pub fn manifest_labels(object: &Value) -> BTreeMap<String, String> {
    let mut out = object::labels(object);
    if let Some(gvk) = Gvk::of(object) {
        out.extend(config_labels(&gvk, object::namespace(object), object::name(object)));
    }
    out
}

/// Marks a template as the shadow API does: agents watch only objects with this label.
pub fn mark(object: &mut Value) {
    object::set_label(object, label::CREATED_BY, component::HUB);
}

/// Removes what only a server writes: the rule for templates that people wrote.
pub fn trim_server_fields(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["creationTimestamp", "managedFields", "resourceVersion", "selfLink", "uid", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
                meta.remove(field);
            }
        }
    }
    object::remove_annotation(object, annotation::KUBECTL_LAST_APPLIED);
}

/// Removes from the answer of a dry run what the server allotted to the dry run and to nothing else (`trimmer.go`).
///
/// Metadata of the server and status of every kind; of a Service cluster addresses (unless headless) and node ports; of a Job the
/// generated selector and labels.
pub fn trim_dry_run(object: &mut Value) {
    let gvk = Gvk::of(object).unwrap_or_default();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = meta_mut(object) {
        for field in ["creationTimestamp", "managedFields", "resourceVersion", "selfLink"] {
            meta.remove(field);
        }
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Service") => trim_service(object),
        ("batch", "Job") => trim_job(object),
        _ => {}
    }
}

fn meta_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.as_object_mut()
}

fn trim_service(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if matches!(spec.get("type").and_then(Value::as_str), Some("NodePort" | "LoadBalancer")) {
        spec.remove("healthCheckNodePort");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
}

/// Names of labels that the Job controller generates; with and without the prefix of newer servers.
///
/// `job-name` stays, as the original leaves it: it says nothing that the Job's own name does not.
const JOB_LABELS: [&str; 3] = ["controller-uid", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

fn trim_job(object: &mut Value) {
    let manual = object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !manual {
        let generated = ["controller-uid", "batch.kubernetes.io/controller-uid"];
        // An empty selector stays: the recorded answers have it, and servers generate the rest again.
        if let Some(selector) = spec.get_mut("selector").and_then(Value::as_object_mut) {
            remove_from(selector.get_mut("matchLabels"), &generated);
        }
    }
    if let Some(meta) = spec.get_mut("template").and_then(|t| t.get_mut("metadata")).and_then(Value::as_object_mut) {
        meta.remove("creationTimestamp");
        if !manual {
            remove_from(meta.get_mut("labels"), &JOB_LABELS);
            drop_if_empty(meta, "labels");
        }
    }
    if !manual && let Some(meta) = meta_mut(object) {
        remove_from(meta.get_mut("labels"), &JOB_LABELS);
        drop_if_empty(meta, "labels");
    }
}

fn remove_from(map: Option<&mut Value>, keys: &[&str]) {
    if let Some(map) = map.and_then(Value::as_object_mut) {
        for key in keys {
            map.remove(*key);
        }
    }
}

fn drop_if_empty(map: &mut Map<String, Value>, key: &str) {
    if map.get(key).and_then(Value::as_object).is_some_and(Map::is_empty) {
        map.remove(key);
    }
}

/// Whether an object of this kind and these names can be a Manifest.
///
/// # Errors
/// Every reason why not, worded as the API server words them.
pub fn check(kind: &KindInfo, object: &Value) -> Result<(), Vec<ShadowFault>> {
    let mut faults = Vec::new();
    if object::text(object, "apiVersion").is_empty() {
        faults.push(ShadowFault::Lacks("apiVersion"));
    }
    if object::text(object, "kind").is_empty() {
        faults.push(ShadowFault::Lacks("kind"));
    }
    let name = object::name(object);
    if name.is_empty() {
        faults.push(ShadowFault::Lacks("metadata.name"));
        return Err(faults);
    }
    let manifest = manifest_name(&kind.plural, object::namespace(object), name);
    if !is_dns_subdomain(&manifest) {
        faults.push(ShadowFault::Name(manifest));
    }
    for value in [name, object::namespace(object)] {
        if value.len() > 63 {
            faults.push(ShadowFault::Label(value.to_owned(), "must be no more than 63 bytes"));
        } else if !is_label_value(value) {
            faults.push(ShadowFault::Label(
                value.to_owned(),
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            ));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The Manifest that wraps an object, whose template is the object with the creator's label.
///
/// # Errors
/// When the object lacks what makes it one, or its name fits no label.
pub fn manifest(kind: &KindInfo, object: &Value) -> Result<Value, Vec<ShadowFault>> {
    let mut template = object.clone();
    mark(&mut template);
    wrap(kind, template)
}

/// The Manifest that wraps a template as it is.
///
/// # Errors
/// When the object lacks what makes it one, or its name fits no label.
pub fn wrap(kind: &KindInfo, template: Value) -> Result<Value, Vec<ShadowFault>> {
    check(kind, &template)?;
    let object = &template;
    let labels = manifest_labels(object);
    Ok(json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": "Manifest",
        "metadata": {
            "name": manifest_name(&kind.plural, object::namespace(object), object::name(object)),
            "namespace": names::RESERVED,
            "labels": labels,
        },
        "template": template,
    }))
}

/// What the shadow API answers for a Manifest: its template with what identifies the stored object.
#[must_use]
pub fn shown(manifest: &Value) -> Value {
    let mut out = manifest.get("template").cloned().unwrap_or_else(|| json!({}));
    let stored = manifest.get("metadata").and_then(Value::as_object);
    if let (Some(stored), Some(fields)) = (stored, out.as_object_mut()) {
        let meta = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            for field in ["generation", "creationTimestamp", "resourceVersion", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                match stored.get(field) {
                    Some(value) => meta.insert(field.to_owned(), value.clone()),
                    None => meta.remove(field),
                };
            }
        }
    }
    if let Some(text) = object::annotation(manifest, annotation::FEED_PROTECTION) {
        object::set_annotation(&mut out, annotation::FEED_PROTECTION, text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[track_caller]
    fn check(object: Value, expect: &str) {
        let kinds = Kinds::built_in();
        let info = kinds.get(object::text(&object, "apiVersion"), object::text(&object, "kind")).expect("known kind");
        let got = match manifest(info, &object) {
            Ok(made) => {
                let labels: Vec<String> = object::labels(&made).iter().map(|(k, v)| format!("{}={v}", k.rsplit('/').next().unwrap_or(k))).collect();
                format!("{}/{} {}", object::namespace(&made), object::name(&made), labels.join(" "))
            }
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        assert_eq!(got, expect);
    }

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        let mut out = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        if !namespace.is_empty() {
            out["metadata"]["namespace"] = json!(namespace);
        }
        out
    }

    /// The names and labels that the original recorded (case 25).
    #[test]
    fn names_and_labels() {
        check(
            object("v1", "ConfigMap", "box", "same"),
            "clusternet-reserved/configmaps.box.same config.group= config.kind=ConfigMap config.name=same config.namespace=box config.version=v1 created-by=clusternet-hub",
        );
        check(
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "view"),
            "clusternet-reserved/clusterroles.view config.group=rbac.authorization.k8s.io config.kind=ClusterRole config.name=view config.namespace= config.version=v1 created-by=clusternet-hub",
        );
        let mut deployment = object("apps/v1", "Deployment", "box", "same");
        deployment["metadata"]["labels"] = json!({"app": "same"});
        check(
            deployment,
            "clusternet-reserved/deployments.box.same app=same config.group=apps config.kind=Deployment config.name=same config.namespace=box config.version=v1 created-by=clusternet-hub",
        );
        check(
            object("v1", "ConfigMap", "a", "b.c"),
            "clusternet-reserved/configmaps.a.b.c config.group= config.kind=ConfigMap config.name=b.c config.namespace=a config.version=v1 created-by=clusternet-hub",
        );
        let long = "y".repeat(64);
        check(object("v1", "ConfigMap", "box", &long), &format!("metadata.labels: Invalid value: \"{long}\": must be no more than 63 bytes"));
        check(
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "crate:open"),
            "metadata.name: Invalid value: \"clusterroles.crate:open\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character; metadata.labels: Invalid value: \"crate:open\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        );
        check(object("v1", "ConfigMap", "box", ""), "the object has no metadata.name");
    }

    #[test]
    fn a_dry_run_is_trimmed() {
        let mut service = object("v1", "Service", "box", "web");
        service["spec"] = json!({"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "healthCheckNodePort": 31000, "ports": [{"port": 80, "nodePort": 30000}]});
        service["metadata"]["resourceVersion"] = json!("5");
        service["metadata"]["uid"] = json!("u");
        service["status"] = json!({"loadBalancer": {}});
        trim_dry_run(&mut service);
        assert_eq!(service, json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "box", "uid": "u"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}));

        let mut headless = object("v1", "Service", "box", "web");
        headless["spec"] = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        let before = headless.clone();
        trim_dry_run(&mut headless);
        assert_eq!(headless, before);

        let mut job = object("batch/v1", "Job", "box", "once");
        job["spec"] = json!({
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "once", "controller-uid": "u", "job-name": "once"}}},
        });
        job["metadata"]["labels"] = json!({"job-name": "once"});
        trim_dry_run(&mut job);
        assert_eq!(job["spec"], json!({"selector": {"matchLabels": {}}, "template": {"metadata": {"labels": {"app": "once", "job-name": "once"}}}}));
        assert_eq!(job["metadata"]["labels"], json!({"job-name": "once"}));
    }

    #[test]
    fn what_is_shown() {
        let info = KindInfo { plural: "configmaps".to_owned(), namespaced: true };
        let mut stored = manifest(&info, &object("v1", "ConfigMap", "box", "same")).expect("fits");
        stored["metadata"]["resourceVersion"] = json!("7");
        stored["metadata"]["uid"] = json!("u");
        object::set_annotation(&mut stored, annotation::FEED_PROTECTION, "in use");
        let out = shown(&stored);
        assert_eq!(object::resource_version(&out), "7");
        assert_eq!(object::uid(&out), "u");
        assert_eq!(object::annotation(&out, annotation::FEED_PROTECTION), Some("in use"));
    }
}
