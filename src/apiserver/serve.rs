//! The two ways in: a service in process, and listeners over TCP and TLS.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::ApiServer;
use crate::auth::Identity;
use crate::body::{Body, BoxError};
use crate::core::Core;
use crate::status::ApiError;

/// A peer must send its next headers within this time.
const HEADERS_WITHIN: Duration = Duration::from_secs(120);
/// How often an HTTP/2 peer is asked whether it lives, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Who a request comes from, told by its headers and the certificates of its connection.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller, or why there is none.
    fn authenticate(&self, parts: &http::request::Parts, peer: &[CertificateDer<'static>]) -> Result<Identity, ApiError>;
}

/// The server in process, for one caller.
#[derive(Debug, Clone)]
pub struct Service {
    core: Arc<Core>,
    who: Identity,
}

impl Service {
    pub(crate) fn new(core: Arc<Core>, who: Identity) -> Self {
        Self { core, who }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (core, who) = (self.core.clone(), self.who.clone());
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        Box::pin(async move { Ok(core.serve(who, request).await) })
    }
}

impl ApiServer {
    /// Serves on a listener until the server's shutdown; with `tls`, or in clear on loopback without it.
    pub async fn serve(&self, listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>, authenticate: Arc<dyn Authenticate>) {
        let shutdown = self.core.options.shutdown.clone();
        let graceful = hyper_util::server::graceful::GracefulShutdown::new();
        let acceptor = tls.map(tokio_rustls::TlsAcceptor::from);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of file handles, most likely: give others time to close theirs.
                        tracing::warn!(%error, "accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = shutdown.cancelled() => break,
            };
            // Small answers must not wait for the peer's acknowledgement. Failing costs only speed.
            let _ = stream.set_nodelay(true);
            let (core, acceptor, authenticate) = (self.core.clone(), acceptor.clone(), authenticate.clone());
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                match acceptor {
                    None => connection(core, stream, Vec::new(), authenticate, watcher).await,
                    Some(acceptor) => match tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => {
                            let peer = stream.get_ref().1.peer_certificates().map(|c| c.iter().map(|c| c.clone().into_owned()).collect()).unwrap_or_default();
                            connection(core, stream, peer, authenticate, watcher).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "take a TLS connection"),
                        Err(_) => tracing::debug!("a TLS handshake took too long"),
                    },
                }
            });
        }
        let drained = tokio::time::timeout(Duration::from_secs(5), graceful.shutdown()).await;
        if drained.is_err() {
            tracing::debug!("connections were cut at shutdown");
        }
    }
}

async fn connection<S>(core: Arc<Core>, stream: S, peer: Vec<CertificateDer<'static>>, authenticate: Arc<dyn Authenticate>, watcher: hyper_util::server::graceful::Watcher)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let peer = Arc::new(peer);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let (core, peer, authenticate) = (core.clone(), peer.clone(), authenticate.clone());
        async move {
            let (mut parts, body) = request.into_parts();
            let response = match authenticate.authenticate(&parts, &peer) {
                Ok(who) => {
                    parts.headers.remove("authorization");
                    let request = Request::from_parts(parts, body.map_err(Into::into).boxed_unsync());
                    core.serve(who, request).await
                }
                Err(error) => crate::respond::refusal(&error, crate::accept::Encoding::Json),
            };
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).keep_alive(true);
    // The pings find peers that vanished: their watches would stay for ever.
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_EVERY)
        .max_concurrent_streams(250)
        .adaptive_window(true)
        .enable_connect_protocol();
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(%error, "serve a connection");
    }
}
