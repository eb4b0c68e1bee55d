//! CEL as Kubernetes speaks it: expressions, evaluation with a cost budget, type check against a schema, cost estimate.
//!
//! [`Program`] is for admission policies and other callers; rules of custom kinds run through [`crate::Kind`].

mod ast;
pub(crate) mod check;
pub(crate) mod duration;
mod eval;
mod format;
mod functions;
mod parse;
mod policy;
mod semver;
mod strings;
mod time;
mod url;
mod value;

pub use eval::{EvalError, Variables};
pub use policy::{Types, metadata};
pub use value::{Key, Val};

pub(crate) use value::of_json;

use ast::Expr;
use serde_json::Value;

/// Budget of one expression (units as Kubernetes counts them).
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Budget of all rules of one object.
pub const RUNTIME_BUDGET: u64 = 10_000_000;

/// An expression that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compilation failed: ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {marker}^")]
pub struct CompileError {
    line: usize,
    column: usize,
    message: String,
    text: String,
    marker: String,
}

impl CompileError {
    pub(crate) fn at(source: &str, at: usize, message: String) -> Self {
        let at = at.min(source.len());
        let before = source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |n| n + 1);
        let column = before[start..].chars().count();
        let text = source[start..].lines().next().unwrap_or_default().to_owned();
        Self { line, column: column + 1, message, text, marker: ".".repeat(column) }
    }
    /// What is wrong, without place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) expr: Expr,
}

impl Program {
    /// Parses an expression; types are not checked.
    pub fn parse(source: &str) -> Result<Self, CompileError> {
        parse::parse(source).map(|expr| Self { expr }).map_err(|e| CompileError::at(source, e.at, e.message))
    }

    /// Parses an expression and checks the names it uses against those that will be set.
    pub fn with_variables(source: &str, names: &[&str]) -> Result<Self, CompileError> {
        let p = Self::parse(source)?;
        check::names(&p.expr, names).map_err(|(at, m)| CompileError::at(source, at, m))?;
        Ok(p)
    }

    /// Evaluates it. `budget` is what it may cost; what is left of it is returned too.
    pub fn eval<'a>(&self, variables: &Variables<'a>, budget: u64) -> (Result<Val<'a>, EvalError>, u64) {
        let mut run = eval::Run::new(variables, budget);
        let v = run.eval(&self.expr);
        (v, run.left)
    }
}

/// A JSON value without schema as a CEL value.
pub fn json(v: &Value) -> Val<'_> {
    of_json(v, None)
}

#[cfg(test)]
mod tests;
