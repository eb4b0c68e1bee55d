//! Names of resources and their paths: group, version, kind, plural and scope.

use std::fmt::Write as _;

/// One resource as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name, as it stands in paths.
    pub plural: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

/// Characters that must not stand raw in a path segment or query value.
fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => out.push(byte as char),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
}

/// Percent-encodes one path segment or query value.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(&mut out, text);
    out
}

impl Resource {
    /// `group/version`, or just the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Path of the collection: all namespaces when `namespace` is empty.
    pub fn collection(&self, namespace: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            escape(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        path
    }

    /// Path of one object.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = self.collection(namespace);
        path.push('/');
        escape(&mut path, name);
        path
    }
}

/// Splits an `apiVersion` into group and version.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Kinds that every Kubernetes serves with the same plural and scope: known without asking.
const BUILT_IN: &[(&str, &str, &str, &str, bool)] = &[
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Secret", "secrets", true),
    ("", "v1", "Namespace", "namespaces", false),
    ("", "v1", "Node", "nodes", false),
    ("", "v1", "Pod", "pods", true),
    ("", "v1", "Service", "services", true),
    ("", "v1", "ServiceAccount", "serviceaccounts", true),
    ("", "v1", "Endpoints", "endpoints", true),
    ("", "v1", "Event", "events", true),
    ("", "v1", "LimitRange", "limitranges", true),
    ("", "v1", "PersistentVolume", "persistentvolumes", false),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("", "v1", "PodTemplate", "podtemplates", true),
    ("", "v1", "ReplicationController", "replicationcontrollers", true),
    ("", "v1", "ResourceQuota", "resourcequotas", true),
    ("apps", "v1", "DaemonSet", "daemonsets", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("apps", "v1", "ReplicaSet", "replicasets", true),
    ("apps", "v1", "StatefulSet", "statefulsets", true),
    ("batch", "v1", "CronJob", "cronjobs", true),
    ("batch", "v1", "Job", "jobs", true),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", true),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", false),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("coordination.k8s.io", "v1", "Lease", "leases", true),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
];

/// A built-in kind, without a discovery round trip.
pub fn built_in(api_version: &str, kind: &str) -> Option<Resource> {
    let (group, version) = split_api_version(api_version);
    BUILT_IN.iter().find(|(g, v, k, _, _)| *g == group && *v == version && *k == kind).map(|(g, v, k, p, n)| Resource {
        group: (*g).to_owned(),
        version: (*v).to_owned(),
        kind: (*k).to_owned(),
        plural: (*p).to_owned(),
        namespaced: *n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let cm = built_in("v1", "ConfigMap").expect("known");
        assert_eq!(cm.path("a", "b"), "/api/v1/namespaces/a/configmaps/b");
        assert_eq!(cm.collection(""), "/api/v1/configmaps");
        let role = built_in("rbac.authorization.k8s.io/v1", "ClusterRole").expect("known");
        assert_eq!(role.path("", "system:x/y"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x%2Fy");
        assert_eq!(role.api_version(), "rbac.authorization.k8s.io/v1");
    }
}
