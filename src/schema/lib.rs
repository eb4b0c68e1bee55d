//! What a kind's schema says: defaulting, pruning, validation, CEL, strategic merge, server-side apply.
//!
//! * [`catalog`]: the built-in resources in discovery order.
//! * [`Shape`]: fields, list types, merge keys of a kind; [`table::native`] for built-in kinds.
//! * [`decode`]: read an object of a built-in kind as a server reads it; unknown fields.
//! * [`fault`]: field faults with the words of Kubernetes.

pub mod catalog;
pub mod decode;
pub mod fault;
pub mod quantity;
pub mod shape;
pub mod table;

pub use fault::{Fault, FaultKind, Path};
pub use quantity::Quantity;
pub use shape::{Node, Shape};
