//! YAML and JSON documents: parse with positions, emit, order, patch, override, diff, hash.
//!
//! The meaning of YAML here is the one `kubectl` and Helm give it (`sigs.k8s.io/yaml`): YAML 1.1 booleans and octals, keys
//! turned into strings, merge keys, numbers as JSON knows them. Nothing here reads a clock, a file or the environment, and
//! nothing here panics on any input: what cannot be read comes back as a [`Fault`] with line and column.

pub mod diff;
pub mod emit;
pub mod field;
pub mod hash;
mod json;
pub mod merge;
pub mod order;
pub mod patch;
pub mod pointer;
pub mod read;
pub mod scalar;

pub use diff::{Change, diff};
pub use emit::{emit, emit_all};
pub use hash::{fingerprint, sha256};
pub use read::{Document, Fault, Limits, Position, locate, parse, parse_all, parse_lenient, positions};
