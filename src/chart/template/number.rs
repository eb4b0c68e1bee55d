//! Numbers as Go's strconv reads them: prefixes, underscores, hexadecimal floats.

use super::ast::Num;
use crate::text::quote::{quote, unquote_char};

/// Why an integer was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// Not a number.
    Syntax,
    /// Too large.
    Range,
}

fn underscores_ok(s: &[u8]) -> bool {
    // Underscores may separate digits, or follow a base prefix.
    let mut i = b'^';
    let mut s = s;
    if matches!(s.first(), Some(b'-' | b'+')) {
        s = &s[1..];
    }
    let mut hex = false;
    if s.len() >= 2 && s[0] == b'0' && matches!(s[1].to_ascii_lowercase(), b'b' | b'o' | b'x') {
        i = b'0';
        hex = s[1].eq_ignore_ascii_case(&b'x');
        s = &s[2..];
    }
    for c in s {
        if c.is_ascii_digit() || hex && c.is_ascii_hexdigit() {
            i = b'0';
        } else if *c == b'_' {
            if i != b'0' {
                return false;
            }
            i = b'_';
        } else {
            if i == b'_' {
                return false;
            }
            i = b'!';
        }
    }
    i != b'_'
}

/// `strconv.ParseUint(s, base, 64)`; base 0 reads prefixes and underscores.
pub fn parse_uint(s: &str, base: u32) -> Result<u64, Bad> {
    let whole = s.as_bytes();
    let mut b = whole;
    let mut base = base;
    let zero = base == 0;
    if b.is_empty() {
        return Err(Bad::Syntax);
    }
    if zero {
        base = 10;
        if b[0] == b'0' {
            match b.get(1).map(u8::to_ascii_lowercase) {
                Some(b'b') if b.len() >= 3 => {
                    base = 2;
                    b = &b[2..];
                }
                Some(b'o') if b.len() >= 3 => {
                    base = 8;
                    b = &b[2..];
                }
                Some(b'x') if b.len() >= 3 => {
                    base = 16;
                    b = &b[2..];
                }
                _ => {
                    base = 8;
                    b = &b[1..];
                }
            }
        }
    }
    let mut n: u64 = 0;
    let mut under = false;
    let mut over = false;
    for c in b {
        let d = match c {
            b'_' if zero => {
                under = true;
                continue;
            }
            b'0'..=b'9' => (c - b'0') as u32,
            b'a'..=b'z' => (c - b'a') as u32 + 10,
            b'A'..=b'Z' => (c - b'A') as u32 + 10,
            _ => return Err(Bad::Syntax),
        };
        if d >= base {
            return Err(Bad::Syntax);
        }
        match n.checked_mul(base as u64).and_then(|n| n.checked_add(d as u64)) {
            Some(m) => n = m,
            None => over = true,
        }
    }
    if over {
        return Err(Bad::Range);
    }
    if under && !underscores_ok(whole) {
        return Err(Bad::Syntax);
    }
    Ok(n)
}

/// `strconv.ParseInt(s, base, 64)`.
pub fn parse_int(s: &str, base: u32) -> Result<i64, Bad> {
    let (neg, t) = match s.as_bytes().first() {
        Some(b'-') => (true, &s[1..]),
        Some(b'+') => (false, &s[1..]),
        _ => (false, s),
    };
    let u = parse_uint(t, base)?;
    if neg {
        if u > 1 << 63 { Err(Bad::Range) } else { Ok((u as i64).wrapping_neg()) }
    } else {
        i64::try_from(u).map_err(|_| Bad::Range)
    }
}

/// `strconv.ParseFloat(s, 64)`; `Err(Range)` for values that overflow.
pub fn parse_float(s: &str) -> Result<f64, Bad> {
    let b = s.as_bytes();
    if b.is_empty() {
        return Err(Bad::Syntax);
    }
    let t = s.trim_start_matches(['+', '-']);
    if s.len() - t.len() > 1 {
        return Err(Bad::Syntax);
    }
    let neg = b[0] == b'-';
    let low = t.to_ascii_lowercase();
    match low.as_str() {
        "inf" | "infinity" => return Ok(if neg { f64::NEG_INFINITY } else { f64::INFINITY }),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    if let Some(h) = low.strip_prefix("0x") {
        if h.contains('_') && !underscores_ok(b) {
            return Err(Bad::Syntax);
        }
        return hex_float(&h.replace('_', "")).map(|f| if neg { -f } else { f });
    }
    // Underscores are only allowed together with a base prefix in ParseFloat: base 0 rules do not apply to decimals.
    if t.contains('_') || !t.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'E' | b'+' | b'-')) || !t.bytes().next().is_some_and(|c| c.is_ascii_digit() || c == b'.') {
        return Err(Bad::Syntax);
    }
    let f: f64 = t.parse().map_err(|_| Bad::Syntax)?;
    if f.is_infinite() {
        return Err(Bad::Range);
    }
    Ok(if neg { -f } else { f })
}

fn hex_float(h: &str) -> Result<f64, Bad> {
    let (mant, exp) = h.split_once('p').ok_or(Bad::Syntax)?;
    let exp: i32 = exp.parse().map_err(|_| Bad::Syntax)?;
    let (int, frac) = mant.split_once('.').unwrap_or((mant, ""));
    if int.is_empty() && frac.is_empty() {
        return Err(Bad::Syntax);
    }
    let mut m: f64 = 0.0;
    for c in int.chars().chain(frac.chars()) {
        m = m * 16.0 + c.to_digit(16).ok_or(Bad::Syntax)? as f64;
    }
    Ok(m * 2f64.powi(exp - 4 * frac.len() as i32))
}

fn simplify(n: &mut Num) {
    if let Some((re, im)) = n.complex
        && im == 0.0
    {
        n.float = Some(re);
        if (re as i64) as f64 == re {
            n.int = Some(re as i64);
        }
        if re >= 0.0 && (re as u64) as f64 == re {
            n.uint = Some(re as u64);
        }
    }
}

/// Reads a number token; `character` for `'x'` constants.
pub fn number(text: &[u8], character: bool, complex: bool) -> Result<Num, String> {
    let t = crate::text::lossy(text).into_owned();
    let mut n = Num { text: t.clone(), ..Num::default() };
    if character {
        let (r, used) = unquote_char(&text[1..], text[0]).ok_or("invalid syntax")?;
        if &text[1 + used..] != b"'" {
            return Err(format!("malformed character constant: {t}"));
        }
        n.int = Some(r as i64);
        n.uint = Some(r as u64);
        n.float = Some(r as f64);
        return Ok(n);
    }
    if complex {
        let body = &t[..t.len() - 1];
        let split = body.rfind(['+', '-']).ok_or("illegal number syntax")?;
        let re = parse_float(&body[..split]).map_err(|_| "illegal number syntax")?;
        let im = parse_float(&body[split..]).map_err(|_| "illegal number syntax")?;
        n.complex = Some((re, im));
        simplify(&mut n);
        return Ok(n);
    }
    if let Some(body) = t.strip_suffix('i')
        && let Ok(im) = parse_float(body)
    {
        n.complex = Some((0.0, im));
        simplify(&mut n);
        return Ok(n);
    }
    n.uint = parse_uint(&t, 0).ok();
    n.int = parse_int(&t, 0).ok();
    if n.int == Some(0) {
        n.uint = Some(0);
    }
    if let Some(i) = n.int {
        n.float = Some(i as f64);
    } else if let Some(u) = n.uint {
        n.float = Some(u as f64);
    } else if let Ok(f) = parse_float(&t) {
        if !t.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", quote(text)));
        }
        n.float = Some(f);
        if (f as i64) as f64 == f {
            n.int = Some(f as i64);
        }
        if f >= 0.0 && (f as u64) as f64 == f {
            n.uint = Some(f as u64);
        }
    }
    if n.int.is_none() && n.uint.is_none() && n.float.is_none() {
        return Err(format!("illegal number syntax: {}", quote(text)));
    }
    Ok(n)
}
