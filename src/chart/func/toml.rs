//! TOML both ways, laid out as the reference encoder does it: plain keys first, then tables, keys sorted.

use crate::text::fmt::float_v;
use crate::value::{ListTy, MAX_DEPTH, Str, Tree, Val};

/// Encodes a table.
pub(super) fn encode(v: &Val) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match v {
        Val::Map(m) => table(&mut out, &mut Vec::new(), &m.entries(), 0)?,
        v => inline(&mut out, v, 0)?,
    }
    Ok(out)
}

fn bare(k: &[u8]) -> bool {
    !k.is_empty() && k.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_' || *c == b'-')
}

fn key(k: &[u8]) -> String {
    if bare(k) { crate::text::lossy(k).into_owned() } else { quoted(k) }
}

fn quoted(b: &[u8]) -> String {
    let mut o = String::from("\"");
    for c in crate::json::valid(b).chars() {
        match c {
            '\t' => o.push_str("\\t"),
            '\n' => o.push_str("\\n"),
            '\r' => o.push_str("\\r"),
            '"' => o.push_str("\\\""),
            '\\' => o.push_str("\\\\"),
            '\u{8}' => o.push_str("\\b"),
            '\u{c}' => o.push_str("\\f"),
            c if c < ' ' || c == '\u{7f}' => o.push_str(&format!("\\u{:04x}", c as u32)),
            c => o.push(c),
        }
    }
    o.push('"');
    o
}

fn is_table(v: &Val) -> bool {
    matches!(v, Val::Map(_))
}

fn is_tables(v: &Val) -> bool {
    matches!(v, Val::List(l) if !l.v.is_empty() && l.v.iter().all(is_table))
}

fn table(out: &mut Vec<u8>, path: &mut Vec<String>, entries: &[(Str, Val)], depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("toml: too deep".into());
    }
    let indent = "  ".repeat(path.len());
    for (k, v) in entries.iter().filter(|(_, v)| !is_table(v) && !is_tables(v)) {
        if !v.is_some() {
            continue;
        }
        out.extend_from_slice(format!("{indent}{} = ", key(k.as_bytes())).as_bytes());
        inline(out, v, depth + 1)?;
        out.push(b'\n');
    }
    for (k, v) in entries {
        path.push(key(k.as_bytes()));
        let name = path.join(".");
        let indent = "  ".repeat(path.len() - 1);
        match v {
            Val::Map(m) => {
                if path.len() == 1 && !out.is_empty() {
                    out.push(b'\n');
                }
                out.extend_from_slice(format!("{indent}[{name}]\n").as_bytes());
                table(out, path, &m.entries(), depth + 1)?;
            }
            Val::List(l) if is_tables(v) => {
                for e in &l.v {
                    if let Val::Map(m) = e {
                        if !out.is_empty() {
                            out.push(b'\n');
                        }
                        out.extend_from_slice(format!("{indent}[[{name}]]\n").as_bytes());
                        table(out, path, &m.entries(), depth + 1)?;
                    }
                }
            }
            _ => {}
        }
        path.pop();
    }
    Ok(())
}

fn inline(out: &mut Vec<u8>, v: &Val, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("toml: too deep".into());
    }
    match v {
        Val::Bool(b) => out.extend_from_slice(b.to_string().as_bytes()),
        Val::Int(i) | Val::Int64(i) => out.extend_from_slice(i.to_string().as_bytes()),
        Val::Byte(b) => out.extend_from_slice(b.to_string().as_bytes()),
        Val::Float(f) => {
            let s = if f.is_nan() {
                "nan".into()
            } else if f.is_infinite() {
                if *f > 0.0 { "inf".into() } else { "-inf".to_string() }
            } else {
                let s = float_v(*f);
                if s.contains(['.', 'e']) { s } else { format!("{s}.0") }
            };
            out.extend_from_slice(s.as_bytes());
        }
        Val::Str(s) => out.extend_from_slice(quoted(s.as_bytes()).as_bytes()),
        Val::List(l) => {
            out.push(b'[');
            for (i, e) in l.v.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                if !e.is_some() {
                    return Err("toml: cannot encode array with nil element".into());
                }
                inline(out, e, depth + 1)?;
            }
            out.push(b']');
        }
        Val::Map(m) => {
            out.push(b'{');
            for (i, (k, e)) in m.entries().iter().filter(|(_, v)| v.is_some()).enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                out.extend_from_slice(format!("{} = ", key(k.as_bytes())).as_bytes());
                inline(out, e, depth + 1)?;
            }
            out.push(b'}');
        }
        v => out.extend_from_slice(quoted(crate::text::fmt::sprint(v).as_bytes()).as_bytes()),
    }
    Ok(())
}

/// Decodes a document.
pub(super) fn decode(t: &str) -> Result<Tree, String> {
    let v: toml::Table = t.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |s| 1 + t[..s.start.min(t.len())].matches('\n').count());
        let m = match e.message() {
            m if m.contains("key with no value") => "unexpected EOF; expected key separator '='",
            m => m,
        };
        format!("toml: line {line}: {m}")
    })?;
    Ok(from_table(v))
}

fn from_table(t: toml::Table) -> Tree {
    t.into_iter().map(|(k, v)| (Str::from(k), from(v))).collect()
}

fn from(v: toml::Value) -> Val {
    match v {
        toml::Value::String(s) => Val::str(s),
        toml::Value::Integer(i) => Val::Int64(i),
        toml::Value::Float(f) => Val::Float(f),
        toml::Value::Boolean(b) => Val::Bool(b),
        toml::Value::Datetime(d) => {
            let s = d.to_string();
            let layouts = ["2006-01-02T15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02", "15:04:05.999999999"];
            match layouts.iter().find_map(|l| super::date::parse_layout(l, &s).ok()) {
                Some(t) => Val::obj(crate::value::Obj::Time(t)),
                None => Val::str(s),
            }
        }
        toml::Value::Array(a) => {
            let tables = !a.is_empty() && a.iter().all(toml::Value::is_table);
            Val::typed_list(if tables { ListTy::Maps } else { ListTy::Any }, a.into_iter().map(from).collect())
        }
        toml::Value::Table(t) => Val::map(from_table(t)),
    }
}
