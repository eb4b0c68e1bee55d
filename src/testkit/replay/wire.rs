//! Plain requests to an API server: what the recorder did with an HTTP client.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;

/// One server with what discovery said of it.
pub(super) struct Server {
    client: kube::Client,
    /// Of a server in this process.
    store: Option<store::Store>,
    kinds: Mutex<BTreeMap<(String, String), (String, bool)>>,
}

impl Server {
    /// Wraps an administrator's client; a server in this process gives its store too.
    pub(super) fn new(client: kube::Client, store: Option<store::Store>) -> Server {
        Server { client, store, kinds: Mutex::default() }
    }

    /// Revision of its store: another answer means that something was written.
    pub(super) async fn revision(&self) -> Result<String> {
        if let Some(store) = &self.store {
            return Ok(store.revision().to_string());
        }
        // A list carries the revision of everything.
        let (_, list) = self.json("GET", "/api/v1/namespaces?limit=1", None).await?;
        Ok(list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Sends a request; the answer is its code and its JSON, or `{"message": text}`.
    pub(super) async fn send(&self, method: &str, path: &str, body: Option<&Value>, content_type: &str, accept: &str) -> Result<(u16, Value)> {
        let body = body.map(|value| value.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, accept)
            .body(Body::from(body))?;
        let answer = self.client.send(request).await?;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| serde_json::json!({"message": String::from_utf8_lossy(&bytes)}));
        Ok((code, value))
    }

    /// A request with JSON both ways.
    pub(super) async fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        self.send(method, path, body, "application/json", "application/json").await
    }

    /// The items of a list; none when there is no such list.
    pub(super) async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let (code, mut list) = self.json("GET", path, None).await?;
        Ok(match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if code == 200 => items,
            _ => Vec::new(),
        })
    }

    /// Plural and scope of a kind; asks again for a while, since a CRD's routes come a moment after it.
    pub(super) async fn resource(&self, api_version: &str, kind: &str, tries: u32) -> Result<Option<(String, bool)>> {
        let key = (api_version.to_owned(), kind.to_owned());
        for attempt in 0..tries.max(1) {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            if let Some(found) = self.kinds.lock().get(&key) {
                return Ok(Some(found.clone()));
            }
            let (_, document) = self.json("GET", &format!("{}{api_version}", root(api_version)), None).await?;
            for resource in document["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                if !name.contains('/') {
                    let entry = (name.to_owned(), resource["namespaced"].as_bool().unwrap_or_default());
                    let kind = resource["kind"].as_str().unwrap_or_default().to_owned();
                    self.kinds.lock().insert((api_version.to_owned(), kind), entry);
                }
            }
        }
        Ok(self.kinds.lock().get(&key).cloned())
    }

    /// Paths of the collection and of the object; `shadow` through the shadow API.
    pub(super) async fn paths(&self, object: &Value, shadow: bool, tries: u32) -> Result<Option<(String, String)>> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let Some((plural, namespaced)) = self.resource(api_version, kind, tries).await? else { return Ok(None) };
        let root = if shadow { "/apis/shadow/v1alpha1".to_owned() } else { format!("{}{api_version}", root(api_version)) };
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        let collection = if namespaced { format!("{root}/namespaces/{namespace}/{plural}") } else { format!("{root}/{plural}") };
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let path = format!("{collection}/{}", cluster::resource::escaped(name));
        Ok(Some((collection, path)))
    }
}

/// `/api/` for the core group, `/apis/` for others.
pub(super) fn root(api_version: &str) -> &'static str {
    if api_version.contains('/') { "/apis/" } else { "/api/" }
}
