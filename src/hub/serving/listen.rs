//! A TLS listener whose certificate can change under way.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apiserver::body::Body;
use engine::CancellationToken;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};

/// The client certificates of a connection, leaf first.
pub(crate) type Peer = Arc<Vec<CertificateDer<'static>>>;
/// Answers one request.
pub(crate) type Answer = Arc<dyn Fn(Peer, Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A peer must finish its handshake and send its next headers within these times.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(120);
/// How often an HTTP/2 peer is asked whether it lives, and how long it may take to answer.
const PING: Duration = Duration::from_secs(30);
/// How long requests under way may take at shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// The TLS settings for new connections. Cloning shares them.
#[derive(Clone)]
pub(crate) struct Certificates {
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Certificates {
    /// These, until [`Certificates::replace`].
    pub(crate) fn fixed(config: ServerConfig) -> Self {
        Self { current: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// Others from now on.
    pub(crate) fn replace(&self, config: ServerConfig) {
        *self.current.write() = Arc::new(config);
    }
}

/// Serves until shutdown.
pub(crate) async fn serve(listener: TcpListener, certificates: Certificates, answer: Answer, shutdown: CancellationToken) {
    let graceful = GracefulShutdown::new();
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
        let config = certificates.current.read().clone();
        tokio::spawn(connection(stream, config, answer.clone(), graceful.watcher()));
    }
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections were cut at shutdown");
    }
}

async fn connection(stream: TcpStream, config: Arc<ServerConfig>, answer: Answer, watcher: Watcher) {
    let accepted = tokio::time::timeout(HANDSHAKE, tokio_rustls::TlsAcceptor::from(config).accept(stream)).await;
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "take a TLS connection"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().map(|all| all.iter().map(|one| one.clone().into_owned()).collect());
    let peer: Peer = Arc::new(certificates.unwrap_or_default());
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let answered = answer(peer.clone(), request.map(|body| body.map_err(Into::into).boxed_unsync()));
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).keep_alive(true);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(PING)).keep_alive_timeout(PING).max_concurrent_streams(1000).adaptive_window(true);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(serving.into_owned()).await {
        tracing::debug!(%error, "serve a connection");
    }
}
