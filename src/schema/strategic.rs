//! Strategic merge patch: lists merge by the keys the kind declares, and a patch can carry directives.

use crate::fields::equal;
use crate::shape::{Node, PatchRule};
use serde_json::{Map, Value};

/// Why a patch cannot be merged; the words are those of a real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The kind has no merge rules (custom kinds); a server answers 415.
    #[error("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")]
    Unsupported,
    /// The patch is malformed.
    #[error("{0}")]
    Patch(String),
}

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Merges a patch into an object.
pub fn merge(current: &Value, patch: &Value, node: Node<'_>) -> Result<Value, StrategicError> {
    let (Value::Object(o), Value::Object(p)) = (current, patch) else {
        return Err(StrategicError::Patch("the patch is no object".to_owned()));
    };
    merge_map(o.clone(), p.clone(), Some(node)).map(Value::Object)
}

fn bad<T>(words: String) -> Result<T, StrategicError> {
    Err(StrategicError::Patch(words))
}

fn merge_map(mut original: Map<String, Value>, mut patch: Map<String, Value>, node: Option<Node<'_>>) -> Result<Map<String, Value>, StrategicError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(s)) if s == "replace" => return Ok(patch),
        Some(Value::String(s)) if s == "delete" => return Ok(Map::new()),
        Some(Value::String(s)) if s == "merge" => {}
        Some(other) => return bad(format!("unknown patch type found: {}", other.as_str().map_or_else(|| other.to_string(), str::to_owned))),
    }
    if let Some(keep) = patch.remove(RETAIN) {
        let Value::Array(keep) = keep else { return bad(format!("invalid patch format of {RETAIN}, {keep} is not in list format")) };
        for k in patch.keys() {
            if !keep.iter().any(|x| x.as_str() == Some(k)) {
                return bad(format!("patch doesn't contain the key {k} in the {RETAIN} list"));
            }
        }
        original.retain(|k, _| keep.iter().any(|x| x.as_str() == Some(k)));
    }
    // Lists with a given order are merged together with their deletions, then sorted.
    let ordered: Vec<String> = patch.keys().filter_map(|k| k.strip_prefix(ORDER)).map(str::to_owned).collect();
    for field in ordered {
        let order = patch.remove(&format!("{ORDER}{field}"));
        let Some(Value::Array(order)) = order else { return bad(format!("invalid patch format of {ORDER}{field}: not a list")) };
        let items = patch.remove(&field);
        let gone = patch.remove(&format!("{DELETE_FROM}{field}"));
        if let Some(v @ (Value::Null | Value::Object(_) | Value::String(_) | Value::Number(_) | Value::Bool(_))) = items {
            patch.insert(field, v);
            continue;
        }
        let rule = rule_of(node, &field);
        let before = original.get(&field).and_then(Value::as_array).cloned().unwrap_or_default();
        let given = items.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        let mut merged = if rule.merge { merge_list(before.clone(), given, &rule, item_of(node, &field))? } else if items.is_some() { given } else { before.clone() };
        if let Some(Value::Array(gone)) = gone {
            merged.retain(|x| !gone.iter().any(|g| equal(g, x)));
        }
        let key = rule.merge_key.as_deref();
        let sorted = in_order(merged, &order, &before, key);
        if !sorted.is_empty() || original.contains_key(&field) {
            original.insert(field, Value::Array(sorted));
        }
    }
    for (k, v) in patch {
        if let Some(field) = k.strip_prefix(DELETE_FROM) {
            let Value::Array(gone) = v else { return bad(format!("invalid patch format of {DELETE_FROM}{field}: not a list")) };
            if let Some(list) = original.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|x| !gone.iter().any(|g| equal(g, x)));
            }
            continue;
        }
        if v.is_null() {
            original.remove(&k);
            continue;
        }
        let Some(was) = original.remove(&k) else {
            if let Some(clean) = without_directives(v) {
                original.insert(k, clean);
            }
            continue;
        };
        let merged = match (was, v) {
            (Value::Object(o), Value::Object(p)) => Value::Object(merge_map(o, p, node.and_then(|n| n.child(&k)))?),
            (Value::Array(o), Value::Array(p)) => {
                let rule = rule_of(node, &k);
                if rule.merge { Value::Array(merge_list(o, p, &rule, item_of(node, &k))?) } else { without_directives(Value::Array(p)).unwrap_or_else(|| Value::Array(Vec::new())) }
            }
            (_, v) => v,
        };
        original.insert(k, merged);
    }
    Ok(original)
}

fn rule_of(node: Option<Node<'_>>, field: &str) -> PatchRule {
    node.and_then(|n| n.field(field)).map(|f| f.patch.clone()).unwrap_or_default()
}

fn item_of<'a>(node: Option<Node<'a>>, field: &str) -> Option<Node<'a>> {
    node.and_then(|n| n.child(field)).and_then(|n| n.item())
}

fn merge_list(mut original: Vec<Value>, patch: Vec<Value>, rule: &PatchRule, item: Option<Node<'_>>) -> Result<Vec<Value>, StrategicError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let objects = original.iter().chain(&patch).any(Value::is_object);
    let Some(key) = rule.merge_key.as_deref().filter(|_| objects) else {
        if objects {
            return bad("cannot merge lists without merge key".to_owned());
        }
        let (before, order) = (original.clone(), patch.clone());
        for p in patch {
            if !original.iter().any(|o| equal(o, &p)) {
                original.push(p);
            }
        }
        return Ok(in_order(original, &order, &before, None));
    };
    let key_of = |v: &Value| -> Result<Value, StrategicError> {
        match v.get(key) {
            Some(k) => Ok(k.clone()),
            None => bad(format!("map: {v} does not contain declared merge key: {key}")),
        }
    };
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for mut p in patch {
        let Some(m) = p.as_object_mut() else { return bad(format!("wrong type of list item: {p}")) };
        match m.get(PATCH).and_then(Value::as_str).map(str::to_owned).as_deref() {
            None if m.contains_key(PATCH) => return bad("unknown patch type found".to_owned()),
            None => plain.push(p),
            Some("delete") => {
                let gone = key_of(&p)?;
                original.retain(|o| o.get(key).is_none_or(|k| !equal(k, &gone)));
            }
            Some("replace") => replace = true,
            Some("merge") => return bad("merge patch type is not supported in a list".to_owned()),
            Some(other) => return bad(format!("unknown patch type found: {other}")),
        }
    }
    if replace {
        return Ok(plain);
    }
    // Without a given order the patch's own order counts: what is new in it comes first, as a real server has it.
    let (before, order) = (original.clone(), plain.clone());
    for p in plain {
        let k = key_of(&p)?;
        let at = original.iter().position(|o| o.get(key).is_some_and(|x| equal(x, &k)));
        match (at, p) {
            (Some(i), Value::Object(p)) => {
                let was = match std::mem::take(&mut original[i]) {
                    Value::Object(o) => o,
                    _ => Map::new(),
                };
                original[i] = Value::Object(merge_map(was, p, item)?);
            }
            (_, p) => original.extend(without_directives(p)),
        }
    }
    Ok(in_order(original, &order, &before, Some(key)))
}

/// What a patch adds where nothing was: no nulls, no directives; `None` when it deletes.
fn without_directives(v: Value) -> Option<Value> {
    match v {
        Value::Object(m) => {
            match m.get(PATCH).and_then(Value::as_str) {
                Some("delete") => return None,
                _ => {}
            }
            let clean = m
                .into_iter()
                .filter(|(k, x)| !x.is_null() && k != PATCH && k != RETAIN && !k.starts_with(ORDER) && !k.starts_with(DELETE_FROM))
                .filter_map(|(k, x)| without_directives(x).map(|x| (k, x)))
                .collect();
            Some(Value::Object(clean))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        v => Some(v),
    }
}

/// Items of the order list in that order; the server's other items keep their place relative to their old neighbours.
fn in_order(merged: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match key {
        Some(k) => match (a.get(k), b.get(k)) {
            (Some(x), Some(y)) => equal(x, y),
            _ => false,
        },
        None => equal(a, b),
    };
    let index = |list: &[Value], v: &Value| list.iter().position(|x| same(x, v));
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|v| index(order, v).is_some());
    named.sort_by_key(|v| index(order, v));
    rest.sort_by_key(|v| index(before, v));
    let mut out = Vec::with_capacity(named.len() + rest.len());
    let (mut left, mut right) = (rest.into_iter().peekable(), named.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => matches!((index(before, l), index(before, r)), (Some(i), Some(j)) if i < j),
        };
        out.extend(if take_left { left.next() } else { right.next() });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::native;
    use serde_json::json;

    fn pod(current: Value, patch: Value) -> Result<Value, StrategicError> {
        merge(&current, &patch, native("", "v1", "Pod").expect("kind").root())
    }

    #[test]
    fn lists_merge_by_key_and_directives_hold() {
        let live = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2", "args": ["x"]}], "nodeName": "n"}});
        for (patch, want) in [
            (json!({"spec": {"containers": [{"name": "b", "image": "3"}]}}), json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3", "args": ["x"]}], "nodeName": "n"}})),
            (json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}), json!({"spec": {"containers": [{"name": "b", "image": "2", "args": ["x"]}], "nodeName": "n"}})),
            (json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}), json!({"spec": {"containers": [{"name": "c"}], "nodeName": "n"}})),
            (json!({"spec": {"nodeName": null}}), json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2", "args": ["x"]}]}})),
            (json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "args": null}]}}), json!({"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}], "nodeName": "n"}})),
            (json!({"spec": {"$retainKeys": ["containers"], "containers": []}}), json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2", "args": ["x"]}]}})),
            (json!({"spec": {"$patch": "replace", "nodeName": "m"}}), json!({"spec": {"nodeName": "m"}})),
            (json!({"spec": {"containers": [{"name": "d", "env": [{"name": "E", "value": null}]}]}}), json!({"spec": {"containers": [{"name": "d", "env": [{"name": "E"}]}, {"name": "a", "image": "1"}, {"name": "b", "image": "2", "args": ["x"]}], "nodeName": "n"}})),
        ] {
            assert_eq!(pod(live.clone(), patch.clone()), Ok(want), "{patch}");
        }
        assert!(pod(live, json!({"spec": {"containers": [{"image": "x"}]}})).is_err());
    }

    #[test]
    fn primitive_lists() {
        let live = json!({"metadata": {"finalizers": ["a", "b"]}});
        assert_eq!(pod(live.clone(), json!({"metadata": {"finalizers": ["b", "c"]}})), Ok(json!({"metadata": {"finalizers": ["a", "b", "c"]}})));
        assert_eq!(
            pod(live, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}})),
            Ok(json!({"metadata": {"finalizers": ["b"]}}))
        );
    }
}
