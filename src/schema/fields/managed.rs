//! `metadata.managedFields`: who owns which fields, decoded and encoded.

use super::set::{Set, SetError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How a manager wrote its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Identity of an entry. The version is part of it for updates only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Name of the field manager.
    pub name: String,
    /// How it writes.
    pub operation: Operation,
    /// API version of updates; empty for apply.
    pub api_version: String,
    /// Subresource it wrote through; empty for the object.
    pub subresource: String,
}

impl Manager {
    /// As conflicts show it: `"kubectl" using v1 at 2026-01-01T00:00:00Z`.
    pub(crate) fn shown(&self) -> String {
        let mut s = crate::fault::quote(&self.name);
        if !self.subresource.is_empty() {
            s.push_str(&format!(" with subresource {}", crate::fault::quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            s.push_str(&format!(" using {}", self.api_version));
        }
        s
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    pub(crate) api_version: String,
    pub(crate) set: Set,
    pub(crate) time: Option<String>,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managed {
    pub(crate) entries: BTreeMap<Manager, Owned>,
}

/// Why managed fields cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    /// The operation is unknown.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No API version.
    #[error("apiVersion must not be empty")]
    Version,
    /// No or an unknown fields type.
    #[error("missing fieldsType in managed fields entry {0}")]
    FieldsType(usize),
    /// The field set is malformed.
    #[error("error decoding set")]
    Set(#[source] SetError),
}

/// Latest number of entries of updates; older ones are merged.
const MAX_UPDATERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

impl Managed {
    /// Reads `metadata.managedFields`.
    pub fn decode(list: Option<&Value>) -> Result<Self, ManagedError> {
        let mut out = Self::default();
        for (i, e) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let text = |k: &str| e.get(k).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedError::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagedError::Version);
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(ManagedError::FieldsType(i));
            }
            let set = Set::decode(e.get("fieldsV1").unwrap_or(&Value::Null)).map_err(ManagedError::Set)?;
            let id = Manager {
                name: text("manager"),
                operation,
                api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
                subresource: text("subresource"),
            };
            let time = e.get("time").and_then(Value::as_str).map(str::to_owned);
            out.entries.insert(id, Owned { api_version, set, time });
        }
        Ok(out)
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The fields of a manager, by name and operation, of all its versions and subresources.
    pub fn fields_of(&self, name: &str, operation: Operation) -> Set {
        let mut out = Set::new();
        for (_, o) in self.entries.iter().filter(|(m, _)| m.name == name && m.operation == operation) {
            out.extend(&o.set);
        }
        out
    }

    /// The list for `metadata.managedFields`; appliers first, then by time and name.
    pub fn encode(&self) -> Value {
        let mut list: Vec<(&Manager, &Owned)> = self.entries.iter().collect();
        list.sort_by(|(a, x), (b, y)| {
            (a.operation, &x.time, &a.name, &x.api_version, &a.subresource).cmp(&(b.operation, &y.time, &b.name, &y.api_version, &b.subresource))
        });
        let entry = |(m, o): (&Manager, &Owned)| {
            let mut e = Map::new();
            if !m.name.is_empty() {
                e.insert("manager".into(), json!(m.name));
            }
            e.insert("operation".into(), json!(m.operation.as_str()));
            e.insert("apiVersion".into(), json!(o.api_version));
            if let Some(t) = &o.time {
                e.insert("time".into(), json!(t));
            }
            e.insert("fieldsType".into(), json!("FieldsV1"));
            e.insert("fieldsV1".into(), o.set.encode());
            if !m.subresource.is_empty() {
                e.insert("subresource".into(), json!(m.subresource));
            }
            Value::Object(e)
        };
        Value::Array(list.into_iter().map(entry).collect())
    }

    /// Writes the entries to an object.
    pub(crate) fn store(&self, object: &mut Value) {
        let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        if self.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".into(), self.encode());
        }
    }

    /// Merges the oldest updates into one entry per version while there are more than ten.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Manager> = self.entries.keys().filter(|m| m.operation == Operation::Update).cloned().collect();
        let mut left = updaters.len();
        if left <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| {
            let time = |m: &Manager| self.entries.get(m).and_then(|o| o.time.clone());
            (time(a), a).cmp(&(time(b), b))
        });
        let mut first: BTreeMap<String, Manager> = BTreeMap::new();
        for m in updaters {
            if left <= MAX_UPDATERS {
                break;
            }
            let Some(owned) = self.entries.get(&m).cloned() else { continue };
            let version = owned.api_version.clone();
            let Some(f) = first.get(&version).cloned() else {
                first.insert(version, m);
                continue;
            };
            let bucket = Manager { name: ANCIENT.to_owned(), operation: Operation::Update, api_version: version, subresource: String::new() };
            if !self.entries.contains_key(&bucket) {
                if let Some(o) = self.entries.remove(&f) {
                    self.entries.insert(bucket.clone(), o);
                }
            }
            if m == bucket {
                continue;
            }
            self.entries.remove(&m);
            if let Some(b) = self.entries.get_mut(&bucket) {
                b.set.extend(&owned.set);
                b.time = owned.time;
            }
            left -= 1;
        }
    }
}
