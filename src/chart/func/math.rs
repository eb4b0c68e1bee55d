//! Numbers: casts as spf13/cast does them, integer and decimal arithmetic, sequences.

use super::Ty::{Any, Float, Int, Str as S};
use super::{Func, GoErr, Out, err, f, int, text, v};
use crate::limit::MAX_ITEMS;
use crate::run::Runtime;
use crate::template::number::{parse_float, parse_int};
use crate::value::{ListTy, Obj, Val};

pub(super) fn table() -> Vec<Func> {
    vec![
        f("int", &[Any], |_, a| Ok(Val::Int(to_int(&a[0])))),
        f("int64", &[Any], |_, a| Ok(Val::Int64(to_int(&a[0])))),
        f("float64", &[Any], |_, a| Ok(Val::Float(to_float(&a[0])))),
        f("atoi", &[S], |_, a| Ok(Val::Int(atoi(&text(&a[0]))))),
        f("toDecimal", &[Any], |_, a| Ok(Val::Int64(parse_int(&crate::text::fmt::sprint(&a[0]), 8).unwrap_or(0)))),
        f("add1", &[Any], |_, a| Ok(Val::Int64(to_int(&a[0]).wrapping_add(1)))),
        v("add", &[], Any, |_, a| Ok(Val::Int64(a.iter().fold(0, |n, v| n.wrapping_add(to_int(v)))))),
        f("sub", &[Any, Any], |_, a| Ok(Val::Int64(to_int(&a[0]).wrapping_sub(to_int(&a[1]))))),
        f("div", &[Any, Any], |_, a| match to_int(&a[1]) {
            0 => err("runtime error: integer divide by zero"),
            d => Ok(Val::Int64(to_int(&a[0]).wrapping_div(d))),
        }),
        f("mod", &[Any, Any], |_, a| match to_int(&a[1]) {
            0 => err("runtime error: integer divide by zero"),
            d => Ok(Val::Int64(to_int(&a[0]).wrapping_rem(d))),
        }),
        v("mul", &[Any], Any, |_, a| Ok(Val::Int64(a[1..].iter().fold(to_int(&a[0]), |n, v| n.wrapping_mul(to_int(v)))))),
        v("max", &[Any], Any, |_, a| Ok(Val::Int64(a.iter().map(to_int).max().unwrap_or(0)))),
        v("biggest", &[Any], Any, |_, a| Ok(Val::Int64(a.iter().map(to_int).max().unwrap_or(0)))),
        v("min", &[Any], Any, |_, a| Ok(Val::Int64(a.iter().map(to_int).min().unwrap_or(0)))),
        v("maxf", &[Any], Any, |_, a| Ok(Val::Float(a.iter().map(to_float).fold(f64::NEG_INFINITY, go_max)))),
        v("minf", &[Any], Any, |_, a| Ok(Val::Float(a.iter().map(to_float).fold(f64::INFINITY, |x, y| -go_max(-x, -y))))),
        f("floor", &[Any], |_, a| Ok(Val::Float(to_float(&a[0]).floor()))),
        f("ceil", &[Any], |_, a| Ok(Val::Float(to_float(&a[0]).ceil()))),
        v("round", &[Any, Int], Float, round),
        f("add1f", &[Any], |_, a| decimal(&[a[0].clone(), Val::Int(1)], b'+')),
        v("addf", &[], Any, |_, a| decimal(&[&[Val::Float(0.0)], a].concat(), b'+')),
        v("subf", &[Any], Any, |_, a| decimal(a, b'-')),
        v("mulf", &[Any], Any, |_, a| decimal(a, b'*')),
        v("divf", &[Any], Any, |_, a| decimal(a, b'/')),
        f("until", &[Int], |rt, a| {
            let n = int(&a[0]);
            steps(rt, 0, n, if n < 0 { -1 } else { 1 }).map(|v| Val::typed_list(ListTy::Int, v))
        }),
        f("untilStep", &[Int, Int, Int], |rt, a| steps(rt, int(&a[0]), int(&a[1]), int(&a[2])).map(|v| Val::typed_list(ListTy::Int, v))),
        v("seq", &[], Int, seq),
    ]
}

fn go_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn atoi(t: &str) -> i64 {
    match parse_int(t, 10) {
        Ok(i) => i,
        Err(crate::template::number::Bad::Range) => {
            if t.starts_with('-') {
                i64::MIN
            } else {
                i64::MAX
            }
        }
        Err(_) => 0,
    }
}

/// Go's float to int64 on amd64: what does not fit becomes the smallest integer.
pub(crate) fn float_to_int(f: f64) -> i64 {
    if f.is_nan() || !(i64::MIN as f64..-(i64::MIN as f64)).contains(&f) { i64::MIN } else { f as i64 }
}

fn trim_zero_decimal(s: &str) -> &str {
    let mut zero = false;
    for (i, c) in s.bytes().enumerate().rev() {
        match c {
            b'.' if zero => return &s[..i],
            b'.' => {}
            b'0' => zero = true,
            _ => return s,
        }
    }
    s
}

/// `cast.ToInt64`.
pub(crate) fn to_int(v: &Val) -> i64 {
    match v {
        Val::Int(i) | Val::Int64(i) => *i,
        Val::Byte(b) => *b as i64,
        Val::Float(f) => float_to_int(*f),
        Val::Bool(b) => *b as i64,
        Val::Str(s) => parse_int(trim_zero_decimal(&s.text()), 0).unwrap_or(0),
        Val::Obj(o) => match &**o {
            // time.Weekday and time.Month are what cast knows; a Duration is another type and gives 0.
            Obj::Named(_, i, _) => *i,
            _ => 0,
        },
        _ => 0,
    }
}

/// `cast.ToFloat64`.
pub(crate) fn to_float(v: &Val) -> f64 {
    match v {
        Val::Int(i) | Val::Int64(i) => *i as f64,
        Val::Byte(b) => *b as f64,
        Val::Float(f) => *f,
        Val::Bool(b) => f64::from(*b),
        Val::Str(s) => parse_float(&s.text()).unwrap_or(0.0),
        Val::Obj(o) => match &**o {
            Obj::Named(_, i, _) => *i as f64,
            _ => 0.0,
        },
        _ => 0.0,
    }
}

fn round(_: &mut Runtime, a: &[Val]) -> Out {
    let on = match a.get(2) {
        Some(Val::Float(f)) => *f,
        _ => 0.5,
    };
    let pow = 10f64.powf(int(&a[1]) as f64);
    let digit = pow * to_float(&a[0]);
    let frac = digit - digit.trunc();
    let r = if frac >= on { digit.ceil() } else { digit.floor() };
    Ok(Val::Float(r / pow))
}

fn steps(rt: &mut Runtime, start: i64, stop: i64, step: i64) -> Result<Vec<Val>, GoErr> {
    let mut v = Vec::new();
    if stop < start && step >= 0 || stop >= start && step <= 0 {
        return Ok(v);
    }
    let n = (stop as i128 - start as i128).unsigned_abs() / step.unsigned_abs() as u128;
    if n > MAX_ITEMS as u128 {
        return err("list too long");
    }
    rt.burn(n as u64)?;
    let mut i = start;
    while if step > 0 { i < stop } else { i > stop } {
        v.push(Val::Int(i));
        match i.checked_add(step) {
            Some(n) => i = n,
            None => break,
        }
    }
    Ok(v)
}

fn seq(rt: &mut Runtime, a: &[Val]) -> Out {
    let p: Vec<i64> = a.iter().map(int).collect();
    let list = match p[..] {
        [end] => {
            let inc = if end < 1 { -1 } else { 1 };
            steps(rt, 1, end.wrapping_add(inc), inc)?
        }
        [start, end] => {
            let step = if end < start { -1 } else { 1 };
            steps(rt, start, end.wrapping_add(step), step)?
        }
        [start, step, end] => {
            let mut inc = 1;
            if end < start {
                inc = -1;
                if step > 0 {
                    return Ok(Val::str(""));
                }
            }
            steps(rt, start, end.wrapping_add(inc), step)?
        }
        _ => return Ok(Val::str("")),
    };
    Ok(Val::str(list.iter().map(|v| int(v).to_string()).collect::<Vec<_>>().join(" ")))
}

/// A decimal number: digits times a power of ten, exact for sums and products; division keeps 16 places, as shopspring/decimal does.
#[derive(Clone)]
struct Dec {
    neg: bool,
    /// Digits, most significant first.
    digits: Vec<u8>,
    exp: i32,
}

fn to_dec(x: f64) -> Dec {
    let s = format!("{:e}", x.abs());
    let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
    let frac = m.split_once('.').map_or(0, |(_, f)| f.len() as i32);
    let digits = m.bytes().filter(u8::is_ascii_digit).map(|c| c - b'0').collect();
    Dec { neg: x < 0.0, digits, exp: e.parse::<i32>().unwrap_or(0) - frac }
}

fn cmp_digits(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let t = |d: &[u8]| d.iter().position(|c| *c != 0).unwrap_or(d.len());
    let (a, b) = (&a[t(a)..], &b[t(b)..]);
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn add_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut carry = 0;
    for i in 0..a.len().max(b.len()) {
        let d = |v: &[u8]| if i < v.len() { v[v.len() - 1 - i] } else { 0 };
        let s = d(a) + d(b) + carry;
        out.push(s % 10);
        carry = s / 10;
    }
    if carry > 0 {
        out.push(carry);
    }
    out.reverse();
    out
}

fn sub_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut borrow = 0i8;
    for i in 0..a.len().max(b.len()) {
        let d = |v: &[u8]| if i < v.len() { v[v.len() - 1 - i] as i8 } else { 0 };
        let mut s = d(a) - d(b) - borrow;
        borrow = 0;
        if s < 0 {
            s += 10;
            borrow = 1;
        }
        out.push(s as u8);
    }
    out.reverse();
    out
}

impl Dec {
    fn zero(&self) -> bool {
        self.digits.iter().all(|d| *d == 0)
    }
    fn rescale(&mut self, exp: i32) {
        while self.exp > exp {
            self.digits.push(0);
            self.exp -= 1;
        }
    }
    fn add(mut self, mut o: Dec) -> Dec {
        let e = self.exp.min(o.exp);
        self.rescale(e);
        o.rescale(e);
        if self.neg == o.neg {
            return Dec { neg: self.neg, digits: add_digits(&self.digits, &o.digits), exp: e };
        }
        if cmp_digits(&self.digits, &o.digits).is_ge() {
            Dec { neg: self.neg, digits: sub_digits(&self.digits, &o.digits), exp: e }
        } else {
            Dec { neg: o.neg, digits: sub_digits(&o.digits, &self.digits), exp: e }
        }
    }
    fn mul(self, o: Dec) -> Dec {
        let mut r = vec![0u32; self.digits.len() + o.digits.len()];
        for (i, a) in self.digits.iter().rev().enumerate() {
            for (j, b) in o.digits.iter().rev().enumerate() {
                r[i + j] += *a as u32 * *b as u32;
            }
        }
        let mut carry = 0;
        let mut digits: Vec<u8> = r
            .into_iter()
            .map(|d| {
                let s = d + carry;
                carry = s / 10;
                (s % 10) as u8
            })
            .collect();
        digits.reverse();
        Dec { neg: self.neg != o.neg, digits, exp: self.exp + o.exp }
    }
    /// Rounded to 16 places, halves away from zero.
    fn div(self, o: Dec) -> Dec {
        const PLACES: i32 = 16;
        // self * 10^k / o with k such that the quotient has exponent -16.
        let mut num = self.digits.clone();
        let mut den = o.digits.clone();
        let shift = self.exp - o.exp + PLACES;
        if shift >= 0 {
            num.extend(std::iter::repeat_n(0, shift.min(5000) as usize));
        } else {
            den.extend(std::iter::repeat_n(0, (-shift).min(5000) as usize));
        }
        let mut rem: Vec<u8> = Vec::new();
        let mut q = Vec::new();
        for d in num {
            rem.push(d);
            let mut n = 0;
            while cmp_digits(&rem, &den).is_ge() {
                rem = sub_digits(&rem, &den);
                n += 1;
            }
            q.push(n);
            let lead = rem.iter().position(|c| *c != 0).unwrap_or(rem.len());
            rem.drain(..lead);
        }
        let twice = add_digits(&rem, &rem);
        if cmp_digits(&twice, &den).is_ge() {
            q = add_digits(&q, &[1]);
        }
        Dec { neg: self.neg != o.neg, digits: q, exp: -PLACES }
    }
    fn float(&self) -> f64 {
        let s: String = self.digits.iter().map(|d| (d + b'0') as char).collect();
        format!("{}{s}e{}", if self.neg && !self.zero() { "-" } else { "" }, self.exp).parse().unwrap_or(0.0)
    }
}

fn decimal(a: &[Val], op: u8) -> Out {
    let mut it = a.iter().map(to_float);
    let Some(first) = it.next() else { return Ok(Val::Float(0.0)) };
    let check = |x: f64| if x.is_finite() { Ok(to_dec(x)) } else { err(format!("Cannot create a Decimal from {}", crate::text::fmt::float_v(x))) };
    let mut acc = check(first)?;
    for x in it {
        let mut d = check(x)?;
        acc = match op {
            b'+' => acc.add(d),
            b'-' => {
                d.neg = !d.neg;
                acc.add(d)
            }
            b'*' => acc.mul(d),
            _ => {
                if d.zero() {
                    return err("decimal division by 0");
                }
                acc.div(d)
            }
        };
    }
    Ok(Val::Float(acc.float()))
}
