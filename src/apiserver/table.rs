//! Tables: what `kubectl get` prints, column for column as kube-apiserver tells it.

use std::collections::HashMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::core::Call;
use crate::crd::Column;
use crate::jsonpath;
use crate::object;
use crate::printers;
use crate::resource::Resource;

/// Columns of built-in kinds by `group version plural` (`data/columns.txt`, as kube-apiserver 1.37 tells them).
fn native_columns() -> &'static HashMap<String, Vec<Value>> {
    static ALL: OnceLock<HashMap<String, Vec<Value>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: HashMap<String, Vec<Value>> = HashMap::new();
        let mut current = String::new();
        for line in include_str!("data/columns.txt").lines().filter(|l| !l.starts_with('#')) {
            if let Some(column) = line.strip_prefix(' ') {
                let parts: Vec<&str> = column.splitn(5, '|').collect();
                if let [name, kind, format, priority, description] = parts.as_slice() {
                    let priority: i64 = priority.parse().unwrap_or(0);
                    let description = description.replace("\\n", "\n");
                    all.entry(current.clone()).or_default().push(json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority}));
                }
            } else {
                line.clone_into(&mut current);
            }
        }
        all
    })
}

fn columns(resource: &Resource, custom: Option<&[Column]>) -> Vec<Value> {
    if let Some(custom) = custom {
        let name = json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"});
        let mut all = vec![name];
        if custom.is_empty() {
            all.push(json!({"name": "Age", "type": "date", "format": "", "priority": 0,
                "description": "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp"}));
        }
        for column in custom {
            let description = if column.description.is_empty() { format!("Custom resource definition column (in JSONPath format): {}", column.path) } else { column.description.clone() };
            all.push(json!({"name": column.name, "type": column.kind, "format": column.format, "description": description, "priority": column.priority}));
        }
        return all;
    }
    let group = if resource.group.is_empty() { "-" } else { &resource.group };
    native_columns().get(&format!("{group} {} {}", resource.version, resource.plural)).cloned().unwrap_or_else(|| {
        vec![
            json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}),
            json!({"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0}),
        ]
    })
}

fn cells(resource: &Resource, custom: Option<&[Column]>, item: &Value, count: usize, now: Timestamp) -> Vec<Value> {
    let Some(custom) = custom else {
        let mut cells = printers::cells(resource, item, now);
        cells.resize(count, json!(""));
        return cells;
    };
    let mut out = vec![json!(object::name(item))];
    if custom.is_empty() {
        out.push(printers::age(item, now));
    }
    for column in custom {
        let found = jsonpath::find(item, &column.path);
        out.push(custom_cell(&column.kind, &found, now));
    }
    out
}

/// A cell of a custom column, by its type; what does not fit is left out, as Kubernetes does it.
fn custom_cell(kind: &str, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match (kind, first) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(n)) => n.as_i64().or_else(|| {
            #[expect(clippy::cast_possible_truncation, reason = "the cell is for people; Go truncates alike")]
            n.as_f64().map(|f| f as i64)
        }).map_or(Value::Null, |n| json!(n)),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*first).clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(at) => json!(printers::since(at, now)),
            Err(_) => json!("<invalid>"),
        },
        ("string", Value::String(text)) if found.len() == 1 => json!(text),
        ("string", _) => {
            let shown: Vec<String> = found
                .iter()
                .map(|v| match v {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                })
                .collect();
            if shown.len() == 1 { json!(shown[0]) } else { json!(format!("[{}]", shown.join(" "))) }
        }
        _ => Value::Null,
    }
}

/// A table of objects. `headers`: whether it tells its columns.
pub(crate) fn table(call: &Call, version: &str, metadata: Value, items: Vec<Value>, headers: bool) -> Value {
    let include = call.query.get("includeObject").unwrap_or("Metadata").to_owned();
    let custom = call.resource.custom.as_ref().map(|custom| custom.columns.as_slice());
    filled(&call.resource, custom, version, &include, metadata, items, headers, call.core.now())
}

/// The Table that a server of a kind would print of objects that are kept elsewhere; `definition` is the version of the definition of a
/// custom kind. `None` for a kind that nobody knows.
#[must_use]
pub fn print(kind: (&str, &str, &str), definition: Option<&Value>, include: &str, metadata: Value, items: Vec<Value>, now: Timestamp) -> Option<Value> {
    let version = "meta.k8s.io/v1";
    let (group, of, plural) = kind;
    let natives = crate::resource::natives();
    let native = natives.iter().find(|r| r.group == group && r.version == of && r.plural == plural);
    let columns = definition.map(crate::crd::columns);
    // A custom kind's columns say everything: any resource stands in for it.
    let resource = native.or_else(|| natives.first().filter(|_| columns.is_some()))?;
    Some(filled(resource, columns.as_deref(), version, include, metadata, items, true, now))
}

#[expect(clippy::too_many_arguments, reason = "what a table is made of, from two callers")]
fn filled(resource: &Resource, custom: Option<&[Column]>, version: &str, include: &str, metadata: Value, items: Vec<Value>, headers: bool, now: Timestamp) -> Value {
    let columns = columns(resource, custom);
    let rows: Vec<Value> = items
        .into_iter()
        .map(|item| {
            let cells = cells(resource, custom, &item, columns.len(), now);
            row(version, cells, item, include)
        })
        .collect();
    json!({ "apiVersion": version, "kind": "Table", "metadata": metadata, "columnDefinitions": headers.then_some(columns), "rows": rows })
}

fn row(version: &str, cells: Vec<Value>, item: Value, include: &str) -> Value {
    let object = match include {
        "None" => Value::Null,
        "Object" => item,
        _ => crate::respond::partial(version, "PartialObjectMetadata", item),
    };
    json!({ "cells": cells, "object": object })
}
