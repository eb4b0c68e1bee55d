//! Several replicas side by side: each serves every request, and one that needs a tunnel goes to the replica that holds it.
//!
//! Replicas find each other by Leases and prove themselves by leaves of their common authority. Which replica holds a
//! tunnel is asked when it matters and never remembered, so that nothing has to be kept true.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apiserver::auth::Identity;
use apiserver::auth::authenticate::{Authenticator, Options as Credentials, front_proxy_headers};
use apiserver::body::{Body, full};
use cluster::Target;
use engine::{Cache, CancellationToken, Tasks};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::certificate::{self, Authority, LEAF_NAME, Leaf};
use super::front::Nothing;
use super::{Certificates, Error, Options};
use crate::proxy::{hop_by_hop, join};
use crate::reply::failure;

/// Where a replica says whether it holds the tunnel of a cluster.
pub(crate) const SESSIONS: &str = "/hub/sessions/";
/// Label of the replicas' Leases.
const LABEL: &str = "gitops.anabranch.io/hub-peer";
/// Annotation with a replica's address.
const ADDRESS: &str = "gitops.anabranch.io/hub-address";
/// A replica renews this often, counts as there for [`ALIVE`], and its Lease is cleared away after [`FORGOTTEN`].
const RENEW: Duration = Duration::from_secs(10);
const ALIVE: Duration = Duration::from_secs(35);
const FORGOTTEN: Duration = Duration::from_secs(600);
/// A replica must say within this time whether it holds a tunnel.
const ASK: Duration = Duration::from_secs(2);

/// The other replicas. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    seen: Arc<Mutex<BTreeMap<String, Sighting>>>,
    http: hyper_util::client::legacy::Client<Connector, Body>,
    callers: Authenticator,
}

struct Sighting {
    address: String,
    renewed: Option<String>,
    /// By our own clock: another machine's is never trusted.
    at: Instant,
}

impl Peers {
    /// Announces this replica and follows the others.
    pub(crate) fn start(client: &Client, options: &Options, bound: SocketAddr, authority: &Authority, leaf: &Leaf, tasks: &Tasks) -> Result<Self, Error> {
        let roots = roots(authority)?;
        let (chain, key) = certificate::parsed(leaf).map_err(Error::Certificate)?;
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(Error::Tls)?;
        let connector = Connector { tls: Arc::new(tls), name: options.service.clone() };
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        let front_proxy_ca = cluster::client::pem_certificates(authority.certificate.as_bytes()).into_iter().map(CertificateDer::from).collect();
        let credentials = Credentials { front_proxy_ca, front_proxy_names: vec![LEAF_NAME.to_owned()], ..Credentials::default() };
        let name = api::names::with_suffix("clusternet-hub-peer", &[&options.identity], 63);
        let seen: Arc<Mutex<BTreeMap<String, Sighting>>> = Arc::default();
        let inner = Inner { name: name.clone(), seen: seen.clone(), http, callers: Authenticator::new(credentials, Arc::new(Nothing)) };

        let leases: Cache<Lease> = Cache::new();
        leases.on_change(move |change| {
            let lease_name = change.key.name.to_string();
            let Some(lease) = change.new else {
                seen.lock().remove(&lease_name);
                return;
            };
            let address = lease.metadata.annotations.as_ref().and_then(|all| all.get(ADDRESS)).cloned().unwrap_or_default();
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
            let mut seen = seen.lock();
            let same = seen.get(&lease_name).is_some_and(|sighting| sighting.renewed == renewed && sighting.address == address);
            if !same {
                seen.insert(lease_name, Sighting { address, renewed, at: Instant::now() });
            }
        });
        leases.follow("hub peers", client.clone(), Target::of::<Lease>(&options.namespace).labels(LABEL), tasks);

        let address = if options.peer_address.is_empty() { bound.to_string() } else { options.peer_address.clone() };
        let api: Api<Lease> = Api::namespaced(client.clone(), &options.namespace);
        let (identity, peers) = (options.identity.clone(), Self { inner: Arc::new(inner) });
        let (this, stop) = (peers.clone(), tasks.token().clone());
        tasks.spawn("hub peer lease", async move { this.announce(api, identity, address, stop).await });
        Ok(peers)
    }

    async fn announce(&self, api: Api<Lease>, identity: String, address: String, stop: CancellationToken) {
        let name = &self.inner.name;
        loop {
            let now = k8s_openapi::jiff::Timestamp::now();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "labels": {LABEL: "true"}, "annotations": {ADDRESS: address}},
                "spec": {"holderIdentity": identity, "leaseDurationSeconds": ALIVE.as_secs(), "renewTime": format!("{now:.6}")},
            });
            if let Err(error) = api.patch(name, &PatchParams::apply("anabranch-hub").force(), &Patch::Apply(&lease)).await {
                tracing::warn!(lease = name, error = cluster::error::message(&error), "cannot announce this replica");
            }
            let stale: Vec<String> = self.inner.seen.lock().iter().filter(|(other, seen)| *other != name && seen.at.elapsed() > FORGOTTEN).map(|(other, _)| other.clone()).collect();
            for other in stale {
                // Another replica may have cleared it away already.
                let _ = api.delete(&other, &DeleteParams::default()).await;
            }
            tokio::select! {
                () = tokio::time::sleep(RENEW) => {}
                () = stop.cancelled() => break,
            }
        }
        // A courtesy: without it the others find out by themselves.
        let _ = tokio::time::timeout(ASK, api.delete(name, &DeleteParams::default())).await;
    }

    /// Address of the replica that holds the tunnel of a cluster.
    pub(crate) async fn holder(&self, cluster_id: &str) -> Option<String> {
        let others: Vec<String> = {
            let seen = self.inner.seen.lock();
            let alive = seen.iter().filter(|(name, sighting)| **name != self.inner.name && sighting.at.elapsed() < ALIVE && !sighting.address.is_empty());
            alive.map(|(_, sighting)| sighting.address.clone()).collect()
        };
        let mut asked: FuturesUnordered<_> = others.into_iter().map(|address| self.holds(address, cluster_id)).collect();
        while let Some(answer) = asked.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    async fn holds(&self, address: String, cluster_id: &str) -> Option<String> {
        let uri: Uri = format!("https://{address}{SESSIONS}{cluster_id}").parse().ok()?;
        let request = Request::builder().uri(uri).body(full("")).ok()?;
        match tokio::time::timeout(ASK, self.inner.http.request(request)).await {
            Ok(Ok(response)) => (response.status() == StatusCode::OK).then_some(address),
            Ok(Err(error)) => {
                tracing::debug!(peer = address, error = cluster::error::chain(&error), "a replica does not answer");
                None
            }
            Err(_) => None,
        }
    }

    /// Hands a request of an authorised caller over to another replica.
    pub(crate) async fn forward(&self, address: &str, who: &Identity, mut request: Request<Body>) -> Response<Body> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let Ok(uri) = format!("https://{address}{path}").parse::<Uri>() else {
            return failure(StatusCode::BAD_REQUEST, "BadRequest", "the URL cannot be handed over to another replica of the hub");
        };
        let headers = request.headers_mut();
        let upgrade = headers.contains_key(header::UPGRADE);
        let foreign: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
        for name in foreign {
            headers.remove(name);
        }
        headers.remove(header::AUTHORIZATION);
        hop_by_hop(headers, upgrade);
        for (name, value) in front_proxy_headers(who) {
            if let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                // Extras may hold a credential for the child.
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
        headers.remove(header::HOST);
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_11;
        let near = upgrade.then(|| hyper::upgrade::on(&mut request));
        match self.inner.http.request(request).await {
            Ok(mut response) => {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS
                    && let Some(near) = near
                {
                    let far = hyper::upgrade::on(&mut response);
                    tokio::spawn(join(near, far));
                } else {
                    hop_by_hop(response.headers_mut(), false);
                }
                response.map(|body| body.map_err(Into::into).boxed_unsync())
            }
            Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", format!("hand the request over to the replica {address}: {}", cluster::error::chain(&error))),
        }
    }

    /// On whose behalf another replica asks.
    pub(crate) fn caller(&self, headers: &HeaderMap, peer: Certificates<'_>) -> Option<Identity> {
        self.inner.callers.authenticate(headers, peer, k8s_openapi::jiff::Timestamp::now()).ok()
    }
}

fn roots(authority: &Authority) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for der in cluster::client::pem_certificates(authority.certificate.as_bytes()) {
        roots.add(CertificateDer::from(der)).map_err(Error::Tls)?;
    }
    Ok(roots)
}

/// TLS for the replicas' own port: only a leaf of their authority opens it.
pub(crate) fn server_config(authority: &Authority, leaf: &Leaf) -> Result<ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = certificate::parsed(leaf).map_err(Error::Certificate)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider.clone())
        .build()
        .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))?;
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(Error::Tls)
}

/// Dials another replica; its certificate is checked against the Service's name, whatever its address is.
#[derive(Clone)]
struct Connector {
    tls: Arc<ClientConfig>,
    name: String,
}

struct Link(Box<tokio_rustls::client::TlsStream<TcpStream>>);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let address = uri.authority().map(ToString::to_string).unwrap_or_default();
            let stream = TcpStream::connect(address).await?;
            // Failing costs only speed.
            let _ = stream.set_nodelay(true);
            let name = ServerName::try_from(this.name).map_err(std::io::Error::other)?;
            let stream = tokio_rustls::TlsConnector::from(this.tls).connect(name, stream).await?;
            Ok(TokioIo::new(Link(Box::new(stream))))
        })
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
