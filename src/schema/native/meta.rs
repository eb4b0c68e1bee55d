//! Object metadata: names, labels, annotations, owners, finalizers.

use super::{get, list, map, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};

/// What names of a kind look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// Anything that fits into a URL path.
    PathSegment,
}

impl NameRule {
    /// Faults of a name; `prefix` = it will get a generated suffix.
    pub(crate) fn faults(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = if prefix && name.ends_with('-') {
            masked = format!("{}a", &name[..name.len() - 1]);
            &masked
        } else {
            name
        };
        match self {
            Self::Subdomain => words::dns1123_subdomain(name),
            Self::Label => words::dns1123_label(name),
            Self::PathSegment => words::path_segment(name),
        }
    }
}

/// Annotations of an object take at most 256 KiB.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Faults of the metadata of a new object.
pub(crate) fn validate(object: &Value, namespaced: bool, rule: NameRule) -> Vec<Fault> {
    let p = Path::new("metadata");
    let mut out = Vec::new();
    let (name, generate, namespace) = (text(object, "/metadata/name"), text(object, "/metadata/generateName"), text(object, "/metadata/namespace"));
    if !generate.is_empty() {
        out.extend(rule.faults(generate, true).into_iter().map(|m| Fault::invalid(&p.child("generateName"), generate, m)));
    }
    if name.is_empty() {
        out.push(Fault::required(&p.child("name"), "name or generateName is required"));
    } else {
        out.extend(rule.faults(name, false).into_iter().map(|m| Fault::invalid(&p.child("name"), name, m)));
    }
    if namespaced {
        if namespace.is_empty() {
            out.push(Fault::required(&p.child("namespace"), ""));
        } else {
            out.extend(words::dns1123_label(namespace).into_iter().map(|m| Fault::invalid(&p.child("namespace"), namespace, m)));
        }
    } else if !namespace.is_empty() {
        out.push(Fault::forbidden(&p.child("namespace"), "not allowed on this type"));
    }
    out.extend(common(object));
    out
}

fn common(object: &Value) -> Vec<Fault> {
    let p = Path::new("metadata");
    let mut out = Vec::new();
    if object.pointer("/metadata/generation").and_then(Value::as_i64).is_some_and(|g| g < 0) {
        out.push(Fault::invalid(&p.child("generation"), object.pointer("/metadata/generation").cloned().unwrap_or_default(), "must be greater than or equal to 0"));
    }
    out.extend(labels(map(object, "/metadata/labels"), &p.child("labels")));
    out.extend(annotations(map(object, "/metadata/annotations"), &p.child("annotations")));
    let owners = list(object, "/metadata/ownerReferences");
    let mut controller: Option<&Value> = None;
    for (i, o) in owners.iter().enumerate() {
        let at = p.child("ownerReferences");
        let version = text(o, "/apiVersion");
        if version.is_empty() {
            out.push(Fault::invalid(&at.child("apiVersion"), version, "version must not be empty"));
        }
        for k in ["kind", "name", "uid"] {
            if text(o, &format!("/{k}")).is_empty() {
                out.push(Fault::invalid(&at.child(k), "", "must not be empty"));
            }
        }
        if get(o, "controller") == Some(&json!(true)) {
            if let Some(first) = controller {
                let show = |v: &Value| format!("{}/{}", text(v, "/kind"), text(v, "/name"));
                let _ = i;
                out.push(Fault::invalid(
                    &at,
                    Value::Array(owners.to_vec()),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {} and {}", show(first), show(o)),
                ));
            } else {
                controller = Some(o);
            }
        }
    }
    for f in list(object, "/metadata/finalizers") {
        let f = f.as_str().unwrap_or_default();
        out.extend(words::qualified_name(f).into_iter().map(|m| Fault::invalid(&p.child("finalizers"), f, m)));
    }
    out
}

/// Faults of labels.
pub(crate) fn labels(l: &serde_json::Map<String, Value>, p: &Path) -> Vec<Fault> {
    let mut out = Vec::new();
    for (k, v) in l {
        out.extend(words::qualified_name(k).into_iter().map(|m| Fault::invalid(p, k.as_str(), m)));
        let v = v.as_str().unwrap_or_default();
        out.extend(words::label_value(v).into_iter().map(|m| Fault::invalid(p, v, m)));
    }
    out
}

/// Faults of annotations.
pub(crate) fn annotations(a: &serde_json::Map<String, Value>, p: &Path) -> Vec<Fault> {
    let mut out = Vec::new();
    let mut size = 0;
    for (k, v) in a {
        out.extend(words::qualified_name(&k.to_lowercase()).into_iter().map(|m| Fault::invalid(p, k.as_str(), m)));
        size += k.len() + v.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        out.push(Fault::too_long(p, MAX_ANNOTATIONS));
    }
    out
}

/// Faults of the metadata of an update.
pub(crate) fn validate_update(object: &Value, old: &Value) -> Vec<Fault> {
    let p = Path::new("metadata");
    let mut out = Vec::new();
    for k in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let at = format!("/metadata/{k}");
        let (a, b) = (object.pointer(&at).cloned().unwrap_or_default(), old.pointer(&at).cloned().unwrap_or_default());
        if a != b && !(a.is_null() && b == json!("")) {
            out.push(Fault::invalid(&p.child(k), a, "field is immutable"));
        }
    }
    let deleted = old.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null());
    if deleted {
        let before = list(old, "/metadata/finalizers");
        let added: Vec<&str> = list(object, "/metadata/finalizers").iter().filter(|f| !before.contains(f)).filter_map(Value::as_str).collect();
        if !added.is_empty() {
            out.push(Fault::forbidden(
                &p.child("finalizers"),
                format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", added.iter().map(|f| crate::fault::quote(f)).collect::<Vec<_>>().join(", ")),
            ));
        }
    }
    out.extend(common(object));
    out
}
