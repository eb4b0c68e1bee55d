//! JSON pointers (RFC 6901): split, join, look up.

use serde_json::Value;

/// The reference tokens of a pointer, unescaped; `None` when it is neither empty nor begins with a slash.
pub fn split(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let rest = pointer.strip_prefix('/')?;
    Some(rest.split('/').map(unescape).collect())
}

/// One token as it stands in a pointer.
pub fn escape(token: &str) -> String {
    if token.contains(['~', '/']) { token.replace('~', "~0").replace('/', "~1") } else { token.to_owned() }
}

/// The text a token stands for.
pub fn unescape(token: &str) -> String {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~") } else { token.to_owned() }
}

/// The child of `value` that `token` names: a member of an object or an element of an array.
pub fn child<'a>(value: &'a Value, token: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(token),
        Value::Array(items) => items.get(index(token)?),
        _ => None,
    }
}

/// As [`child`], to change it.
pub fn child_mut<'a>(value: &'a mut Value, token: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(map) => map.get_mut(token),
        Value::Array(items) => items.get_mut(index(token)?),
        _ => None,
    }
}

/// A list index: digits without a leading zero.
pub fn index(token: &str) -> Option<usize> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_digit()) || (token.len() > 1 && token.starts_with('0')) {
        return None;
    }
    token.parse().ok()
}
