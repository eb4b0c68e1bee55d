//! StaticAssigner: divides replicas by the weights of the subscribers.

use api::apps::DividingType;
use api::reason::Reason;

use crate::placement::cycle::Cycle;
use crate::placement::divide;
use crate::placement::framework::{CycleState, Plugin, Point, Shares, Status};

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
        if without {
            cycle.warn(Reason::ZeroWeights, "no subscriber has a weight above zero: replicas are divided evenly".to_owned());
        }
        let divide = |total: i64| if without { divide::evenly(total, weights.len()) } else { divide::by_weight(total, &weights) };
        Ok(cycle.desired.iter().map(|(feed, total)| (*feed, divide(*total))).collect())
    }
}
