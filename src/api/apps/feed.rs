//! Feeds: references to what a Subscription distributes, and what is known about their replicas.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::ObjectRef;

/// Feed defines the resource to be selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Feed {
    /// Kind is a string value representing the REST resource this object represents.
    #[schemars(extend("x-required" = true))]
    pub kind: String,
    /// APIVersion defines the versioned schema of this representation of an object.
    #[schemars(extend("x-required" = true))]
    pub api_version: String,
    /// Namespace of the target resource, empty for cluster-scoped ones.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the target resource.
    #[schemars(extend("x-required" = true))]
    pub name: String,
}

impl Feed {
    /// Key of the feed in `status.replicas`: `apiVersion/kind/namespace/name`, without a namespace
    /// `apiVersion/kind/name` (Clusternet's `GetFeedKey`).
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}/{}/{}", self.api_version, self.kind, self.name)
        } else {
            format!("{}/{}/{}/{}", self.api_version, self.kind, self.namespace, self.name)
        }
    }

    /// The referred object.
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// True for a chart; Clusternet decides by the kind alone, whatever the apiVersion says.
    pub fn is_helm_chart(&self) -> bool {
        self.kind == "HelmChart"
    }
}

impl From<&ObjectRef> for Feed {
    fn from(object: &ObjectRef) -> Self {
        Self {
            kind: object.kind.clone(),
            api_version: object.api_version.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }
}

kind! {
    /// FeedInventory defines a group of feeds which correspond to a Subscription, with the replicas each of them asks for.
    FeedInventory: "apps.clusternet.io", "v1alpha1", "feedinventories", NamespaceResourceScope, true
    {
        /// Spec of the FeedInventory.
        #[schemars(extend("x-required" = true))]
        spec: FeedInventorySpec ;
    }
}

with_spec!(FeedInventory: FeedInventorySpec);

/// FeedInventorySpec lists the feeds of the Subscription of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FeedInventorySpec {
    /// Feeds with their desired replicas and requirements, in the order of the Subscription.
    #[schemars(extend("x-required" = true))]
    pub feeds: Vec<FeedOrder>,
}

/// FeedOrder defines the resource, how many replicas of it are wanted and what each of them needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FeedOrder {
    /// The feed itself.
    #[serde(flatten)]
    pub feed: Feed,
    /// DesiredReplicas specifies the number of desired replicas; not set for feeds without replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// ReplicaRequirements describes the scheduling requirements for a replica.
    // Written even when empty, as Go writes a struct that is not a pointer.
    pub replica_requirements: ReplicaRequirements,
    /// ReplicaJsonPath specifies the JSON pointer of the replica field, such as `/spec/replicas`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replica_json_path: String,
}

/// ReplicaRequirements describes the scheduling requirements for a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// NodeSelector specifies hard node constraint that must be met for a replica to fit on a node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations specifies the tolerations for a replica.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Affinity specifies the scheduling constraints for a replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Resources describes the compute resource requirements of one replica.
    pub resources: ResourceRequirements,
}
