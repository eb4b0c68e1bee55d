//! Tables: what `kubectl get` prints, column for column.

use serde_json::{Value, json};

use crate::core::Call;
use crate::object;

/// A table of objects. `headers`: whether it tells its columns.
pub(crate) fn table(call: &Call, version: &str, metadata: Value, items: Vec<Value>, headers: bool) -> Value {
    let include = call.query.get("includeObject").unwrap_or("Metadata").to_owned();
    let rows: Vec<Value> = items
        .into_iter()
        .map(|item| {
            let name = object::name(&item).to_owned();
            let created = object::text(&item, &["metadata", "creationTimestamp"]).to_owned();
            row(vec![json!(name), json!(created)], item, &include)
        })
        .collect();
    let columns = if headers {
        json!([{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}, {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0}])
    } else {
        json!([])
    };
    json!({ "apiVersion": version, "kind": "Table", "metadata": metadata, "columnDefinitions": columns, "rows": rows })
}

pub(crate) fn row(cells: Vec<Value>, item: Value, include: &str) -> Value {
    let object = match include {
        "None" => Value::Null,
        "Object" => item,
        _ => crate::respond::partial("meta.k8s.io/v1", "PartialObjectMetadata", item),
    };
    json!({ "cells": cells, "object": object })
}
