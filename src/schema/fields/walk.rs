//! Typed walks: which fields an object has, how two objects differ, merging, removing, checking.
//!
//! The rules are those of structured merge diff, the library behind server-side apply: maps merge by key, sets by value,
//! keyed lists by their keys, everything atomic as one field.

use super::set::{Element, Set, equal};
use crate::shape::{ListKind, ListType, MapType, Node, Scalar};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The side of an atom that a value takes.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Scalar,
    List,
    Map,
    None,
}

/// Null and absent values take the first side there is, maps first.
fn side(node: Node<'_>, v: Option<&Value>) -> Side {
    let a = node.atom();
    match v {
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if a.scalar.is_some() => Side::Scalar,
        Some(Value::Array(_)) if a.list.is_some() => Side::List,
        Some(Value::Object(_)) if a.map.is_some() => Side::Map,
        _ if a.map.is_some() => Side::Map,
        _ if a.scalar.is_some() => Side::Scalar,
        _ if a.list.is_some() => Side::List,
        _ => Side::None,
    }
}

/// What differs; the atom is unsettled for absent values, so sides of one absent value never differ.
fn sides(node: Node<'_>, l: Option<&Value>, r: Option<&Value>) -> Vec<Side> {
    match (l, r) {
        (_, None) => vec![side(node, l)],
        (None, _) => vec![side(node, r)],
        _ => {
            let settled = |v: Option<&Value>| match v {
                Some(Value::Null) | None => Side::None,
                _ => side(node, v),
            };
            if settled(l) == settled(r) { vec![side(node, r)] } else { vec![side(node, l), side(node, r)] }
        }
    }
}

/// The path element of a list item.
pub(crate) fn element(node: Node<'_>, list: &ListType, item: &Value) -> Result<Element, String> {
    match &list.kind {
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListKind::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            v => Ok(Element::Value(v.clone())),
        },
        ListKind::Map(keys) => {
            let o = match item {
                Value::Object(o) => o,
                Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let of = node.at(list.item);
            let mut found: Vec<(Box<str>, Value)> = Vec::with_capacity(keys.len());
            for k in keys {
                if let Some(v) = o.get(&**k) {
                    found.push((k.clone(), v.clone()));
                } else if let Some(v) = of.field(k).and_then(|f| f.default.clone()) {
                    found.push((k.clone(), v));
                }
            }
            if found.is_empty() {
                let names: Vec<String> = keys.iter().map(|k| format!("\"{k}\"")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            found.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(Element::Key(found))
        }
    }
}

/// All fields of an object.
pub fn to_set(v: &Value, node: Node<'_>) -> Set {
    let mut set = Set::new();
    set_walk(v, node, &mut Vec::new(), &mut set);
    set
}

fn set_walk(v: &Value, node: Node<'_>, path: &mut Vec<Element>, set: &mut Set) {
    match side(node, Some(v)) {
        Side::Scalar => set.insert(path),
        Side::List => {
            let Some(list) = node.list() else { return };
            if list.kind == ListKind::Atomic {
                set.insert(path);
                return;
            }
            let Value::Array(items) = v else { return };
            let mut count: BTreeMap<Element, usize> = BTreeMap::new();
            let elements: Vec<Option<Element>> = items.iter().map(|i| element(node, list, i).ok()).collect();
            for e in elements.iter().flatten() {
                *count.entry(e.clone()).or_default() += 1;
            }
            for (item, e) in items.iter().zip(elements) {
                let Some(e) = e else { continue };
                let once = count.get(&e) == Some(&1);
                path.push(e);
                if once {
                    set_walk(item, node.at(list.item), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Side::Map => {
            let Some(map) = node.map() else { return };
            if node.map_is_atomic() {
                set.insert(path);
                return;
            }
            let Value::Object(o) = v else { return };
            for (k, x) in o {
                path.push(Element::field(k));
                if let Some(n) = node.child(k) {
                    set_walk(x, n, path, set);
                }
                let empty = x.is_null() || x.as_object().is_some_and(Map::is_empty);
                if empty || !map.fields.contains_key(&**k) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Side::None => {}
    }
}

/// How one object differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields the new object lacks.
    pub removed: Set,
    /// Fields of both with different values.
    pub modified: Set,
    /// Fields the old object lacks.
    pub added: Set,
}

impl Comparison {
    /// Forgets fields and all below them.
    pub fn without(&self, ignored: &Set) -> Self {
        if ignored.is_empty() {
            return self.clone();
        }
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }
}

/// Compares an old object with a new one.
pub fn compare(old: &Value, new: &Value, node: Node<'_>) -> Comparison {
    let mut c = Comparison::default();
    compare_walk(Some(old), Some(new), node, &mut Vec::new(), &mut c);
    c
}

fn leaf(l: Option<&Value>, r: Option<&Value>, path: &[Element], c: &mut Comparison) {
    match (l, r) {
        (None, _) => c.added.insert(path),
        (_, None) => c.removed.insert(path),
        (Some(a), Some(b)) if !equal(a, b) => c.modified.insert(path),
        _ => {}
    }
}

fn compare_walk(l: Option<&Value>, r: Option<&Value>, node: Node<'_>, path: &mut Vec<Element>, c: &mut Comparison) {
    // Equal subtrees have nothing to tell.
    if let (Some(a), Some(b)) = (l, r) {
        if equal(a, b) {
            return;
        }
    }
    let mut in_leaf = false;
    for s in sides(node, l, r) {
        // Only the last side decides whether this place was a leaf.
        in_leaf = match s {
            Side::Scalar => {
                leaf(l, r, path, c);
                true
            }
            Side::List => {
                let items = |v: Option<&'_ Value>| v.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().to_vec();
                let Some(list) = node.list() else { continue };
                let (a, b) = (items(l), items(r));
                if list.kind == ListKind::Atomic || (a.is_empty() && b.is_empty()) {
                    leaf(l, r, path, c);
                    true
                } else {
                    compare_items(&a, &b, node, list, path, c);
                    false
                }
            }
            Side::Map => {
                let empty = Map::new();
                let a = l.and_then(Value::as_object).unwrap_or(&empty);
                let b = r.and_then(Value::as_object).unwrap_or(&empty);
                if node.map_is_atomic() || (a.is_empty() && b.is_empty()) {
                    leaf(l, r, path, c);
                    true
                } else {
                    for (k, x) in a {
                        if let Some(n) = node.child(k) {
                            path.push(Element::field(k));
                            compare_walk(Some(x), b.get(k), n, path, c);
                            path.pop();
                        }
                    }
                    for (k, x) in b.iter().filter(|(k, _)| !a.contains_key(*k)) {
                        if let Some(n) = node.child(k) {
                            path.push(Element::field(k));
                            compare_walk(None, Some(x), n, path, c);
                            path.pop();
                        }
                    }
                    false
                }
            }
            Side::None => false,
        };
    }
    if !in_leaf {
        match (l, r) {
            (None, _) => c.added.insert(path),
            (_, None) => c.removed.insert(path),
            _ => {}
        }
    }
}

fn compare_items(l: &[Value], r: &[Value], node: Node<'_>, list: &ListType, path: &mut Vec<Element>, c: &mut Comparison) {
    let mut all: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for v in l {
        if let Ok(e) = element(node, list, v) {
            all.entry(e).or_default().0.push(v);
        }
    }
    for v in r {
        if let Ok(e) = element(node, list, v) {
            all.entry(e).or_default().1.push(v);
        }
    }
    let of = node.at(list.item);
    for (e, (a, b)) in all {
        path.push(e);
        match (a.as_slice(), b.as_slice()) {
            ([] | [_], [] | [_]) => compare_walk(a.first().copied(), b.first().copied(), of, path, c),
            ([_, _, ..], [_, _, ..]) => {
                if a.len() != b.len() || a.iter().zip(&b).any(|(x, y)| !equal(x, y)) {
                    c.modified.insert(path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(first) = b.first() {
                    compare_walk(None, Some(first), of, path, c);
                }
                c.removed.insert(path);
            }
            _ => {
                if let Some(first) = a.first() {
                    compare_walk(Some(first), None, of, path, c);
                }
                c.added.insert(path);
            }
        }
        path.pop();
    }
}

/// Merges what is applied into a live object; faults are those of duplicate or keyless list elements in `applied`.
pub fn merge(live: &Value, applied: &Value, node: Node<'_>) -> Result<Value, Vec<String>> {
    let mut faults = Vec::new();
    let out = merge_walk(Some(live), Some(applied), node, &mut Vec::new(), &mut faults);
    if faults.is_empty() { Ok(out.unwrap_or(Value::Null)) } else { Err(faults) }
}

fn keep(l: Option<&Value>, r: Option<&Value>) -> Option<Value> {
    r.or(l).cloned()
}

fn merge_walk(l: Option<&Value>, r: Option<&Value>, node: Node<'_>, path: &mut Vec<Element>, faults: &mut Vec<String>) -> Option<Value> {
    let mut out = None;
    // When the two sides differ the new value's side comes last and wins.
    for s in sides(node, l, r) {
        out = match s {
            Side::Scalar | Side::None => keep(l, r),
            Side::List => {
                let list = node.list()?;
                let a = l.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let b = r.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                if list.kind == ListKind::Atomic || (a.is_empty() && b.is_empty()) {
                    keep(l, r)
                } else {
                    merge_items(a, b, node, list, path, faults)
                }
            }
            Side::Map => {
                let empty = Map::new();
                let a = l.and_then(Value::as_object).unwrap_or(&empty);
                let b = r.and_then(Value::as_object).unwrap_or(&empty);
                if node.map_is_atomic() || (a.is_empty() && b.is_empty()) {
                    keep(l, r)
                } else {
                    let mut m = Map::new();
                    for k in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                        let Some(n) = node.child(k) else { continue };
                        path.push(Element::field(k));
                        if let Some(v) = merge_walk(a.get(k), b.get(k), n, path, faults) {
                            m.insert(k.clone(), v);
                        }
                        path.pop();
                    }
                    (!m.is_empty()).then_some(Value::Object(m))
                }
            }
        };
    }
    out
}

type Indexed<'a> = (Vec<(Element, &'a Value)>, BTreeMap<Element, Option<&'a Value>>);

/// Elements in order and by element; a repeated element of the live list keeps no value to merge with.
fn index<'a>(items: &'a [Value], node: Node<'_>, list: &ListType, repeats: bool, path: &[Element], faults: &mut Vec<String>) -> Indexed<'a> {
    let (mut order, mut by) = (Vec::with_capacity(items.len()), BTreeMap::new());
    for (i, v) in items.iter().enumerate() {
        match element(node, list, v) {
            Err(e) => faults.push(format!("{}: element {i}: {e}", super::set::show(path))),
            Ok(e) if by.contains_key(&e) => {
                if repeats {
                    by.insert(e.clone(), None);
                    order.push((e, v));
                } else {
                    faults.push(format!("{}: duplicate entries for key {e}", super::set::show(path)));
                }
            }
            Ok(e) => {
                by.insert(e.clone(), Some(v));
                order.push((e, v));
            }
        }
    }
    (order, by)
}

/// Order of the result: the applied order for its own elements, live-only elements keep their place between them.
fn merge_items(l: &[Value], r: &[Value], node: Node<'_>, list: &ListType, path: &mut Vec<Element>, faults: &mut Vec<String>) -> Option<Value> {
    let before = faults.len();
    let (right, in_right) = index(r, node, list, false, path, faults);
    let (left, in_left) = index(l, node, list, true, path, faults);
    if faults.len() > before {
        return None;
    }
    let of = node.at(list.item);
    let mut shared = right.iter().map(|(e, _)| e).filter(|e| in_left.contains_key(*e));
    let mut next = shared.next();
    let mut done: BTreeMap<&Element, ()> = BTreeMap::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let mut put = |e: &Element, a: Option<&Value>, b: Option<&Value>| {
        path.push(e.clone());
        // An absent value on both sides cannot happen: one of them is in hand.
        if let Some(v) = merge_walk(a, b, of, path, faults) {
            out.push(v);
        }
        path.pop();
    };
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() {
            let e = &left[i].0;
            if *e == right[j].0 {
                done.insert(e, ());
                put(e, in_left.get(e).copied().flatten(), Some(right[j].1));
                i += 1;
                j += 1;
                next = shared.next();
                continue;
            }
            if in_right.contains_key(e) && next.is_some_and(|n| n != e) {
                i += 1;
                continue;
            }
        }
        if i < left.len() {
            let e = &left[i].0;
            if !in_right.contains_key(e) {
                put(e, Some(left[i].1), None);
                i += 1;
                continue;
            } else if done.contains_key(e) {
                i += 1;
            }
        }
        if j < right.len() {
            let e = &right[j].0;
            done.insert(e, ());
            put(e, in_left.get(e).copied().flatten(), Some(right[j].1));
            j += 1;
            if next == Some(e) {
                next = shared.next();
            }
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}

/// Takes away the fields of a set; a map or list that loses all becomes null.
pub fn remove_items(v: &Value, gone: &Set, node: Node<'_>) -> Value {
    match (side(node, Some(v)), v) {
        (Side::List, Value::Array(items)) => {
            let Some(list) = node.list() else { return Value::Null };
            if items.is_empty() || list.kind == ListKind::Atomic {
                return Value::Null;
            }
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                match element(node, list, item) {
                    Ok(e) if gone.has_member(&e) => {}
                    Ok(e) => match gone.below(&e) {
                        Some(b) => out.push(remove_items(item, b, node.at(list.item))),
                        None => out.push(item.clone()),
                    },
                    Err(_) => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (Side::Map, Value::Object(o)) => {
            if o.is_empty() || node.map_is_atomic() {
                return Value::Null;
            }
            let mut out = Map::new();
            for (k, x) in o {
                let e = Element::field(k);
                if gone.has_member(&e) {
                    continue;
                }
                let x = match (gone.below(&e), node.child(k)) {
                    (Some(b), Some(n)) => remove_items(x, b, n),
                    _ => x.clone(),
                };
                out.insert(k.clone(), x);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Side::Scalar, v) => v.clone(),
        _ => Value::Null,
    }
}

/// Checks that an object fits its shape; each fault is `path: message`.
pub fn validate(v: &Value, node: Node<'_>, allow_duplicates: bool) -> Vec<String> {
    let mut faults = Vec::new();
    validate_walk(v, node, allow_duplicates, &mut String::new(), &mut faults);
    faults
}

fn go_type(v: &Value) -> &'static str {
    match v {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as the library prints it: strings quoted, the rest as JSON-like text.
fn shown(v: &Value) -> String {
    match v {
        Value::String(s) => crate::fault::quote(s),
        v => v.to_string(),
    }
}

fn validate_walk(v: &Value, node: Node<'_>, dup: bool, path: &mut String, faults: &mut Vec<String>) {
    let at = path.clone();
    let mut tell = |m: String| faults.push(if at.is_empty() { m } else { format!("{at}: {m}") });
    match side(node, Some(v)) {
        Side::Scalar => {
            if v.is_null() {
                return;
            }
            let number = v.is_number();
            match node.scalar() {
                Some(Scalar::Int32 | Scalar::Int64 | Scalar::Number) if !number => {
                    tell(format!("expected numeric (int or float), got {}", go_type(v)));
                }
                Some(Scalar::String | Scalar::Bytes) if !v.is_string() => tell(format!("expected string, got &value.valueUnstructured{{Value:{}}}", shown(v))),
                Some(Scalar::Boolean) if !v.is_boolean() => tell(format!("expected boolean, got {}", shown(v))),
                Some(_) if v.is_array() || v.is_object() => tell(format!("expected any scalar, got {}", shown(v))),
                _ => {}
            }
        }
        Side::List => {
            let Some(list) = node.list() else { return };
            let items = match v {
                Value::Array(items) => items,
                Value::Null => return,
                other => return tell(format!("expected list, got {}", shown(other))),
            };
            let mut seen: BTreeMap<Element, ()> = BTreeMap::new();
            for (i, item) in items.iter().enumerate() {
                let len = path.len();
                if list.kind == ListKind::Atomic {
                    path.push_str(&format!("[{i}]"));
                } else {
                    match element(node, list, item) {
                        Err(e) => {
                            faults.push(format!("{at}: element {i}: {e}"));
                            return;
                        }
                        Ok(e) => {
                            let text = e.to_string();
                            if seen.insert(e, ()).is_some() && !dup {
                                faults.push(format!("{at}: duplicate entries for key {text}"));
                            }
                            path.push_str(&text);
                        }
                    }
                }
                validate_walk(item, node.at(list.item), dup, path, faults);
                path.truncate(len);
            }
        }
        Side::Map => {
            let Some(map) = node.map() else { return };
            let o = match v {
                Value::Object(o) => o,
                Value::Null => return,
                other => return tell(format!("expected map, got {}", debug(other))),
            };
            validate_fields(o, node, map, dup, path, faults);
        }
        Side::None => {}
    }
}

fn debug(v: &Value) -> String {
    format!("&{{{}}}", v.as_str().map_or_else(|| v.to_string(), str::to_owned))
}

fn validate_fields(o: &Map<String, Value>, node: Node<'_>, map: &MapType, dup: bool, path: &mut String, faults: &mut Vec<String>) {
    for (k, x) in o {
        let len = path.len();
        path.push('.');
        path.push_str(k);
        match map.fields.get(&**k).map(|f| f.ty).or(map.element) {
            None => faults.push(format!("{path}: field not declared in schema")),
            Some(r) => validate_walk(x, node.at(r), dup, path, faults),
        }
        path.truncate(len);
    }
}
