//! Protobuf form of built-in kinds: the envelope of Kubernetes, and messages by a table of field numbers.
//!
//! Values are turned into messages and back directly, without a type for each kind: `data/proto.txt` (written by
//! `data/proto.go` from the tags of Go's types) says which field has which number and form.

use std::collections::HashMap;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::resource::claimed;
use crate::wire::{Reader, WireError, Writer};

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages within messages; deeper is refused.
const MAX_DEPTH: usize = 100;

/// Why an object has no protobuf form or a body is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtobufError {
    /// The kind has no messages.
    #[error("no kind \"{1}\" is registered for version \"{0}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"")]
    Unknown(String, String),
    /// The body has no envelope.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoEnvelope,
    /// The bytes are not a message.
    #[error("read a protobuf message")]
    Wire(#[from] WireError),
    /// A value does not fit its field.
    #[error("write field {0} as protobuf")]
    Field(String),
}

/// Form of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Bytes,
    Bool,
    Number,
    Double,
    Message(usize),
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    /// A message whose field 1 is JSON: RawExtension, FieldsV1, JSON.
    Json,
    /// Schema or list of schemas.
    SchemaOrArray(usize),
    /// Schema or switch.
    SchemaOrBool(usize),
    /// Schema or list of names.
    SchemaOrStrings(usize),
    /// A message whose field 1 is a list of strings.
    Strings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    List,
    Map,
}

#[derive(Debug)]
struct Field {
    /// JSON name; none when the message is inlined.
    name: Option<&'static str>,
    number: u32,
    many: Many,
    form: Form,
}

#[derive(Debug, Default)]
struct Tables {
    kinds: HashMap<(&'static str, &'static str), usize>,
    types: Vec<Vec<Field>>,
}

fn form(code: &'static str) -> Option<Form> {
    let number = || code.get(1..).and_then(|n| n.parse().ok());
    Some(match code.as_bytes().first()? {
        b's' => Form::Text,
        b'y' => Form::Bytes,
        b'b' => Form::Bool,
        b'v' => Form::Number,
        b'd' => Form::Double,
        b'm' => Form::Message(number()?),
        b'Q' => Form::Quantity,
        b'I' => Form::IntOrString,
        b'T' => Form::Time,
        b'U' => Form::MicroTime,
        b'D' => Form::Duration,
        b'R' | b'F' | b'J' => Form::Json,
        b'A' => Form::SchemaOrArray(number()?),
        b'B' => Form::SchemaOrBool(number()?),
        b'S' => Form::SchemaOrStrings(number()?),
        b'L' => Form::Strings,
        _ => return None,
    })
}

fn tables() -> &'static Tables {
    static ALL: OnceLock<Tables> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut tables = Tables::default();
        for line in include_str!("data/proto.txt").lines().filter(|l| !l.starts_with('#')) {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            if let (true, [name, number, code]) = (line.starts_with(' '), words.as_slice()) {
                let (many, code) = match code.as_bytes().first() {
                    Some(b'*') => (Many::List, &code[1..]),
                    Some(b'<') => (Many::Map, &code[1..]),
                    _ => (Many::One, *code),
                };
                if let (Some(form), Ok(number), Some(last)) = (form(code), number.parse(), tables.types.last_mut()) {
                    last.push(Field { name: (*name != "=").then_some(*name), number, many, form });
                }
            } else if let [version, kind, id] = words.as_slice() {
                let version = version.strip_prefix("-/").unwrap_or(version);
                if let Ok(id) = id.parse() {
                    tables.kinds.insert((version, kind), id);
                }
            } else {
                tables.types.push(Vec::new());
            }
        }
        tables
    })
}

fn type_of(api_version: &str, kind: &str) -> Option<usize> {
    let kinds = &tables().kinds;
    // Options and statuses are the same in every group.
    kinds.get(&(api_version, kind)).or_else(|| kinds.get(&("meta.k8s.io/v1", kind))).or_else(|| kinds.get(&("v1", kind)).filter(|_| kind.ends_with("Options"))).copied()
}

/// Reads a body.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let body = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::NoEnvelope)?;
    let (mut version, mut kind, mut raw, mut content) = (String::new(), String::new(), &[][..], String::new());
    let mut reader = Reader::new(body);
    while let Some((number, value)) = reader.field()? {
        match number {
            1 => {
                let mut inner = Reader::new(value.bytes()?);
                while let Some((number, value)) = inner.field()? {
                    match number {
                        1 => version = value.text()?,
                        2 => kind = value.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = value.bytes()?,
            4 => content = value.text()?,
            _ => {}
        }
    }
    if content.starts_with("application/json") {
        return Ok(serde_json::from_slice(raw).unwrap_or_default());
    }
    let id = type_of(&version, &kind).ok_or_else(|| ProtobufError::Unknown(version.clone(), kind.clone()))?;
    let mut object = read_message(id, raw, 0)?;
    object.insert("apiVersion".into(), json!(version));
    object.insert("kind".into(), json!(kind));
    Ok(Value::Object(object))
}

fn read_message(id: usize, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth > MAX_DEPTH {
        return Err(WireError::TooDeep.into());
    }
    let fields = &tables().types[id];
    let mut out = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        let Some(field) = fields.iter().find(|f| f.number == number) else { continue };
        let Some(name) = field.name else {
            if let Form::Message(id) = field.form {
                out.extend(read_message(id, value.bytes()?, depth + 1)?);
            }
            continue;
        };
        match field.many {
            Many::One => {
                out.insert(name.into(), read_value(field.form, &value, depth)?);
            }
            Many::List => {
                let list = out.entry(name).or_insert_with(|| json!([]));
                if let Value::Array(list) = list {
                    match (field.form, value.packed()) {
                        // Numbers may come packed.
                        (Form::Number, Some(packed)) => {
                            let mut inner = Reader::new(packed);
                            while let Some(number) = inner.varint()? {
                                list.push(json!(number.cast_signed()));
                            }
                        }
                        _ => list.push(read_value(field.form, &value, depth)?),
                    }
                }
            }
            Many::Map => {
                let mut entry = Reader::new(value.bytes()?);
                let (mut key, mut item) = (String::new(), None);
                while let Some((number, value)) = entry.field()? {
                    match number {
                        1 => key = value.text()?,
                        2 => item = Some(read_value(field.form, &value, depth)?),
                        _ => {}
                    }
                }
                let item = item.unwrap_or_else(|| empty(field.form));
                if let Value::Object(map) = out.entry(name).or_insert_with(|| json!({})) {
                    map.insert(key, item);
                }
            }
        }
    }
    Ok(out)
}

/// What a map entry without a value holds.
fn empty(form: Form) -> Value {
    match form {
        Form::Text | Form::Bytes | Form::Quantity => json!(""),
        Form::Bool => json!(false),
        Form::Number | Form::Double => json!(0),
        Form::Strings => json!([]),
        _ => json!({}),
    }
}

fn read_value(form: Form, value: &crate::wire::Field<'_>, depth: usize) -> Result<Value, ProtobufError> {
    // The parts of a small message: number to value.
    let parts = || -> Result<Vec<(u32, crate::wire::Field<'_>)>, WireError> {
        let mut out = Vec::new();
        let mut reader = Reader::new(value.bytes()?);
        while let Some(part) = reader.field()? {
            out.push(part);
        }
        Ok(out)
    };
    Ok(match form {
        Form::Text => json!(value.text()?),
        Form::Bytes => json!(STANDARD.encode(value.bytes()?)),
        Form::Bool => json!(value.number()? != 0),
        Form::Number => json!(value.number()?.cast_signed()),
        Form::Double => json!(value.double()?),
        Form::Message(id) => Value::Object(read_message(id, value.bytes()?, depth + 1)?),
        Form::Quantity => parts()?.into_iter().find(|(n, _)| *n == 1).map(|(_, v)| v.text()).transpose()?.map_or_else(|| json!("0"), |t| json!(t)),
        Form::IntOrString => {
            let (mut kind, mut number, mut text) = (0, 0, String::new());
            for (n, part) in parts()? {
                match n {
                    1 => kind = part.number()?,
                    2 => number = part.number()?.cast_signed(),
                    3 => text = part.text()?,
                    _ => {}
                }
            }
            // Numbers are 32 bits wide; negative ones come in ten bytes.
            if kind == 0 { json!(number) } else { json!(text) }
        }
        Form::Time | Form::MicroTime => {
            let (mut seconds, mut nanos) = (0i64, 0i64);
            let all = parts()?;
            for (n, part) in &all {
                match n {
                    1 => seconds = part.number()?.cast_signed(),
                    2 => nanos = part.number()?.cast_signed(),
                    _ => {}
                }
            }
            if all.is_empty() {
                return Ok(Value::Null);
            }
            let at = Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).map_err(|_| WireError::Damaged)?;
            json!(if form == Form::Time { crate::object::instant(at) } else { at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string() })
        }
        Form::Duration => {
            let nanos = parts()?.into_iter().find(|(n, _)| *n == 1).map(|(_, v)| v.number()).transpose()?.unwrap_or(0).cast_signed();
            json!(go_duration(nanos))
        }
        Form::Json => {
            let raw = parts()?.into_iter().find(|(n, _)| *n == 1).map(|(_, v)| v.bytes()).transpose()?.unwrap_or_default();
            serde_json::from_slice(raw).unwrap_or_default()
        }
        Form::SchemaOrArray(id) => {
            let mut list = Vec::new();
            for (n, part) in parts()? {
                let schema = Value::Object(read_message(id, part.bytes()?, depth + 1)?);
                if n == 1 {
                    return Ok(schema);
                }
                list.push(schema);
            }
            Value::Array(list)
        }
        Form::SchemaOrBool(id) => {
            let mut allows = false;
            for (n, part) in parts()? {
                match n {
                    1 => allows = part.number()? != 0,
                    2 => return Ok(Value::Object(read_message(id, part.bytes()?, depth + 1)?)),
                    _ => {}
                }
            }
            json!(allows)
        }
        Form::SchemaOrStrings(id) => {
            let mut names = Vec::new();
            for (n, part) in parts()? {
                match n {
                    1 => return Ok(Value::Object(read_message(id, part.bytes()?, depth + 1)?)),
                    _ => names.push(part.text()?),
                }
            }
            json!(names)
        }
        Form::Strings => {
            let texts: Result<Vec<String>, WireError> = parts()?.into_iter().map(|(_, v)| v.text()).collect();
            json!(texts?)
        }
    })
}

/// A duration as Go prints it.
fn go_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".into();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let trim = |whole: u64, rest: u64, digits: usize| {
        let rest = format!("{rest:0digits$}");
        let rest = rest.trim_end_matches('0');
        if rest.is_empty() { whole.to_string() } else { format!("{whole}.{rest}") }
    };
    if nanos < 1_000 {
        return format!("{sign}{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{sign}{}µs", trim(nanos / 1_000, nanos % 1_000, 3));
    }
    if nanos < 1_000_000_000 {
        return format!("{sign}{}ms", trim(nanos / 1_000_000, nanos % 1_000_000, 6));
    }
    let seconds = nanos / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = trim(seconds % 60, nanos % 1_000_000_000, 9);
    let hours = if hours > 0 { format!("{hours}h") } else { String::new() };
    let minutes = if minutes > 0 || !hours.is_empty() { format!("{minutes}m") } else { String::new() };
    format!("{sign}{hours}{minutes}{rest}s")
}

/// Reads a duration as Go prints it.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..end] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[end..];
    }
    #[expect(clippy::cast_possible_truncation, reason = "durations of Kubernetes are far below the limit; the cast saturates")]
    Some((sign * total).round() as i64)
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    out.bytes(2, raw);
    out.bytes(3, b"");
    out.bytes(4, b"");
    let mut bytes = MAGIC.to_vec();
    bytes.extend(out.finish());
    bytes
}

/// Encodes an object.
pub(crate) fn encode(value: &Value) -> Result<Vec<u8>, ProtobufError> {
    let (version, kind) = claimed(value);
    let unknown = || ProtobufError::Unknown(version.to_owned(), kind.to_owned());
    let id = type_of(version, kind).ok_or_else(unknown)?;
    let empty = Map::new();
    let mut out = Writer::default();
    write_message(&mut out, id, value.as_object().unwrap_or(&empty))?;
    Ok(envelope(version, kind, &out.finish()))
}

/// Encodes a list without putting its items into one value first.
pub(crate) fn encode_list(api_version: &str, kind: &str, metadata: &Value, items: &[Value]) -> Result<Vec<u8>, ProtobufError> {
    let unknown = || ProtobufError::Unknown(api_version.to_owned(), kind.to_owned());
    let id = type_of(api_version, kind).ok_or_else(unknown)?;
    let fields = &tables().types[id];
    let mut out = Writer::default();
    for field in fields {
        match (field.name, field.form) {
            (Some("metadata"), form) => write_value(&mut out, field.number, form, metadata, "metadata")?,
            (Some("items"), Form::Message(id)) => {
                for item in items {
                    let mut inner = Writer::default();
                    write_message(&mut inner, id, item.as_object().unwrap_or(&Map::new()))?;
                    out.bytes(field.number, &inner.finish());
                }
            }
            _ => {}
        }
    }
    Ok(envelope(api_version, kind, &out.finish()))
}

/// Encodes an event of a watch, framed by its length.
pub(crate) fn encode_event(kind: &str, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let object = encode(object)?;
    let mut out = Writer::default();
    out.bytes(1, kind.as_bytes());
    out.message(2, |raw| raw.bytes(1, &object));
    let event = out.finish();
    let length = u32::try_from(event.len()).map_err(|_| ProtobufError::Field("object".into()))?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(event);
    Ok(bytes)
}

fn write_message(out: &mut Writer, id: usize, object: &Map<String, Value>) -> Result<(), ProtobufError> {
    for field in &tables().types[id] {
        let Some(name) = field.name else {
            if let Form::Message(id) = field.form {
                let mut inner = Writer::default();
                write_message(&mut inner, id, object)?;
                let bytes = inner.finish();
                // An inlined pointer that is nil must stay nil: nothing set, nothing written.
                if !bytes.is_empty() {
                    out.bytes(field.number, &bytes);
                }
            }
            continue;
        };
        let Some(value) = object.get(name).filter(|v| !v.is_null()) else { continue };
        match (field.many, value) {
            (Many::One, value) => write_value(out, field.number, field.form, value, name)?,
            (Many::List, Value::Array(list)) => {
                for item in list {
                    write_value(out, field.number, field.form, item, name)?;
                }
            }
            (Many::Map, Value::Object(map)) => {
                for (key, item) in map {
                    let mut entry = Writer::default();
                    entry.bytes(1, key.as_bytes());
                    write_value(&mut entry, 2, field.form, item, name)?;
                    out.bytes(field.number, &entry.finish());
                }
            }
            _ => return Err(ProtobufError::Field(name.into())),
        }
    }
    Ok(())
}

fn write_value(out: &mut Writer, number: u32, form: Form, value: &Value, name: &str) -> Result<(), ProtobufError> {
    let bad = || ProtobufError::Field(name.to_owned());
    let text = || value.as_str().ok_or_else(bad);
    let object = |value: &Value, id: usize| -> Result<Vec<u8>, ProtobufError> {
        let mut inner = Writer::default();
        write_message(&mut inner, id, value.as_object().unwrap_or(&Map::new()))?;
        Ok(inner.finish())
    };
    match form {
        Form::Text => out.bytes(number, text()?.as_bytes()),
        Form::Bytes => out.bytes(number, &STANDARD.decode(text()?).map_err(|_| bad())?),
        Form::Bool => out.varint(number, u64::from(value.as_bool().ok_or_else(bad)?)),
        Form::Number => {
            let n = value.as_i64().map(i64::cast_unsigned).or_else(|| value.as_u64()).ok_or_else(bad)?;
            out.varint(number, n);
        }
        Form::Double => out.double(number, value.as_f64().ok_or_else(bad)?),
        Form::Message(id) => out.bytes(number, &object(value, id)?),
        Form::Quantity => {
            let shown = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            out.message(number, |q| q.bytes(1, shown.as_bytes()));
        }
        Form::IntOrString => match value {
            Value::String(text) => out.message(number, |m| {
                m.varint(1, 1);
                m.varint(2, 0);
                m.bytes(3, text.as_bytes());
            }),
            other => {
                let n = other.as_i64().ok_or_else(bad)?;
                out.message(number, |m| {
                    m.varint(1, 0);
                    m.varint(2, n.cast_unsigned());
                    m.bytes(3, b"");
                });
            }
        },
        Form::Time | Form::MicroTime => {
            let at: Timestamp = text()?.parse().map_err(|_| bad())?;
            let nanos = if form == Form::MicroTime { at.subsec_nanosecond() } else { 0 };
            out.message(number, |m| {
                m.varint(1, at.as_second().cast_unsigned());
                m.varint(2, i64::from(nanos).cast_unsigned());
            });
        }
        Form::Duration => {
            let nanos = parse_duration(text()?).ok_or_else(bad)?;
            out.message(number, |m| m.varint(1, nanos.cast_unsigned()));
        }
        Form::Json => {
            let raw = serde_json::to_vec(value).unwrap_or_default();
            out.message(number, |m| m.bytes(1, &raw));
        }
        Form::SchemaOrArray(id) => {
            let mut inner = Writer::default();
            match value {
                Value::Array(list) => {
                    for item in list {
                        inner.bytes(2, &object(item, id)?);
                    }
                }
                one => inner.bytes(1, &object(one, id)?),
            }
            out.bytes(number, &inner.finish());
        }
        Form::SchemaOrBool(id) => {
            let mut inner = Writer::default();
            match value {
                Value::Bool(allows) => inner.varint(1, u64::from(*allows)),
                schema => {
                    inner.varint(1, 1);
                    inner.bytes(2, &object(schema, id)?);
                }
            }
            out.bytes(number, &inner.finish());
        }
        Form::SchemaOrStrings(id) => {
            let mut inner = Writer::default();
            match value {
                Value::Array(list) => list.iter().filter_map(Value::as_str).for_each(|s| inner.bytes(2, s.as_bytes())),
                schema => inner.bytes(1, &object(schema, id)?),
            }
            out.bytes(number, &inner.finish());
        }
        Form::Strings => {
            let list = value.as_array().ok_or_else(bad)?;
            out.message(number, |m| list.iter().filter_map(Value::as_str).for_each(|s| m.bytes(1, s.as_bytes())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn objects_come_back_as_they_went() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"a": "b"}, "creationTimestamp": "2026-01-02T03:04:05Z",
                "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}, "data": {"k": "AAEC"}, "type": "Opaque"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "generation": 2},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                    "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
                        "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}],
                        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]}}}}),
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-02T03:04:05.000123Z"}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"},
                "spec": {"group": "x.io", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object",
                    "additionalProperties": {"type": "string"}, "x-kubernetes-preserve-unknown-fields": true, "minimum": 0.5, "default": {"a": [1]}}}}]}}),
            json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404, "details": {"name": "x", "causes": [{"field": "f"}]}}),
            json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"}, "spec": {"extra": {"k": ["a", "b"]}, "request": "AAEC"}}),
        ] {
            let bytes = encode(&object).unwrap();
            assert_eq!(decode(&bytes).unwrap(), object);
            for cut in 5..bytes.len() {
                // Damaged bodies are refused or read short, never a panic.
                let _ = decode(&bytes[..cut]);
            }
        }
        assert!(decode(b"{}").is_err());
    }

    #[test]
    fn durations_are_go_durations() {
        for text in ["0s", "1h0m0s", "1.5s", "100ms", "2µs", "-1m30s"] {
            assert_eq!(go_duration(parse_duration(text).unwrap()), text);
        }
    }
}
