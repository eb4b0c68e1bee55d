//! Child clusters without nodes of their own: workloads that turn healthy, as real controllers and kubelets would write it.
//!
//! [`controllers`] gives everything a simulated child runs beside the built-in controllers of its server; [`workloads`] only the
//! controllers of Deployments, ReplicaSets and their kin, which an embedded parent runs as well. Both go into one task per
//! server ([`apiserver::controllers::run`]), whose cost at rest is nothing. [`run`] does the same against any API server.

mod cloud;
mod cron_jobs;
mod daemon_sets;
mod deployments;
mod hash;
mod job_policy;
mod jobs;
mod kubelet;
mod nodes;
mod pods;
mod remote;
mod replica_sets;
mod revisions;
mod schedule;
mod scheduling;
mod stateful_sets;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::controllers::Controller;
use jiff::SignedDuration;

pub use cloud::Cloud;
pub use cron_jobs::CronJobs;
pub use daemon_sets::DaemonSets;
pub use deployments::Deployments;
pub use jobs::{FinishedJobs, Jobs};
pub use kubelet::{Kubelet, EXIT_CODE, FAIL, RUN_SECONDS};
pub use nodes::Nodes;
pub use remote::run;
pub use replica_sets::ReplicaSets;
pub use stateful_sets::StatefulSets;

/// What a simulated child is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes; with none, pods stay pending for ever, as on a control plane alone.
    pub nodes: u32,
    /// CPU of each node, as a quantity.
    pub node_cpu: String,
    /// Memory of each node, as a quantity.
    pub node_memory: String,
    /// Pods each node takes.
    pub node_pods: u32,
    /// Labels of each node besides the usual ones.
    pub node_labels: BTreeMap<String, String>,
    /// Whether the workload controllers run too; not where the server has its own (a real control plane).
    pub workloads: bool,
    /// From a pod's binding until it is ready.
    pub start_delay: SignedDuration,
    /// From a pod's deletion until it is gone.
    pub stop_delay: SignedDuration,
    /// How long pods run that are to end.
    pub run_time: SignedDuration,
}

impl Options {
    /// A child with this many nodes of 8 CPUs and 32 GiB, on which pods start in a tenth of a second.
    pub fn with_nodes(nodes: u32) -> Self {
        Self {
            nodes,
            node_cpu: "8".into(),
            node_memory: "32Gi".into(),
            node_pods: 110,
            node_labels: BTreeMap::new(),
            workloads: true,
            start_delay: SignedDuration::from_millis(100),
            stop_delay: SignedDuration::from_millis(20),
            run_time: SignedDuration::from_secs(1),
        }
    }
}

/// The workload controllers: without them Deployments are only stored.
pub fn workloads() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(Deployments),
        Box::new(ReplicaSets::new()),
        Box::new(ReplicaSets::replication_controllers()),
        Box::new(StatefulSets),
        Box::new(DaemonSets),
        Box::new(Jobs),
        Box::new(FinishedJobs),
        Box::new(CronJobs),
    ]
}

/// Everything a simulated child runs: the workload controllers, its nodes and their kubelets.
pub fn controllers(options: Options) -> Vec<Box<dyn Controller>> {
    let mut all = if options.workloads { workloads() } else { Vec::new() };
    if options.nodes > 0 {
        let options = Arc::new(options);
        all.push(Box::new(Nodes::new(options.clone())));
        all.push(Box::new(Kubelet::new(options)));
        all.push(Box::new(Cloud));
    }
    all
}
