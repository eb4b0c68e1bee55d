//! Helm charts: load from a map of bytes, values, render on minijinja, the same text as Helm.
//!
//! Only this room knows Go's template language and Helm's rules. It never reads a file, a clock or an environment: everything
//! comes in a [`Request`], so that equal requests give equal bytes.

pub mod func;
pub mod glob;
pub mod jinja;
pub mod json;
pub mod limit;
pub mod lower;
pub mod run;
pub mod template;
pub mod text;
pub mod value;
pub mod yaml;

/// Compiles a regular expression in Go's syntax; the error is Go's.
pub(crate) fn func_regex(p: &str) -> Result<regex::bytes::Regex, String> {
    let t = func::translate_regex(p)?;
    regex::bytes::RegexBuilder::new(&t).size_limit(20 << 20).build().map_err(|_| format!("error parsing regexp: expression too large: `{p}`"))
}

pub mod helm;

pub use helm::bundle::Bundle;
pub use helm::capabilities::{Rules, parse_kube};
pub use helm::load::{Chart, LoadError, load, load_archive};
pub use helm::manifests::{Document, Hook};
pub use helm::picture::{Asked, Picture};
pub use helm::record::{HookRecord, Record};
pub use helm::render::{Error, Output, Request, template};
pub use helm::strvals::Given;
pub use run::{Engine, Lookup};
pub use value::Val;

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
