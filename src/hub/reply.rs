//! Answers that the hub gives itself: Kubernetes `Status` bodies.

use apiserver::body::{full, Body};
use http::{header, HeaderValue, Response, StatusCode};
use serde_json::{json, Value};

/// A `Status` failure in Kubernetes' form.
pub(crate) fn failure(code: StatusCode, reason: &str, message: impl Into<String>) -> Response<Body> {
    json_body(
        code,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "reason": reason, "code": code.as_u16(),
        }),
    )
}

/// Any JSON answer.
pub(crate) fn json_body(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
