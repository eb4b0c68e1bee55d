//! Stands in for `schema::Kind` until that is there.

use schema::Fault;
use schema::decode::{self, DecodeError, Decoded};
use schema::catalog;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Kind(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Native(schema::Shape, &'static catalog::Resource),
    Custom(bool),
}

impl Kind {
    pub fn native(resource: &'static catalog::Resource) -> Option<Self> {
        Some(Self(Arc::new(Inner::Native(schema::table::native(resource.group, resource.version, resource.kind)?, resource))))
    }
    pub fn custom(crd: &Value, version: &str) -> Result<Self, Vec<Fault>> {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default();
        let v = versions.iter().find(|v| v["name"] == version).cloned().unwrap_or_default();
        Ok(Self(Arc::new(Inner::Custom(v.pointer("/subresources/status").is_some()))))
    }
    pub fn decode(&self, object: Value) -> Result<Decoded, DecodeError> {
        match &*self.0 {
            Inner::Native(shape, _) => decode::decode(object, shape.root()),
            Inner::Custom(_) => Ok(Decoded { object, unknown: Vec::new() }),
        }
    }
    pub fn default(&self, _: &mut Value) {}
    fn status(&self) -> bool {
        match &*self.0 {
            Inner::Native(_, r) => r.subresource("status").is_some(),
            Inner::Custom(status) => *status,
        }
    }
    pub fn prepare_create(&self, object: &mut Value) {
        let events = matches!(&*self.0, Inner::Native(_, r) if r.kind == "Namespace");
        if self.status() && !events {
            crate::object::child_root(object).remove("status");
        }
        let wants = match &*self.0 {
            Inner::Native(_, r) => matches!(r.kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "CustomResourceDefinition" | "Ingress" | "NetworkPolicy" | "PodDisruptionBudget"),
            Inner::Custom(_) => true,
        };
        if wants {
            crate::object::metadata(object).insert("generation".into(), json!(1));
        }
    }
    pub fn prepare_update(&self, object: &mut Value, old: &Value, subresource: Option<&str>) {
        let root = crate::object::child_root(object);
        if subresource == Some("status") {
            let status = root.remove("status");
            let metadata = root.get("metadata").cloned();
            *root = old.as_object().cloned().unwrap_or_default();
            if let Some(status) = status {
                root.insert("status".into(), status);
            }
            if let (Some(m), Inner::Native(..)) = (metadata, &*self.0) {
                root.insert("metadata".into(), m);
            }
            return;
        }
        if self.status() && subresource.is_none() {
            match old.get("status") {
                Some(status) => { root.insert("status".into(), status.clone()); }
                None => { root.remove("status"); }
            }
        }
        let strip = |v: &Value| { let mut m = v.as_object().cloned().unwrap_or_default(); m.remove("metadata"); m.remove("status"); m };
        if let Some(generation) = old.pointer("/metadata/generation").and_then(Value::as_i64)
            && strip(old) != strip(object) {
            crate::object::metadata(object).insert("generation".into(), json!(generation + 1));
        }
    }
    pub fn validate_create(&self, _: &Value) -> Vec<Fault> { Vec::new() }
    pub fn validate_update(&self, _: &Value, _: &Value, _: Option<&str>) -> Vec<Fault> { Vec::new() }
    pub fn warnings(&self, _: &Value) -> Vec<String> { Vec::new() }
    pub fn strategic_merge(&self, current: &Value, patch: &Value) -> Result<Value, String> {
        let mut new = current.clone();
        manifest::patch::merge(&mut new, patch);
        Ok(new)
    }
}
