//! In which order kinds are applied, and deleted.

use serde_json::Value;

/// Kinds that others need, in the order in which they must exist. Namespaces and definitions come first, then what
/// workloads refer to, then workloads, then what points at workloads. Source: Helm's install order, with admission and API
/// registrations last because they can stop everything that comes after them.
const ORDER: &[&str] = &[
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
];

/// Applied after everything else.
const LAST: &[&str] = &["APIService", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Rank for applying: lower first. Unknown kinds (custom resources) come after the known ones and before [`LAST`].
pub fn rank(kind: &str) -> usize {
    if let Some(at) = ORDER.iter().position(|k| *k == kind) {
        return at;
    }
    match LAST.iter().position(|k| *k == kind) {
        Some(at) => ORDER.len() + 1 + at,
        None => ORDER.len(),
    }
}

/// Coarse step of applying: a step begins when the one before is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Namespaces.
    Namespaces,
    /// CustomResourceDefinitions; done when established.
    Definitions,
    /// Everything else.
    Rest,
}

/// The stage of a kind.
pub fn stage(kind: &str) -> Stage {
    match kind {
        "Namespace" => Stage::Namespaces,
        "CustomResourceDefinition" => Stage::Definitions,
        _ => Stage::Rest,
    }
}

/// Sorts objects for applying; objects of one kind keep their order.
pub fn for_apply(objects: &mut [Value]) {
    objects.sort_by_key(kind_rank);
}

/// Sorts objects for deleting: the reverse of applying.
pub fn for_delete(objects: &mut [Value]) {
    objects.sort_by_key(|object| std::cmp::Reverse(kind_rank(object)));
}

fn kind_rank(object: &Value) -> usize {
    rank(object.get("kind").and_then(Value::as_str).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_others_need_comes_first() {
        let mut objects = vec![
            json!({"kind": "ValidatingWebhookConfiguration"}),
            json!({"kind": "Gizmo"}),
            json!({"kind": "Deployment"}),
            json!({"kind": "CustomResourceDefinition"}),
            json!({"kind": "ConfigMap"}),
            json!({"kind": "Namespace"}),
        ];
        for_apply(&mut objects);
        let kinds: Vec<_> = objects.iter().map(|o| o["kind"].as_str().unwrap_or_default()).collect();
        assert_eq!(kinds, ["Namespace", "CustomResourceDefinition", "ConfigMap", "Deployment", "Gizmo", "ValidatingWebhookConfiguration"]);
        for_delete(&mut objects);
        assert_eq!(objects[0]["kind"], "ValidatingWebhookConfiguration");
    }
}
