//! One kind at one version, as a server handles it: the door to everything else in this room.
//!
//! A request body goes `decode` -> `default` -> `prepare_*` -> (admission) -> `validate_*` -> store.

use crate::catalog::Resource;
use crate::decode::{self, DecodeError, Decoded};
use crate::fault::Fault;
use crate::fields::Set;
use crate::shape::Shape;
use crate::structural::Structural;
use crate::strategic::{self, StrategicError};
use crate::{native, table};
use serde_json::{Value, json};
use std::sync::Arc;

/// A kind at a version. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kind {
    inner: Arc<Inner>,
}

#[derive(Debug)]
enum Inner {
    Native { resource: &'static Resource, shape: Shape, empty: Value },
    Custom { api_version: String, kind: String, structural: Structural },
}

impl Kind {
    /// A built-in kind; `None` when the resource has no schema.
    pub fn native(resource: &'static Resource) -> Option<Self> {
        let shape = table::native(resource.group, resource.version, resource.kind)?;
        let empty = decode::zero(shape.root());
        Some(Self { inner: Arc::new(Inner::Native { resource, shape, empty }) })
    }

    /// The kind that version `version` of a CustomResourceDefinition object defines. Faults name fields of the CRD.
    pub fn custom(crd: &Value, version: &str) -> Result<Self, Vec<Fault>> {
        let structural = Structural::of_crd(crd, version)?;
        let text = |p: &str| crd.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api_version = format!("{}/{version}", text("/spec/group"));
        Ok(Self { inner: Arc::new(Inner::Custom { api_version, kind: text("/spec/names/kind"), structural }) })
    }

    /// Fields, list types and merge rules.
    pub fn shape(&self) -> &Shape {
        match &*self.inner {
            Inner::Native { shape, .. } => shape,
            Inner::Custom { structural, .. } => structural.shape(),
        }
    }

    /// The structural schema of a custom kind.
    pub fn structural(&self) -> Option<&Structural> {
        match &*self.inner {
            Inner::Native { .. } => None,
            Inner::Custom { structural, .. } => Some(structural),
        }
    }

    /// Whether the kind is built in.
    pub fn is_native(&self) -> bool {
        matches!(&*self.inner, Inner::Native { .. })
    }

    /// Reads a request body: types checked (built-in kinds), unknown fields reported and dropped.
    pub fn decode(&self, object: Value) -> Result<Decoded, DecodeError> {
        match &*self.inner {
            Inner::Native { shape, .. } => decode::decode(object, shape.root()),
            Inner::Custom { structural, .. } => structural.decode(object),
        }
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        match &*self.inner {
            Inner::Native { resource, .. } => native::default(resource, object),
            Inner::Custom { structural, .. } => structural.default(object),
        }
    }

    /// What a server does to a new object before validation: status dropped, generation 1, derived fields.
    pub fn prepare_create(&self, object: &mut Value) {
        match &*self.inner {
            Inner::Native { resource, .. } => native::prepare_create(resource, object),
            Inner::Custom { structural, .. } => {
                if structural.has_status() {
                    remove(object, "status");
                }
                object["metadata"]["generation"] = json!(1);
            }
        }
    }

    /// What a server does to an update before validation: the side that this endpoint does not write is taken from `old`
    /// (`subresource` = `Some("status")` keeps all but status), the generation grows when the specification changed.
    pub fn prepare_update(&self, object: &mut Value, old: &Value, subresource: Option<&str>) {
        match &*self.inner {
            Inner::Native { resource, .. } => native::prepare_update(resource, object, old, subresource),
            Inner::Custom { structural, .. } => structural.prepare_update(object, old, subresource),
        }
    }

    /// Faults of a new object (after `prepare_create`).
    pub fn validate_create(&self, object: &Value) -> Vec<Fault> {
        match &*self.inner {
            Inner::Native { resource, .. } => native::validate_create(resource, object),
            Inner::Custom { structural, .. } => structural.validate_create(object),
        }
    }

    /// Faults of an update (after `prepare_update`), immutable fields among them.
    pub fn validate_update(&self, object: &Value, old: &Value, subresource: Option<&str>) -> Vec<Fault> {
        match &*self.inner {
            Inner::Native { resource, .. } => native::validate_update(resource, object, old, subresource),
            Inner::Custom { structural, .. } => structural.validate_update(object, old, subresource),
        }
    }

    /// Warnings for the client (`Warning` headers) about an accepted object.
    pub fn warnings(&self, object: &Value) -> Vec<String> {
        match &*self.inner {
            Inner::Native { resource, .. } => native::warnings(resource, object),
            Inner::Custom { .. } => Vec::new(),
        }
    }

    /// Strategic merge patch; custom kinds do not support it (a server answers 415).
    pub fn strategic_merge(&self, current: &Value, patch: &Value) -> Result<Value, StrategicError> {
        match &*self.inner {
            Inner::Native { shape, .. } => strategic::merge(current, patch, shape.root()),
            Inner::Custom { .. } => Err(StrategicError::Unsupported),
        }
    }

    /// What field tracking compares a new object with: an object of the kind with nothing set.
    pub fn empty(&self) -> Value {
        match &*self.inner {
            Inner::Native { empty, .. } => empty.clone(),
            Inner::Custom { api_version, kind, .. } => json!({"apiVersion": api_version, "kind": kind}),
        }
    }

    /// Fields that writes through this endpoint cannot own, with all below them.
    pub fn reset_fields(&self, subresource: Option<&str>) -> Set {
        match &*self.inner {
            Inner::Native { resource, .. } => native::reset_fields(resource, subresource),
            Inner::Custom { structural, .. } => structural.reset_fields(subresource),
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(o) = object.as_object_mut() {
        o.remove(field);
    }
}
