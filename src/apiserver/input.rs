//! Reading request bodies: JSON with doubled fields noticed, YAML, and (for built-in kinds) protobuf.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::accept;
use crate::status::ApiError;

/// A body as a value.
#[derive(Debug, Default)]
pub struct Input {
    /// The value.
    pub value: Value,
    /// Strict decoding faults found so far: `duplicate field "spec.replicas"`.
    pub faults: Vec<String>,
    /// Where doubled fields were found: the paths of all fields in the order of the text.
    pub order: Vec<String>,
    /// The body was protobuf: fields it does not know were dropped without a word, as protobuf does.
    pub binary: bool,
}

/// Reads a body by its content type; an empty content type counts as JSON, as kubectl's older forms rely on it.
pub fn read(content_type: Option<&str>, bytes: &[u8]) -> Result<Input, ApiError> {
    match accept::media(content_type) {
        "" | "application/json" | "text/json" => json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml_or_json(bytes, false),
        "application/vnd.kubernetes.protobuf" => {
            let value = crate::protobuf::decode(bytes).map_err(|e| ApiError::bad_request(e.to_string()))?;
            Ok(Input { value, binary: true, ..Input::default() })
        }
        _ => Err(ApiError::unsupported_media_type(&accept::TYPES)),
    }
}

/// Reads JSON.
pub fn json(bytes: &[u8]) -> Result<Input, ApiError> {
    if bytes.is_empty() {
        return Ok(Input::default());
    }
    let faults = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Seed { path: String::new(), faults: &faults }.deserialize(&mut reader);
    let value = value.and_then(|v| reader.end().map(|()| v)).map_err(|error| ApiError::bad_request(go_words(bytes, &error)))?;
    let faults = faults.into_inner();
    let order = if faults.is_empty() { Vec::new() } else { order(bytes) };
    Ok(Input { value, faults, order, binary: false })
}

/// The paths of all fields in the order of the text; a doubled one is there twice.
fn order(bytes: &[u8]) -> Vec<String> {
    let all = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // It was read before: a fault cannot come.
    let _ = Order { path: String::new(), all: &all }.deserialize(&mut reader);
    all.into_inner()
}

/// Brings strict faults of a typed object into the order in which its reader meets them.
pub fn in_order(faults: &mut [String], order: &[String]) {
    if order.is_empty() {
        return;
    }
    faults.sort_by_key(|fault| {
        let path = fault.split('"').nth(1).unwrap_or("");
        let mut places = order.iter().enumerate().filter(|(_, p)| *p == path).map(|(n, _)| n);
        if fault.starts_with("duplicate") { places.nth(1) } else { places.next() }.unwrap_or(usize::MAX)
    });
}

struct Order<'a> {
    path: String,
    all: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Order<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Order<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        while items.next_element_seed(Order { path: format!("{}[{at}]", self.path), all: self.all })?.is_some() {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() { key } else { format!("{}.{key}", self.path) };
            self.all.borrow_mut().push(path.clone());
            entries.next_value_seed(Order { path, all: self.all })?;
        }
        Ok(())
    }
}

/// Reads YAML as kubectl does; doubled keys are told by their lines, in JSON too.
pub fn yaml(bytes: &[u8]) -> Result<Input, ApiError> {
    yaml_or_json(bytes, true)
}

fn yaml_or_json(bytes: &[u8], lines: bool) -> Result<Input, ApiError> {
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(input) = json(bytes)
        && (input.faults.is_empty() || !lines)
    {
        return Ok(input);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("error converting YAML to JSON: yaml: control characters are not allowed"))?;
    match manifest::parse_lenient(text, &manifest::Limits::OBJECT) {
        Ok((value, twice)) => {
            let lines: Vec<String> = twice.iter().map(|(key, at)| format!("\n  line {}: key {key:?} already set in map", at.line)).collect();
            let faults = if lines.is_empty() { Vec::new() } else { vec![format!("yaml: unmarshal errors:{}", lines.concat())] };
            Ok(Input { value, faults, ..Input::default() })
        }
        Err(fault) => Err(ApiError::bad_request(format!("error parsing YAML: {fault}"))),
    }
}

/// A syntax fault in the words of Go's decoder where they are the same fault.
fn go_words(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let line = bytes.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    match line.get(error.column().saturating_sub(1)) {
        Some(byte) => format!("invalid character '{}' looking for beginning of value", char::from(*byte)),
        None => error.to_string(),
    }
}

struct Seed<'a> {
    path: String,
    faults: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Go reads 1e3 or 5.0 into an integer field: whole numbers become integers.
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
        if value.fract() == 0.0 && value.abs() < 9e15 {
            return Ok((value as i64).into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Seed { path: format!("{}[{}]", self.path, all.len()), faults: self.faults })? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                let fault = format!("duplicate field \"{path}\"");
                let mut faults = self.faults.borrow_mut();
                if !faults.contains(&fault) {
                    faults.push(fault);
                }
            }
            let value = entries.next_value_seed(Seed { path, faults: self.faults })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn doubled_fields_are_noticed_and_the_last_wins() {
        let input = json(br#"{"a":{"b":[{"c":1,"c":2}]},"n":3.0,"a":{"x":1}}"#).unwrap();
        assert_eq!(input.faults, ["duplicate field \"a.b[0].c\"", "duplicate field \"a\""]);
        assert_eq!(input.value, serde_json::json!({"a": {"x": 1}, "n": 3}));
        assert!(json(b"{").is_err());
        let mut faults = vec!["duplicate field \"a\"".to_owned(), "unknown field \"n\"".to_owned()];
        in_order(&mut faults, &input.order);
        assert_eq!(faults, ["unknown field \"n\"", "duplicate field \"a\""]);
        assert_eq!(yaml(b"a: 1\nb: 2\na: 3\n").unwrap().faults, ["yaml: unmarshal errors:\n  line 3: key \"a\" already set in map"]);
        assert_eq!(yaml(b"a: yes\nb: 010\n").unwrap().value, serde_json::json!({"a": true, "b": 8}));
    }
}
