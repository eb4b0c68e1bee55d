//! GitSource: a source repository that drives the fleet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LocalReference, ProxySpec, URL_PATTERN};
use crate::duration;

kind! {
    /// GitSource is a Git repository whose objects are applied to the parent.
    GitSource: "gitops.anabranch.io", "v1alpha1", "gitsources", NamespaceResourceScope, true
    {
        /// Spec says where to read and what may come from there.
        #[schemars(extend("x-required" = true))]
        spec: GitSourceSpec ;
        /// Status is what was read and applied.
        status: GitSourceStatus
    }
}

with_spec!(GitSource: GitSourceSpec);

/// GitSourceSpec defines the desired state of GitSource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GitSourceSpec {
    /// URL of the repository: https, ssh, `git@host:path`, `file://` or an absolute path. Never with credentials.
    #[schemars(extend("x-required" = true), regex(pattern = URL_PATTERN), length(max = 2048))]
    pub url: String,
    /// Ref is what to read of it; not set means the remote's default branch.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Paths are the directories or files to read, relative to the root; not set means all of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Ignore lists glob patterns of paths to leave out, in the syntax of `.gitignore`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Interval at which a remote is asked for news when nothing else says so.
    #[schemars(extend("x-default" = "1m"), regex(pattern = duration::PATTERN))]
    pub interval: String,
    /// Timeout of one fetch.
    #[schemars(extend("x-default" = "60s"), regex(pattern = duration::PATTERN))]
    pub timeout: String,
    /// Suspend stops reading; what is applied stays.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub suspend: bool,
    /// SecretRef names the Secret with `username` and `password`, or `bearerToken`, or `identity` and `known_hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Proxy for https remotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySpec>,
    /// CARef names the Secret or ConfigMap-like Secret with `ca.crt`, the CA bundle of the remote.
    #[serde(rename = "caRef", skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<LocalReference>,
    /// Verify refuses commits that are not signed by one of these keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
    /// Prune deletes objects that disappeared from the repository.
    #[schemars(extend("x-default" = true))]
    pub prune: bool,
    /// DeletionBudget bounds how much one revision may delete; more waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_budget: Option<DeletionBudget>,
    /// TargetNamespaces limits the namespaces in which objects may be made; not set means no limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_namespaces: Vec<String>,
    /// ServiceAccountName is the ServiceAccount in this namespace to act as; not set means the source controller itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// Depth of the fetch in commits; 0 means the whole history.
    #[schemars(extend("x-default" = 1), range(min = 0))]
    pub depth: i32,
}

impl Default for GitSourceSpec {
    fn default() -> Self {
        Self {
            url: String::new(),
            reference: None,
            paths: Vec::new(),
            ignore: Vec::new(),
            interval: "1m".to_owned(),
            timeout: "60s".to_owned(),
            suspend: false,
            secret_ref: None,
            proxy: None,
            ca_ref: None,
            verify: None,
            prune: true,
            deletion_budget: None,
            target_namespaces: Vec::new(),
            service_account_name: String::new(),
            depth: 1,
        }
    }
}

/// What to read of a repository; the most exact one that is set counts: commit, tag, semver, branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GitReference {
    /// Branch to follow.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Tag to read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// Semver range of tags, such as `>=1.2 <2`; the highest match is read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub semver: String,
    /// Commit to read, full id.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = "^([0-9a-f]{40}|[0-9a-f]{64})?$"))]
    pub commit: String,
}

/// Signatures that a revision must carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VerifySpec {
    /// Mode is what must be signed.
    #[schemars(extend("x-default" = "Head"))]
    pub mode: VerifyMode,
    /// SecretRef names the Secret whose values are public keys, SSH or OpenPGP.
    #[schemars(extend("x-required" = true))]
    pub secret_ref: LocalReference,
}

/// What must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum VerifyMode {
    /// The commit.
    #[default]
    Head,
    /// The tag.
    Tag,
    /// Both.
    TagAndHead,
}

/// How much one revision may delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DeletionBudget {
    /// MaxObjects is the highest number of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_objects: Option<i32>,
    /// MaxPercent is the highest share of the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_percent: Option<i32>,
}

/// GitSourceStatus defines the observed state of GitSource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GitSourceStatus {
    /// ObservedGeneration is the generation that this status is about.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub observed_generation: i64,
    /// Conditions: Ready, Reconciling, Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// LastAttemptedRevision is what was read last, `<branch>@sha1:<commit>`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_attempted_revision: String,
    /// LastAppliedRevision is what is applied in whole, `<branch>@sha1:<commit>`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_applied_revision: String,
    /// LastAppliedTime is when that was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_time: Option<Time>,
    /// LastHandledRequest is the last value of the annotation gitops.anabranch.io/reconcile-requested-at that was acted on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_handled_request: String,
    /// Inventory sums up what is applied.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub inventory: Inventory,
    /// Faults lists what is wrong in files, at most 50 of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FileFault>,
    /// FaultCount is the number of all faults.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub fault_count: i32,
}

/// Longest list of faults in a status.
pub const FAULTS_MAX: usize = 50;

/// What is applied, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Inventory {
    /// Objects in total.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub objects: i32,
    /// Kinds counts the objects of each `Kind.group`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, i32>,
    /// Digest over the names of all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// Something wrong at a place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FileFault {
    /// Path of the file in the repository.
    pub path: String,
    /// Line, from 1; 0 when it is about the whole file.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub line: i32,
    /// Column, from 1.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub column: i32,
    /// Reason is one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message says what is wrong and how to mend it.
    pub message: String,
    /// Object that it is about, `Kind.group namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
}

/// `path:line:column: message`, as compilers print it.
impl std::fmt::Display for FileFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        write!(f, ": {}", self.message)
    }
}
