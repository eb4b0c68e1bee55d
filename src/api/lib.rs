//! Words: kinds, validated names, selectors, conditions and reasons, defaulting, validation, schema export.
//!
//! Invariants: this room never does I/O, never reads a clock and only uses ordered maps. Every kind tolerates
//! missing and unknown fields when read (an older or newer server must not stop a watch) and writes only what
//! is set, as Go's `omitempty` does. API defaults are the `Default` of each spec, so that an object read from a
//! file means what the server would have made of it.

#[macro_use]
mod kind;
mod bytes;
mod schema;

pub mod apps;
pub mod clusters;
pub mod conditions;
pub mod crd;
pub mod duration;
pub mod gitops;
pub mod known;
pub mod names;
pub mod object;
pub mod predictor;
pub mod proxies;
pub mod reason;
pub mod selector;

#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use crd::{crds, schemas};
pub use kind::Kind;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};

/// True for a value that Go's `omitempty` would leave out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
