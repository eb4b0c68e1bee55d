//! DELETE: at once, gracefully, or when the finalizers are gone; one object or a collection.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::{Entry, Expect, Ticket, WriteError};

use crate::admission::Operation;
use crate::body::Body;
use crate::core::Call;
use crate::input;
use crate::object;
use crate::read::{Selection, select};
use crate::resource::Resource;
use crate::respond::{self, Doc, answer};
use crate::status::{self, ApiError};

/// Finalizer that holds an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer that holds an owner until its dependents are let go.
pub(crate) const ORPHAN: &str = "orphan";

/// What a DELETE asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    grace: Option<i64>,
    uid: Option<String>,
    revision: Option<String>,
    policy: Option<String>,
    orphan: Option<bool>,
}

impl Ask {
    pub(crate) fn read(call: &mut Call, bytes: &[u8]) -> Result<Self, ApiError> {
        let mut ask = Self::default();
        let body = if bytes.is_empty() { Value::Null } else { input::read(call.content_type.as_deref(), bytes)?.value };
        if let Some(map) = body.as_object() {
            if let Some(kind) = map.get("kind").and_then(Value::as_str)
                && kind != "DeleteOptions"
            {
                return Err(ApiError::bad_request(format!("decoded object cannot be converted to DeleteOptions: kind is {kind}")));
            }
            let text = |path: &[&str]| object::at(&body, path).and_then(Value::as_str).map(str::to_owned);
            ask.grace = object::at(&body, &["gracePeriodSeconds"]).and_then(Value::as_i64);
            ask.uid = text(&["preconditions", "uid"]);
            ask.revision = text(&["preconditions", "resourceVersion"]);
            ask.policy = text(&["propagationPolicy"]);
            ask.orphan = object::at(&body, &["orphanDependents"]).and_then(Value::as_bool);
            if let Some(list) = object::at(&body, &["dryRun"]).and_then(Value::as_array)
                && !list.is_empty()
            {
                call.query.add("dryRun", list[0].as_str().unwrap_or(""));
            }
        }
        let query = &call.query;
        if let Some(text) = query.text("gracePeriodSeconds") {
            ask.grace = Some(text.parse().map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))?);
        }
        if let Some(policy) = query.text("propagationPolicy") {
            ask.policy = Some(policy.to_owned());
        }
        ask.orphan = query.maybe_flag("orphanDependents").or(ask.orphan);
        let invalid = |field: &str, message: String, reason: &str| ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![crate::rest::fault(reason, field, message)]);
        if ask.policy.is_some() && ask.orphan.is_some() {
            let text = "Invalid value: orphanDependents and deletionPropagation cannot be both set".to_owned();
            return Err(invalid("propagationPolicy", text, "FieldValueInvalid"));
        }
        if let Some(policy) = &ask.policy
            && !matches!(policy.as_str(), "Background" | "Foreground" | "Orphan")
        {
            let text = format!("Unsupported value: \"{policy}\": supported values: \"Background\", \"Foreground\", \"Orphan\", \"nil\"");
            return Err(invalid("propagationPolicy", text, "FieldValueNotSupported"));
        }
        query.dry_run()?;
        Ok(ask)
    }

    /// The finalizer that the propagation asked for needs; `Err(())`: no change of what is there.
    fn propagation(&self, resource: &Resource) -> Option<&'static str> {
        match (self.policy.as_deref(), self.orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(ORPHAN),
            (Some("Foreground"), _) => Some(FOREGROUND),
            (Some(_), _) | (None, Some(false)) => None,
            // Without a word, the dependents of a ReplicationController stay: it is the oldest of its kind.
            _ if resource.is("", "replicationcontrollers") || (resource.is("batch", "jobs") && resource.version == "v1") => Some(ORPHAN),
            _ => None,
        }
    }

    fn says(&self) -> bool {
        self.policy.is_some() || self.orphan.is_some()
    }
}

enum Step {
    Gone(Ticket, Arc<Entry>),
    Marked(Ticket, Arc<Entry>),
    Same(Arc<Entry>),
    Dry(Value, bool),
}

pub(crate) async fn one(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let ask = Ask::read(call, bytes)?;
    let name = call.info.name.clone();
    let (doc, gone) = remove(call, &name, &ask).await?;
    if !gone {
        let code = if ask.orphan == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
        return Ok(answer(call, code, doc));
    }
    if returns_object(&call.resource) {
        return Ok(answer(call, StatusCode::OK, doc));
    }
    let value = doc.value();
    let status = status::success(&call.resource.group, &call.resource.plural, &name, object::uid(&value));
    Ok(respond::value(StatusCode::OK, &status, call.accept.encoding, call.accept.pretty))
}

/// Kinds whose removal is answered with the object.
fn returns_object(resource: &Resource) -> bool {
    resource.custom.is_none()
        && matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("", "pods" | "services" | "podtemplates" | "persistentvolumes" | "persistentvolumeclaims" | "serviceaccounts" | "resourcequotas")
                | ("policy", "podsecuritypolicies")
                | ("storage.k8s.io", "storageclasses" | "csidrivers" | "csinodes" | "volumeattachments")
        )
}

pub(crate) async fn collection(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    let ask = Ask::read(call, bytes)?;
    let selection = Selection::of(call)?;
    let (listed, _) = select(call, &selection).await?;
    let mut items = Vec::with_capacity(listed.entries.len());
    let metadata = crate::read::list_metadata(&listed);
    for entry in &listed.entries {
        let (namespace, name) = if call.resource.namespaced { entry.key.split_once('/').unwrap_or(("", &entry.key)) } else { ("", &*entry.key) };
        namespace.clone_into(&mut call.info.namespace);
        match remove(call, name, &ask).await {
            Ok((doc, _)) => items.push(doc.value()),
            Err(error) if error.reason == "NotFound" => {}
            Err(error) => return Err(error),
        }
    }
    let value = respond::list_value(call, metadata, items);
    Ok(respond::value(StatusCode::OK, &value, call.accept.encoding, call.accept.pretty))
}

/// Removes or marks an object; says whether it is gone.
pub(crate) async fn remove(call: &mut Call, name: &str, ask: &Ask) -> Result<(Doc, bool), ApiError> {
    let core = call.core.clone();
    let resource = call.resource.clone();
    let key = call.key(name);
    loop {
        let mut pinned = None;
        let concern = crate::webhooks::concern(call, Operation::Delete);
        if concern || resource.converts() {
            let entry = core.store.latest(&resource.table, &key).ok_or_else(|| call.not_found(name))?;
            // An object that cannot be shown cannot be removed either.
            let old = call.routed_one(object::decode(&entry.value)).await?;
            if concern {
                crate::webhooks::validate(call, Operation::Delete, Some(&old), &Value::Null).await?;
            }
            pinned = Some(entry.revision);
        }
        match attempt(call, name, &key, ask, pinned)? {
            None => {}
            Some(Step::Dry(value, gone)) => return Ok((Doc::Value(call.routed_one(value).await?), gone)),
            Some(Step::Same(entry)) => {
                if crate::update::settled(&core, &entry).await {
                    return Ok((call.doc(entry).await?, false));
                }
            }
            Some(Step::Marked(ticket, old)) => {
                let entry = ticket.durable().await.map_err(|e| call.write_error(name, e))?;
                crate::hooks::written(&core, &resource, Some(&old), &entry);
                return Ok((call.doc(entry).await?, false));
            }
            Some(Step::Gone(ticket, old)) => {
                let entry = ticket.durable().await.map_err(|e| call.write_error(name, e))?;
                crate::hooks::removed(&core, &resource, &old, &entry);
                return Ok((call.doc(entry).await?, true));
            }
        }
    }
}

/// One turn; nothing when the object changed under our hands, or is not at the revision that others agreed to.
fn attempt(call: &mut Call, name: &str, key: &str, ask: &Ask, pinned: Option<u64>) -> Result<Option<Step>, ApiError> {
    let core = call.core.clone();
    let resource = call.resource.clone();
    let _lock = core.lock(&resource.table, key);
    let entry = core.store.latest(&resource.table, key).ok_or_else(|| call.not_found(name))?;
    if pinned.is_some_and(|revision| revision != entry.revision) {
        return Ok(None);
    }
    let old = object::decode(&entry.value);
    let refuse = |what: &str, wanted: &str, found: &str| {
        let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Err(ApiError::conflict(&resource.group, &resource.plural, name, &why))
    };
    if let Some(uid) = &ask.uid
        && uid != object::uid(&old)
    {
        return refuse("UID", uid, object::uid(&old));
    }
    if let Some(revision) = &ask.revision
        && revision != object::revision_of(&old)
    {
        return refuse("ResourceVersion", revision, object::revision_of(&old));
    }
    crate::admission::validate(call, Operation::Delete, Some(&old), &old)?;
    let mut new = old.clone();
    let mut waits = mark(&core, &resource, ask, &mut new);
    crate::crd::before_delete(&resource, &mut new);
    if resource.is("", "namespaces") {
        // A namespace goes when its content is gone: its own finalizers say when.
        let held = object::at(&new, &["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|f| !f.is_empty());
        if held {
            waits = true;
            object::child(&mut new, "status").insert("phase".into(), json!("Terminating"));
        }
    }
    if !object::finalizers(&new).is_empty() {
        waits = true;
    }
    let dry_run = call.query.dry_run()?;
    if waits {
        if !object::deleting(&new) {
            let grace = object::at(&new, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
            stamp(&core, &mut new, grace);
        }
        crate::crd::deleting(&core, &resource, &mut new);
        if new == old {
            return Ok(Some(Step::Same(entry)));
        }
        if dry_run {
            return Ok(Some(Step::Dry(new, false)));
        }
        return match core.put(&resource, key, Expect::Revision(entry.revision), &new) {
            Ok(ticket) => Ok(Some(Step::Marked(ticket, entry))),
            Err(WriteError::Conflict(_)) => Ok(None),
            Err(error) => Err(call.write_error(name, error)),
        };
    }
    if dry_run {
        return Ok(Some(Step::Dry(old, true)));
    }
    match core.drop_object(&resource, &entry, &new) {
        Ok(ticket) => Ok(Some(Step::Gone(ticket, entry))),
        Err(WriteError::Conflict(_)) => Ok(None),
        Err(error) => Err(call.write_error(name, error)),
    }
}

/// Sets the instant of removal.
fn stamp(core: &crate::core::Core, object: &mut Value, grace: i64) {
    let at = core.now().checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or_else(|_| core.now());
    let generation = object::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
    let metadata = object::metadata(object);
    metadata.insert("deletionTimestamp".into(), json!(object::instant(at)));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
    if let Some(generation) = generation.filter(|g| *g > 0) {
        metadata.insert("generation".into(), json!(generation + 1));
    }
}

/// Applies grace and propagation; true when the object has to wait for somebody.
fn mark(core: &crate::core::Core, resource: &Resource, ask: &Ask, object: &mut Value) -> bool {
    let before = object::deleting(object);
    if !before || ask.says() {
        let wanted = ask.propagation(resource);
        let mut finalizers: Vec<String> = object::finalizers(object).iter().filter(|f| !matches!(**f, FOREGROUND | ORPHAN) || !ask.says()).map(|f| (*f).to_owned()).collect();
        if let Some(wanted) = wanted
            && !finalizers.iter().any(|f| f == wanted)
        {
            finalizers.push(wanted.to_owned());
        }
        if finalizers.is_empty() {
            object::metadata(object).remove("finalizers");
        } else {
            object::metadata(object).insert("finalizers".into(), json!(finalizers));
        }
    }
    if !resource.is("", "pods") {
        return false;
    }
    // Pods that run somewhere get time to end.
    let own = object::at(object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(30);
    let mut grace = ask.grace.unwrap_or(own);
    if grace < 0 {
        grace = 1;
    }
    let phase = object::text(object, &["status", "phase"]);
    if object::text(object, &["spec", "nodeName"]).is_empty() || matches!(phase, "Succeeded" | "Failed") {
        grace = 0;
    }
    if before {
        let left = object::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
        if grace >= left {
            // A running removal is never made slower.
            return left > 0;
        }
        if grace > 0 {
            stamp_shorter(core, object, grace, left);
        } else {
            object::metadata(object).insert("deletionGracePeriodSeconds".into(), json!(0));
        }
        return grace > 0;
    }
    if grace == 0 {
        return false;
    }
    stamp(core, object, grace);
    true
}

fn stamp_shorter(core: &crate::core::Core, object: &mut Value, grace: i64, left: i64) {
    let end: Option<jiff::Timestamp> = object::text(object, &["metadata", "deletionTimestamp"]).parse().ok();
    let asked = end.and_then(|end| end.checked_sub(jiff::SignedDuration::from_secs(left)).ok()).unwrap_or_else(|| core.now());
    let at = asked.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(asked);
    let metadata = object::metadata(object);
    metadata.insert("deletionTimestamp".into(), json!(object::instant(at)));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
}

/// Whether an object that is being removed is held by nobody any more.
pub(crate) fn finished(resource: &Resource, object: &Value) -> bool {
    if !object::deleting(object) || !object::finalizers(object).is_empty() {
        return false;
    }
    if resource.is("", "namespaces") {
        return object::at(object, &["spec", "finalizers"]).and_then(Value::as_array).is_none_or(Vec::is_empty);
    }
    object::at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0) == 0
}
