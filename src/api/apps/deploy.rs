//! The pipeline between a Subscription and a child: Base, Description, and the Manifest templates they are made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Feed;
use crate::Bytes;

kind! {
    /// Base represents the feeds of one Subscription in one cluster.
    Base: "apps.clusternet.io", "v1alpha1", "bases", NamespaceResourceScope, true
    {
        /// Spec lists the feeds.
        #[schemars(extend("x-required" = true))]
        spec: BaseSpec ;
    }
}

kind! {
    /// Description carries the objects of one cluster with all overrides rendered.
    Description: "apps.clusternet.io", "v1alpha1", "descriptions", NamespaceResourceScope, true
    {
        /// Spec is what to deploy.
        #[schemars(extend("x-required" = true))]
        spec: DescriptionSpec ;
        /// Status is how it went.
        status: DescriptionStatus
    }
}

kind! {
    /// Manifest wraps one Kubernetes object, which is a template for the clusters.
    Manifest: "apps.clusternet.io", "v1alpha1", "manifests", NamespaceResourceScope, true
    {
        /// Template is the whole wrapped Kubernetes object.
        #[schemars(schema_with = "crate::schema::free_object", extend("x-required" = true))]
        template: Value ;
    }
}

with_spec!(Base: BaseSpec, Description: DescriptionSpec);

impl Manifest {
    /// A Manifest of this name around an object.
    pub fn new(name: &str, template: Value) -> Self {
        let mut made = Self { template, ..Self::default() };
        made.metadata.name = Some(name.to_owned());
        made
    }
}

/// BaseSpec defines the desired state of Base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BaseSpec {
    /// Feeds to deploy in this cluster.
    #[schemars(extend("x-required" = true))]
    pub feeds: Vec<Feed>,
}

/// DescriptionSpec defines the desired state of Description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DescriptionSpec {
    /// Deployer indicates the deployer for this Description.
    #[schemars(extend("x-required" = true))]
    pub deployer: DeployerType,
    /// Charts describe all the helm charts to be installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<ChartReference>,
    /// Raw is, for Generic, each object as JSON after overrides; for Helm, the values override of each chart as JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<Bytes>,
    /// ChartRaw is each HelmChart object as JSON after overrides of the chart itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chart_raw: Vec<Bytes>,
}

/// Who deploys a Description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeployerType {
    /// Charts.
    Helm,
    /// Plain objects.
    #[default]
    Generic,
}

/// ChartReference contains the location of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ChartReference {
    /// Namespace of the HelmChart.
    #[schemars(extend("x-required" = true))]
    pub namespace: String,
    /// Name of the HelmChart.
    #[schemars(extend("x-required" = true))]
    pub name: String,
}

/// DescriptionStatus defines the observed state of Description.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DescriptionStatus {
    /// Phase denotes the phase of Description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<DescriptionPhase>,
    /// Reason indicates the reason of the phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// ManifestStatuses shows the status of each object in the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifest_statuses: Vec<ManifestStatus>,
}

/// Phase of a Description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DescriptionPhase {
    /// Nothing happened yet.
    Pending,
    /// Everything is deployed.
    Success,
    /// Something could not be deployed.
    Failure,
    /// A chart is being installed.
    Installing,
    /// A chart is being upgraded.
    Upgrading,
    /// A chart is being removed.
    Uninstalling,
    /// The release was replaced by a newer one.
    Superseded,
    /// Not known.
    Unknown,
}

/// ManifestStatus is the status of one object in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ManifestStatus {
    /// The object.
    #[serde(flatten)]
    pub feed: Feed,
    /// ObservedStatus is the `.status` of the object in the cluster.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub observed_status: Value,
}
