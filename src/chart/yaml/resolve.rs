//! What a plain scalar means in YAML 1.1, as the reference resolves it.

use crate::template::number::{parse_float, parse_int, parse_uint};

/// Meaning of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Res {
    /// null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above the signed range.
    Uint(u64),
    /// A float.
    Float(f64),
    /// A date; kept as text.
    Timestamp,
    /// Text.
    Str,
}

fn table(s: &[u8]) -> Option<Res> {
    Some(match s {
        b"y" | b"Y" | b"yes" | b"Yes" | b"YES" | b"true" | b"True" | b"TRUE" | b"on" | b"On" | b"ON" => Res::Bool(true),
        b"n" | b"N" | b"no" | b"No" | b"NO" | b"false" | b"False" | b"FALSE" | b"off" | b"Off" | b"OFF" => Res::Bool(false),
        b"" | b"~" | b"null" | b"Null" | b"NULL" => Res::Null,
        b".nan" | b".NaN" | b".NAN" => Res::Float(f64::NAN),
        b".inf" | b".Inf" | b".INF" | b"+.inf" | b"+.Inf" | b"+.INF" => Res::Float(f64::INFINITY),
        b"-.inf" | b"-.Inf" | b"-.INF" => Res::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

fn yaml_float(s: &str) -> bool {
    let b = s.as_bytes();
    let mut i = 0;
    let digits = |i: &mut usize| {
        let s = *i;
        while b.get(*i).is_some_and(u8::is_ascii_digit) {
            *i += 1;
        }
        *i - s
    };
    if matches!(b.first(), Some(b'-' | b'+')) {
        i += 1;
    }
    if b.get(i) == Some(&b'.') {
        i += 1;
        if digits(&mut i) == 0 {
            return false;
        }
    } else {
        if digits(&mut i) == 0 {
            return false;
        }
        if b.get(i) == Some(&b'.') {
            i += 1;
            digits(&mut i);
        }
    }
    if matches!(b.get(i), Some(b'e' | b'E')) {
        i += 1;
        if matches!(b.get(i), Some(b'-' | b'+')) {
            i += 1;
        }
        if digits(&mut i) == 0 {
            return false;
        }
    }
    i == b.len()
}

fn timestamp(s: &str) -> bool {
    let b = s.as_bytes();
    let n = b.iter().take_while(|c| c.is_ascii_digit()).count();
    if n != 4 || b.get(4) != Some(&b'-') {
        return false;
    }
    ["2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2"].iter().any(|l| crate::func::date::parse_layout(l, s).is_ok())
}

/// Resolves an unquoted, untagged scalar.
pub fn resolve(v: &[u8]) -> Res {
    let Some(&c) = v.first() else { return Res::Null };
    match c {
        b'+' | b'-' | b'0'..=b'9' | b'.' => {}
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => return table(v).unwrap_or(Res::Str),
        _ => return Res::Str,
    }
    if let Some(r) = table(v) {
        return r;
    }
    let Ok(s) = std::str::from_utf8(v) else { return Res::Str };
    if c == b'.' {
        return parse_float(s).map_or(Res::Str, Res::Float);
    }
    // Plain decimal integers are by far the most common.
    if v.len() < 18 && c.is_ascii_digit() && c != b'0' && v.iter().all(u8::is_ascii_digit) {
        return s.parse().map_or(Res::Str, Res::Int);
    }
    if timestamp(s) {
        return Res::Timestamp;
    }
    let plain = s.replace('_', "");
    if let Ok(i) = parse_int(&plain, 0) {
        return Res::Int(i);
    }
    if let Ok(u) = parse_uint(&plain, 0) {
        return Res::Uint(u);
    }
    if yaml_float(&plain)
        && let Ok(f) = parse_float(&plain)
    {
        return Res::Float(f);
    }
    if let Some(b) = plain.strip_prefix("0b") {
        if let Ok(i) = parse_int(b, 2) {
            return Res::Int(i);
        }
        if let Ok(u) = parse_uint(b, 2) {
            return Res::Uint(u);
        }
    } else if let Some(b) = plain.strip_prefix("-0b")
        && let Ok(i) = parse_int(&format!("-{b}"), 2)
    {
        return Res::Int(i);
    }
    Res::Str
}

/// Looks like a base 60 float of YAML 1.1: such strings are quoted on the way out.
pub fn base60(s: &[u8]) -> bool {
    // ^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$
    let Some(&c) = s.first() else { return false };
    if !(matches!(c, b'+' | b'-') || c.is_ascii_digit()) || !s.contains(&b':') {
        return false;
    }
    let mut i = usize::from(matches!(c, b'+' | b'-'));
    if !s.get(i).is_some_and(u8::is_ascii_digit) {
        return false;
    }
    while s.get(i).is_some_and(|c| c.is_ascii_digit() || *c == b'_') {
        i += 1;
    }
    let mut groups = 0;
    while s.get(i) == Some(&b':') {
        let (a, b) = (s.get(i + 1), s.get(i + 2));
        match (a, b) {
            (Some(b'0'..=b'5'), Some(b'0'..=b'9')) => i += 3,
            (Some(b'0'..=b'9'), _) => i += 2,
            _ => return false,
        }
        groups += 1;
    }
    if groups == 0 {
        return false;
    }
    if s.get(i) == Some(&b'.') {
        i += 1;
        while s.get(i).is_some_and(|c| c.is_ascii_digit() || *c == b'_') {
            i += 1;
        }
    }
    i == s.len()
}
