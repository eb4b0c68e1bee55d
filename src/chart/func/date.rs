//! Dates: Go's layouts both ways, zones, the date functions. The present is a parameter of the render.

use super::Ty::{Any, Str as S, Time as T};
use super::{Func, GoErr, Out, duration::parse_duration, err, f, text};
use crate::run::Runtime;
use crate::value::{Obj, Time, Val};

pub(super) fn table() -> Vec<Func> {
    vec![
        f("now", &[], |rt, _| Ok(Val::obj(Obj::Time(rt.now())))),
        f("date", &[S, Any], |rt, a| in_zone(rt, &text(&a[0]), &a[1], "Local")),
        f("htmlDate", &[Any], |rt, a| in_zone(rt, "2006-01-02", &a[0], "Local")),
        f("htmlDateInZone", &[Any, S], |rt, a| in_zone(rt, "2006-01-02", &a[0], &text(&a[1]))),
        f("dateInZone", &[S, Any, S], |rt, a| in_zone(rt, &text(&a[0]), &a[1], &text(&a[2]))),
        f("date_in_zone", &[S, Any, S], |rt, a| in_zone(rt, &text(&a[0]), &a[1], &text(&a[2]))),
        f("dateModify", &[S, T], |_, a| modify(a, false)),
        f("date_modify", &[S, T], |_, a| modify(a, false)),
        f("mustDateModify", &[S, T], |_, a| modify(a, true)),
        f("must_date_modify", &[S, T], |_, a| modify(a, true)),
        f("toDate", &[S, S], |_, a| Ok(Val::obj(Obj::Time(parse_layout(&text(&a[0]), &text(&a[1])).unwrap_or(ZERO))))),
        f("mustToDate", &[S, S], |_, a| parse_layout(&text(&a[0]), &text(&a[1])).map(|t| Val::obj(Obj::Time(t))).map_err(GoErr::new)),
        f("unixEpoch", &[T], |_, a| Ok(Val::str(time(&a[0]).map_or(0, |t| t.nanos.div_euclid(1_000_000_000)).to_string()))),
        f("ago", &[Any], |rt, a| {
            let now = rt.now();
            let t = moment(rt, &a[0]);
            let d = (now.nanos - t.nanos).clamp(i64::MIN as i128, i64::MAX as i128) as i64;
            Ok(Val::str(crate::text::fmt::duration(super::duration::round(d, 1_000_000_000))))
        }),
        f("duration", &[Any], |_, a| {
            let n = match &a[0] {
                Val::Str(s) => crate::template::number::parse_int(&s.text(), 10).unwrap_or(0),
                Val::Int64(n) => *n,
                _ => 0,
            };
            Ok(Val::str(crate::text::fmt::duration(n.wrapping_mul(1_000_000_000))))
        }),
        f("durationRound", &[Any], |rt, a| {
            let d = match &a[0] {
                Val::Str(s) => parse_duration(&s.text()).unwrap_or(0),
                Val::Int64(n) => *n,
                v => match time(v) {
                    Some(t) => (rt.now().nanos - t.nanos) as i64,
                    None => 0,
                },
            };
            Ok(Val::str(coarse(d.unsigned_abs())))
        }),
    ]
}

/// Go's zero time: 1 January of the year 1.
pub const ZERO: Time = Time { nanos: -62_135_596_800_000_000_000, zone: (0, String::new()), mono: None };

fn coarse(u: u64) -> String {
    const S: u64 = 1_000_000_000;
    for (unit, name) in [(S * 3600 * 24 * 365, "y"), (S * 3600 * 24 * 30, "mo"), (S * 3600 * 24, "d"), (S * 3600, "h"), (S * 60, "m"), (S, "s")] {
        if u > unit {
            return format!("{}{name}", u / unit);
        }
    }
    "0s".into()
}

fn time(v: &Val) -> Option<&Time> {
    match v {
        Val::Obj(o) => match &**o {
            Obj::Time(t) => Some(t),
            _ => None,
        },
        _ => None,
    }
}

fn unix(n: i64) -> Time {
    Time { nanos: n as i128 * 1_000_000_000, zone: (0, "UTC".into()), mono: None }
}

fn moment(rt: &mut Runtime, v: &Val) -> Time {
    match v {
        Val::Int(n) | Val::Int64(n) => unix(*n),
        v => time(v).cloned().unwrap_or_else(|| rt.now()),
    }
}

fn in_zone(rt: &mut Runtime, layout: &str, v: &Val, zone: &str) -> Out {
    let t = moment(rt, v);
    Ok(Val::str(format(layout, &to_zone(&t, zone))))
}

/// The same moment elsewhere; the local zone of a render is UTC, as an unknown one is.
pub fn to_zone(t: &Time, zone: &str) -> Time {
    let utc = (0, "UTC".to_string());
    let z = match zone {
        "" | "UTC" | "Local" => utc,
        z => jiff::tz::TimeZoneDatabase::bundled()
            .get(z)
            .ok()
            .and_then(|tz| {
                let ts = jiff::Timestamp::from_nanosecond(t.nanos).ok()?;
                let info = tz.to_offset_info(ts);
                Some((info.offset().seconds(), info.abbreviation().to_string()))
            })
            .unwrap_or(utc),
    };
    Time { nanos: t.nanos, zone: z, mono: None }
}

fn modify(a: &[Val], must: bool) -> Out {
    let Some(t) = time(&a[1]) else { return err("not a time") };
    match parse_duration(&text(&a[0])) {
        Ok(d) => Ok(Val::obj(Obj::Time(Time { nanos: t.nanos + d as i128, zone: t.zone.clone(), mono: t.mono.map(|m| m + d as f64 / 1e9) }))),
        Err(e) if must => err(e),
        Err(_) => Ok(a[1].clone()),
    }
}

/// Year, month, day of a number of days since 1970.
fn civil(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let d = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let m = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(m <= 2), m, d)
}

fn days_from(y: i64, m: u32, d: u32) -> i64 {
    let y = if m <= 2 { y - 1 } else { y };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = (m as i64 + 9) % 12;
    let doy = (153 * mp + 2) / 5 + d as i64 - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// A moment in its parts.
pub struct Parts {
    /// Year.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month.
    pub day: u32,
    /// Hour.
    pub hour: u32,
    /// Minute.
    pub minute: u32,
    /// Second.
    pub second: u32,
    /// Nanosecond.
    pub nano: u32,
    /// Day of the week, Sunday is 0.
    pub weekday: u32,
    /// Day of the year, from 1.
    pub yday: u32,
}

/// Takes a time apart in its own zone.
pub fn parts(t: &Time) -> Parts {
    let local = t.nanos + t.zone.0 as i128 * 1_000_000_000;
    let secs = local.div_euclid(1_000_000_000) as i64;
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    Parts {
        year,
        month,
        day,
        hour: (rest / 3600) as u32,
        minute: (rest % 3600 / 60) as u32,
        second: (rest % 60) as u32,
        nano: local.rem_euclid(1_000_000_000) as u32,
        weekday: (days + 4).rem_euclid(7) as u32,
        yday: (days - days_from(year, 1, 1) + 1) as u32,
    }
}

/// Month names.
pub const MONTHS: [&str; 12] = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
/// Day names.
pub const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Elements of a layout, longest first where one begins another.
const TOKENS: [&str; 37] = [
    "January", "Jan", "Monday", "Mon", "MST", "2006", "-07:00:00", "-070000", "-07:00", "-0700", "-07", "Z07:00:00", "Z070000", "Z07:00", "Z0700", "Z07", "002", "__2", "_2006", "_2", "01", "02", "03", "04", "05", "06", "15", "PM", "pm", "1", "2", "3", "4", "5", ".", ",", "0",
];

fn next_token(layout: &str) -> Option<(&str, &str, &str)> {
    let b = layout.as_bytes();
    for i in 0..b.len() {
        if !layout.is_char_boundary(i) {
            continue;
        }
        let rest = &layout[i..];
        for t in TOKENS {
            if !rest.starts_with(t) {
                continue;
            }
            match t {
                "Jan" if rest[3..].starts_with(|c: char| c.is_ascii_lowercase()) => continue,
                "Mon" if rest[3..].starts_with(|c: char| c.is_ascii_lowercase()) => continue,
                "." | "," => {
                    // A fraction: zeros or nines not followed by another digit.
                    let Some(d) = rest.as_bytes().get(1).filter(|d| matches!(d, b'0' | b'9')) else { continue };
                    let n = rest.as_bytes()[1..].iter().take_while(|c| *c == d).count();
                    if rest.as_bytes().get(1 + n).is_some_and(u8::is_ascii_digit) {
                        continue;
                    }
                    return Some((&layout[..i], &rest[..1 + n], &rest[1 + n..]));
                }
                "0" => continue,
                // "_2006" is an underscore and a year.
                "_2006" => return Some((&layout[..i + 1], &rest[1..5], &rest[5..])),
                _ => {}
            }
            return Some((&layout[..i], t, &rest[t.len()..]));
        }
    }
    None
}

fn offset(secs: i32, colon: bool, seconds: bool, minutes: bool) -> String {
    let (sign, z) = if secs < 0 { ('-', -secs) } else { ('+', secs) };
    let c = if colon { ":" } else { "" };
    let mut s = format!("{sign}{:02}", z / 3600);
    if minutes {
        s.push_str(&format!("{c}{:02}", z % 3600 / 60));
    }
    if seconds {
        s.push_str(&format!("{c}{:02}", z % 60));
    }
    s
}

/// `Time.Format`.
pub fn format(layout: &str, t: &Time) -> String {
    let p = parts(t);
    let mut out = String::new();
    let mut rest = layout;
    while let Some((before, token, after)) = next_token(rest) {
        out.push_str(before);
        rest = after;
        let zone = |tok: &str| offset(t.zone.0, tok.contains(':'), matches!(tok.len(), 9 | 7) && tok != "-07:00" || tok.ends_with(":00:00") || tok.ends_with("070000"), tok.len() > 3);
        match token {
            "2006" => out.push_str(&format!("{:04}", p.year)),
            "06" => out.push_str(&format!("{:02}", p.year.rem_euclid(100))),
            "January" => out.push_str(MONTHS[p.month as usize - 1]),
            "Jan" => out.push_str(&MONTHS[p.month as usize - 1][..3]),
            "01" => out.push_str(&format!("{:02}", p.month)),
            "1" => out.push_str(&p.month.to_string()),
            "Monday" => out.push_str(DAYS[p.weekday as usize]),
            "Mon" => out.push_str(&DAYS[p.weekday as usize][..3]),
            "02" => out.push_str(&format!("{:02}", p.day)),
            "_2" => out.push_str(&format!("{:2}", p.day)),
            "2" => out.push_str(&p.day.to_string()),
            "002" => out.push_str(&format!("{:03}", p.yday)),
            "__2" => out.push_str(&format!("{:3}", p.yday)),
            "15" => out.push_str(&format!("{:02}", p.hour)),
            "03" => out.push_str(&format!("{:02}", (p.hour + 11) % 12 + 1)),
            "3" => out.push_str(&((p.hour + 11) % 12 + 1).to_string()),
            "04" => out.push_str(&format!("{:02}", p.minute)),
            "4" => out.push_str(&p.minute.to_string()),
            "05" => out.push_str(&format!("{:02}", p.second)),
            "5" => out.push_str(&p.second.to_string()),
            "PM" => out.push_str(if p.hour >= 12 { "PM" } else { "AM" }),
            "pm" => out.push_str(if p.hour >= 12 { "pm" } else { "am" }),
            "MST" => {
                if t.zone.1.is_empty() {
                    if t.zone.0 == 0 {
                        out.push_str("UTC");
                    } else {
                        out.push_str(&offset(t.zone.0, false, false, t.zone.0 % 3600 != 0));
                    }
                } else {
                    out.push_str(&t.zone.1);
                }
            }
            z if z.starts_with('Z') && t.zone.0 == 0 => out.push('Z'),
            z if z.starts_with('Z') => out.push_str(&zone(&format!("-{}", &z[1..]))),
            z if z.starts_with('-') => out.push_str(&zone(z)),
            frac => {
                let n = frac.len() - 1;
                let digits = format!("{:09}", p.nano);
                let mut d = digits[..n.min(9)].to_string();
                if frac.as_bytes()[1] == b'9' {
                    d = d.trim_end_matches('0').to_string();
                    if d.is_empty() {
                        continue;
                    }
                }
                out.push_str(&frac[..1]);
                out.push_str(&d);
            }
        }
    }
    out.push_str(rest);
    out
}

/// `Time.String`.
pub fn show(t: &Time) -> String {
    let mut s = format("2006-01-02 15:04:05.999999999 -0700 MST", t);
    if let Some(m) = t.mono {
        s.push_str(&format!(" m={m:+.9}"));
    }
    s
}

/// RFC 3339 with as many fractional digits as needed.
pub fn rfc3339_nano(t: &Time) -> String {
    format("2006-01-02T15:04:05.999999999Z07:00", t)
}

fn cannot(layout: &str, value: &str, elem: &str, rest: &str) -> String {
    let q = |s: &str| crate::text::quote::quote(s.as_bytes());
    format!("parsing time {} as {}: cannot parse {} as {}", q(value), q(layout), q(rest), q(elem))
}

fn digits(v: &str, min: usize, max: usize) -> Option<(i64, &str)> {
    let n = v.bytes().take(max).take_while(u8::is_ascii_digit).count();
    if n < min {
        return None;
    }
    Some((v[..n].parse().ok()?, &v[n..]))
}

fn skip<'a>(value: &'a str, prefix: &str) -> Option<&'a str> {
    let mut v = value;
    let mut p = prefix;
    while !p.is_empty() {
        if p.starts_with(' ') {
            if !v.is_empty() && !v.starts_with(' ') {
                return None;
            }
            p = p.trim_start_matches(' ');
            v = v.trim_start_matches(' ');
            continue;
        }
        let c = p.chars().next()?;
        v = v.strip_prefix(c)?;
        p = &p[c.len_utf8()..];
    }
    Some(v)
}

fn name<'a>(v: &'a str, names: &[&str], short: bool) -> Option<(usize, &'a str)> {
    names.iter().enumerate().find_map(|(i, n)| {
        let n = if short { &n[..3] } else { n };
        v.get(..n.len()).filter(|h| h.eq_ignore_ascii_case(n)).map(|_| (i, &v[n.len()..]))
    })
}

/// `time.Parse` with UTC as the local zone.
pub fn parse_layout(layout: &str, value: &str) -> Result<Time, String> {
    let (mut year, mut month, mut day, mut hour, mut min, mut sec, mut nano) = (0i64, None::<u32>, None::<u32>, 0u32, 0u32, 0u32, 0u32);
    let mut yday: Option<u32> = None;
    let (mut pm, mut am) = (false, false);
    let mut zone: Option<(i32, String)> = None;
    let (mut l, mut v) = (layout, value);
    let range = |what: &str| format!("parsing time {}: {what} out of range", crate::text::quote::quote(value.as_bytes()));
    loop {
        let Some((before, token, after)) = next_token(l) else {
            let Some(rest) = skip(v, l) else { return Err(cannot(layout, value, l, v)) };
            if !rest.is_empty() {
                return Err(format!("parsing time {}: extra text: {}", crate::text::quote::quote(value.as_bytes()), crate::text::quote::quote(rest.as_bytes())));
            }
            break;
        };
        let Some(rest) = skip(v, before) else { return Err(cannot(layout, value, before, v)) };
        v = rest;
        let hold = v;
        let bad = || cannot(layout, value, token, hold);
        l = after;
        let num = |v: &mut &str, min: usize, max: usize| -> Result<i64, String> {
            let (n, r) = digits(v, min, max).ok_or_else(bad)?;
            *v = r;
            Ok(n)
        };
        match token {
            "2006" => year = num(&mut v, 4, 4)?,
            "06" => {
                let y = num(&mut v, 2, 2)?;
                year = if y >= 69 { 1900 + y } else { 2000 + y };
            }
            "Jan" | "January" => {
                let (i, r) = name(v, &MONTHS, token == "Jan").ok_or_else(bad)?;
                month = Some(i as u32 + 1);
                v = r;
            }
            "01" | "1" => {
                let n = num(&mut v, token.len(), 2)?;
                if !(1..=12).contains(&n) {
                    return Err(range("month"));
                }
                month = Some(n as u32);
            }
            "Mon" | "Monday" => v = name(v, &DAYS, token == "Mon").ok_or_else(bad)?.1,
            "02" | "2" | "_2" => {
                if token == "_2" {
                    v = v.strip_prefix(' ').unwrap_or(v);
                }
                day = Some(num(&mut v, if token == "02" { 2 } else { 1 }, 2)? as u32);
            }
            "002" | "__2" => yday = Some(num(&mut v, 3, 3)? as u32),
            "15" => {
                hour = num(&mut v, 1, 2)? as u32;
                if hour > 23 {
                    return Err(range("hour"));
                }
            }
            "03" | "3" => {
                hour = num(&mut v, token.len(), 2)? as u32;
                if hour > 12 {
                    return Err(range("hour"));
                }
            }
            "04" | "4" => {
                min = num(&mut v, token.len(), 2)? as u32;
                if min > 59 {
                    return Err(range("minute"));
                }
            }
            "05" | "5" => {
                sec = num(&mut v, token.len(), 2)? as u32;
                if sec > 59 {
                    return Err(range("second"));
                }
                // A fraction is accepted even if the layout has none.
                let has = next_token(l).is_some_and(|(b, t, _)| b.is_empty() && t.starts_with(['.', ',']));
                if !has && v.starts_with(['.', ',']) && v.as_bytes().get(1).is_some_and(u8::is_ascii_digit) {
                    let n = v.as_bytes()[1..].iter().take_while(|c| c.is_ascii_digit()).count();
                    nano = fraction(&v[1..1 + n]);
                    v = &v[1 + n..];
                }
            }
            "PM" | "pm" => {
                let h = v.get(..2).ok_or_else(bad)?;
                match (token, h) {
                    ("PM", "PM") | ("pm", "pm") => pm = true,
                    ("PM", "AM") | ("pm", "am") => am = true,
                    _ => return Err(bad()),
                }
                v = &v[2..];
            }
            "MST" => {
                if let Some(r) = v.strip_prefix("UTC") {
                    zone = Some((0, "UTC".into()));
                    v = r;
                } else {
                    let n = v.bytes().take_while(u8::is_ascii_uppercase).count();
                    if !(3..=5).contains(&n) {
                        return Err(bad());
                    }
                    zone = Some((0, v[..n].into()));
                    v = &v[n..];
                }
            }
            z if z.starts_with(['Z', '-']) => {
                if z.starts_with('Z') && v.starts_with('Z') {
                    v = &v[1..];
                    zone = Some((0, "UTC".into()));
                    continue;
                }
                let colon = z.contains(':');
                let groups = z.bytes().filter(u8::is_ascii_digit).count() / 2;
                let sign = match v.as_bytes().first() {
                    Some(b'+') => 1,
                    Some(b'-') => -1,
                    _ => return Err(bad()),
                };
                v = &v[1..];
                let mut secs = 0i64;
                for (g, unit) in [3600, 60, 1].into_iter().take(groups).enumerate() {
                    if g > 0 && colon {
                        v = v.strip_prefix(':').ok_or_else(bad)?;
                    }
                    let n = num(&mut v, 2, 2)?;
                    if g == 0 && n > 24 || g > 0 && n > 60 {
                        return Err(bad());
                    }
                    secs += n * unit;
                }
                let secs = sign * secs as i32;
                zone = Some((secs, if secs == 0 { "UTC".into() } else { String::new() }));
            }
            frac => {
                let n = frac.len() - 1;
                if frac.as_bytes()[1] == b'0' {
                    let ok = v.starts_with(['.', ',']) && v.len() > n && v.as_bytes()[1..=n].iter().all(u8::is_ascii_digit);
                    if !ok {
                        return Err(bad());
                    }
                    nano = fraction(&v[1..=n]);
                    v = &v[n + 1..];
                } else if v.starts_with(['.', ',']) && v.as_bytes().get(1).is_some_and(u8::is_ascii_digit) {
                    let n = v.as_bytes()[1..].iter().take_while(|c| c.is_ascii_digit()).count();
                    nano = fraction(&v[1..=n]);
                    v = &v[n + 1..];
                }
            }
        }
    }
    if pm && hour < 12 {
        hour += 12;
    } else if am && hour == 12 {
        hour = 0;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if let Some(y) = yday {
        if y < 1 || y > 365 + u32::from(leap) {
            return Err(range("day-of-year"));
        }
        let (_, m, d) = civil(days_from(year, 1, 1) + y as i64 - 1);
        (month, day) = (Some(m), Some(d));
    }
    let (m, d) = (month.unwrap_or(1), day.unwrap_or(1));
    let last = match m {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if d < 1 || d > last {
        return Err(range("day"));
    }
    let zone = zone.unwrap_or((0, "UTC".into()));
    let secs = days_from(year, m, d) * 86_400 + hour as i64 * 3600 + min as i64 * 60 + sec as i64 - zone.0 as i64;
    Ok(Time { nanos: secs as i128 * 1_000_000_000 + nano as i128, zone, mono: None })
}

fn fraction(d: &str) -> u32 {
    let mut s: String = d.chars().take(9).collect();
    while s.len() < 9 {
        s.push('0');
    }
    s.parse().unwrap_or(0)
}
