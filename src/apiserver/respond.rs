//! Building responses: one object, a list, a refusal; in JSON, YAML or protobuf; whole, as a table or as metadata only.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::Entry;

use crate::accept::{Encoding, Form};
use crate::body::{self, Body};
use crate::core::Call;
use crate::kinds;
use crate::object;
use crate::read::{self, Listed};
use crate::status::ApiError;

/// An object on its way out.
#[derive(Debug, Clone)]
pub(crate) enum Doc {
    /// As it is stored, in the version of the route.
    Stored(Arc<Entry>),
    /// Made for this response.
    Value(Value),
}

impl Doc {
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Stored(entry) => object::decode(&entry.value),
            Self::Value(value) => value.clone(),
        }
    }

    fn json(self) -> Bytes {
        match self {
            Self::Stored(entry) => entry.value.clone(),
            Self::Value(value) => to_json(&value),
        }
    }
}

/// Encodes a value as JSON; writing into memory cannot fail.
pub(crate) fn to_json(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

/// Encodes a value.
pub(crate) fn encode(value: &Value, encoding: Encoding, pretty: bool) -> (Bytes, &'static str) {
    match encoding {
        Encoding::Yaml => (Bytes::from(manifest::emit(value)), "application/yaml"),
        Encoding::Protobuf => match crate::protobuf::encode(value) {
            Ok(bytes) => (Bytes::from(bytes), "application/vnd.kubernetes.protobuf"),
            // What has no protobuf form goes out as JSON, as a real server does for unknown types.
            Err(_) => (to_json(value), "application/json"),
        },
        Encoding::Json if pretty => (Bytes::from(serde_json::to_vec_pretty(value).unwrap_or_default()), "application/json"),
        // Compact JSON ends its line, as Go's encoder does.
        Encoding::Json => {
            let mut bytes = serde_json::to_vec(value).unwrap_or_default();
            bytes.push(b'\n');
            (Bytes::from(bytes), "application/json")
        }
    }
}

/// A response with a value that has no table or metadata form.
pub(crate) fn value(code: StatusCode, value: &Value, encoding: Encoding, pretty: bool) -> Response<Body> {
    let (bytes, content_type) = encode(value, encoding, pretty);
    body::response(code, content_type, body::full(bytes))
}

/// A refusal.
pub(crate) fn refusal(error: &ApiError, encoding: Encoding) -> Response<Body> {
    value(error.code, &error.to_status(), encoding, false)
}

/// A response with one object in the form that was agreed on.
pub(crate) fn answer(call: &Call, code: StatusCode, doc: Doc) -> Response<Body> {
    if call.accept.form == Form::Whole && call.accept.encoding == Encoding::Json && !call.accept.pretty {
        return body::response(code, "application/json", body::pieces(vec![doc.json(), Bytes::from_static(b"\n")]));
    }
    let shaped = shape(call, doc.value(), true);
    value(code, &shaped, call.accept.encoding, call.accept.pretty)
}

/// An object in the form that was agreed on. `headers`: whether a table tells its columns.
pub(crate) fn shape(call: &Call, value: Value, headers: bool) -> Value {
    // A Status is never shown as a table or cut down.
    if value.get("kind").and_then(Value::as_str) == Some("Status") {
        return value;
    }
    match call.accept.form {
        Form::Whole | Form::Discovery(_) => value,
        Form::Partial(version) => partial(version, "PartialObjectMetadata", value),
        Form::Table(version) => {
            let revision = object::revision_of(&value).to_owned();
            crate::table::table(call, version, json!({ "resourceVersion": revision }), vec![value], headers)
        }
    }
}

/// Metadata of an object, under another kind.
pub(crate) fn partial(version: &str, kind: &str, value: Value) -> Value {
    let metadata = match value {
        Value::Object(mut map) => map.remove("metadata").unwrap_or_else(|| json!({})),
        _ => json!({}),
    };
    json!({ "apiVersion": version, "kind": kind, "metadata": metadata })
}

fn item(call: &Call, entry: &Entry) -> Value {
    kinds::to_route(&call.resource, object::decode(&entry.value))
}

/// An object as an item of a typed list.
fn untyped(mut value: Value) -> Value {
    let map = object::child_root(&mut value);
    map.remove("kind");
    map.remove("apiVersion");
    value
}

fn items(call: &Call, entries: &[Arc<Entry>]) -> Vec<Value> {
    entries.iter().map(|e| item(call, e)).collect()
}

/// A response with a list.
pub(crate) fn list(call: &Call, listed: Listed) -> Response<Body> {
    let metadata = read::list_metadata(&listed);
    let whole_json = call.accept.form == Form::Whole && call.accept.encoding == Encoding::Json && !call.accept.pretty;
    if whole_json && call.resource.as_stored() {
        // Items of a typed list do not repeat their kind; those of custom resources do.
        let typed = call.resource.native.is_some();
        let (kind, version) = (call.resource.kind.as_str(), call.resource.api_version());
        let values = listed.entries.iter().map(|e| {
            if !typed {
                let shown = call.resource.shows(e);
                return read::Item::Whole(if shown { e.value.clone() } else { to_json(&kinds::to_route(&call.resource, object::decode(&e.value))) });
            }
            match object::without_kind(&e.value, kind, &version) {
                Some(rest) => read::Item::Rest(rest),
                None => read::Item::Whole(to_json(&untyped(item(call, e)))),
            }
        });
        let all = read::splice(&call.resource.api_version(), &call.resource.list_kind, &metadata, values);
        return body::response(StatusCode::OK, "application/json", body::pieces(all));
    }
    if call.accept.form == Form::Whole && call.accept.encoding == Encoding::Protobuf {
        let items = items(call, &listed.entries);
        if let Ok(bytes) = crate::protobuf::encode_list(&call.resource.api_version(), &call.resource.list_kind, &metadata, &items) {
            return body::response(StatusCode::OK, "application/vnd.kubernetes.protobuf", body::full(bytes));
        }
    }
    let value = list_value(call, metadata, items(call, &listed.entries));
    self::value(StatusCode::OK, &value, call.accept.encoding, call.accept.pretty)
}

/// A list of values that are not in the store as they are shown.
pub(crate) fn value_list(call: &Call, metadata: Value, items: Vec<Value>) -> Response<Body> {
    let value = list_value(call, metadata, items);
    self::value(StatusCode::OK, &value, call.accept.encoding, call.accept.pretty)
}

/// A list in the form that was agreed on.
pub(crate) fn list_value(call: &Call, metadata: Value, items: Vec<Value>) -> Value {
    match call.accept.form {
        Form::Whole | Form::Discovery(_) => {
            let items = if call.resource.native.is_some() { items.into_iter().map(untyped).collect() } else { items };
            json!({ "apiVersion": call.resource.api_version(), "kind": call.resource.list_kind, "metadata": metadata, "items": items })
        }
        Form::Partial(version) => {
            let items: Vec<Value> = items.into_iter().map(|item| partial(version, "PartialObjectMetadata", item)).collect();
            json!({ "apiVersion": version, "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items })
        }
        Form::Table(version) => crate::table::table(call, version, metadata, items, true),
    }
}
