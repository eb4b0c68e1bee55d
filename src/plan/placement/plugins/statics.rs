//! StaticAssigner: divides replicas by the weights of the subscribers.

use api::apps::DividingType;
use api::reason::Reason;

use crate::placement::cycle::Cycle;
use crate::placement::divide;
use crate::placement::events::Events;
use crate::placement::framework::{CycleState, Plugin, Point, Shares, Status};
use crate::placement::plugins::taints;
use crate::placement::request::share_at;

/// Name in configuration.
pub const NAME: &str = "StaticAssigner";

/// The plugin.
pub struct StaticAssigner;

impl Plugin for StaticAssigner {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Assign]
    }

    /// The weight of a cluster is the sum over all subscribers that match it.
    fn assign(&self, cycle: &mut Cycle, _: &mut CycleState) -> Result<Shares, Status> {
        let dividing = cycle.request.subject.spec.dividing_scheduling.as_ref();
        if dividing.is_none_or(|dividing| dividing.kind != DividingType::Static) {
            return Err(Status::SKIP);
        }
        let weights: Vec<i64> = cycle.candidates.iter().map(|candidate| candidate.weight).collect();
        let without = weights.iter().all(|weight| *weight <= 0);
        if without && cycle.policy.zero_weights_copy {
            cycle.no_replicas = true;
            return Ok(Shares::new());
        }
        if without && cycle.desired.values().any(|total| *total > 0) {
            cycle.warn(Reason::ZeroWeights, "no subscriber has a weight above zero: replicas are divided evenly".to_owned());
        }
        let weights = if without { vec![1; weights.len()] } else { weights };
        let closed: Vec<bool> = cycle.candidates.iter().map(|one| !one.info.is_quiet() && taints::is_closed(&one.info, &cycle.request)).collect();
        let mut shares = Shares::new();
        let mut missing = Vec::new();
        for (feed, total) in &cycle.desired {
            let mut share = divide::by_weight(*total, &weights);
            if closed.contains(&true) {
                let had = cycle.request.previous_shares(*feed);
                cap(&mut share, *total, &weights, &closed, |at| cycle.candidates[at].bound.map_or(0, |binding| share_at(had, binding)));
            }
            let short = total - share.iter().sum::<i64>();
            // A division without any taker says so elsewhere: there is no cluster at all.
            if short > 0 && closed.contains(&true) {
                missing.push((*feed, short, *total));
            }
            shares.insert(*feed, share);
        }
        if !missing.is_empty() {
            cycle.short = true;
            let text = |(feed, short, total): &(usize, i64, i64)| format!("{short} of {total} replicas of {}", cycle.request.subject.feed_keys[*feed]);
            let text: Vec<String> = missing.iter().map(text).collect();
            cycle.warn(Reason::InsufficientCapacity, format!("every cluster has a taint that keeps off {}", text.join(", ")));
        }
        Ok(shares)
    }

    fn events(&self) -> Events {
        Events::ADDED | Events::TAINTS
    }
}

/// Clusters that are closed keep at most what they have; what they would have got beyond it goes to the open ones by weight.
fn cap(share: &mut [i64], total: i64, weights: &[i64], closed: &[bool], had: impl Fn(usize) -> i64) {
    let mut rest = total;
    for (at, share) in share.iter_mut().enumerate().filter(|(at, _)| closed[*at]) {
        *share = had(at).min(*share);
        rest -= *share;
    }
    let open: Vec<i64> = weights.iter().zip(closed).map(|(weight, closed)| if *closed { 0 } else { *weight }).collect();
    let more = divide::by_weight(rest, &open);
    share.iter_mut().zip(closed).zip(more).filter(|((_, closed), _)| !**closed).for_each(|((share, _), more)| *share = more);
}
