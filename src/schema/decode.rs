//! Reads an object of a built-in kind as a server does: types checked, unknown fields found, empty values written or dropped
//! as Go's encoder would, quantities and instants in their canonical form.

use crate::quantity::Quantity;
use crate::shape::{Node, Presence, Ref, Scalar};
use crate::table;
use base64::Engine;
use serde_json::{Map, Value};

/// Why a value cannot be read as its kind; the words are those of a real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The JSON type does not fit the field.
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Type {
        /// What stands there: `string`, `number 1.5`, …
        found: String,
        /// `struct field PodSpec.spec.containers` or `value`.
        place: String,
        /// Name of the wanted type.
        wanted: String,
    },
    /// The text does not read as the field's type.
    #[error("{0}")]
    Text(String),
}

/// A decoded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object as the server writes it.
    pub object: Value,
    /// Strict decoding faults: `unknown field "spec.foo"`.
    pub unknown: Vec<String>,
}

/// The schema of a definition, and how the types begin that take it or something else.
const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";
const SCHEMA_OR: &str = "apiextensions.v1.JSONSchemaPropsOr";
/// At most this many strict faults are reported.
const MAX_UNKNOWN: usize = 100;

/// Decodes an object against its shape.
pub fn decode(object: Value, shape: Node<'_>) -> Result<Decoded, DecodeError> {
    let mut d = Decoder { unknown: Vec::new(), path: Vec::new(), owner: "" };
    let object = d.value(object, shape)?.unwrap_or(Value::Null);
    Ok(Decoded { object, unknown: d.unknown })
}

/// The object as written when nothing of it is set; what a struct without value becomes.
pub(crate) fn zero(node: Node<'_>) -> Value {
    match node.scalar() {
        Some(Scalar::String | Scalar::Bytes) => Value::String(String::new()),
        Some(Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString) => Value::from(0),
        Some(Scalar::Boolean) => Value::Bool(false),
        Some(Scalar::Quantity) => Value::String("0".to_owned()),
        Some(Scalar::Time | Scalar::MicroTime | Scalar::Untyped) => Value::Null,
        None => match node.map() {
            Some(m) if !m.fields.is_empty() => {
                let mut out = Map::new();
                for (name, f) in &m.fields {
                    match f.presence {
                        Presence::Always => {
                            out.insert(name.to_string(), zero(node.at(f.ty)));
                        }
                        Presence::NullPointer => {
                            out.insert(name.to_string(), Value::Null);
                        }
                        _ => {}
                    }
                }
                Value::Object(out)
            }
            // A struct without fields.
            Some(_) if !node.atom().name.is_empty() => Value::Object(Map::new()),
            _ => Value::Null,
        },
    }
}

enum Step {
    Field(String),
    /// A key of a map.
    Key(String),
    Index(usize),
}

struct Decoder<'a> {
    unknown: Vec<String>,
    path: Vec<Step>,
    owner: &'a str,
}

impl<'a> Decoder<'a> {
    fn dotted(&self, last: Option<&str>) -> String {
        let mut s = String::new();
        for step in &self.path {
            match step {
                Step::Field(f) | Step::Key(f) => {
                    if !s.is_empty() {
                        s.push('.');
                    }
                    s.push_str(f);
                }
                Step::Index(i) => s.push_str(&format!("[{i}]")),
            }
        }
        if let Some(l) = last {
            if !s.is_empty() {
                s.push('.');
            }
            s.push_str(l);
        }
        s
    }

    fn wrong(&self, found: &Value, node: Node<'_>) -> DecodeError {
        let found = match found {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(n) if node.scalar().is_some_and(|s| matches!(s, Scalar::Int32 | Scalar::Int64)) => format!("number {n}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        // Go names fields only; list positions and map keys do not appear.
        let fields: Vec<&str> = self.path.iter().filter_map(|s| if let Step::Field(f) = s { Some(f.as_str()) } else { None }).collect();
        let place = if fields.is_empty() { "value".to_owned() } else { format!("struct field {}.{}", short(self.owner), fields.join(".")) };
        DecodeError::Type { found, place, wanted: go_type(node) }
    }

    /// `None` = the value is null, that is, unset.
    fn value(&mut self, v: Value, node: Node<'a>) -> Result<Option<Value>, DecodeError> {
        if v.is_null() {
            return Ok(None);
        }
        if node.atom().name.starts_with(SCHEMA_OR) {
            return self.schema_or(v, node).map(Some);
        }
        if let Some(s) = node.scalar() {
            return self.scalar(v, node, s).map(Some);
        }
        match v {
            Value::Array(items) => {
                let Some(item) = node.item() else { return Err(self.wrong(&Value::Array(Vec::new()), node)) };
                let mut out = Vec::with_capacity(items.len());
                for (i, x) in items.into_iter().enumerate() {
                    self.path.push(Step::Index(i));
                    let x = self.value(x, item)?;
                    self.path.pop();
                    out.push(x.unwrap_or_else(|| zero(item)));
                }
                Ok(Some(Value::Array(out)))
            }
            Value::Object(fields) => {
                let Some(m) = node.map() else { return Err(self.wrong(&Value::Object(Map::new()), node)) };
                if m.fields.is_empty() {
                    self.free(fields, node).map(Some)
                } else {
                    self.structure(fields, node).map(Some)
                }
            }
            other => Err(self.wrong(&other, node)),
        }
    }

    /// A schema of a definition, or something else in its place. Go reads these by a decoder of their own, which knows nothing
    /// of unknown fields.
    fn schema_or(&mut self, v: Value, node: Node<'a>) -> Result<Value, DecodeError> {
        let Some(schema) = table::table().names.get(SCHEMA).map(|id| node.at(Ref::to(*id))) else { return Ok(v) };
        let found = self.unknown.len();
        let out = match v {
            Value::Object(fields) => self.structure(fields, schema)?,
            Value::Array(items) => {
                let one = |x: Value| match x {
                    Value::Object(fields) => self.structure(fields, schema),
                    other => Ok(other),
                };
                Value::Array(items.into_iter().map(one).collect::<Result<_, _>>()?)
            }
            other => other,
        };
        self.unknown.truncate(found);
        Ok(out)
    }

    fn free(&mut self, fields: Map<String, Value>, node: Node<'a>) -> Result<Value, DecodeError> {
        let element = node.map().and_then(|m| m.element).map(|r| node.at(r));
        let Some(element) = element else {
            for name in fields.keys() {
                self.report(name);
            }
            return Ok(Value::Object(Map::new()));
        };
        // A struct without fields knows no field; a named free type (FieldsV1) takes all.
        let empty_struct = !node.atom().name.is_empty() && element.scalar() == Some(Scalar::Untyped) && &*node.atom().name != "meta.v1.FieldsV1";
        let mut out = Map::new();
        for (name, x) in fields {
            if empty_struct {
                self.report(&name);
                continue;
            }
            self.path.push(Step::Key(name));
            let x = self.value(x, element)?;
            if let Some(Step::Key(name)) = self.path.pop() {
                out.insert(name, x.unwrap_or_else(|| zero(element)));
            }
        }
        Ok(Value::Object(out))
    }

    fn structure(&mut self, mut fields: Map<String, Value>, node: Node<'a>) -> Result<Value, DecodeError> {
        let Some(m) = node.map() else { return Ok(Value::Null) };
        let outer = std::mem::replace(&mut self.owner, &node.atom().name);
        let mut out = Map::new();
        for (name, f) in &m.fields {
            let given = match fields.remove(&**name) {
                None | Some(Value::Null) => None,
                Some(x) => {
                    self.path.push(Step::Field(name.to_string()));
                    let x = self.value(x, node.at(f.ty))?;
                    self.path.pop();
                    x
                }
            };
            let written = match f.presence {
                Presence::Pointer => given,
                Presence::NullPointer => Some(given.unwrap_or(Value::Null)),
                Presence::DropEmpty => given.filter(|v| !is_empty(v)),
                Presence::DropZero => given.filter(|v| !v.is_null() && *v != zero(node.at(f.ty))),
                // The store's encoding knows no empty list or map, so that a server answers null for one that was sent.
                Presence::Always => Some(given.filter(|v| !is_hollow(v)).unwrap_or_else(|| zero(node.at(f.ty)))),
            };
            if let Some(w) = written {
                out.insert(name.to_string(), w);
            }
        }
        for name in fields.keys() {
            self.report(name);
        }
        self.owner = outer;
        Ok(Value::Object(out))
    }

    fn report(&mut self, name: &str) {
        if self.unknown.len() < MAX_UNKNOWN {
            let place = self.dotted(Some(name));
            self.unknown.push(format!("unknown field \"{place}\""));
        }
    }

    fn scalar(&self, v: Value, node: Node<'_>, s: Scalar) -> Result<Value, DecodeError> {
        match (s, v) {
            (Scalar::Untyped, v) => Ok(v),
            (Scalar::String, v @ Value::String(_)) | (Scalar::Boolean, v @ Value::Bool(_)) | (Scalar::Number, v @ Value::Number(_)) => Ok(v),
            (Scalar::Int32, Value::Number(n)) if n.as_i64().is_some_and(|i| i32::try_from(i).is_ok()) => Ok(Value::Number(n)),
            (Scalar::Int64, Value::Number(n)) if n.as_i64().is_some() => Ok(Value::Number(n)),
            (Scalar::IntOrString, v @ Value::String(_)) => Ok(v),
            (Scalar::IntOrString, Value::Number(n)) if n.as_i64().is_some_and(|i| i32::try_from(i).is_ok()) => Ok(Value::Number(n)),
            (Scalar::Bytes, Value::String(t)) => {
                // Go's decoder skips line breaks.
                let clean: String = t.chars().filter(|c| *c != '\n' && *c != '\r').collect();
                match base64::engine::general_purpose::STANDARD.decode(clean.as_bytes()) {
                    Ok(raw) => Ok(Value::String(base64::engine::general_purpose::STANDARD.encode(raw))),
                    Err(e) => Err(DecodeError::Text(format!("illegal base64 data at input byte {}", bad_byte(&e, clean.len())))),
                }
            }
            (Scalar::Quantity, Value::String(t)) => canonical_quantity(&t),
            (Scalar::Quantity, Value::Number(n)) => canonical_quantity(&n.to_string()),
            (Scalar::Time, Value::String(t)) => instant(&t, 0).map(Value::String),
            (Scalar::MicroTime, Value::String(t)) => instant(&t, 6).map(Value::String),
            (_, v) => Err(self.wrong(&v, node)),
        }
    }
}

fn canonical_quantity(t: &str) -> Result<Value, DecodeError> {
    Quantity::parse(t).map(|q| Value::String(q.canonical())).map_err(|e| DecodeError::Text(e.to_string()))
}

fn bad_byte(e: &base64::DecodeError, len: usize) -> usize {
    match e {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) => len - len % 4,
        base64::DecodeError::InvalidPadding => len,
    }
}

/// An RFC 3339 instant in UTC with `digits` fractional digits.
fn instant(t: &str, digits: u8) -> Result<String, DecodeError> {
    let layout = if digits == 0 { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
    let bad = |rest: &str, wanted: &str| {
        let q = crate::fault::quote;
        DecodeError::Text(format!("parsing time {} as {}: cannot parse {} as {}", q(t), q(layout), q(rest), q(wanted)))
    };
    let ts: jiff::Timestamp = t.parse().map_err(|_| bad(t, "2006"))?;
    if digits != 0 {
        // Microseconds are written with all six digits or not at all understood.
        let rest = t.get(19..).unwrap_or_default();
        let fraction = rest.strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
        if fraction != 6 {
            return Err(bad(rest, ".000000"));
        }
    }
    if digits == 0 {
        return Ok(ts.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    Ok(format!("{}.{:06}Z", ts.strftime("%Y-%m-%dT%H:%M:%S"), ts.subsec_nanosecond() / 1000))
}

fn is_hollow(v: &Value) -> bool {
    v.as_array().is_some_and(Vec::is_empty) || v.as_object().is_some_and(Map::is_empty)
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// `PodSpec` of `core.v1.PodSpec`.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn go_type(node: Node<'_>) -> String {
    match node.scalar() {
        Some(Scalar::String) => return "string".to_owned(),
        Some(Scalar::Bytes) => return "[]uint8".to_owned(),
        Some(Scalar::Int32) => return "int32".to_owned(),
        Some(Scalar::Int64) => return "int64".to_owned(),
        Some(Scalar::Number) => return "float64".to_owned(),
        Some(Scalar::Boolean) => return "bool".to_owned(),
        Some(Scalar::Quantity) => return "resource.Quantity".to_owned(),
        Some(Scalar::IntOrString) => return "intstr.IntOrString".to_owned(),
        Some(Scalar::Time) => return "v1.Time".to_owned(),
        Some(Scalar::MicroTime) => return "v1.MicroTime".to_owned(),
        Some(Scalar::Untyped) => return "interface {}".to_owned(),
        None => {}
    }
    if let Some(item) = node.item() {
        return format!("[]{}", go_type(item));
    }
    let name = &node.atom().name;
    if !name.is_empty() {
        let mut parts = name.rsplit('.');
        let (kind, version) = (parts.next().unwrap_or(name), parts.next().unwrap_or("v1"));
        return format!("{version}.{kind}");
    }
    match node.map().and_then(|m| m.element) {
        Some(e) => format!("map[string]{}", go_type(node.at(e))),
        None => "map[string]interface {}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::native;
    use serde_json::json;

    fn read(group: &str, kind: &str, v: Value) -> Result<Decoded, DecodeError> {
        decode(v, native(group, "v1", kind).expect("kind").root())
    }

    #[test]
    fn empty_values_as_go_writes_them() {
        let d = read("apps", "Deployment", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {}},
            "spec": {"paused": false, "replicas": 0, "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}]}}}}))
        .expect("reads");
        assert_eq!(
            d.object,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]}}},
                "status": {}})
        );
    }

    #[test]
    fn unknown_fields_and_wrong_types() {
        let d = read("apps", "Deployment", json!({"spec": {"foo": 1, "template": {"spec": {"containers": [{"name": "c", "bar": {}}]}}}})).expect("reads");
        assert_eq!(d.unknown, [r#"unknown field "spec.template.spec.containers[0].bar""#, r#"unknown field "spec.foo""#]);
        let e = read("apps", "Deployment", json!({"spec": {"replicas": "3"}})).expect_err("wrong type");
        assert_eq!(e.to_string(), "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32");
        let e = read("", "Secret", json!({"data": {"a": "%%"}})).expect_err("wrong text");
        assert_eq!(e.to_string(), "illegal base64 data at input byte 0");
    }
}
