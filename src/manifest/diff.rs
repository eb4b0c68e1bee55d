//! What differs between two documents, by field path.

use serde_json::Value;
use std::fmt;

/// One difference; a side is `None` where the field is not there.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Field path as people write it: `spec.template.spec.containers[0].image`, `metadata.labels["app.kubernetes.io/name"]`.
    pub path: String,
    /// Value on the old side.
    pub old: Option<Value>,
    /// Value on the new side.
    pub new: Option<Value>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "." } else { &self.path };
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, "{path}: {} -> {}", short(old), short(new)),
            (None, Some(new)) => write!(f, "{path}: + {}", short(new)),
            (Some(old), None) => write!(f, "{path}: - {}", short(old)),
            (None, None) => write!(f, "{path}"),
        }
    }
}

/// A value on one line, cut after 200 characters.
fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 200 {
        return text;
    }
    let mut cut: String = text.chars().take(199).collect();
    cut.push('…');
    cut
}

/// All differences in path order. Lists are compared by position, except lists of objects that all have a distinct `name`
/// (containers, ports, environment), which are compared by name, so that one inserted element is one difference.
pub fn diff(old: &Value, new: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    walk(&mut String::new(), Some(old), Some(new), &mut changes);
    changes
}

fn walk(path: &mut String, old: Option<&Value>, new: Option<&Value>, out: &mut Vec<Change>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let mark = push_key(path, key);
                walk(path, left.get(key), right.get(key), out);
                path.truncate(mark);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => match (names(left), names(right)) {
            (Some(left_names), Some(right_names)) => {
                let mut all: Vec<&str> = left_names.clone();
                all.extend(right_names.iter().filter(|name| !left_names.contains(name)));
                for name in all {
                    let pick = |names: &[&str], items: &[Value]| names.iter().position(|n| *n == name).and_then(|at| items.get(at).cloned());
                    let (l, r) = (pick(&left_names, left), pick(&right_names, right));
                    let mark = path.len();
                    path.push_str(&format!("[name={name}]"));
                    walk(path, l.as_ref(), r.as_ref(), out);
                    path.truncate(mark);
                }
                let kept_left: Vec<_> = left_names.iter().filter(|n| right_names.contains(n)).collect();
                let kept_right: Vec<_> = right_names.iter().filter(|n| left_names.contains(n)).collect();
                if kept_left != kept_right {
                    let list = |names: &[&str]| Some(Value::Array(names.iter().map(|n| Value::from(*n)).collect()));
                    out.push(Change { path: format!("{path}[order]"), old: list(&left_names), new: list(&right_names) });
                }
            }
            _ => {
                for at in 0..left.len().max(right.len()) {
                    let mark = path.len();
                    path.push_str(&format!("[{at}]"));
                    walk(path, left.get(at), right.get(at), out);
                    path.truncate(mark);
                }
            }
        },
        (old, new) => out.push(Change { path: path.clone(), old: old.cloned(), new: new.cloned() }),
    }
}

fn names(items: &[Value]) -> Option<Vec<&str>> {
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        let name = item.as_object()?.get("name")?.as_str()?;
        if names.contains(&name) || names.len() >= 500 {
            return None;
        }
        names.push(name);
    }
    (!names.is_empty()).then_some(names)
}

fn push_key(path: &mut String, key: &str) -> usize {
    let mark = path.len();
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    } else {
        path.push_str(&format!("[{key:?}]"));
    }
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_name_their_field() {
        let old = json!({"metadata": {"labels": {"app.kubernetes.io/name": "a"}}, "spec": {"replicas": 1, "c": [{"name": "x", "image": "1"}, {"name": "y"}], "l": [1, 2]}});
        let new = json!({"metadata": {"labels": {}}, "spec": {"replicas": 2, "c": [{"name": "z"}, {"name": "x", "image": "2"}, {"name": "y"}], "l": [1]}});
        let lines: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"metadata.labels["app.kubernetes.io/name"]: - "a""#,
                r#"spec.c[name=x].image: "1" -> "2""#,
                r#"spec.c[name=z]: + {"name":"z"}"#,
                "spec.l[1]: - 2",
                "spec.replicas: 1 -> 2",
            ]
        );
        assert!(diff(&old, &old).is_empty());
    }
}
