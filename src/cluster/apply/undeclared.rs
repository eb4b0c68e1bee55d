//! Fields that a server's schema does not have: named in its refusal of a server-side apply, taken out of the object.
//!
//! A create or an update passes such fields over with a warning; server-side apply refuses the whole object. What people wrote for
//! another kind or a newer server (an override that changes a Deployment into a StatefulSet) is to be deployed all the same.

use serde_json::Value;

const WORDS: &str = ": field not declared in schema";

/// Takes the fields out that a refusal names; their paths. Nothing is taken out unless the refusal speaks of such fields only.
pub(super) fn strip(object: &mut Value, refusal: &str) -> Vec<String> {
    let Some((_, list)) = refusal.split_once("failed to create typed patch object").and_then(|(_, rest)| rest.split_once("): ")) else {
        return Vec::new();
    };
    let lines: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "errors:").collect();
    let paths: Option<Vec<&str>> = lines.iter().map(|line| line.strip_suffix(WORDS)).collect();
    let paths = paths.unwrap_or_default();
    paths.into_iter().filter(|path| remove(object, path)).map(str::to_owned).collect()
}

/// Removes what a path of structured-merge-diff names: `.field`, `[key="value",…]`, `[index]`.
fn remove(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let Some(path) = path.strip_prefix('.') else { return false };
            // Keys of maps may hold dots themselves: the longest that fits comes first.
            let mut keys: Vec<String> = fields.keys().filter(|key| path.strip_prefix(key.as_str()).is_some_and(ends)).cloned().collect();
            keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
            keys.iter().any(|key| match &path[key.len()..] {
                "" => fields.remove(key).is_some(),
                rest => fields.get_mut(key).is_some_and(|below| remove(below, rest)),
            })
        }
        Value::Array(items) => {
            let Some((inner, rest)) = path.strip_prefix('[').and_then(bracket) else { return false };
            let found = match inner.parse::<usize>() {
                Ok(index) => (index < items.len()).then_some(index),
                Err(_) => items.iter().position(|item| has(item, inner)),
            };
            let Some(at) = found else { return false };
            if rest.is_empty() {
                items.remove(at);
                return true;
            }
            items.get_mut(at).is_some_and(|below| remove(below, rest))
        }
        _ => false,
    }
}

fn ends(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['.', '['])
}

/// The text up to the bracket that closes, and what follows it; brackets in quotes do not count.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let end = outside(text, ']').next()?;
    Some((&text[..end], &text[end + 1..]))
}

/// Where a character stands outside of quotes.
fn outside(text: &str, wanted: char) -> impl Iterator<Item = usize> + '_ {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().filter_map(move |(at, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == wanted && !quoted => return Some(at),
            _ => {}
        }
        None
    })
}

/// Whether an item of a list has these keys: `name="a",port=80`.
fn has(item: &Value, keys: &str) -> bool {
    let mut from = 0;
    let ends: Vec<usize> = outside(keys, ',').chain([keys.len()]).collect();
    ends.into_iter().all(|end| {
        let pair = keys.get(from..end).unwrap_or_default();
        from = end + 1;
        pair.split_once('=').is_some_and(|(key, value)| serde_json::from_str::<Value>(value).is_ok_and(|value| item.get(key) == Some(&value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_server_names_goes() {
        let mut object = json!({"spec": {"strategy": {"type": "Recreate"}, "replicas": 2, "map": {"a.b": {"odd": 1, "c": 2}},
            "containers": [{"name": "a"}, {"name": "b, [x]", "ports": [{"containerPort": 80, "protocol": "TCP", "odd": true}]}]}});
        let refusal = "failed to create typed patch object (market/kiosk; apps/v1, Kind=StatefulSet): errors:\n  .spec.strategy: field not declared in schema\n  \
            .spec.map.a.b.odd: field not declared in schema\n  \
            .spec.containers[name=\"b, [x]\"].ports[containerPort=80,protocol=\"TCP\"].odd: field not declared in schema";
        assert_eq!(strip(&mut object, refusal).len(), 3);
        let left = json!({"spec": {"replicas": 2, "map": {"a.b": {"c": 2}},
            "containers": [{"name": "a"}, {"name": "b, [x]", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}});
        assert_eq!(object, left);
    }

    #[test]
    fn other_refusals_leave_the_object() {
        let before = json!({"spec": {"strategy": 1}});
        for refusal in [
            "failed to create typed patch object (a/b; apps/v1, Kind=StatefulSet): errors:\n  .spec.strategy: field not declared in schema\n  .spec.replicas: expected numeric (int or float), got string",
            "admission webhook denied: .spec.strategy: field not declared in schema",
            "",
        ] {
            let mut object = before.clone();
            assert!(strip(&mut object, refusal).is_empty(), "{refusal}");
            assert_eq!(object, before);
        }
        let mut object = before.clone();
        let one = "failed to create typed patch object (a/b; apps/v1, Kind=StatefulSet): .spec.strategy: field not declared in schema";
        assert_eq!(strip(&mut object, one), [".spec.strategy"]);
    }
}
