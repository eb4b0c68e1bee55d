//! Replacing objects, and the cycle that every change of an object goes through.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::{Entry, Expect, Ticket, WriteError};

use crate::admission::Operation;
use crate::body::Body;
use crate::core::Call;
use crate::input;
use crate::kinds;
use crate::object;
use crate::respond::{Doc, answer};
use crate::status::ApiError;

/// What became of a change.
enum Step {
    Same(Arc<Entry>),
    Written(Ticket, Arc<Entry>),
    Removed(Ticket, Arc<Entry>),
    Dry(Value),
}

/// How managed fields come about.
pub(crate) enum Fields {
    /// The change made them (server-side apply).
    Made,
    /// By comparison, for this manager.
    Track(String),
    /// Left as they are (the server's own changes).
    Keep,
}

/// A change: gets the object in the version of the route, gives the new one.
pub(crate) type Change<'a> = &'a mut (dyn FnMut(&mut Call, &Value) -> Result<(Value, Fields), ApiError> + Send);

pub(crate) async fn replace(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    call.query.dry_run()?;
    let input = input::read(call.content_type.as_deref(), bytes)?;
    let mut object = call.object(input)?;
    call.place(&mut object, true)?;
    let manager = call.query.manager(call.agent.as_deref());
    let name = call.info.name.clone();
    if object::revision_of(&object).is_empty() && kinds::needs_revision(&call.resource) && call.core.store.latest(&call.resource.table, &call.key(&name)).is_some() {
        let cause = crate::rest::fault("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update");
        return Err(ApiError::invalid(&call.resource.group, &call.resource.kind, &name, vec![cause]));
    }
    let found = call.core.store.latest(&call.resource.table, &call.key(&name)).is_some();
    if !found && kinds::creates_on_update(&call.resource) && object::uid(&object).is_empty() && call.info.subresource.is_empty() {
        object::metadata(&mut object).remove("resourceVersion");
        let doc = crate::rest::insert_once(call, object, false).await?;
        return Ok(answer(call, StatusCode::CREATED, doc));
    }
    kinds::default(&call.resource, &mut object);
    let doc = change(call, &name, &mut |_, _| Ok((object.clone(), Fields::Track(manager.clone())))).await?;
    Ok(answer(call, StatusCode::OK, doc))
}

/// Reads, changes, checks and writes an object, again and again until nobody came between.
pub(crate) async fn change(call: &mut Call, name: &str, change: Change<'_>) -> Result<Doc, ApiError> {
    let core = call.core.clone();
    let resource = call.resource.clone();
    let key = call.key(name);
    loop {
        let step = if resource.converts() || crate::webhooks::concern(call, Operation::Update) {
            attempt_with_webhooks(call, name, &key, change).await?
        } else {
            let _lock = core.lock(&resource.table, &key);
            let base = Base::latest(call, name, &key)?;
            let old = kinds::to_route(&resource, base.stored.clone());
            let seen = begin(call, name, base, old, change)?;
            let mut judged = judge(call, name, seen)?;
            let form = needed(call, &mut judged).map(|new| kinds::to_storage(&resource, new));
            write(call, name, &key, judged, form)?
        };
        match step {
            None => {}
            Some(Step::Dry(value)) => return Ok(Doc::Value(value)),
            Some(Step::Same(entry)) => {
                if settled(&core, &entry).await {
                    return call.doc(entry).await;
                }
            }
            Some(Step::Written(ticket, old)) => {
                let entry = ticket.durable().await.map_err(|e| call.write_error(name, e))?;
                crate::hooks::written(&core, &resource, Some(&old), &entry);
                return call.doc(entry).await;
            }
            Some(Step::Removed(ticket, old)) => {
                let entry = ticket.durable().await.map_err(|e| call.write_error(name, e))?;
                crate::hooks::removed(&core, &resource, &old, &entry);
                return call.doc(entry).await;
            }
        }
    }
}

/// Waits until a form of an object that was only pending is acknowledged; false when it never will be.
pub(crate) async fn settled(core: &crate::core::Core, entry: &Arc<Entry>) -> bool {
    for wait in 0u64.. {
        if core.store.revision() >= entry.revision {
            return true;
        }
        match core.store.latest(&entry.table, &entry.key) {
            Some(latest) if latest.revision >= entry.revision => {}
            _ if core.store.revision() >= entry.revision => return true,
            _ => return false,
        }
        tokio::time::sleep(std::time::Duration::from_micros(200 << wait.min(6))).await;
    }
    false
}

/// A turn of the cycle in which others are asked: no lock is held, the write states what it saw.
async fn attempt_with_webhooks(call: &mut Call, name: &str, key: &str, change: Change<'_>) -> Result<Option<Step>, ApiError> {
    let base = Base::latest(call, name, key)?;
    let old = call.routed_one(base.stored.clone()).await?;
    let mut seen = begin(call, name, base, old, change)?;
    crate::webhooks::mutate(call, Operation::Update, Some(&seen.old), &mut seen.new).await?;
    let mut judged = judge(call, name, seen)?;
    crate::webhooks::validate(call, Operation::Update, Some(&judged.seen.old), &judged.seen.new).await?;
    let form = match needed(call, &mut judged) {
        // What a conversion takes away again was no change.
        Some(new) => Some(call.to_stored(new).await?).filter(|form| !same(&judged.seen.stored, form)),
        None => None,
    };
    write(call, name, key, judged, form)
}

/// An object as it is in the store.
struct Base {
    entry: Arc<Entry>,
    stored: Value,
}

impl Base {
    fn latest(call: &Call, name: &str, key: &str) -> Result<Self, ApiError> {
        let entry = call.core.store.latest(&call.resource.table, key).ok_or_else(|| call.not_found(name))?;
        Ok(Self { stored: object::decode(&entry.value), entry })
    }
}

/// The new form, if it is to be written: it differs from the old one, or that is stored in a version of former times. It is taken out:
/// only a dry run shows it afterwards.
fn needed(call: &Call, judged: &mut Judged) -> Option<Value> {
    let Seen { stored, old, new, .. } = &mut judged.seen;
    let current = call.resource.custom.is_none() || object::text(stored, &["apiVersion"]) == call.resource.storage_version;
    let dry = matches!(call.query.dry_run(), Ok(true));
    (!current || !same(old, new)).then(|| if dry { new.clone() } else { new.take() })
}

/// An object and what it is to become.
struct Seen {
    entry: Arc<Entry>,
    stored: Value,
    old: Value,
    new: Value,
    warned: usize,
}

/// A change that may be written.
struct Judged {
    seen: Seen,
    held: crate::services::Held,
}

fn side(call: &Call) -> &str {
    // A write of the scale is a write of the specification.
    if call.info.subresource == "scale" { "" } else { &call.info.subresource }
}

/// Reads and changes the object.
fn begin(call: &mut Call, name: &str, base: Base, old: Value, change: Change<'_>) -> Result<Seen, ApiError> {
    let core = call.core.clone();
    let resource = call.resource.clone();
    let warned = call.warnings.len();
    let Base { entry, stored } = base;
    let (mut new, fields) = change(call, &old)?;
    preconditions(call, name, &old, &new)?;
    carry(&old, &mut new);
    let subresource = call.info.subresource.clone();
    if let Fields::Track(manager) = &fields {
        kinds::track(&resource, Some(&old), &mut new, manager, &subresource, core.now());
    }
    kinds::prepare_update(&resource, side(call), &old, &mut new);
    own_side(side(call), &old, &mut new);
    crate::rest::prune_empty(object::metadata(&mut new));
    crate::admission::admit(call, Operation::Update, Some(&old), &mut new)?;
    Ok(Seen { entry, stored, old, new, warned })
}

/// Refuses what may not be.
fn judge(call: &mut Call, name: &str, mut seen: Seen) -> Result<Judged, ApiError> {
    let mut held = crate::services::Held::default();
    crate::admission::allocate(call, Operation::Update, Some(&seen.old), &mut seen.new, &mut held)?;
    let mut faults = finalizer_faults(&seen.old, &seen.new);
    faults.extend(kinds::validate_update(&call.resource, side(call), &seen.old, &seen.new));
    if !faults.is_empty() {
        return Err(call.invalid(name, &faults));
    }
    crate::admission::validate(call, Operation::Update, Some(&seen.old), &seen.new)?;
    call.warnings.extend(kinds::warnings(&call.resource, &seen.new));
    Ok(Judged { seen, held })
}

/// Writes the new form, as the store has it; nothing when the object changed under our hands.
fn write(call: &mut Call, name: &str, key: &str, judged: Judged, form: Option<Value>) -> Result<Option<Step>, ApiError> {
    let Judged { seen: Seen { entry, stored, new, warned, .. }, mut held } = judged;
    let core = call.core.clone();
    let resource = call.resource.clone();
    let Some(mut store_form) = form else { return Ok(Some(Step::Same(entry))) };
    if call.query.dry_run()? {
        return Ok(Some(Step::Dry(new)));
    }
    let write = if crate::delete::finished(&resource, &store_form) {
        core.drop_object(&resource, &entry, &store_form).map(|t| Step::Removed(t, entry.clone()))
    } else {
        store_form = crate::crd::before_update(&core, &resource, &stored, store_form);
        core.put(&resource, key, Expect::Revision(entry.revision), &store_form).map(|t| Step::Written(t, entry.clone()))
    };
    match write {
        Ok(step) => {
            held.keep();
            Ok(Some(step))
        }
        Err(WriteError::Conflict(_)) => {
            call.warnings.truncate(warned);
            Ok(None)
        }
        Err(error) => Err(call.write_error(name, error)),
    }
}

/// Takes back what a subresource with a duty of its own may not write.
fn own_side(subresource: &str, old: &Value, new: &mut Value) {
    match subresource {
        // Approval decides conditions, nothing else: the request itself stays as it was made.
        "approval" => {
            let conditions = object::at(new, &["status", "conditions"]).cloned();
            let metadata = new.get("metadata").cloned().unwrap_or_default();
            *new = old.clone();
            object::child_root(new).insert("metadata".into(), metadata);
            let status = object::child(new, "status");
            match conditions {
                Some(conditions) => status.insert("conditions".into(), conditions),
                None => status.remove("conditions"),
            };
        }
        "finalize" => {
            let status = old.get("status").cloned().unwrap_or_else(|| json!({}));
            object::child_root(new).insert("status".into(), status);
        }
        _ => {}
    }
}

/// Revision and uid in the new form must be those of the stored one, when given.
fn preconditions(call: &Call, name: &str, old: &Value, new: &Value) -> Result<(), ApiError> {
    let uid = object::uid(new);
    if !uid.is_empty() && uid != object::uid(old) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", object::uid(old));
        return Err(ApiError::conflict(&call.resource.group, &call.resource.plural, name, &why));
    }
    let revision = object::revision_of(new);
    if !revision.is_empty() && revision != object::revision_of(old) {
        return Err(ApiError::modified(&call.resource.group, &call.resource.plural, name));
    }
    Ok(())
}

/// What a client cannot change.
fn carry(old: &Value, new: &mut Value) {
    let fixed = ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "name", "namespace", "generateName"];
    let metadata = object::metadata(new);
    for field in fixed {
        match object::at(old, &["metadata", field]) {
            Some(value) => {
                metadata.insert(field.into(), value.clone());
            }
            None => {
                metadata.remove(field);
            }
        }
    }
    metadata.remove("selfLink");
}

fn finalizer_faults(old: &Value, new: &Value) -> Vec<schema::Fault> {
    if !object::deleting(old) {
        return Vec::new();
    }
    let before = object::finalizers(old);
    let added: Vec<&str> = object::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    if added.is_empty() {
        return Vec::new();
    }
    let listed: Vec<String> = added.iter().map(|f| format!("\"{f}\"")).collect();
    let text = format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", listed.join(", "));
    vec![schema::Fault::forbidden(&schema::Path::new("metadata.finalizers"), text)]
}

/// Whether a write would change nothing but the instants of managed fields.
fn same(old: &Value, new: &Value) -> bool {
    if old == new {
        return true;
    }
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return false };
    if before.len() != after.len() || before.iter().any(|(k, v)| k != "metadata" && after.get(k) != Some(v)) {
        return false;
    }
    let plain = |object: &Value| {
        let mut metadata = object.get("metadata").cloned().unwrap_or_default();
        if let Some(fields) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            fields.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| {
                entry.insert("time".into(), json!(""));
            });
        }
        metadata
    };
    plain(old) == plain(new)
}
