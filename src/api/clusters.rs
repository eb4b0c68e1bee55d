//! Group `clusters.clusternet.io/v1beta1`: how a child joins, and what is known about it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

kind! {
    /// ClusterRegistrationRequest is a cluster's wish to join.
    ClusterRegistrationRequest: "clusters.clusternet.io", "v1beta1", "clusterregistrationrequests", ClusterResourceScope, false
    {
        /// Spec is what the cluster says about itself.
        spec: ClusterRegistrationRequestSpec ;
        /// Status is the answer.
        status: ClusterRegistrationRequestStatus
    }
}

kind! {
    /// ManagedCluster is a child cluster.
    ManagedCluster: "clusters.clusternet.io", "v1beta1", "managedclusters", NamespaceResourceScope, true
    {
        /// Spec is how the cluster is treated.
        spec: ManagedClusterSpec ;
        /// Status is what its agent reports.
        status: ManagedClusterStatus
    }
}

with_spec!(ClusterRegistrationRequest: ClusterRegistrationRequestSpec, ManagedCluster: ManagedClusterSpec);

/// ClusterRegistrationRequestSpec defines the desired state of ClusterRegistrationRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterRegistrationRequestSpec {
    /// ClusterID is the id of the cluster, the UID of the agent's Lease in it.
    #[schemars(
        regex(pattern = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        extend("x-required" = true)
    )]
    pub cluster_id: String,
    /// ClusterType denotes the type of the cluster: EdgeCluster or StandardCluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_type: String,
    /// ClusterName is the wanted name of the ManagedCluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 30), regex(pattern = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([a-z0-9]([-a-z0-9]*[a-z0-9]))*"))]
    pub cluster_name: String,
    /// ClusterNamespace is the wanted dedicated namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63), regex(pattern = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"))]
    pub cluster_namespace: String,
    /// ClusterLabels are put on the ManagedCluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_labels: BTreeMap<String, String>,
    /// SyncMode decides how resources get to the cluster.
    #[schemars(extend("x-default" = "Pull"))]
    pub sync_mode: SyncMode,
}

/// How resources get to a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SyncMode {
    /// The parent applies.
    Push,
    /// The agent applies.
    #[default]
    Pull,
    /// Either of them: the parent when the agent offers AppPusher, else the agent.
    Dual,
}

/// ClusterRegistrationRequestStatus defines the observed state of ClusterRegistrationRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterRegistrationRequestStatus {
    /// DedicatedNamespace is the namespace of this cluster in the parent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dedicated_namespace: String,
    /// DedicatedToken is the credential of the agent in the parent.
    #[serde(rename = "token", skip_serializing_if = "Bytes::is_empty")]
    pub dedicated_token: Bytes,
    /// CACertificate is the CA of the parent, PEM.
    #[serde(rename = "caCertificate", skip_serializing_if = "Bytes::is_empty")]
    pub ca_certificate: Bytes,
    /// Result: Approved, Denied or Failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// ErrorMessage says why it was not approved.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error_message: String,
    /// ManagedClusterName is the name of the ManagedCluster in the dedicated namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub managed_cluster_name: String,
}

/// ManagedClusterSpec defines the desired state of ManagedCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.clusterInitBaseName) || has(self.clusterInitBaseName)",
    "message": "clusterInitBaseName is required once set"
}]))]
pub struct ManagedClusterSpec {
    /// ClusterID is the id of the cluster.
    #[schemars(
        regex(pattern = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        extend("x-required" = true)
    )]
    pub cluster_id: String,
    /// ClusterType denotes the type of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_type: String,
    /// SyncMode decides how resources get to the cluster.
    #[schemars(extend("x-required" = true))]
    pub sync_mode: SyncMode,
    /// Taints keep Subscriptions away that do not tolerate them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// ClusterInitBaseName is the name of the Base that initialises this cluster; cannot be changed once set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "clusterInitBaseName is immutable"}])
    )]
    pub cluster_init_base_name: Option<String>,
}

/// ManagedClusterStatus defines the observed state of ManagedCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    /// LastObservedTime is when the status was collected; the heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
    /// KubernetesVersion is the version of the cluster's API server.
    #[serde(rename = "k8sVersion", skip_serializing_if = "String::is_empty")]
    pub k8s_version: String,
    /// Platform of the cluster's API server, such as linux/amd64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// AgentVersion is the version of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_version: String,
    /// APIServerURL is where the agent reaches its API server.
    #[serde(rename = "apiserverURL", skip_serializing_if = "String::is_empty")]
    pub apiserver_url: String,
    /// Healthz is the health of the cluster's API server.
    #[schemars(extend("x-default" = false))]
    pub healthz: bool,
    /// Livez is the liveness of the cluster's API server.
    #[schemars(extend("x-default" = false))]
    pub livez: bool,
    /// Readyz is the readiness of the cluster's API server.
    #[schemars(extend("x-default" = false))]
    pub readyz: bool,
    /// AppPusher says whether the parent may apply in this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_pusher: Option<bool>,
    /// UseSocket says whether the cluster is reached through its tunnel.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub use_socket: bool,
    /// KubeQPS is the agent's client limit, requests per second.
    #[serde(rename = "kubeQPS", skip_serializing_if = "crate::is_default")]
    pub kube_qps: f32,
    /// KubeBurst is the agent's client limit, requests at once.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub kube_burst: i32,
    /// Allocatable is the sum of the allocatable resources of all nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Capacity is the sum of the capacity of all nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// ClusterCIDR is the range of Pod addresses.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "String::is_empty")]
    pub cluster_cidr: String,
    /// ServiceCIDR is the range of Service addresses.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "String::is_empty")]
    pub service_cidr: String,
    /// NodeStatistics counts nodes.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub node_statistics: NodeStatistics,
    /// PodStatistics counts Pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub pod_statistics: PodStatistics,
    /// ResourceUsage is what the metrics API reports.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub resource_usage: ResourceUsage,
    /// Conditions: Ready, ClusterInit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// HeartbeatFrequencySeconds is how often the agent reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_frequency_seconds: Option<i64>,
    /// PredictorEnabled says whether the cluster predicts its free capacity.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub predictor_enabled: bool,
    /// PredictorAddress is where the predictor listens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub predictor_address: String,
    /// PredictorDirectAccess says whether the predictor is reached without the tunnel.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub predictor_direct_access: bool,
}

/// NodeStatistics counts the nodes by their Ready condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatistics {
    /// Ready nodes.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub ready_nodes: i32,
    /// Nodes that are not ready.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub not_ready_nodes: i32,
    /// Nodes of unknown state.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub unknown_nodes: i32,
    /// Nodes without a Ready condition.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub lost_nodes: i32,
}

/// PodStatistics counts Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatistics {
    /// Running Pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub running_pods: i32,
    /// All Pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub total_pods: i32,
}

/// ResourceUsage is what the metrics API reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceUsage {
    /// CPU in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usage: Option<Quantity>,
    /// Memory in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_usage: Option<Quantity>,
}

/// Words of `ClusterRegistrationRequest.status.result`.
pub mod result {
    /// The cluster may join.
    pub const APPROVED: &str = "Approved";
    /// The cluster may not join.
    pub const DENIED: &str = "Denied";
    /// Joining failed.
    pub const FAILED: &str = "Failed";
}
