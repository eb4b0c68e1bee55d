//! Predictor: turns what the clusters' predictors answered into upper bounds of replicas.

use crate::placement::cycle::Cycle;
use crate::placement::events::Events;
use crate::placement::framework::{Code, CycleState, Plugin, Point, Status};

/// Name in configuration.
pub const NAME: &str = "Predictor";

/// The plugin.
pub struct Predictor;

impl Plugin for Predictor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Predict]
    }

    fn events(&self) -> Events {
        Events::PREDICTOR | Events::CAPACITY | Events::ADDED
    }

    fn predict(&self, cycle: &Cycle, _: &CycleState, candidate: usize) -> Result<Option<Vec<i64>>, Status> {
        if cycle.candidates[candidate].info.predictor.is_none() {
            return Err(Status::new(Code::Unschedulable, "has no predictor"));
        }
        match cycle.answers.get(candidate).and_then(Option::as_ref) {
            Some(Ok(replicas)) => Ok(Some(replicas.iter().map(|replicas| i64::from((*replicas).max(0))).collect())),
            Some(Err(text)) => Err(Status::new(Code::Error, text.clone())),
            None => Err(Status::new(Code::Error, "predictor was not asked")),
        }
    }
}
