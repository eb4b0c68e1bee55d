//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386).
//!
//! Own code instead of a library because the difference between *the place is not there* and *the patch is wrong* must be
//! known: Clusternet drops a patch of the first kind in silence and fails on the second (facts 7.6, oracle cases 15 and 84).

use serde_json::Value;
use thiserror::Error;

use crate::pointer;

/// Most operations one patch may have (Kubernetes' own bound for JSON patches).
pub const MAX_OPERATIONS: usize = 10_000;

/// Most bytes that all `copy` operations of one patch may add, so that a few of them cannot fill the memory.
const MAX_COPIED_WEIGHT: usize = 8 << 20;

/// One operation, with its tokens already split.
#[expect(missing_docs, reason = "the fields are named after what the text shows")]
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Put a value at a place, moving list elements up.
    Add { path: Vec<String>, value: Value },
    /// Take a value away.
    Remove { path: Vec<String> },
    /// Put a value where one is.
    Replace { path: Vec<String>, value: Value },
    /// Take from one place, add at another.
    Move { from: Vec<String>, path: Vec<String> },
    /// Read at one place, add at another.
    Copy { from: Vec<String>, path: Vec<String> },
    /// Fail unless the value is equal.
    Test { path: Vec<String>, value: Value },
    /// An operation without a usable `path` or `from`: nothing is there to be patched.
    Nowhere { what: &'static str },
}

/// Why a patch cannot be read at all.
#[expect(missing_docs, reason = "the fields are named after what the text shows")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchSyntax {
    /// Not a list.
    #[error("read JSON patch: it must be a list of operations, not {0}")]
    NotAList(&'static str),
    /// An element is not an object.
    #[error("read JSON patch: operation {0} is not an object")]
    NotAnObject(usize),
    /// More operations than [`MAX_OPERATIONS`].
    #[error("read JSON patch: {0} operations, at most {MAX_OPERATIONS} are allowed")]
    TooMany(usize),
    /// Unknown `op`.
    #[error("read JSON patch: operation {at} has unknown op {op:?}")]
    UnknownOp { at: usize, op: String },
    /// A pointer that does not begin with a slash.
    #[error("read JSON patch: operation {at} has path {path:?}, which does not begin with a slash")]
    BadPointer { at: usize, path: String },
}

/// Why a patch does not apply.
#[expect(missing_docs, reason = "the fields are named after what the text shows")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The place is not there; Clusternet lets such a patch pass without effect.
    #[error("apply JSON patch: operation {at}: nothing at {path}")]
    Missing { at: usize, path: String },
    /// A list index that cannot be.
    #[error("apply JSON patch: operation {at}: {path} is no index into the list")]
    BadIndex { at: usize, path: String },
    /// A `test` that does not hold.
    #[error("apply JSON patch: operation {at}: test of {path} failed")]
    TestFailed { at: usize, path: String },
    /// A value moved into itself.
    #[error("apply JSON patch: operation {at}: cannot move a value into itself")]
    IntoItself { at: usize },
    /// Copies grow the document beyond its bound.
    #[error("apply JSON patch: operation {at}: copied values exceed 8 MiB")]
    TooLarge { at: usize },
}

/// Reads a patch. `null` is a patch without operations, as Go reads it.
pub fn parse(patch: &Value) -> Result<Vec<Operation>, PatchSyntax> {
    let items = match patch {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(PatchSyntax::NotAList(kind_word(other))),
    };
    if items.len() > MAX_OPERATIONS {
        return Err(PatchSyntax::TooMany(items.len()));
    }
    items.iter().enumerate().map(|(at, item)| operation(at, item)).collect()
}

fn operation(at: usize, item: &Value) -> Result<Operation, PatchSyntax> {
    let Value::Object(map) = item else { return Err(PatchSyntax::NotAnObject(at)) };
    let op = map.get("op").and_then(Value::as_str).unwrap_or_default();
    if !matches!(op, "add" | "remove" | "replace" | "move" | "copy" | "test") {
        return Err(PatchSyntax::UnknownOp { at, op: op.to_owned() });
    }
    let Some(path) = map.get("path").and_then(Value::as_str) else { return Ok(Operation::Nowhere { what: "path" }) };
    let path = pointer::split(path).ok_or_else(|| PatchSyntax::BadPointer { at, path: path.to_owned() })?;
    let value = || map.get("value").cloned().unwrap_or(Value::Null);
    Ok(match op {
        "add" => Operation::Add { path, value: value() },
        "remove" => Operation::Remove { path },
        "replace" => Operation::Replace { path, value: value() },
        "test" => Operation::Test { path, value: value() },
        other => {
            let Some(from) = map.get("from").and_then(Value::as_str) else { return Ok(Operation::Nowhere { what: "from" }) };
            let from = pointer::split(from).ok_or_else(|| PatchSyntax::BadPointer { at, path: from.to_owned() })?;
            if other == "move" { Operation::Move { from, path } } else { Operation::Copy { from, path } }
        }
    })
}

/// Applies all operations or none: on an error `document` is as it was.
pub fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    if operations.is_empty() {
        return Ok(());
    }
    let mut work = document.clone();
    apply_in_place(&mut work, operations)?;
    *document = work;
    Ok(())
}

/// As [`apply`], without the safety copy: on an error `document` may be half patched.
pub fn apply_in_place(document: &mut Value, operations: &[Operation]) -> Result<(), PatchError> {
    let mut copied = 0usize;
    for (at, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Add { path, value } => add(document, path, value.clone(), at)?,
            Operation::Remove { path } => {
                remove(document, path, at)?;
            }
            Operation::Replace { path, value } => {
                let target = find_mut(document, path).ok_or_else(|| missing(at, path))?;
                *target = value.clone();
            }
            Operation::Move { from, path } => {
                if path.len() > from.len() && path.starts_with(from) {
                    return Err(PatchError::IntoItself { at });
                }
                let value = remove(document, from, at)?;
                add(document, path, value, at)?;
            }
            Operation::Copy { from, path } => {
                let value = find(document, from).ok_or_else(|| missing(at, from))?.clone();
                copied = copied.saturating_add(weight(&value));
                if copied > MAX_COPIED_WEIGHT {
                    return Err(PatchError::TooLarge { at });
                }
                add(document, path, value, at)?;
            }
            Operation::Test { path, value } => {
                let equal = match find(document, path) {
                    Some(found) => found == value,
                    // Go's library: a test for null holds where nothing is, if the parent is there.
                    None if path.split_last().is_some_and(|(_, parent)| find(document, parent).is_none()) => return Err(missing(at, path)),
                    None => value.is_null(),
                };
                if !equal {
                    return Err(PatchError::TestFailed { at, path: join(path) });
                }
            }
            Operation::Nowhere { what } => return Err(PatchError::Missing { at, path: format!("an operation without {what}") }),
        }
    }
    Ok(())
}

/// Rough size in bytes.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => 8 + map.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>(),
    }
}

fn add(document: &mut Value, path: &[String], value: Value, at: usize) -> Result<(), PatchError> {
    let Some((last, parent)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match find_mut(document, parent) {
        Some(Value::Object(map)) => {
            map.insert(last.clone(), value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let place = if last == "-" { items.len() } else { list_index(last, items.len(), at, path)? };
            if place > items.len() {
                return Err(PatchError::BadIndex { at, path: join(path) });
            }
            items.insert(place, value);
            Ok(())
        }
        _ => Err(missing(at, path)),
    }
}

fn remove(document: &mut Value, path: &[String], at: usize) -> Result<Value, PatchError> {
    let Some((last, parent)) = path.split_last() else { return Err(missing(at, path)) };
    match find_mut(document, parent) {
        Some(Value::Object(map)) => map.remove(last).ok_or_else(|| missing(at, path)),
        Some(Value::Array(items)) => {
            let place = list_index(last, items.len(), at, path)?;
            if place >= items.len() {
                return Err(PatchError::BadIndex { at, path: join(path) });
            }
            Ok(items.remove(place))
        }
        _ => Err(missing(at, path)),
    }
}

/// Index into a list; a negative one counts from the end, as Go's library allows.
fn list_index(token: &str, length: usize, at: usize, path: &[String]) -> Result<usize, PatchError> {
    let bad = || PatchError::BadIndex { at, path: join(path) };
    if let Some(back) = token.strip_prefix('-') {
        let back = pointer::index(back).ok_or_else(bad)?;
        return length.checked_sub(back).ok_or_else(bad);
    }
    pointer::index(token).ok_or_else(bad)
}

fn find<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, token| pointer::child(value, token))
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, token| pointer::child_mut(value, token))
}

fn missing(at: usize, path: &[String]) -> PatchError {
    PatchError::Missing { at, path: join(path) }
}

fn join(path: &[String]) -> String {
    path.iter().map(|token| format!("/{}", pointer::escape(token))).collect()
}

/// JSON merge patch (RFC 7386): objects merge, `null` takes away, everything else replaces.
pub fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = document else { return };
    for (key, change) in changes {
        match change {
            Value::Null => {
                map.remove(key);
            }
            Value::Object(_) => merge(map.entry(key.clone()).or_insert(Value::Null), change),
            other => {
                map.insert(key.clone(), other.clone());
            }
        }
    }
}

/// A word for the JSON type of a value, for messages.
pub fn kind_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(document: Value, patch: Value) -> Result<Value, String> {
        let operations = parse(&patch).map_err(|e| e.to_string())?;
        let mut document = document;
        let before = document.clone();
        match apply(&mut document, &operations) {
            Ok(()) => Ok(document),
            Err(error) => {
                assert_eq!(document, before, "a failed patch must not change the document");
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn operations() {
        let cases = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": [1]}]), Ok(json!({"a": 1, "b": [1]}))),
            (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), Ok(json!({"a": [1, 2, 3]}))),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Ok(json!({"a": [1, 2]}))),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/5", "value": 2}]), Err("apply JSON patch: operation 0: /a/5 is no index into the list")),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), Ok(json!({"a": [2]}))),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), Ok(json!({"a": [1]}))),
            (json!({"a": 1}), json!([{"op": "remove", "path": "/b"}]), Err("apply JSON patch: operation 0: nothing at /b")),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": null}]), Ok(json!({"a": null}))),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), Err("apply JSON patch: operation 0: nothing at /b")),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"x": 1}}]), Ok(json!({"x": 1}))),
            (json!({"a": {"b": 1}}), json!([{"op": "move", "from": "/a/b", "path": "/c"}]), Ok(json!({"a": {}, "c": 1}))),
            (json!({"a": {"b": 1}}), json!([{"op": "move", "from": "/a", "path": "/a/c"}]), Err("apply JSON patch: operation 0: cannot move a value into itself")),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), Ok(json!({"a": 1, "b": 1}))),
            (json!({"a/b": {"c~d": 1}}), json!([{"op": "test", "path": "/a~1b/c~0d", "value": 1}]), Ok(json!({"a/b": {"c~d": 1}}))),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 2}]), Err("apply JSON patch: operation 0: test of /a failed")),
            (json!({"a": 1}), json!([{"op": "test", "path": "/b", "value": null}]), Ok(json!({"a": 1}))),
            (json!({"a": 1}), json!(null), Ok(json!({"a": 1}))),
            (json!({"a": 1}), json!({}), Err("read JSON patch: it must be a list of operations, not an object")),
            (json!({"a": 1}), json!([{"op": "twist", "path": "/a"}]), Err("read JSON patch: operation 0 has unknown op \"twist\"")),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "/a", "value": 2}, {"op": "remove", "path": "/zz"}]),
                Err("apply JSON patch: operation 1: nothing at /zz"),
            ),
        ];
        for (document, patch, want) in cases {
            assert_eq!(run(document, patch.clone()), want.map_err(str::to_owned), "{patch}");
        }
    }

    #[test]
    fn a_patch_is_bounded() {
        let many = Value::Array(vec![json!({"op": "test", "path": "", "value": 1}); MAX_OPERATIONS + 1]);
        assert_eq!(parse(&many), Err(PatchSyntax::TooMany(MAX_OPERATIONS + 1)));
        let mut ops = vec![json!({"op": "add", "path": "/x", "value": "y".repeat(1024)})];
        for _ in 0..40 {
            ops.push(json!({"op": "copy", "from": "", "path": "/x"}));
            ops.push(json!({"op": "copy", "from": "/x", "path": "/y"}));
        }
        let operations = parse(&Value::Array(ops)).expect("well formed");
        assert!(matches!(apply(&mut json!({}), &operations), Err(PatchError::TooLarge { .. })));
    }

    #[test]
    fn merge_patch_follows_the_rfc() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!(["a"]), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        ];
        for (mut document, patch, want) in cases {
            merge(&mut document, &patch);
            assert_eq!(document, want, "{patch}");
        }
    }
}
