//! Group `gitops.anabranch.io/v1alpha1`: what Clusternet has no kinds for: Git in, Git out, and waves.

mod rollout;
mod source;
mod target;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use rollout::{
    Approval, HealthGate, OnFailure, Rollout, RolloutPhase, RolloutSpec, RolloutStatus, SubscriptionReference, Wave, WaveStatus,
};
pub use source::{FAULTS_MAX,
    DeletionBudget, FileFault, GitReference, GitSource, GitSourceSpec, GitSourceStatus, Inventory, VerifyMode, VerifySpec,
};
pub use target::{
    BranchFault, BranchRetention, CommitIdentity, CommitSigning, DeliveryCounts, DeliveryMode, GitTarget, GitTargetSpec,
    GitTargetStatus, Layout, ProposeSpec, PushLimits,
};

/// A Secret or ServiceAccount in the same namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object.
    #[schemars(extend("x-required" = true), length(min = 1, max = 253))]
    pub name: String,
}

impl LocalReference {
    /// A reference to this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// A proxy for outgoing connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxySpec {
    /// URL of the proxy, `http://host:port`, without credentials.
    #[schemars(extend("x-required" = true), regex(pattern = r"^https?://[^@/]+/?$"))]
    pub url: String,
    /// SecretRef holds `username` and `password` of the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
}

/// Pattern of repository URLs: https, http, ssh, git+ssh, file, `user@host:path`, or an absolute path.
pub(crate) const URL_PATTERN: &str = r"^((https?|ssh|git\+ssh|file)://.+|[^@/:\s]+@[^:/\s]+:.+|/.+)$";
