//! YAML as Helm reads and writes it: YAML 1.1 scalars, the faults and line numbers of the reference parser, its folding and quoting.

pub mod decode;
pub mod emit;
pub mod parse;
pub mod pretty;
pub mod resolve;
pub mod scan;

pub use decode::{Fault, decode, decode_document, decode_ints};
pub use emit::to_yaml;
