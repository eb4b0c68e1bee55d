//! Encodings and checksums.

use super::Ty::Str as S;
use super::{Func, f, s};
use crate::value::Val;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest as _;

pub(super) fn table() -> Vec<Func> {
    vec![
        f("b64enc", &[S], |_, a| Ok(Val::str(STANDARD.encode(s(&a[0]))))),
        f("b64dec", &[S], |_, a| Ok(Val::str(base64_decode(s(&a[0]))))),
        f("b32enc", &[S], |_, a| Ok(Val::str(base32_encode(s(&a[0]))))),
        f("b32dec", &[S], |_, a| Ok(Val::str(base32_decode(s(&a[0]))))),
        f("sha1sum", &[S], |_, a| Ok(Val::str(hex::encode(sha1::Sha1::digest(s(&a[0])))))),
        f("sha256sum", &[S], |_, a| Ok(Val::str(hex::encode(sha2::Sha256::digest(s(&a[0])))))),
        f("sha512sum", &[S], |_, a| Ok(Val::str(hex::encode(sha2::Sha512::digest(s(&a[0])))))),
        f("adler32sum", &[S], |_, a| Ok(Val::str(adler(s(&a[0])).to_string()))),
    ]
}

fn adler(b: &[u8]) -> u32 {
    let (mut x, mut y) = (1u32, 0u32);
    for c in b {
        x = (x + *c as u32) % 65521;
        y = (y + x) % 65521;
    }
    y << 16 | x
}

fn value64(c: u8) -> Option<u8> {
    Some(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Go's decoder: newlines are skipped; the error text takes the place of the result, as sprig returns it.
fn base64_decode(b: &[u8]) -> Vec<u8> {
    let fault = |i: usize| format!("illegal base64 data at input byte {i}").into_bytes();
    let mut out = Vec::with_capacity(b.len() / 4 * 3);
    let mut i = 0;
    loop {
        let mut q = [0u8; 4];
        let mut n = 0;
        while n < 4 {
            let Some(&c) = b.get(i) else {
                return if n == 0 { out } else { fault(i - n.min(i)) };
            };
            i += 1;
            if c == b'\n' || c == b'\r' {
                continue;
            }
            if c == b'=' {
                if n < 2 {
                    return fault(i - 1);
                }
                if n == 2 {
                    while matches!(b.get(i), Some(b'\n' | b'\r')) {
                        i += 1;
                    }
                    match b.get(i) {
                        None => return fault(b.len()),
                        Some(b'=') => i += 1,
                        Some(_) => return fault(i - 1),
                    }
                }
                while matches!(b.get(i), Some(b'\n' | b'\r')) {
                    i += 1;
                }
                if i < b.len() {
                    return fault(i);
                }
                out.push(q[0] << 2 | q[1] >> 4);
                if n == 3 {
                    out.push(q[1] << 4 | q[2] >> 2);
                }
                return out;
            }
            match value64(c) {
                Some(v) => q[n] = v,
                None => return fault(i - 1),
            }
            n += 1;
        }
        out.extend_from_slice(&[q[0] << 2 | q[1] >> 4, q[1] << 4 | q[2] >> 2, q[2] << 6 | q[3]]);
    }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32_encode(b: &[u8]) -> String {
    let mut out = String::new();
    for chunk in b.chunks(5) {
        let mut v = [0u8; 5];
        v[..chunk.len()].copy_from_slice(chunk);
        let n = v.iter().fold(0u64, |n, b| n << 8 | *b as u64);
        let used = (chunk.len() * 8).div_ceil(5);
        for i in 0..8 {
            out.push(if i < used { BASE32[(n >> (35 - 5 * i) & 31) as usize] as char } else { '=' });
        }
    }
    out
}

fn base32_decode(b: &[u8]) -> Vec<u8> {
    let clean: Vec<u8> = b.iter().copied().filter(|c| !matches!(c, b'\n' | b'\r')).collect();
    let fault = |i: usize| format!("illegal base32 data at input byte {i}").into_bytes();
    let mut out = Vec::new();
    for (g, chunk) in clean.chunks(8).enumerate() {
        let body = chunk.iter().take_while(|c| **c != b'=').count();
        if let Some(i) = chunk[..body].iter().position(|c| !BASE32.contains(c)) {
            return fault(g * 8 + i);
        }
        if chunk.len() < 8 {
            return fault(g * 8);
        }
        let last = (g + 1) * 8 >= clean.len();
        if body < 8 && (!last || !matches!(body, 2 | 4 | 5 | 7) || chunk[body..].iter().any(|c| *c != b'=')) {
            return fault(g * 8 + body);
        }
        let mut n = 0u64;
        for (i, c) in chunk.iter().enumerate() {
            let v = if i < body {
                match BASE32.iter().position(|x| x == c) {
                    Some(v) => v as u64,
                    None => return fault(g * 8 + i),
                }
            } else {
                0
            };
            n = n << 5 | v;
        }
        let bytes = body * 5 / 8;
        for i in 0..bytes {
            out.push((n >> (32 - 8 * i)) as u8);
        }
    }
    out
}
