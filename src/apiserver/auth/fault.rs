//! A refused or broken request as a Kubernetes `Status`.

use serde_json::{json, Value};

use super::{quoted, Refusal};

/// One field that is wrong: `field`, cause reason (`FieldValueInvalid` …) and the message after the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field.
    pub field: String,
    /// Kubernetes' cause type.
    pub reason: &'static str,
    /// What is wrong, with the value.
    pub message: String,
}

impl Cause {
    /// `Invalid value: …`.
    pub fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        let shown = match value {
            Value::String(text) => quoted(text),
            other => other.to_string(),
        };
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {shown}: {detail}") }
    }
}

/// Why a request of this module is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// 403.
    #[error("{}", .0.message)]
    Forbidden(Refusal),
    /// 404 for a resource and a name.
    #[error("{resource} {name} not found", resource = .0, name = quoted(.1))]
    NotFound(String, String),
    /// 409 on a resource and a name.
    #[error("Operation cannot be fulfilled on {resource} {name}: {detail}", resource = .0, name = quoted(.1), detail = .2)]
    Conflict(String, String, String),
    /// 422 of a kind (with group) and a name.
    #[error("{}", invalid_message(.kind, .group, .name, .causes))]
    Invalid {
        /// Kind of the object.
        kind: String,
        /// Its API group.
        group: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        causes: Vec<Cause>,
    },
    /// 500.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

fn invalid_message(kind: &str, group: &str, name: &str, causes: &[Cause]) -> String {
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let all = if lines.len() == 1 { lines.concat() } else { format!("[{}]", lines.join(", ")) };
    format!("{kind} {} is invalid: {all}", quoted(name))
}

impl Fault {
    /// HTTP code.
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Forbidden(_) => 403,
            Self::NotFound(..) => 404,
            Self::Conflict(..) => 409,
            Self::Invalid { .. } => 422,
            Self::Internal(_) => 500,
        }
    }

    /// The whole `Status` object.
    pub fn to_status(&self) -> Value {
        let (reason, details) = match self {
            Self::BadRequest(_) => ("BadRequest", Value::Null),
            Self::Forbidden(refusal) => ("Forbidden", details(&refusal.name, &refusal.group, &refusal.kind)),
            Self::NotFound(resource, name) => ("NotFound", named(resource, name)),
            Self::Conflict(resource, name, _) => ("Conflict", named(resource, name)),
            Self::Invalid { kind, group, name, causes } => {
                let mut details = details(name, group, kind);
                let causes: Vec<Value> = causes
                    .iter()
                    .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
                    .collect();
                details["causes"] = Value::Array(causes);
                ("Invalid", details)
            }
            Self::Internal(text) => ("InternalError", json!({"causes": [{"message": text}]})),
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": reason, "code": self.code(),
        });
        if !details.is_null() {
            status["details"] = details;
        }
        status
    }
}

fn named(resource: &str, name: &str) -> Value {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    details(name, group, kind)
}

fn details(name: &str, group: &str, kind: &str) -> Value {
    let mut out = serde_json::Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            out.insert(key.into(), json!(value));
        }
    }
    Value::Object(out)
}
