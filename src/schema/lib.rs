//! What a kind's schema says: defaulting, pruning, validation, CEL, strategic merge, server-side apply.
//!
//! * [`catalog`]: the built-in resources in discovery order.
//! * [`Kind`]: one kind at one version: decode, default, prepare, validate, patch. Start here.
//! * [`fields`]: server-side apply ([`fields::apply`]) and tracking of all other writes ([`fields::track_update`]).
//! * [`cel`]: expressions of admission policies.
//! * [`structural`]: the schema of a custom kind.
//! * [`Shape`]: fields, list types, merge keys of a kind; [`table::native`] for built-in kinds.
//! * [`decode`]: read an object of a built-in kind as a server reads it; unknown fields.
//! * [`openapi`]: OpenAPI v3 and v2 documents.
//! * [`fault`]: field faults with the words of Kubernetes; [`fault::invalid_status`] makes the 422 answer.

pub mod catalog;
pub mod cel;
pub mod decode;
pub mod fault;
pub mod fields;
mod kind;
mod native;
pub mod openapi;
pub mod pod_security;
pub mod quantity;
pub mod shape;
pub mod strategic;
pub mod structural;
pub mod table;
pub mod text;

pub use fault::{Fault, FaultKind, Path};
pub use kind::Kind;
pub use quantity::Quantity;
pub use shape::{Node, Shape};
pub use structural::Structural;
