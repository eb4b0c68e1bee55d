//! Warnings about accepted objects.

use crate::catalog::Resource;
use serde_json::Value;

/// Warning texts for the client.
pub(crate) fn warnings(_r: &Resource, object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for f in super::list(object, "/metadata/finalizers").iter().filter_map(Value::as_str) {
        if !f.contains('/') && !matches!(f, "orphan" | "foregroundDeletion" | "kubernetes") {
            out.push(format!("metadata.finalizers: {}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", crate::fault::quote(f)));
        }
    }
    out
}
