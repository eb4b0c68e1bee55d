//! The same syncing on the parent's side: for children that are pushed to, through their tunnel.

use std::sync::Arc;

use engine::{CancellationToken, RealClock, Tasks};
use kube::Client;

use crate::session::Session;
use crate::{Options, Shared, sync};

/// Applies in the child behind `child` what its Descriptions in the parent say, and reports there, until `stop`.
///
/// It acts only while the cluster's mode says that the parent applies, so that there are never two writers. Of the options only
/// `limits` and `poll_every` matter here.
pub async fn push(parent: Client, child: Client, namespace: &str, cluster_name: &str, options: Options, stop: CancellationToken) {
    let metrics = options.metrics.clone();
    let shared = Shared { child, options: Arc::new(options), clock: RealClock::shared(), metrics };
    let session = Arc::new(Session::of_parent(shared, parent, namespace, cluster_name));
    let tasks = Tasks::new(&stop);
    sync::start(&session, &tasks);
    tasks.run_until_stopped(std::time::Duration::from_secs(5)).await;
}
