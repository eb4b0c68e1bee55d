//! GitTarget: a delivery repository, with one branch per cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LocalReference, ProxySpec, URL_PATTERN};
use crate::duration;

kind! {
    /// GitTarget is a Git repository to which the rendered state of clusters is written, one branch per cluster.
    GitTarget: "gitops.anabranch.io", "v1alpha1", "gittargets", NamespaceResourceScope, true
    {
        /// Spec says where to write, for which clusters, and how.
        #[schemars(extend("x-required" = true))]
        spec: GitTargetSpec ;
        /// Status is what was written.
        status: GitTargetStatus
    }
}

with_spec!(GitTarget: GitTargetSpec);

/// GitTargetSpec defines the desired state of GitTarget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GitTargetSpec {
    /// URL of the repository: https, ssh, `git@host:path`, `file://` or an absolute path. Never with credentials.
    #[schemars(extend("x-required" = true), regex(pattern = URL_PATTERN), length(max = 2048))]
    pub url: String,
    /// AgentURL is the URL from which agents fetch, when it is not the same.
    #[serde(rename = "agentURL", skip_serializing_if = "String::is_empty")]
    pub agent_url: String,
    /// Branch is the pattern of the branch names; `{cluster}` and `{namespace}` stand for the ManagedCluster.
    #[schemars(extend("x-default" = "clusters/{cluster}"), length(min = 1, max = 200))]
    pub branch: String,
    /// ClusterSelector is a label query over ManagedClusters; not set means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub cluster_selector: Option<LabelSelector>,
    /// SecretRef names the Secret with `username` and `password`, or `bearerToken`, or `identity` and `known_hosts`, that may push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// AgentSecretRef names the Secret with which agents may fetch; it is looked for in the namespace of each ManagedCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_secret_ref: Option<LocalReference>,
    /// Proxy for https remotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySpec>,
    /// CARef names the Secret with `ca.crt`, the CA bundle of the remote.
    #[serde(rename = "caRef", skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalReference>,
    /// Author of the commits.
    pub author: CommitIdentity,
    /// Signing signs the commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing: Option<CommitSigning>,
    /// Layout says where in a branch the files lie.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub layout: Layout,
    /// Mode: `Commit` writes the branches of the clusters, `Propose` a second branch from which people open a pull request.
    #[schemars(extend("x-default" = "Commit"))]
    pub mode: DeliveryMode,
    /// Propose says how proposals look; only read in mode Propose.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub propose: ProposeSpec,
    /// Retention says what becomes of the branch of a cluster that is gone.
    #[schemars(extend("x-default" = "Keep"))]
    pub retention: BranchRetention,
    /// Push bounds what is sent at once, for hosts with limits.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub push: PushLimits,
    /// Timeout of one push.
    #[schemars(extend("x-default" = "60s"), regex(pattern = duration::PATTERN))]
    pub timeout: String,
    /// Suspend stops writing.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub suspend: bool,
}

impl Default for GitTargetSpec {
    fn default() -> Self {
        Self {
            url: String::new(),
            agent_url: String::new(),
            branch: "clusters/{cluster}".to_owned(),
            cluster_selector: None,
            secret_ref: None,
            agent_secret_ref: None,
            proxy: None,
            ca_ref: None,
            author: CommitIdentity::default(),
            signing: None,
            layout: Layout::default(),
            mode: DeliveryMode::Commit,
            propose: ProposeSpec::default(),
            retention: BranchRetention::Keep,
            push: PushLimits::default(),
            timeout: "60s".to_owned(),
            suspend: false,
        }
    }
}

impl GitTargetSpec {
    /// Name of the branch of a ManagedCluster.
    pub fn branch_of(&self, namespace: &str, cluster: &str) -> String {
        self.branch.replace("{cluster}", cluster).replace("{namespace}", namespace)
    }
}

/// Who a commit is by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CommitIdentity {
    /// Name of the author.
    #[schemars(extend("x-default" = "Anabranch"), length(min = 1, max = 200))]
    pub name: String,
    /// Email of the author.
    #[schemars(extend("x-default" = "anabranch@localhost"), length(min = 1, max = 200))]
    pub email: String,
}

impl Default for CommitIdentity {
    fn default() -> Self {
        Self { name: "Anabranch".to_owned(), email: "anabranch@localhost".to_owned() }
    }
}

/// Signing of commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CommitSigning {
    /// SecretRef names the Secret with `identity`, an SSH private key.
    #[schemars(extend("x-required" = true))]
    pub secret_ref: LocalReference,
}

/// Where in a branch the files lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Layout {
    /// Path of the directory for our files; empty means the root.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 500))]
    pub path: String,
}

/// How changes get into the branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryMode {
    /// Straight.
    #[default]
    Commit,
    /// By a pull request that people open and merge.
    Propose,
}

/// How proposals look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProposeSpec {
    /// Branch is the pattern of the proposals' branch names; `{branch}` stands for the branch of the cluster.
    #[schemars(extend("x-default" = "propose/{branch}"), length(min = 1, max = 200))]
    pub branch: String,
}

impl Default for ProposeSpec {
    fn default() -> Self {
        Self { branch: "propose/{branch}".to_owned() }
    }
}

/// What becomes of the branch of a cluster that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BranchRetention {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is deleted.
    Delete,
}

/// Bounds of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PushLimits {
    /// MaxRefs is the highest number of branches in one push; not set means all at once until the host refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_refs: Option<i32>,
    /// MinInterval is the shortest time between two pushes.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = duration::PATTERN))]
    pub min_interval: String,
}

/// GitTargetStatus defines the observed state of GitTarget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GitTargetStatus {
    /// ObservedGeneration is the generation that this status is about.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub observed_generation: i64,
    /// Conditions: Ready, Reconciling, Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// LastPushTime is when branches were pushed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,
    /// LastAppliedRevision is the newest source revision that is in the branches.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_applied_revision: String,
    /// LastHandledRequest is the last value of the annotation gitops.anabranch.io/reconcile-requested-at that was acted on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_handled_request: String,
    /// Clusters counts the clusters of this target.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub clusters: DeliveryCounts,
    /// Faults lists branches that could not be written, at most 50 of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<BranchFault>,
}

/// Clusters of a target by how far they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DeliveryCounts {
    /// Clusters that the selector matches.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub matched: i32,
    /// Clusters whose branch is what is wanted.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub delivered: i32,
    /// Clusters whose branch waits to be written.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub pending: i32,
    /// Clusters whose branch cannot be written.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub failed: i32,
}

/// A branch that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BranchFault {
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Branch of it.
    pub branch: String,
    /// Reason is one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message is what the host said.
    pub message: String,
}
