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

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if !change.key.is(&CLUSTER_ROLE) {
            return;
        }
        for role in world.all(&CLUSTER_ROLE) {
            if role.get("aggregationRule").is_some() {
                wake.push(Key::new(CLUSTER_ROLE.group, CLUSTER_ROLE.plural, "", text(&role, &["metadata", "name"])));
            }
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(role) = world.at(key) else { return turn };
        let all = world.all(&CLUSTER_ROLE);
        let Some(rules) = aggregate(&role, all.iter().map(AsRef::as_ref)) else { return turn };
        let now = role.get("rules").cloned().unwrap_or_else(|| json!([]));
        if now != rules && !(now.is_null() && rules == json!([])) {
            let version = text(&role, &["metadata", "resourceVersion"]);
            let patch = json!({"metadata": {"resourceVersion": version}, "rules": rules});
            turn.call(Call::merge(&CLUSTER_ROLE, "", &key.name, "", patch));
        }
        turn
    }
}
