//! Patching shadowed objects: JSON patch, merge patch, strategic merge patch, server-side apply.

use api::object;
use apiserver::body::Body;
use apiserver::status::ApiError;
use http::{Response, StatusCode};
use serde_json::{json, Value};

use super::Call;
use crate::reply::json_body;

impl Call {
    pub(super) async fn patch(&self, content_type: &str, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
        let name = self.info.name.clone();
        let content_type = content_type.split(';').next().unwrap_or_default().trim();
        let patch = read(content_type, bytes)?;
        if content_type == "application/apply-patch+yaml" {
            return self.apply(&name, patch).await;
        }
        let stored = self.stored(&name).await?;
        if self.info.subresource == "scale" {
            let mut scale = super::read::scale(&stored);
            self.change(&mut scale, content_type, &patch)?;
            let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
            return self.set_replicas(&stored, replicas).await;
        }
        let mut object = self.shown(&stored);
        self.change(&mut object, content_type, &patch)?;
        if object::name(&object) != name {
            return Err(ApiError::bad_request("the name of the object cannot be changed by a patch"));
        }
        let next = self.replace(&stored, object).await?;
        Ok(json_body(StatusCode::OK, &self.shown(&next)))
    }

    fn change(&self, object: &mut Value, content_type: &str, patch: &Value) -> Result<(), ApiError> {
        match content_type {
            "application/json-patch+json" => {
                let invalid = |text: String| {
                    let mut error = ApiError::bad_request(text);
                    error.code = StatusCode::UNPROCESSABLE_ENTITY;
                    error.reason = "Invalid";
                    error
                };
                let operations = manifest::patch::parse(patch).map_err(|error| ApiError::bad_request(error.to_string()))?;
                manifest::patch::apply(object, &operations).map_err(|error| invalid(error.to_string()))
            }
            "application/merge-patch+json" => {
                manifest::patch::merge(object, patch);
                Ok(())
            }
            "application/strategic-merge-patch+json" => {
                let kind = self.schema().ok_or_else(|| {
                    ApiError::unsupported_media_type(&["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"])
                })?;
                *object = kind.strategic_merge(object, patch).map_err(|error| ApiError::bad_request(error.to_string()))?;
                Ok(())
            }
            _ => Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ])),
        }
    }

    /// Server-side apply: the applied fields win over the stored template; an absent object is made.
    async fn apply(&self, name: &str, patch: Value) -> Result<Response<Body>, ApiError> {
        if self.query.text("fieldManager").is_none() {
            return Err(ApiError::bad_request("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"));
        }
        let mut sent = self.object(patch.to_string().as_bytes())?;
        if object::name(&sent).is_empty() {
            sent["metadata"]["name"] = json!(name);
        }
        match self.stored(name).await {
            Err(error) if error.code == StatusCode::NOT_FOUND => self.create_applied(&sent).await,
            Err(error) => Err(error),
            Ok(stored) => {
                let live = self.shown(&stored);
                // Lists merge by their keys where the kind says so; without a schema the applied value stands as it is.
                let merged = match self.schema() {
                    Some(kind) => kind.strategic_merge(&live, &sent).map_err(|error| ApiError::bad_request(error.to_string()))?,
                    None => {
                        let mut merged = live.clone();
                        manifest::patch::merge(&mut merged, &sent);
                        merged
                    }
                };
                let next = self.replace(&stored, merged).await?;
                Ok(json_body(StatusCode::OK, &self.shown(&next)))
            }
        }
    }

    async fn create_applied(&self, sent: &Value) -> Result<Response<Body>, ApiError> {
        let mut call = self.clone_for_create();
        call.info.verb = "create";
        call.create(sent.to_string().as_bytes()).await
    }

    fn clone_for_create(&self) -> Call {
        let mut info = self.info.clone();
        info.name.clear();
        Call { shadow: self.shadow.clone(), kind: self.kind.clone(), query: self.query.clone(), accept: self.accept.clone(), info, untried: self.untried.clone() }
    }

    fn schema(&self) -> Option<schema::Kind> {
        if self.kind.custom {
            return None;
        }
        let found = schema::catalog::find(&self.kind.group, &self.kind.version, &self.kind.plural)?;
        schema::Kind::native(found)
    }
}

fn read(content_type: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    let fault = |error: String| ApiError::bad_request(format!("read the patch: {error}"));
    if content_type == "application/apply-patch+yaml" {
        let input = apiserver::input::yaml(bytes)?;
        return Ok(input.value);
    }
    serde_json::from_slice(bytes).map_err(|error| fault(error.to_string()))
}
