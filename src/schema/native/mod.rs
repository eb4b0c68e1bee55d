//! Built-in kinds: defaulting, preparation and validation as a real server does them.

mod default;
pub(crate) mod meta;
mod prepare;
pub(crate) mod validate;
mod warn;

pub(crate) use default::default;
pub(crate) use prepare::{prepare_create, prepare_update, qos_class, reset_fields};
pub(crate) use validate::{validate_create, validate_update};
pub(crate) use warn::warnings;

use serde_json::{Map, Value};

/// The text at a JSON pointer, empty when there is none.
pub(crate) fn text<'a>(v: &'a Value, pointer: &str) -> &'a str {
    v.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer, empty when there is none.
pub(crate) fn list<'a>(v: &'a Value, pointer: &str) -> &'a [Value] {
    v.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The map at a JSON pointer, empty when there is none.
pub(crate) fn map<'a>(v: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    static EMPTY: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();
    v.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| EMPTY.get_or_init(Map::new))
}

/// A field's value, null counting as absent.
pub(crate) fn get<'a>(v: &'a Value, field: &str) -> Option<&'a Value> {
    v.get(field).filter(|x| !x.is_null())
}

#[cfg(test)]
mod tests;
