//! Reading and writing fields of objects that are kept as JSON values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{json, Map, Value};

/// The value at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field)).filter(|value| !value.is_null())
}

/// The text at a path, empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The number at a path.
pub(crate) fn int(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// Whether the value at a path is true.
pub(crate) fn flag(object: &Value, path: &[&str]) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a path.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts of a map at a path.
pub(crate) fn texts(object: &Value, path: &[&str]) -> BTreeMap<String, String> {
    at(object, path)
        .and_then(Value::as_object)
        .map(|map| map.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
        .unwrap_or_default()
}

/// Name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// Namespace of an object.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// Uid of an object.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// Whether an object is being deleted.
pub(crate) fn terminating(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// The instant at a path.
pub(crate) fn time(object: &Value, path: &[&str]) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

/// An instant as objects carry it: whole seconds.
pub(crate) fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The managing owner's kind, name and uid.
pub(crate) fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    list(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| flag(owner, &["controller"]))
        .map(|owner| (text(owner, &["kind"]), text(owner, &["name"]), text(owner, &["uid"])))
}

/// A reference that makes `owner` the managing owner.
pub(crate) fn owned_by(kind: &apiserver::controllers::Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version, "kind": kind.kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Leaves out fields that hold nothing or zero, as Go's encoder does for optional ones.
pub(crate) fn compact(fields: Vec<(&str, Value)>) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) => false,
    };
    Value::Object(fields.into_iter().filter(|(_, value)| !empty(value)).map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

/// A condition by its type.
pub(crate) fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| text(condition, &["type"]) == kind)
}

/// A number or a percentage of `total`; nothing when it is neither.
pub(crate) fn share(value: Option<&Value>, total: i64, up: bool) -> Option<i64> {
    match value {
        None => Some(0),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(total)?;
            Some(if up { product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0) } else { product.div_euclid(100) })
        }
        Some(_) => None,
    }
}

/// A label selector of an object, in the form that matches.
pub(crate) struct Labels(api::selector::Selector);

impl Labels {
    /// Reads a selector; nothing when it is invalid or selects everything (a workload must not claim all pods).
    pub(crate) fn read(selector: Option<&Value>) -> Option<Self> {
        let selector = serde_json::from_value(selector?.clone()).ok()?;
        let selector = api::selector::Selector::from_label_selector(&selector).ok()?;
        (!selector.is_everything()).then_some(Self(selector))
    }

    /// Whether the object's labels match.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.matches(&texts(object, &["metadata", "labels"]))
    }
}
