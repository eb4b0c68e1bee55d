//! The merge patch that turns one version of a status into the next.

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch from `before` to `after`; `None` when they are equal. Lists are replaced whole, what is gone becomes `null`.
///
/// A status leaves empty fields out, so that sending it as a patch would never clear one.
pub fn status_patch<T: Serialize>(before: Option<&T>, after: &T) -> Option<Value> {
    let read = |value: &T| serde_json::to_value(value).unwrap_or(Value::Null);
    let before = before.map_or(Value::Null, read);
    let patch = between(&before, &read(after))?;
    Some(Value::Object(Map::from_iter([("status".to_owned(), patch)])))
}

fn between(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut out = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        out.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(had) => {
                if let Some(patch) = between(had, value) {
                    out.insert(key.clone(), patch);
                }
            }
            None => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches() {
        let check = |before: Value, after: Value, expect: Option<Value>| assert_eq!(status_patch(Some(&before), &after), expect.map(|e| json!({"status": e})));
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null})));
        check(json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1, "y": 3}}), Some(json!({"a": {"y": 3}})));
        check(json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]})));
        assert_eq!(status_patch(None, &json!({"a": 1})), Some(json!({"status": {"a": 1}})));
    }
}
