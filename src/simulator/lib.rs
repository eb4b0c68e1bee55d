//! Child clusters without nodes: workloads that turn healthy.
