//! `string.format()`, and the named formats of Kubernetes.

use super::eval::{EvalError, failed};
use super::value::Val;
use crate::text;

/// Formats of `format.<name>()`.
pub(crate) const NAMES: [&str; 13] = [
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
];

/// Faults of a text in a named format.
pub(crate) fn faults(format: &str, s: &str) -> Vec<String> {
    let prefix = |s: &str| if s.ends_with('-') { format!("{}a", &s[..s.len() - 1]) } else { s.to_owned() };
    let plain = |ok: bool| if ok { Vec::new() } else { vec![format!("does not match the format {format}")] };
    match format {
        "dns1123Label" => text::dns1123_label(s),
        "dns1123Subdomain" => text::dns1123_subdomain(s),
        "dns1035Label" => text::dns1035_label(s),
        "dns1123LabelPrefix" => text::dns1123_label(&prefix(s)),
        "dns1123SubdomainPrefix" => text::dns1123_subdomain(&prefix(s)),
        "dns1035LabelPrefix" => text::dns1035_label(&prefix(s)),
        "qualifiedName" => text::qualified_name(s),
        "labelValue" => text::label_value(s),
        "datetime" => plain(crate::structural::formats::fits("date-time", s)),
        f => plain(crate::structural::formats::fits(f, s)),
    }
}

/// A duration in seconds: `90s`, `1.5s`.
pub(crate) fn seconds(nanos: i128) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, (nanos % 1_000_000_000).abs());
    let sign = if nanos < 0 && whole == 0 { "-" } else { "" };
    if rest == 0 {
        format!("{sign}{whole}s")
    } else {
        format!("{sign}{whole}.{}s", format!("{rest:09}").trim_end_matches('0'))
    }
}

/// A value as `%s` shows it.
fn shown(v: &Val<'_>) -> String {
    if let Some(items) = v.items() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    if let Some(entries) = v.entries() {
        return format!("{{{}}}", entries.iter().map(|(k, v)| format!("{}: {}", shown(&k.val()), shown(v))).collect::<Vec<_>>().join(", "));
    }
    match v {
        Val::Null => "null".to_owned(),
        Val::String(s) => s.to_string(),
        Val::Bytes(b) => String::from_utf8_lossy(b).into_owned(),
        Val::Duration(d) => seconds(*d),
        v => match v.to_json() {
            serde_json::Value::String(s) => s,
            j => j.to_string(),
        },
    }
}

/// `"%s is %d".format([a, b])`.
pub(crate) fn format<'a>(pattern: &str, args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    let mut out = String::new();
    let mut args = args.iter();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut n = 0_usize;
            while let Some(d) = chars.peek().and_then(|c| c.to_digit(10)) {
                n = n.saturating_mul(10).saturating_add(d as usize);
                chars.next();
            }
            precision = Some(n.min(100));
        }
        let Some(verb) = chars.next() else { return failed("could not parse formatting clause: unexpected end of string") };
        let Some(v) = args.next() else { return failed("index out of range for formatting clauses") };
        let number = match v {
            Val::Int(i) => Some(i128::from(*i)),
            Val::Uint(u) => Some(i128::from(*u)),
            Val::Bool(b) if verb == 'b' => Some(i128::from(*b)),
            _ => None,
        };
        let bad = || failed(format!("error during formatting: {verb} clause cannot be used on {}", v.type_name()));
        let float = match v {
            Val::Double(d) => Some(*d),
            Val::Int(i) => Some(*i as f64),
            Val::Uint(u) => Some(*u as f64),
            _ => None,
        };
        match (verb, number) {
            ('s', _) => out.push_str(&shown(v)),
            ('d', Some(n)) => out.push_str(&n.to_string()),
            ('d', None) if matches!(v, Val::Double(_)) => out.push_str(&shown(v)),
            ('b', Some(n)) => out.push_str(&format!("{n:b}")),
            ('o', Some(n)) => out.push_str(&format!("{n:o}")),
            ('x', Some(n)) => out.push_str(&format!("{n:x}")),
            ('X', Some(n)) => out.push_str(&format!("{n:X}")),
            ('x' | 'X', None) => {
                let bytes = match v {
                    Val::String(s) => s.as_bytes().to_vec(),
                    Val::Bytes(b) => b.to_vec(),
                    _ => return bad(),
                };
                for b in bytes {
                    out.push_str(&if verb == 'x' { format!("{b:02x}") } else { format!("{b:02X}") });
                }
            }
            ('f', _) => match float {
                Some(f) => out.push_str(&format!("{f:.*}", precision.unwrap_or(6))),
                None => return bad(),
            },
            ('e', _) => match float {
                Some(f) => {
                    let t = format!("{f:.*e}", precision.unwrap_or(6));
                    let (m, e) = t.split_once('e').unwrap_or((&t, "0"));
                    let n: i32 = e.parse().unwrap_or(0);
                    out.push_str(&format!("{m}e{}{:02}", if n < 0 { '-' } else { '+' }, n.abs()));
                }
                None => return bad(),
            },
            (verb, _) => return failed(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\"")),
        }
    }
    Ok(Val::string(&out))
}
