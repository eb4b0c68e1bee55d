//! Aggregated ClusterRoles: their rules are those of the roles that their selectors find.

use serde_json::json;

use super::kinds::CLUSTER_ROLE;
use super::{Call, Change, Controller, Key, Turn, World};
use crate::auth::defaults::aggregate;
use crate::auth::text;

/// Joins the rules of aggregated ClusterRoles.
#[derive(Debug, Default)]
pub struct Roles;

impl Controller for Roles {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation"
    }

    /// Any role may be part of any aggregated one. A wave of changes wakes one key, so that it costs one look at the roles, not one each.
    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&CLUSTER_ROLE) {
            wake.push(Key::new(CLUSTER_ROLE.group, CLUSTER_ROLE.plural, "", ""));
        }
    }

    fn decide(&self, _: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let all = world.all(&CLUSTER_ROLE);
        for role in &all {
            let Some(rules) = aggregate(role, all.iter().map(AsRef::as_ref)) else { continue };
            let now = role.get("rules").cloned().unwrap_or_else(|| json!([]));
            if now != rules && !(now.is_null() && rules == json!([])) {
                let version = text(role, &["metadata", "resourceVersion"]);
                let patch = json!({"metadata": {"resourceVersion": version}, "rules": rules});
                turn.call(Call::merge(&CLUSTER_ROLE, "", text(role, &["metadata", "name"]), "", patch));
            }
        }
        turn
    }
}
