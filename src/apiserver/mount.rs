//! Where other parts hang their own handlers into the server: the hub's sockets and its shadow API.

use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;

use crate::auth::Identity;
use crate::body::Body;
use crate::path::Info;

/// A group version that a mount adds to discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct MountedGroup {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// `APIResource` objects as the legacy discovery document lists them (`name`, `singularName`, `namespaced`, `kind`, `verbs`, …).
    pub resources: Vec<Value>,
    /// `insecure` discovery says nothing of freshness; `true` marks the group as stale (its backend does not answer).
    pub stale: bool,
}

/// Handlers for paths that the server does not serve itself. The caller is authenticated and authorised already.
/// Upgrades (`hyper::upgrade::on`) work on the request as it is handed over.
pub trait Mount: Send + Sync + 'static {
    /// Paths that belong to the mount, such as `/apis/proxies.clusternet.io`; whole segments are compared.
    fn prefixes(&self) -> Vec<String>;

    /// Group versions for discovery.
    fn groups(&self) -> Vec<MountedGroup>;

    /// Answers a request.
    fn call(&self, who: Identity, info: Info, request: Request<Body>) -> BoxFuture<'static, Response<Body>>;
}

/// Whether a path belongs to a mount.
pub(crate) fn covers(mount: &dyn Mount, path: &str) -> bool {
    mount.prefixes().iter().any(|prefix| {
        // `/apis/g` and `/apis/g/v1` are discovery, which the server answers for all.
        path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('/') && rest.trim_matches('/').split('/').count() > 1)
    })
}
