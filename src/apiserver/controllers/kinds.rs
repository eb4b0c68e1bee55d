//! The kinds that controllers read and write.

/// A built-in kind and where it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// `apiVersion` of its objects.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural resource name.
    pub plural: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $group:literal $version:literal $kind:literal $plural:literal;)*) => {
        $(
            #[doc = $kind]
            pub const $name: Kind = Kind { group: $group, api_version: $version, kind: $kind, plural: $plural };
        )*
    };
}

kinds! {
    NAMESPACE = "" "v1" "Namespace" "namespaces";
    NODE = "" "v1" "Node" "nodes";
    POD = "" "v1" "Pod" "pods";
    SERVICE = "" "v1" "Service" "services";
    ENDPOINTS = "" "v1" "Endpoints" "endpoints";
    SECRET = "" "v1" "Secret" "secrets";
    CONFIG_MAP = "" "v1" "ConfigMap" "configmaps";
    SERVICE_ACCOUNT = "" "v1" "ServiceAccount" "serviceaccounts";
    EVENT = "" "v1" "Event" "events";
    RESOURCE_QUOTA = "" "v1" "ResourceQuota" "resourcequotas";
    REPLICATION_CONTROLLER = "" "v1" "ReplicationController" "replicationcontrollers";
    PERSISTENT_VOLUME = "" "v1" "PersistentVolume" "persistentvolumes";
    PERSISTENT_VOLUME_CLAIM = "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims";
    DEPLOYMENT = "apps" "apps/v1" "Deployment" "deployments";
    REPLICA_SET = "apps" "apps/v1" "ReplicaSet" "replicasets";
    STATEFUL_SET = "apps" "apps/v1" "StatefulSet" "statefulsets";
    DAEMON_SET = "apps" "apps/v1" "DaemonSet" "daemonsets";
    CONTROLLER_REVISION = "apps" "apps/v1" "ControllerRevision" "controllerrevisions";
    JOB = "batch" "batch/v1" "Job" "jobs";
    CRON_JOB = "batch" "batch/v1" "CronJob" "cronjobs";
    ENDPOINT_SLICE = "discovery.k8s.io" "discovery.k8s.io/v1" "EndpointSlice" "endpointslices";
    CLUSTER_ROLE = "rbac.authorization.k8s.io" "rbac.authorization.k8s.io/v1" "ClusterRole" "clusterroles";
    SIGNING_REQUEST = "certificates.k8s.io" "certificates.k8s.io/v1" "CertificateSigningRequest" "certificatesigningrequests";
    DISRUPTION_BUDGET = "policy" "policy/v1" "PodDisruptionBudget" "poddisruptionbudgets";
    STORAGE_CLASS = "storage.k8s.io" "storage.k8s.io/v1" "StorageClass" "storageclasses";
    CUSTOM_RESOURCE_DEFINITION = "apiextensions.k8s.io" "apiextensions.k8s.io/v1" "CustomResourceDefinition" "customresourcedefinitions";
    VALIDATING_POLICY = "admissionregistration.k8s.io" "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "validatingadmissionpolicies";
    FLOW_SCHEMA = "flowcontrol.apiserver.k8s.io" "flowcontrol.apiserver.k8s.io/v1" "FlowSchema" "flowschemas";
    PRIORITY_LEVEL = "flowcontrol.apiserver.k8s.io" "flowcontrol.apiserver.k8s.io/v1" "PriorityLevelConfiguration" "prioritylevelconfigurations";
    IP_ADDRESS = "networking.k8s.io" "networking.k8s.io/v1" "IPAddress" "ipaddresses";
    SERVICE_RANGE = "networking.k8s.io" "networking.k8s.io/v1" "ServiceCIDR" "servicecidrs";
    LEASE = "coordination.k8s.io" "coordination.k8s.io/v1" "Lease" "leases";
}
