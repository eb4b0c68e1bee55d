//! Requests to servers that extend this one: by URL, or to a Service through the endpoints that stand behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::core::Core;
use crate::object::{at, decode, text};

/// Largest answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error("{0}")]
    Place(String),
    #[error("use the CA bundle: {0}")]
    Trust(String),
    #[error("dial tcp {address}: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error("{0}")]
    Talk(#[from] hyper::Error),
    #[error("the server answered {0}")]
    Refused(http::StatusCode),
    #[error("read the answer: {0}")]
    Answer(String),
    #[error("context deadline exceeded")]
    Late,
}

/// Where a request goes.
struct Place {
    address: String,
    /// Name that the server's certificate must have.
    name: String,
    host: String,
    path: String,
}

/// The server that a `clientConfig` names.
fn place(core: &Core, config: &Value) -> Result<Place, OutboundError> {
    let fault = |text: String| Err(OutboundError::Place(text));
    if let Some(url) = at(config, &["url"]).and_then(Value::as_str) {
        let Ok(uri) = url.parse::<Uri>() else { return fault(format!("parse the URL {url:?}")) };
        let (Some("https"), Some(host)) = (uri.scheme_str(), uri.host()) else { return fault(format!("the URL {url:?} is not https with a host")) };
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        return Ok(Place { address: format!("{host}:{}", uri.port_u16().unwrap_or(443)), name, host: uri.authority().map(ToString::to_string).unwrap_or_default(), path });
    }
    let service = at(config, &["service"]).cloned().unwrap_or_default();
    let (namespace, name) = (text(&service, &["namespace"]), text(&service, &["name"]));
    let port = at(&service, &["port"]).and_then(Value::as_u64).unwrap_or(443);
    let address = behind(core, namespace, name, port)?;
    let host = format!("{name}.{namespace}.svc");
    let path = match text(&service, &["path"]) {
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    Ok(Place { address: address.to_string(), name: host.clone(), host: format!("{host}:{port}"), path })
}

/// An address behind a port of a Service: of its endpoints, since nobody routes the addresses of Services here.
fn behind(core: &Core, namespace: &str, name: &str, port: u64) -> Result<SocketAddr, OutboundError> {
    let key = format!("{namespace}/{name}");
    let Some(service) = core.read_native("/services", &key) else { return Err(OutboundError::Place(format!("service \"{name}\" not found"))) };
    let ports = at(&service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let Some(wanted) = ports.iter().find(|p| p["port"].as_u64() == Some(port)) else {
        return Err(OutboundError::Place(format!("no service port {port} found for service \"{name}\"")));
    };
    let port_name = text(wanted, &["name"]);
    let mut found = None;
    core.store.scan("discovery.k8s.io/endpointslices", &format!("{namespace}/"), &mut |entry| {
        let slice = decode(&entry.value);
        if found.is_some() || text(&slice, &["metadata", "labels", "kubernetes.io/service-name"]) != name {
            return;
        }
        let ports = slice["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let port = ports.iter().find(|p| text(p, &["name"]) == port_name).and_then(|p| p["port"].as_u64()).and_then(|p| u16::try_from(p).ok());
        let ready = slice["endpoints"].as_array().into_iter().flatten().find(|e| e["conditions"]["ready"] != Value::Bool(false));
        let address = ready.and_then(|e| e["addresses"][0].as_str()).and_then(|a| a.parse().ok());
        found = address.zip(port).map(|(address, port)| SocketAddr::new(address, port));
    });
    found.ok_or_else(|| OutboundError::Place(format!("no endpoints available for service \"{name}\"")))
}

/// TLS that trusts the bundle and nothing else.
fn trust(bundle: &str) -> Result<rustls::ClientConfig, OutboundError> {
    let fault = |text: &dyn std::fmt::Display| OutboundError::Trust(text.to_string());
    let pem = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|e| fault(&e))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|e| fault(&e))?).map_err(|e| fault(&e))?;
    }
    if roots.is_empty() {
        return Err(fault(&"it has no certificate"));
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider())).with_safe_default_protocol_versions();
    Ok(config.map_err(|e| fault(&e))?.with_root_certificates(roots).with_no_client_auth())
}

/// Sends JSON to the server that a `clientConfig` names and reads its answer within the time.
pub(crate) async fn post(core: &Core, config: &Value, body: &Value, within: Duration) -> Result<Value, OutboundError> {
    let place = place(core, config)?;
    let tls = trust(text(config, &["caBundle"]))?;
    let bytes = crate::respond::to_json(body);
    tokio::time::timeout(within, exchange(place, tls, bytes, within)).await.map_err(|_| OutboundError::Late)?
}

async fn exchange(place: Place, tls: rustls::ClientConfig, body: Bytes, within: Duration) -> Result<Value, OutboundError> {
    let connect = |source| OutboundError::Connect { address: place.address.clone(), source };
    let tcp = TcpStream::connect(&place.address).await.map_err(connect)?;
    let _ = tcp.set_nodelay(true);
    let name = ServerName::try_from(place.name.clone()).map_err(|e| OutboundError::Trust(e.to_string()))?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let joint = if place.path.contains('?') { '&' } else { '?' };
    let request = Request::post(format!("{}{joint}timeout={}s", place.path, within.as_secs().max(1)))
        .header(header::HOST, &place.host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(body))
        .map_err(|e| OutboundError::Place(e.to_string()))?;
    let response = sender.send_request(request).await;
    let result = read(response).await;
    driver.abort();
    result
}

async fn read(response: Result<http::Response<hyper::body::Incoming>, hyper::Error>) -> Result<Value, OutboundError> {
    let response = response?;
    if !response.status().is_success() {
        return Err(OutboundError::Refused(response.status()));
    }
    let answer = |text: &dyn std::fmt::Display| OutboundError::Answer(text.to_string());
    let bytes = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| answer(&e))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|e| answer(&e))
}
