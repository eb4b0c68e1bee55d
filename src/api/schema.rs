//! From schemars' schemas to what a CRD may hold: structural, without references, `nullable` and accidental defaults.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

/// Marks a property as required; taken out by [`structural`].
const REQUIRED: &str = "x-required";
/// The API default of a property; becomes `default`.
const DEFAULT: &str = "x-default";

/// Schema of a field that holds any Kubernetes object or part of one.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Structural schema of a type.
pub(crate) fn structural<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Makes a schema structural, in place; says whether its owner must require it.
fn tidy(schema: &mut Value) -> bool {
    if schema == &Value::Bool(true) {
        *schema = json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let Some(fields) = schema.as_object_mut() else { return false };
    for key in ["title", "$schema", "definitions", "$defs", "default", "examples"] {
        fields.remove(key);
    }
    drop_null(fields);
    flatten_enum(fields);
    merge_all_of(fields);
    let required = fields.remove(REQUIRED) == Some(Value::Bool(true));
    if let Some(value) = fields.remove(DEFAULT) {
        fields.insert("default".to_owned(), value);
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = unwrap_lines(text);
    }
    match fields.get("format").and_then(Value::as_str) {
        Some("uint64" | "uint" | "int") => _ = fields.insert("format".to_owned(), json!("int64")),
        Some("uint8" | "uint16" | "uint32") => _ = fields.insert("format".to_owned(), json!("int32")),
        _ => {}
    }
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        fields.remove("type");
        fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    let mut wanted: Vec<Value> = fields.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if tidy(property) && !wanted.iter().any(|have| have.as_str() == Some(name)) {
                wanted.push(json!(name));
            }
        }
    }
    if wanted.is_empty() {
        fields.remove("required");
    } else {
        wanted.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        fields.insert("required".to_owned(), Value::Array(wanted));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key).filter(|inner| inner.is_object()) {
            tidy(inner);
        }
    }
    required
}

/// `type: [T, null]` and `anyOf: [T, null]` become T: an absent field is left out, never null.
fn drop_null(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = fields.get(key) else { continue };
        let rest: Vec<&Value> = branches.iter().filter(|branch| branch.get("type") != Some(&json!("null"))).collect();
        if let [Value::Object(only)] = rest.as_slice() {
            let only = only.clone();
            fields.remove(key);
            adopt(fields, only);
        }
    }
}

/// A `oneOf` of constants, each with its own description, becomes one `enum`.
fn flatten_enum(fields: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = fields.get("oneOf") else { return };
    let mut values = Vec::new();
    for branch in branches {
        match (branch.get("const"), branch.get("enum").and_then(Value::as_array)) {
            (Some(value), _) => values.push(value.clone()),
            (None, Some(list)) => values.extend(list.iter().cloned()),
            (None, None) => return,
        }
    }
    fields.remove("oneOf");
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), Value::Array(values));
}

fn merge_all_of(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(parts)) = fields.remove("allOf") {
        for part in parts {
            if let Value::Object(part) = part {
                adopt(fields, part);
            }
        }
    }
}

/// Takes over the members of a part, without replacing what is said closer to the field.
fn adopt(fields: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        fields.entry(key).or_insert(value);
    }
}

/// Joins the lines of a doc comment; empty lines stay as paragraph ends.
fn unwrap_lines(text: &str) -> String {
    let paragraphs: Vec<String> =
        text.split("\n\n").map(|part| part.lines().map(str::trim).collect::<Vec<_>>().join(" ")).collect();
    paragraphs.join("\n\n")
}

/// A schema for editors out of a structural one: unknown fields are faults, embedded objects are free.
pub(crate) fn strict(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let free = fields.remove("x-kubernetes-preserve-unknown-fields") == Some(Value::Bool(true));
    fields.retain(|key, _| !key.starts_with("x-kubernetes-"));
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(strict);
        if !free && !fields.contains_key("additionalProperties") {
            fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            strict(inner);
        }
    }
}
