//! Wire protocol between the scheduler and a cluster's predictor (Clusternet's, plain JSON over HTTP).
//!
//! `POST /replicas/predict` with [`crate::apps::ReplicaRequirements`] answers [`ReplicasResponse`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Path of the question how many more replicas fit (POST).
pub const PREDICT_PATH: &str = "/replicas/predict";
/// Path of the question how many replicas could not be scheduled (GET).
pub const UNSCHEDULED_PATH: &str = "/replicas/unscheduled";
/// Request header that names the cluster.
pub const CLUSTER_ID_HEADER: &str = "Cluster-ID";
/// Key of the total in a response.
pub const DEFAULT_KEY: &str = "default";

/// Answer of a predictor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicasResponse {
    /// Replicas that fit, per topology expression; `default` is the total.
    pub replicas: BTreeMap<String, i32>,
}

impl ReplicasResponse {
    /// A response with only the total.
    pub fn total(replicas: i32) -> Self {
        Self { replicas: BTreeMap::from([(DEFAULT_KEY.to_owned(), replicas)]) }
    }
}

/// Answer to the question which replicas of a workload cannot be scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnscheduledResponse {
    /// Unschedulable replicas per feed key.
    pub replicas: BTreeMap<String, i32>,
}
