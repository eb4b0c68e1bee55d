//! Questions to a cluster's predictor: directly, or through the parent's proxy into the cluster.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::predictor::{CLUSTER_ID_HEADER, DEFAULT_KEY, PREDICT_PATH};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::Endpoint;

/// Longest answer that is read.
const LONGEST: usize = 1 << 20;

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
        // The status is looked at here: what is no Kubernetes status has no code that the client could find in the body.
        let answered = async {
            let cannot = |error: &(dyn std::error::Error + 'static)| format!("predictor cannot be asked: {}", crate::error::chain(error));
            let answer = client.send(request.map(Body::from)).await.map_err(|error| format!("predictor cannot be asked: {}", crate::error::message(&error)))?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| cannot(&*error))?.to_bytes();
            read(status, &body)
        };
        match tokio::time::timeout(timeout, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("predictor did not answer within {} s", timeout.as_secs())),
        }
    }

    /// How many more replicas fit, in the answer's total.
    pub async fn total(&self, place: Place<'_>, body: Vec<u8>, timeout: Duration) -> Result<i32, String> {
        let answer: Value = self.ask(place, http::Method::POST, PREDICT_PATH, body, timeout).await?;
        total(&answer)
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

/// The answer in a response, or what is wrong with it.
fn read<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, String> {
    if !(200..300).contains(&status) {
        return Err(format!("predictor answered HTTP {status}{}", said(body)));
    }
    let value: Value = serde_json::from_slice(body).map_err(|_| "predictor answered something else than JSON".to_owned())?;
    serde_json::from_value(value).map_err(|error| format!("predictor answered JSON that is no prediction: {error}"))
}

/// The message of an error's body, shortened.
fn said(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = ["message", "error"].iter().find_map(|key| value.get(key)?.as_str()).unwrap_or_default();
    if text.is_empty() { String::new() } else { format!(": {}", text.chars().take(200).collect::<String>()) }
}

/// The total of an answer.
fn total(answer: &Value) -> Result<i32, String> {
    let Some(replicas) = answer.get("replicas").and_then(Value::as_object) else {
        return Err(format!("predictor answered without \"replicas\", expected {{\"replicas\": {{{DEFAULT_KEY:?}: NUMBER}}}}"));
    };
    let Some(total) = replicas.get(DEFAULT_KEY) else {
        return Err(format!("predictor answered without a total, expected it as replicas.{DEFAULT_KEY}"));
    };
    let shown: String = total.to_string().chars().take(40).collect();
    match total.as_i64() {
        Some(number) if number < 0 => Err(format!("predictor answered {shown} replicas, which is negative")),
        Some(number) => i32::try_from(number).map_err(|_| format!("predictor answered {shown} replicas, more than {}", i32::MAX)),
        None => Err(format!("predictor answered {shown} for replicas.{DEFAULT_KEY}, which is no whole number")),
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
    fn answers_in_words() {
        let check = |status: u16, body: &str, want: Result<i32, &str>| {
            let got = read::<Value>(status, body.as_bytes()).and_then(|value| total(&value));
            assert!(match (&got, want) {
                (Ok(got), Ok(want)) => *got == want,
                (Err(got), Err(want)) => got.contains(want),
                _ => false,
            }, "{status} {body}: {got:?}");
        };
        check(200, r#"{"replicas":{"default":7}}"#, Ok(7));
        check(500, r#"{"replicas":{"default":7}}"#, Err("HTTP 500"));
        check(503, r#"{"message":"busy"}"#, Err("HTTP 503: busy"));
        check(200, "<html>", Err("something else than JSON"));
        check(200, "[1,2]", Err("without \"replicas\""));
        check(200, r#"{"replicas":{"zone-a":3}}"#, Err("replicas.default"));
        check(200, r#"{"replicas":{"default":-5}}"#, Err("-5 replicas, which is negative"));
        check(200, r#"{"replicas":{"default":99999999999}}"#, Err("99999999999 replicas, more than"));
        check(200, r#"{"replicas":{"default":"ten"}}"#, Err("\"ten\" for replicas.default, which is no whole number"));
    }

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
