//! Deletes objects that are no longer wanted: only under the owner's mark, only the very object that was looked at.

use std::collections::BTreeMap;

use api::known::annotation::{OWNED_BY_DESCRIPTION, PRUNE};
use api::object::{self, ObjectRef};
use futures::StreamExt as _;

use super::outcome::{Fault, FaultReason};
use super::Applier;
use crate::discovery::Unresolved;
use crate::dynamic::{Precondition, Propagation};
use crate::error::{Trouble, trouble};

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// Which object.
    pub id: ObjectRef,
    /// Dedicated namespace of the cluster: the object is deleted only when its mark names a Description of it.
    pub namespace: String,
}

impl Victim {
    /// True when a mark (`<namespace>.<description>`) makes the object ours. Namespaces hold no dots.
    fn owns(&self, mark: &str) -> bool {
        mark.split_once('.').is_some_and(|(namespace, _)| namespace == self.namespace)
    }
}

/// How a deletion went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// It was not there.
    Absent,
    /// Deletion was asked for; finalizers may hold it for a while.
    Deleted,
    /// It stays, with the reason for people.
    Kept(String),
    /// It could not be deleted.
    Failed(Fault),
}

/// Namespaces that are never deleted, whoever owns them: a cluster does not work without them.
const PROTECTED: [&str; 5] = ["default", "kube-system", "kube-public", "kube-node-lease", api::known::namespace::SYSTEM];

/// How often a changed object is looked at again before giving up for this turn.
const TRIES: usize = 6;

impl Applier {
    /// Deletes objects, what depends on others first. One outcome per victim, in the order given.
    pub async fn prune(&self, victims: &[Victim]) -> Vec<Pruned> {
        let mut waves: BTreeMap<std::cmp::Reverse<usize>, Vec<usize>> = BTreeMap::new();
        for (at, victim) in victims.iter().enumerate() {
            waves.entry(std::cmp::Reverse(manifest::order::rank(&victim.id.kind))).or_default().push(at);
        }
        let mut outcomes: Vec<Option<Pruned>> = vec![None; victims.len()];
        for (_, wave) in waves {
            let mut running = futures::stream::iter(wave.into_iter().map(|at| async move { (at, self.prune_one(&victims[at]).await) }))
                .buffer_unordered(self.limits.parallel.max(1));
            while let Some((at, outcome)) = running.next().await {
                outcomes[at] = Some(outcome);
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    async fn prune_one(&self, victim: &Victim) -> Pruned {
        let id = &victim.id;
        if id.kind == "Namespace" && id.api_version == "v1" && PROTECTED.contains(&id.name.as_str()) {
            return Pruned::Kept(format!("{id} belongs to the cluster itself"));
        }
        let resource = match self.discovery.resolve(&id.api_version, &id.kind).await {
            Ok(resource) => resource,
            // Without its definition no object of the kind is left.
            Err(Unresolved::NoSuchKind { .. }) => return self.gone(id),
            Err(Unresolved::Discovery(error)) => return Pruned::Failed(Fault::of(&error)),
            Err(other) => return Pruned::Failed(Fault::new(FaultReason::Unavailable, other.to_string())),
        };
        for _ in 0..TRIES {
            let live = match self.dynamic.get_opt(&resource, &id.namespace, &id.name).await {
                Ok(Some(live)) => live,
                Ok(None) => return self.gone(id),
                Err(error) => return Pruned::Failed(Fault::of(&error)),
            };
            match object::annotation(&live, OWNED_BY_DESCRIPTION) {
                Some(owner) if victim.owns(owner) => {}
                Some(owner) => return Pruned::Kept(format!("{id} is owned by {owner}")),
                None => return Pruned::Kept(format!("{id} does not carry our mark")),
            }
            if object::annotation(&live, PRUNE) == Some("disabled") {
                return Pruned::Kept(format!("{id} asks to be kept"));
            }
            if object::is_deleting(&live) {
                self.forget(id);
                return Pruned::Deleted;
            }
            let only_if = Precondition {
                uid: Some(object::uid(&live).to_owned()),
                resource_version: Some(object::resource_version(&live).to_owned()),
            };
            match self.dynamic.delete(&resource, &id.namespace, &id.name, &only_if, Propagation::Background).await {
                Ok(()) => {
                    self.forget(id);
                    return Pruned::Deleted;
                }
                Err(error) => match trouble(&error) {
                    Trouble::NotFound => return self.gone(id),
                    // It changed in between: look at it again, its owner may be another now.
                    Trouble::Conflict => {}
                    _ => return Pruned::Failed(Fault::of(&error)),
                },
            }
        }
        Pruned::Failed(Fault::new(FaultReason::Conflict, format!("{id} changes too often to delete it")))
    }

    fn gone(&self, id: &ObjectRef) -> Pruned {
        self.forget(id);
        Pruned::Absent
    }
}
