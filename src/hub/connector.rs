//! Connections into a child: a stream through its tunnel, with TLS where the target asks for it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;
use tunnel::{Stream, Target};

use crate::sessions::Sessions;

/// Dials targets in one child's network.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) sessions: Sessions,
    pub(crate) cluster_id: String,
    pub(crate) tls: Arc<rustls::ClientConfig>,
}

/// A connection of either kind.
pub(crate) enum Link {
    Plain(Stream),
    Tls(Box<tokio_rustls::client::TlsStream<Stream>>),
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let secure = uri.scheme_str() == Some("https");
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
            let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            let (_, tunnel) = this.sessions.get(&this.cluster_id).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotConnected, format!("no agent of cluster {} is connected", this.cluster_id))
            })?;
            let stream = tunnel.open(&Target { network: "tcp".to_owned(), address }).map_err(io::Error::other)?;
            if !secure {
                return Ok(TokioIo::new(Link::Plain(stream)));
            }
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let stream = tokio_rustls::TlsConnector::from(this.tls).connect(name, stream).await?;
            Ok(TokioIo::new(Link::Tls(Box::new(stream))))
        })
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        match self {
            Link::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => connected.negotiated_h2(),
            _ => connected,
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Link::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Link::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Link::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Link::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Link::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
