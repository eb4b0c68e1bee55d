//! Requests into children: finds the cluster, takes its tunnel, forwards, streams the answer back.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::clusters::ManagedCluster;
use apiserver::auth::Identity;
use apiserver::body::Body;
use engine::{Cache, Tasks};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{header, HeaderMap, HeaderName, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::connector::Connector;
use crate::credentials::{self, Certificate, DEPLOYER_SECRET};
use crate::locate::{self, Route, Wanted};
use crate::reply::{failure, json_body};
use crate::sessions::Sessions;
use crate::sockets;

type Pool = Client<Connector, Body>;

/// Pools kept for callers that bring a client certificate; more distinct ones than this share nothing.
const CERTIFICATE_POOLS: usize = 256;
/// Idle connections kept per child, as many as a busy API server's clients use.
const IDLE_PER_CHILD: usize = 64;

/// The proxy. Cloning shares it.
#[derive(Clone)]
pub struct Proxy {
    inner: Arc<Inner>,
}

struct Inner {
    sessions: Sessions,
    clusters: Cache<ManagedCluster>,
    secrets: Cache<Secret>,
    tasks: Tasks,
    pools: Mutex<BTreeMap<PoolKey, Pool>>,
}

/// What makes connections interchangeable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PoolKey {
    cluster_id: String,
    ca: Vec<u8>,
    certificate: Option<Certificate>,
}

impl Proxy {
    /// A proxy over caches of clusters (see [`locate::clusters`]) and of the `child-cluster-deployer` Secrets.
    pub fn new(sessions: Sessions, clusters: Cache<ManagedCluster>, secrets: Cache<Secret>, tasks: Tasks) -> Proxy {
        Proxy { inner: Arc::new(Inner { sessions, clusters, secrets, tasks, pools: Mutex::default() }) }
    }

    /// Deployers' credentials, by dedicated namespace.
    pub(crate) fn secrets(&self) -> &Cache<Secret> {
        &self.inner.secrets
    }

    /// The open tunnels.
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// Answers a request under [`locate::PREFIX`] of an authorised caller.
    pub async fn handle(&self, caller: &Identity, request: Request<Body>) -> Response<Body> {
        match locate::route(request.uri().path()) {
            Route::Discovery => json_body(StatusCode::OK, &discovery()),
            Route::Socket(cluster_id) => sockets::accept(&self.inner.sessions, &self.inner.tasks, cluster_id, request),
            Route::Proxy { cluster, target, path } => self.forward(caller, &cluster, &target, &path, request).await,
            Route::None => failure(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
        }
    }

    async fn forward(&self, caller: &Identity, wanted: &str, target: &Wanted, path: &str, mut request: Request<Body>) -> Response<Body> {
        let Some(cluster) = locate::find(&self.inner.clusters, wanted) else {
            return failure(StatusCode::BAD_REQUEST, "BadRequest", format!("no cluster has the id or name {wanted}"));
        };
        let cluster_id = &cluster.spec.cluster_id;
        if self.inner.sessions.get(cluster_id).is_none() {
            return failure(StatusCode::BAD_REQUEST, "BadRequest", format!("cannot find an established tunnel for cluster {wanted}: its agent is not connected"));
        }
        let secret = self.inner.secrets.get(cluster.metadata.namespace.as_deref().unwrap_or_default(), DEPLOYER_SECRET);
        let uri = match destination(&cluster, target, path, request.uri().query()) {
            Ok(uri) => uri,
            Err(message) => return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message),
        };
        let headers = request.headers_mut();
        let upgrade = headers.contains_key(header::UPGRADE);
        // Only the child's API server gets a credential; other endpoints get what the caller sent, less the parent's own.
        let certificate = match target {
            Wanted::Direct => match credentials::enter(headers, caller, &cluster, secret.as_deref()) {
                Ok(certificate) => certificate,
                Err(error) => return failure(StatusCode::BAD_REQUEST, "BadRequest", error.to_string()),
            },
            Wanted::Endpoint { .. } => {
                headers.remove(header::AUTHORIZATION);
                None
            }
        };
        hop_by_hop(headers, upgrade);
        if let Some(authority) = uri.authority().and_then(|a| http::HeaderValue::try_from(a.as_str()).ok()) {
            headers.insert(header::HOST, authority);
        }
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_11;
        let client_side = upgrade.then(|| hyper::upgrade::on(&mut request));
        let pool = match self.pool(cluster_id, secret.as_deref(), certificate) {
            Ok(pool) => pool,
            Err(message) => return failure(StatusCode::BAD_REQUEST, "BadRequest", message),
        };
        match pool.request(request).await {
            Ok(mut response) => {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS
                    && let Some(client_side) = client_side
                {
                    let server_side = hyper::upgrade::on(&mut response);
                    self.inner.tasks.spawn_until_stopped("upgraded connection", join(client_side, server_side));
                } else {
                    hop_by_hop(response.headers_mut(), false);
                }
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
            Err(error) => {
                let cause = manifest_chain(&error);
                failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", format!("reach cluster {wanted} through its tunnel: {cause}"))
            }
        }
    }

    /// A request that the hub itself makes in a child, with the deployer's credential.
    pub async fn call(&self, cluster: &ManagedCluster, mut request: Request<Body>) -> Result<Response<Body>, CallError> {
        let secret = self
            .inner
            .secrets
            .get(cluster.metadata.namespace.as_deref().unwrap_or_default(), DEPLOYER_SECRET)
            .ok_or(CallError::NoCredential)?;
        let token = credentials::deployer_token(&secret).ok_or(CallError::NoCredential)?;
        let path = request.uri().path().to_owned();
        let uri = destination(cluster, &Wanted::Direct, &path, request.uri().query()).map_err(CallError::Unaddressed)?;
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, token);
        if let Some(authority) = uri.authority().and_then(|a| http::HeaderValue::try_from(a.as_str()).ok()) {
            headers.insert(header::HOST, authority);
        }
        *request.uri_mut() = uri;
        let pool = self.pool(&cluster.spec.cluster_id, Some(&secret), None).map_err(CallError::Unaddressed)?;
        let response = pool.request(request).await.map_err(CallError::Unreachable)?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    fn pool(&self, cluster_id: &str, secret: Option<&Secret>, certificate: Option<Certificate>) -> Result<Pool, String> {
        let ca = secret.and_then(|secret| secret.data.as_ref()?.get("ca.crt")).map(|ca| ca.0.clone()).unwrap_or_default();
        let key = PoolKey { cluster_id: cluster_id.to_owned(), ca, certificate };
        let mut pools = self.inner.pools.lock();
        if let Some(pool) = pools.get(&key) {
            return Ok(pool.clone());
        }
        let tls = Arc::new(tls_config(&key.ca, key.certificate.as_ref())?);
        let connector = Connector { sessions: self.inner.sessions.clone(), cluster_id: cluster_id.to_owned(), tls };
        let pool = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(IDLE_PER_CHILD).build(connector);
        // An older CA of the same cluster is never asked for again.
        pools.retain(|old, _| old.cluster_id != key.cluster_id || old.ca == key.ca);
        if key.certificate.is_none() || pools.keys().filter(|old| old.certificate.is_some()).count() < CERTIFICATE_POOLS {
            pools.insert(key, pool.clone());
        }
        Ok(pool)
    }
}

/// Why the hub's own request did not reach a child.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The agent has not uploaded its Secret.
    #[error("act in the child: its agent has not uploaded the Secret {DEPLOYER_SECRET}")]
    NoCredential,
    /// The address or the CA cannot be used.
    #[error("address the child: {0}")]
    Unaddressed(String),
    /// The tunnel or the child's API server does not answer.
    #[error("reach the child through its tunnel")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
}

fn destination(cluster: &ManagedCluster, target: &Wanted, path: &str, query: Option<&str>) -> Result<Uri, String> {
    let (scheme, authority, prefix) = match target {
        Wanted::Endpoint { scheme, authority } => (scheme.clone(), authority.clone(), String::new()),
        Wanted::Direct => {
            let url = cluster.status.as_ref().map(|status| status.apiserver_url.as_str()).unwrap_or_default();
            let uri: Uri = url.parse().map_err(|_| format!("the address {url:?} in the cluster's status is malformed"))?;
            let authority = uri.authority().ok_or("the cluster has not reported the address of its API server")?;
            let scheme = uri.scheme_str().unwrap_or("https").to_owned();
            (scheme, authority.to_string(), uri.path().trim_end_matches('/').to_owned())
        }
    };
    let path = match query {
        Some(query) => format!("{prefix}{path}?{query}"),
        None => format!("{prefix}{path}"),
    };
    let parts = (Scheme::try_from(scheme.as_str()), Authority::try_from(authority), PathAndQuery::try_from(path));
    let (Ok(scheme), Ok(authority), Ok(path)) = parts else { return Err("the target's address is malformed".to_owned()) };
    Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build().map_err(|error| error.to_string())
}

fn tls_config(ca: &[u8], certificate: Option<&Certificate>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(ca).flatten() {
        // One unusable certificate in a bundle must not hide the others.
        let _ = roots.add(der);
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    match certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(certificate) => {
            let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate.chain).flatten().collect();
            let key = PrivateKeyDer::from_pem_slice(&certificate.key)
                .map_err(|_| "read the extra clusternet-privatekey: no private key in it".to_owned())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("use the client certificate: {error}"))
        }
    }
}

/// Removes the headers that belong to one connection (RFC 9110 section 7.6.1); an upgrade keeps its two.
pub(crate) fn hop_by_hop(headers: &mut HeaderMap, upgrade: bool) {
    for name in ["keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "proxy-connection"] {
        headers.remove(HeaderName::from_static(name));
    }
    if !upgrade {
        headers.remove(header::CONNECTION);
        headers.remove(header::UPGRADE);
    }
}

pub(crate) async fn join(client: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) {
    let (Ok(client), Ok(server)) = tokio::join!(client, server) else { return };
    // Either end may simply leave.
    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
}

fn manifest_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What the group's discovery document lists.
pub(crate) fn resources() -> Vec<serde_json::Value> {
    vec![
        json!({"name": "sockets", "singularName": "socket", "namespaced": false, "kind": "Socket", "verbs": ["create", "get"], "shortNames": ["ss"], "categories": ["clusternet"]}),
        json!({"name": "sockets/proxy", "singularName": "", "namespaced": false, "kind": "Socket", "verbs": ["create", "delete", "get", "patch", "update"]}),
    ]
}

fn discovery() -> serde_json::Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "proxies.clusternet.io/v1alpha1", "resources": resources()})
}
