//! Durations: Go's notation and Helm's duration helpers.

use super::Ty::Any;
use super::{Func, GoErr, Out, f};
use crate::template::number::parse_float;
use crate::text::fmt::float_v;
use crate::text::quote::quote;
use crate::value::{Obj, Val};

pub(super) fn table() -> Vec<Func> {
    vec![
        f("mustToDuration", &[Any], |_, a| as_duration(&a[0]).map(dur).map_err(GoErr::new)),
        f("durationSeconds", &[Any], |_, a| fl(&a[0], |d| (d / S) as f64 + (d % S) as f64 / 1e9)),
        f("durationMilliseconds", &[Any], |_, a| whole(&a[0], 1_000_000)),
        f("durationMicroseconds", &[Any], |_, a| whole(&a[0], 1_000)),
        f("durationNanoseconds", &[Any], |_, a| whole(&a[0], 1)),
        f("durationMinutes", &[Any], |_, a| fl(&a[0], |d| (d / (60 * S)) as f64 + (d % (60 * S)) as f64 / (60.0 * 1e9))),
        f("durationHours", &[Any], |_, a| fl(&a[0], hours)),
        f("durationDays", &[Any], |_, a| fl(&a[0], |d| hours(d) / 24.0)),
        f("durationWeeks", &[Any], |_, a| fl(&a[0], |d| hours(d) / 24.0 / 7.0)),
        f("durationRoundTo", &[Any, Any], |_, a| Ok(dur(to(&a[0], &a[1], round)))),
        f("durationTruncateTo", &[Any, Any], |_, a| Ok(dur(to(&a[0], &a[1], |d, m| if m <= 0 { d } else { d - d % m })))),
    ]
}

const S: i64 = 1_000_000_000;

fn dur(d: i64) -> Val {
    Val::obj(Obj::Duration(d))
}

fn hours(d: i64) -> f64 {
    (d / (3600 * S)) as f64 + (d % (3600 * S)) as f64 / (3600.0 * 1e9)
}

fn fl(v: &Val, get: fn(i64) -> f64) -> Out {
    Ok(Val::Float(as_duration(v).map_or(0.0, get)))
}

fn whole(v: &Val, unit: i64) -> Out {
    Ok(Val::Int64(as_duration(v).map_or(0, |d| d / unit)))
}

fn to(v: &Val, m: &Val, how: fn(i64, i64) -> i64) -> i64 {
    let Ok(d) = as_duration(v) else { return 0 };
    match as_duration(m) {
        Ok(m) => how(d, m),
        Err(_) => d,
    }
}

/// `Duration.Round`: halves away from zero, saturating.
pub(crate) fn round(d: i64, m: i64) -> i64 {
    if m <= 0 {
        return d;
    }
    let r = d % m;
    if d < 0 {
        let r = -r;
        if r.checked_add(r).is_some_and(|x| x < m) {
            return d + r;
        }
        return d.checked_sub(m - r).unwrap_or(i64::MIN);
    }
    if r.checked_add(r).is_some_and(|x| x < m) {
        return d - r;
    }
    d.checked_add(m - r).unwrap_or(i64::MAX)
}

fn seconds(i: i64) -> Result<i64, String> {
    i.checked_mul(S).ok_or_else(|| format!("duration seconds overflow: {i}"))
}

fn float(f: f64) -> Result<i64, String> {
    if !f.is_finite() {
        return Err(format!("invalid duration seconds: {}", float_v(f)));
    }
    let max = i64::MAX as f64 / 1e9;
    if !(-max..=max).contains(&f) {
        return Err(format!("duration seconds overflow: {}", float_v(f)));
    }
    Ok((f * 1e9) as i64)
}

/// Helm's reading of anything as a duration.
fn as_duration(v: &Val) -> Result<i64, String> {
    match v {
        Val::Obj(o) => match &**o {
            Obj::Duration(d) => Ok(*d),
            Obj::Named(_, i, _) => seconds(*i),
            _ => Err(format!("unsupported duration type {}", v.type_name())),
        },
        Val::Str(s) => {
            let t = s.text();
            let t = t.trim();
            if t.is_empty() {
                return Err("empty duration".into());
            }
            if let Ok(d) = parse_duration(t) {
                return Ok(d);
            }
            match parse_float(t) {
                Ok(f) => float(f),
                Err(_) => Err(format!("could not parse duration {}", quote(s.as_bytes()))),
            }
        }
        Val::No | Val::Nil => Err("invalid duration".into()),
        Val::Int(i) | Val::Int64(i) => seconds(*i),
        Val::Byte(b) => seconds(*b as i64),
        Val::Float(f) => float(*f),
        v => Err(format!("unsupported duration type {}", v.type_name())),
    }
}

/// `time.ParseDuration`.
pub(super) fn parse_duration(t: &str) -> Result<i64, String> {
    let bad = || format!("time: invalid duration {}", quote(t.as_bytes()));
    let mut s = t;
    let neg = s.starts_with('-');
    s = s.strip_prefix(['-', '+']).unwrap_or(s);
    if s == "0" {
        return Ok(0);
    }
    if s.is_empty() {
        return Err(bad());
    }
    let mut total: u64 = 0;
    while !s.is_empty() {
        let n = s.bytes().take_while(u8::is_ascii_digit).count();
        let int: u64 = if n > 0 { s[..n].parse().map_err(|_| bad())? } else { 0 };
        s = &s[n..];
        let mut frac = "";
        if let Some(r) = s.strip_prefix('.') {
            let m = r.bytes().take_while(u8::is_ascii_digit).count();
            frac = &r[..m];
            s = &r[m..];
        }
        if n == 0 && frac.is_empty() {
            return Err(bad());
        }
        let u = s.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(s.len());
        if u == 0 {
            return Err(format!("time: missing unit in duration {}", quote(t.as_bytes())));
        }
        let unit: u64 = match &s[..u] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => S as u64,
            "m" => 60 * S as u64,
            "h" => 3600 * S as u64,
            x => return Err(format!("time: unknown unit {} in duration {}", quote(x.as_bytes()), quote(t.as_bytes()))),
        };
        s = &s[u..];
        let mut v = int.checked_mul(unit).filter(|v| *v <= 1 << 63).ok_or_else(bad)?;
        if !frac.is_empty() {
            let scale = 10f64.powi(frac.len().min(18) as i32);
            let f: f64 = frac[..frac.len().min(18)].parse().unwrap_or(0.0);
            v += (f * (unit as f64 / scale)) as u64;
        }
        total = total.checked_add(v).filter(|v| *v <= 1 << 63).ok_or_else(bad)?;
    }
    if neg {
        return Ok((total as i64).wrapping_neg());
    }
    i64::try_from(total).map_err(|_| bad())
}

