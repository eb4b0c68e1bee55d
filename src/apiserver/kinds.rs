//! What depends on the kind of an object: the way into the `schema` room, and conversion between versions.

use std::sync::OnceLock;

use jiff::Timestamp;
use schema::fields::{self, ApplyError};
use schema::Fault;
use schema::decode::Decoded;
use serde_json::{Value, json};

use crate::convert;
use crate::object;
use crate::resource::Resource;
use crate::status::{ApiError, Cause};

/// What is known of a kind.
pub(crate) use schema::Kind;

/// The kind that a version of a definition makes; nothing when its schema makes no sense (it would not have been stored).
pub(crate) fn custom(crd: &Value, version: &str) -> OnceLock<Option<Kind>> {
    OnceLock::from(Kind::custom(crd, version).ok())
}

fn sub(subresource: &str) -> Option<&str> {
    (!subresource.is_empty()).then_some(subresource)
}

/// A fault as a cause of a `Status`.
pub(crate) fn cause(fault: &Fault) -> Cause {
    let value = fault.cause();
    let part = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    Cause { reason: part("reason"), message: part("message"), field: part("field") }
}

/// Reads an object by its schema.
pub(crate) fn decode(resource: &Resource, object: Value) -> Result<Decoded, String> {
    let Some(kind) = resource.schema() else { return Ok(Decoded { object, unknown: Vec::new() }) };
    kind.decode(object).map_err(|error| error.to_string())
}

/// Reads a request body by its schema.
pub(crate) fn read(resource: &Resource, object: Value) -> Result<Decoded, ApiError> {
    decode(resource, object).map_err(|error| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            resource.kind, resource.version, resource.kind
        ))
    })
}

pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if let Some(kind) = resource.schema() {
        kind.default(object);
    }
}

pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if let Some(kind) = resource.schema() {
        kind.prepare_create(object);
    }
}

pub(crate) fn prepare_update(resource: &Resource, subresource: &str, old: &Value, object: &mut Value) {
    if let Some(kind) = resource.schema() {
        kind.prepare_update(object, old, sub(subresource));
    }
}

pub(crate) fn validate_create(resource: &Resource, object: &Value) -> Vec<Fault> {
    resource.schema().map(|kind| kind.validate_create(object)).unwrap_or_default()
}

pub(crate) fn validate_update(resource: &Resource, subresource: &str, old: &Value, object: &Value) -> Vec<Fault> {
    resource.schema().map(|kind| kind.validate_update(object, old, sub(subresource))).unwrap_or_default()
}

pub(crate) fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    resource.schema().map(|kind| kind.warnings(object)).unwrap_or_default()
}

/// Brings the managed fields of a write that is not an apply up to date.
pub(crate) fn track(resource: &Resource, old: Option<&Value>, object: &mut Value, manager: &str, subresource: &str, now: Timestamp) {
    let Some(kind) = resource.schema() else { return };
    let (version, now) = (resource.api_version(), object::instant(now));
    let write = fields::Write { manager, api_version: &version, subresource: sub(subresource), now: &now, served: &[] };
    fields::track_update(kind, old, object, &write);
}

/// Whether PUT needs `metadata.resourceVersion`.
pub(crate) fn needs_revision(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("policy", "poddisruptionbudgets")
                | ("coordination.k8s.io", "leases")
                | ("storage.k8s.io", "csidrivers" | "csinodes")
                | ("node.k8s.io", "runtimeclasses")
                | ("admissionregistration.k8s.io", _)
                | ("apiextensions.k8s.io", _)
                | ("apiregistration.k8s.io", _)
                | ("discovery.k8s.io", _)
        )
}

/// Whether PUT of an absent object creates it.
pub(crate) fn creates_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "events" | "limitranges" | "serviceaccounts" | "endpoints" | "services") | ("events.k8s.io", "events") | ("coordination.k8s.io", "leases")
    )
}

/// An object of the store in the version of a route.
pub(crate) fn to_route(resource: &Resource, object: Value) -> Value {
    // A definition may have stored another version once.
    let shown = if resource.custom.is_some() { object::text(&object, &["apiVersion"]) == resource.api_version() } else { resource.as_stored() };
    let mut object = if shown { object } else { version(resource, object, &resource.api_version()) };
    if let Some(custom) = &resource.custom
        && custom.defaults_since > 0
        && custom.webhook.is_none()
        && object::revision_of(&object).parse::<u64>().is_ok_and(|at| at <= custom.defaults_since)
    {
        default(resource, &mut object);
    }
    object
}

/// An object of a route in the version of the store.
pub(crate) fn to_storage(resource: &Resource, object: Value) -> Value {
    if resource.as_stored() { object } else { version(resource, object, &resource.storage_version) }
}

fn version(resource: &Resource, mut object: Value, wanted: &str) -> Value {
    if resource.native.is_some() {
        object = convert::native(object, wanted);
    }
    object::child_root(&mut object).insert("apiVersion".into(), json!(wanted));
    object
}

/// Strategic merge patch.
pub(crate) fn strategic(resource: &Resource, old: &Value, patch: &Value) -> Result<Value, ApiError> {
    let Some(kind) = resource.schema() else { return Err(ApiError::internal("the kind has no schema")) };
    kind.strategic_merge(old, patch).map_err(|e| ApiError::bad_request(e.to_string()))
}

/// Server-side apply: the object that comes of it, with its managed fields.
pub(crate) fn apply(resource: &Resource, live: Option<&Value>, applied: &Value, manager: &str, force: bool, subresource: &str, now: Timestamp) -> Result<Value, ApiError> {
    let Some(kind) = resource.schema() else { return Err(ApiError::internal("the kind has no schema")) };
    let (version, now) = (resource.api_version(), object::instant(now));
    let write = fields::Write { manager, api_version: &version, subresource: sub(subresource), now: &now, served: &[] };
    fields::apply(kind, live, applied, &write, force).map_err(|error| apply_error(error))
}

/// What a failed apply means to the client.
fn apply_error(error: ApplyError) -> ApiError {
    match &error {
        ApplyError::Conflicts(all) => {
            let part = |cause: &Value, field: &str| object::text(cause, &[field]).to_owned();
            let causes = all.iter().map(schema::fields::Conflict::cause).map(|c| Cause { reason: part(&c, "reason"), message: part(&c, "message"), field: part(&c, "field") });
            ApiError::apply_conflict(error.to_string(), causes.collect())
        }
        ApplyError::BadRequest(_) => ApiError::bad_request(error.to_string()),
        ApplyError::Typed(text) => ApiError::unworded(text.clone()),
        ApplyError::Managed(source) => ApiError::internal(format!("{error}: {source}")),
        ApplyError::Decode(source) => ApiError::internal(format!("{error}: {source}")),
    }
}
