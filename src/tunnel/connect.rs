//! Dialling a hub: TCP, TLS and the WebSocket handshake.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, protocol::WebSocketConfig};
use tokio_tungstenite::WebSocketStream;

/// Dialling and both handshakes together may take this long.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);


/// Why the hub could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL or the token cannot be used.
    #[error("prepare the request to the hub at {0}: the URL or the token is malformed")]
    Request(String),
    /// No TCP connection.
    #[error("dial the hub at {host}")]
    Dial {
        /// `host:port`.
        host: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The server's certificate was not accepted, or the handshake failed.
    #[error("make the TLS connection to the hub at {host}")]
    Tls {
        /// `host:port`.
        host: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The hub refused; 401 and 403 mean the token, 404 and 503 that no hub serves there.
    #[error("open the WebSocket to the hub at {host}")]
    Handshake {
        /// `host:port`.
        host: String,
        /// The reason, with the HTTP status where there is one.
        #[source]
        source: Box<tungstenite::Error>,
    },
    /// It took more than 15 seconds.
    #[error("reach the hub at {0} in time")]
    Timeout(String),
}

impl ConnectError {
    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            ConnectError::Handshake { source, .. } => match source.as_ref() {
                tungstenite::Error::Http(response) => Some(response.status().as_u16()),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Opens the WebSocket at a `ws://`, `wss://`, `http://` or `https://` URL with a bearer token.
///
/// # Errors
/// [`ConnectError`] names the hop that failed.
pub async fn connect(
    url: &str,
    token: Option<&str>,
    tls: Arc<rustls::ClientConfig>,
) -> Result<WebSocketStream<Box<dyn Transport>>, ConnectError> {
    let bad = || ConnectError::Request(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let secure = matches!(uri.scheme_str(), Some("wss" | "https"));
    let name = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let host = format!("{name}:{port}");
    let scheme = if secure { "wss" } else { "ws" };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = format!("{scheme}://{}{path}", uri.authority().ok_or_else(bad)?)
        .into_client_request()
        .map_err(|_| bad())?;
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| bad())?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let dial = async {
        let tcp = TcpStream::connect((name.as_str(), port))
            .await
            .map_err(|source| ConnectError::Dial { host: host.clone(), source })?;
        // Small frames must not wait for their acknowledgement.
        let _ = tcp.set_nodelay(true);
        let transport: Box<dyn Transport> = if secure {
            let server = ServerName::try_from(name.clone()).map_err(|_| bad())?;
            let stream = tokio_rustls::TlsConnector::from(tls)
                .connect(server, tcp)
                .await
                .map_err(|source| ConnectError::Tls { host: host.clone(), source })?;
            Box::new(stream)
        } else {
            Box::new(tcp)
        };
        let config = WebSocketConfig::default().max_message_size(Some(wire::MAX_MESSAGE)).write_buffer_size(64 << 10);
        tokio_tungstenite::client_async_with_config(request, transport, Some(config))
            .await
            .map(|(socket, _)| socket)
            .map_err(|source| ConnectError::Handshake { host: host.clone(), source: Box::new(source) })
    };
    tokio::time::timeout(DIAL_TIMEOUT, dial).await.unwrap_or_else(|_| Err(ConnectError::Timeout(host.clone())))
}

/// A connected transport of any kind.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}
