//! Whether a Subscription needs a new decision at all.
//!
//! Replication and static dividing are decided anew each time, which is cheap and writes nothing when nothing moves. Dynamic
//! dividing moves only for a cause: a change of the spec, of feeds or totals, a bound cluster that is gone or must be left, a
//! wish.

use super::cluster::{ClusterInfo, Patience, patience};
use super::policy::Policy;
use super::request::Request;
use super::snapshot::Snapshot;
use api::known;

/// Why a cycle runs, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Replication and static dividing, or not scheduled yet.
    Always,
    /// The spec changed.
    SpecChanged,
    /// Feeds or their totals changed, or not all replicas are placed.
    ReplicasChanged,
    /// A bound cluster is gone, no longer selected, or must be left.
    BindingLost,
    /// Someone asked for a fresh division.
    Rebalance,
    /// Nothing to do.
    No,
}

/// Decides whether a cycle runs.
pub fn admit(snapshot: &Snapshot, policy: &Policy, request: &Request) -> Admission {
    let subject = &request.subject;
    if !subject.divides() {
        return Admission::Always;
    }
    if request.previous.spec_hash != subject.spec_hash {
        return Admission::SpecChanged;
    }
    let Some(desired) = request.desired() else { return Admission::Always };
    if subject.rebalance {
        return Admission::Rebalance;
    }
    if policy.divide_on_join && !subject.is_dynamic() {
        return Admission::Always;
    }
    if request.previous.replicas.len() != subject.feed_keys.len() {
        return Admission::ReplicasChanged;
    }
    for (index, key) in subject.feed_keys.iter().enumerate() {
        let Some(shares) = request.previous.replicas.get(key) else { return Admission::ReplicasChanged };
        let sum: i64 = shares.iter().copied().map(i64::from).sum();
        if sum != desired.get(&index).copied().unwrap_or(0) {
            return Admission::ReplicasChanged;
        }
    }
    let mut selected = vec![false; snapshot.slots()];
    for slot in request.subject.selectors.iter().flatten().flat_map(|id| snapshot.matches(*id)) {
        selected[*slot as usize] = true;
    }
    let mut finder = snapshot.finder();
    let lost = request.previous.bindings.iter().any(|key| {
        let found = finder.find(key).filter(|(_, slot)| selected.get(**slot as usize) == Some(&true));
        found.and_then(|(_, slot)| snapshot.cluster(*slot)).is_none_or(|cluster| must_leave(cluster, policy, request))
    });
    if lost { Admission::BindingLost } else { Admission::No }
}

/// Whether a bound cluster has to be left.
fn must_leave(cluster: &ClusterInfo, policy: &Policy, request: &Request) -> bool {
    let tolerations = &request.subject.spec.cluster_tolerations;
    let evicted = cluster.taints.iter().filter(|taint| taint.effect == known::taint::NO_EXECUTE).any(|taint| {
        match patience(tolerations, taint) {
            Patience::None => true,
            Patience::Until(end) => request.now >= end,
            Patience::Unknown(_) | Patience::Forever => false,
        }
    });
    evicted || super::plugins::taints::is_lost(cluster, policy, request)
}
