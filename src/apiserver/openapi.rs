//! OpenAPI documents, kept as compressed pieces: one for the built-in kinds of a process, one for each custom group version.
//! A changed definition makes only its own pieces again; documents are put together from pieces when they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use schema::openapi::{self, CustomKind, Parts};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::accept::Encoding;
use crate::body::{self, Body};
use crate::core::{Core, page_not_found};
use crate::pieces::{self, Piece};
use crate::query::Query;
use crate::resource::{Resource, Routes, api_version};
use crate::respond;
use crate::status::ApiError;
use crate::swagger;

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Paths and schemas of a part of a document: members of a JSON object without its braces, or protobuf fields.
#[derive(Debug)]
struct Pair {
    paths: Piece,
    schemas: Piece,
}

/// The members of an object.
fn members(map: &Map<String, Value>) -> Vec<u8> {
    let mut text = serde_json::to_vec(map).unwrap_or_default();
    text.pop();
    if !text.is_empty() {
        text.remove(0);
    }
    text
}

impl Pair {
    fn json(parts: &Parts) -> Self {
        Self { paths: Piece::new(&members(&parts.paths)), schemas: Piece::new(&members(&parts.schemas)) }
    }

    fn binary(parts: &Parts) -> Self {
        Self { paths: Piece::new(&swagger::paths(&parts.paths)), schemas: Piece::new(&swagger::definitions(&parts.schemas)) }
    }
}

/// What the built-in kinds bring to v2, for all servers of the process.
#[derive(Debug)]
struct Native {
    json: Pair,
    binary: Pair,
    /// Names of the schemas.
    names: BTreeSet<String>,
}

fn native_v2() -> &'static Native {
    static ALL: OnceLock<Native> = OnceLock::new();
    ALL.get_or_init(|| {
        let parts = openapi::natives().into_v2();
        Native { json: Pair::json(&parts), binary: Pair::binary(&parts), names: parts.schemas.keys().cloned().collect() }
    })
}

/// Documents of built-in group versions, compressed.
fn native_v3(group: &str, version: &str) -> Option<Bytes> {
    static MADE: Mutex<BTreeMap<String, Bytes>> = Mutex::new(BTreeMap::new());
    let place = api_version(group, version);
    if let Some(bytes) = MADE.lock().get(&place) {
        return Some(bytes.clone());
    }
    let own = Pair::json(&openapi::native(group, version)?);
    let made = framed(&Frame::new(openapi::frame_v3()), &[&own.paths], &[&own.schemas]);
    MADE.lock().insert(place, made.clone());
    Some(made)
}

/// The built-in schemas that documents of custom kinds refer to, without and with Scale.
fn referred(scale: bool) -> &'static Piece {
    static ALL: [OnceLock<Piece>; 2] = [OnceLock::new(), OnceLock::new()];
    ALL[usize::from(scale)].get_or_init(|| Piece::new(&members(&openapi::referred(scale))))
}

/// A custom group version.
#[derive(Debug)]
struct Part {
    hash: String,
    group: String,
    version: String,
    resources: Vec<Arc<Resource>>,
    v3: OnceLock<Pair>,
    v2: OnceLock<Pair>,
    binary: OnceLock<Pair>,
}

impl Part {
    fn parts(&self) -> Parts {
        openapi::own(&self.group, &self.version, &custom_kinds(&self.resources))
    }

    fn v2_parts(&self) -> Parts {
        let mut parts = self.parts().into_v2();
        // A name is said once; the built-in kinds have said theirs.
        parts.schemas.retain(|name, _| !native_v2().names.contains(name));
        parts
    }

    fn v3(&self) -> &Pair {
        self.v3.get_or_init(|| Pair::json(&self.parts()))
    }

    fn v2(&self) -> &Pair {
        self.v2.get_or_init(|| Pair::json(&self.v2_parts()))
    }

    fn binary(&self) -> &Pair {
        self.binary.get_or_init(|| Pair::binary(&self.v2_parts()))
    }
}

/// The parts of custom group versions, as far as they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    parts: Mutex<BTreeMap<(String, String), Arc<Part>>>,
}

impl Documents {
    /// Lets go what is not served any more.
    pub(crate) fn keep(&self, routes: &Routes) {
        self.parts.lock().retain(|(group, version), _| routes.of(group, version).next().is_some());
    }

    fn part(&self, routes: &Routes, group: &str, version: &str) -> Arc<Part> {
        let resources: Vec<Arc<Resource>> = routes.of(group, version).filter(|r| r.custom.is_some()).cloned().collect();
        let hash = digest(resources.iter().map(|r| hash_of_custom(r)));
        let mut parts = self.parts.lock();
        let key = (group.to_owned(), version.to_owned());
        if let Some(known) = parts.get(&key)
            && known.hash == hash
        {
            return known.clone();
        }
        let part = Part { hash, group: key.0.clone(), version: key.1.clone(), resources, v3: OnceLock::new(), v2: OnceLock::new(), binary: OnceLock::new() };
        let part = Arc::new(part);
        parts.insert(key, part.clone());
        part
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

/// Changes whenever what is said of a custom resource does.
fn hash_of_custom(resource: &Resource) -> &str {
    let Some(custom) = &resource.custom else { return "" };
    custom.digest.get_or_init(|| {
        let schema = custom.schema.as_ref().map(Value::to_string).unwrap_or_default();
        let flags = [u8::from(resource.namespaced), u8::from(resource.has("status")), u8::from(resource.has("scale"))];
        digest([resource.plural.as_bytes(), resource.kind.as_bytes(), resource.list_kind.as_bytes(), &flags, schema.as_bytes()])
    })
}

/// Changes whenever the document of a group version does, without making the document.
fn hash_of(core: &Core, routes: &Routes, group: &str, version: &str) -> String {
    let place = api_version(group, version);
    let mut parts = vec![env!("CARGO_PKG_VERSION"), &core.options.version, &place];
    for resource in routes.of(group, version) {
        parts.push(&resource.plural);
        parts.push(hash_of_custom(resource));
    }
    digest(parts)
}

fn hash_of_all(core: &Core, routes: &Routes) -> String {
    let mut parts = vec![env!("CARGO_PKG_VERSION"), &core.options.version];
    for resource in routes.all.iter().filter(|r| r.custom.is_some()) {
        parts.extend([resource.group.as_str(), &resource.version, hash_of_custom(resource)]);
    }
    digest(parts)
}

fn custom_kinds(resources: &[Arc<Resource>]) -> Vec<CustomKind<'_>> {
    resources
        .iter()
        .filter_map(|resource| {
            Some(CustomKind {
                plural: &resource.plural,
                kind: &resource.kind,
                list_kind: &resource.list_kind,
                namespaced: resource.namespaced,
                schema: resource.custom.as_ref()?.schema.as_ref(),
                status: resource.has("status"),
                scale: resource.has("scale"),
            })
        })
        .collect()
}

/// Pieces of an object's members, with commas between those that are not empty.
fn joined<'a>(pieces: impl IntoIterator<Item = &'a Piece>, comma: &'a Piece) -> Vec<&'a Piece> {
    let mut out: Vec<&Piece> = Vec::new();
    for piece in pieces.into_iter().filter(|p| p.plain_len() > 0) {
        if !out.is_empty() {
            out.push(comma);
        }
        out.push(piece);
    }
    out
}

/// A document around its paths and schemas.
fn framed(frame: &Frame, paths: &[&Piece], schemas: &[&Piece]) -> Bytes {
    let mut all = vec![&frame.head];
    all.extend_from_slice(paths);
    all.push(&frame.middle);
    all.extend_from_slice(schemas);
    all.push(&frame.tail);
    pieces::gzip(&all)
}

/// What stands around paths and schemas.
#[derive(Debug)]
struct Frame {
    head: Piece,
    middle: Piece,
    tail: Piece,
    comma: Piece,
}

impl Frame {
    fn new(frame: [String; 3]) -> Self {
        let [head, middle, tail] = frame.map(|text| Piece::stored(text.as_bytes()));
        Self { head, middle, tail, comma: Piece::stored(b",") }
    }
}

fn custom_v3(part: &Part) -> Bytes {
    let frame = Frame::new(openapi::frame_v3());
    let scale = part.resources.iter().any(|r| r.has("scale"));
    let own = part.v3();
    framed(&frame, &[&own.paths], &joined([referred(scale), &own.schemas], &frame.comma))
}

/// The parts of all custom group versions.
fn customs(core: &Core, routes: &Routes) -> Vec<Arc<Part>> {
    let mut places: Vec<(&str, &str)> = routes.all.iter().filter(|r| r.custom.is_some()).map(|r| (r.group.as_str(), r.version.as_str())).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|(group, version)| core.openapi.part(routes, group, version)).collect()
}

fn v2(parts: &[Arc<Part>]) -> Bytes {
    let frame = Frame::new(openapi::frame_v2());
    let native = &native_v2().json;
    let own: Vec<&Pair> = parts.iter().map(|p| p.v2()).collect();
    let paths = joined(std::iter::once(&native.paths).chain(own.iter().map(|p| &p.paths)), &frame.comma);
    let schemas = joined(std::iter::once(&native.schemas).chain(own.iter().map(|p| &p.schemas)), &frame.comma);
    framed(&frame, &paths, &schemas)
}

fn v2_binary(parts: &[Arc<Part>]) -> Bytes {
    let native = &native_v2().binary;
    let own: Vec<&Pair> = parts.iter().map(|p| p.binary()).collect();
    let paths: Vec<&Piece> = std::iter::once(&native.paths).chain(own.iter().map(|p| &p.paths)).collect();
    let schemas: Vec<&Piece> = std::iter::once(&native.schemas).chain(own.iter().map(|p| &p.schemas)).collect();
    let length = |all: &[&Piece]| all.iter().map(|p| p.plain_len()).sum();
    let head = Piece::stored(&swagger::head(length(&paths)));
    let middle = Piece::stored(&swagger::middle(length(&schemas)));
    let mut all = vec![&head];
    all.extend(paths);
    all.push(&middle);
    all.extend(schemas);
    pieces::gzip(&all)
}

fn send(headers: &HeaderMap, bytes: Bytes, tag: Option<HeaderValue>, content_type: &'static str, immutable: bool) -> Response<Body> {
    let gzip = body::header_text(headers, "accept-encoding").is_some_and(|e| e.contains("gzip"));
    let bytes = if gzip { bytes } else { pieces::unzip(&bytes) };
    let mut response = body::response(StatusCode::OK, content_type, body::full(bytes));
    let out = response.headers_mut();
    if gzip {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if immutable {
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    out.extend(tag.map(|tag| (header::ETAG, tag)));
    response
}

/// Sends what `make` makes, unless the client has it already.
async fn answer(headers: &HeaderMap, hash: &str, content_type: &'static str, immutable: bool, make: impl FnOnce() -> Option<Bytes> + Send + 'static) -> Response<Body> {
    let text = format!("\"{hash}\"");
    let tag = HeaderValue::from_str(&text).ok();
    if body::header_text(headers, "if-none-match").is_some_and(|known| known.split(',').any(|one| one.trim() == text)) {
        let mut response = body::response(StatusCode::NOT_MODIFIED, content_type, body::full(""));
        response.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
        return response;
    }
    // The first time it is tens of milliseconds of work: not on a thread that serves requests.
    match tokio::task::spawn_blocking(make).await {
        Ok(Some(bytes)) => send(headers, bytes, tag, content_type, immutable),
        _ => page_not_found(),
    }
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
        for extra in core.remotes.groups().into_iter().filter(|extra| !extra.stale) {
            let place = format!("apis/{}/{}", extra.group, extra.version);
            paths.entry(place.clone()).or_insert_with(|| json!({"serverRelativeURL": format!("/openapi/v3/{place}")}));
        }
        return Ok(respond::value(StatusCode::OK, &json!({ "paths": paths }), Encoding::Json, false));
    }
    if path == "openapi/v2" {
        let hash = hash_of_all(core, &routes);
        let parts = customs(core, &routes);
        let binary = body::header_text(headers, "accept").is_some_and(|a| a.contains("com.github.proto-openapi.spec.v2"));
        return Ok(if binary {
            answer(headers, &digest([&hash, PROTOBUF]), PROTOBUF, false, move || Some(v2_binary(&parts))).await
        } else {
            answer(headers, &hash, "application/json", false, move || Some(v2(&parts))).await
        });
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
    let immutable = asked.is_some();
    if routes.of(group, version).any(|r| r.native.is_some()) {
        let (group, version) = (group.to_owned(), version.to_owned());
        return Ok(answer(headers, &hash, "application/json", immutable, move || native_v3(&group, &version)).await);
    }
    let part = core.openapi.part(&routes, group, version);
    Ok(answer(headers, &hash, "application/json", immutable, move || Some(custom_v3(&part))).await)
}
