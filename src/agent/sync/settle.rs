//! Tells the parent: statuses of Descriptions, finalizers that are done with, the commit that is applied.

use std::sync::Arc;

use api::apps::{DeployerType, Description, DescriptionPhase, DescriptionStatus};
use api::clusters::ManagedCluster;
use api::known::{annotation, finalizer, manager};
use cluster::{Trouble, trouble};
use engine::{EventKind, Next, Regarding};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::sync::{Identity, inventory, status};
use serde_json::{Value, json};

use super::{InStep, State, Syncer};

/// Writes to the parent at once.
const PARALLEL: usize = 8;

pub(super) fn params() -> PatchParams {
    PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() }
}

impl Syncer {
    fn api(&self) -> Api<Description> {
        Api::namespaced(self.session.parent.clone(), &self.session.namespace)
    }

    /// Writes the statuses that changed.
    pub(super) async fn tell(&self, state: &State) -> Next {
        let observed = self.observed(state);
        let mut due = Vec::new();
        for description in self.descriptions.in_namespace(&self.session.namespace) {
            let name = description.metadata.name.as_deref().unwrap_or_default();
            if description.spec.deployer != DeployerType::Generic || description.metadata.deletion_timestamp.is_some() {
                continue;
            }
            // A status tells about the spec beside it; while the branch lags, the old one stands.
            let Some(InStep::Yes(unwritable)) = state.in_step.get(name) else { continue };
            let mut now = status(name, &state.desired, &observed);
            if !unwritable.is_empty() {
                now.phase = Some(DescriptionPhase::Failure);
                now.reason = [now.reason.as_str()].into_iter().filter(|r| !r.is_empty()).chain(unwritable.iter().map(String::as_str)).collect::<Vec<_>>().join("; ");
            }
            if description.status.as_ref() != Some(&now) {
                due.push((description, now));
            }
        }
        let results: Vec<bool> = futures::stream::iter(due.into_iter().map(|(description, now)| self.write_status(description, now)))
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        if results.into_iter().all(|done| done) { Next::Done } else { Next::Again }
    }

    async fn write_status(&self, description: Arc<Description>, now: DescriptionStatus) -> bool {
        let name = description.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({
            "metadata": {"uid": description.metadata.uid},
            "status": {
                "phase": now.phase,
                "reason": if now.reason.is_empty() { Value::Null } else { json!(now.reason) },
                "manifestStatuses": if now.manifest_statuses.is_empty() { Value::Null } else { json!(now.manifest_statuses) },
            },
        });
        match self.api().patch_status(name, &params(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                self.events(&description, &now);
                self.descriptions.assume(written);
                true
            }
            // It is gone, or another of its name: the watch tells.
            Err(error) if matches!(trouble(&error), Trouble::NotFound | Trouble::Conflict) => true,
            Err(error) => {
                self.session.note(&error);
                tracing::warn!(description = name, error = cluster::error::message(&error), "cannot write the status of a Description");
                false
            }
        }
    }

    fn events(&self, description: &Description, now: &DescriptionStatus) {
        let before = description.status.as_ref();
        let failed = |phase: Option<DescriptionPhase>| phase == Some(DescriptionPhase::Failure);
        let regarding = Regarding::of(description);
        if failed(now.phase) {
            if before.is_none_or(|b| b.reason != now.reason) {
                self.recorder.record(regarding, EventKind::Warning, "UnSuccessfullyDeployed", now.reason.clone());
            }
        } else if before.is_some_and(|b| failed(b.phase)) {
            self.recorder.record(regarding, EventKind::Normal, "SuccessfullyDeployed", "all objects are deployed again");
        }
    }

    /// Lets Descriptions go whose objects are gone, or belong to another Description by now. True when nothing is left to do
    /// that a retry could do.
    pub(super) async fn release(&self, state: &State, descriptions: &[Arc<Description>]) -> bool {
        let mut all = true;
        // Those of charts go when the controllers see that their releases are gone.
        let going = |d: &&Arc<Description>| d.metadata.deletion_timestamp.is_some() && d.spec.deployer == DeployerType::Generic;
        for description in descriptions.iter().filter(going) {
            let finalizers = description.metadata.finalizers.clone().unwrap_or_default();
            if !finalizers.iter().any(|f| f == finalizer::APP) {
                continue;
            }
            let name = description.metadata.name.clone().unwrap_or_default();
            let still_there = |identity: &Identity| match state.desired.wants.get(identity) {
                Some(want) => want.owner == name,
                None => state.present.contains_key(identity),
            };
            let mut held = inventory(description.status.as_ref()).any(|id| still_there(&Identity::of(&id)));
            // The branch still has it: it goes with the next commit.
            held |= state.desired.of.contains_key(&name);
            if held {
                continue;
            }
            let left: Vec<&String> = finalizers.iter().filter(|f| *f != finalizer::APP).collect();
            let patch = json!({"metadata": {"resourceVersion": description.metadata.resource_version, "uid": description.metadata.uid, "finalizers": left}});
            match self.api().patch(&name, &params(), &Patch::Merge(&patch)).await {
                Ok(_) => tracing::info!(description = name, "let go"),
                Err(error) if trouble(&error) == Trouble::NotFound => {}
                Err(error) => {
                    self.session.note(&error);
                    tracing::debug!(description = name, error = cluster::error::message(&error), "cannot let a Description go yet");
                    all = false;
                }
            }
        }
        all
    }

    /// Says which commit the child has, wholly.
    pub(super) async fn mark_applied(&self, cluster: &ManagedCluster, commit: &str) -> bool {
        let said = cluster.metadata.annotations.as_ref().and_then(|a| a.get(annotation::APPLIED_COMMIT));
        if said.map(String::as_str) == Some(commit) {
            return true;
        }
        let api: Api<ManagedCluster> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let patch = json!({"metadata": {"annotations": {annotation::APPLIED_COMMIT: commit}}});
        match api.patch(&self.session.cluster_name, &params(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                self.clusters.assume(written);
                true
            }
            Err(error) => {
                self.session.note(&error);
                tracing::warn!(commit, error = cluster::error::message(&error), "cannot tell which commit is applied");
                false
            }
        }
    }
}
