//! Random values from the render's own seeded generator: the same seed gives the same text.

use super::Ty::{Int, Str as S};
use super::{Func, GoErr, Out, err, f, int, text};
use crate::limit::MAX_TEXT;
use crate::run::Runtime;
use crate::value::Val;
use base64::Engine as _;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

/// The generator of a render.
pub struct Rng(pub(crate) StdRng);

impl Rng {
    /// A generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
    /// Random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut b = vec![0; n];
        self.0.fill_bytes(&mut b);
        b
    }
}

pub(super) fn table() -> Vec<Func> {
    vec![
        f("randAlphaNum", &[Int], |rt, a| pick(rt, int(&a[0]), b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")),
        f("randAlpha", &[Int], |rt, a| pick(rt, int(&a[0]), b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")),
        f("randNumeric", &[Int], |rt, a| pick(rt, int(&a[0]), b"0123456789")),
        f("randAscii", &[Int], |rt, a| {
            let all: Vec<u8> = (32..127).collect();
            pick(rt, int(&a[0]), &all)
        }),
        f("randBytes", &[Int], |rt, a| {
            let n = count(int(&a[0]))?;
            Ok(Val::str(base64::engine::general_purpose::STANDARD.encode(rt.rng.bytes(n))))
        }),
        f("randInt", &[Int, Int], |rt, a| {
            let (lo, hi) = (int(&a[0]), int(&a[1]));
            if hi <= lo {
                return err("invalid argument to Intn");
            }
            Ok(Val::Int(rt.rng.0.random_range(lo..hi)))
        }),
        f("shuffle", &[S], |rt, a| {
            let mut c: Vec<char> = text(&a[0]).chars().collect();
            for i in (1..c.len()).rev() {
                c.swap(i, rt.rng.0.random_range(0..=i));
            }
            Ok(Val::str(c.into_iter().collect::<String>()))
        }),
        f("uuidv4", &[], |rt, _| {
            let mut b = rt.rng.bytes(16);
            b[6] = b[6] & 0x0f | 0x40;
            b[8] = b[8] & 0x3f | 0x80;
            let h = hex::encode(b);
            Ok(Val::str(format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])))
        }),
    ]
}

fn count(n: i64) -> Result<usize, GoErr> {
    if n < 0 {
        return err("runtime error: makeslice: len out of range");
    }
    if n as u64 > MAX_TEXT as u64 {
        return err("runtime error: makeslice: len out of range");
    }
    Ok(n as usize)
}

fn pick(rt: &mut Runtime, n: i64, set: &[u8]) -> Out {
    if n < 0 {
        return Ok(Val::str(""));
    }
    let n = count(n)?;
    rt.burn(n as u64)?;
    Ok(Val::str((0..n).map(|_| set[rt.rng.0.random_range(0..set.len())]).collect::<Vec<u8>>()))
}
