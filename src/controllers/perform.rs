//! The only writer of the deploy pipeline: performs steps and takes the answers into the caches.

use api::Kind;
use api::apps::{Base, Description, FeedInventory, Globalization, HelmChart, HelmRelease, Localization, Manifest, Subscription};
use api::known::manager;
use api::object::ObjectRef;
use api::reason::Reason;
use cluster::dynamic::{Precondition, Propagation};
use cluster::{Dynamic, Resource, Trouble, trouble};
use engine::{Class, EventKind, Regarding, TurnError};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use plan::step::{Step, Version};
use serde_json::{Value, json};

use crate::world::World;

/// Writes that one turn has under way at a time. A store that commits in groups needs many to be quick.
const AT_ONCE: usize = 64;

impl World {
    /// Performs steps one after another; the first failure ends it.
    pub(crate) async fn perform_in_order(&self, steps: &[Step]) -> Result<bool, TurnError> {
        let mut changed = false;
        for step in steps {
            changed |= self.perform(step).await?;
        }
        Ok(changed)
    }

    /// Performs steps that do not depend on each other; a failure of one does not stop the others.
    pub(crate) async fn perform_all(&self, steps: &[Step]) -> Result<bool, TurnError> {
        if steps.len() <= 1 {
            return self.perform_in_order(steps).await;
        }
        // Boxed: the compiler cannot name the lifetimes of a closure's futures across the task boundary.
        let writes: Vec<BoxFuture<'_, Result<bool, TurnError>>> = steps.iter().map(|step| self.perform(step).boxed()).collect();
        let mut running = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        let (mut changed, mut failed) = (false, None);
        while let Some(outcome) = running.next().await {
            match outcome {
                Ok(more) => changed |= more,
                // A trouble that a person must mend is the one to tell of.
                Err(error) if failed.as_ref().is_none_or(|have: &TurnError| matches!(have.class, Class::Again | Class::Race)) => failed = Some(error),
                Err(_) => {}
            }
        }
        match failed {
            None => Ok(changed),
            Some(error) => Err(error),
        }
    }

    /// Performs one step; true when the world changed.
    async fn perform(&self, step: &Step) -> Result<bool, TurnError> {
        let dynamic = Dynamic::new(self.client.clone());
        match step {
            Step::Tell { about, uid, warning, reason, message } => {
                let regarding = Regarding {
                    api_version: about.api_version.clone(),
                    kind: about.kind.clone(),
                    namespace: about.namespace.clone(),
                    name: about.name.clone(),
                    uid: uid.clone(),
                };
                let kind = if *warning { EventKind::Warning } else { EventKind::Normal };
                self.recorder.record(regarding, kind, reason.as_str(), message.clone());
                Ok(false)
            }
            Step::Create { object } => {
                let kind = api::object::text(object, "kind");
                let resource = resource(kind)?;
                match dynamic.create(&resource, object, manager::CONTROLLERS).await {
                    Ok(answer) => {
                        self.assume(kind, answer);
                        Ok(true)
                    }
                    Err(error) => Err(refused(kind, error)),
                }
            }
            Step::Patch { at, patch, only_if } => self.patch(&dynamic, at, "", patch, only_if).await,
            Step::PatchStatus { at, patch, only_if } => self.patch(&dynamic, at, "status", patch, only_if).await,
            Step::Delete { at, uid } => {
                let resource = resource(&at.kind)?;
                let only_if = Precondition { uid: (!uid.is_empty()).then(|| uid.clone()), resource_version: None };
                match dynamic.delete(&resource, &at.namespace, &at.name, &only_if, Propagation::Background).await {
                    Ok(()) => Ok(true),
                    // Gone, or another object by now: either way this one is not there any more.
                    Err(error) if matches!(trouble(&error), Trouble::NotFound | Trouble::Conflict) => Ok(false),
                    Err(error) => Err(refused(&at.kind, error)),
                }
            }
            Step::LetGo { at, only_if } => self.let_go(&dynamic, at, only_if).await,
        }
    }

    async fn let_go(&self, dynamic: &Dynamic, at: &ObjectRef, only_if: &Version) -> Result<bool, TurnError> {
        let Some(bare) = merge(dynamic, at, "", &json!({"metadata": {"finalizers": null}}), only_if).await? else { return Ok(true) };
        // An agent that put its finalizer back meanwhile would clear up after the object: then the next turn tries again.
        let only_if = Precondition { uid: Some(api::object::uid(&bare).to_owned()), resource_version: Some(api::object::resource_version(&bare).to_owned()) };
        match dynamic.delete(&resource(&at.kind)?, &at.namespace, &at.name, &only_if, Propagation::Background).await {
            Err(error) if trouble(&error) != Trouble::NotFound => Err(refused(&at.kind, error)),
            _ => Ok(true),
        }
    }

    async fn patch(&self, dynamic: &Dynamic, at: &ObjectRef, sub: &str, patch: &Value, only_if: &Version) -> Result<bool, TurnError> {
        let Some(answer) = merge(dynamic, at, sub, patch, only_if).await? else { return Ok(false) };
        self.assume(&at.kind, answer);
        Ok(true)
    }

    /// Takes the answer to an own write into the cache, so that the next turn sees it before the watch tells.
    fn assume(&self, kind: &str, answer: Value) {
        macro_rules! take {
            ($($name:literal: $ty:ty => $cache:ident),* $(,)?) => {
                match kind {
                    $($name => if let Ok(object) = serde_json::from_value::<$ty>(answer) {
                        self.$cache.assume(object);
                    },)*
                    _ => {}
                }
            };
        }
        // An answer that cannot be read is left to the watch.
        take! {
            "Subscription": Subscription => subscriptions,
            "Base": Base => bases,
            "Description": Description => descriptions,
            "Manifest": Manifest => manifests,
            "HelmChart": HelmChart => charts,
            "HelmRelease": HelmRelease => releases,
            "Localization": Localization => localizations,
            "Globalization": Globalization => globalizations,
            "FeedInventory": FeedInventory => inventories,
        }
    }
}

/// Merge-patches an object; `None` when it is gone meanwhile: the event of that wakes whoever is concerned.
async fn merge(dynamic: &Dynamic, at: &ObjectRef, sub: &str, patch: &Value, only_if: &Version) -> Result<Option<Value>, TurnError> {
    let patch = Step::guarded(patch, only_if);
    match dynamic.merge_patch(&resource(&at.kind)?, &at.namespace, &at.name, sub, &patch, manager::CONTROLLERS).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if trouble(&error) == Trouble::NotFound => Ok(None),
        Err(error) => Err(refused(&at.kind, error)),
    }
}

fn refused(kind: &str, error: kube::Error) -> TurnError {
    let reason = match kind {
        "Base" => Reason::FailedSyncingBase,
        "Description" => Reason::FailedSyncingDescription,
        "Localization" => Reason::FailedSyncingLocalization,
        "FeedInventory" => Reason::FeedInventoryNotSynced,
        "HelmRelease" => Reason::HelmReleaseFailure,
        _ => Reason::FailedSynced,
    };
    TurnError::api(reason.as_str(), error)
}

/// Where objects of a kind of the pipeline live.
fn resource(kind: &str) -> Result<Resource, TurnError> {
    let (plural, namespaced) = match kind {
        "Subscription" => (Subscription::PLURAL, true),
        "Base" => (Base::PLURAL, true),
        "Description" => (Description::PLURAL, true),
        "Manifest" => (Manifest::PLURAL, true),
        "HelmChart" => (HelmChart::PLURAL, true),
        "HelmRelease" => (HelmRelease::PLURAL, true),
        "Localization" => (Localization::PLURAL, true),
        "Globalization" => (Globalization::PLURAL, false),
        "FeedInventory" => (FeedInventory::PLURAL, true),
        other => return Err(TurnError::new(Reason::InternalError.as_str(), Class::Bug, format!("a step for kind {other}"))),
    };
    Ok(Resource {
        group: Subscription::GROUP.to_owned(),
        version: Subscription::VERSION.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced,
    })
}
