//! Stable YAML: equal values give equal bytes, and reading them back gives the equal value.
//!
//! The style is the one `kubectl get -o yaml` has: two blanks, lists not indented under their key, text of several lines as
//! block scalars. Text is quoted whenever any YAML reader, 1.1 or 1.2, might take it for something else.

use serde_json::{Map, Value};

use crate::scalar;

/// One object for people: `apiVersion`, `kind`, `metadata` (with name, namespace, labels, annotations first), then sorted.
pub fn emit(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for key in OBJECT_FIRST {
                if let Some(value) = map.get(*key) {
                    if *key == "metadata"
                        && let Value::Object(metadata) = value
                        && !metadata.is_empty()
                    {
                        out.push_str("metadata:\n");
                        ordered(&mut out, metadata, METADATA_FIRST, 2);
                        continue;
                    }
                    entry(&mut out, key, value, 0);
                }
            }
            for (key, value) in map.iter().filter(|(key, _)| !OBJECT_FIRST.contains(&key.as_str())) {
                entry(&mut out, key, value, 0);
            }
        }
        other => root(&mut out, other),
    }
    out
}

/// Several objects as one stream, separated by `---`.
pub fn emit_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let mut out = String::new();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push_str("---\n");
        }
        out.push_str(&emit(value));
    }
    out
}

/// One document with all keys sorted, as `sigs.k8s.io/yaml` writes it.
pub fn emit_sorted(value: &Value) -> String {
    let mut out = String::new();
    root(&mut out, value);
    out
}

const OBJECT_FIRST: &[&str] = &["apiVersion", "kind", "metadata"];
const METADATA_FIRST: &[&str] = &["name", "namespace", "labels", "annotations"];

fn root(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => mapping(out, map, 0),
        Value::Array(items) if !items.is_empty() => sequence(out, items, 0),
        other => {
            // At the root a block scalar would be legal but some readers trip over it; quoting is always right.
            match other {
                Value::String(text) => quoted_or_plain(out, text),
                _ => inline(out, other),
            }
            out.push('\n');
        }
    }
}

fn ordered(out: &mut String, map: &Map<String, Value>, first: &[&str], indent: usize) {
    for key in first {
        if let Some(value) = map.get(*key) {
            entry(out, key, value, indent);
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| !first.contains(&key.as_str())) {
        entry(out, key, value, indent);
    }
}

fn mapping(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (key, value) in map {
        entry(out, key, value, indent);
    }
}

fn pad(out: &mut String, indent: usize) {
    for _ in 0..indent {
        out.push(' ');
    }
}

fn entry(out: &mut String, key: &str, value: &Value, indent: usize) {
    pad(out, indent);
    entry_here(out, key, value, indent);
}

/// A key and its value where the line has its indentation already.
fn entry_here(out: &mut String, key: &str, value: &Value, indent: usize) {
    // A key longer than 1,024 characters needs the explicit form, since readers look no further for the colon.
    let long = key.chars().count() > 1000;
    if long {
        out.push_str("? ");
    }
    quoted_or_plain(out, key);
    if long {
        out.push('\n');
        pad(out, indent);
    }
    out.push(':');
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            mapping(out, map, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            sequence(out, items, indent);
        }
        Value::String(text) => {
            out.push(' ');
            text_value(out, text, indent + 2);
        }
        other => {
            out.push(' ');
            inline(out, other);
            out.push('\n');
        }
    }
}

fn sequence(out: &mut String, items: &[Value], indent: usize) {
    for item in items {
        pad(out, indent);
        item_here(out, item, indent);
    }
}

fn item_here(out: &mut String, item: &Value, indent: usize) {
    out.push('-');
    match item {
        Value::Object(map) if !map.is_empty() => {
            out.push(' ');
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 {
                    pad(out, indent + 2);
                }
                entry_here(out, key, value, indent + 2);
            }
        }
        Value::Array(inner) if !inner.is_empty() => {
            out.push(' ');
            for (at, value) in inner.iter().enumerate() {
                if at > 0 {
                    pad(out, indent + 2);
                }
                item_here(out, value, indent + 2);
            }
        }
        Value::String(text) => {
            out.push(' ');
            text_value(out, text, indent + 2);
        }
        other => {
            out.push(' ');
            inline(out, other);
            out.push('\n');
        }
    }
}

fn inline(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => quoted_or_plain(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Floats keep a mark that every reader takes for a float (`1e+22` needs its point in some).
fn number_text(number: &serde_json::Number) -> String {
    let text = number.to_string();
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let mantissa = if mantissa.contains('.') { mantissa.to_owned() } else { format!("{mantissa}.0") };
            let exponent = if exponent.starts_with(['-', '+']) { exponent.to_owned() } else { format!("+{exponent}") };
            format!("{mantissa}e{exponent}")
        }
        None => text,
    }
}

fn text_value(out: &mut String, text: &str, indent: usize) {
    if fits_block(text) {
        block(out, text, indent);
    } else {
        quoted_or_plain(out, text);
        out.push('\n');
    }
}

/// Several lines, the first of which shows the indentation, and nothing that must be escaped.
fn fits_block(text: &str) -> bool {
    let Some(first) = text.lines().next() else { return false };
    text.contains('\n')
        && !first.is_empty()
        && !first.starts_with([' ', '\t'])
        && text.lines().all(|line| !(line.starts_with('\t') || line.starts_with(' ') && line.trim_matches([' ', '\t']).is_empty()))
        && text.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
}

fn block(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    let body = text.trim_end_matches('\n');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    out.push('\n');
    for line in body.split('\n') {
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
    for _ in 1..text.len() - body.len() {
        out.push('\n');
    }
}

/// Printable in YAML without an escape; not the characters that some readers treat as line breaks or byte-order marks.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}') && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn quoted_or_plain(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else if text.chars().all(is_printable) && text.contains(['"', '\\']) {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    } else {
        double_quoted(out, text);
    }
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    if scalar::looks_typed(text) || text.ends_with([' ', ':']) || text.contains(": ") || text.contains(" #") {
        return false;
    }
    let mut chars = text.chars().skip(1);
    let start_ok = match first {
        '-' | '?' | ':' => chars.next().is_some_and(|c| !matches!(c, ' ' | ',' | '[' | ']' | '{' | '}')) && !text.starts_with("---"),
        ' ' | ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => false,
        _ => !text.starts_with("..."),
    };
    start_ok && text.chars().all(|c| is_printable(c) && c != '\u{a0}')
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
}
