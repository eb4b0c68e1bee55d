//! Giving the cluster to the parent while its branch cannot be read, and asking for it back; see [`plan::sync::Holder`].

use std::time::Duration;

use api::clusters::ManagedCluster;
use api::known::annotation;
use engine::Next;
use kube::Api;
use kube::api::Patch;
use plan::sync::{Applier, Holder};
use serde_json::json;

use super::{Syncer, delivery};
use crate::release::Gate;

/// Between two looks at a branch that could not be read, while the parent applies.
const LOOK: Duration = Duration::from_secs(15);

impl Syncer {
    /// The branch was read: it is ours to apply, whatever the parent asked meanwhile.
    pub(super) async fn branch_read(&self, cluster: &ManagedCluster) {
        *self.unreadable_since.lock() = None;
        if Holder::of(cluster) == Holder::ParentAsks {
            self.pass(cluster, Holder::Agent).await;
        }
    }

    /// The branch could not be read. After a while, or at once when the parent asks, the parent gets the cluster.
    pub(super) async fn branch_failed(&self, cluster: &ManagedCluster, offers: bool) -> Next {
        let now = self.session.shared.clock.monotonic();
        let since = *self.unreadable_since.lock().get_or_insert(now);
        let asked = Holder::of(cluster) == Holder::ParentAsks;
        let patience = self.session.shared.options.give_up_after;
        if !offers || (!asked && now - since < patience) {
            return Next::Again;
        }
        // The turn holds the state, so nothing of ours is being written; after this no turn writes. A release under way shows the parent
        // that it is, by its record.
        self.releases.open(Gate::Shut);
        if self.pass(cluster, Holder::Parent).await {
            tracing::warn!(cluster = self.session.cluster_name, unreadable = ?(now - since), "the branch cannot be read: the parent applies until it can");
            *self.unreadable_since.lock() = None;
            return Next::After(LOOK.min(patience.max(Duration::from_millis(50))));
        }
        Next::Again
    }

    /// The parent applies. Once the branch can be read, it is asked to let go.
    pub(super) async fn ask_back(&self, cluster: &ManagedCluster) -> Next {
        if self.session.role != Applier::Agent || Holder::of(cluster) != Holder::Parent {
            return Next::Done;
        }
        let Some(delivery) = delivery(cluster) else {
            // There is no branch any more: Descriptions can be read at once.
            self.pass(cluster, Holder::AgentAsks).await;
            return Next::Done;
        };
        match self.read(&delivery, &delivery.commit, None).await {
            Ok(_) if self.pass(cluster, Holder::AgentAsks).await => {
                tracing::info!(cluster = self.session.cluster_name, "the branch can be read again: asking the parent to let go");
                Next::Done
            }
            Ok(_) => Next::Again,
            Err((error, _)) => {
                tracing::debug!(cluster = self.session.cluster_name, error = cluster::error::chain(&error), "the branch still cannot be read");
                Next::After(LOOK.min(self.session.shared.options.give_up_after.max(Duration::from_millis(50))))
            }
        }
    }

    /// Writes down who holds the cluster, unless it changed since it was read.
    async fn pass(&self, cluster: &ManagedCluster, holder: Holder) -> bool {
        let api: Api<ManagedCluster> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let patch = json!({"metadata": {
            "resourceVersion": cluster.metadata.resource_version, "annotations": {annotation::APPLIER: holder.as_str()},
        }});
        match api.patch(&self.session.cluster_name, &super::settle::params(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                self.clusters.assume(written);
                true
            }
            Err(error) => {
                self.session.note(&error);
                tracing::debug!(error = cluster::error::message(&error), "cannot write down who applies");
                false
            }
        }
    }
}
