//! Requests to servers that extend this one: by URL, or to a Service through the endpoints that stand behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::core::Core;
use crate::object::{at, decode, text};
use crate::trust;

/// Largest answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error("{0}")]
    Place(String),
    #[error("use the CA bundle: {0}")]
    Trust(String),
    #[error("Post \"{url}\": {why}")]
    Talk { url: String, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("read the answer: {0}")]
    Answer(String),
}

/// What Go's client says of an answer that is no success.
fn refused(code: http::StatusCode, is_text: bool, body: &[u8]) -> OutboundError {
    let text = if is_text { String::from_utf8_lossy(&body[..body.len().min(2048)]) } else { "unknown".into() };
    let text = text.trim();
    OutboundError::Refused(match code.as_u16() {
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => format!("the server rejected our request for an unknown reason ({text})"),
    })
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
    Ok(Place { address, name: host.clone(), host: format!("{host}:{port}"), path })
}

/// The EndpointSlices of a Service.
pub(crate) fn slices(core: &Core, namespace: &str, name: &str) -> Vec<Value> {
    let mut found = Vec::new();
    core.store.scan("discovery.k8s.io/endpointslices", &format!("{namespace}/"), &mut |entry| {
        let slice = decode(&entry.value);
        if text(&slice, &["metadata", "labels", "kubernetes.io/service-name"]) == name {
            found.push(slice);
        }
    });
    found
}

/// The first ready address of a slice at the port of this name.
pub(crate) fn ready(slice: &Value, port_name: &str) -> Option<SocketAddr> {
    let ports = slice["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let port = ports.iter().find(|p| text(p, &["name"]) == port_name).and_then(|p| p["port"].as_u64()).and_then(|p| u16::try_from(p).ok())?;
    let endpoint = slice["endpoints"].as_array().into_iter().flatten().find(|e| e["conditions"]["ready"] != Value::Bool(false))?;
    Some(SocketAddr::new(endpoint["addresses"][0].as_str()?.parse().ok()?, port))
}

/// An address behind a port of a Service: of its endpoints, since nobody routes the addresses of Services here.
pub(crate) fn behind(core: &Core, namespace: &str, name: &str, port: u64) -> Result<String, OutboundError> {
    let fault = |text: String| Err(OutboundError::Place(text));
    let Some(service) = core.read_native("/services", &format!("{namespace}/{name}")) else { return fault(format!("service \"{name}\" not found")) };
    if text(&service, &["spec", "type"]) == "ExternalName" {
        return Ok(format!("{}:{port}", text(&service, &["spec", "externalName"])));
    }
    let ports = at(&service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let Some(wanted) = ports.iter().find(|p| p["port"].as_u64() == Some(port)) else {
        return fault(format!("no service port {port} found for service \"{name}\""));
    };
    let found = slices(core, namespace, name).iter().find_map(|slice| ready(slice, text(wanted, &["name"])));
    found.map(|address| address.to_string()).ok_or_else(|| OutboundError::Place(format!("no endpoints available for service \"{name}\"")))
}

/// Sends JSON to the server that a `clientConfig` names and reads its answer within the time.
pub(crate) async fn post(core: &Core, config: &Value, body: &Value, within: Duration) -> Result<Value, OutboundError> {
    let place = place(core, config)?;
    let tls = trust::client(text(config, &["caBundle"]), false).map_err(OutboundError::Trust)?.with_no_client_auth();
    let bytes = crate::respond::to_json(body);
    let joint = if place.path.contains('?') { '&' } else { '?' };
    let path = format!("{}{joint}timeout={}s", place.path, within.as_secs().max(1));
    let failed = |why: String| OutboundError::Talk { url: format!("https://{}{path}", place.host), why };
    let answer = tokio::time::timeout(within, exchange(&place, &path, tls, bytes)).await;
    let (code, is_text, bytes) = answer.map_err(|_| failed("context deadline exceeded".to_owned()))?.map_err(failed)?;
    if !code.is_success() {
        return Err(refused(code, is_text, &bytes));
    }
    serde_json::from_slice(&bytes).map_err(|e| OutboundError::Answer(e.to_string()))
}

/// The words of the system for an error, without what Rust adds to them.
pub(crate) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

async fn exchange(place: &Place, path: &str, tls: rustls::ClientConfig, body: Bytes) -> Result<(http::StatusCode, bool, Bytes), String> {
    let tcp = TcpStream::connect(&place.address).await.map_err(|e| format!("dial tcp {}: connect: {}", place.address, words(&e)))?;
    let _ = tcp.set_nodelay(true);
    let name = ServerName::try_from(place.name.clone()).map_err(|e| e.to_string())?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(|e| trust::words(&e))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let request = Request::post(path)
        .header(header::HOST, &place.host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(body))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await;
    let result = read(response).await;
    driver.abort();
    result
}

async fn read(response: Result<http::Response<hyper::body::Incoming>, hyper::Error>) -> Result<(http::StatusCode, bool, Bytes), String> {
    let response = response.map_err(|e| e.to_string())?;
    let code = response.status();
    let is_text = crate::body::header_text(response.headers(), "content-type").is_some_and(|kind| kind.starts_with("text/"));
    let bytes = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| e.to_string())?.to_bytes();
    Ok((code, is_text, bytes))
}
