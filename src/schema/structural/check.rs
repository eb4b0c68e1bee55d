//! Whether a CRD's schema is structural, with the faults a real server reports.

use crate::fault::{Fault, Path};
use serde_json::Value;

/// Where faults of the schema of version `i` are reported: one place for all versions when their schemas are equal.
pub(crate) fn place(crd: &Value, i: usize) -> Path {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let schema = |v: &Value| v.get("schema").cloned();
    let equal = versions.windows(2).all(|w| schema(&w[0]) == schema(&w[1]));
    if equal {
        Path::new("spec.validation.openAPIV3Schema")
    } else {
        Path::new("spec.versions").index(i).child("schema").child("openAPIV3Schema")
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Faults that make the schema not structural.
pub(crate) fn structural(raw: &Value, path: &Path) -> Vec<Fault> {
    let mut out = Vec::new();
    forbidden(raw, path, &mut out);
    invariants(raw, Level::Root, path, &mut out);
    out.sort_by(|a, b| a.field.cmp(&b.field));
    out
}

fn flag(v: &Value, k: &str) -> bool {
    v.get(k).and_then(Value::as_bool).unwrap_or(false)
}

fn ty(v: &Value) -> &str {
    v.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Keywords that structural schemas never have.
fn forbidden(v: &Value, path: &Path, out: &mut Vec<Fault>) {
    for k in ["additionalItems", "patternProperties", "definitions", "dependencies", "$ref", "id"] {
        if v.get(k).is_some_and(|x| !x.is_null() && x.as_str() != Some("")) {
            let words = match k {
                "$ref" => "$ref is not supported".to_owned(),
                k => format!("{k} is not supported"),
            };
            out.push(Fault::forbidden(&path.child(k), words));
        }
    }
    if flag(v, "uniqueItems") {
        out.push(Fault::forbidden(&path.child("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"));
    }
    if v.get("items").is_some_and(Value::is_array) {
        out.push(Fault::forbidden(&path.child("items"), "items must be a schema object and not an array"));
    }
    let has_properties = v.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    if has_properties && v.get("additionalProperties").is_some_and(|a| a.is_object() || a == &Value::Bool(true)) {
        out.push(Fault::forbidden(&path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive"));
    } else if v.get("additionalProperties") == Some(&Value::Bool(false)) {
        out.push(Fault::forbidden(&path.child("additionalProperties"), "additionalProperties cannot be set to false"));
    }
    for (k, x) in v.get("properties").and_then(Value::as_object).into_iter().flatten() {
        forbidden(x, &path.child("properties").key(k), out);
    }
    for k in ["items", "additionalProperties", "not"] {
        if let Some(x) = v.get(k).filter(|x| x.is_object()) {
            forbidden(x, &path.child(k), out);
        }
    }
    for k in ["allOf", "anyOf", "oneOf"] {
        for (i, x) in v.get(k).and_then(Value::as_array).into_iter().flatten().enumerate() {
            forbidden(x, &path.child(k).index(i), out);
        }
    }
}

fn invariants(v: &Value, level: Level, path: &Path, out: &mut Vec<Fault>) {
    if ty(v) == "array" && !v.get("items").is_some_and(Value::is_object) {
        out.push(Fault::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = v.get("items").filter(|i| i.is_object()) {
        invariants(items, Level::Item, &path.child("items"), out);
    }
    for (k, x) in v.get("properties").and_then(Value::as_object).into_iter().flatten() {
        invariants(x, Level::Field, &path.child("properties").key(k), out);
    }
    if let Some(a) = v.get("additionalProperties").filter(|a| !a.is_null()) {
        if level == Level::Root {
            out.push(Fault::forbidden(&path.child("additionalProperties"), "must not be used at the root"));
        }
        if a.is_object() {
            invariants(a, Level::Field, &path.child("additionalProperties"), out);
        }
    }
    let (embedded, preserve, int_or_string) = (flag(v, "x-kubernetes-embedded-resource"), flag(v, "x-kubernetes-preserve-unknown-fields"), flag(v, "x-kubernetes-int-or-string"));
    if embedded && ty(v) != "object" {
        let p = path.child("type");
        let words = "must be object if x-kubernetes-embedded-resource is true";
        out.push(if ty(v).is_empty() { Fault::required(&p, words) } else { Fault::invalid(&p, ty(v), words) });
    } else if ty(v).is_empty() && !int_or_string && !preserve {
        let words = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        out.push(Fault::required(&path.child("type"), words));
    }
    if level == Level::Root && !ty(v).is_empty() && ty(v) != "object" {
        out.push(Fault::invalid(&path.child("type"), ty(v), "must be object at the root"));
    }
    if !ty(v).is_empty() && super::parse::Type::of(ty(v)).is_none() {
        out.push(Fault::not_supported(&path.child("type"), ty(v), &["array", "boolean", "integer", "number", "object", "string"]));
    }
    if embedded || level == Level::Root {
        metadata(v, level, path, out);
    }
    let empty = v.get("properties").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    if embedded && !preserve && empty {
        out.push(Fault::required(&path.child("properties"), "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"));
    }
    if int_or_string && preserve {
        out.push(Fault::invalid(&path.child("x-kubernetes-preserve-unknown-fields"), true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if int_or_string && embedded {
        out.push(Fault::invalid(&path.child("x-kubernetes-embedded-resource"), true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if let Some(p) = v.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty()) {
        if crate::text::go_regex(p).is_none() {
            let why = if p.matches('(').count() > p.matches(')').count() { format!("missing closing ): `{p}`") } else { format!("invalid syntax: `{p}`") };
            out.push(Fault::invalid(&path.child("pattern"), p, format!("must be a valid regular expression, but isn't: error parsing regexp: {why}")));
        }
    }
    lists(v, path, out);
    for k in ["allOf", "anyOf", "oneOf"] {
        for (i, x) in v.get(k).and_then(Value::as_array).into_iter().flatten().enumerate() {
            // The one place where types may be nested: integer or string.
            let either = |v: &Value| v == &serde_json::json!([{"type": "integer"}, {"type": "string"}]);
            let excepted = int_or_string && ((k == "anyOf" && v.get("anyOf").is_some_and(either)) || (k == "allOf" && i == 0 && x.get("anyOf").is_some_and(either)));
            if !excepted {
                nested(x, v, &path.child(k).index(i), out);
            }
        }
    }
    if let Some(n) = v.get("not").filter(|n| n.is_object()) {
        nested(n, v, &path.child("not"), out);
    }
}

fn metadata(v: &Value, level: Level, path: &Path, out: &mut Vec<Fault>) {
    for k in ["apiVersion", "kind"] {
        if let Some(x) = v.pointer(&format!("/properties/{k}")) {
            if ty(x) != "string" {
                out.push(Fault::invalid(&path.child("properties").key(k).child("type"), ty(x), "must be string"));
            }
        }
    }
    let Some(m) = v.pointer("/properties/metadata") else { return };
    let p = path.child("properties").key("metadata");
    if ty(m) != "object" {
        out.push(Fault::invalid(&p.child("type"), ty(m), "must be object"));
    }
    if level == Level::Root {
        let only_names = m.get("properties").and_then(Value::as_object).is_none_or(|o| o.keys().all(|k| k == "name" || k == "generateName"));
        let plain = m.as_object().is_none_or(|o| o.keys().all(|k| matches!(k.as_str(), "type" | "properties" | "description" | "title")));
        if !only_names || !plain {
            out.push(Fault::forbidden(&p, "must not specify anything other than name and generateName, but metadata is implicitly specified"));
        }
    }
}

/// List and map types fit the type, keys exist and are scalars that are required or have a default.
fn lists(v: &Value, path: &Path, out: &mut Vec<Fault>) {
    let list_type = v.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys: Vec<&str> = v.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(t) = list_type {
        if ty(v) != "array" {
            let p = path.child("type");
            out.push(if ty(v).is_empty() { Fault::required(&p, "must be array if x-kubernetes-list-type is specified") } else { Fault::invalid(&p, ty(v), "must be array if x-kubernetes-list-type is specified") });
        }
        if !matches!(t, "atomic" | "set" | "map") {
            out.push(Fault::not_supported(&path.child("x-kubernetes-list-type"), t, &["atomic", "map", "set"]));
        }
    }
    if let Some(t) = v.get("x-kubernetes-map-type").and_then(Value::as_str) {
        if ty(v) != "object" {
            let p = path.child("type");
            out.push(if ty(v).is_empty() { Fault::required(&p, "must be object if x-kubernetes-map-type is specified") } else { Fault::invalid(&p, ty(v), "must be object if x-kubernetes-map-type is specified") });
        }
        if !matches!(t, "atomic" | "granular") {
            out.push(Fault::not_supported(&path.child("x-kubernetes-map-type"), t, &["atomic", "granular"]));
        }
    }
    if list_type == Some("map") && keys.is_empty() {
        out.push(Fault::required(&path.child("x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map"));
    }
    if list_type != Some("map") && !keys.is_empty() {
        let p = path.child("x-kubernetes-list-type");
        let words = "must be map if x-kubernetes-list-map-keys is non-empty";
        out.push(match list_type {
            None => Fault::required(&p, words),
            Some(t) => Fault::invalid(&p, t, words),
        });
    }
    let Some(items) = v.get("items").filter(|_| list_type == Some("map")) else { return };
    if ty(items) != "object" {
        out.push(Fault::invalid(&path.child("items").child("type"), ty(items), "must be object if parent array's x-kubernetes-list-type is map"));
    }
    let required: Vec<&str> = items.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (i, k) in keys.iter().enumerate() {
        match items.pointer("/properties").and_then(|p| p.get(*k)) {
            None => out.push(Fault::invalid(&path.child("x-kubernetes-list-map-keys").index(i), *k, "entries must all be names of item properties")),
            Some(p) => {
                let at = path.child("items").child("properties").key(k);
                if matches!(ty(p), "array" | "object") {
                    out.push(Fault::invalid(&at.child("type"), ty(p), "must be a scalar type if parent array's x-kubernetes-list-type is map"));
                }
                let has_default = p.get("default").is_some_and(|d| !d.is_null());
                if !has_default && !required.contains(k) {
                    out.push(Fault::required(&at.child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"));
                }
            }
        }
        if keys[..i].contains(k) {
            out.push(Fault::duplicate(&path.child("x-kubernetes-list-map-keys").index(i), *k));
        }
    }
}

/// Inside allOf, anyOf, oneOf and not only limits stand; what they name must exist outside.
fn nested(v: &Value, outer: &Value, path: &Path, out: &mut Vec<Fault>) {
    for (k, empty) in [("type", ""), ("title", ""), ("description", "")] {
        if v.get(k).and_then(Value::as_str).is_some_and(|s| s != empty) {
            out.push(Fault::forbidden(&path.child(k), "must be empty to be structural"));
        }
    }
    if v.get("default").is_some_and(|d| !d.is_null()) {
        out.push(Fault::forbidden(&path.child("default"), "must be undefined to be structural"));
    }
    if v.get("additionalProperties").is_some_and(|d| !d.is_null()) {
        out.push(Fault::forbidden(&path.child("additionalProperties"), "must be undefined to be structural"));
    }
    for k in ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"] {
        if flag(v, k) {
            out.push(Fault::forbidden(&path.child(k), "must be false to be structural"));
        }
    }
    for (k, x) in v.get("properties").and_then(Value::as_object).into_iter().flatten() {
        match outer.get("properties").and_then(|p| p.get(k)) {
            Some(o) => nested(x, o, &path.child("properties").key(k), out),
            None => match outer.get("additionalProperties").filter(|a| a.is_object()) {
                Some(o) => nested(x, o, &path.child("properties").key(k), out),
                None => out.push(Fault::required(&outer_place(path, k), "because it is defined in a value validation")),
            },
        }
    }
    if let (Some(x), Some(o)) = (v.get("items").filter(|i| i.is_object()), outer.get("items")) {
        nested(x, o, &path.child("items"), out);
    }
    for k in ["allOf", "anyOf", "oneOf"] {
        for (i, x) in v.get(k).and_then(Value::as_array).into_iter().flatten().enumerate() {
            nested(x, outer, &path.child(k).index(i), out);
        }
    }
    if let Some(n) = v.get("not").filter(|n| n.is_object()) {
        nested(n, outer, &path.child("not"), out);
    }
}

fn outer_place(path: &Path, field: &str) -> Path {
    let text = path.as_str();
    let cut = [".allOf[", ".anyOf[", ".oneOf[", ".not"].iter().filter_map(|m| text.rfind(m)).max().unwrap_or(text.len());
    Path::new(&text[..cut]).child("properties").key(field)
}

/// Defaults must be valid values of their own schema, with nothing that would be pruned.
pub(crate) fn defaults(s: &super::parse::Schema, path: &Path) -> Vec<Fault> {
    use super::parse::Additional;
    let mut out = Vec::new();
    if let Some(d) = &s.default {
        let p = path.child("default");
        let mut copy = d.clone();
        let mut unknown = Vec::new();
        super::prune::prune(&mut copy, s, s.embedded, &mut String::new(), &mut unknown);
        if !unknown.is_empty() {
            out.push(Fault::invalid(&p, d.clone(), "must not have unknown fields"));
        }
        super::prune::default(&mut copy, s);
        // Checked as a document of its own, reported at the default.
        for mut f in super::validate::validate(&copy, None, s, "").faults {
            f.field = if f.field == "<nil>" { p.to_string() } else { p.child(&f.field).to_string() };
            out.push(f);
        }
    }
    for (k, c) in &s.properties {
        out.extend(defaults(c, &path.child("properties").key(k)));
    }
    if let Some(i) = &s.items {
        out.extend(defaults(i, &path.child("items")));
    }
    if let Some(Additional::Schema(a)) = &s.additional {
        out.extend(defaults(a, &path.child("additionalProperties")));
    }
    out
}
