//! In-tree plugins, by the names that Clusternet's configuration uses.

pub mod dynamic;
pub mod predictor;
pub mod spread;
pub mod statics;
pub mod taints;

use std::sync::Arc;

use serde_json::Value;

use super::config::ConfigError;
use super::framework::Plugin;

/// Makes a plugin from its arguments.
pub type Factory = fn(&Value) -> Result<Arc<dyn Plugin>, ConfigError>;

/// The in-tree plugins.
pub fn in_tree() -> Vec<(&'static str, Factory)> {
    vec![
        (taints::NAME, |_| Ok(Arc::new(taints::TaintToleration))),
        (predictor::NAME, |_| Ok(Arc::new(predictor::Predictor))),
        (statics::NAME, |_| Ok(Arc::new(statics::StaticAssigner))),
        (dynamic::NAME, |_| Ok(Arc::new(dynamic::DynamicAssigner))),
        (super::preempt::NAME, |_| Ok(Arc::new(super::preempt::DefaultPreemption))),
        (BINDER, |_| Ok(Arc::new(DefaultBinder))),
    ]
}

/// Name of the binder.
pub const BINDER: &str = "DefaultBinder";

/// Binds by writing the status; the work itself is the scheduler's shell's.
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        BINDER
    }

    fn points(&self) -> &'static [super::framework::Point] {
        &[super::framework::Point::Bind]
    }
}
