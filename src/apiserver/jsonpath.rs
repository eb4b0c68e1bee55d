//! JSONPath as printer columns use it: fields, indices, `[*]`, `..`, filters `[?(@.a=="b")]`.

use serde_json::Value;

/// Values at a path such as `.status.conditions[?(@.type=="Ready")].status`.
pub(crate) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![root];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            let (name, after) = name(after);
            let mut deep = Vec::new();
            found.iter().for_each(|value| descend(value, &name, &mut deep));
            found = deep;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            if after.starts_with('[') {
                rest = after;
                continue;
            }
            let (name, after) = name(after);
            found = if name == "*" { found.into_iter().flat_map(children).collect() } else { found.into_iter().filter_map(|v| v.get(&name)).collect() };
            rest = after;
        } else if rest.starts_with('[') {
            let Some(end) = closing(rest) else { return Vec::new() };
            let inside = rest[1..end].trim();
            rest = &rest[end + 1..];
            found = select(found, inside);
        } else {
            let (name, after) = name(rest);
            if name.is_empty() {
                return Vec::new();
            }
            found = found.into_iter().filter_map(|v| v.get(&name)).collect();
            rest = after;
        }
    }
    found
}

/// A field name: dots in it are escaped by a backslash.
fn name(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (out, &text[at..]),
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    (out, "")
}

/// Where the bracket that opens the text closes, quotes heeded.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, name: &str, out: &mut Vec<&'a Value>) {
    out.extend(value.get(name));
    children(value).into_iter().for_each(|child| descend(child, name, out));
}

fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).or_else(|| text.strip_prefix('"').and_then(|t| t.strip_suffix('"')))
}

fn select<'a>(found: Vec<&'a Value>, inside: &str) -> Vec<&'a Value> {
    if inside == "*" {
        return found.into_iter().flat_map(children).collect();
    }
    if let Some(name) = unquoted(inside) {
        return found.into_iter().filter_map(|v| v.get(name)).collect();
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return found.into_iter().flat_map(children).filter(|item| holds(item, filter)).collect();
    }
    if inside.contains(':') {
        let mut parts = inside.split(':').map(|p| p.trim().parse::<i64>().ok());
        let (from, to, step) = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten().unwrap_or(1).max(1));
        return found
            .into_iter()
            .filter_map(Value::as_array)
            .flat_map(|list| {
                let length = i64::try_from(list.len()).unwrap_or(0);
                let at = |n: i64| usize::try_from(if n < 0 { n + length } else { n }.clamp(0, length)).unwrap_or(0);
                let (from, to) = (at(from.unwrap_or(0)), at(to.unwrap_or(length)));
                list.iter().skip(from).take(to.saturating_sub(from)).step_by(usize::try_from(step).unwrap_or(1)).collect::<Vec<_>>()
            })
            .collect();
    }
    let indices: Vec<i64> = inside.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    found
        .into_iter()
        .filter_map(Value::as_array)
        .flat_map(|list| {
            let length = i64::try_from(list.len()).unwrap_or(0);
            indices.iter().filter_map(move |n| usize::try_from(if *n < 0 { n + length } else { *n }).ok().and_then(|at| list.get(at))).collect::<Vec<_>>()
        })
        .collect()
}

fn holds(item: &Value, filter: &str) -> bool {
    for sign in ["==", "!=", "<=", ">=", "<", ">"] {
        let Some((left, right)) = filter.split_once(sign) else { continue };
        let left = find(item, left.trim().trim_start_matches('@'));
        let Some(left) = left.first() else { return false };
        let right = right.trim();
        let wanted: Value = match unquoted(right) {
            Some(text) => Value::String(text.to_owned()),
            None if right.starts_with('@') => find(item, right.trim_start_matches('@')).first().map_or(Value::Null, |v| (*v).clone()),
            None => serde_json::from_str(right).unwrap_or_else(|_| Value::String(right.to_owned())),
        };
        let order = match (left, &wanted) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.as_str().cmp(b.as_str())),
            (a, b) => (**a == *b).then_some(std::cmp::Ordering::Equal),
        };
        return match sign {
            "==" => order.is_some_and(std::cmp::Ordering::is_eq),
            "!=" => !order.is_some_and(std::cmp::Ordering::is_eq),
            "<=" => order.is_some_and(std::cmp::Ordering::is_le),
            ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
            "<" => order.is_some_and(std::cmp::Ordering::is_lt),
            _ => order.is_some_and(std::cmp::Ordering::is_gt),
        };
    }
    !find(item, filter.trim().trim_start_matches('@')).is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_columns_show() {
        let object = json!({"metadata": {"labels": {"a.b/c": "x"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Odd", "status": "False", "n": 3}]}});
        for (path, expected) in [
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.n>2)].type", json!(["Odd"])),
            (".status.conditions[*].type", json!(["Ready", "Odd"])),
            (".status.conditions[-1].type", json!(["Odd"])),
            (".status.conditions[0:1].type", json!(["Ready"])),
            (".metadata.labels.a\\.b/c", json!(["x"])),
            (".metadata.labels['a.b/c']", json!(["x"])),
            ("..type", json!(["Ready", "Odd"])),
            (".nothing[0].here", json!([])),
        ] {
            assert_eq!(json!(find(&object, path)), expected, "{path}");
        }
    }
}
