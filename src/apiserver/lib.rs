//! Kubernetes-style REST over store: strategies, watch, discovery, OpenAPI, admission, authentication and authorization.
//!
//! [`ApiServer`] is one server: the same router answers in process ([`ApiServer::service`], for a client over a tower
//! service) and over TLS ([`ApiServer::serve`]). A request passes, in this order: authentication, impersonation,
//! authorization, mounts, decoding, defaulting, preparation, admission, validation, store.
//!
//! Invariants: an answer that says a write was done is sent only after the store made it durable; objects are changed only
//! by a cycle that states the revision it read; nothing here waits while it holds a lock.

pub mod accept;
pub mod admission;
mod aggregate;
pub mod auth;
pub mod body;
mod boot;
pub mod controllers;
mod conversion;
mod convert;
pub mod core;
pub mod crd;
mod crd_cleanup;
mod defaults;
mod delete;
mod discovery;
mod exposition;
mod fairness;
mod flowcontrol;
pub mod guard;
mod hooks;
pub mod input;
pub mod internal;
mod jsonpath;
mod kinds;
mod limits;
pub mod load;
mod metrics;
pub mod mount;
mod nodeless;
pub mod object;
mod openapi;
mod outbound;
pub mod patch;
pub mod path;
mod paths;
mod pieces;
mod pod_printer;
mod pod_security;
mod policies;
mod printers;
mod protobuf;
pub mod query;
mod read;
mod remote;
pub mod resource;
mod respond;
mod rest;
mod reviews;
pub mod selector;
pub mod serve;
pub mod services;
pub mod status;
mod subresource;
mod swagger;
pub mod table;
mod trust;
mod update;
mod watch;
mod webhooks;
mod wire;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use store::Store;
use tokio_util::sync::CancellationToken;

pub use crate::auth::Identity;
pub use crate::body::{Body, BoxError};
pub use crate::core::Core;
pub use crate::mount::{Mount, MountedGroup};
pub use crate::serve::Service;

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where objects are kept.
    pub store: Store,
    /// Version of the Kubernetes API that is said to be served, such as `v1.37.2`.
    pub version: String,
    /// Address and port that clients are told.
    pub advertise: (IpAddr, u16),
    /// Addresses of Services.
    pub service_range: services::Range,
    /// Pods need an existing ServiceAccount and get its token (as on a real server). Off where no controller makes accounts.
    pub service_accounts: bool,
    /// Make the Service `default/kubernetes` and the system priority classes.
    pub own_service: bool,
    /// Make the rest of what a real server starts with: FlowSchemas, priority levels, the range of Service addresses. Off for
    /// simulated children, which come by the thousand.
    pub full: bool,
    /// The clock.
    pub now: fn() -> jiff::Timestamp,
    /// Ends watches and listeners.
    pub shutdown: CancellationToken,
}

impl Options {
    /// A server over this store, as a simulated child or a test wants it.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self {
            store,
            version: "v1.37.2".into(),
            advertise: (IpAddr::from([127, 0, 0, 1]), 6443),
            service_range: services::Range::default(),
            service_accounts: false,
            own_service: false,
            full: false,
            now: jiff::Timestamp::now,
            shutdown: CancellationToken::new(),
        }
    }
}

/// One API server; cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiServer {
    core: Arc<Core>,
}

impl ApiServer {
    /// Builds a server: reads its definitions, makes the default namespaces. Needs a tokio runtime.
    pub async fn build(options: Options) -> Self {
        let core = Core::new(options);
        boot::run(&core).await;
        Self { core }
    }

    /// The server as a service for one caller: what `kube::Client::new` takes.
    #[must_use]
    pub fn service(&self, who: Identity) -> Service {
        Service::new(self.core.clone(), who)
    }

    /// Answers one request.
    pub async fn request<B>(&self, who: Identity, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.core.clone().serve(who, request).await
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    /// The server's inner state, for controllers and admission.
    #[must_use]
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Hangs in handlers for further paths.
    pub fn mount(&self, mount: Arc<dyn Mount>) {
        self.core.mounts.write().push(mount);
    }

    /// Hangs in a step of admission.
    pub fn admit(&self, step: Arc<dyn admission::Admission>) {
        self.core.admission.write().push(step);
    }

    /// Checks requests against credentials and rules from now on, and makes the default roles that are missing. Without
    /// this everybody may do everything.
    pub async fn secure(&self, pki: Option<Arc<auth::Pki>>, static_tokens: Vec<auth::authenticate::StaticToken>) -> Arc<guard::Guard> {
        boot::roles(&self.core).await;
        let guard = Arc::new(guard::Guard::new(self, pki, static_tokens));
        *self.core.guard.write() = Some(guard.clone());
        if self.core.options.full && let Some(pki) = &guard.pki {
            boot::front_proxy(&self.core, pki).await;
        }
        guard
    }

    /// Whether the server serves and its store takes writes.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.core.is_ready()
    }
}
