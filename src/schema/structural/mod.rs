//! Custom kinds: the structural schema of a CRD version, and what a server does with it.

pub(crate) mod check;
pub(crate) mod formats;
mod parse;
pub(crate) mod prune;
pub(crate) mod rules;
mod shape;
pub(crate) mod validate;

pub use parse::{Additional, RuleText, Schema, Type};

use crate::decode::{DecodeError, Decoded, decode};
use crate::fault::{Fault, Path};
use crate::fields::Set;
use crate::native::meta;
use crate::shape::Shape;
use crate::table;
use rules::Rules;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The schema of one version of a custom kind.
#[derive(Clone, Debug)]
pub struct Structural {
    root: Arc<Schema>,
    raw: Arc<Value>,
    shape: Shape,
    rules: Arc<Rules>,
    status: bool,
    namespaced: bool,
    /// Paths of the scale subresource: spec replicas, status replicas, label selector.
    scale: Option<(String, String, Option<String>)>,
}

impl Structural {
    /// The schema of a version of a CRD object.
    pub fn of_crd(crd: &Value, version: &str) -> Result<Self, Vec<Fault>> {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        let found = versions.into_iter().flatten().enumerate().find(|(_, v)| v.get("name").and_then(Value::as_str) == Some(version));
        let Some((i, v)) = found else {
            return Err(vec![Fault::not_found(&Path::new("spec.versions"), version)]);
        };
        let raw = v.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let faults = check::structural(&raw, &check::place(crd, i));
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut root = Schema::parse(&raw);
        // The old switch of the whole CRD.
        root.preserve |= crd.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool).unwrap_or(false);
        let shape = shape::of(&root);
        let rules = Rules::compile(&root);
        let text = |p: &str| v.pointer(p).and_then(Value::as_str).map(str::to_owned);
        let scale = text("/subresources/scale/specReplicasPath")
            .zip(text("/subresources/scale/statusReplicasPath"))
            .map(|(a, b)| (a, b, text("/subresources/scale/labelSelectorPath")));
        Ok(Self {
            root: Arc::new(root),
            raw: Arc::new(raw),
            shape,
            rules: Arc::new(rules),
            status: v.pointer("/subresources/status").is_some_and(|s| !s.is_null()),
            namespaced: crd.pointer("/spec/scope").and_then(Value::as_str) == Some("Namespaced"),
            scale,
        })
    }

    /// Fields, list types and merge rules.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
    /// The tree of schemas.
    pub fn schema(&self) -> &Schema {
        &self.root
    }
    /// The schema as the CRD gives it.
    pub fn raw(&self) -> &Value {
        &self.raw
    }
    /// Whether the status subresource is on.
    pub fn has_status(&self) -> bool {
        self.status
    }
    /// JSON paths of the scale subresource: replicas in spec, replicas in status, selector.
    pub fn scale(&self) -> Option<(&str, &str, Option<&str>)> {
        self.scale.as_ref().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_deref()))
    }

    /// Reads a body: metadata by its own type, unknown fields reported and dropped.
    pub fn decode(&self, mut object: Value) -> Result<Decoded, DecodeError> {
        let mut unknown = Vec::new();
        if let (Some(m), Some(shape)) = (object.get_mut("metadata"), table::named("meta.v1.ObjectMeta")) {
            // Decoded below the name "metadata", so that faults name it.
            let d = decode(m.take(), shape.root())?;
            unknown.extend(d.unknown.into_iter().map(|u| u.replacen("unknown field \"", "unknown field \"metadata.", 1)));
            *m = d.object;
        }
        let mut paths = Vec::new();
        prune::prune(&mut object, &self.root, true, &mut String::new(), &mut paths);
        unknown.extend(paths.into_iter().map(|p| format!("unknown field \"{p}\"")));
        Ok(Decoded { object, unknown })
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        prune::default(object, &self.root);
    }

    pub(crate) fn prepare_update(&self, object: &mut Value, old: &Value, subresource: Option<&str>) {
        if subresource == Some("status") {
            let status = object.get("status").cloned();
            let managed = object.pointer("/metadata/managedFields").cloned();
            *object = old.clone();
            put(object, "status", status);
            if let Some(m) = object.get_mut("metadata") {
                put(m, "managedFields", managed);
            }
            return;
        }
        if self.status {
            put(object, "status", old.get("status").cloned());
        }
        let bare = |v: &Value| {
            let mut o: Map<String, Value> = v.as_object().cloned().unwrap_or_default();
            o.remove("metadata");
            o
        };
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        let generation = if bare(object) == bare(old) { generation } else { generation + 1 };
        if let Some(m) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            m.insert("generation".into(), json!(generation));
        }
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<Fault> {
        let mut faults = meta::validate(object, self.namespaced, meta::NameRule::Subdomain);
        self.body(object, None, &mut faults);
        faults
    }

    pub(crate) fn validate_update(&self, object: &Value, old: &Value, subresource: Option<&str>) -> Vec<Fault> {
        let mut faults = meta::validate_update(object, old);
        if subresource == Some("status") {
            self.status_body(object, old, &mut faults);
        } else {
            self.body(object, Some(old), &mut faults);
        }
        faults
    }

    fn body(&self, object: &Value, old: Option<&Value>, faults: &mut Vec<Fault>) {
        // The object as a whole never counts as unchanged: its metadata differs anyway.
        let mut found = validate::Findings::default();
        validate_root(object, old, &self.root, &mut found);
        faults.append(&mut found.faults);
        if old.is_none_or(|o| !same_body(object, o)) {
            let mut doubled = Vec::new();
            validate::lists(object, &self.root, &Path::root(), &mut doubled);
            if let Some(o) = old {
                let mut before = Vec::new();
                validate::lists(o, &self.root, &Path::root(), &mut before);
                doubled.retain(|f| !before.contains(f));
            }
            faults.append(&mut doubled);
        }
        if faults.iter().any(validate::blocks_rules) {
            if self.root.has_rules() {
                faults.push(validate::rules_skipped());
            }
        } else {
            self.rules.run(object, old, &self.root, faults);
        }
    }

    fn status_body(&self, object: &Value, old: &Value, faults: &mut Vec<Fault>) {
        if let (Some(s), Some(v)) = (self.root.properties.get("status"), object.get("status")) {
            let mut found = validate::validate(v, old.get("status"), s, "status");
            faults.append(&mut found.faults);
            validate::lists(v, s, &Path::new("status"), faults);
        }
        if faults.iter().any(validate::blocks_rules) {
            if self.root.has_rules() {
                faults.push(validate::rules_skipped());
            }
        } else {
            self.rules.run(object, Some(old), &self.root, faults);
        }
    }

    pub(crate) fn reset_fields(&self, subresource: Option<&str>) -> Set {
        match subresource {
            Some("status") => Set::of_fields(&[&["metadata"], &["spec"]]),
            _ if self.status => Set::of_fields(&[&["status"]]),
            _ => Set::new(),
        }
    }
}

/// Faults of the schemas of a CRD: structure, defaults and rules of every version.
pub(crate) fn check_crd(crd: &Value) -> Vec<Fault> {
    let mut out: Vec<Fault> = Vec::new();
    for (i, v) in crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let Some(raw) = v.pointer("/schema/openAPIV3Schema") else { continue };
        let at = check::place(crd, i);
        let mut faults = check::structural(raw, &at);
        if faults.is_empty() {
            let root = Schema::parse(raw);
            faults.extend(rules::check_rules(&root, &at));
            faults.extend(check::defaults(&root, &at));
        }
        out.extend(faults.into_iter().filter(|f| !out.contains(f)).collect::<Vec<_>>());
    }
    out
}

fn same_body(a: &Value, b: &Value) -> bool {
    let fields = |v: &Value| -> Vec<(String, Value)> {
        v.as_object().into_iter().flatten().filter(|(k, _)| *k != "metadata").map(|(k, x)| (k.clone(), x.clone())).collect()
    };
    fields(a) == fields(b)
}

fn validate_root(object: &Value, old: Option<&Value>, root: &Schema, out: &mut validate::Findings) {
    // apiVersion, kind and metadata have their own checks; a schema may still restrict metadata.name.
    *out = validate::validate(object, old, root, "");
}

fn put(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(o) = object.as_object_mut() {
        match value {
            Some(v) => o.insert(field.to_owned(), v),
            None => o.remove(field),
        };
    }
}

#[cfg(test)]
mod tests;
