//! HelmChart and HelmRelease.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

kind! {
    /// HelmChart is a chart to be distributed.
    HelmChart: "apps.clusternet.io", "v1alpha1", "helmcharts", NamespaceResourceScope, true
    {
        /// Spec says which chart and how to install it.
        #[schemars(extend("x-required" = true))]
        spec: HelmChartSpec ;
        /// Status says whether the chart was found.
        status: HelmChartStatus
    }
}

kind! {
    /// HelmRelease is one chart in one cluster.
    HelmRelease: "apps.clusternet.io", "v1alpha1", "helmreleases", NamespaceResourceScope, true
    {
        /// Spec says which chart, with which values.
        #[schemars(extend("x-required" = true))]
        spec: HelmReleaseSpec ;
        /// Status is what Helm says about the release.
        status: HelmReleaseStatus
    }
}

with_spec!(HelmChart: HelmChartSpec, HelmRelease: HelmReleaseSpec);

/// HelmOptions say where a chart comes from and how it is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmOptions {
    /// Repository or OCI registry of the chart.
    #[schemars(
        regex(pattern = r"^(http|https|oci)?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+$"),
        extend("x-required" = true)
    )]
    pub repo: String,
    /// ChartPullSecret is the secret with `username` and `password` of the repository.
    // Written even when empty, as Go writes a struct that is not a pointer.
    pub chart_pull_secret: SecretRef,
    /// PlainHTTP talks HTTP without TLS to an OCI registry.
    #[serde(rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// Chart is the name of the chart.
    #[schemars(extend("x-required" = true))]
    pub chart: String,
    /// Version of the chart; empty means the latest.
    #[serde(rename = "version", skip_serializing_if = "String::is_empty")]
    pub chart_version: String,
    /// CreateNamespace makes the target namespace on install.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = true))]
    pub create_namespace: Option<bool>,
    /// Timeout of any single action, in seconds.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(extend("x-default" = 300))]
    pub timeout_seconds: i32,
    /// Wait until all resources are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// WaitForJob waits until all Jobs are completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_job: Option<bool>,
    /// Replace re-uses the name of a deleted release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<bool>,
    /// Atomic removes the release when the installation fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic: Option<bool>,
    /// UpgradeAtomic rolls back when an upgrade fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_atomic: Option<bool>,
    /// SkipCRDs installs no CRDs.
    #[serde(rename = "skipCRDs", skip_serializing_if = "Option::is_none")]
    pub skip_crds: Option<bool>,
    /// ReplaceCRDs replaces CRDs before an install or upgrade; ignored with skipCRDs.
    #[serde(rename = "replaceCRDs", skip_serializing_if = "Option::is_none")]
    pub replace_crds: Option<bool>,
    /// DisableHooks runs no hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_hooks: Option<bool>,
    /// Force resources to be replaced on upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

impl Default for HelmOptions {
    fn default() -> Self {
        Self {
            repo: String::new(),
            chart_pull_secret: SecretRef::default(),
            plain_http: None,
            chart: String::new(),
            chart_version: String::new(),
            create_namespace: Some(true),
            timeout_seconds: 300,
            wait: None,
            wait_for_job: None,
            replace: None,
            atomic: None,
            upgrade_atomic: None,
            skip_crds: None,
            replace_crds: None,
            disable_hooks: None,
            force: None,
        }
    }
}

/// A Secret by name and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace of the Secret.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// HelmChartSpec defines the spec of HelmChart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmChartSpec {
    /// Chart and options.
    #[serde(flatten)]
    pub options: HelmOptions,
    /// TargetNamespace is where the release goes in the clusters.
    #[schemars(extend("x-required" = true))]
    pub target_namespace: String,
}

/// HelmChartStatus defines the observed state of HelmChart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmChartStatus {
    /// Phase denotes whether the chart was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<HelmChartPhase>,
    /// Reason indicates the reason of the phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Phase of a HelmChart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HelmChartPhase {
    /// The repository has the chart.
    Found,
    /// The repository does not have it, or cannot be reached.
    NotFound,
}

/// HelmReleaseSpec defines the spec of HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmReleaseSpec {
    /// ReleaseName is the name of the release; the name of this object when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Chart and options.
    #[serde(flatten)]
    pub options: HelmOptions,
    /// TargetNamespace is where the release goes.
    #[schemars(extend("x-required" = true))]
    pub target_namespace: String,
    /// Overrides are values as JSON.
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub overrides: Bytes,
}

/// HelmReleaseStatus defines the observed state of HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct HelmReleaseStatus {
    /// FirstDeployed is when the release was first deployed, in Go's text form.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_deployed: String,
    /// LastDeployed is when the release was last deployed, in Go's text form.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_deployed: String,
    /// Description is human-friendly text about the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Phase is Helm's word: unknown, deployed, uninstalled, superseded, failed, uninstalling, pending-install, pending-upgrade, pending-rollback.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Notes are the rendered notes of the chart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Version is the revision of the release.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub version: i32,
}

