//! A write to the server, as the REST request it becomes.

use std::borrow::Cow;

use serde_json::{json, Value};

use super::Kind;
use crate::auth::text;

/// How an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Dependents go later, by the garbage collector.
    Background,
    /// Dependents go first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl Delete {
    fn policy(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// One request to the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// HTTP method.
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Value,
    /// Answers that count as success besides 2xx: the aim is reached already.
    pub fine: &'static [u16],
    /// Makes an event: sent aside, never waited for by the next stage, its failure is no failure.
    pub aside: bool,
}

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{method} {path}: {code} {message}")]
pub struct CallError {
    /// HTTP method of the call.
    pub method: &'static str,
    /// Path of the call.
    pub path: String,
    /// HTTP code, 0 when there was no answer.
    pub code: u16,
    /// The reason of the answer's `Status`.
    pub reason: String,
    /// Its message.
    pub message: String,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// The URL path of a collection, or of one object when `name` is not empty.
pub fn path(api_version: &str, plural: &str, namespace: &str, name: &str) -> String {
    let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
    let mut out = format!("{root}{api_version}");
    if !namespace.is_empty() {
        out.push_str("/namespaces/");
        out.push_str(namespace);
    }
    out.push('/');
    out.push_str(plural);
    if !name.is_empty() {
        out.push('/');
        out.push_str(&encode(name));
    }
    out
}

/// RBAC names may hold characters that a URL path may not.
fn encode(name: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if name.bytes().all(plain) {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    for byte in name.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(out)
}

impl Call {
    fn new(method: &'static str, path: String, content_type: &'static str, body: Value) -> Self {
        Self { method, path, content_type, body, fine: &[], aside: false }
    }

    /// Creates an object; its kind and apiVersion are filled in.
    pub fn create(kind: &Kind, namespace: &str, mut object: Value) -> Self {
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.kind);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let fine: &'static [u16] = if text(&object, &["metadata", "name"]).is_empty() { &[] } else { &[409] };
        Self { fine, ..Self::new("POST", path(kind.api_version, kind.plural, namespace, ""), JSON, object) }
    }

    /// Replaces an object (or a subresource of it); its resourceVersion is the precondition.
    pub fn update(kind: &Kind, subresource: &str, object: Value) -> Self {
        let (namespace, name) = (text(&object, &["metadata", "namespace"]), text(&object, &["metadata", "name"]));
        let mut path = path(kind.api_version, kind.plural, namespace, name);
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        Self::new("PUT", path, JSON, object)
    }

    /// Replaces the status of an object, keeping its resourceVersion as precondition.
    pub fn status(kind: &Kind, object: &Value, status: Value) -> Self {
        let mut object = object.clone();
        object["status"] = status;
        Self { fine: &[404], ..Self::update(kind, "status", object) }
    }

    /// Merges a patch into an object (or a subresource).
    pub fn merge(kind: &Kind, namespace: &str, name: &str, subresource: &str, patch: Value) -> Self {
        let mut path = path(kind.api_version, kind.plural, namespace, name);
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        Self { fine: &[404], ..Self::new("PATCH", path, MERGE, patch) }
    }

    /// Merges a patch into an object of any kind.
    pub fn merge_at(api_version: &str, plural: &str, namespace: &str, name: &str, patch: Value) -> Self {
        Self { fine: &[404], ..Self::new("PATCH", path(api_version, plural, namespace, name), MERGE, patch) }
    }

    /// Deletes an object of any kind if it still has this uid (no precondition when empty).
    pub fn delete_at(api_version: &str, plural: &str, namespace: &str, name: &str, uid: &str, how: Delete) -> Self {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": how.policy()});
        if !uid.is_empty() {
            options["preconditions"] = json!({"uid": uid});
        }
        // Gone, or another object of that name by now: what was to be deleted is not there.
        Self { fine: &[404, 409], ..Self::new("DELETE", path(api_version, plural, namespace, name), JSON, options) }
    }

    /// Deletes an object of a kind, with its uid as precondition.
    pub fn delete(kind: &Kind, object: &Value, how: Delete) -> Self {
        let field = |name: &str| text(object, &["metadata", name]);
        Self::delete_at(kind.api_version, kind.plural, field("namespace"), field("name"), field("uid"), how)
    }

    /// Sets the grace period of a deletion, in seconds.
    pub fn grace(mut self, seconds: i64) -> Self {
        self.body["gracePeriodSeconds"] = json!(seconds);
        self
    }

    /// Sent aside: nothing waits for it and nothing fails by it.
    pub fn aside(mut self) -> Self {
        self.aside = true;
        self
    }

    /// Tells people something about an object: an Event beside it, sent aside. `component` is the controller that speaks.
    pub fn event(object: &Value, warning: bool, reason: &str, message: &str, component: &str, now: jiff::Timestamp) -> Self {
        let field = |name: &str| text(object, &["metadata", name]);
        let namespace = if field("namespace").is_empty() { "default" } else { field("namespace") };
        // Two words about one object at one instant are two events.
        let words = reason.bytes().chain(message.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let nanos = u64::try_from(now.as_nanosecond()).unwrap_or(0);
        let at = crate::object::instant(now);
        let event = json!({
            "metadata": {"name": format!("{}.{:016x}", field("name"), nanos ^ words), "namespace": namespace},
            "involvedObject": {
                "apiVersion": text(object, &["apiVersion"]), "kind": text(object, &["kind"]), "namespace": field("namespace"), "name": field("name"),
                "uid": field("uid"), "resourceVersion": field("resourceVersion"),
            },
            "type": if warning { "Warning" } else { "Normal" }, "reason": reason, "message": message, "count": 1, "firstTimestamp": at, "lastTimestamp": at,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        });
        Self::create(&super::kinds::EVENT, namespace, event).aside()
    }

    /// The error of an answer that is no success.
    pub fn error(&self, code: u16, body: &Value) -> CallError {
        CallError {
            method: self.method,
            path: self.path.clone(),
            code,
            reason: text(body, &["reason"]).into(),
            message: text(body, &["message"]).into(),
        }
    }
}
