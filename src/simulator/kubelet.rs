//! Scheduler and kubelet in one: pods get a node, start, turn ready, end, and go, as their annotations say.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::controllers::kinds::{NODE, POD};
use apiserver::controllers::{Call, Change, Controller, Delete, Key, Turn, World};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{json, Value};

use crate::nodes::address;
use crate::scheduling::place;
use crate::value::{at, condition, int, list, name, namespace, second, terminating, text, uid};
use crate::Options;

/// A pod with this annotation never becomes ready; its value is the reason its containers wait for (`ImagePullBackOff`, …).
pub const FAIL: &str = "simulator.anabranch.io/fail";
/// Exit code of a pod that runs to an end (restart policy `Never` or `OnFailure`); 0 when absent.
pub const EXIT_CODE: &str = "simulator.anabranch.io/exit-code";
/// How long such a pod runs, in seconds.
pub const RUN_SECONDS: &str = "simulator.anabranch.io/run-seconds";

/// How long a pod without a node waits for another look.
const UNSCHEDULABLE_RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Runs pods on simulated nodes.
#[derive(Debug)]
pub struct Kubelet {
    options: Arc<Options>,
    /// When a step of a pod began, by uid: objects carry whole seconds, delays are shorter. Lost at a restart, then the step
    /// only takes longer.
    since: Mutex<BTreeMap<String, Timestamp>>,
}

impl Kubelet {
    /// With the delays of the options.
    pub fn new(options: Arc<Options>) -> Self {
        Self { options, since: Mutex::default() }
    }

    /// Whether `delay` has passed since the pod's present step began; else asks for a turn when it has.
    fn passed(&self, pod: &Value, delay: SignedDuration, now: Timestamp, turn: &mut Turn) -> bool {
        if delay <= SignedDuration::ZERO {
            return true;
        }
        let mut since = self.since.lock();
        let began = *since.entry(uid(pod).to_owned()).or_insert(now);
        let end = began + delay;
        if end <= now {
            since.remove(uid(pod));
            return true;
        }
        turn.again_at(end, now);
        false
    }
}

impl Controller for Kubelet {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&POD) {
            if change.deleted {
                self.since.lock().remove(&change.meta.uid);
            } else {
                wake.push(change.key.clone());
            }
        } else if change.key.is(&NODE) && !change.deleted {
            // A node that comes or changes may take pods that wait.
            let waiting = world.all(&POD).into_iter().filter(|pod| text(pod, &["spec", "nodeName"]).is_empty());
            wake.extend(waiting.map(|pod| Key::new("", "pods", namespace(&pod), name(&pod))));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(pod) = world.at(key) else { return turn };
        let node = text(&pod, &["spec", "nodeName"]);
        if terminating(&pod) {
            if !self.passed(&pod, self.options.stop_delay, world.now, &mut turn) {
                return turn;
            }
            // Whoever holds the pod by a finalizer wants to know how it ended.
            if !list(&pod, &["metadata", "finalizers"]).is_empty() && !crate::pods::ended(&pod) && !node.is_empty() {
                turn.call(Call::status(&POD, &pod, killed(&pod, world.now)));
                turn.then();
            }
            // With no grace left, only finalizers keep it, and those are not ours.
            if int(&pod, &["metadata", "deletionGracePeriodSeconds"]) != Some(0) {
                turn.call(Call::delete(&POD, &pod, Delete::Background).grace(0));
            }
            return turn;
        }
        if node.is_empty() {
            schedule(&pod, world, &mut turn);
            return turn;
        }
        match text(&pod, &["status", "phase"]) {
            "Pending" | "" => self.start(&pod, node, world, &mut turn),
            "Running" => self.run(&pod, world, &mut turn),
            _ => {}
        }
        turn
    }
}

fn schedule(pod: &Value, world: &World<'_>, turn: &mut Turn) {
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        return;
    }
    match place(pod, world) {
        Ok(node) => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let path = format!("{}/binding", apiserver::controllers::call::path("v1", "pods", namespace(pod), name(pod)));
            let call = Call::create(&POD, namespace(pod), json!({"metadata": {"name": name(pod)}}));
            turn.call(Call { path, body: binding, fine: &[404, 409], ..call });
        }
        Err(message) => {
            let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
            let before = condition(list(&status, &["conditions"]), "PodScheduled");
            if before.is_none_or(|before| text(before, &["message"]) != message) {
                let new = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastProbeTime": null, "lastTransitionTime": second(world.now),
                });
                let others = list(&status, &["conditions"]).iter().filter(|c| text(c, &["type"]) != "PodScheduled");
                status["conditions"] = others.cloned().chain([new]).collect();
                turn.call(Call::status(&POD, pod, status));
            }
            turn.again_in(UNSCHEDULABLE_RETRY);
        }
    }
}

/// An address for a pod, from its uid.
fn pod_address(pod: &Value) -> String {
    let hash = uid(pod).bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let hash = hash % 0x7f_fffe + 1;
    format!("10.{}.{}.{}", 128 + (hash >> 16), hash >> 8 & 0xff, hash & 0xff)
}

/// The five conditions of a pod on a node; `ready` may be withheld with a reason.
fn conditions(pod: &Value, now: Timestamp, ready: Result<(), &str>, ended: bool) -> Value {
    let before = list(pod, &["status", "conditions"]);
    let make = |kind: &str, status: bool, reason: &str, message: &str| {
        let word = if status { "True" } else { "False" };
        let since = condition(before, kind)
            .filter(|condition| text(condition, &["status"]) == word)
            .map(|condition| text(condition, &["lastTransitionTime"]).to_owned());
        let mut out = json!({
            "type": kind, "status": word, "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| second(now)),
        });
        if let Some(generation) = int(pod, &["metadata", "generation"]) {
            out["observedGeneration"] = json!(generation);
        }
        for (field, value) in [("reason", reason), ("message", message)] {
            if !value.is_empty() {
                out[field] = json!(value);
            }
        }
        out
    };
    let (reason, message) = match ready {
        Ok(()) => ("", String::new()),
        Err("") => ("PodCompleted", String::new()),
        Err(_) => {
            let names: Vec<&str> = list(pod, &["spec", "containers"]).iter().map(|c| text(c, &["name"])).collect();
            ("ContainersNotReady", format!("containers with unready status: [{}]", names.join(" ")))
        }
    };
    // Conditions that others set by name, which the pod declares as gates, hold its readiness.
    let gate = list(pod, &["spec", "readinessGates"]).iter().map(|gate| text(gate, &["conditionType"])).find(|gate| {
        condition(before, gate).is_none_or(|condition| text(condition, &["status"]) != "True")
    });
    let whole = match gate {
        Some(gate) if ready.is_ok() => {
            let message = format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.");
            make("Ready", false, "ReadinessGatesNotReady", &message)
        }
        _ => make("Ready", ready.is_ok(), reason, &message),
    };
    let initialized = if ended { "PodCompleted" } else { "" };
    let mut out = vec![
        make("PodReadyToStartContainers", !ended, "", ""),
        make("Initialized", true, initialized, ""),
        whole,
        make("ContainersReady", ready.is_ok(), reason, &message),
        make("PodScheduled", true, "", ""),
    ];
    let known = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    out.extend(before.iter().filter(|condition| !known.contains(&text(condition, &["type"]))).cloned());
    Value::Array(out)
}

/// The statuses of containers of a list in the spec, all in the same state.
fn containers(pod: &Value, field: &str, state: &Value, ready: bool, started: bool) -> Value {
    list(pod, &["spec", field])
        .iter()
        .map(|container| {
            let (container_name, image) = (text(container, &["name"]), text(container, &["image"]));
            let runs = state.get("waiting").is_none();
            let id = |what: &str| if runs { format!("simulator://{what}") } else { String::new() };
            json!({
                "name": container_name, "image": image, "imageID": id(image),
                "containerID": id(&format!("{}/{container_name}", uid(pod))),
                "ready": ready, "started": started, "restartCount": 0, "state": state, "lastState": {},
            })
        })
        .collect()
}

/// The status of a pod that was stopped before its end.
fn killed(pod: &Value, now: Timestamp) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let state = json!({"terminated": {
        "exitCode": 137, "reason": "Error", "startedAt": text(&status, &["startTime"]), "finishedAt": second(now),
    }});
    status["phase"] = json!("Failed");
    status["conditions"] = conditions(pod, now, Err("stopped"), true);
    status["containerStatuses"] = containers(pod, "containers", &state, false, false);
    status
}

impl Kubelet {
    fn start(&self, pod: &Value, node: &str, world: &World<'_>, turn: &mut Turn) {
        let now = world.now;
        let failing = text(pod, &["metadata", "annotations", FAIL]);
        let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
        if at(&status, &["startTime"]).is_none() {
            status["startTime"] = json!(second(now));
        }
        let host = address(node);
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
        if let Some(generation) = int(pod, &["metadata", "generation"]) {
            status["observedGeneration"] = json!(generation);
        }
        let (reason, message) = if failing.is_empty() {
            ("ContainerCreating", String::new())
        } else {
            let image = list(pod, &["spec", "containers"]).first().map_or("", |container| text(container, &["image"]));
            (failing, format!("Back-off pulling image \"{image}\""))
        };
        let mut waiting = json!({"waiting": {"reason": reason}});
        if !failing.is_empty() && failing.contains("Image") {
            waiting["waiting"]["message"] = json!(message);
        }
        let waits = !failing.is_empty() || !self.passed(pod, self.options.start_delay, now, turn);
        let ip = pod_address(pod);
        if waits {
            status["phase"] = json!("Pending");
            status["conditions"] = conditions(pod, now, Err("waiting"), false);
            status["containerStatuses"] = containers(pod, "containers", &waiting, false, false);
            if !failing.is_empty() {
                status["podIP"] = json!(ip);
                status["podIPs"] = json!([{"ip": ip}]);
            }
        } else {
            let running = json!({"running": {"startedAt": second(now)}});
            let done = json!({"terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": second(now), "finishedAt": second(now),
            }});
            status["phase"] = json!("Running");
            status["podIP"] = json!(ip);
            status["podIPs"] = json!([{"ip": ip}]);
            status["conditions"] = conditions(pod, now, Ok(()), false);
            status["containerStatuses"] = containers(pod, "containers", &running, true, true);
            if !list(pod, &["spec", "initContainers"]).is_empty() {
                status["initContainerStatuses"] = containers(pod, "initContainers", &done, true, false);
            }
        }
        if pod.get("status") != Some(&status) {
            turn.call(Call::status(&POD, pod, status));
        }
    }

    /// A running pod: readiness gates may open, and pods that are to end do.
    fn run(&self, pod: &Value, world: &World<'_>, turn: &mut Turn) {
        let now = world.now;
        let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
        let lasting = text(pod, &["spec", "restartPolicy"]);
        if lasting == "Always" || lasting.is_empty() {
            status["conditions"] = conditions(pod, now, Ok(()), false);
            if pod.get("status") != Some(&status) {
                turn.call(Call::status(&POD, pod, status));
            }
            return;
        }
        let annotation = |name: &str| text(pod, &["metadata", "annotations", name]);
        let length = annotation(RUN_SECONDS).parse().map_or(self.options.run_time, SignedDuration::from_secs);
        if !self.passed(pod, length, now, turn) {
            return;
        }
        let code: i64 = annotation(EXIT_CODE).parse().unwrap_or(0);
        let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        let began = text(&status, &["startTime"]).to_owned();
        let ended = json!({"terminated": {
            "exitCode": code, "reason": reason, "startedAt": began, "finishedAt": second(now),
        }});
        status["phase"] = json!(phase);
        status["conditions"] = conditions(pod, now, Err(""), true);
        status["containerStatuses"] = containers(pod, "containers", &ended, false, false);
        turn.call(Call::status(&POD, pod, status));
    }
}
