//! CEL rules (`x-kubernetes-validations`) of a schema.

use super::parse::Schema;
use crate::fault::Fault;
use serde_json::Value;

/// Compiled rules of a schema tree.
#[derive(Debug, Default)]
pub(crate) struct Rules {}

impl Rules {
    pub(crate) fn compile(_root: &Schema) -> Self {
        Self {}
    }
    pub(crate) fn run(&self, _object: &Value, _old: Option<&Value>, _root: &Schema, _faults: &mut Vec<Fault>) {}
}
