//! CEL as Kubernetes speaks it.

pub(crate) mod duration;
