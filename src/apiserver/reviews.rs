//! Kinds that are only answered: access reviews, token reviews, token requests.

use http::Response;
use serde_json::Value;

use crate::body::Body;
use crate::core::Call;
use crate::status::ApiError;

pub(crate) fn create(call: &mut Call, object: Value) -> Result<Response<Body>, ApiError> {
    let _ = object;
    Err(ApiError::not_supported(&call.resource.group, &call.resource.plural, "create"))
}

pub(crate) async fn token_request(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let _ = bytes;
    Err(ApiError::not_supported(&call.resource.group, &call.resource.plural, "create"))
}

pub(crate) fn openid(core: &crate::core::Core, path: &str) -> Option<Response<Body>> {
    let _ = (core, path);
    None
}
