//! DaemonSets: one pod on every node that takes it.

use std::sync::Arc;

use apiserver::controllers::kinds::{DAEMON_SET, NODE, POD};
use apiserver::controllers::{Call, Change, Controller, Delete, Key, Turn, World};
use serde_json::{json, Value};

use crate::pods;
use crate::revisions::Revisions;
use crate::scheduling::{affine, tolerates};
use crate::value::{at, compact, int, list, name, namespace, share, terminating, text, Labels};

const REVISION: &str = "controller-revision-hash";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// What every pod of a DaemonSet stands: it belongs to its node whatever state that is in.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Keeps the pods of DaemonSets.
#[derive(Debug, Default)]
pub struct DaemonSets;

/// The node a pod of a DaemonSet is on or bound for.
fn home(pod: &Value) -> String {
    let node = text(pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        return node.to_owned();
    }
    let terms = list(pod, &["spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]);
    let fields = terms.iter().flat_map(|term| list(term, &["matchFields"]));
    let mut names = fields.filter(|field| text(field, &["key"]) == "metadata.name").flat_map(|field| list(field, &["values"]));
    names.next().and_then(Value::as_str).unwrap_or("").to_owned()
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&NODE) {
            wake.extend(world.all(&DAEMON_SET).iter().map(|set| Key::new("apps", "daemonsets", namespace(set), name(set))));
            return;
        }
        pods::owners(change, world, &DAEMON_SET, &POD, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(set) = world.at(key) else { return turn };
        let Some(selector) = Labels::read(at(&set, &["spec", "selector"])) else { return turn };
        let mine = pods::claim(world, &DAEMON_SET, &set, &selector, &mut turn);
        let revisions = Revisions::sync(world, &DAEMON_SET, &set, int(&set, &["status", "collisionCount"]), &mut turn);
        let mut template = at(&set, &["spec", "template"]).cloned().unwrap_or_default();
        tolerate(&mut template);
        let fits = |node: &Value| affine(&template, node) && tolerates(&template, node);
        let nodes: Vec<Arc<Value>> = world.all(&NODE).into_iter().filter(|node| !terminating(node)).collect();
        let settle = int(&set, &["spec", "minReadySeconds"]).unwrap_or(0);
        let (mut desired, mut scheduled, mut misplaced, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0, 0);
        let mut outdated: Vec<(Arc<Value>, bool)> = Vec::new();
        for node in &nodes {
            let here: Vec<&Arc<Value>> = mine.iter().filter(|pod| home(pod) == name(node)).collect();
            if !fits(node) {
                misplaced += i64::from(!here.is_empty());
                for pod in here.iter().filter(|pod| !terminating(pod)) {
                    turn.call(Call::delete(&POD, pod, Delete::Background));
                }
                continue;
            }
            desired += 1;
            scheduled += i64::from(!here.is_empty());
            let mut living: Vec<&Arc<Value>> = here.iter().filter(|pod| pods::active(pod)).copied().collect();
            for pod in here.iter().filter(|pod| pods::ended(pod) && !terminating(pod)) {
                // It comes back when this one is gone.
                turn.call(Call::delete(&POD, pod, Delete::Background));
            }
            living.sort_by_key(|pod| text(pod, &["metadata", "creationTimestamp"]).to_owned());
            for pod in living.iter().skip(1) {
                turn.call(Call::delete(&POD, pod, Delete::Background));
            }
            match living.first() {
                None if here.is_empty() && !terminating(&set) => {
                    turn.call(Call::create(&POD, namespace(&set), pod_for(&set, &template, name(node), &revisions)));
                }
                None => {}
                Some(pod) => {
                    let fresh = text(pod, &["metadata", "labels", REVISION]) == revisions.hash;
                    updated += i64::from(fresh);
                    let mut up = false;
                    if pods::ready(pod) {
                        ready += 1;
                        match pods::available(pod, settle, world.now) {
                            Ok(()) => up = true,
                            Err(Some(when)) => turn.again_at(when, world.now),
                            Err(None) => {}
                        }
                    }
                    available += i64::from(up);
                    if !fresh {
                        outdated.push((Arc::clone(pod), up));
                    }
                }
            }
        }
        // Pods whose node is gone go too.
        for pod in mine.iter().filter(|pod| !terminating(pod) && !nodes.iter().any(|node| name(node) == home(pod))) {
            turn.call(Call::delete(&POD, pod, Delete::Background));
        }
        if !terminating(&set) && text(&set, &["spec", "updateStrategy", "type"]) != "OnDelete" {
            let most = at(&set, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"]);
            let most = share(most, desired, true).unwrap_or(1).max(1);
            let mut room = most - (desired - available);
            // Those that do not serve anyway go first and cost nothing.
            outdated.sort_by_key(|(_, up)| *up);
            for (pod, up) in &outdated {
                if *up && room <= 0 {
                    break;
                }
                room -= i64::from(*up);
                turn.call(Call::delete(&POD, pod, Delete::Background));
            }
        }
        let used = |stored: &Value| {
            let hash = text(stored, &["metadata", "labels", "controller.kubernetes.io/hash"]);
            mine.iter().any(|pod| text(pod, &["metadata", "labels", REVISION]) == hash)
        };
        revisions.truncate(int(&set, &["spec", "revisionHistoryLimit"]).unwrap_or(10), used, &mut turn);
        let mut status = compact(vec![
            ("collisionCount", at(&set, &["status", "collisionCount"]).cloned().unwrap_or_default()),
            ("conditions", json!(list(&set, &["status", "conditions"]))),
            ("numberAvailable", json!(available)),
            ("numberUnavailable", json!(desired - available)),
            ("observedGeneration", json!(int(&set, &["metadata", "generation"]).unwrap_or(0))),
            ("updatedNumberScheduled", json!(updated)),
        ]);
        for (field, value) in [
            ("currentNumberScheduled", scheduled),
            ("desiredNumberScheduled", desired),
            ("numberMisscheduled", misplaced),
            ("numberReady", ready),
        ] {
            status[field] = json!(value);
        }
        if set.get("status") != Some(&status) {
            turn.call(Call::status(&DAEMON_SET, &set, status));
        }
        turn
    }
}

fn tolerate(template: &mut Value) {
    let mut tolerations = list(template, &["spec", "tolerations"]).to_vec();
    for (key, effect) in TOLERATED {
        let new = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&new) {
            tolerations.push(new);
        }
    }
    template["spec"]["tolerations"] = Value::Array(tolerations);
}

fn pod_for(set: &Value, template: &Value, node: &str, revisions: &Revisions) -> Value {
    let mut pod = pods::from_template(&DAEMON_SET, set, template);
    pod["metadata"]["labels"][REVISION] = json!(revisions.hash);
    let generation = at(set, &["metadata", "annotations", "deprecated.daemonset.template.generation"]);
    if let Some(generation) = generation.and_then(Value::as_str) {
        pod["metadata"]["labels"]["pod-template-generation"] = json!(generation);
    }
    let field = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let affinity = &mut pod["spec"]["affinity"]["nodeAffinity"];
    match affinity[REQUIRED]["nodeSelectorTerms"].as_array_mut() {
        Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = field.clone()),
        None => affinity[REQUIRED] = json!({"nodeSelectorTerms": [{"matchFields": field}]}),
    }
    pod
}
