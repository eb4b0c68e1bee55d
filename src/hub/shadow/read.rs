//! Reading shadowed objects: get, list, watch, scale, tables.

use std::sync::Arc;

use api::known::label;
use api::object;
use apiserver::body::{streamed, Body};
use apiserver::status::ApiError;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::{header, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{json, Value};

use super::{passed_on, Call};
use crate::reply::json_body;

impl Call {
    pub(super) async fn get(&self) -> Result<Response<Body>, ApiError> {
        let stored = self.stored(&self.info.name).await?;
        if self.info.subresource == "scale" {
            return Ok(json_body(StatusCode::OK, &scale(&stored)));
        }
        let shown = self.shown(&stored);
        if let Some(table) = self.table(std::slice::from_ref(&shown), &json!({})) {
            return Ok(json_body(StatusCode::OK, &table));
        }
        Ok(json_body(StatusCode::OK, &shown))
    }

    pub(super) async fn list(&self) -> Result<Response<Body>, ApiError> {
        let inner = self.inner();
        let mut path = format!("{}?labelSelector={}", inner.manifests.collection(&inner.reserved), escape(&self.selector()?));
        for name in ["limit", "continue", "resourceVersion", "resourceVersionMatch"] {
            if let Some(value) = self.query.text(name) {
                path.push_str(&format!("&{name}={}", escape(value)));
            }
        }
        let stored = inner.parent.call("GET", &path, None, None).await.map_err(passed_on)?;
        let items: Vec<Value> = stored["items"].as_array().into_iter().flatten().map(|item| self.shown(item)).collect();
        let metadata = stored.get("metadata").cloned().unwrap_or_else(|| json!({}));
        if let Some(table) = self.table(&items, &metadata) {
            return Ok(json_body(StatusCode::OK, &table));
        }
        let list = json!({"apiVersion": self.kind.api_version(), "kind": self.kind.list_kind, "metadata": metadata, "items": items});
        Ok(json_body(StatusCode::OK, &list))
    }

    pub(super) async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let inner = self.inner();
        let mut path = format!("{}?watch=true&labelSelector={}", inner.manifests.collection(&inner.reserved), escape(&self.selector()?));
        for name in ["resourceVersion", "resourceVersionMatch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds"] {
            if let Some(value) = self.query.text(name) {
                path.push_str(&format!("&{name}={}", escape(value)));
            }
        }
        let request = Request::get(path)
            .body(kube::client::Body::empty())
            .map_err(|error| ApiError::bad_request(format!("read the watch parameters: {error}")))?;
        let answer = inner.parent.client().send(request).await.map_err(passed_on)?;
        let code = answer.status();
        if !code.is_success() {
            let bytes = answer.into_body().collect().await.map(|all| all.to_bytes()).unwrap_or_default();
            return Ok(json_body(code, &serde_json::from_slice(&bytes).unwrap_or_default()));
        }
        let kind = Arc::clone(&self.kind);
        let pieces = answer.into_body().into_data_stream();
        let lines = Lines { rest: BytesMut::new() };
        let events = pieces.scan(lines, |lines, piece| {
            let done = piece.ok().map(|bytes| lines.push(&bytes));
            futures::future::ready(done)
        });
        let shown = events.flat_map(futures::stream::iter).filter_map(move |line| futures::future::ready(event(&line, &kind.api_version(), &kind.kind)));
        let mut response = Response::new(streamed(shown));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// The caller's selectors, and those that keep kinds and namespaces apart.
    fn selector(&self) -> Result<String, ApiError> {
        let mut parts = vec![
            format!("{}={}", label::CONFIG_GROUP, self.kind.group),
            format!("{}={}", label::CONFIG_KIND, self.kind.kind),
        ];
        let namespace = self.namespace();
        if !namespace.is_empty() {
            parts.push(format!("{}={namespace}", label::CONFIG_NAMESPACE));
        }
        for (field, value) in self.fields()? {
            let key = if field == "metadata.name" { label::CONFIG_NAME } else { label::CONFIG_NAMESPACE };
            parts.push(format!("{key}={value}"));
        }
        if let Some(labels) = self.query.text("labelSelector") {
            parts.push(labels.to_owned());
        }
        Ok(parts.join(","))
    }

    fn fields(&self) -> Result<Vec<(String, String)>, ApiError> {
        let mut found = Vec::new();
        for part in self.query.text("fieldSelector").unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
            let (field, value) = part
                .split_once("==")
                .or_else(|| part.split_once('='))
                .ok_or_else(|| ApiError::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")))?;
            if !matches!(field, "metadata.name" | "metadata.namespace") {
                return Err(ApiError::bad_request(format!(
                    "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )));
            }
            found.push((field.to_owned(), value.to_owned()));
        }
        Ok(found)
    }

    /// The objects as a Table, when the caller asks for one and the kind has columns.
    fn table(&self, objects: &[Value], metadata: &Value) -> Option<Value> {
        if !self.accept.contains("as=Table") {
            return None;
        }
        let kind = (self.kind.group.as_str(), self.kind.version.as_str(), self.kind.plural.as_str());
        let include = self.query.text("includeObject").unwrap_or("Metadata");
        let now = k8s_openapi::jiff::Timestamp::now();
        let mut table = apiserver::table::print(kind, self.kind.definition.as_deref(), include, metadata.clone(), objects.to_vec(), now)?;
        as_before(kind, &mut table, objects);
        Some(table)
    }
}

/// Scripts that read the original's tables know the columns of older servers: data are counted in numbers, and ServiceAccounts tell
/// their secrets.
fn as_before(kind: (&str, &str, &str), table: &mut Value, objects: &[Value]) {
    let accounts = kind == ("", "v1", "serviceaccounts");
    if accounts && let Some(columns) = table.get_mut("columnDefinitions").and_then(Value::as_array_mut) {
        let description = "Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use.";
        columns.insert(1.min(columns.len()), json!({"name": "Secrets", "type": "string", "format": "", "priority": 0, "description": description}));
    }
    let counted = match kind {
        ("", "v1", "configmaps") => Some(1),
        ("", "v1", "secrets") => Some(2),
        _ => None,
    };
    for (row, object) in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten().zip(objects) {
        let Some(cells) = row.get_mut("cells").and_then(Value::as_array_mut) else { continue };
        if accounts {
            let secrets = object.get("secrets").and_then(Value::as_array).map_or(0, Vec::len);
            cells.insert(1.min(cells.len()), json!(secrets));
        }
        if let Some(cell) = counted.and_then(|at| cells.get_mut(at))
            && let Some(count) = cell.as_str().and_then(|text| text.parse::<u64>().ok())
        {
            *cell = json!(count);
        }
    }
}

/// The Scale of a stored workload (autoscaling/v1).
pub(super) fn scale(stored: &Value) -> Value {
    let template = stored.get("template").unwrap_or(&Value::Null);
    let replicas = |pointer: &str| template.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({"name": object::name(template), "namespace": object::namespace(template)});
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = stored.get("metadata").and_then(|meta| meta.get(field)) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata,
        "spec": {"replicas": replicas("/spec/replicas")}, "status": {"replicas": replicas("/status/replicas")},
    })
}

/// Splits a byte stream at line ends.
struct Lines {
    rest: BytesMut,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        self.rest.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            lines.push(self.rest.split_to(end + 1).freeze());
        }
        lines
    }
}

/// A watch event of a Manifest as one of the object in it.
fn event(line: &[u8], api_version: &str, kind: &str) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    match event["type"].as_str()? {
        "ERROR" => {}
        "BOOKMARK" => {
            event["object"]["apiVersion"] = json!(api_version);
            event["object"]["kind"] = json!(kind);
        }
        _ => event["object"] = plan::shadow::shown(&event["object"]),
    }
    let mut text = event.to_string();
    text.push('\n');
    Some(text.into())
}

fn escape(text: &str) -> String {
    cluster::resource::escaped(text)
}
