//! PATCH: JSON patch, JSON merge patch, strategic merge patch, server-side apply.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::accept;
use crate::body::Body;
use crate::core::Call;
use crate::input;
use crate::kinds;
use crate::object;
use crate::query::FieldValidation;
use crate::respond::answer;
use crate::status::{ApiError, Cause};
use crate::update::{Fields, change};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Largest JSON patch body, as in Kubernetes.
const MAX_JSON_PATCH: usize = 1024 * 1024;

pub(crate) async fn patch(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let content_type = call.content_type.clone();
    let dry_run = call.query.dry_run();
    let media = accept::media(content_type.as_deref());
    if call.query.flag("force") && media != APPLY {
        return Err(options(vec![crate::rest::fault("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch")]));
    }
    dry_run?;
    match media {
        JSON_PATCH => {
            if bytes.len() > MAX_JSON_PATCH {
                return Err(ApiError::too_large(format!("The allowed maximum operations in a JSON patch is 10000, got {}", bytes.len())));
            }
            let input = input::json(bytes)?;
            let operations = manifest::patch::parse(&input.value).map_err(|e| ApiError::bad_request(e.to_string()))?;
            ordinary(call, &mut |_, old| {
                let mut new = old.clone();
                manifest::patch::apply_in_place(&mut new, &operations).map_err(|_| unprocessable())?;
                Ok(new)
            })
            .await
        }
        MERGE => {
            let input = input::json(bytes)?;
            if !input.value.is_object() {
                return Err(ApiError::bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"));
            }
            ordinary(call, &mut |_, old| {
                let mut new = old.clone();
                manifest::patch::merge(&mut new, &input.value);
                Ok(new)
            })
            .await
        }
        STRATEGIC if call.resource.custom.is_none() => {
            let input = input::json(bytes)?;
            if !input.value.is_object() {
                return Err(ApiError::bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"));
            }
            ordinary(call, &mut |call, old| kinds::strategic(&call.resource, old, &input.value)).await
        }
        APPLY => apply(call, bytes).await,
        _ => {
            let types: &[&str] = if call.resource.custom.is_some() { &[JSON_PATCH, MERGE, APPLY] } else { &[JSON_PATCH, MERGE, STRATEGIC, APPLY] };
            Err(ApiError::unsupported_media_type(types))
        }
    }
}

fn options(causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "PatchOptions", "", causes)
}

/// A JSON patch that does not fit the object. Kubernetes does not say which operation.
fn unprocessable() -> ApiError {
    let mut error = ApiError::bad_request("the server rejected our request due to an error in our request");
    error.code = StatusCode::UNPROCESSABLE_ENTITY;
    error.reason = "Invalid";
    error.about = Some(crate::status::About::default());
    error
}

type Edit<'a> = &'a mut (dyn FnMut(&Call, &Value) -> Result<Value, ApiError> + Send);

/// A patch of the object as it is.
async fn ordinary(call: &mut Call, edit: Edit<'_>) -> Result<Response<Body>, ApiError> {
    let manager = call.query.manager(call.agent.as_deref());
    let name = call.info.name.clone();
    let doc = change(call, &name, &mut |call, old| {
        let mut new = edit(call, old)?;
        kept_kind(call, &mut new)?;
        kept_place(call, &name, old, &new)?;
        let read = match kinds::decode(&call.resource, new) {
            Ok(read) => read,
            // Kubernetes calls it the fault of the patch, and shows what the patch made. That is made again: it was read away.
            Err(error) => {
                let made = edit(call, old)?.to_string();
                let fault = schema::Fault::invalid(&schema::Path::new("patch"), made, error);
                return Err(ApiError::invalid("", "", "", vec![kinds::cause(&fault)]));
            }
        };
        let mut new = call.validated(read, Vec::new(), &[], false)?;
        kinds::default(&call.resource, &mut new);
        Ok((new, Fields::Track(manager.clone())))
    })
    .await?;
    Ok(answer(call, StatusCode::OK, doc))
}

/// A patch leaves the kind as it is. What it takes away, or changes by a patch that knows the kind, comes back; else it is a fault.
fn kept_kind(call: &Call, new: &mut Value) -> Result<(), ApiError> {
    let (wanted, own) = (call.resource.api_version(), call.resource.kind.as_str());
    let strategic = accept::media(call.content_type.as_deref()) == STRATEGIC;
    if call.resource.native.is_some() {
        for (field, value) in [("apiVersion", wanted.as_str()), ("kind", own)] {
            if strategic || object::text(new, &[field]).is_empty() {
                object::child_root(new).insert(field.into(), json!(value));
            }
        }
    }
    let (version, kind) = crate::resource::claimed(new);
    if kind == own && version == wanted {
        return Ok(());
    }
    if call.resource.custom.is_some() {
        return Err(ApiError::bad_request(format!("the patch changed the kind or version of the object to {version}, {kind}")));
    }
    let why = format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\"");
    let fault = schema::Fault::invalid(&schema::Path::new("patch"), new.to_string(), why);
    Err(ApiError::invalid("", "", "", vec![kinds::cause(&fault)]))
}

/// A patch leaves name, namespace and uid as they are.
fn kept_place(call: &Call, name: &str, old: &Value, new: &Value) -> Result<(), ApiError> {
    match object::name(new) {
        "" => return Err(ApiError::bad_request(format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"))),
        given if given != name => return Err(ApiError::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({name})"))),
        _ => {}
    }
    if call.resource.namespaced && object::namespace(new) != call.info.namespace {
        return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    let revision = object::revision_of(new);
    if !revision.is_empty() && revision.parse::<u64>().is_err() {
        return Err(ApiError::unworded(crate::query::bad_number(revision)));
    }
    kept_uid(call, name, old, object::uid(new))
}

/// A patch that names another uid is wrong in itself, where a whole object with one is out of date.
fn kept_uid(call: &Call, name: &str, old: &Value, given: &str) -> Result<(), ApiError> {
    if given.is_empty() || given == object::uid(old) {
        return Ok(());
    }
    let fault = schema::Fault::invalid(&schema::Path::new("metadata.uid"), given, "field is immutable");
    Err(call.invalid(name, &[fault]))
}

/// Server-side apply.
async fn apply(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let Some(manager) = call.query.text("fieldManager").map(str::to_owned) else {
        return Err(options(vec![crate::rest::fault("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")]));
    };
    if manager.len() > 128 {
        return Err(options(vec![crate::rest::fault("FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes")]));
    }
    let force = call.query.flag("force");
    // What is applied is taken as it was written: defaults and empty values of its kind would become the applier's.
    let input = input::yaml(bytes)?;
    let mut applied = call.claimed(input.value)?;
    let doubled = doubled(call, &input.faults)?;
    if object::at(&applied, &["metadata", "managedFields"]).and_then(Value::as_array).is_some_and(|l| !l.is_empty()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let name = call.info.name.clone();
    call.place(&mut applied, true)?;
    let key = call.key(&name);
    loop {
        if call.core.store.latest(&call.resource.table, &key).is_none() {
            if !call.info.subresource.is_empty() {
                return Err(call.not_found(&name));
            }
            if !object::uid(&applied).is_empty() {
                let why = format!("uid mismatch: the provided object specified uid {}, and no existing object was found", object::uid(&applied));
                return Err(ApiError::conflict(&call.resource.group, &call.resource.plural, &name, &why));
            }
            if !object::revision_of(&applied).is_empty() {
                return Err(call.not_found(&name));
            }
            let object = kinds::apply(&call.resource, None, &applied, &manager, force, &call.info.subresource, call.core.now())?;
            if let Some(error) = doubled {
                return Err(error);
            }
            match crate::rest::insert_once(call, object, true).await {
                // Somebody else was faster: then it is a change.
                Err(error) if error.reason == "AlreadyExists" => continue,
                other => return other.map(|doc| answer(call, StatusCode::CREATED, doc)),
            }
        }
        let changed = change(call, &name, &mut |call, old| {
            kept_uid(call, &name, old, object::uid(&applied))?;
            let mut new = kinds::apply(&call.resource, Some(old), &applied, &manager, force, &call.info.subresource, call.core.now())?;
            if let Some(error) = &doubled {
                return Err(error.clone());
            }
            for field in ["uid", "resourceVersion"] {
                if let Some(given) = object::at(&applied, &["metadata", field]).filter(|v| v.as_str().is_some_and(|s| !s.is_empty())) {
                    object::metadata(&mut new).insert(field.into(), given.clone());
                }
            }
            Ok((new, Fields::Made))
        })
        .await;
        match changed {
            Err(error) if error.reason == "NotFound" && call.info.subresource.is_empty() => {}
            other => return other.map(|doc| answer(call, StatusCode::OK, doc)),
        }
    }
}

/// Doubled keys of an applied text: a warning, or a refusal that comes once the text is found to fit its kind.
fn doubled(call: &mut Call, faults: &[String]) -> Result<Option<ApiError>, ApiError> {
    let Some(fault) = faults.first() else { return Ok(None) };
    let text = format!("error converting YAML to JSON: {fault}");
    Ok(match call.query.field_validation()? {
        FieldValidation::Ignore => None,
        FieldValidation::Warn => {
            call.warnings.push(text);
            None
        }
        FieldValidation::Strict => Some(ApiError::bad_request(format!("error strict decoding YAML: {text}"))),
    })
}

/// The value of a merge patch that sets one field, for the server's own use.
#[must_use]
pub fn set(path: &[&str], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, field| json!({ *field: inner }))
}
