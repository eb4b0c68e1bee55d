//! OpenAPI documents: made when first asked for, kept compressed; those of built-in kinds once for all servers of a process.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use schema::openapi::{self, CustomKind};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::accept::Encoding;
use crate::body::{self, Body};
use crate::core::{Core, page_not_found};
use crate::query::Query;
use crate::resource::{Resource, Routes, api_version};
use crate::respond;
use crate::status::ApiError;

/// Compressed documents by path and hash.
type Kept = Mutex<BTreeMap<String, (String, Bytes)>>;

static NATIVE: Kept = Mutex::new(BTreeMap::new());

/// Documents of custom kinds that were made so far.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    made: Kept,
}

impl Documents {
    pub(crate) fn forget(&self) {
        self.made.lock().clear();
    }
}

fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_ref());
        hash.update([0]);
    }
    hex::encode_upper(hash.finalize())
}

/// Changes whenever the document of a group version does, without making the document.
fn hash_of(core: &Core, routes: &Routes, group: &str, version: &str) -> String {
    let mut parts: Vec<Vec<u8>> = vec![env!("CARGO_PKG_VERSION").into(), core.options.version.clone().into(), api_version(group, version).into()];
    for resource in routes.of(group, version) {
        parts.push(resource.plural.clone().into());
        if let Some(custom) = &resource.custom {
            parts.push(custom.crd.get("spec").map(Value::to_string).unwrap_or_default().into());
        }
    }
    digest(parts)
}

fn custom_kinds<'a>(resources: &'a [Arc<Resource>]) -> Vec<CustomKind<'a>> {
    resources
        .iter()
        .filter_map(|resource| {
            let custom = resource.custom.as_ref()?;
            Some(CustomKind {
                plural: &resource.plural,
                kind: &resource.kind,
                list_kind: &resource.list_kind,
                namespaced: resource.namespaced,
                schema: custom.schema.as_ref(),
                status: resource.has("status"),
                scale: resource.has("scale"),
            })
        })
        .collect()
}

fn compress(value: &Value) -> Bytes {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing into memory cannot fail.
    let _ = serde_json::to_writer(&mut out, value);
    let _ = out.flush();
    Bytes::from(out.finish().unwrap_or_default())
}

fn make_v3(routes: &Routes, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<Arc<Resource>> = routes.of(group, version).cloned().collect();
    if resources.iter().any(|r| r.native.is_some()) {
        return openapi::native(group, version);
    }
    (!resources.is_empty()).then(|| openapi::custom(group, version, &custom_kinds(&resources)))
}

fn make_v2(routes: &Routes) -> Value {
    let mut owned: Vec<(&str, &str, Vec<Arc<Resource>>)> = Vec::new();
    for group in &routes.groups {
        for version in &group.versions {
            let resources: Vec<Arc<Resource>> = routes.of(&group.name, version).filter(|r| r.custom.is_some()).cloned().collect();
            if !resources.is_empty() {
                owned.push((&group.name, version, resources));
            }
        }
    }
    let customs: Vec<(&str, &str, Vec<CustomKind<'_>>)> = owned.iter().map(|(g, v, r)| (*g, *v, custom_kinds(r))).collect();
    openapi::v2(&customs)
}

/// A kept document, or a fresh one.
async fn document(core: &Arc<Core>, path: &str, hash: &str, native: bool, make: impl FnOnce() -> Option<Value> + Send + 'static) -> Option<Bytes> {
    let kept = if native { &NATIVE } else { &core.openapi.made };
    if let Some((known, bytes)) = kept.lock().get(path)
        && known == hash
    {
        return Some(bytes.clone());
    }
    // Tens of milliseconds of work: not on a thread that serves requests.
    let bytes = tokio::task::spawn_blocking(move || make().map(|value| compress(&value))).await.ok()??;
    kept.lock().insert(path.to_owned(), (hash.to_owned(), bytes.clone()));
    Some(bytes)
}

fn send(headers: &HeaderMap, bytes: Bytes, hash: &str, content_type: &'static str, immutable: bool) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    if body::header_text(headers, "if-none-match") == Some(&tag) {
        let mut response = body::response(StatusCode::NOT_MODIFIED, content_type, body::full(""));
        if let Ok(value) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(header::ETAG, value);
        }
        return response;
    }
    let gzip = body::header_text(headers, "accept-encoding").is_some_and(|e| e.contains("gzip"));
    let bytes = if gzip {
        bytes
    } else {
        let mut plain = Vec::new();
        // We compressed it ourselves.
        let _ = GzDecoder::new(&bytes[..]).read_to_end(&mut plain);
        Bytes::from(plain)
    };
    let mut response = body::response(StatusCode::OK, content_type, body::full(bytes));
    let out = response.headers_mut();
    if gzip {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if immutable {
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        out.insert(header::ETAG, value);
    }
    response
}

pub(crate) async fn serve(core: &Arc<Core>, path: &str, query: &Query, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    let routes = core.routes.load_full();
    let path = path.trim_matches('/');
    if path == "openapi/v3" {
        let mut paths = Map::new();
        for group in &routes.groups {
            for version in &group.versions {
                let place = if group.name.is_empty() { format!("api/{version}") } else { format!("apis/{}/{version}", group.name) };
                let hash = hash_of(core, &routes, &group.name, version);
                paths.insert(place.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{place}?hash={hash}")}));
            }
        }
        return Ok(respond::value(StatusCode::OK, &json!({ "paths": paths }), Encoding::Json, false));
    }
    if path == "openapi/v2" {
        let hash = digest(routes.groups.iter().flat_map(|g| g.versions.iter().map(|v| hash_of(core, &routes, &g.name, v)).collect::<Vec<_>>()));
        let native = routes.all.iter().all(|r| r.custom.is_none());
        let binary = body::header_text(headers, "accept").is_some_and(|a| a.contains("com.github.proto-openapi.spec.v2"));
        let bytes = document(core, "v2", &hash, native, move || Some(make_v2(&routes))).await;
        let Some(bytes) = bytes else { return Ok(page_not_found()) };
        if binary {
            let mut plain = Vec::new();
            let _ = GzDecoder::new(&bytes[..]).read_to_end(&mut plain);
            let value: Value = serde_json::from_slice(&plain).unwrap_or_default();
            let encoded = crate::swagger::encode(&value);
            let mut response = body::response(StatusCode::OK, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", body::full(encoded));
            if let Ok(value) = HeaderValue::from_str(&format!("\"{hash}\"")) {
                response.headers_mut().insert(header::ETAG, value);
            }
            return Ok(response);
        }
        return Ok(send(headers, bytes, &hash, "application/json", false));
    }
    let Some(place) = path.strip_prefix("openapi/v3/") else { return Ok(page_not_found()) };
    let parts: Vec<&str> = place.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Ok(page_not_found()),
    };
    if routes.of(group, version).next().is_none() {
        return Ok(page_not_found());
    }
    let hash = hash_of(core, &routes, group, version);
    let asked = query.get("hash").map(str::to_owned);
    if asked.as_ref().is_some_and(|asked| *asked != hash) {
        let mut response = body::response(StatusCode::MOVED_PERMANENTLY, "text/plain", body::full(""));
        if let Ok(value) = HeaderValue::from_str(&format!("/openapi/v3/{place}?hash={hash}")) {
            response.headers_mut().insert(header::LOCATION, value);
        }
        return Ok(response);
    }
    let native = routes.of(group, version).any(|r| r.native.is_some());
    let (owned_group, owned_version) = (group.to_owned(), version.to_owned());
    match document(core, place, &hash, native, move || make_v3(&routes, &owned_group, &owned_version)).await {
        Some(bytes) => Ok(send(headers, bytes, &hash, "application/json", asked.is_some())),
        None => Ok(page_not_found()),
    }
}
