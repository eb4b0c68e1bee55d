//! StatefulSets: pods with numbers, made and unmade in their order, each with its own claims.

use std::sync::Arc;

use apiserver::controllers::kinds::{PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET};
use apiserver::controllers::{Call, Change, Controller, Delete, Key, Turn, World};
use serde_json::{json, Value};

use crate::pods;
use crate::revisions::Revisions;
use crate::value::{at, compact, int, list, name, namespace, owned_by, terminating, text, Labels};

const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Keeps the pods of StatefulSets.
#[derive(Debug, Default)]
pub struct StatefulSets;

fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    name(pod).strip_prefix(name(set))?.strip_prefix('-')?.parse().ok()
}

fn revision(pod: &Value) -> &str {
    text(pod, &["metadata", "labels", REVISION])
}

impl Controller for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        pods::owners(change, world, &STATEFUL_SET, &POD, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(set) = world.at(key) else { return turn };
        let Some(selector) = Labels::read(at(&set, &["spec", "selector"])) else { return turn };
        let mine: Vec<Arc<Value>> = pods::claim(world, &STATEFUL_SET, &set, &selector, &mut turn)
            .into_iter()
            .filter(|pod| ordinal(&set, pod).is_some())
            .collect();
        let revisions = Revisions::sync(world, &STATEFUL_SET, &set, int(&set, &["status", "collisionCount"]), &mut turn);
        let current = match text(&set, &["status", "currentRevision"]) {
            "" => revisions.update.clone(),
            current if current != revisions.update && revisions.template(current).is_none() => revisions.update.clone(),
            current => current.to_owned(),
        };
        let mut plan = Plan { set: &set, world, mine, revisions, current, settle: int(&set, &["spec", "minReadySeconds"]).unwrap_or(0), turn };
        if !terminating(&set) {
            plan.act();
            let limit = int(&set, &["spec", "revisionHistoryLimit"]).unwrap_or(10);
            let used = |stored: &Value| name(stored) == plan.current || plan.mine.iter().any(|pod| revision(pod) == name(stored));
            plan.revisions.truncate(limit, used, &mut plan.turn);
        }
        plan.sync_status();
        plan.turn
    }
}

struct Plan<'a> {
    set: &'a Value,
    world: &'a World<'a>,
    mine: Vec<Arc<Value>>,
    revisions: Revisions,
    /// Name of the revision that pods had before the update.
    current: String,
    settle: i64,
    turn: Turn,
}

impl Plan<'_> {
    fn range(&self) -> (i64, i64) {
        let start = int(self.set, &["spec", "ordinals", "start"]).unwrap_or(0);
        (start, start + int(self.set, &["spec", "replicas"]).unwrap_or(1))
    }

    fn pod(&self, number: i64) -> Option<&Arc<Value>> {
        self.mine.iter().find(|pod| ordinal(self.set, pod) == Some(number))
    }

    /// Whether a pod runs, is ready and was so long enough; asks for a look when it will have been.
    fn available(&mut self, pod: &Value) -> bool {
        match pods::available(pod, self.settle, self.world.now) {
            Ok(()) => text(pod, &["status", "phase"]) == "Running" && !terminating(pod),
            Err(when) => {
                if let Some(when) = when {
                    self.turn.again_at(when, self.world.now);
                }
                false
            }
        }
    }

    fn act(&mut self) {
        let (start, end) = self.range();
        let ordered = text(self.set, &["spec", "podManagementPolicy"]) != "Parallel";
        let mut first_unavailable = None;
        for number in start..end {
            let Some(pod) = self.pod(number).cloned() else {
                self.create(number);
                if ordered {
                    return;
                }
                continue;
            };
            if pods::ended(&pod) {
                if !terminating(&pod) {
                    self.turn.call(Call::delete(&POD, &pod, Delete::Background));
                }
                if ordered {
                    return;
                }
                continue;
            }
            if text(&pod, &["status", "phase"]) == "Pending" {
                self.claims(number);
            }
            if !self.available(&pod) {
                first_unavailable.get_or_insert(number);
                if ordered {
                    return;
                }
            }
        }
        // Scaling down goes from the greatest number, one at a time where order matters.
        let mut condemned: Vec<Arc<Value>> =
            self.mine.iter().filter(|pod| ordinal(self.set, pod).is_some_and(|n| !(start..end).contains(&n))).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(self.set, pod)));
        for pod in &condemned {
            if terminating(pod) {
                if ordered {
                    return;
                }
                continue;
            }
            self.turn.call(Call::delete(&POD, pod, Delete::Background));
            if ordered {
                return;
            }
        }
        if text(self.set, &["spec", "updateStrategy", "type"]) == "OnDelete" {
            return;
        }
        self.update(start, end);
    }

    /// Replaces pods of a former revision, from the greatest number down to the partition.
    fn update(&mut self, start: i64, end: i64) {
        let rolling = |field: &str| at(self.set, &["spec", "updateStrategy", "rollingUpdate", field]);
        let partition = rolling("partition").and_then(Value::as_i64).unwrap_or(0);
        let most = crate::value::share(rolling("maxUnavailable"), end - start, false).unwrap_or(1).max(1);
        let mut unavailable = 0;
        for number in (start.max(start + partition)..end).rev() {
            let Some(pod) = self.pod(number).cloned() else { return };
            if revision(&pod) != self.revisions.update && !terminating(&pod) {
                self.turn.call(Call::delete(&POD, &pod, Delete::Background));
                unavailable += 1;
            } else if !self.available(&pod) {
                unavailable += 1;
            }
            if unavailable >= most {
                return;
            }
        }
    }

    fn create(&mut self, number: i64) {
        let (start, _) = self.range();
        let partition = at(self.set, &["spec", "updateStrategy", "rollingUpdate", "partition"]).and_then(Value::as_i64);
        // Below the partition a pod comes back as it was.
        let former = self.current != self.revisions.update
            && (partition.is_some_and(|partition| number < start + partition)
                || (partition.is_none() && number < start + int(self.set, &["status", "currentReplicas"]).unwrap_or(0)));
        let present = || at(self.set, &["spec", "template"]).cloned().unwrap_or_default();
        let (template, label) = if former {
            (self.revisions.template(&self.current).unwrap_or_else(present), self.current.clone())
        } else {
            (present(), self.revisions.update.clone())
        };
        self.claims(number);
        self.turn.then();
        let pod_name = format!("{}-{number}", name(self.set));
        let mut pod = pods::from_template(&STATEFUL_SET, self.set, &template);
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("generateName");
        }
        pod["metadata"]["name"] = json!(pod_name);
        pod["metadata"]["labels"][REVISION] = json!(label);
        pod["metadata"]["labels"][POD_NAME] = json!(pod_name);
        pod["metadata"]["labels"][POD_INDEX] = json!(number.to_string());
        pod["spec"]["hostname"] = json!(pod_name);
        pod["spec"]["subdomain"] = json!(text(self.set, &["spec", "serviceName"]));
        for claim in list(self.set, &["spec", "volumeClaimTemplates"]) {
            let volume = json!({"name": name(claim), "persistentVolumeClaim": {"claimName": format!("{}-{pod_name}", name(claim))}});
            let mut volumes: Vec<Value> =
                list(&pod, &["spec", "volumes"]).iter().filter(|v| text(v, &["name"]) != name(claim)).cloned().collect();
            volumes.push(volume);
            pod["spec"]["volumes"] = Value::Array(volumes);
        }
        self.turn.call(Call::create(&POD, namespace(self.set), pod));
    }

    /// Makes the claims of a pod that are absent.
    fn claims(&mut self, number: i64) {
        for template in list(self.set, &["spec", "volumeClaimTemplates"]) {
            let claim_name = format!("{}-{}-{number}", name(template), name(self.set));
            if self.world.get(&PERSISTENT_VOLUME_CLAIM, namespace(self.set), &claim_name).is_some() {
                continue;
            }
            let mut claim = template.clone();
            if let Some(claim) = claim.as_object_mut() {
                claim.remove("status");
            }
            claim["metadata"]["name"] = json!(claim_name);
            for (key, value) in crate::value::texts(self.set, &["spec", "selector", "matchLabels"]) {
                claim["metadata"]["labels"][key] = json!(value);
            }
            if text(self.set, &["spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"]) == "Delete" {
                claim["metadata"]["ownerReferences"] = json!([owned_by(&STATEFUL_SET, self.set)]);
            }
            self.turn.call(Call::create(&PERSISTENT_VOLUME_CLAIM, namespace(self.set), claim));
        }
    }

    fn sync_status(&mut self) {
        let counted: Vec<Arc<Value>> = self.mine.clone();
        let (mut replicas, mut ready, mut available, mut updated, mut former) = (0, 0, 0, 0, 0);
        for pod in &counted {
            replicas += 1;
            if text(pod, &["status", "phase"]) == "Running" && pods::ready(pod) {
                ready += 1;
                available += i64::from(pods::available(pod, self.settle, self.world.now).is_ok());
            }
            if !terminating(pod) {
                former += i64::from(revision(pod) == self.current);
                updated += i64::from(revision(pod) == self.revisions.update);
            }
        }
        let wanted = int(self.set, &["spec", "replicas"]).unwrap_or(1);
        // An update is done when every pod has the new revision and is ready: then there is no former one any more.
        if self.current != self.revisions.update && updated == replicas && updated == wanted && ready == replicas {
            self.current = self.revisions.update.clone();
            former = updated;
        }
        let mut status = compact(vec![
            ("conditions", json!(list(self.set, &["status", "conditions"]))),
            ("currentReplicas", json!(former)),
            ("currentRevision", json!(self.current)),
            ("observedGeneration", json!(int(self.set, &["metadata", "generation"]).unwrap_or(0))),
            ("readyReplicas", json!(ready)),
            ("updateRevision", json!(self.revisions.update)),
            ("updatedReplicas", json!(updated)),
        ]);
        status["replicas"] = json!(replicas);
        status["availableReplicas"] = json!(available);
        status["collisionCount"] = json!(int(self.set, &["status", "collisionCount"]).unwrap_or(0));
        if self.set.get("status") != Some(&status) {
            self.turn.call(Call::status(&STATEFUL_SET, self.set, status));
        }
    }
}
