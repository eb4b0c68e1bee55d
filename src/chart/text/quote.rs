//! Go string literals: `strconv.Quote` and `strconv.Unquote`.

use super::{decode_rune, is_print};
use std::fmt::Write;

fn quote_with(b: &[u8], q: char, ascii: bool) -> String {
    let mut out = String::with_capacity(b.len() + 2);
    out.push(q);
    let mut i = 0;
    while i < b.len() {
        let (c, w) = decode_rune(&b[i..]);
        if c == '\u{FFFD}' && w == 1 {
            let _ = write!(out, "\\x{:02x}", b[i]);
        } else {
            escape(&mut out, c, q, ascii);
        }
        i += w;
    }
    out.push(q);
    out
}

fn escape(out: &mut String, c: char, q: char, ascii: bool) {
    let _ = match c {
        c if c == q || c == '\\' => {
            out.push('\\');
            out.push(c);
            Ok(())
        }
        c if (c.is_ascii() || !ascii) && is_print(c) => {
            out.push(c);
            Ok(())
        }
        '\u{7}' => out.write_str("\\a"),
        '\u{8}' => out.write_str("\\b"),
        '\u{C}' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{B}' => out.write_str("\\v"),
        c if c < ' ' || c == '\u{7f}' => write!(out, "\\x{:02x}", c as u32),
        c if (c as u32) < 0x10000 => write!(out, "\\u{:04x}", c as u32),
        c => write!(out, "\\U{:08x}", c as u32),
    };
}

/// A double-quoted Go literal.
pub fn quote(b: &[u8]) -> String {
    quote_with(b, '"', false)
}

/// A double-quoted Go literal in ASCII.
pub fn quote_ascii(b: &[u8]) -> String {
    quote_with(b, '"', true)
}

/// A Go rune literal.
pub fn quote_rune(c: char) -> String {
    let mut out = String::from("'");
    escape(&mut out, c, '\'', false);
    out.push('\'');
    out
}

/// Reads one character of a literal: its value and the bytes used; `\x` and octal escapes above 0x7F are single bytes.
pub fn unquote_char(b: &[u8], q: u8) -> Option<(u32, usize)> {
    unquote_one(b, q).map(|(r, _, n)| (r, n))
}

fn unquote_one(b: &[u8], q: u8) -> Option<(u32, bool, usize)> {
    let c = *b.first()?;
    if c == q && (q == b'\'' || q == b'"') {
        return None;
    }
    if c >= 0x80 {
        let (r, w) = decode_rune(b);
        return Some((r as u32, true, w));
    }
    if c != b'\\' {
        return Some((c as u32, false, 1));
    }
    let e = *b.get(1)?;
    let simple = |v: u32| Some((v, false, 2));
    match e {
        b'a' => simple(7),
        b'b' => simple(8),
        b'f' => simple(12),
        b'n' => simple(10),
        b'r' => simple(13),
        b't' => simple(9),
        b'v' => simple(11),
        b'\\' => simple(92),
        b'\'' | b'"' if e == q => simple(e as u32),
        b'x' | b'u' | b'U' => {
            let n = match e {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            };
            let hex = std::str::from_utf8(b.get(2..2 + n)?).ok()?;
            if hex.starts_with(['+', '-']) {
                return None;
            }
            let v = u32::from_str_radix(hex, 16).ok()?;
            if e == b'x' {
                return Some((v, false, 4));
            }
            char::from_u32(v)?;
            Some((v, true, 2 + n))
        }
        b'0'..=b'7' => {
            let oct = b.get(1..4)?;
            let mut v = 0u32;
            for o in oct {
                if !(b'0'..=b'7').contains(o) {
                    return None;
                }
                v = v * 8 + (o - b'0') as u32;
            }
            (v <= 255).then_some((v, false, 4))
        }
        _ => None,
    }
}

/// The value of a Go string literal with its quotes.
pub fn unquote(b: &[u8]) -> Option<Vec<u8>> {
    let (q, body) = (*b.first()?, b.get(1..b.len().checked_sub(1)?)?);
    if b.len() < 2 || b[b.len() - 1] != q {
        return None;
    }
    match q {
        b'`' => {
            if body.contains(&b'`') {
                return None;
            }
            Some(body.iter().copied().filter(|c| *c != b'\r').collect())
        }
        b'"' | b'\'' => {
            if body.contains(&b'\n') {
                return None;
            }
            let mut out = Vec::with_capacity(body.len());
            let mut i = 0;
            let mut n = 0;
            while i < body.len() {
                let (v, multi, w) = unquote_one(&body[i..], q)?;
                if v < 0x80 || !multi {
                    out.push(v as u8);
                } else {
                    let mut buf = [0; 4];
                    out.extend_from_slice(char::from_u32(v)?.encode_utf8(&mut buf).as_bytes());
                }
                i += w;
                n += 1;
            }
            if q == b'\'' && n != 1 {
                return None;
            }
            Some(out)
        }
        _ => None,
    }
}
