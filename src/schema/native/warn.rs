//! Warnings about accepted objects.

use crate::catalog::Resource;
use serde_json::Value;

/// Warning texts for the client.
pub(crate) fn warnings(r: &Resource, object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for f in super::list(object, "/metadata/finalizers").iter().filter_map(Value::as_str) {
        if !f.contains('/') && !matches!(f, "orphan" | "foregroundDeletion" | "kubernetes") {
            out.push(format!("metadata.finalizers: {}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", crate::fault::quote(f)));
        }
    }
    let text = |pointer: &str| super::text(object, pointer);
    if r.group.is_empty() && r.plural == "services" && !text("/spec/externalName").is_empty() && text("/spec/type") != "ExternalName" {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    out
}
