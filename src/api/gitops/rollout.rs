//! Rollout: waves over clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration;

kind! {
    /// Rollout lets changes of Subscriptions reach their clusters wave by wave.
    Rollout: "gitops.anabranch.io", "v1alpha1", "rollouts", NamespaceResourceScope, true
    {
        /// Spec says which Subscriptions and which waves.
        #[schemars(extend("x-required" = true))]
        spec: RolloutSpec ;
        /// Status says how far it is.
        status: RolloutStatus
    }
}

with_spec!(Rollout: RolloutSpec);

/// RolloutSpec defines the desired state of Rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutSpec {
    /// Subscriptions of this namespace by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionReference>,
    /// Selector is a label query over Subscriptions of this namespace, besides those named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
    /// Waves in their order. Clusters that no wave matches come last, in a wave of their own.
    #[schemars(extend("x-required" = true), length(min = 1, max = 100))]
    pub waves: Vec<Wave>,
    /// HealthGate is what a wave must reach; waves may say otherwise.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub health_gate: HealthGate,
    /// Paused holds the rollout where it is.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub paused: bool,
    /// OnFailure: what happens when a wave fails its gate.
    #[schemars(extend("x-default" = "Pause"))]
    pub on_failure: OnFailure,
}

/// A Subscription by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscriptionReference {
    /// Name of the Subscription.
    #[schemars(extend("x-required" = true), length(min = 1, max = 253))]
    pub name: String,
}

/// A group of clusters that gets a change together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Wave {
    /// Name of the wave.
    #[schemars(extend("x-required" = true), length(min = 1, max = 63))]
    pub name: String,
    /// ClusterSelector is a label query over ManagedClusters; not set means all that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub cluster_selector: Option<LabelSelector>,
    /// OrderBy is the label by whose value the clusters of the wave are ordered, then by name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub order_by: String,
    /// BatchSize is how many clusters (number or percent of the wave) change at once; not set means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<IntOrString>,
    /// MaxUnavailable is how many clusters (number or percent of the wave) may be unhealthy before it stops; not set means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// BakeTime is how long a wave must stay healthy before the next one starts.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = duration::PATTERN))]
    pub bake_time: String,
    /// Approval: whether a person must allow this wave, by the annotation gitops.anabranch.io/approved.
    #[schemars(extend("x-default" = "Automatic"))]
    pub approval: Approval,
    /// HealthGate of this wave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_gate: Option<HealthGate>,
}

/// Who lets a wave start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// The wave before it.
    #[default]
    Automatic,
    /// A person.
    Manual,
}

/// What a cluster must reach to count as done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HealthGate {
    /// Timeout after which a cluster that is not healthy counts as failed.
    #[schemars(extend("x-default" = "10m"), regex(pattern = duration::PATTERN))]
    pub timeout: String,
    /// MinReady is how long a cluster must be healthy to count.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = duration::PATTERN))]
    pub min_ready: String,
    /// IgnoreLost leaves clusters out that do not report.
    #[schemars(extend("x-default" = true))]
    pub ignore_lost: bool,
}

impl Default for HealthGate {
    fn default() -> Self {
        Self { timeout: "10m".to_owned(), min_ready: String::new(), ignore_lost: true }
    }
}

/// What happens when a wave fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Hold and wait for a person.
    #[default]
    Pause,
    /// Give the clusters of the waves so far what they had before.
    Return,
    /// Go on.
    Continue,
}

/// RolloutStatus defines the observed state of Rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutStatus {
    /// ObservedGeneration is the generation that this status is about.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub observed_generation: i64,
    /// Conditions: Ready, Reconciling, Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Phase is the whole in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RolloutPhase>,
    /// Digest of the rendered state that is being rolled out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_digest: String,
    /// Digest of the rendered state that is in all clusters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stable_digest: String,
    /// CurrentWave is the name of the wave under way.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_wave: String,
    /// Waves in numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<WaveStatus>,
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPhase {
    /// Nothing to do.
    Idle,
    /// A wave is under way.
    Progressing,
    /// A wave bakes.
    Baking,
    /// A wave waits for a person.
    WaitingForApproval,
    /// Held.
    Paused,
    /// Going back.
    Returning,
    /// Every wave is done.
    Completed,
    /// A wave failed.
    Failed,
}

/// One wave in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct WaveStatus {
    /// Name of the wave.
    pub name: String,
    /// Clusters in it.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub clusters: i32,
    /// Clusters that were given the new state.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub updated: i32,
    /// Clusters that are healthy with it.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub healthy: i32,
    /// Clusters that failed.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub failed: i32,
    /// StartTime is when the wave began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// HealthyTime is since when all its clusters are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_time: Option<Time>,
}
