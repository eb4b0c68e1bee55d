//! Reading one object and lists.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Entry, ListError};

use crate::body::Body;
use crate::core::Call;
use crate::kinds;
use crate::object;
use crate::respond::{self, answer};
use crate::selector::{Fields, Labels};
use crate::status::ApiError;

/// What a list or watch selects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
    /// The one name that can match.
    pub(crate) name: Option<String>,
    /// The namespace that objects must be in, empty for all.
    pub(crate) namespace: String,
}

impl Selection {
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let labels = Labels::parse(call.query.get("labelSelector").unwrap_or(""))?;
        let mut fields = Fields::parse(call.query.get("fieldSelector").unwrap_or(""))?;
        for (path, ..) in &fields.terms {
            if !call.resource.selectable(path) {
                return Err(ApiError::bad_request(match &call.resource.native {
                    Some(native) if native.field_selectors.is_empty() => format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
                    Some(_) => format!("field label not supported: {path}"),
                    None => format!("field label not supported: {path}"),
                }));
            }
        }
        if !call.info.name.is_empty() {
            // `GET .../name?watch=1` is a watch of one name.
            fields.terms.push(("metadata.name".into(), call.info.name.clone(), true));
        }
        let name = fields.exact("metadata.name").map(str::to_owned);
        let mut namespace = if call.resource.namespaced { call.info.namespace.clone() } else { String::new() };
        if namespace.is_empty() && call.resource.namespaced {
            namespace = fields.exact("metadata.namespace").unwrap_or("").to_owned();
        }
        Ok(Self { labels, fields, name, namespace })
    }

    /// Whether fields other than the name play no part.
    pub(crate) fn names_only(&self) -> bool {
        self.fields.terms.iter().all(|(path, ..)| is_name(path))
    }

    /// Whether everything in the namespace is selected.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether an object of the route has the fields.
    pub(crate) fn fits(&self, call: &Call, object: &Value) -> bool {
        self.fields.matches(|path| selected_text(call, object, path))
    }

    pub(crate) fn holds(&self, call: &Call, entry: &Entry) -> bool {
        let (namespace, name) = if call.resource.namespaced { entry.key.split_once('/').unwrap_or(("", &entry.key)) } else { ("", &*entry.key) };
        if !self.namespace.is_empty() && namespace != self.namespace {
            return false;
        }
        if self.name.as_deref().is_some_and(|wanted| wanted != name) || !object::labelled(entry, &self.labels) {
            return false;
        }
        // The fields of an object that a webhook converts are looked at when it has answered: see `fits`.
        if self.fields.is_empty() || (call.resource.converts() && !self.names_only()) {
            return true;
        }
        if self.names_only() {
            return self.fields.matches(|path| if path == "metadata.name" { name.to_owned() } else { namespace.to_owned() });
        }
        self.fits(call, &kinds::to_route(&call.resource, object::decode(&entry.value)))
    }
}

fn is_name(path: &str) -> bool {
    matches!(path, "metadata.name" | "metadata.namespace")
}

/// The text a field selector compares; a few fields are known under other names.
fn selected_text(call: &Call, value: &Value, path: &str) -> String {
    match (call.resource.plural.as_str(), path) {
        ("events", "source") => match object::text(value, &["source", "component"]) {
            "" => object::text(value, &["reportingComponent"]).to_owned(),
            text => text.to_owned(),
        },
        ("nodes", "spec.unschedulable") => (object::at(value, &["spec", "unschedulable"]) == Some(&json!(true))).to_string(),
        ("pods", "spec.hostNetwork") => (object::at(value, &["spec", "hostNetwork"]) == Some(&json!(true))).to_string(),
        ("pods", "status.podIPs") => object::at(value, &["status", "podIPs"])
            .and_then(Value::as_array)
            .map(|all| all.iter().map(|ip| object::text(ip, &["ip"])).collect::<Vec<_>>().join(","))
            .unwrap_or_default(),
        ("jobs", "status.successful") => object::at(value, &["status", "succeeded"]).and_then(Value::as_i64).unwrap_or(0).to_string(),
        ("replicasets" | "replicationcontrollers", "status.replicas") => object::at(value, &["status", "replicas"]).and_then(Value::as_i64).unwrap_or(0).to_string(),
        _ => object::field_text(value, path.trim_start_matches('.')),
    }
}

pub(crate) async fn get(call: &mut Call) -> Result<Response<Body>, ApiError> {
    if call.resource.is("", "componentstatuses") {
        return Ok(answer(call, StatusCode::OK, respond::Doc::Value(crate::paths::component_status(&call.core, &call.info.name).ok_or_else(|| call.not_found(&call.info.name))?)));
    }
    if let Some(asked) = call.query.revision("resourceVersion")? {
        let newest = call.core.store.revision();
        if asked > newest {
            return Err(ApiError::too_new(asked, newest));
        }
    }
    let name = &call.info.name;
    let entry = call.core.store.get(&call.resource.table, &call.key(name)).ok_or_else(|| call.not_found(name))?;
    let doc = call.doc(entry).await?;
    Ok(answer(call, StatusCode::OK, doc))
}

/// Where a list goes on.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn encode(revision: i64, last: &str) -> String {
        let token = Self { v: "meta.k8s.io/v1".into(), rv: revision, start: last.into() };
        STANDARD_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = STANDARD_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| bad(e.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
        if token.v == "meta.k8s.io/v1" { Ok(token) } else { Err(bad(format!("server does not recognize this encoded version \"{}\"", token.v))) }
    }
}

/// A list before it is encoded.
pub(crate) struct Listed {
    pub(crate) revision: u64,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Reads what a list request asks for.
pub(crate) fn read_list(call: &Call, selection: &Selection) -> Result<Listed, ApiError> {
    let query = &call.query;
    let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
    let matching = query.text("resourceVersionMatch");
    query.number("timeoutSeconds")?;
    let token = query.text("continue").map(Token::decode).transpose()?;
    let asked = query.revision("resourceVersion").map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message)))?;
    let invalid = |field: &str, message: String| {
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![crate::rest::fault("FieldValueForbidden", field, message)]))
    };
    if matching.is_some() {
        if query.get("resourceVersion").unwrap_or("").is_empty() {
            return invalid("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided".into());
        }
        if token.is_some() {
            return invalid("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden when continue is provided".into());
        }
        if !matches!(matching, Some("Exact" | "NotOlderThan")) {
            let text = format!("Unsupported value: \"{}\": supported values: \"Exact\", \"NotOlderThan\"", matching.unwrap_or(""));
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![crate::rest::fault("FieldValueNotSupported", "resourceVersionMatch", text)]));
        }
        if matching == Some("Exact") && asked == Some(0) {
            return invalid("resourceVersionMatch", "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"".into());
        }
    }
    if let (Some(_), Some(revision)) = (&token, asked)
        && revision != 0
    {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let newest = call.core.store.revision();
    let at = match (&token, asked, matching) {
        (Some(token), ..) => u64::try_from(token.rv).ok(),
        (None, Some(revision), Some("Exact")) => Some(revision),
        // With a limit and no match rule, a revision means exactly that one (the old behaviour of Kubernetes).
        (None, Some(revision), None) if revision > 0 && limit > 0 => Some(revision),
        (None, Some(revision), _) if revision > newest => return Err(ApiError::too_new(revision, newest)),
        _ => None,
    };
    let mut after = token.as_ref().map(|t| t.start.clone());
    let prefix = if selection.namespace.is_empty() { String::new() } else { format!("{}/", selection.namespace) };
    let lost = |error: ListError, after: &Option<String>| match (error, &token) {
        (ListError::Future { asked, newest }, _) => ApiError::too_new(asked, newest),
        // The continuation may go on with what is there now.
        (ListError::Compacted { .. }, Some(_)) => ApiError::continue_expired(Token::encode(-1, after.as_deref().unwrap_or(""))),
        (ListError::Compacted { asked, oldest }, None) => ApiError::expired(format!("The resourceVersion for the provided list is too old: {asked} ({oldest})")),
    };
    if selection.is_all() {
        let page = call.core.store.list(&call.resource.table, &prefix, after.as_deref(), limit, at).map_err(|e| lost(e, &after))?;
        let next = match page.entries.last() {
            Some(last) if page.remaining > 0 => Some(Token::encode(page.revision.cast_signed(), &last.key)),
            _ => None,
        };
        let remaining = (page.remaining > 0).then_some(page.remaining);
        return Ok(Listed { revision: page.revision, entries: page.entries, next, remaining });
    }
    if let (Some(name), false) = (&selection.name, selection.namespace.is_empty() && call.resource.namespaced) {
        let key = object::key(call.resource.namespaced, &selection.namespace, name);
        if at.is_none() {
            let page_revision = call.core.store.revision();
            let found = call.core.store.get(&call.resource.table, &key).filter(|e| selection.holds(call, e));
            return Ok(Listed { revision: page_revision, entries: found.into_iter().collect(), next: None, remaining: None });
        }
    }
    let mut entries = Vec::new();
    let mut fixed = at;
    loop {
        let chunk = if limit == 0 { 0 } else { limit.max(500) };
        let page = call.core.store.list(&call.resource.table, &prefix, after.as_deref(), chunk, fixed).map_err(|e| lost(e, &after))?;
        fixed = Some(page.revision);
        for entry in &page.entries {
            if limit > 0 && entries.len() == limit {
                // One more is known to be looked at: where the next page starts is after the last one taken.
                let last: &Arc<Entry> = &entries[limit - 1];
                let next = Some(Token::encode(page.revision.cast_signed(), &last.key));
                return Ok(Listed { revision: page.revision, entries, next, remaining: None });
            }
            if selection.holds(call, entry) {
                entries.push(entry.clone());
            }
        }
        match page.entries.last() {
            Some(last) if page.remaining > 0 => after = Some(last.key.to_string()),
            _ => return Ok(Listed { revision: page.revision, entries, next: None, remaining: None }),
        }
    }
}

/// What a request selects: entries, and where a webhook had to be asked the objects of the route.
pub(crate) async fn select(call: &Call, selection: &Selection) -> Result<(Listed, Option<Vec<Value>>), ApiError> {
    if !call.resource.converts() {
        return Ok((read_list(call, selection)?, None));
    }
    let mut listed = read_list(call, selection)?;
    let objects = call.routed(listed.entries.iter().map(|e| object::decode(&e.value)).collect()).await?;
    let pairs = std::mem::take(&mut listed.entries).into_iter().zip(objects);
    let (entries, objects) = pairs.filter(|(_, object)| selection.fits(call, object)).unzip();
    listed.entries = entries;
    Ok((listed, Some(objects)))
}

pub(crate) async fn list(call: &mut Call) -> Result<Response<Body>, ApiError> {
    if call.query.get("sendInitialEvents").is_some() {
        let message = "Forbidden: sendInitialEvents is forbidden for list".to_owned();
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![crate::rest::fault("FieldValueForbidden", "sendInitialEvents", message)]));
    }
    if call.resource.is("", "componentstatuses") {
        let items = crate::paths::component_statuses(&call.core);
        return Ok(respond::value_list(call, json!({}), items));
    }
    let selection = Selection::of(call)?;
    let (listed, objects) = select(call, &selection).await?;
    Ok(match objects {
        Some(objects) => respond::value_list(call, list_metadata(&listed), objects),
        None => respond::list(call, listed),
    })
}

/// `metadata` of a list.
pub(crate) fn list_metadata(listed: &Listed) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), json!(listed.revision.to_string()));
    if let Some(next) = &listed.next {
        metadata.insert("continue".into(), json!(next));
    }
    if let Some(remaining) = listed.remaining {
        metadata.insert("remainingItemCount".into(), json!(remaining));
    }
    Value::Object(metadata)
}

/// An item of a list as bytes.
pub(crate) enum Item {
    /// The object.
    Whole(Bytes),
    /// What follows its opening brace.
    Rest(Bytes),
}

/// A list in JSON: the stored bytes are put together, nothing is decoded.
pub(crate) fn splice(api_version: &str, kind: &str, metadata: &Value, items: impl Iterator<Item = Item>) -> Vec<Bytes> {
    let mut out = vec![Bytes::from(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["))];
    let comma = Bytes::from_static(b",");
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(comma.clone());
        }
        match item {
            Item::Whole(bytes) => out.push(bytes),
            Item::Rest(bytes) => out.extend([Bytes::from_static(b"{"), bytes]),
        }
    }
    out.push(Bytes::from_static(b"]}\n"));
    out
}
