//! The shadow API: every kind of the parent once more under `shadow/v1alpha1`, stored as Manifests instead of taking effect.
//!
//! Where the original loses something on the way, this does not: a replaced object keeps the label of its creator and its
//! uid, `dryRun=All` stores nothing, strategic merge patches and server-side apply work for built-in kinds, groups do not
//! mix, and a CRD whose plural a built-in kind has never takes that kind's routes away.

mod patch;
mod read;
mod resources;
mod write;
#[cfg(test)]
mod write_tests;

use std::sync::{Arc, OnceLock};

use apiserver::body::{self, Body};
use apiserver::path::Info;
use apiserver::query::Query;
use apiserver::status::ApiError;
use cluster::Dynamic;
use http::{Request, Response, StatusCode};
use serde_json::Value;

pub use resources::{Resources, Shadowed};

use crate::reply::json_body;

/// The group version of the shadow API.
pub const PREFIX: &str = "/apis/shadow/v1alpha1";

/// Field manager of what the hub writes.
const MANAGER: &str = "clusternet-hub";

/// The shadow API over one parent. Cloning shares it.
#[derive(Clone)]
pub struct Shadow {
    inner: Arc<Inner>,
}

struct Inner {
    parent: Dynamic,
    manifests: cluster::Resource,
    reserved: String,
    resources: Resources,
}

/// One request with what it is about.
struct Call {
    shadow: Shadow,
    kind: Arc<Shadowed>,
    info: Info,
    query: Query,
    accept: String,
    /// Set where the parent could not be asked about the object.
    untried: Arc<OnceLock<()>>,
}

impl Shadow {
    /// A shadow API that stores Manifests in the namespace `reserved` of the parent.
    pub fn new(parent: kube::Client, reserved: &str) -> Shadow {
        let parent = Dynamic::new(parent);
        let manifests = cluster::Resource {
            group: "apps.clusternet.io".to_owned(),
            version: "v1alpha1".to_owned(),
            kind: "Manifest".to_owned(),
            plural: "manifests".to_owned(),
            namespaced: true,
        };
        let resources = Resources::new(parent.clone());
        Shadow { inner: Arc::new(Inner { parent, manifests, reserved: reserved.to_owned(), resources }) }
    }

    /// What is shadowed; follows the CRDs of the parent.
    pub fn resources(&self) -> &Resources {
        &self.inner.resources
    }

    /// Answers a request of an authorised caller.
    pub async fn handle(&self, info: Info, request: Request<Body>) -> Response<Body> {
        match self.answer(info, request).await {
            Ok(response) => response,
            Err(error) => json_body(error.code, &error.to_status()),
        }
    }

    async fn answer(&self, info: Info, request: Request<Body>) -> Result<Response<Body>, ApiError> {
        if info.resource.is_empty() {
            let resources = self.inner.resources.discovery().await.map_err(unavailable)?;
            let list = serde_json::json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "shadow/v1alpha1", "resources": resources,
            });
            return Ok(json_body(StatusCode::OK, &list));
        }
        let kind = self.inner.resources.find(&info.resource).await.map_err(unavailable)?.ok_or_else(ApiError::no_route)?;
        let (parts, body) = request.into_parts();
        let header = |name: http::header::HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let call = Call {
            shadow: self.clone(),
            kind,
            query: Query::parse(parts.uri.query()),
            accept: header(http::header::ACCEPT),
            info,
            untried: Arc::default(),
        };
        call.check_subresource()?;
        let mut response = call.dispatch(header, body).await?;
        if let Some(warning) = call.warning() {
            response.headers_mut().append(http::header::WARNING, warning);
        }
        Ok(response)
    }
}

impl Call {
    async fn dispatch(&self, header: impl Fn(http::header::HeaderName) -> String, body: Body) -> Result<Response<Body>, ApiError> {
        let call = self;
        match call.info.verb {
            "get" => call.get().await,
            "list" => call.list().await,
            "watch" => call.watch().await,
            "create" => call.create(&body::read(body).await?).await,
            "update" => call.update(&body::read(body).await?).await,
            "patch" => call.patch(&header(http::header::CONTENT_TYPE), &body::read(body).await?).await,
            "delete" => call.delete(&body::read(body).await?).await,
            // On purpose nothing: the controller that empties a deleted namespace would otherwise wipe the templates.
            "deletecollection" => Ok(json_body(StatusCode::OK, &call.empty_list())),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// What the caller should know although the object was stored.
    fn warning(&self) -> Option<http::HeaderValue> {
        self.untried.get()?;
        let (plural, group) = (&self.kind.plural, &self.kind.group);
        http::HeaderValue::from_str(&format!("299 - \"stored untried: the hub may not create {plural}.{group} in the parent; add the group to hub.tries of its chart\"")).ok()
    }

    fn inner(&self) -> &Inner {
        &self.shadow.inner
    }

    fn check_subresource(&self) -> Result<(), ApiError> {
        match self.info.subresource.as_str() {
            "" => Ok(()),
            "scale" if self.kind.scale => match self.info.verb {
                "get" | "update" | "patch" => Ok(()),
                _ => Err(ApiError::method_not_allowed()),
            },
            "status" if self.kind.status => match self.info.verb {
                "get" => Ok(()),
                // Templates have no status to write.
                _ => Err(ApiError::method_not_allowed()),
            },
            _ => Err(ApiError::no_route()),
        }
    }

    /// Name of the Manifest of the object the request is about.
    fn manifest_name(&self, name: &str) -> String {
        plan::shadow::manifest_name(&self.kind.plural, &self.namespace(), name)
    }

    fn namespace(&self) -> String {
        if self.kind.namespaced { self.info.namespace.clone() } else { String::new() }
    }

    /// The stored Manifest; absence is worded as the absence of the object.
    async fn stored(&self, name: &str) -> Result<Value, ApiError> {
        let inner = self.inner();
        let found = inner.parent.get_opt(&inner.manifests, &inner.reserved, &self.manifest_name(name)).await;
        found.map_err(passed_on)?.ok_or_else(|| self.not_found(name))
    }

    fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.kind.group, &self.kind.plural, name)
    }

    /// What a caller sees of a Manifest.
    fn shown(&self, manifest: &Value) -> Value {
        plan::shadow::shown(manifest)
    }

    fn empty_list(&self) -> Value {
        serde_json::json!({"apiVersion": self.kind.api_version(), "kind": self.kind.list_kind, "metadata": {}, "items": []})
    }
}

/// A refusal of the parent, passed on as it is.
fn passed_on(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => {
            let mut error = ApiError::internal(status.message.clone());
            error.code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            error.reason = reason(&status.reason);
            error.message = status.message.clone();
            error
        }
        other => ApiError::unavailable(format!("the parent does not answer: {other}")),
    }
}

/// The closed list of reasons as the API knows them.
fn reason(text: &str) -> &'static str {
    const KNOWN: [&str; 16] = [
        "BadRequest", "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout",
        "Timeout", "TooManyRequests", "MethodNotAllowed", "UnsupportedMediaType", "RequestEntityTooLarge", "ServiceUnavailable", "Expired",
    ];
    KNOWN.iter().find(|known| **known == text).copied().unwrap_or("InternalError")
}

fn unavailable(error: Arc<dyn std::error::Error + Send + Sync>) -> ApiError {
    ApiError::unavailable(format!("the parent's resources cannot be discovered: {error}"))
}
