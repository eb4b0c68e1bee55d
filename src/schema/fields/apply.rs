//! Server-side apply, and tracking of all other writes in `metadata.managedFields`.

use super::managed::{Managed, ManagedError, Manager, Operation, Owned};
use super::set::{Element, Set, show};
use super::walk::{compare, merge, remove_items, to_set, validate};
use crate::decode::DecodeError;
use crate::kind::Kind;
use crate::shape::Node;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Who writes what through which door.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// `group/version` (or `v1`) of the request.
    pub api_version: &'a str,
    /// Subresource of the request, `None` for the object itself.
    pub subresource: Option<&'a str>,
    /// The instant of the write, RFC 3339 in UTC without fraction.
    pub now: &'a str,
    /// API versions at which the resource is served; entries of other versions are forgotten. Empty: all are known.
    pub served: &'a [&'a str],
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner.
    pub manager: Manager,
    /// The field, as shown to people.
    pub field: String,
    pub(crate) path: Vec<Element>,
}

impl Conflict {
    fn owner(&self) -> String {
        self.manager.shown()
    }
    /// The entry of `Status.details.causes`.
    pub fn cause(&self) -> Value {
        json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", self.owner()), "field": self.field})
    }
}

/// Why an apply failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// Others own fields that would change (409, reason Conflict, [`Conflict::cause`]s).
    #[error("{}", conflict_text(.0))]
    Conflicts(Vec<Conflict>),
    /// The request itself is wrong (400).
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the kind (500 on a real server).
    #[error("{0}")]
    Typed(String),
    /// The live object's managed fields are damaged.
    #[error("failed to decode managed fields")]
    Managed(#[source] ManagedError),
    /// The merged object cannot be read as its kind.
    #[error("failed to convert new typed object")]
    Decode(#[source] DecodeError),
}

fn conflict_text(all: &[Conflict]) -> String {
    if let [one] = all {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.owner(), one.field);
    }
    let mut by: BTreeMap<&Manager, Vec<&Conflict>> = BTreeMap::new();
    for c in all {
        by.entry(&c.manager).or_default().push(c);
    }
    let mut lines = Vec::new();
    for list in by.values() {
        if let Some(first) = list.first() {
            lines.push(format!("conflicts with {}:", first.owner()));
        }
        lines.extend(list.iter().map(|c| format!("- {}", c.field)));
    }
    format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn never_owned() -> Set {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

fn without_managed(object: &Value) -> Value {
    let mut o = object.clone();
    if let Some(m) = o.get_mut("metadata").and_then(Value::as_object_mut) {
        m.remove("managedFields");
    }
    o
}

fn manager_of(w: &Write<'_>, operation: Operation) -> Manager {
    Manager {
        name: if w.manager.is_empty() { "unknown".to_owned() } else { w.manager.to_owned() },
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { w.api_version.to_owned() },
        subresource: w.subresource.unwrap_or_default().to_owned(),
    }
}

/// Takes fields away from everybody but `self_id`: what changed or was added is a conflict (or, forced, lost), what is gone is lost.
fn settle(old: &Value, new: &Value, node: Node<'_>, w: &Write<'_>, reset: &Set, managed: &mut Managed, self_id: &Manager, force: bool) -> Result<super::Comparison, Vec<Conflict>> {
    let c = compare(old, new, node).without(reset);
    if !w.served.is_empty() {
        managed.entries.retain(|m, o| m == self_id || w.served.contains(&o.api_version.as_str()));
    }
    let changed = c.modified.union(&c.added);
    let mut conflicts = Vec::new();
    for (m, o) in managed.entries.iter_mut().filter(|(m, _)| *m != self_id) {
        let lost = o.set.intersection(&changed);
        if !lost.is_empty() {
            if !force {
                conflicts.extend(lost.paths().into_iter().map(|p| Conflict { manager: m.clone(), field: show(&p), path: p }));
                continue;
            }
            o.set = o.set.difference(&lost);
        }
        if !c.removed.is_empty() {
            o.set = o.set.difference(&c.removed);
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    managed.entries.retain(|m, o| m == self_id || !o.set.is_empty());
    Ok(c)
}

/// Brings sets written under another schema in line: a field that is atomic now is owned as a whole.
fn reconcile(set: &Set, node: Node<'_>) -> Set {
    fn walk(set: &Set, node: Node<'_>, path: &mut Vec<Element>, own: &mut Set) {
        for (e, below) in set.children() {
            let next = match e {
                Element::Field(n) => node.child(n),
                Element::Key(_) | Element::Value(_) | Element::Index(_) => node.item(),
            };
            let Some(next) = next else { continue };
            path.push(e.clone());
            let map_atomic = next.map().is_some_and(|m| !m.fields.is_empty() || m.element.is_some()) && next.scalar().is_none() && next.map_is_atomic();
            let list_atomic = next.scalar().is_none() && next.list().is_some_and(|l| l.kind == crate::shape::ListKind::Atomic);
            if map_atomic || list_atomic {
                own.insert(path);
            } else {
                walk(below, next, path, own);
            }
            path.pop();
        }
    }
    let mut own = Set::new();
    walk(set, node, &mut Vec::new(), &mut own);
    if own.is_empty() { set.clone() } else { set.recursive_difference(&own).union(&own) }
}

/// Records a write that is no apply: sets `new.metadata.managedFields`.
///
/// Call it after decoding and defaulting, before `prepare_*`, and again after mutating admission. `old` is `None` on creation.
pub fn track_update(kind: &Kind, old: Option<&Value>, new: &mut Value, w: &Write<'_>) {
    if new.get("metadata").is_none_or(|m| !m.is_object()) {
        return;
    }
    let listed = |o: Option<&Value>| o.and_then(|o| o.pointer("/metadata/managedFields")).cloned();
    let live = || Managed::decode(listed(old).as_ref()).unwrap_or_default();
    let given = listed(Some(new));
    let managed = if w.subresource.is_some() {
        live()
    } else {
        match &given {
            Some(Value::Array(l)) if l.is_empty() || (l.len() == 1 && l[0] == json!({})) => Managed::default(),
            g => match Managed::decode(g.as_ref()) {
                Ok(m) if !m.is_empty() => m,
                _ => live(),
            },
        }
    };
    if let Some(m) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        m.remove("managedFields");
    }
    // An object nobody ever tracked is not tracked from now on.
    if managed.is_empty() && old.is_some() {
        return;
    }
    let empty;
    let old = match old {
        Some(o) => o,
        None => {
            empty = kind.empty();
            &empty
        }
    };
    let mut managed = managed;
    record(kind, old, new, w, &mut managed, &manager_of(w, Operation::Update));
    managed.store(new);
}

fn record(kind: &Kind, old: &Value, new: &Value, w: &Write<'_>, managed: &mut Managed, id: &Manager) {
    let node = kind.shape().root();
    let reset = kind.reset_fields(w.subresource);
    for o in managed.entries.values_mut() {
        o.set = reconcile(&o.set, node);
    }
    // All entries give way, the writer's own among them; what it changed is added to them afterwards.
    let nobody = Manager { name: String::new(), operation: Operation::Update, api_version: String::new(), subresource: "\0".to_owned() };
    let Ok(c) = settle(old, new, node, w, &reset, managed, &nobody, true) else { return };
    let own = c.modified.union(&c.added).recursive_difference(&reset).difference(&never_owned());
    if !own.is_empty() {
        let set = match managed.entries.get(id) {
            Some(before) => before.set.union(&own),
            None => own,
        };
        managed.entries.insert(id.clone(), Owned { api_version: w.api_version.to_owned(), set, time: Some(w.now.to_owned()) });
    }
    managed.cap();
}

/// Applies a configuration to a live object (`None`: creates it). The result is decoded and defaulted and carries its managed
/// fields; when nothing changes it equals the live object, times included.
pub fn apply(kind: &Kind, live: Option<&Value>, applied: &Value, w: &Write<'_>, force: bool) -> Result<Value, ApplyError> {
    let text = |k: &str| applied.get(k).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != w.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {}, expected: {}",
            text("apiVersion"),
            w.api_version
        )));
    }
    if applied.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let node = kind.shape().root();
    let mut managed = Managed::decode(live.and_then(|l| l.pointer("/metadata/managedFields"))).map_err(ApplyError::Managed)?;
    let bare = live.map_or_else(|| kind.empty(), without_managed);
    if managed.is_empty() && live.is_some() {
        let id = manager_of(&Write { manager: "before-first-apply", ..*w }, Operation::Update);
        record(kind, &kind.empty(), &bare, w, &mut managed, &id);
    }
    let faults = validate(applied, node, false);
    if !faults.is_empty() {
        let sentence = if let [one] = faults.as_slice() { one.clone() } else { format!("errors:\n  {}", faults.join("\n  ")) };
        return Err(ApplyError::Typed(format!("failed to create typed patch object ({}): {sentence}", place(applied, text("apiVersion"), text("kind")))));
    }
    let (object, managed) = match turn(kind, &bare, applied, w, managed.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if w.manager == "kubectl" => {
            let Some(allowed) = allowed_by_last_applied(kind, &bare, w) else { return Err(ApplyError::Conflicts(conflicts)) };
            let left: Vec<Conflict> = conflicts.into_iter().filter(|c| !allowed.has(&c.path)).collect();
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(left));
            }
            turn(kind, &bare, applied, w, managed, true)?
        }
        other => other?,
    };
    let changed = object.is_some();
    let mut object = match object {
        Some(o) => {
            let mut o = kind.decode(o).map_err(ApplyError::Decode)?.object;
            kind.default(&mut o);
            o
        }
        None => bare,
    };
    if w.manager == "kubectl" && changed {
        sync_last_applied(&mut object, applied);
    }
    managed.store(&mut object);
    Ok(object)
}

fn place(o: &Value, api_version: &str, kind: &str) -> String {
    let meta = |k: &str| o.pointer(&format!("/metadata/{k}")).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}; {api_version}, Kind={kind}", meta("namespace"), meta("name"))
}

/// One apply: the merged object (`None`: nothing changed) and who owns what.
fn turn(kind: &Kind, live: &Value, applied: &Value, w: &Write<'_>, mut managed: Managed, force: bool) -> Result<(Option<Value>, Managed), ApplyError> {
    let node = kind.shape().root();
    let reset = kind.reset_fields(w.subresource);
    let id = manager_of(w, Operation::Apply);
    for o in managed.entries.values_mut() {
        o.set = reconcile(&o.set, node);
    }
    let merged = merge(live, applied, node).map_err(|f| ApplyError::Typed(format!("failed to merge config: {}", f.join("\n  "))))?;
    let last = managed.entries.get(&id).cloned();
    let set = to_set(applied, node).recursive_difference(&reset);
    let time = last.as_ref().and_then(|o| o.time.clone());
    managed.entries.insert(id.clone(), Owned { api_version: w.api_version.to_owned(), set, time });
    let object = match &last {
        Some(last) if !last.set.is_empty() => prune(&merged, node, &managed, &last.set),
        _ => merged,
    };
    settle(live, &object, node, w, &reset, &mut managed, &id, force).map_err(ApplyError::Conflicts)?;
    if let Some(o) = managed.entries.get_mut(&id) {
        o.set = o.set.difference(&never_owned());
    }
    managed.entries.retain(|_, o| !o.set.is_empty());
    // A write that changes nothing leaves the entry's time alone, even when the fields owned change.
    if super::set::equal(live, &object) {
        return Ok((None, managed));
    }
    if let Some(o) = managed.entries.get_mut(&id) {
        o.time = Some(w.now.to_owned());
    }
    Ok((Some(object), managed))
}

/// Removes what the manager applied last time and not now, unless somebody else owns it.
fn prune(merged: &Value, node: Node<'_>, managed: &Managed, last: &Set) -> Value {
    let named = |s: &Set| s.with_named_fields(Some(node));
    let pruned = remove_items(merged, &named(last), node);
    let mut owned = Set::new();
    for o in managed.entries.values() {
        owned.extend(&o.set);
    }
    let all = named(&to_set(merged, node));
    let kept = named(&to_set(&pruned, node)).union(&named(&owned));
    let pruned = remove_items(merged, &all.difference(&kept), node);
    // Items without owner that only fell with the others come back.
    let left = named(&to_set(&pruned, node));
    remove_items(merged, &all.difference(&left).intersection(&named(last)), node)
}

/// Fields whose live values are what client-side apply wrote last: kubectl may take them over.
fn allowed_by_last_applied(kind: &Kind, live: &Value, w: &Write<'_>) -> Option<Set> {
    let text = live.pointer("/metadata/annotations").and_then(|a| a.get(LAST_APPLIED)).and_then(Value::as_str)?;
    let last: Value = serde_json::from_str(text).ok()?;
    let node = kind.shape().root();
    if last.get("apiVersion").and_then(Value::as_str) != Some(w.api_version) || !validate(&last, node, false).is_empty() {
        return None;
    }
    let c = compare(&last, live, node);
    Some(to_set(&last, node).difference(&c.modified).difference(&c.added).difference(&c.removed))
}

/// Keeps client-side apply's annotation in step, when the object has one.
fn sync_last_applied(object: &mut Value, applied: &Value) {
    let Some(slot) = object.pointer_mut("/metadata/annotations").and_then(|a| a.get_mut(LAST_APPLIED)) else { return };
    if slot.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut a = applied.clone();
    if let Some(m) = a.get_mut("metadata").and_then(Value::as_object_mut) {
        let emptied = m.get_mut("annotations").and_then(Value::as_object_mut).map(|n: &mut Map<String, Value>| {
            n.remove(LAST_APPLIED);
            n.is_empty()
        });
        if emptied == Some(true) {
            m.remove("annotations");
        }
    }
    *slot = Value::String(format!("{a}\n"));
}
