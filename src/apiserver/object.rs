//! Objects as values: reading and writing metadata, and the encoding that leaves room for the revision.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use store::Entry;

/// The text at a path, empty when there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The value at a path.
#[must_use]
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field))
}

/// Name of an object.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// Namespace of an object.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// Uid of an object.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// Metadata for writing; made when absent or of the wrong type.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(object, "metadata")
}

/// The object's own map, for writing.
pub fn child_root(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    match object {
        Value::Object(map) => map,
        _ => unreachable!("the value was just made a map"),
    }
}

/// A field that is a map, for writing; made when absent or of the wrong type.
pub fn child<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let place = child_root(object).entry(field.to_owned()).or_insert_with(|| json!({}));
    if !place.is_object() {
        *place = json!({});
    }
    match place {
        Value::Object(map) => map,
        _ => unreachable!("the place was just made a map"),
    }
}

/// Finalizers of an object.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    at(object, &["metadata", "finalizers"]).and_then(Value::as_array).map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Whether removal was asked for.
#[must_use]
pub fn deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some_and(|t| !t.is_null())
}

/// An instant as Kubernetes writes it: whole seconds, UTC.
#[must_use]
pub fn instant(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The key of an object within its table.
#[must_use]
pub fn key(namespaced: bool, namespace: &str, name: &str) -> String {
    if namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
}

/// The fields that come first in an encoded object.
const HEAD: [&str; 2] = ["kind", "apiVersion"];

/// What follows the kind and version in the encoding of an object of this kind; nothing when it was encoded otherwise. An
/// opening brace and this are the object as an item of a list.
#[must_use]
pub fn without_kind(bytes: &Bytes, kind: &str, api_version: &str) -> Option<Bytes> {
    let rest = bytes.strip_prefix(b"{\"kind\":\"")?.strip_prefix(kind.as_bytes())?;
    let rest = rest.strip_prefix(b"\",\"apiVersion\":\"")?.strip_prefix(api_version.as_bytes())?.strip_prefix(b"\",")?;
    Some(bytes.slice_ref(rest))
}

/// An object encoded but for its revision, which is known only when the write is accepted.
#[derive(Debug)]
pub struct Encoded {
    bytes: Vec<u8>,
    gap: usize,
}

impl Encoded {
    /// Encodes; a revision in the object is left out.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        let mut out = Self { bytes: Vec::with_capacity(512), gap: 0 };
        let empty = Map::new();
        let map = object.as_object().unwrap_or(&empty);
        out.bytes.push(b'{');
        let mut first = true;
        let mut metadata_seen = false;
        // As Kubernetes orders them; a list of built-in objects leaves them out (see `without_kind`).
        for key in HEAD {
            if let Some(value) = map.get(key) {
                out.name(&mut first, key);
                out.value(value);
            }
        }
        for (key, value) in map.iter().filter(|(key, _)| !HEAD.contains(&key.as_str())) {
            if key == "metadata" {
                metadata_seen = true;
                out.name(&mut first, key);
                out.metadata(value.as_object().unwrap_or(&empty));
            } else {
                out.name(&mut first, key);
                out.value(value);
            }
        }
        if !metadata_seen {
            out.name(&mut first, "metadata");
            out.metadata(&empty);
        }
        out.bytes.push(b'}');
        out
    }

    fn metadata(&mut self, map: &Map<String, Value>) {
        self.bytes.push(b'{');
        let mut first = true;
        let mut done = false;
        for (key, value) in map {
            if key == "resourceVersion" {
                continue;
            }
            if !done && key.as_str() > "resourceVersion" {
                done = true;
                self.revision(&mut first);
            }
            self.name(&mut first, key);
            self.value(value);
        }
        if !done {
            self.revision(&mut first);
        }
        self.bytes.push(b'}');
    }

    fn revision(&mut self, first: &mut bool) {
        self.name(first, "resourceVersion");
        self.bytes.push(b'"');
        self.gap = self.bytes.len();
        self.bytes.push(b'"');
    }

    fn name(&mut self, first: &mut bool, key: &str) {
        if !std::mem::take(first) {
            self.bytes.push(b',');
        }
        self.value(&key);
        self.bytes.push(b':');
    }

    fn value(&mut self, value: &impl serde::Serialize) {
        // Writing values into memory cannot fail.
        let _ = serde_json::to_writer(&mut self.bytes, value);
    }

    /// The bytes with their revision.
    #[must_use]
    pub fn at(&self, revision: u64) -> Bytes {
        let number = revision.to_string();
        let mut out = Vec::with_capacity(self.bytes.len() + number.len());
        out.extend_from_slice(&self.bytes[..self.gap]);
        out.extend_from_slice(number.as_bytes());
        out.extend_from_slice(&self.bytes[self.gap..]);
        Bytes::from(out)
    }
}

/// Decodes stored bytes. They were encoded by us, so a failure is damage and gives null.
#[must_use]
pub fn decode(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// The revision in an object's metadata.
pub fn revision_of(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

#[derive(Deserialize, Default)]
struct OnlyLabels {
    #[serde(default)]
    metadata: OnlyLabelsMetadata,
}

#[derive(Deserialize, Default)]
struct OnlyLabelsMetadata {
    #[serde(default)]
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
}

/// Labels of a stored object; read from the bytes once, kept with the entry.
pub fn labels(entry: &Entry) -> Option<&BTreeMap<Box<str>, Box<str>>> {
    entry
        .derived(|bytes| serde_json::from_slice::<OnlyLabels>(bytes).unwrap_or_default().metadata.labels.map(Box::new))
        .and_then(|l: &Option<Box<BTreeMap<Box<str>, Box<str>>>>| l.as_deref())
}

/// Whether an entry fits a label selector.
#[must_use]
pub fn labelled(entry: &Entry, selector: &crate::selector::Labels) -> bool {
    if selector.is_empty() {
        return true;
    }
    let labels = labels(entry);
    selector.matches(|key| labels.and_then(|l| l.get(key)).map(|v| &**v))
}

/// The text of a field for field selectors: strings as they are, numbers and switches printed, absent empty.
#[must_use]
pub fn field_text(object: &Value, path: &str) -> String {
    match path.split('.').try_fold(object, |value, field| value.get(field)) {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Bool(b)) => b.to_string(),
        Some(Value::Number(n)) => n.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn the_revision_is_spliced_where_it_belongs() {
        for object in [
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "resourceVersion": "7", "uid": "u"}, "spec": {"metadata": {"resourceVersion": "x"}}}),
            json!({"kind": "X"}),
            json!({"metadata": {}, "z": 1}),
            json!({"metadata": {"a": "resourceVersion\":\""}}),
        ] {
            let mut expected = object.clone();
            metadata(&mut expected).insert("resourceVersion".into(), json!("42"));
            let bytes = Encoded::new(&object).at(42);
            assert_eq!(decode(&bytes), expected);
            // Apart from kind and version, which come first, fields are sorted.
            let (kind, version) = (text(&object, &["kind"]), text(&object, &["apiVersion"]));
            if !kind.is_empty() && !version.is_empty() {
                let map = child_root(&mut expected);
                map.remove("kind");
                map.remove("apiVersion");
                let rest = without_kind(&bytes, kind, version).unwrap();
                assert_eq!([b"{", &*rest].concat(), serde_json::to_vec(&expected).unwrap());
            }
            assert!(without_kind(&bytes, "Other", "v1").is_none());
        }
    }
}
