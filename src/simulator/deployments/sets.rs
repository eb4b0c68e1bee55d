//! The ReplicaSets of a Deployment: finding, making, annotating, scaling and clearing them away.

use std::sync::Arc;

use apiserver::controllers::kinds::{DEPLOYMENT, REPLICA_SET};
use apiserver::controllers::{Call, Delete};
use serde_json::{json, Value};

use super::{Rollout, DESIRED, HISTORY, MAXIMUM, REVISION};
use crate::hash;
use crate::value::{at, int, name, namespace, owned_by, terminating, text, texts, uid};

const HASH_LABEL: &str = "pod-template-hash";
/// Longest list of former revisions, in characters.
const HISTORY_LENGTH: usize = 2000;
/// Annotations that belong to the Deployment alone.
const OWN_ANNOTATIONS: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// A ReplicaSet as stored, and as this turn wants it.
pub(super) struct Set {
    stored: Arc<Value>,
    wanted: Value,
    /// It is made in this turn.
    fresh: bool,
}

/// Whether a set has a template, the label that tells templates apart left out.
pub(super) fn same_template(set: &Value, template: &Value) -> bool {
    let bare = |template: &Value| {
        let mut template = template.clone();
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.remove(HASH_LABEL);
            if labels.is_empty()
                && let Some(metadata) = template["metadata"].as_object_mut()
            {
                metadata.remove("labels");
            }
        }
        template
    };
    at(set, &["spec", "template"]).is_some_and(|own| bare(own) == bare(template))
}

impl Set {
    pub(super) fn new(stored: Arc<Value>) -> Self {
        Self { wanted: Value::clone(&stored), stored, fresh: false }
    }

    pub(super) fn object(&self) -> &Value {
        &self.stored
    }

    /// Creation time, then name: the order in which sets were made.
    pub(super) fn age(&self) -> (String, String) {
        (text(&self.stored, &["metadata", "creationTimestamp"]).to_owned(), name(&self.stored).to_owned())
    }

    pub(super) fn name(&self) -> &str {
        name(&self.wanted)
    }

    /// Replicas asked of it, as of this turn.
    pub(super) fn replicas(&self) -> i64 {
        int(&self.wanted, &["spec", "replicas"]).unwrap_or(1)
    }

    /// A count of its status.
    pub(super) fn count(&self, field: &str) -> i64 {
        if self.fresh { 0 } else { int(&self.stored, &["status", field]).unwrap_or(0) }
    }

    pub(super) fn annotation(&self, name: &str) -> &str {
        text(&self.wanted, &["metadata", "annotations", name])
    }

    fn annotate(&mut self, name: &str, value: &str) {
        self.wanted["metadata"]["annotations"][name] = json!(value);
    }

    pub(super) fn revision(&self) -> i64 {
        self.annotation(REVISION).parse().unwrap_or(0)
    }

    fn changed(&self) -> bool {
        !self.fresh && self.wanted != *self.stored
    }
}

impl Rollout<'_> {
    /// Every set, the new one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(self.new.as_ref())
    }

    pub(super) fn total(&self) -> i64 {
        self.all().map(Set::replicas).sum()
    }

    /// Finds or makes the set of the present template, and keeps its revision the greatest.
    pub(super) fn sync_revision(&mut self, make: bool) {
        let revision = self.old.iter().map(Set::revision).max().unwrap_or(0) + 1;
        if self.new.is_none() && make {
            self.make(revision);
        }
        let settle = at(self.deployment, &["spec", "minReadySeconds"]).cloned();
        let own = texts(self.deployment, &["metadata", "annotations"]);
        let Some(new) = self.new.as_mut() else { return };
        for (key, value) in own.iter().filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str())) {
            new.annotate(key, value);
        }
        let before = new.annotation(REVISION).to_owned();
        if new.revision() < revision {
            new.annotate(REVISION, &revision.to_string());
            if !before.is_empty() {
                // A former template is back: its earlier numbers are kept.
                let mut history: Vec<String> =
                    new.annotation(HISTORY).split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
                history.push(before);
                while history.iter().map(|part| part.len() + 1).sum::<usize>() > HISTORY_LENGTH + 1 {
                    history.remove(0);
                }
                new.annotate(HISTORY, &history.join(","));
            }
        }
        if !new.fresh && at(&new.wanted, &["spec", "minReadySeconds"]) != settle.as_ref() {
            new.wanted["spec"]["minReadySeconds"] = settle.unwrap_or(json!(0));
        }
        let shown = new.annotation(REVISION).to_owned();
        if text(self.deployment, &["metadata", "annotations", REVISION]) != shown {
            let patch = json!({"metadata": {"annotations": {REVISION: shown}}});
            self.turn.call(Call::merge(&DEPLOYMENT, namespace(self.deployment), name(self.deployment), "", patch));
        }
    }

    /// Makes the set of the present template.
    fn make(&mut self, revision: i64) {
        let mut template = at(self.deployment, &["spec", "template"]).cloned().unwrap_or_default();
        let hash = hash::template(&template, self.collisions());
        template["metadata"]["labels"][HASH_LABEL] = json!(hash);
        let mut selector = at(self.deployment, &["spec", "selector"]).cloned().unwrap_or_default();
        selector["matchLabels"][HASH_LABEL] = json!(hash);
        // A name may have 63 characters and still leave room for the suffix of pods.
        let stem: String = self.name().chars().take(252 - hash.len()).collect();
        let set_name = format!("{stem}-{hash}");
        let replicas = self.new_replicas(0);
        let mut object = json!({
            "metadata": {
                "name": set_name,
                "namespace": namespace(self.deployment),
                "ownerReferences": [owned_by(&DEPLOYMENT, self.deployment)],
                "labels": template["metadata"]["labels"],
                "annotations": {
                    REVISION: revision.to_string(),
                    DESIRED: self.replicas.to_string(),
                    MAXIMUM: (self.replicas + self.surge).to_string(),
                },
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        if let Some(settle) = at(self.deployment, &["spec", "minReadySeconds"]) {
            object["spec"]["minReadySeconds"] = settle.clone();
        }
        for (key, value) in texts(self.deployment, &["metadata", "annotations"]) {
            if !OWN_ANNOTATIONS.contains(&key.as_str()) {
                object["metadata"]["annotations"][key] = json!(value);
            }
        }
        if let Some(taken) = self.world.get(&REPLICA_SET, namespace(self.deployment), &set_name) {
            // Another template has this hash, or the set belongs to somebody else: salt the hash and come again.
            if !terminating(&taken) {
                let patch = json!({"status": {"collisionCount": self.collisions().unwrap_or(0) + 1}});
                self.turn.call(Call::merge(&DEPLOYMENT, namespace(self.deployment), self.name(), "status", patch));
            }
            return;
        }
        let call = Call::create(&REPLICA_SET, namespace(self.deployment), object.clone());
        self.turn.call(Call { fine: &[], ..call });
        self.new = Some(Set { stored: Arc::new(object.clone()), wanted: object, fresh: true });
    }

    /// How many replicas the new set may have, when it has `now`.
    pub(super) fn new_replicas(&self, now: i64) -> i64 {
        if !self.rolling {
            return self.replicas;
        }
        let (total, most) = (self.total(), self.replicas + self.surge);
        if total >= most {
            return now;
        }
        now + (most - total).min(self.replicas - now)
    }

    /// Sets the replicas of a set (`None` is the new one); true when the number changes.
    pub(super) fn scale_set(&mut self, index: Option<usize>, replicas: i64, annotate: bool) -> bool {
        let (desired, most) = (self.replicas.to_string(), (self.replicas + self.surge).to_string());
        let set = match index {
            Some(index) => self.old.get_mut(index),
            None => self.new.as_mut(),
        };
        let Some(set) = set else { return false };
        let differs = set.replicas() != replicas;
        if differs || annotate {
            set.wanted["spec"]["replicas"] = json!(replicas);
            set.annotate(DESIRED, &desired);
            set.annotate(MAXIMUM, &most);
        }
        differs
    }

    /// Sends the changes of all sets, once at the end of a turn: a second write would state a version that the first made old.
    pub(super) fn flush(&mut self) {
        for set in self.old.iter().chain(self.new.as_ref()) {
            if set.changed() {
                self.turn.call(Call { fine: &[404], ..Call::update(&REPLICA_SET, "", set.wanted.clone()) });
            }
        }
    }

    /// Deletes the oldest of the sets without pods beyond the history that is kept.
    pub(super) fn clean_up(&mut self) {
        let Some(limit) = self.revision_limit() else { return };
        let mut sets: Vec<&Set> = self.old.iter().filter(|set| !terminating(&set.stored)).collect();
        let Some(surplus) = sets.len().checked_sub(limit) else { return };
        sets.sort_by_key(|set| (set.revision(), set.age()));
        let mut calls = Vec::new();
        for set in sets.into_iter().take(surplus) {
            let generation = int(&set.stored, &["metadata", "generation"]).unwrap_or(0);
            let idle = set.count("replicas") == 0 && set.replicas() == 0 && generation <= set.count("observedGeneration");
            if idle && !uid(&set.stored).is_empty() {
                calls.push(Call::delete(&REPLICA_SET, &set.stored, Delete::Background));
            }
        }
        for call in calls {
            self.turn.call(call);
        }
    }
}
