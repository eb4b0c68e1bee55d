//! Subscription: which feeds go to which clusters, and where they went.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PreferredSchedulingTerm, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Feed, spec_hash};
use crate::known;

kind! {
    /// Subscription represents a group of resources to be deployed to clusters matched by its subscribers.
    Subscription: "apps.clusternet.io", "v1alpha1", "subscriptions", NamespaceResourceScope, true
    {
        /// Spec is what is wanted.
        #[schemars(extend("x-required" = true))]
        spec: SubscriptionSpec ;
        /// Status is what the scheduler decided and what the clusters report.
        status: SubscriptionStatus
    }
}

with_spec!(Subscription: SubscriptionSpec);

/// SubscriptionSpec defines the desired state of Subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscriptionSpec {
    /// If specified, the Subscription will be handled by the scheduler profile of this name.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-default" = "default"))]
    pub scheduler_name: String,
    /// If specified, clusters are picked per subscriber, as many as its subGroupStrategy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_by_sub_group: Option<bool>,
    /// SchedulingStrategy: `Replication` copies everything to each cluster, `Dividing` splits replicas over them.
    #[schemars(extend("x-default" = "Replication"))]
    pub scheduling_strategy: SchedulingStrategy,
    /// DividingScheduling says how replicas are split; only read when schedulingStrategy is Dividing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dividing_scheduling: Option<DividingScheduling>,
    /// Priority orders the scheduling queue, higher first. Not set means 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// PreemptionPolicy: whether placing this Subscription may displace ones of lower priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "PreemptLowerPriority"))]
    pub preemption_policy: Option<PreemptionPolicy>,
    /// Subscribers select the clusters.
    #[schemars(extend("x-required" = true))]
    pub subscribers: Vec<Subscriber>,
    /// ClusterTolerations tolerate taints of ManagedClusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    /// Feeds are the resources to distribute.
    #[schemars(extend("x-required" = true))]
    pub feeds: Vec<Feed>,
}

impl Default for SubscriptionSpec {
    fn default() -> Self {
        Self {
            scheduler_name: known::DEFAULT_SCHEDULER_NAME.to_owned(),
            scheduling_by_sub_group: None,
            scheduling_strategy: SchedulingStrategy::Replication,
            dividing_scheduling: None,
            priority: None,
            preemption_policy: Some(PreemptionPolicy::PreemptLowerPriority),
            subscribers: Vec::new(),
            cluster_tolerations: Vec::new(),
            feeds: Vec::new(),
        }
    }
}

impl SubscriptionSpec {
    /// The hash that Clusternet writes to `status.specHash` for this spec.
    pub fn hash(&self) -> u64 {
        spec_hash::spec_hash(self)
    }

    /// Priority with its default.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }

    /// Whether clusters are picked per subscriber.
    pub fn by_sub_group(&self) -> bool {
        self.scheduling_by_sub_group.unwrap_or(false)
    }
}

/// How feeds spread over the clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SchedulingStrategy {
    /// A full copy in every cluster.
    #[default]
    Replication,
    /// Replicas are split over the clusters.
    Dividing,
}

/// Whether lower priorities may be displaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PreemptionPolicy {
    /// May displace Subscriptions of lower priority.
    #[default]
    PreemptLowerPriority,
    /// Never displaces others (the word in Clusternet's CRD).
    PreemptNever,
    /// Never displaces others (the word in Clusternet's Go constant).
    Never,
}

/// DividingScheduling describes how to divide replicas into target clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DividingScheduling {
    /// Type: `Static` divides by weight, `Dynamic` by predicted capacity.
    #[serde(rename = "type")]
    #[schemars(extend("x-required" = true, "x-default" = "Static"))]
    pub kind: DividingType,
    /// DynamicDividing describes how to divide replicas into target clusters dynamically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_dividing: Option<DynamicDividing>,
}

/// How shares are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DividingType {
    /// By the weights of the subscribers.
    #[default]
    Static,
    /// By what the clusters can take.
    Dynamic,
}

/// DynamicDividing describes how to divide replicas into target clusters dynamically.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DynamicDividing {
    /// Strategy: `Spread` evens out over capacity, `Binpack` fills as few clusters as possible.
    #[schemars(extend("x-required" = true, "x-default" = "Spread"))]
    pub strategy: DividingStrategy,
    /// TopologySpreadConstraints bound the difference between groups of clusters with the same value of a label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// PreferredClusters are filled first, by weight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preferred_clusters: Vec<PreferredSchedulingTerm>,
    /// MinClusters is the lowest number of clusters to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_clusters: Option<i32>,
    /// MaxClusters is the highest number of clusters to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clusters: Option<i32>,
}

/// How capacity is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DividingStrategy {
    /// Over all clusters, by their free capacity.
    #[default]
    Spread,
    /// In as few clusters as possible.
    Binpack,
}

/// Subscriber defines a group of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Subscriber {
    /// ClusterAffinity is a label query over ManagedClusters; the empty one matches all of them.
    #[schemars(extend("x-required" = true, "x-kubernetes-map-type" = "atomic"))]
    pub cluster_affinity: LabelSelector,
    /// Weight of each matching cluster for static dividing.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(range(min = 0))]
    pub weight: i32,
    /// SubGroupStrategy says how many clusters to pick of this group when schedulingBySubGroup is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_strategy: Option<SubGroupStrategy>,
}

/// SubGroupStrategy defines the picking within a group of clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SubGroupStrategy {
    /// MinClusters is how many clusters to take from this group.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(range(min = 0))]
    pub min_clusters: i32,
}

/// SubscriptionStatus defines the observed state of Subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscriptionStatus {
    /// Namespaced names (`namespace/name`) of the bound ManagedClusters, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binding_clusters: Vec<String>,
    /// Desired replicas per feed key, each list aligned with bindingClusters; empty for feeds without replicas.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, Vec<i32>>,
    /// SpecHash of the spec this decision was made for.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(with = "i64")]
    pub spec_hash: u64,
    /// DesiredReleases is the number of bound clusters.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub desired_releases: i32,
    /// CompletedReleases is the number of bound clusters in which every feed is available.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub completed_releases: i32,
    /// AggregatedStatuses shows the status of each feed over the clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregated_statuses: Vec<AggregatedStatus>,
    /// Conditions say how far this Subscription is and what holds it up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// AggregatedStatus contains the status of one feed over all clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AggregatedStatus {
    /// The feed.
    #[serde(flatten)]
    pub feed: Feed,
    /// FeedStatusSummary is the sum over the clusters.
    // Written even when empty, as Go writes a struct that is not a pointer.
    pub feed_status_summary: FeedStatus,
    /// FeedStatusDetails is the status in each cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feed_status_details: Vec<FeedStatusPerCluster>,
}

/// FeedStatusPerCluster is the status of a feed in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FeedStatusPerCluster {
    /// ClusterID is the id of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"))]
    pub cluster_id: String,
    /// ClusterName is the name of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 30), regex(pattern = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([a-z0-9]([-a-z0-9]*[a-z0-9]))*"))]
    pub cluster_name: String,
    /// Status of the feed there.
    #[serde(flatten)]
    pub status: FeedStatus,
}

/// FeedStatus contains the status of a feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FeedStatus {
    /// Available indicates whether the feed exists and works.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub available: bool,
    /// ReplicaStatus counts the replicas of workloads.
    // Written even when empty, as Go writes a struct that is not a pointer.
    pub replica_status: ReplicaStatus,
}

/// ReplicaStatus represents the status of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// The generation observed by the workload's controller.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub observed_generation: i64,
    /// Number of non-terminated pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub replicas: i32,
    /// Number of pods of the newest template.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub updated_replicas: i32,
    /// Number of pods of the current template.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub current_replicas: i32,
    /// Number of ready pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub ready_replicas: i32,
    /// Number of available pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub available_replicas: i32,
    /// Number of unavailable pods.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub unavailable_replicas: i32,
    /// Number of running pods of a Job.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub active: i32,
    /// Number of succeeded pods of a Job.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub succeeded: i32,
    /// Number of failed pods of a Job.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub failed: i32,
}
