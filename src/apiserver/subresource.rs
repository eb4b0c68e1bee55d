//! Subresources: status, scale, and the few that have a meaning of their own.

use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::accept;
use crate::body::{self, Body};
use crate::core::Call;
use crate::input;
use crate::object;
use crate::respond::{self, Doc, answer};
use crate::status::{self, ApiError};
use crate::update::{Fields, change};

pub(crate) async fn dispatch(call: &mut Call, _parts: Parts, request_body: Body) -> Result<Response<Body>, ApiError> {
    let subresource = call.info.subresource.clone();
    let Some(found) = call.resource.subresources.iter().find(|s| s.name == subresource) else { return Err(ApiError::no_route()) };
    let verb = call.info.verb;
    if !found.verbs.iter().any(|v| v == verb) {
        return Err(ApiError::method_not_allowed());
    }
    let kind = found.gvk.2.clone();
    let bytes = body::read(request_body).await?;
    match (subresource.as_str(), verb) {
        ("scale", "get") => {
            let name = call.info.name.clone();
            let entry = call.core.store.get(&call.resource.table, &call.key(&name)).ok_or_else(|| call.not_found(&name))?;
            let object = call.routed_one(object::decode(&entry.value)).await?;
            let scale = scale_of(call, &object)?;
            Ok(answer(call, StatusCode::OK, Doc::Value(scale)))
        }
        ("scale", "update" | "patch") => scale(call, &bytes).await,
        ("binding", "create") if call.resource.is("", "pods") => bind(call, &bytes).await,
        ("eviction", "create") => evict(call, &bytes).await,
        ("finalize", "update") if call.resource.is("", "namespaces") => crate::update::replace(call, &bytes).await,
        ("token", "create") => crate::reviews::token_request(call, &bytes).await,
        // These, and no other, are views of the object itself. `pods/log` has its kind in discovery too, and is none.
        ("status" | "approval" | "ephemeralcontainers" | "resize", "get") if kind == call.resource.kind => crate::read::get(call).await,
        ("status" | "approval" | "ephemeralcontainers" | "resize", "update") if kind == call.resource.kind => crate::update::replace(call, &bytes).await,
        ("status" | "approval" | "ephemeralcontainers" | "resize", "patch") if kind == call.resource.kind => crate::patch::patch(call, &bytes).await,
        _ if call.resource.is("", "pods") => crate::nodeless::answer(call),
        _ if call.resource.is("", "nodes") && call.core.store.get(&call.resource.table, &call.info.name).is_none() => Err(call.not_found(&call.info.name)),
        _ => Err(ApiError::unavailable(format!("{} of {} needs a node, and this server has none", subresource, call.resource.qualified()))),
    }
}

/// Paths of the scale subresource within an object: wanted replicas, observed replicas, selector.
fn scale_paths(call: &Call) -> (Vec<String>, Vec<String>, Option<Vec<String>>) {
    let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>();
    match call.resource.custom.as_ref().and_then(|c| c.scale.as_ref()) {
        Some(scale) => (split(&scale.spec), split(&scale.status), scale.selector.as_deref().map(split)),
        None => (split("spec.replicas"), split("status.replicas"), Some(split("spec.selector"))),
    }
}

fn walk<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field))
}

fn scale_of(call: &Call, object: &Value) -> Result<Value, ApiError> {
    let (spec, status, selector) = scale_paths(call);
    let custom = call.resource.custom.is_some();
    let wanted = walk(object, &spec).and_then(Value::as_i64);
    if custom && wanted.is_none() && walk(object, &spec).is_some() {
        return Err(ApiError::internal("the spec replicas field does not hold a number"));
    }
    let selector = selector.and_then(|path| walk(object, &path)).map(|selector| match selector {
        Value::String(text) => text.clone(),
        selector => selector_text(selector),
    });
    let metadata: serde_json::Map<String, Value> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .iter()
        .filter_map(|f| object::at(object, &["metadata", f]).map(|v| ((*f).to_owned(), v.clone())))
        .collect();
    let mut spec = serde_json::Map::new();
    if let Some(wanted) = wanted.filter(|n| *n != 0) {
        spec.insert("replicas".into(), json!(wanted));
    }
    let mut state = serde_json::Map::new();
    state.insert("replicas".into(), json!(walk(object, &status).and_then(Value::as_i64).unwrap_or(0)));
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        state.insert("selector".into(), json!(selector));
    }
    Ok(json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": state }))
}

/// A selector as text: labels of a map, or the two parts of a label selector.
pub(crate) fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    let labels = selector.get("matchLabels").or_else(|| (selector.get("matchExpressions").is_none()).then_some(selector));
    if let Some(labels) = labels.and_then(Value::as_object) {
        parts.extend(labels.iter().filter_map(|(k, v)| v.as_str().map(|v| format!("{k}={v}"))));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = object::text(expression, &["key"]);
        let mut values: Vec<&str> = expression.get("values").and_then(Value::as_array).map(|v| v.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match object::text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    parts.join(",")
}

async fn scale(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    call.query.dry_run()?;
    let name = call.info.name.clone();
    let content_type = call.content_type.clone();
    let media = accept::media(content_type.as_deref());
    let manager = call.query.manager(call.agent.as_deref());
    let patch = call.info.verb == "patch";
    let input = if media == "application/apply-patch+yaml" { input::yaml(bytes)? } else if patch { input::json(bytes)? } else { input::read(call.content_type.as_deref(), bytes)? };
    let (spec, ..) = scale_paths(call);
    let doc = change(call, &name, &mut |call, old| {
        let current = scale_of(call, old)?;
        let mut new = current.clone();
        match media {
            _ if !patch => new = input.value.clone(),
            "application/json-patch+json" => {
                let operations = manifest::patch::parse(&input.value).map_err(|e| ApiError::bad_request(e.to_string()))?;
                manifest::patch::apply_in_place(&mut new, &operations).map_err(|e| ApiError::bad_request(e.to_string()))?;
            }
            _ => manifest::patch::merge(&mut new, &input.value),
        }
        if let kind @ ("" | "Scale") = object::text(&new, &["kind"]) {
            let _ = kind;
        } else {
            return Err(ApiError::bad_request(format!("expected input object type to be Scale, but {}", object::text(&new, &["kind"]))));
        }
        let wanted = object::at(&new, &["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(0);
        let invalid = |message: String| ApiError::invalid("autoscaling", "Scale", &name, vec![crate::rest::fault("FieldValueInvalid", "spec.replicas", message)]);
        if wanted < 0 {
            return Err(invalid(format!("Invalid value: {wanted}: must be greater than or equal to 0")));
        }
        let mut object = old.clone();
        set(&mut object, &spec, json!(wanted));
        for field in ["uid", "resourceVersion"] {
            if let Some(given) = object::at(&new, &["metadata", field]).filter(|v| v.as_str().is_some_and(|s| !s.is_empty())) {
                object::metadata(&mut object).insert(field.into(), given.clone());
            }
        }
        Ok((object, Fields::Track(manager.clone())))
    })
    .await?;
    let scale = scale_of(call, &doc.value())?;
    Ok(answer(call, StatusCode::OK, Doc::Value(scale)))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for field in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = object::child_root(place).entry(field.clone()).or_insert(Value::Null);
    }
    *place = value;
}

/// `pods/binding`: a scheduler says where a Pod runs.
async fn bind(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let input = input::read(call.content_type.as_deref(), bytes)?;
    let node = object::text(&input.value, &["target", "name"]).to_owned();
    let name = call.info.name.clone();
    let given = object::name(&input.value);
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    if node.is_empty() {
        return Err(ApiError::invalid("", "Binding", &name, vec![crate::rest::fault("FieldValueRequired", "target.name", "Required value")]));
    }
    let annotations = object::at(&input.value, &["metadata", "annotations"]).cloned();
    call.info.subresource = "status".into();
    let now = call.core.now();
    change(call, &name, &mut |call, old| {
        let placed = object::text(old, &["spec", "nodeName"]);
        if !placed.is_empty() {
            return Err(ApiError::conflict("", "pods/binding", &name, &format!("pod {name} is already assigned to node \"{placed}\"")));
        }
        if object::deleting(old) {
            return Err(ApiError::conflict("", "pods/binding", &name, &format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let mut pod = old.clone();
        object::child(&mut pod, "spec").insert("nodeName".into(), json!(node));
        if let Some(Value::Object(more)) = &annotations {
            let notes = object::metadata(&mut pod).entry("annotations").or_insert_with(|| json!({}));
            object::child_root(notes).extend(more.clone());
        }
        let status = object::child(&mut pod, "status");
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Value::Array(list) = conditions {
            list.retain(|c| object::text(c, &["type"]) != "PodScheduled");
            list.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": object::instant(now)}));
        }
        call.info.subresource = "binding".into();
        Ok((pod, Fields::Keep))
    })
    .await?;
    let done = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(respond::value(StatusCode::CREATED, &done, call.accept.encoding, call.accept.pretty))
}

/// `pods/eviction`: removal that heeds PodDisruptionBudgets.
async fn evict(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let input = input::read(call.content_type.as_deref(), bytes)?;
    let name = call.info.name.clone();
    let given = object::name(&input.value);
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let entry = call.core.store.get(&call.resource.table, &call.key(&name)).ok_or_else(|| call.not_found(&name))?;
    let pod = object::decode(&entry.value);
    if !object::deleting(&pod) && !matches!(object::text(&pod, &["status", "phase"]), "Succeeded" | "Failed" | "Pending") {
        let prefix = format!("{}/", call.info.namespace);
        let mut refused = None;
        let mut matched = 0;
        call.core.store.scan("policy/poddisruptionbudgets", &prefix, &mut |entry| {
            let budget = object::decode(&entry.value);
            let selector = object::at(&budget, &["spec", "selector"]).map(selector_text).unwrap_or_default();
            let Ok(selector) = crate::selector::Labels::parse(&selector) else { return };
            let labels = object::at(&pod, &["metadata", "labels"]);
            if selector.matches(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str)) {
                matched += 1;
                let allowed = object::at(&budget, &["status", "disruptionsAllowed"]).and_then(Value::as_i64).unwrap_or(0);
                if allowed < 1 {
                    refused = Some(object::name(&budget).to_owned());
                }
            }
        });
        if matched > 1 {
            return Err(ApiError::internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."));
        }
        if let Some(budget) = refused {
            let mut error = ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10);
            error.causes = vec![crate::rest::fault("DisruptionBudget", "", format!("The disruption budget {budget} does not allow the disruption of another pod"))];
            return Err(error);
        }
    }
    let options = object::at(&input.value, &["deleteOptions"]).cloned().unwrap_or_else(|| json!({}));
    let mut options = options;
    if let Value::Object(map) = &mut options {
        map.remove("kind");
        map.remove("apiVersion");
    }
    call.content_type = None;
    let ask = crate::delete::Ask::read(call, &respond::to_json(&options))?;
    let (doc, _) = crate::delete::remove(call, &name, &ask).await?;
    let value = doc.value();
    let mut done = status::success("", "pods", &name, object::uid(&value));
    object::child_root(&mut done).insert("code".into(), json!(201));
    object::child_root(&mut done).remove("details");
    Ok(respond::value(StatusCode::CREATED, &done, call.accept.encoding, call.accept.pretty))
}
