//! Validation of built-in kinds.

use super::meta::{self, NameRule};
use crate::catalog::Resource;
use crate::fault::Fault;
use serde_json::Value;

fn name_rule(r: &Resource) -> NameRule {
    match (r.group, r.plural) {
        ("", "namespaces") => NameRule::Label,
        ("", "services") => NameRule::Label1035,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

/// Faults of a new object.
pub(crate) fn validate_create(r: &Resource, object: &Value) -> Vec<Fault> {
    meta::validate(object, r.namespaced, name_rule(r))
}

/// Faults of an update.
pub(crate) fn validate_update(_r: &Resource, object: &Value, old: &Value, _subresource: Option<&str>) -> Vec<Fault> {
    meta::validate_update(object, old)
}
