//! Deployments: a ReplicaSet for each template, rolled from the old to the new one within the limits of the strategy.

mod rollout;
mod sets;
mod status;

use std::sync::Arc;

use apiserver::controllers::kinds::{DEPLOYMENT, REPLICA_SET};
use apiserver::controllers::{Call, CallError, Change, Controller, Key, Turn, World};
use serde_json::{json, Value};

use crate::pods;
use crate::value::{at, flag, int, list, name, namespace, share, terminating, text, Labels};
use sets::Set;

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Rolls Deployments out.
#[derive(Debug, Default)]
pub struct Deployments;

/// What the steps of one turn share.
struct Rollout<'a> {
    deployment: &'a Value,
    world: &'a World<'a>,
    /// Replicas asked for.
    replicas: i64,
    /// Pods above that, at most, during a rollout.
    surge: i64,
    /// Pods below that, at most, during a rollout.
    unavailable: i64,
    rolling: bool,
    /// The set of the present template.
    new: Option<Set>,
    /// The sets of former templates, oldest first.
    old: Vec<Set>,
    turn: Turn,
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployment"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        pods::owners(change, world, &DEPLOYMENT, &REPLICA_SET, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(deployment) = world.at(key) else { return turn };
        let generation = int(&deployment, &["metadata", "generation"]).unwrap_or(0);
        let Some(selector) = Labels::read(at(&deployment, &["spec", "selector"])) else {
            if int(&deployment, &["status", "observedGeneration"]).unwrap_or(0) < generation {
                turn.call(Call::merge(
                    &DEPLOYMENT,
                    namespace(&deployment),
                    name(&deployment),
                    "status",
                    json!({"status": {"observedGeneration": generation}}),
                ));
            }
            return turn;
        };
        let mine = pods::claim_kind(world, &DEPLOYMENT, &deployment, &selector, &REPLICA_SET, &mut turn);
        let mut rollout = Rollout::new(&deployment, mine, world, turn);
        if terminating(&deployment) {
            rollout.sync_status(false);
            return rollout.turn;
        }
        if flag(&deployment, &["spec", "paused"]) {
            rollout.sync_revision(false);
            rollout.scale();
            rollout.clean_up();
            rollout.sync_status(false);
        } else if rollout.scaled() {
            rollout.sync_revision(false);
            rollout.scale();
            rollout.sync_status(false);
        } else if rollout.rolling {
            rollout.roll();
        } else {
            rollout.recreate();
        }
        rollout.flush();
        rollout.turn
    }

    fn failed(&self, key: &Key, error: &CallError, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        if error.method != "POST" || !error.path.ends_with("/replicasets") || error.message.contains("is being terminated") {
            return turn;
        }
        let Some(deployment) = world.at(key) else { return turn };
        if at(&deployment, &["spec", "progressDeadlineSeconds"]).is_none() {
            return turn;
        }
        let message = format!("Failed to create new replica set: {}", error.message);
        let mut status = deployment.get("status").cloned().unwrap_or_else(|| json!({}));
        status::set_condition(&mut status, "Progressing", "False", "ReplicaSetCreateError", &message, world.now);
        if deployment.get("status") != Some(&status) {
            turn.call(Call::status(&DEPLOYMENT, &deployment, status));
        }
        turn
    }
}

impl<'a> Rollout<'a> {
    fn new(deployment: &'a Value, mine: Vec<Arc<Value>>, world: &'a World<'a>, turn: Turn) -> Self {
        let replicas = int(deployment, &["spec", "replicas"]).unwrap_or(1);
        let rolling = text(deployment, &["spec", "strategy", "type"]) != "Recreate";
        let limit = |field: &str, up: bool| {
            let value = at(deployment, &["spec", "strategy", "rollingUpdate", field]);
            if rolling { share(value, replicas, up).unwrap_or(0) } else { 0 }
        };
        let (surge, mut unavailable) = (limit("maxSurge", true), limit("maxUnavailable", false));
        if rolling && surge == 0 && unavailable == 0 {
            // Both may round to nothing; then the rollout could never move.
            unavailable = 1;
        }
        let template = at(deployment, &["spec", "template"]).cloned().unwrap_or_default();
        let mut sets: Vec<Set> = mine.into_iter().map(Set::new).collect();
        sets.sort_by(|a, b| a.age().cmp(&b.age()));
        let found = sets.iter().position(|set| sets::same_template(set.object(), &template));
        let new = found.map(|index| sets.remove(index));
        Self { deployment, world, replicas, surge, unavailable: unavailable.min(replicas), rolling, new, old: sets, turn }
    }

    fn revision_limit(&self) -> Option<usize> {
        usize::try_from(int(self.deployment, &["spec", "revisionHistoryLimit"])?).ok()
    }

    fn collisions(&self) -> Option<i64> {
        int(self.deployment, &["status", "collisionCount"])
    }

    fn name(&self) -> &str {
        name(self.deployment)
    }

    /// Conditions as they are stored.
    fn conditions(&self) -> &[Value] {
        list(self.deployment, &["status", "conditions"])
    }
}
