//! Which kinds exist, how their plural is spelled, and whether they live in a namespace: built-in ones, and those of definitions.

use std::collections::BTreeMap;

use api::object::{join_api_version, text};
use serde_json::Value;

/// What is known about a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindInfo {
    /// Plural name, as it stands in paths.
    pub plural: String,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
}

/// The kinds that a parent (and a repository with its definitions) knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kinds {
    /// By apiVersion and kind.
    known: BTreeMap<(String, String), KindInfo>,
}

impl Kinds {
    /// What every Kubernetes 1.37 serves and people deploy, with Clusternet's and our own kinds.
    #[must_use]
    pub fn built_in() -> Self {
        let mut out = Self::default();
        for (api_version, kind, plural, namespaced) in BUILT_IN {
            out.insert(api_version, kind, plural, *namespaced);
        }
        out
    }

    /// Adds a kind, or replaces what was known about it.
    pub fn insert(&mut self, api_version: &str, kind: &str, plural: &str, namespaced: bool) {
        self.known.insert((api_version.to_owned(), kind.to_owned()), KindInfo { plural: plural.to_owned(), namespaced });
    }

    /// Adds what a CustomResourceDefinition serves; other objects are left alone.
    pub fn learn(&mut self, definition: &Value) {
        if text(definition, "kind") != "CustomResourceDefinition" {
            return;
        }
        let at = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (group, kind, plural) = (at("/spec/group"), at("/spec/names/kind"), at("/spec/names/plural"));
        if group.is_empty() || kind.is_empty() || plural.is_empty() {
            return;
        }
        let namespaced = at("/spec/scope") != "Cluster";
        for version in definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            if version.get("served").and_then(Value::as_bool) == Some(true) {
                self.insert(&join_api_version(group, text(version, "name")), kind, plural, namespaced);
            }
        }
    }

    /// What is known about a kind.
    #[must_use]
    pub fn get(&self, api_version: &str, kind: &str) -> Option<&KindInfo> {
        // Lookups are rare beside the parsing of a document, so the two allocations do not matter.
        self.known.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Kinds of the same name in other versions or groups, for hints: `apiVersion`.
    pub fn elsewhere<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.known.keys().filter(move |(_, k)| k == kind).map(|(v, _)| v.as_str())
    }
}

/// apiVersion, kind, plural, namespaced.
const BUILT_IN: &[(&str, &str, &str, bool)] = &[
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Endpoints", "endpoints", true),
    ("v1", "Event", "events", true),
    ("v1", "LimitRange", "limitranges", true),
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Node", "nodes", false),
    ("v1", "PersistentVolume", "persistentvolumes", false),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("v1", "Pod", "pods", true),
    ("v1", "PodTemplate", "podtemplates", true),
    ("v1", "ReplicationController", "replicationcontrollers", true),
    ("v1", "ResourceQuota", "resourcequotas", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "Service", "services", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io/v1", "APIService", "apiservices", false),
    ("apps/v1", "ControllerRevision", "controllerrevisions", true),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("apps/v1", "ReplicaSet", "replicasets", true),
    ("apps/v1", "StatefulSet", "statefulsets", true),
    ("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("batch/v1", "CronJob", "cronjobs", true),
    ("batch/v1", "Job", "jobs", true),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    ("events.k8s.io/v1", "Event", "events", true),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", false),
    ("networking.k8s.io/v1", "IPAddress", "ipaddresses", false),
    ("networking.k8s.io/v1", "Ingress", "ingresses", true),
    ("networking.k8s.io/v1", "IngressClass", "ingressclasses", false),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", false),
    ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("resource.k8s.io/v1", "DeviceClass", "deviceclasses", false),
    ("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", true),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", true),
    ("resource.k8s.io/v1", "ResourceSlice", "resourceslices", false),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io/v1", "CSIDriver", "csidrivers", false),
    ("storage.k8s.io/v1", "CSINode", "csinodes", false),
    ("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", true),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", false),
    ("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", false),
    ("storage.k8s.io/v1", "VolumeAttributesClass", "volumeattributesclasses", false),
    ("apps.clusternet.io/v1alpha1", "Base", "bases", true),
    ("apps.clusternet.io/v1alpha1", "Description", "descriptions", true),
    ("apps.clusternet.io/v1alpha1", "FeedInventory", "feedinventories", true),
    ("apps.clusternet.io/v1alpha1", "Globalization", "globalizations", false),
    ("apps.clusternet.io/v1alpha1", "HelmChart", "helmcharts", true),
    ("apps.clusternet.io/v1alpha1", "HelmRelease", "helmreleases", true),
    ("apps.clusternet.io/v1alpha1", "Localization", "localizations", true),
    ("apps.clusternet.io/v1alpha1", "Manifest", "manifests", true),
    ("apps.clusternet.io/v1alpha1", "Subscription", "subscriptions", true),
    ("clusters.clusternet.io/v1beta1", "ClusterRegistrationRequest", "clusterregistrationrequests", false),
    ("clusters.clusternet.io/v1beta1", "ManagedCluster", "managedclusters", true),
    ("gitops.anabranch.io/v1alpha1", "GitSource", "gitsources", true),
    ("gitops.anabranch.io/v1alpha1", "GitTarget", "gittargets", true),
    ("gitops.anabranch.io/v1alpha1", "Rollout", "rollouts", true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_ours_is_known() {
        let kinds = Kinds::built_in();
        let mut from_definitions = Kinds::default();
        for definition in api::crds() {
            let definition = serde_json::to_value(definition).expect("a definition is JSON");
            from_definitions.learn(&definition);
        }
        for ((api_version, kind), info) in &from_definitions.known {
            assert_eq!(kinds.get(api_version, kind), Some(info), "{api_version} {kind}");
        }
    }
}
