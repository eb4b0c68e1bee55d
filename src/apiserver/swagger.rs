//! The v2 OpenAPI document in protobuf (`openapi.v2.Document` of gnostic), as client-go asks for it.
//! Written in pieces that follow one another: head, paths, middle, definitions.

use serde_json::{Map, Value};

use crate::wire::Writer;

/// What stands before the paths, which have this many bytes.
pub(crate) fn head(paths: usize) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(1, b"2.0");
    out.message(2, |m| {
        m.bytes(1, b"Kubernetes");
        m.bytes(2, b"v1.37.2");
    });
    out.open(8, paths);
    out.finish()
}

/// What stands between the paths and the definitions, which have this many bytes.
pub(crate) fn middle(definitions: usize) -> Vec<u8> {
    let mut out = Writer::default();
    out.open(9, definitions);
    out.finish()
}

/// Some of the paths.
pub(crate) fn paths(paths: &Map<String, Value>) -> Vec<u8> {
    let mut out = Writer::default();
    named(&mut out, 2, paths, path_item);
    out.finish()
}

/// Some of the definitions.
pub(crate) fn definitions(definitions: &Map<String, Value>) -> Vec<u8> {
    let mut out = Writer::default();
    named(&mut out, 1, definitions, schema);
    out.finish()
}

fn text(out: &mut Writer, number: u32, object: &Value, field: &str) {
    if let Some(text) = object.get(field).and_then(Value::as_str) {
        out.bytes(number, text.as_bytes());
    }
}

fn texts(out: &mut Writer, number: u32, object: &Value, field: &str) {
    for text in object.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        out.bytes(number, text.as_bytes());
    }
}

fn flag(out: &mut Writer, number: u32, object: &Value, field: &str) {
    if object.get(field) == Some(&Value::Bool(true)) {
        out.varint(number, 1);
    }
}

fn double(out: &mut Writer, number: u32, object: &Value, field: &str) {
    if let Some(value) = object.get(field).and_then(Value::as_f64) {
        out.double(number, value);
    }
}

fn integer(out: &mut Writer, number: u32, object: &Value, field: &str) {
    if let Some(value) = object.get(field).and_then(Value::as_i64) {
        out.varint(number, value.cast_unsigned());
    }
}

/// Messages with a name and a value, as gnostic writes maps.
fn named(out: &mut Writer, number: u32, map: &Map<String, Value>, value: fn(&mut Writer, &Value)) {
    for (name, item) in map {
        out.message(number, |m| {
            m.bytes(1, name.as_bytes());
            m.message(2, |inner| value(inner, item));
        });
    }
}

/// Any value: gnostic keeps it as YAML text, of which JSON is a part.
fn any(out: &mut Writer, value: &Value) {
    out.bytes(2, value.to_string().as_bytes());
}

fn extensions(out: &mut Writer, number: u32, object: &Value) {
    for (name, value) in object.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        out.message(number, |m| {
            m.bytes(1, name.as_bytes());
            m.message(2, |inner| any(inner, value));
        });
    }
}

fn path_item(out: &mut Writer, item: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")] {
        if let Some(operation) = item.get(method) {
            out.message(number, |m| self::operation(m, operation));
        }
    }
    for parameter in item.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        out.message(9, |m| self::parameter(m, parameter));
    }
    extensions(out, 10, item);
}

fn operation(out: &mut Writer, operation: &Value) {
    texts(out, 1, operation, "tags");
    text(out, 3, operation, "description");
    text(out, 5, operation, "operationId");
    texts(out, 6, operation, "produces");
    texts(out, 7, operation, "consumes");
    for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        out.message(8, |m| self::parameter(m, parameter));
    }
    if let Some(responses) = operation.get("responses").and_then(Value::as_object) {
        out.message(9, |m| named(m, 1, responses, response));
    }
    texts(out, 10, operation, "schemes");
    extensions(out, 13, operation);
}

fn response(out: &mut Writer, response: &Value) {
    out.message(1, |m| {
        text(m, 1, response, "description");
        if let Some(body) = response.get("schema") {
            m.message(2, |item| item.message(1, |s| schema(s, body)));
        }
    });
}

fn reference(out: &mut Writer, number: u32, item: &Value) -> bool {
    let Some(target) = item.get("$ref").and_then(Value::as_str) else { return false };
    out.message(number, |m| m.bytes(1, target.as_bytes()));
    true
}

fn parameter(out: &mut Writer, item: &Value) {
    if reference(out, 2, item) {
        return;
    }
    let place = item.get("in").and_then(Value::as_str).unwrap_or("");
    out.message(1, |m| {
        if place == "body" {
            m.message(1, |b| {
                text(b, 1, item, "description");
                text(b, 2, item, "name");
                text(b, 3, item, "in");
                flag(b, 4, item, "required");
                if let Some(body) = item.get("schema") {
                    b.message(5, |s| schema(s, body));
                }
            });
            return;
        }
        let query = place == "query";
        m.message(2, |n| {
            n.message(if query { 3 } else { 4 }, |p| {
                flag(p, 1, item, "required");
                text(p, 2, item, "in");
                text(p, 3, item, "description");
                text(p, 4, item, "name");
                text(p, if query { 6 } else { 5 }, item, "type");
                flag(p, if query { 20 } else { 19 }, item, "uniqueItems");
            });
        });
    });
}

fn schema(out: &mut Writer, item: &Value) {
    text(out, 1, item, "$ref");
    text(out, 2, item, "format");
    text(out, 3, item, "title");
    text(out, 4, item, "description");
    if let Some(value) = item.get("default") {
        out.message(5, |m| any(m, value));
    }
    double(out, 6, item, "multipleOf");
    double(out, 7, item, "maximum");
    flag(out, 8, item, "exclusiveMaximum");
    double(out, 9, item, "minimum");
    flag(out, 10, item, "exclusiveMinimum");
    integer(out, 11, item, "maxLength");
    integer(out, 12, item, "minLength");
    text(out, 13, item, "pattern");
    integer(out, 14, item, "maxItems");
    integer(out, 15, item, "minItems");
    flag(out, 16, item, "uniqueItems");
    integer(out, 17, item, "maxProperties");
    integer(out, 18, item, "minProperties");
    texts(out, 19, item, "required");
    for value in item.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.message(20, |m| any(m, value));
    }
    match item.get("additionalProperties") {
        Some(Value::Bool(allows)) => out.message(21, |m| m.varint(2, u64::from(*allows))),
        Some(inner) => out.message(21, |m| m.message(1, |s| schema(s, inner))),
        None => {}
    }
    match item.get("type") {
        Some(Value::String(kind)) => out.message(22, |m| m.bytes(1, kind.as_bytes())),
        Some(Value::Array(_)) => out.message(22, |m| texts(m, 1, item, "type")),
        _ => {}
    }
    if let Some(inner) = item.get("items") {
        out.message(23, |m| m.message(1, |s| schema(s, inner)));
    }
    for inner in item.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        out.message(24, |m| schema(m, inner));
    }
    if let Some(properties) = item.get("properties").and_then(Value::as_object) {
        out.message(25, |m| named(m, 1, properties, schema));
    }
    extensions(out, 31, item);
}
