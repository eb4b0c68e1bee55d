//! The line to a server that extends this one: TLS with our front proxy's certificate, HTTP/2 kept open where it speaks that,
//! and the caller's identity in the headers that such servers trust.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::auth::Identity;
use crate::auth::authenticate::front_proxy_headers;
use crate::body::{BoxError, Body};
use crate::core::Core;
use crate::object::{at, text};
use crate::{outbound, trust};

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("{0}")]
    Place(String),
    #[error("{0}")]
    Trust(String),
    #[error("dial tcp {address}: connect: {why}")]
    Connect { address: String, why: String },
    #[error("{0}")]
    Talk(String),
}

type Sender = hyper::client::conn::http2::SendRequest<Body>;

/// The line of one APIService.
#[derive(Default)]
pub(crate) struct Line {
    /// An open connection and where it goes.
    kept: Mutex<Option<(String, Sender)>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("open", &self.kept.lock().is_some()).finish()
    }
}

/// Headers that belong to one connection.
const HOPS: [HeaderName; 7] =
    [header::CONNECTION, header::PROXY_AUTHENTICATE, header::PROXY_AUTHORIZATION, header::TE, header::TRAILER, header::TRANSFER_ENCODING, header::UPGRADE];

/// The headers of a request as they go on: nothing of the connection, no credential, no identity but the caller's.
fn go_on(headers: &mut HeaderMap, who: &Identity) {
    let own: Vec<HeaderName> = headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).filter_map(|n| n.trim().parse().ok()).collect();
    for name in HOPS.iter().chain(&own).chain([&header::AUTHORIZATION, &header::HOST]) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    let claimed: Vec<HeaderName> = headers.keys().filter(|n| n.as_str().starts_with("x-remote-") || n.as_str().starts_with("impersonate-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    for (name, value) in front_proxy_headers(who) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            headers.append(name, value);
        }
    }
}

/// TLS as an APIService wants it, with our certificate.
fn tls(core: &Core, spec: &Value, protocols: &[&[u8]]) -> Result<rustls::ClientConfig, RemoteError> {
    let fault = |e: &dyn std::fmt::Display| RemoteError::Trust(e.to_string());
    let anybody = at(spec, &["insecureSkipTLSVerify"]) == Some(&Value::Bool(true));
    let builder = trust::client(text(spec, &["caBundle"]), anybody).map_err(RemoteError::Trust)?;
    let pki = core.guard.read().as_ref().and_then(|guard| guard.pki.clone());
    let mut config = match pki {
        Some(pki) => {
            let (certificate, key) = &pki.front_proxy_client;
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(|e| fault(&e))?;
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.pkcs8().to_vec()));
            builder.with_client_auth_cert(chain, key).map_err(|e| fault(&e))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Ok(config)
}

impl Line {
    /// The address that requests go to.
    pub(crate) fn place(&self, core: &Core, spec: &Value) -> Result<String, RemoteError> {
        let port = at(spec, &["service", "port"]).and_then(Value::as_u64).unwrap_or(443);
        outbound::behind(core, text(spec, &["service", "namespace"]), text(spec, &["service", "name"]), port).map_err(|e| RemoteError::Place(e.to_string()))
    }

    async fn connect(&self, core: &Core, spec: &Value, address: &str, protocols: &[&[u8]]) -> Result<TlsStream<TcpStream>, RemoteError> {
        let config = tls(core, spec, protocols)?;
        let tcp = TcpStream::connect(address).await.map_err(|e| RemoteError::Connect { address: address.to_owned(), why: outbound::words(&e) })?;
        let _ = tcp.set_nodelay(true);
        let name = format!("{}.{}.svc", text(spec, &["service", "name"]), text(spec, &["service", "namespace"]));
        let name = ServerName::try_from(name).map_err(|e| RemoteError::Trust(e.to_string()))?;
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|e| RemoteError::Talk(trust::words(&e)))
    }

    fn open(&self, address: &str) -> Option<Sender> {
        let kept = self.kept.lock();
        kept.as_ref().filter(|(place, sender)| place == address && !sender.is_closed()).map(|(_, sender)| sender.clone())
    }

    /// Sends a request on behalf of the caller.
    pub(crate) async fn send(&self, core: &Core, spec: &Value, who: &Identity, mut request: Request<Body>) -> Result<Response<Body>, RemoteError> {
        let address = self.place(core, spec)?;
        let talk = |e: hyper::Error| RemoteError::Talk(e.to_string());
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(core, spec, who, &address, &path, request).await;
        }
        go_on(request.headers_mut(), who);
        if let Some(mut sender) = self.open(&address) {
            return Ok(sender.send_request(placed(request, "https", &address, &path)?).await.map_err(talk)?.map(boxed));
        }
        let stream = self.connect(core, spec, &address, &[b"h2", b"http/1.1"]).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(talk)?;
            tokio::spawn(connection);
            *self.kept.lock() = Some((address.clone(), sender.clone()));
            return Ok(sender.send_request(placed(request, "https", &address, &path)?).await.map_err(talk)?.map(boxed));
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
        tokio::spawn(connection);
        Ok(sender.send_request(placed(request, "", &address, &path)?).await.map_err(talk)?.map(boxed))
    }

    /// A request that turns its connection into something else.
    async fn upgrade(&self, core: &Core, spec: &Value, who: &Identity, address: &str, path: &str, mut request: Request<Body>) -> Result<Response<Body>, RemoteError> {
        let talk = |e: hyper::Error| RemoteError::Talk(e.to_string());
        let (protocol, client) = (request.headers().get(header::UPGRADE).cloned(), hyper::upgrade::on(&mut request));
        go_on(request.headers_mut(), who);
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().extend(protocol.map(|p| (header::UPGRADE, p)));
        let stream = self.connect(core, spec, address, &[b"http/1.1"]).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
        tokio::spawn(connection.with_upgrades());
        let mut response = sender.send_request(placed(request, "", address, path)?).await.map_err(talk)?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
                    // Either end may go at any time; there is nobody to tell.
                    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
                }
            });
        }
        Ok(response.map(boxed))
    }
}

/// A request as it goes out: HTTP/2 names the server in the address, HTTP/1.1 in a header.
fn placed(request: Request<Body>, scheme: &str, address: &str, path: &str) -> Result<Request<Body>, RemoteError> {
    let (mut parts, body) = request.into_parts();
    let fault = |e: &dyn std::fmt::Display| RemoteError::Talk(e.to_string());
    parts.version = http::Version::default();
    parts.extensions = http::Extensions::new();
    if scheme.is_empty() {
        parts.uri = path.parse().map_err(|e: http::uri::InvalidUri| fault(&e))?;
        parts.headers.insert(header::HOST, HeaderValue::from_str(address).map_err(|e| fault(&e))?);
    } else {
        parts.uri = Uri::builder().scheme(scheme).authority(address).path_and_query(path).build().map_err(|e| fault(&e))?;
    }
    Ok(Request::from_parts(parts, body))
}

fn boxed(body: hyper::body::Incoming) -> Body {
    body.map_err(|e| Box::new(e) as BoxError).boxed_unsync()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn nobody_claims_to_be_another() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer t"), ("x-remote-user", "root"), ("x-remote-extra-a", "b"), ("impersonate-user", "x"), ("connection", "keep-alive, x-own"),
            ("x-own", "1"), ("accept", "application/json"), ("transfer-encoding", "chunked"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
        }
        let who = Identity { user: "ann".into(), groups: vec!["a".into(), "b".into()], ..Identity::default() };
        go_on(&mut headers, &who);
        let mut left: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("accept", "application/json"), ("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-user", "ann")]);
    }
}
