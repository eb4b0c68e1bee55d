//! Refusals in the words of Kubernetes: one error type, one table from kind to reason and HTTP code.

use http::StatusCode;
use serde_json::{Map, Value, json};

/// What a refusal is about, in the fields of `details`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Group of the resource, empty for the core group.
    pub group: String,
    /// Plural resource name; for `Invalid` the kind.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Uid of the object.
    pub uid: String,
}

/// One cause in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldManagerConflict`, …
    pub reason: String,
    /// For people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

/// A refused request: becomes a `Status` object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP code.
    pub code: StatusCode,
    /// `NotFound`, `Conflict`, …; empty when Kubernetes gives none.
    pub reason: &'static str,
    /// For people, as Kubernetes words it.
    pub message: String,
    /// What it is about.
    pub about: Option<About>,
    /// Field faults.
    pub causes: Vec<Cause>,
    /// Seconds to wait before the next try.
    pub retry_after: Option<u32>,
    /// Token that lets an expired list go on (inconsistently).
    pub next: Option<String>,
}

/// `plural` or `plural.group`, as messages name a resource.
#[must_use]
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None, causes: Vec::new(), retry_after: None, next: None }
    }

    fn on(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.about = Some(About { group: group.into(), kind: kind.into(), name: name.into(), uid: String::new() });
        self
    }

    /// The object does not exist.
    #[must_use]
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} \"{name}\" not found", qualified(group, plural))).on(group, plural, name)
    }

    /// No such resource (or subresource) is served.
    #[must_use]
    pub fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource").on("", "", "")
    }

    /// The name is taken.
    #[must_use]
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyExists", format!("{} \"{name}\" already exists", qualified(group, plural))).on(group, plural, name)
    }

    /// A precondition does not hold; `why` completes the sentence.
    #[must_use]
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural)))
            .on(group, plural, name)
    }

    /// The revision given is not the stored one.
    #[must_use]
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        Self::conflict(group, plural, name, "the object has been modified; please apply your changes to the latest version and try again")
    }

    /// Server-side apply met other owners.
    #[must_use]
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message).on("", "", "");
        error.causes = causes;
        error
    }

    /// An error that Kubernetes passes on as it is, without a reason.
    #[must_use]
    pub fn unworded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The request makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Field faults; `kind` is the kind, not the resource.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let texts: Vec<String> = causes.iter().map(|c| if c.field.is_empty() { c.message.clone() } else { format!("{}: {}", c.field, c.message) }).collect();
        let text = match texts.as_slice() {
            [] => String::from("<nil>"),
            [one] => one.clone(),
            many => {
                // Equal texts are said once, as Go's aggregate does.
                let mut seen: Vec<&String> = Vec::new();
                for text in many {
                    if !seen.contains(&text) {
                        seen.push(text);
                    }
                }
                match seen.as_slice() {
                    [one] => (*one).clone(),
                    many => format!("[{}]", many.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ")),
                }
            }
        };
        let message = format!("{} \"{name}\" is invalid: {text}", qualified(group, kind));
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).on(group, kind, name);
        error.causes = causes;
        error
    }

    /// Not allowed; `why` completes the sentence.
    #[must_use]
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified(group, plural);
        let message = if name.is_empty() { format!("{resource} is forbidden: {why}") } else { format!("{resource} \"{name}\" is forbidden: {why}") };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).on(group, plural, name)
    }

    /// Not allowed, with the whole message made elsewhere.
    #[must_use]
    pub fn forbidden_with(message: String, about: About) -> Self {
        let mut error = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        error.about = Some(about);
        error
    }

    /// No valid credential.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The method does not exist here.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the server does not allow this method on the requested resource").on("", "", "")
    }

    /// The method does not exist on this resource.
    #[must_use]
    pub fn not_supported(group: &str, plural: &str, verb: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", format!("{verb} is not supported on resources of kind \"{}\"", qualified(group, plural)))
            .on(group, plural, "")
    }

    /// No representation that the client takes.
    #[must_use]
    pub fn not_acceptable(types: &[&str]) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", format!("only the following media types are accepted: {}", types.join(", ")))
    }

    /// A body type that is not read here.
    #[must_use]
    pub fn unsupported_media_type(types: &[&str]) -> Self {
        let message = format!("the body of the request was in an unknown format - accepted media types include: {}", types.join(", "));
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is larger than allowed.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The revision asked for is compacted.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The list goes on only inconsistently.
    #[must_use]
    pub fn continue_expired(next: String) -> Self {
        let mut error = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, \
             or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an \
             inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        error.next = Some(next);
        error
    }

    /// A revision of the future.
    #[must_use]
    pub fn too_new(asked: u64, newest: u64) -> Self {
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: Too large resource version: {asked}, current: {newest}"));
        error.causes = vec![Cause { reason: "ResourceVersionTooLarge".into(), message: "Too large resource version".into(), field: String::new() }];
        error.retry_after = Some(1);
        error
    }

    /// The server cannot do it now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
        error.retry_after = Some(1);
        error
    }

    /// Something failed that the caller cannot mend.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        let message: String = message.into();
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", format!("Internal error occurred: {message}"));
        error.causes = vec![Cause { reason: String::new(), message, field: String::new() }];
        error
    }

    /// Come again later.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.retry_after = (seconds > 0).then_some(seconds);
        error
    }

    /// Adds the uid to `details`.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        self.about.get_or_insert_default().uid = uid.into();
        self
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = Map::new();
        status.insert("kind".into(), json!("Status"));
        status.insert("apiVersion".into(), json!("v1"));
        status.insert("metadata".into(), self.next.as_ref().map_or_else(|| json!({}), |next| json!({ "continue": next })));
        status.insert("status".into(), json!("Failure"));
        status.insert("message".into(), json!(self.message));
        if !self.reason.is_empty() {
            status.insert("reason".into(), json!(self.reason));
        }
        let mut details = Map::new();
        if let Some(about) = &self.about {
            for (key, value) in [("name", &about.name), ("group", &about.group), ("kind", &about.kind), ("uid", &about.uid)] {
                if !value.is_empty() {
                    details.insert(key.into(), json!(value));
                }
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut out = Map::new();
                for (key, value) in [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)] {
                    if !value.is_empty() {
                        out.insert(key.into(), json!(value));
                    }
                }
                Value::Object(out)
            });
            details.insert("causes".into(), causes.collect());
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".into(), json!(seconds));
        }
        if self.about.is_some() || !details.is_empty() {
            status.insert("details".into(), Value::Object(details));
        }
        status.insert("code".into(), json!(self.code.as_u16()));
        Value::Object(status)
    }
}

/// The answer to a removal that is complete.
#[must_use]
pub fn success(group: &str, plural: &str, name: &str, uid: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", plural), ("uid", uid)] {
        if !value.is_empty() {
            details.insert(key.into(), json!(value));
        }
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
