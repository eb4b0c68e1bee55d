//! Pruning and defaulting of custom objects.

use super::parse::{Additional, Schema, Type};
use crate::decode::decode;
use crate::table;
use serde_json::Value;

/// Drops what the schema does not name and reports the paths. `root` = the value is a whole Kubernetes object.
pub(crate) fn prune(v: &mut Value, s: &Schema, root: bool, path: &mut String, unknown: &mut Vec<String>) {
    walk(v, s, root, path, unknown);
}

/// Fields every embedded object has.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn walk(v: &mut Value, s: &Schema, is_object: bool, path: &mut String, unknown: &mut Vec<String>) {
    match v {
        Value::Array(items) => {
            if s.items.is_none() {
                // Without a schema for elements nothing inside is known.
                if !s.preserve {
                    for (i, x) in items.iter_mut().enumerate() {
                        let len = path.len();
                        path.push_str(&format!("[{i}]"));
                        walk(x, &Schema::default(), false, path, unknown);
                        path.truncate(len);
                    }
                }
                return;
            }
            let Some(of) = s.items.as_deref() else { return };
            for (i, x) in items.iter_mut().enumerate() {
                let len = path.len();
                path.push_str(&format!("[{i}]"));
                walk(x, of, of.embedded, path, unknown);
                path.truncate(len);
            }
        }
        Value::Object(o) => {
            let mut gone = Vec::new();
            for (k, x) in o.iter_mut() {
                let len = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(k);
                let own = is_object && OBJECT_FIELDS.contains(&k.as_str());
                // The metadata of the object itself is read against its type elsewhere.
                if own {
                    if k == "metadata" && len > 0 {
                        metadata(x, path, unknown);
                    }
                } else if let Some(below) = s.properties.get(k) {
                    walk(x, below, below.embedded, path, unknown);
                } else {
                    match &s.additional {
                        Some(Additional::Schema(below)) => walk(x, below, below.embedded, path, unknown),
                        Some(Additional::Allowed(true)) => {}
                        _ if s.preserve => {}
                        _ => {
                            unknown.push(path.clone());
                            gone.push(k.clone());
                        }
                    }
                }
                path.truncate(len);
            }
            for k in gone {
                o.remove(&k);
            }
        }
        _ => {}
    }
}

/// Reads the metadata of an embedded object by its type; what cannot be read is left to validation.
fn metadata(v: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let Some(shape) = table::named("meta.v1.ObjectMeta").filter(|_| v.is_object()) else { return };
    let Ok(mut read) = decode(v.clone(), shape.root()) else { return };
    if let Some(fields) = read.object.as_object_mut() {
        fields.retain(|name, value| name != "creationTimestamp" || !value.is_null());
    }
    unknown.extend(read.unknown.iter().filter_map(|fault| fault.split('"').nth(1)).map(|name| format!("{path}.{name}")));
    *v = read.object;
}

/// Fills in defaults; nulls of fields that are not nullable but have a default count as absent.
pub(crate) fn default(v: &mut Value, s: &Schema) {
    match v {
        Value::Object(o) => {
            for (k, p) in &s.properties {
                let Some(d) = &p.default else { continue };
                let absent = match o.get(k) {
                    None => true,
                    Some(Value::Null) => !p.nullable,
                    Some(_) => false,
                };
                if absent {
                    o.insert(k.clone(), d.clone());
                }
            }
            for (k, x) in o.iter_mut() {
                if let Some(p) = s.properties.get(k) {
                    default(x, p);
                } else if let Some(Additional::Schema(p)) = &s.additional {
                    if x.is_null() && !p.nullable {
                        if let Some(d) = &p.default {
                            *x = d.clone();
                        }
                    }
                    default(x, p);
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = s.items.as_deref() else { return };
            for x in items {
                if x.is_null() && !of.nullable {
                    if let Some(d) = &of.default {
                        *x = d.clone();
                    }
                }
                default(x, of);
            }
        }
        _ => {}
    }
}

/// Whether a type name fits; used where a default is checked against its own schema.
pub(crate) fn fits(v: &Value, ty: Type) -> bool {
    match ty {
        Type::Object => v.is_object(),
        Type::Array => v.is_array(),
        Type::String => v.is_string(),
        Type::Boolean => v.is_boolean(),
        Type::Number => v.is_number(),
        Type::Integer => v.is_i64() || v.is_u64() || v.as_f64().is_some_and(|f| f.fract() == 0.0),
    }
}

