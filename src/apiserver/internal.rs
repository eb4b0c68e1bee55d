//! The server's requests to itself.

use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::auth::Identity;
use crate::body;
use crate::core::Core;
use crate::object;
use crate::status::{About, ApiError};

/// The path of a collection or an object.
#[must_use]
pub fn path(group: &str, version: &str, namespace: &str, plural: &str, name: &str) -> String {
    let mut out = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    if !namespace.is_empty() {
        out.push_str("/namespaces/");
        out.push_str(namespace);
    }
    out.push('/');
    out.push_str(plural);
    if !name.is_empty() {
        out.push('/');
        out.push_str(&encoded(name));
    }
    out
}

/// A name as a path segment.
fn encoded(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&b);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// One request; the answer is the object, or the refusal.
pub async fn request(core: &Arc<Core>, who: &Identity, method: Method, path: &str, content_type: &str, body: Option<&Value>) -> Result<Value, ApiError> {
    let bytes = body.map(|b| serde_json::to_vec(b).unwrap_or_default()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).header("user-agent", "kube-apiserver");
    let request = request.body(body::full(bytes)).map_err(|e| ApiError::internal(e.to_string()))?;
    let response = Box::pin(core.clone().serve(who.clone(), request)).await;
    let code = response.status();
    let bytes = response.into_body().collect().await.map_err(|e| ApiError::internal(e.to_string()))?.to_bytes();
    let value = object::decode(&bytes);
    if code.is_success() {
        return Ok(value);
    }
    let reasons = [
        "NotFound", "AlreadyExists", "Conflict", "Invalid", "Forbidden", "BadRequest", "Expired", "Timeout", "ServiceUnavailable", "InternalError",
        "TooManyRequests", "Unauthorized", "MethodNotAllowed",
    ];
    let said = object::text(&value, &["reason"]);
    let mut error = ApiError::forbidden_with(object::text(&value, &["message"]).to_owned(), About::default());
    error.code = code;
    error.reason = reasons.iter().find(|r| **r == said).copied().unwrap_or("");
    Err(error)
}
