//! What placement knows of a cluster: only what a decision can depend on, so that heartbeats change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::clusters::ManagedCluster;
use api::known;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde::{Deserialize, Serialize};

use super::events::Events;

/// Where a cluster's predictor is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predictor {
    /// URL or `host:port`.
    pub address: String,
    /// Reached without the tunnel.
    pub direct: bool,
}

/// A cluster as placement sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// `namespace/name` of the ManagedCluster, as it stands in bindings.
    pub key: Arc<str>,
    /// Name of the ManagedCluster.
    pub name: String,
    /// Id of the cluster.
    pub id: String,
    /// Labels of the ManagedCluster.
    pub labels: BTreeMap<String, String>,
    /// Taints of the ManagedCluster.
    pub taints: Vec<Taint>,
    /// Since when the Ready condition is False or Unknown; not set when it is True or absent.
    pub not_ready_since: Option<Timestamp>,
    /// Predictor, when the cluster has one.
    pub predictor: Option<Predictor>,
    /// Whether the cluster is reached through its tunnel.
    pub tunnel: bool,
    /// Changes whenever the reported resources do.
    pub capacity_mark: u64,
}

impl ClusterInfo {
    /// Reads a ManagedCluster; `None` when it is being deleted or has no name.
    pub fn of(cluster: &ManagedCluster) -> Option<Self> {
        if cluster.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = cluster.metadata.name.clone()?;
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        let key = Arc::from(api::object::key(namespace, &name));
        let status = cluster.status.as_ref();
        let not_ready_since = status
            .and_then(|status| api::conditions::find(&status.conditions, known::condition::READY))
            .filter(|ready| ready.status != "True")
            .map(|ready| ready.last_transition_time.0);
        let predictor = status.filter(|status| status.predictor_enabled).map(|status| Predictor {
            address: status.predictor_address.clone(),
            direct: status.predictor_direct_access,
        });
        Some(Self {
            key,
            name,
            id: cluster.spec.cluster_id.clone(),
            labels: cluster.metadata.labels.clone().unwrap_or_default(),
            taints: cluster.spec.taints.clone(),
            not_ready_since,
            predictor,
            tunnel: status.is_some_and(|status| status.use_socket),
            capacity_mark: status.map_or(0, capacity_mark),
        })
    }

    /// Without taints and not known to be lost: nothing about it can speak against it, but its labels.
    pub fn is_quiet(&self) -> bool {
        self.taints.is_empty() && self.not_ready_since.is_none()
    }

    /// What differs between two states of one cluster.
    pub fn events_since(&self, before: &Self) -> Events {
        let mut events = Events::NONE;
        let mut add = |differs: bool, event: Events| {
            if differs {
                events = events | event;
            }
        };
        add(self.labels != before.labels, Events::LABELS);
        add(self.taints != before.taints, Events::TAINTS);
        add(self.not_ready_since.is_some() != before.not_ready_since.is_some(), Events::READY);
        add(self.capacity_mark != before.capacity_mark, Events::CAPACITY);
        add(self.predictor != before.predictor || self.tunnel != before.tunnel, Events::PREDICTOR);
        events
    }
}

fn capacity_mark(status: &api::clusters::ManagedClusterStatus) -> u64 {
    let mut parts: Vec<&str> = Vec::new();
    for (name, quantity) in &status.allocatable {
        parts.extend([name.as_str(), quantity.0.as_str()]);
    }
    let nodes = &status.node_statistics;
    let nodes = format!("{}/{}/{}/{}", nodes.ready_nodes, nodes.not_ready_nodes, nodes.unknown_nodes, nodes.lost_nodes);
    parts.push(&nodes);
    api::names::stable_hash(&parts)
}

/// Whether a toleration tolerates a taint, as Kubernetes says it (`Lt` and `Gt` tolerate nothing here).
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// How long a taint is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until this instant.
    Until(Timestamp),
    /// This many seconds, from a beginning that is not known here: the taint has no `timeAdded`.
    Unknown(i64),
    /// For ever.
    Forever,
}

/// How long these tolerations bear a taint; the most patient one counts.
///
/// A taint without `timeAdded` and a toleration with seconds: nobody knows here when it began. The scheduler notes when it saw
/// the taint first and counts from there, so that a taint set by hand ends as one set by Kubernetes does.
pub fn patience(tolerations: &[Toleration], taint: &Taint) -> Patience {
    let mut best = Patience::None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let this = match (toleration.toleration_seconds, &taint.time_added) {
            (Some(seconds), Some(since)) if taint.effect == known::taint::NO_EXECUTE => {
                let seconds = jiff::SignedDuration::from_secs(seconds.max(0));
                Patience::Until(since.0.saturating_add(seconds).unwrap_or(Timestamp::MAX))
            }
            (Some(seconds), None) if taint.effect == known::taint::NO_EXECUTE => Patience::Unknown(seconds.max(0)),
            _ => Patience::Forever,
        };
        best = match (best, this) {
            (Patience::Forever, _) | (_, Patience::Forever) => Patience::Forever,
            (Patience::Unknown(a), Patience::Unknown(b)) => Patience::Unknown(a.max(b)),
            // One taint has a beginning or has none, for all tolerations.
            (Patience::Unknown(a), _) | (_, Patience::Unknown(a)) => Patience::Unknown(a),
            (Patience::Until(a), Patience::Until(b)) => Patience::Until(a.max(b)),
            (Patience::None, other) | (other, Patience::None) => other,
        };
    }
    best
}
