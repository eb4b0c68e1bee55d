//! Localization and Globalization: changes on the way to one cluster, or to many.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Feed;

kind! {
    /// Localization represents the override config for a group of resources in one cluster.
    Localization: "apps.clusternet.io", "v1alpha1", "localizations", NamespaceResourceScope, true
    {
        /// Spec lists the overrides.
        #[schemars(extend("x-required" = true))]
        spec: LocalizationSpec ;
    }
}

kind! {
    /// Globalization represents the override config for a group of resources in many clusters.
    Globalization: "apps.clusternet.io", "v1alpha1", "globalizations", ClusterResourceScope, false
    {
        /// Spec lists the overrides.
        #[schemars(extend("x-required" = true))]
        spec: GlobalizationSpec ;
    }
}

with_spec!(Localization: LocalizationSpec, Globalization: GlobalizationSpec);

/// LocalizationSpec defines the desired state of Localization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalizationSpec {
    /// OverridePolicy: ApplyNow re-renders at once, ApplyLater with the next change of what is overridden.
    #[schemars(extend("x-default" = "ApplyLater"))]
    pub override_policy: OverridePolicy,
    /// Overrides are applied in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideConfig>,
    /// Priority orders the overrides of one feed, lower first, so that the highest wins. Globalizations come before Localizations.
    #[schemars(range(min = 0, max = 1000), extend("x-default" = 500))]
    pub priority: i32,
    /// Feed holds references to the resource that is overridden.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub feed: Feed,
}

impl Default for LocalizationSpec {
    fn default() -> Self {
        Self { override_policy: OverridePolicy::ApplyLater, overrides: Vec::new(), priority: 500, feed: Feed::default() }
    }
}

/// GlobalizationSpec defines the desired state of Globalization.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GlobalizationSpec {
    /// OverridePolicy: ApplyNow re-renders at once, ApplyLater with the next change of what is overridden.
    #[schemars(extend("x-default" = "ApplyLater"))]
    pub override_policy: OverridePolicy,
    /// ClusterAffinity is a label query over ManagedClusters; not set means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub cluster_affinity: Option<LabelSelector>,
    /// Overrides are applied in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideConfig>,
    /// Priority orders the overrides of one feed, lower first, so that the highest wins. Globalizations come before Localizations.
    #[schemars(range(min = 0, max = 1000), extend("x-default" = 500))]
    pub priority: i32,
    /// Feed holds references to the resource that is overridden.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub feed: Feed,
}

impl Default for GlobalizationSpec {
    fn default() -> Self {
        Self {
            override_policy: OverridePolicy::ApplyLater,
            cluster_affinity: None,
            overrides: Vec::new(),
            priority: 500,
            feed: Feed::default(),
        }
    }
}

/// When a change of an override takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OverridePolicy {
    /// At once.
    ApplyNow,
    /// With the next change of the Subscription, Base, Manifest or chart.
    #[default]
    ApplyLater,
}

/// OverrideConfig holds information that describes one override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OverrideConfig {
    /// Name of the override, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Value is the patch, as JSON or YAML.
    #[schemars(extend("x-required" = true))]
    pub value: String,
    /// Type specifies how the value is applied.
    #[serde(rename = "type")]
    #[schemars(extend("x-required" = true))]
    pub kind: OverrideType,
    /// OverrideChart applies a Helm override to the HelmChart object instead of the values.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub override_chart: bool,
    /// FieldPath is the path of the text field that a field patch works on, such as `/data/server.conf`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
    /// FieldFormat is the format of the text in that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_format: Option<FieldFormat>,
}

/// How an override is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OverrideType {
    /// Values of a chart, merged.
    Helm,
    /// RFC 6902.
    JSONPatch,
    /// RFC 7386.
    #[default]
    MergePatch,
    /// RFC 6902 on the text in a field.
    FieldJSONPatch,
    /// RFC 7386 on the text in a field.
    FieldMergePatch,
}

/// Format of the text in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FieldFormat {
    /// YAML text.
    YAML,
    /// JSON text.
    JSON,
}
