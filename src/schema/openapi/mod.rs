//! OpenAPI documents: v3 per group version, and v2 of everything, for built-in and custom kinds.
//!
//! They carry what clients read: kinds on operations and schemas, list and map types, merge keys, descriptions, the patch
//! content types and the query parameters of writes. They are made in parts, so that the caller can keep the bytes of each.

mod paths;
mod words;

use crate::catalog;
use crate::shape::{Arena, Atom, Field, ListKind, Ref, Scalar};
use crate::table::table;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub use paths::Served;

/// A custom kind to document.
#[derive(Clone, Debug)]
pub struct CustomKind<'a> {
    /// Plural name in URLs.
    pub plural: &'a str,
    /// Kind of the objects.
    pub kind: &'a str,
    /// Kind of lists.
    pub list_kind: &'a str,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// `openAPIV3Schema` of the version; `None`: anything goes.
    pub schema: Option<&'a Value>,
    /// Has the status subresource.
    pub status: bool,
    /// Has the scale subresource.
    pub scale: bool,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The OpenAPI name of a type: `core.v1.Pod` is `io.k8s.api.core.v1.Pod`.
fn full(short: &str) -> String {
    let prefix = match short {
        "Quantity" => "io.k8s.apimachinery.pkg.api.resource.",
        "IntOrString" => "io.k8s.apimachinery.pkg.util.intstr.",
        "RawExtension" => "io.k8s.apimachinery.pkg.runtime.",
        s if s.starts_with("meta.v1.") => "io.k8s.apimachinery.pkg.apis.",
        s if s.starts_with("apiextensions.v1.") => "io.k8s.apiextensions-apiserver.pkg.apis.",
        s if s.starts_with("apiregistration.v1.") => "io.k8s.kube-aggregator.pkg.apis.",
        s if s.starts_with("version.") => "io.k8s.apimachinery.pkg.",
        _ => "io.k8s.api.",
    };
    format!("{prefix}{short}")
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Writes component schemas of built-in types, and of what they use.
struct Components<'a> {
    arena: &'a Arena,
    kinds: &'a BTreeMap<String, Vec<(String, String, String)>>,
    words: Map<String, Value>,
    out: Map<String, Value>,
}

impl Components<'_> {
    fn add(&mut self, short: &str) {
        let name = full(short);
        if self.out.contains_key(&name) {
            return;
        }
        let Some(id) = table().names.get(short) else { return };
        let arena = self.arena;
        let atom = arena.atom(*id);
        // Placeholder first: types refer to themselves.
        self.out.insert(name.clone(), Value::Null);
        let mut s = self.body(atom, &name);
        if let Some(d) = self.words.get(&name).and_then(|w| w.get("description")).cloned() {
            s.insert("description".into(), d);
        }
        if let Some(list) = self.kinds.get(short) {
            let all: Vec<Value> = list.iter().map(|(g, v, k)| json!({"group": g, "kind": k, "version": v})).collect();
            s.insert("x-kubernetes-group-version-kind".into(), Value::Array(all));
        }
        self.out.insert(name, Value::Object(s));
    }

    fn body(&mut self, atom: &Atom, name: &str) -> Map<String, Value> {
        let mut s = Map::new();
        let mut put = |k: &str, v: Value| s.insert(k.to_owned(), v);
        match (&*atom.name, atom.scalar) {
            ("Quantity", _) => {
                put("oneOf", json!([{"type": "string"}, {"type": "number"}]));
            }
            ("IntOrString", _) => {
                put("format", json!("int-or-string"));
                put("oneOf", json!([{"type": "integer"}, {"type": "string"}]));
            }
            (_, Some(Scalar::Time | Scalar::MicroTime)) => {
                put("format", json!("date-time"));
                put("type", json!("string"));
            }
            ("RawExtension" | "meta.v1.FieldsV1", _) => {
                put("type", json!("object"));
            }
            // Any value.
            (_, Some(Scalar::Untyped)) => {}
            _ => {
                put("type", json!("object"));
            }
        }
        let Some(m) = atom.map.as_ref().filter(|m| !m.fields.is_empty()) else { return s };
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (field, f) in &m.fields {
            let mut p = self.property(f);
            let at = format!("/properties/{field}/description");
            if let Some(d) = self.words.get(name).and_then(|w| w.pointer(&at)).cloned() {
                p.insert("description".into(), d);
            }
            properties.insert(field.to_string(), Value::Object(p));
            if f.required {
                required.push(json!(field));
            }
        }
        s.insert("properties".into(), Value::Object(properties));
        if !required.is_empty() {
            s.insert("required".into(), Value::Array(required));
        }
        if m.atomic {
            s.insert("x-kubernetes-map-type".into(), json!("atomic"));
        }
        s
    }

    fn property(&mut self, f: &Field) -> Map<String, Value> {
        let mut p = self.usage(f.ty);
        if let Some(d) = &f.default {
            p.insert("default".into(), d.clone());
        }
        let arena = self.arena;
        if let Some(l) = &arena.atom(f.ty.id).list {
            match &l.kind {
                _ if arena.atom(f.ty.id).scalar.is_some() => {}
                ListKind::Atomic => {
                    p.insert("x-kubernetes-list-type".into(), json!("atomic"));
                }
                ListKind::Set => {
                    p.insert("x-kubernetes-list-type".into(), json!("set"));
                }
                ListKind::Map(keys) => {
                    p.insert("x-kubernetes-list-map-keys".into(), json!(keys));
                    p.insert("x-kubernetes-list-type".into(), json!("map"));
                }
            }
        }
        if let Some(atomic) = f.ty.atomic {
            p.insert("x-kubernetes-map-type".into(), json!(if atomic { "atomic" } else { "granular" }));
        }
        if f.patch.merge || f.patch.retain_keys {
            let words = match (f.patch.merge, f.patch.retain_keys) {
                (true, true) => "merge,retainKeys",
                (true, false) => "merge",
                _ => "retainKeys",
            };
            p.insert("x-kubernetes-patch-strategy".into(), json!(words));
            if let Some(k) = &f.patch.merge_key {
                p.insert("x-kubernetes-patch-merge-key".into(), json!(k));
            }
        }
        p
    }

    /// How a type is written where it is used.
    fn usage(&mut self, r: Ref) -> Map<String, Value> {
        let arena = self.arena;
        let atom = arena.atom(r.id);
        let mut p = Map::new();
        if !atom.name.is_empty() {
            let short = atom.name.to_string();
            self.add(&short);
            p.insert("allOf".into(), json!([reference(&full(&short))]));
            return p;
        }
        let leaf = match atom.scalar {
            Some(Scalar::String) => Some(("string", "")),
            Some(Scalar::Bytes) => Some(("string", "byte")),
            Some(Scalar::Int32) => Some(("integer", "int32")),
            Some(Scalar::Int64) => Some(("integer", "int64")),
            Some(Scalar::Number) => Some(("number", "double")),
            Some(Scalar::Boolean) => Some(("boolean", "")),
            _ => None,
        };
        if let Some((ty, format)) = leaf {
            p.insert("type".into(), json!(ty));
            if !format.is_empty() {
                p.insert("format".into(), json!(format));
            }
        } else if atom.scalar.is_some() {
            // Any value.
        } else if let Some(l) = &atom.list {
            p.insert("type".into(), json!("array"));
            let items = self.usage(l.item);
            p.insert("items".into(), Value::Object(items));
        } else if let Some(m) = &atom.map {
            p.insert("type".into(), json!("object"));
            if let Some(e) = m.element {
                let entry = self.usage(e);
                p.insert("additionalProperties".into(), Value::Object(entry));
            }
        }
        p
    }
}

fn kinds_by_type() -> BTreeMap<String, Vec<(String, String, String)>> {
    let t = table();
    let mut out: BTreeMap<String, Vec<(String, String, String)>> = BTreeMap::new();
    for (gvk, id) in &t.kinds {
        out.entry(t.arena.atom(*id).name.to_string()).or_default().push(gvk.clone());
    }
    out
}

/// Paths and schemas, each by its name.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Path items.
    pub paths: Map<String, Value>,
    /// Component schemas (v3) or definitions (v2).
    pub schemas: Map<String, Value>,
}

impl Parts {
    /// What v2 (swagger) says in their place.
    #[must_use]
    pub fn into_v2(self) -> Self {
        let schema = |(name, s): (String, Value)| {
            // kubectl takes a v2 schema with fields as one without others: a kind that keeps unknown fields shows none.
            let open = s.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) && s.get("x-kubernetes-group-version-kind").is_some();
            let s = if open { json!({"type": "object", "x-kubernetes-group-version-kind": s["x-kubernetes-group-version-kind"]}) } else { s };
            (name, paths::to_v2_schema(s))
        };
        Self {
            paths: self.paths.into_iter().map(|(path, item)| (path, paths::to_v2_path(item))).collect(),
            schemas: self.schemas.into_iter().map(schema).collect(),
        }
    }
}

/// A version of OpenAPI around paths and schemas: what stands before the first path, between the last path and the first
/// schema, and after the last schema.
type Frame = [String; 3];

/// A v3 document without its paths and schemas.
#[must_use]
pub fn frame_v3() -> Frame {
    [
        r#"{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"v1.37.2"},"paths":{"#.to_owned(),
        r#"},"components":{"schemas":{"#.to_owned(),
        r#"},"securitySchemes":{"BearerToken":{"type":"apiKey","description":"Bearer Token authentication","name":"authorization","in":"header"}}}}"#.to_owned(),
    ]
}

/// A v2 document without its paths and definitions.
#[must_use]
pub fn frame_v2() -> Frame {
    [
        r#"{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1.37.2"},"paths":{"#.to_owned(),
        r#"},"definitions":{"#.to_owned(),
        r#"},"securityDefinitions":{"BearerToken":{"type":"apiKey","description":"Bearer Token authentication","name":"authorization","in":"header"}},"security":[{"BearerToken":[]}]}"#.to_owned(),
    ]
}

fn components(words: Map<String, Value>, kinds: &BTreeMap<String, Vec<(String, String, String)>>) -> Components<'_> {
    Components { arena: &table().arena, kinds, words, out: Map::new() }
}

/// The paths and schemas of a built-in group version, for v3; `None` when there is none.
#[must_use]
pub fn native(group: &str, version: &str) -> Option<Parts> {
    let served: Vec<&catalog::Resource> = catalog::resources().iter().filter(|r| r.group == group && r.version == version).collect();
    (!served.is_empty()).then(|| parts_of(&served, words::schemas(&[(group, version)])))
}

/// The paths and schemas of all built-in group versions.
#[must_use]
pub fn natives() -> Parts {
    let served: Vec<&catalog::Resource> = catalog::resources().iter().collect();
    let places: BTreeSet<(&str, &str)> = served.iter().map(|r| (r.group, r.version)).collect();
    parts_of(&served, words::schemas(&places.into_iter().collect::<Vec<_>>()))
}

fn parts_of(served: &[&catalog::Resource], words: Map<String, Value>) -> Parts {
    let kinds = kinds_by_type();
    let mut c = components(words, &kinds);
    let mut paths = Map::new();
    for r in served {
        paths::of_native(r, &mut paths);
        paths::list_of(r.group, r.version, &mut paths);
        for (g, v, k) in std::iter::once((r.group, r.version, r.kind)).chain(std::iter::once((r.group, r.version, r.list_kind.as_str()))).chain(r.subresources.iter().map(|s| (s.group, s.version, s.kind))) {
            if let Some(id) = table().kinds.get(&(g.to_owned(), v.to_owned(), k.to_owned())) {
                let name = table().arena.atom(*id).name.to_string();
                c.add(&name);
            }
        }
    }
    for m in ["APIResourceList", "DeleteOptions", "Status", "WatchEvent", "Patch"] {
        c.add(&format!("meta.v1.{m}"));
    }
    Parts { paths, schemas: with_patch(c.out) }
}

fn with_patch(mut schemas: Map<String, Value>) -> Map<String, Value> {
    let words = "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.";
    schemas.entry(format!("{META}Patch")).or_insert_with(|| json!({"type": "object", "description": words}));
    schemas
}

/// The OpenAPI name of a custom kind: the reversed group, version and kind.
pub fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// The built-in schemas that custom kinds refer to; `scale`: one of them has that subresource.
#[must_use]
pub fn referred(scale: bool) -> Map<String, Value> {
    let kinds = kinds_by_type();
    let mut c = components(words::schemas(if scale { &[("autoscaling", "v1")] } else { &[] }), &kinds);
    for m in ["meta.v1.APIResourceList", "meta.v1.DeleteOptions", "meta.v1.Status", "meta.v1.ListMeta", "meta.v1.ObjectMeta", "meta.v1.Patch"] {
        c.add(m);
    }
    if scale {
        c.add("autoscaling.v1.Scale");
    }
    with_patch(c.out)
}

/// The paths and schemas of a custom group version, without the [`referred`] ones.
#[must_use]
pub fn own(group: &str, version: &str, kinds: &[CustomKind<'_>]) -> Parts {
    let mut out = Parts::default();
    for k in kinds {
        let name = custom_name(group, version, k.kind);
        out.schemas.insert(name.clone(), object_schema(group, version, k));
        out.schemas.insert(format!("{name}List"), list_schema(group, version, k, &name));
        paths::of_custom(group, version, k, &name, &mut out.paths);
    }
    paths::list_of(group, version, &mut out.paths);
    out
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!([{"group": group, "kind": kind, "version": version}])
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

fn object_schema(group: &str, version: &str, k: &CustomKind<'_>) -> Value {
    let mut s = match k.schema {
        Some(Value::Object(o)) => o.clone(),
        _ => Map::from_iter([("type".to_owned(), json!("object")), ("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true))]),
    };
    // A root that keeps unknown fields is documented by its declared fields.
    let properties = s.entry("properties".to_owned()).or_insert_with(|| json!({}));
    let given = properties.get("metadata").and_then(|m| m.get("description")).cloned();
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    let words = given.unwrap_or_else(|| json!("Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"));
    properties["metadata"] = json!({"description": words, "allOf": [reference(&format!("{META}ObjectMeta"))]});
    s.insert("x-kubernetes-group-version-kind".into(), gvk(group, version, k.kind));
    Value::Object(s)
}

fn list_schema(group: &str, version: &str, k: &CustomKind<'_>, item: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("{} is a list of {}", k.list_kind, k.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "items": {"type": "array", "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", k.plural), "items": {"allOf": [reference(item)]}},
            "metadata": {"description": "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds", "allOf": [reference(&format!("{META}ListMeta"))]},
        },
        "x-kubernetes-group-version-kind": gvk(group, version, k.list_kind),
    })
}

#[cfg(test)]
mod tests;
