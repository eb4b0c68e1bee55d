//! Logs, exec, attach, port-forward and proxy of Pods: what a server says of them that has no kubelet behind it.

use http::{Response, StatusCode};
use serde_json::Value;

use crate::body::{self, Body};
use crate::core::Call;
use crate::object::{self, text};
use crate::status::{ApiError, Cause};

/// Answers for a subresource that a node would serve. Never shows the Pod: whoever may read logs need not be allowed to.
pub(crate) fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let subresource = call.info.subresource.as_str();
    let name = &call.info.name;
    if subresource == "log" {
        let faults = log_faults(call);
        if !faults.is_empty() {
            return Err(ApiError::invalid("", "PodLogOptions", name, faults));
        }
    }
    let entry = call.core.store.get(&call.resource.table, &call.key(name)).ok_or_else(|| call.not_found(name))?;
    let pod = object::decode(&entry.value);
    if matches!(subresource, "log" | "exec" | "attach") {
        container(call, &pod)?;
    }
    let node = text(&pod, &["spec", "nodeName"]);
    match subresource {
        "proxy" if text(&pod, &["status", "podIP"]).is_empty() => Err(ApiError::bad_request("address not allowed")),
        // A Pod that runs nowhere has written nothing yet.
        "log" if node.is_empty() => {
            let mut response = Response::new(body::full(bytes::Bytes::new()));
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        _ if node.is_empty() => Err(ApiError::bad_request(format!("pod {name} does not have a host assigned"))),
        _ => {
            let mut error = ApiError::unavailable(format!("the node {node} of pod {name} is simulated and runs no containers"));
            // It will not do so later either: a client need not ask again.
            error.retry_after = None;
            Err(error)
        }
    }
}

/// Faults of the options of `log`.
fn log_faults(call: &Call) -> Vec<Cause> {
    let mut faults = Vec::new();
    let mut at_least = |field: &str, least: i64, words: &str| {
        if let Some(number) = call.query.text(field).and_then(|text| text.parse::<i64>().ok()).filter(|number| *number < least) {
            faults.push(crate::rest::fault("FieldValueInvalid", field, format!("Invalid value: {number}: {words}")));
        }
    };
    at_least("tailLines", 0, "must be greater than or equal to 0");
    at_least("limitBytes", 1, "must be greater than 0");
    if call.query.text("sinceTime").is_none() {
        at_least("sinceSeconds", 1, "must be greater than 0");
    } else if call.query.text("sinceSeconds").is_some() {
        faults.push(crate::rest::fault("FieldValueForbidden", "[]", "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    faults
}

/// The container that is meant is the one that is named, or the only one.
fn container(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let name = &call.info.name;
    let lists = ["initContainers", "containers", "ephemeralContainers"].map(|field| object::at(pod, &["spec", field]).and_then(Value::as_array));
    let names: Vec<&str> = lists.iter().flatten().flat_map(|list| list.iter()).map(|container| text(container, &["name"])).collect();
    match call.query.text("container") {
        Some(asked) if !names.contains(&asked) => Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}"))),
        None if lists[1].is_none_or(|own| own.len() != 1) => {
            Err(ApiError::bad_request(format!("a container name must be specified for pod {name}, choose one of: [{}]", names.join(" "))))
        }
        _ => Ok(()),
    }
}
