//! TaintToleration: keeps Subscriptions off clusters whose taints they do not tolerate.

use api::known::{self, taint};
use jiff::Timestamp;

use crate::placement::cluster::{ClusterInfo, Patience, patience, tolerates};
use crate::placement::cycle::Cycle;
use crate::placement::events::Events;
use crate::placement::framework::{Code, CycleState, Plugin, Point, Status, Why, default_normalize};
use crate::placement::policy::Policy;
use crate::placement::request::Request;

/// Name in configuration.
pub const NAME: &str = "TaintToleration";

/// The plugin.
pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::Score]
    }

    fn events(&self) -> Events {
        Events::TAINTS | Events::READY | Events::ADDED
    }

    fn passes_quiet(&self) -> bool {
        true
    }

    /// The first taint that is not tolerated rejects. What is bound stays under NoSchedule (unless the policy says
    /// otherwise) and leaves under NoExecute, after the seconds that its tolerations give.
    fn filter(&self, cycle: &Cycle, _: &CycleState, candidate: usize) -> Status {
        let candidate = &cycle.candidates[candidate];
        let tolerations = &cycle.request.subject.spec.cluster_tolerations;
        let stays = candidate.bound.is_some() && (!cycle.policy.no_schedule_evicts || cycle.request.subject.is_dynamic());
        for (index, have) in candidate.info.taints.iter().enumerate() {
            let executes = have.effect == taint::NO_EXECUTE;
            if !executes && (have.effect != taint::NO_SCHEDULE || stays) {
                continue;
            }
            let borne = match patience(tolerations, have) {
                Patience::None => false,
                // A cluster that would be left at once is not taken either, or it would come and go for ever.
                Patience::Until(end) => cycle.request.now < end,
                Patience::Unknown(_) | Patience::Forever => true,
            };
            if !borne {
                return Status { code: Code::UnschedulableAndUnresolvable, why: Why::Taint(index) };
            }
        }
        // Plain copies need not leave: they are where they are wanted. A pick of some clusters is made anew.
        let moves = cycle.request.subject.divides() || cycle.request.subject.spec.by_sub_group();
        if moves && is_lost(&candidate.info, &cycle.policy, &cycle.request) {
            return Status { code: Code::Unschedulable, why: Why::Lost };
        }
        Status::SUCCESS
    }

    /// Number of soft taints that are not tolerated; fewer is better.
    fn score(&self, cycle: &Cycle, _: &CycleState, candidate: usize) -> i64 {
        let tolerations = &cycle.request.subject.spec.cluster_tolerations;
        let soft = cycle.candidates[candidate].info.taints.iter().filter(|have| {
            have.effect == taint::PREFER_NO_SCHEDULE && !tolerations.iter().any(|toleration| tolerates(toleration, have))
        });
        i64::try_from(soft.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, scores: &mut [i64]) {
        default_normalize(scores, true);
    }
}

/// Whether a cluster takes no growth: it has a hard taint that is not tolerated, though what is there may stay.
pub fn is_closed(cluster: &ClusterInfo, request: &Request) -> bool {
    let tolerations = &request.subject.spec.cluster_tolerations;
    cluster.taints.iter().any(|have| {
        matches!(have.effect.as_str(), taint::NO_SCHEDULE | taint::NO_EXECUTE)
            && patience(tolerations, have) == Patience::None
    })
}

/// Whether divided workloads, and picks of some clusters, leave a cluster because it stopped reporting.
///
/// A lost cluster counts as tainted `clusters.clusternet.io/unschedulable:NoExecute` since its Ready condition turned, so
/// that a toleration with seconds gives it time to come back.
pub fn is_lost(cluster: &ClusterInfo, policy: &Policy, request: &Request) -> bool {
    policy.fail_over && lost_at(cluster, request).is_some_and(|at| request.now >= at)
}

/// When divided workloads leave a cluster that stopped reporting; `None` when it reports or is tolerated for ever.
pub fn lost_at(cluster: &ClusterInfo, request: &Request) -> Option<Timestamp> {
    let since = cluster.not_ready_since?;
    let implied = k8s_openapi::api::core::v1::Taint {
        key: known::taint::UNSCHEDULABLE.to_owned(),
        value: None,
        effect: taint::NO_EXECUTE.to_owned(),
        time_added: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since)),
    };
    match patience(&request.subject.spec.cluster_tolerations, &implied) {
        Patience::None => Some(Timestamp::MIN),
        Patience::Until(end) => Some(end),
        Patience::Unknown(_) | Patience::Forever => None,
    }
}

/// The next instant at which a toleration of a bound cluster ends.
pub fn next_deadline(cycle: &Cycle) -> Option<Timestamp> {
    let tolerations = &cycle.request.subject.spec.cluster_tolerations;
    if tolerations.iter().all(|toleration| toleration.toleration_seconds.is_none()) {
        return None;
    }
    let mut next: Option<Timestamp> = None;
    for candidate in cycle.candidates.iter().filter(|candidate| candidate.bound.is_some()) {
        let ends = candidate.info.taints.iter().filter_map(|have| match patience(tolerations, have) {
            Patience::Until(end) => Some(end),
            Patience::None | Patience::Unknown(_) | Patience::Forever => None,
        });
        let lost = if cycle.policy.fail_over { lost_at(&candidate.info, &cycle.request) } else { None };
        for end in ends.chain(lost).filter(|end| *end > cycle.request.now) {
            next = Some(next.map_or(end, |have| have.min(end)));
        }
    }
    next
}
