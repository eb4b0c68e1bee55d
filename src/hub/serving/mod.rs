//! The hub as a server of its own: an aggregated API behind a real Kubernetes, several replicas side by side.
//!
//! The parent's API server sends requests here as its `APIService`s say. A request passes, in this order: authentication
//! ([`front`]), authorization by the parent ([`review`]), the replica that holds the cluster's tunnel ([`peers`]), the hub.
//! Nothing is kept here but one Secret with the authority of the replicas ([`certificate`]).

pub mod certificate;
pub mod front;
pub mod listen;
pub mod peers;
pub mod review;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use apiserver::auth::Identity;
use apiserver::body::{Body, plain};
use apiserver::mount::Mount as _;
use apiserver::path::Info;
use apiserver::query::Query;
use apiserver::status::ApiError;
use engine::{CancellationToken, Tasks};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use rustls::pki_types::CertificateDer;
use serde_json::json;

use crate::Hub;
use crate::locate::{self, Route};
use crate::reply::json_body;

/// How a hub serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the API for the parent's API server.
    pub listen: SocketAddr,
    /// Address for the other replicas; none runs this replica alone.
    pub peer_listen: Option<SocketAddr>,
    /// `host:port` under which the other replicas reach this one; the bound address when empty.
    pub peer_address: String,
    /// Namespace of the Service, the Secret and the Leases.
    pub namespace: String,
    /// Name of the Service that the APIServices name.
    pub service: String,
    /// Further names and addresses for the serving certificate.
    pub names: Vec<String>,
    /// Serving certificate and key, and the CA that signed them if the APIServices shall be told it; self-signed without.
    pub files: Option<Files>,
    /// Who this replica is; unique among them.
    pub identity: String,
}

/// A serving certificate from outside.
#[derive(Clone, Debug)]
pub struct Files {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// The CA that the APIServices shall trust, PEM; they are left as they are without it.
    pub ca: Option<PathBuf>,
}

/// Why a hub cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No serving certificate.
    #[error("get the serving certificate")]
    Certificate(#[source] certificate::Error),
    /// TLS settings do not fit together.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
}

/// The groups that the hub serves.
pub const GROUPS: [(&str, &str); 2] = [("proxies.clusternet.io", "v1alpha1"), ("shadow", "v1alpha1")];

/// One replica at work.
pub(crate) struct Server {
    hub: Hub,
    front: front::Front,
    review: review::Review,
    peers: Option<peers::Peers>,
}

/// Serves until shutdown. `ready` is called once with the address, when requests are answered.
///
/// # Errors
/// When it cannot begin; later troubles are logged and mended.
pub async fn run(hub: Hub, client: Client, options: Options, shutdown: CancellationToken, ready: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let tasks = Tasks::new(&shutdown);
    let authority = certificate::authority(&client, &options, tasks.token()).await.map_err(Error::Certificate)?;
    let front = front::Front::start(&client, &tasks);
    front.known(tasks.token()).await;
    let listener = bind(options.listen).await?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: options.listen, source })?;
    let mut peers = None;
    let mut peer_side = None;
    if let Some(wanted) = options.peer_listen {
        let listener = bind(wanted).await?;
        let bound = listener.local_addr().map_err(|source| Error::Listen { address: wanted, source })?;
        let leaf = authority.leaf(&options).map_err(Error::Certificate)?;
        peers = Some(peers::Peers::start(&client, &options, bound, &authority, &leaf, &tasks)?);
        peer_side = Some((listener, listen::Certificates::fixed(peers::server_config(&authority, &leaf)?)));
    }
    let serving = certificate::serving(&client, &options, &authority, &tasks).await?;
    let server = Arc::new(Server { hub, front, review: review::Review::new(client), peers });
    if let Some((listener, certificates)) = peer_side {
        let server = server.clone();
        let answer = move |peer: listen::Peer, request| -> BoxFuture<'static, Response<Body>> { Box::pin(server.clone().answer_peer(peer, request)) };
        tasks.spawn("peers", listen::serve(listener, certificates, Arc::new(answer), tasks.token().clone()));
    }
    ready(address);
    let answer = move |peer: listen::Peer, request| -> BoxFuture<'static, Response<Body>> { Box::pin(server.clone().answer(peer, request)) };
    listen::serve(listener, serving, Arc::new(answer), tasks.token().clone()).await;
    tasks.stop(crate::PATIENCE).await;
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener, Error> {
    tokio::net::TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

fn refusal(error: &ApiError) -> Response<Body> {
    json_body(error.code, &error.to_status())
}

fn info(request: &Request<Body>) -> Info {
    let watch = Query::parse(request.uri().query()).flag("watch");
    apiserver::path::parse(request.method(), request.uri().path(), watch)
}

impl Server {
    /// A request of the parent's API server, or of anybody who reaches the port.
    async fn answer(self: Arc<Self>, peer: listen::Peer, request: Request<Body>) -> Response<Body> {
        if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz") {
            return plain(StatusCode::OK, "ok");
        }
        let who = match self.front.authenticate(request.headers(), &peer, &self.review).await {
            Ok(who) => who,
            Err(error) => return refusal(&error),
        };
        let info = info(&request);
        if let Err(error) = self.review.check(&who, &info, request.uri().path()).await {
            return refusal(&error);
        }
        if let (Some(peers), Route::Proxy { cluster, .. }) = (&self.peers, locate::route(request.uri().path()))
            && let Some(id) = self.hub.cluster_id(&cluster)
            && self.hub.proxy().sessions().get(&id).is_none()
            && let Some(other) = peers.holder(&id).await
        {
            return peers.forward(&other, &who, request).await;
        }
        self.dispatch(who, info, request).await
    }

    /// A request of another replica: it has authenticated and authorised the caller already, and is never sent on.
    async fn answer_peer(self: Arc<Self>, peer: listen::Peer, request: Request<Body>) -> Response<Body> {
        if let Some(id) = request.uri().path().strip_prefix(peers::SESSIONS) {
            let there = self.hub.proxy().sessions().get(id).is_some();
            return plain(if there { StatusCode::OK } else { StatusCode::NOT_FOUND }, "");
        }
        let who = match &self.peers {
            Some(peers) => peers.caller(request.headers(), &peer),
            None => None,
        };
        let Some(who) = who else { return refusal(&ApiError::unauthorized()) };
        let info = info(&request);
        self.dispatch(who, info, request).await
    }

    async fn dispatch(&self, who: Identity, info: Info, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let ours = self.hub.prefixes().iter().any(|prefix| path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.trim_matches('/').contains('/') || rest.trim_matches('/') == "v1alpha1"));
        if ours {
            return self.hub.call(who, info, request).await;
        }
        discovery(request.method(), path, request.headers()).unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "404 page not found\n"))
    }
}

/// The documents above the groups. The aggregated form is refused: the aggregator then asks each version, which it does anyway.
fn discovery(method: &Method, path: &str, headers: &http::HeaderMap) -> Option<Response<Body>> {
    if method != Method::GET {
        return None;
    }
    // Nothing to describe, which must be said: the aggregator asks for ever where there is no document.
    match path {
        "/openapi/v2" => return Some(json_body(StatusCode::OK, &json!({"swagger": "2.0", "info": {"title": "Clusternet", "version": "v1alpha1"}, "paths": {}}))),
        "/openapi/v3" => return Some(json_body(StatusCode::OK, &json!({"paths": {}}))),
        _ => {}
    }
    let group = |name: &str, version: &str| {
        let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    if path.trim_end_matches('/') == "/apis" {
        let accept = headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if accept.contains("APIGroupDiscoveryList") && !accept.split(',').any(|clause| clause.trim() == "application/json" || clause.trim() == "*/*") {
            return Some(plain(StatusCode::NOT_ACCEPTABLE, "only application/json\n"));
        }
        let groups: Vec<_> = GROUPS.iter().map(|(name, version)| group(name, version)).collect();
        return Some(json_body(StatusCode::OK, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})));
    }
    let (name, version) = GROUPS.iter().find(|(name, _)| path.trim_end_matches('/') == format!("/apis/{name}"))?;
    let mut document = group(name, version);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(json_body(StatusCode::OK, &document))
}

/// The client certificates of a connection, leaf first.
pub type Certificates<'a> = &'a [CertificateDer<'static>];

#[cfg(test)]
mod tests;
