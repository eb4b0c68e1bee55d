//! Parts of timestamps and durations.

use super::eval::{EvalError, failed};
use super::value::Val;
use jiff::tz::TimeZone;

/// `getHours()` and its kin, with an optional time zone.
pub(crate) fn member<'a>(v: &Val<'a>, name: &str, args: &[Val<'a>]) -> Result<Val<'a>, EvalError> {
    if let (Val::Duration(d), []) = (v, args) {
        let n = match name {
            "getHours" => d / 3_600_000_000_000,
            "getMinutes" => d / 60_000_000_000,
            "getSeconds" => d / 1_000_000_000,
            "getMilliseconds" => d / 1_000_000,
            _ => return failed("no such overload"),
        };
        return Ok(Val::Int(i64::try_from(n).unwrap_or(i64::MAX)));
    }
    let Val::Timestamp(t) = v else { return failed("no such overload") };
    let zone = match args {
        [] => TimeZone::UTC,
        [Val::String(s)] => match offset(s) {
            Some(z) => z,
            None => return failed(format!("unknown time zone {s}")),
        },
        _ => return failed("no such overload"),
    };
    let z = t.to_zoned(zone);
    let n = match name {
        "getFullYear" => i64::from(z.year()),
        "getMonth" => i64::from(z.month()) - 1,
        "getDayOfMonth" => i64::from(z.day()) - 1,
        "getDate" => i64::from(z.day()),
        "getDayOfWeek" => i64::from(z.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(z.day_of_year()) - 1,
        "getHours" => i64::from(z.hour()),
        "getMinutes" => i64::from(z.minute()),
        "getSeconds" => i64::from(z.second()),
        "getMilliseconds" => i64::from(z.millisecond()),
        _ => return failed("no such overload"),
    };
    Ok(Val::Int(n))
}

/// `UTC` and fixed offsets such as `-08:00`; named zones need a database, which pure code does not read.
fn offset(s: &str) -> Option<TimeZone> {
    if matches!(s, "UTC" | "GMT" | "Z" | "") {
        return Some(TimeZone::UTC);
    }
    let (sign, rest) = match s.strip_prefix('-') {
        Some(r) => (-1, r),
        None => (1, s.strip_prefix('+').unwrap_or(s)),
    };
    let (h, m) = rest.split_once(':')?;
    let (h, m): (i32, i32) = (h.parse().ok()?, m.parse().ok()?);
    jiff::tz::Offset::from_seconds(sign * (h * 3600 + m * 60)).ok().map(TimeZone::fixed)
}
