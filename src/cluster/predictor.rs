//! Questions to a cluster's predictor: directly, or through the parent's proxy into the cluster.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::predictor::{CLUSTER_ID_HEADER, DEFAULT_KEY, PREDICT_PATH, ReplicasResponse};
use kube::Client;
use serde::de::DeserializeOwned;

use crate::client::Endpoint;

/// Where a predictor is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Id of the cluster.
    pub cluster_id: &'a str,
    /// URL or `host:port`.
    pub address: &'a str,
    /// Asked without the tunnel.
    pub direct: bool,
    /// Whether the cluster keeps a tunnel.
    pub tunnel: bool,
}

/// Asks predictors.
pub struct Predictors {
    parent: Client,
    direct: Mutex<BTreeMap<String, Client>>,
}

impl Predictors {
    /// Asks through this parent where a predictor is not asked directly.
    pub fn new(parent: Client) -> Self {
        Self { parent, direct: Mutex::default() }
    }

    /// One question; the error says why there is no answer.
    pub async fn ask<T: DeserializeOwned>(&self, place: Place<'_>, method: http::Method, path: &str, body: Vec<u8>, timeout: Duration) -> Result<T, String> {
        let (client, url) = if place.direct {
            let (base, prefix) = split(place.address);
            (self.client(&base)?, format!("{prefix}{path}"))
        } else if place.tunnel {
            let address = place.address.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/');
            (self.parent.clone(), format!("{}{path}", api::proxies::http_path(place.cluster_id, address)))
        } else {
            return Err("predictor is only reached through the tunnel, which the cluster does not use".to_owned());
        };
        let request = http::Request::builder()
            .method(method)
            .uri(url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(CLUSTER_ID_HEADER, place.cluster_id)
            .body(body)
            .map_err(|error| format!("predictor address is no URL: {error}"))?;
        match tokio::time::timeout(timeout, client.request::<T>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(format!("predictor answered {}", status.code)),
            Ok(Err(kube::Error::SerdeError(_))) => Err("predictor answered something else than JSON".to_owned()),
            Ok(Err(error)) => Err(format!("predictor cannot be asked: {}", crate::error::message(&error))),
            Err(_) => Err(format!("predictor did not answer within {} s", timeout.as_secs())),
        }
    }

    /// How many more replicas fit, in the answer's total.
    pub async fn total(&self, place: Place<'_>, body: Vec<u8>, timeout: Duration) -> Result<i32, String> {
        let answer: ReplicasResponse = self.ask(place, http::Method::POST, PREDICT_PATH, body, timeout).await?;
        answer.replicas.get(DEFAULT_KEY).copied().ok_or_else(|| "predictor answered without a total".to_owned())
    }

    fn client(&self, base: &str) -> Result<Client, String> {
        let mut clients = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(base) {
            return Ok(client.clone());
        }
        let endpoint = Endpoint { url: base.to_owned(), ..Endpoint::default() };
        let client = endpoint.client().map_err(|error| format!("predictor address cannot be used: {error}"))?;
        clients.insert(base.to_owned(), client.clone());
        Ok(client)
    }
}

/// An address with its scheme; a bare `host:port` is HTTP.
pub fn with_scheme(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
}

/// Server and path of an address.
fn split(address: &str) -> (String, String) {
    let full = with_scheme(address.trim_end_matches('/'));
    let authority = full.find("://").map_or(0, |at| at + 3);
    match full[authority..].find('/') {
        Some(at) => (full[..authority + at].to_owned(), full[authority + at..].to_owned()),
        None => (full, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, base, path) in [
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080", ""),
            ("http://10.0.0.1:8080/cap/3/", "http://10.0.0.1:8080", "/cap/3"),
            ("localhost:8080", "http://localhost:8080", ""),
            ("https://predict.example/x", "https://predict.example", "/x"),
        ] {
            assert_eq!(split(address), (base.to_owned(), path.to_owned()));
        }
    }
}
