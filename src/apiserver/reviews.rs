//! Kinds that are only answered: access reviews, token reviews, token requests; and the issuer's own documents.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::accept::Encoding;
use crate::auth::fault::Fault;
use crate::auth::{jwt, reviews};
use crate::body::Body;
use crate::core::{Call, Core};
use crate::guard::Guard;
use crate::input;
use crate::object;
use crate::respond::{self, Doc, answer};
use crate::status::{About, ApiError, Cause};

fn guard_of(core: &Core) -> Arc<Guard> {
    core.guard.read().clone().unwrap_or_else(|| Arc::new(Guard::open(core)))
}

fn error_of(fault: &Fault) -> ApiError {
    let status = fault.to_status();
    let code = StatusCode::from_u16(fault.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = |path: &[&str]| object::text(&status, path).to_owned();
    let about = About { group: text(&["details", "group"]), kind: text(&["details", "kind"]), name: text(&["details", "name"]), uid: String::new() };
    let mut error = ApiError::forbidden_with(fault.to_string(), about);
    error.code = code;
    error.reason = match fault {
        Fault::BadRequest(_) => "BadRequest",
        Fault::Forbidden(_) => "Forbidden",
        Fault::NotFound(..) => "NotFound",
        Fault::Conflict(..) => "Conflict",
        Fault::Invalid { .. } => "Invalid",
        Fault::Internal(_) => "InternalError",
    };
    let causes = object::at(&status, &["details", "causes"]).and_then(Value::as_array);
    let part = |cause: &Value, field: &str| object::text(cause, &[field]).to_owned();
    error.causes = causes.into_iter().flatten().map(|c| Cause { reason: part(c, "reason"), message: part(c, "message"), field: part(c, "field") }).collect();
    error
}

/// Answers a posted review.
pub(crate) fn create(call: &mut Call, review: Value) -> Result<Response<Body>, ApiError> {
    let guard = guard_of(&call.core);
    let namespace = if call.resource.namespaced { call.info.namespace.clone() } else { String::new() };
    let answered = reviews::answer(&guard.authenticator, &guard.authorizer, &call.who, &call.resource.kind, &namespace, &review, call.core.now());
    match answered {
        Some(Ok(mut value)) => {
            let version = call.resource.api_version();
            let map = object::child_root(&mut value);
            map.insert("apiVersion".into(), json!(version));
            map.insert("kind".into(), json!(call.resource.kind));
            if namespace.is_empty() {
                object::metadata(&mut value).remove("namespace");
            }
            Ok(answer(call, StatusCode::CREATED, Doc::Value(value)))
        }
        Some(Err(fault)) => Err(error_of(&fault)),
        // `bindings`, posted to the collection, name their Pod inside.
        None if call.resource.is("", "bindings") => Err(ApiError::bad_request("post the binding to the Pod's subresource pods/binding")),
        None => Err(ApiError::method_not_allowed()),
    }
}

/// `serviceaccounts/token`.
pub(crate) async fn token_request(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let name = call.info.name.clone();
    if call.core.store.get(&call.resource.table, &call.key(&name)).is_none() {
        return Err(call.not_found(&name));
    }
    let guard = guard_of(&call.core);
    let Some(pki) = &guard.pki else { return Err(ApiError::unavailable("this server has no key to sign tokens with")) };
    let mut body = input::read(call.content_type.as_deref(), bytes)?.value;
    if !body.is_object() {
        body = json!({});
    }
    let id = uuid::Uuid::new_v4().to_string();
    let issuer = pki.service_account_issuer();
    let mut value = reviews::token_request(&issuer, &*guard.objects, &call.info.namespace, &name, &body, &id, call.core.now()).map_err(|f| error_of(&f))?;
    let map = object::child_root(&mut value);
    map.insert("apiVersion".into(), json!("authentication.k8s.io/v1"));
    map.insert("kind".into(), json!("TokenRequest"));
    Ok(answer(call, StatusCode::CREATED, Doc::Value(value)))
}

/// The documents by which others check ServiceAccount tokens.
pub(crate) fn openid(core: &Core, path: &str) -> Option<Response<Body>> {
    let guard = core.guard.read().clone()?;
    let issuer = guard.pki.as_ref()?.service_account_issuer();
    let value = match path.trim_end_matches('/') {
        "/.well-known/openid-configuration" => jwt::discovery(&format!("https://{}:{}", core.options.advertise.0, core.options.advertise.1)),
        "/openid/v1/jwks" => issuer.key_set(),
        _ => return None,
    };
    Some(respond::value(StatusCode::OK, &value, Encoding::Json, false))
}
