//! The row of a Pod: what state it is in, said in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{at, name, text};
use crate::printers::{age, list, number, since};

const NONE: &str = "<none>";

fn flag(object: &Value, path: &[&str]) -> bool {
    at(object, path) == Some(&json!(true))
}

fn holds(pod: &Value, kind: &str) -> bool {
    list(pod, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == kind && text(c, &["status"]) == "True")
}

/// Word for a container that ended: its reason, else signal or exit code.
fn ended(state: &Value) -> String {
    let signal = number(state, &["terminated", "signal"]);
    match text(state, &["terminated", "reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", number(state, &["terminated", "exitCode"])),
        reason => reason.to_owned(),
    }
}

/// Cells of a Pod.
pub(crate) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let containers = list(pod, &["spec", "containers"]);
    let init = list(pod, &["spec", "initContainers"]);
    let restartable = |name: &str| init.iter().any(|c| text(c, &["name"]) == name && text(c, &["restartPolicy"]) == "Always");
    let mut total = containers.len() + init.iter().filter(|c| text(c, &["restartPolicy"]) == "Always").count();
    let (mut ready, mut restarts, mut sidecar_restarts) = (0, 0, 0);
    let mut last_restart: Option<Timestamp> = None;
    let phase = text(pod, &["status", "phase"]);
    let mut reason = match text(pod, &["status", "reason"]) {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    if list(pod, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == "PodScheduled" && text(c, &["reason"]) == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut reason);
    }
    let finished = |status: &Value| -> Option<Timestamp> { text(status, &["lastState", "terminated", "finishedAt"]).parse().ok() };
    let mut initializing = false;
    for (n, status) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
        restarts += number(status, &["restartCount"]);
        last_restart = last_restart.max(finished(status));
        let state = status.get("state").cloned().unwrap_or_default();
        if restartable(text(status, &["name"])) {
            sidecar_restarts += number(status, &["restartCount"]);
            if flag(status, &["ready"]) {
                ready += 1;
            }
            if flag(status, &["started"]) {
                continue;
            }
        }
        if state.get("terminated").is_some() && number(&state, &["terminated", "exitCode"]) == 0 {
            continue;
        }
        reason = if state.get("terminated").is_some() {
            format!("Init:{}", ended(&state))
        } else {
            match text(&state, &["waiting", "reason"]) {
                "" | "PodInitializing" => format!("Init:{n}/{}", init.len()),
                waiting => format!("Init:{waiting}"),
            }
        };
        initializing = true;
        break;
    }
    if !initializing || holds(pod, "Initialized") {
        restarts = sidecar_restarts;
        let mut running = false;
        for status in list(pod, &["status", "containerStatuses"]).iter().rev() {
            restarts += number(status, &["restartCount"]);
            last_restart = last_restart.max(finished(status));
            let state = status.get("state").cloned().unwrap_or_default();
            match text(&state, &["waiting", "reason"]) {
                "" => {
                    if state.get("terminated").is_some() {
                        reason = ended(&state);
                    } else if flag(status, &["ready"]) && state.get("running").is_some() {
                        running = true;
                        ready += 1;
                    }
                }
                waiting => waiting.clone_into(&mut reason),
            }
        }
        if reason == "Completed" && running {
            (if holds(pod, "Ready") { "Running" } else { "NotReady" }).clone_into(&mut reason);
        }
    }
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        if text(pod, &["status", "reason"]) == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    total = total.max(ready);
    let restarts = match last_restart.filter(|_| restarts > 0) {
        Some(at) => format!("{restarts} ({} ago)", since(at, now)),
        None => restarts.to_string(),
    };
    let gates = list(pod, &["spec", "readinessGates"]);
    let gates = if gates.is_empty() { NONE.to_owned() } else { format!("{}/{}", gates.iter().filter(|g| holds(pod, text(g, &["conditionType"]))).count(), gates.len()) };
    let or_none = |text: &str| json!(if text.is_empty() { NONE } else { text });
    let ip = match list(pod, &["status", "podIPs"]).first() {
        Some(first) => text(first, &["ip"]),
        None => text(pod, &["status", "podIP"]),
    };
    vec![
        json!(name(pod)), json!(format!("{ready}/{total}")), json!(reason), json!(restarts), age(pod, now), or_none(ip), or_none(text(pod, &["spec", "nodeName"])),
        or_none(text(pod, &["status", "nominatedNodeName"])), json!(gates),
    ]
}
