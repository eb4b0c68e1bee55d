//! Functions of CEL and of Kubernetes' extension libraries.

use super::eval::{EvalError, Run, failed, tenth};
use super::semver::Semver;
use super::url::Url;
use super::value::{Key, Val, compare, equal};
use super::{format, time};
use crate::quantity::Quantity;
use std::net::IpAddr;
use std::sync::Arc;

type Res<'a> = Result<Val<'a>, EvalError>;

/// Identifiers before a dot that are no variables.
pub(crate) fn is_namespace(n: &str) -> bool {
    matches!(n, "optional" | "sets" | "format" | "ip" | "cidr" | "strings" | "lists" | "math" | "base64")
}

fn text(s: &str) -> Val<'static> {
    Val::string(s)
}

fn int(n: usize) -> Val<'static> {
    Val::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

fn some<'a>(v: Val<'a>) -> Val<'a> {
    Val::Optional(Some(Arc::new(v)))
}

fn list<'a>(items: Vec<Val<'a>>) -> Val<'a> {
    Val::List(Arc::new(items))
}

fn regex(pattern: &str) -> Result<regex::Regex, EvalError> {
    crate::text::go_regex(pattern).map_or_else(|| failed(format!("error parsing regexp: `{pattern}`")), Ok)
}

fn parse_ip(s: &str) -> Option<IpAddr> {
    let ip: IpAddr = s.parse().ok()?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn parse_cidr(s: &str) -> Option<(IpAddr, u8)> {
    let (a, p) = s.split_once('/')?;
    let ip = parse_ip(a)?;
    let p: u8 = p.parse().ok()?;
    (p <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, p))
}

fn bits(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(v) => (u128::from(u32::from(v)), 32),
        IpAddr::V6(v) => (u128::from(v), 128),
    }
}

fn contains_ip(net: (IpAddr, u8), ip: IpAddr) -> bool {
    let ((a, w), (b, x)) = (bits(net.0), bits(ip));
    let shift = u32::from(w - net.1);
    w == x && a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
}

fn masked(ip: IpAddr, p: u8) -> IpAddr {
    let (n, w) = bits(ip);
    let shift = u32::from(w - p);
    let n = n.checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
    match ip {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(n).unwrap_or(0).into()),
        IpAddr::V6(_) => IpAddr::V6(n.into()),
    }
}

/// Functions without target, namespaced ones by their full name.
pub(crate) fn global<'a>(run: &mut Run<'a, '_>, name: &str, args: &[Val<'a>]) -> Res<'a> {
    let cost = args.iter().filter_map(|a| if let Val::String(s) = a { Some(tenth(s.len())) } else { None }).sum::<u64>();
    run.spend(cost.max(1))?;
    match (name, args) {
        ("size", [v]) => v.size().map_or_else(|| failed("no such overload"), |n| Ok(int(n))),
        ("dyn", [v]) => Ok(v.clone()),
        ("type", [v]) => Ok(Val::Type(v.type_name().into())),
        ("int" | "uint" | "double" | "string" | "bytes" | "bool" | "duration" | "timestamp", [v]) => convert(name, v),
        ("matches", [v, p]) => member(run, v, "matches", std::slice::from_ref(p)),
        ("quantity", [Val::String(s)]) => Quantity::parse(s).map_or_else(|e| failed(e.to_string()), |q| Ok(Val::Quantity(q))),
        ("isQuantity", [Val::String(s)]) => Ok(Val::Bool(Quantity::parse(s).is_ok())),
        ("url", [Val::String(s)]) => Url::parse(s).map_or_else(|| failed(format!("URL parse error during conversion from string: parse {}: invalid URI for request", crate::fault::quote(s))), |u| Ok(Val::Url(Arc::new(u)))),
        ("isURL", [Val::String(s)]) => Ok(Val::Bool(Url::parse(s).is_some())),
        ("ip", [Val::String(s)]) => parse_ip(s).map_or_else(|| failed(format!("IP Address {} parse error during conversion from string: unable to parse IP", crate::fault::quote(s))), |i| Ok(Val::Ip(i))),
        ("isIP", [Val::String(s)]) => Ok(Val::Bool(parse_ip(s).is_some())),
        ("ip.isCanonical", [Val::String(s)]) => parse_ip(s).map_or_else(|| failed("unable to parse IP"), |i| Ok(Val::Bool(i.to_string() == **s))),
        ("cidr", [Val::String(s)]) => parse_cidr(s).map_or_else(|| failed(format!("network address parse error during conversion from string: netip.ParsePrefix({}): no valid prefix", crate::fault::quote(s))), |(i, p)| Ok(Val::Cidr(i, p))),
        ("isCIDR", [Val::String(s)]) => Ok(Val::Bool(parse_cidr(s).is_some())),
        ("semver", [Val::String(s)]) => semver(s, false),
        ("semver", [Val::String(s), Val::Bool(b)]) => semver(s, *b),
        ("isSemver", [Val::String(s)]) => Ok(Val::Bool(Semver::parse(s, false).is_some())),
        ("isSemver", [Val::String(s), Val::Bool(b)]) => Ok(Val::Bool(Semver::parse(s, *b).is_some())),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [v]) => Ok(some(v.clone())),
        ("optional.ofNonZeroValue", [v]) => Ok(if is_zero(v) { Val::Optional(None) } else { some(v.clone()) }),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [a, b]) => {
            let (Some(x), Some(y)) = (a.items(), b.items()) else { return failed("no such overload") };
            run.spend(u64::try_from(x.len() * y.len()).unwrap_or(u64::MAX))?;
            let within = |a: &[Val<'a>], b: &[Val<'a>]| b.iter().all(|i| a.iter().any(|j| equal(i, j)));
            Ok(Val::Bool(match name {
                "sets.contains" => within(&x, &y),
                "sets.equivalent" => within(&x, &y) && within(&y, &x),
                _ => x.iter().any(|i| y.iter().any(|j| equal(i, j))),
            }))
        }
        ("strings.quote", [Val::String(s)]) => Ok(text(&crate::fault::quote(s))),
        ("lists.range", [Val::Int(n)]) => {
            run.spend(u64::try_from(*n).unwrap_or(0))?;
            Ok(list((0..*n).map(Val::Int).collect()))
        }
        ("math.greatest" | "math.least", args) if !args.is_empty() => {
            let owned;
            let items = match args {
                [one] if one.items().is_some() => {
                    owned = one.items().unwrap_or_default();
                    owned.as_slice()
                }
                many => many,
            };
            extreme(items, name.ends_with("greatest"))
        }
        ("base64.encode", [Val::Bytes(b)]) => {
            use base64::Engine;
            Ok(text(&base64::engine::general_purpose::STANDARD.encode(b)))
        }
        ("base64.decode", [Val::String(s)]) => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(s.as_bytes()).map_or_else(|_| failed("illegal base64 data"), |b| Ok(Val::Bytes(b.into())))
        }
        ("format.named", [Val::String(n)]) => Ok(format::NAMES.iter().find(|x| **x == &**n).map_or(Val::Optional(None), |x| some(Val::Format(x)))),
        (n, []) if n.starts_with("format.") => {
            let short = &n["format.".len()..];
            format::NAMES.iter().find(|x| **x == short).map_or_else(|| failed(format!("undeclared reference to '{short}' (in container '')")), |x| Ok(Val::Format(x)))
        }
        _ => failed("no such overload"),
    }
}

fn semver<'a>(s: &str, lenient: bool) -> Res<'a> {
    Semver::parse(s, lenient).map_or_else(|| failed(format!("semver parse error during conversion from string: No Major.Minor.Patch elements found: {s}")), |v| Ok(Val::Semver(Arc::new(v))))
}

fn is_zero(v: &Val<'_>) -> bool {
    match v {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) | Val::Optional(None) => true,
        Val::Double(d) => *d == 0.0,
        v => v.size() == Some(0),
    }
}

fn convert<'a>(to: &str, v: &Val<'a>) -> Res<'a> {
    let range = || failed("integer overflow");
    let bad = |s: &str| failed(format!("type conversion error from 'string' to '{to}': {s}"));
    match (to, v) {
        ("int", Val::Int(_)) | ("uint", Val::Uint(_)) | ("double", Val::Double(_)) | ("string", Val::String(_)) | ("bytes", Val::Bytes(_)) | ("bool", Val::Bool(_)) | ("duration", Val::Duration(_)) | ("timestamp", Val::Timestamp(_)) => Ok(v.clone()),
        ("int", Val::Uint(u)) => i64::try_from(*u).map_or_else(|_| range(), |i| Ok(Val::Int(i))),
        ("int", Val::Double(d)) if d.is_finite() && d.abs() < 9.223_372_036_854_775e18 => Ok(Val::Int(*d as i64)),
        ("int" | "uint", Val::Double(_)) if to == "int" => range(),
        ("int", Val::String(s)) => s.parse().map_or_else(|_| bad(s), |i| Ok(Val::Int(i))),
        ("int", Val::Timestamp(t)) => Ok(Val::Int(t.as_second())),
        ("int", Val::Duration(d)) => Ok(Val::Int(i64::try_from(*d).unwrap_or(i64::MAX))),
        ("uint", Val::Int(i)) => u64::try_from(*i).map_or_else(|_| failed("unsigned integer overflow"), |u| Ok(Val::Uint(u))),
        ("uint", Val::Double(d)) if *d >= 0.0 && *d < 1.8e19 => Ok(Val::Uint(*d as u64)),
        ("uint", Val::String(s)) => s.parse().map_or_else(|_| bad(s), |i| Ok(Val::Uint(i))),
        ("double", Val::Int(i)) => Ok(Val::Double(*i as f64)),
        ("double", Val::Uint(u)) => Ok(Val::Double(*u as f64)),
        ("double", Val::String(s)) => s.parse().map_or_else(|_| bad(s), |d| Ok(Val::Double(d))),
        ("string", Val::Int(i)) => Ok(text(&i.to_string())),
        ("string", Val::Uint(u)) => Ok(text(&u.to_string())),
        ("string", Val::Double(d)) => Ok(text(&d.to_string())),
        ("string", Val::Bool(b)) => Ok(text(&b.to_string())),
        ("string", Val::Bytes(b)) => std::str::from_utf8(b).map_or_else(|_| failed("invalid UTF-8 in bytes, cannot convert to string"), |s| Ok(text(s))),
        ("string", Val::Timestamp(t)) => Ok(text(&t.to_string())),
        ("string", Val::Duration(d)) => Ok(text(&format::seconds(*d))),
        ("string", Val::Ip(i)) => Ok(text(&i.to_string())),
        ("string", Val::Cidr(i, p)) => Ok(text(&format!("{i}/{p}"))),
        ("bytes", Val::String(s)) => Ok(Val::Bytes(s.as_bytes().into())),
        ("bool", Val::String(s)) => match &**s {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            s => bad(s),
        },
        ("duration", Val::String(s)) => super::duration::parse(s).map_or_else(|| bad(s), |d| Ok(Val::Duration(d))),
        ("duration", Val::Int(n)) => Ok(Val::Duration(i128::from(*n))),
        ("timestamp", Val::String(s)) => s.parse().map_or_else(|_| bad(s), |t| Ok(Val::Timestamp(t))),
        ("timestamp", Val::Int(n)) => jiff::Timestamp::from_second(*n).map_or_else(|_| failed("timestamp overflow"), |t| Ok(Val::Timestamp(t))),
        _ => failed("no such overload"),
    }
}

fn extreme<'a>(items: &[Val<'a>], largest: bool) -> Res<'a> {
    let mut best: Option<&Val<'a>> = None;
    for v in items {
        let better = match best {
            None => true,
            Some(b) => match compare(v, b) {
                Some(o) => if largest { o.is_gt() } else { o.is_lt() },
                None => return failed("no such overload"),
            },
        };
        if better {
            best = Some(v);
        }
    }
    best.cloned().map_or_else(|| failed(format!("{} called on empty list", if largest { "max" } else { "min" })), Ok)
}

/// Member functions.
pub(crate) fn member<'a>(run: &mut Run<'a, '_>, v: &Val<'a>, name: &str, args: &[Val<'a>]) -> Res<'a> {
    if let Val::String(s) = v {
        run.spend(tenth(s.len()))?;
        if let Some(r) = super::strings::member(run, s, name, args) {
            return r;
        }
    } else {
        run.spend(1)?;
    }
    if let (Val::Timestamp(_) | Val::Duration(_), true) = (v, name.starts_with("get")) {
        return time::member(v, name, args);
    }
    match (v, name, args) {
        (_, "size", []) => v.size().map_or_else(|| failed("no such overload"), |n| Ok(int(n))),
        (Val::Optional(o), "hasValue", []) => Ok(Val::Bool(o.is_some())),
        (Val::Optional(o), "value", []) => o.as_ref().map_or_else(|| failed("optional.none() dereference"), |x| Ok(x.as_ref().clone())),
        (Val::Quantity(q), _, _) => quantity(q, name, args),
        (Val::Semver(s), _, _) => match (name, args) {
            ("major", []) => Ok(Val::Int(i64::try_from(s.major).unwrap_or(i64::MAX))),
            ("minor", []) => Ok(Val::Int(i64::try_from(s.minor).unwrap_or(i64::MAX))),
            ("patch", []) => Ok(Val::Int(i64::try_from(s.patch).unwrap_or(i64::MAX))),
            ("isGreaterThan", [Val::Semver(o)]) => Ok(Val::Bool(s.order(o).is_gt())),
            ("isLessThan", [Val::Semver(o)]) => Ok(Val::Bool(s.order(o).is_lt())),
            ("compareTo", [Val::Semver(o)]) => Ok(Val::Int(s.order(o) as i64)),
            _ => failed("no such overload"),
        },
        (Val::Url(u), _, []) => match name {
            "getScheme" => Ok(text(&u.scheme)),
            "getHost" => Ok(text(&u.host)),
            "getHostname" => Ok(text(u.hostname())),
            "getPort" => Ok(text(u.port())),
            "getEscapedPath" => Ok(text(&u.path)),
            "getQuery" => Ok(query(&u.query)),
            _ => failed("no such overload"),
        },
        (Val::Ip(ip), _, []) => match (name, ip) {
            ("family", ip) => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
            ("isUnspecified", ip) => Ok(Val::Bool(ip.is_unspecified())),
            ("isLoopback", ip) => Ok(Val::Bool(ip.is_loopback())),
            ("isLinkLocalMulticast", IpAddr::V4(i)) => Ok(Val::Bool(i.octets()[..3] == [224, 0, 0])),
            ("isLinkLocalMulticast", IpAddr::V6(i)) => Ok(Val::Bool(i.segments()[0] & 0xff0f == 0xff02)),
            ("isLinkLocalUnicast", IpAddr::V4(i)) => Ok(Val::Bool(i.is_link_local())),
            ("isLinkLocalUnicast", IpAddr::V6(i)) => Ok(Val::Bool(i.segments()[0] & 0xffc0 == 0xfe80)),
            ("isGlobalUnicast", IpAddr::V4(i)) => Ok(Val::Bool(!i.is_broadcast() && !i.is_unspecified() && !i.is_loopback() && !i.is_multicast() && !i.is_link_local())),
            ("isGlobalUnicast", IpAddr::V6(i)) => Ok(Val::Bool(!i.is_unspecified() && !i.is_loopback() && !i.is_multicast() && i.segments()[0] & 0xffc0 != 0xfe80)),
            _ => failed("no such overload"),
        },
        (Val::Cidr(ip, p), _, _) => match (name, args) {
            ("containsIP", [Val::Ip(i)]) => Ok(Val::Bool(contains_ip((*ip, *p), *i))),
            ("containsIP", [Val::String(s)]) => parse_ip(s).map_or_else(|| failed("unable to parse IP"), |i| Ok(Val::Bool(contains_ip((*ip, *p), i)))),
            ("containsCIDR", [Val::Cidr(i, q)]) => Ok(Val::Bool(q >= p && contains_ip((*ip, *p), *i))),
            ("containsCIDR", [Val::String(s)]) => parse_cidr(s).map_or_else(|| failed("no valid prefix"), |(i, q)| Ok(Val::Bool(q >= *p && contains_ip((*ip, *p), i)))),
            ("ip", []) => Ok(Val::Ip(*ip)),
            ("masked", []) => Ok(Val::Cidr(masked(*ip, *p), *p)),
            ("prefixLength", []) => Ok(Val::Int(i64::from(*p))),
            _ => failed("no such overload"),
        },
        (Val::Format(f), "validate", [Val::String(s)]) => Ok(match format::faults(f, s) {
            faults if faults.is_empty() => Val::Optional(None),
            faults => some(list(faults.iter().map(|m| text(m)).collect())),
        }),
        _ => match v.items() {
            Some(items) => of_list(run, &items, name, args),
            None => failed("no such overload"),
        },
    }
}

fn query(q: &str) -> Val<'static> {
    let mut out: std::collections::BTreeMap<Key, Vec<Val<'static>>> = std::collections::BTreeMap::new();
    for pair in q.split('&').filter(|p| !p.is_empty()) {
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        out.entry(Key::String(unescape(k).as_str().into())).or_default().push(text(&unescape(v)));
    }
    Val::Map(Arc::new(out.into_iter().map(|(k, v)| (k, list(v))).collect()))
}

fn unescape(s: &str) -> String {
    let mut out = Vec::new();
    let b = s.as_bytes();
    let mut i = 0;
    while i < b.len() {
        let hex = b.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (b[i], hex) {
            (b'%', Some(c)) => {
                out.push(c);
                i += 2;
            }
            (b'+', _) => out.push(b' '),
            (c, _) => out.push(c),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn quantity<'a>(q: &Quantity, name: &str, args: &[Val<'a>]) -> Res<'a> {
    let other = match args {
        [Val::Quantity(o)] => Some(*o),
        [Val::Int(i)] => Some(Quantity::from_int(*i)),
        _ => None,
    };
    match (name, other, args.len()) {
        ("sign", None, 0) => Ok(Val::Int(i64::from(q.sign()))),
        ("isInteger", None, 0) => Ok(Val::Bool(q.is_integer())),
        ("asInteger", None, 0) if q.is_integer() => Ok(Val::Int(q.value())),
        ("asInteger", None, 0) => failed("cannot convert value to integer"),
        ("asApproximateFloat", None, 0) => Ok(Val::Double(q.nanos() as f64 / 1e9)),
        ("add", Some(o), 1) => Ok(Val::Quantity(q.add(&o))),
        ("sub", Some(o), 1) => Ok(Val::Quantity(q.sub(&o))),
        ("isGreaterThan", Some(o), 1) => Ok(Val::Bool(q.nanos() > o.nanos())),
        ("isLessThan", Some(o), 1) => Ok(Val::Bool(q.nanos() < o.nanos())),
        ("compareTo", Some(o), 1) => Ok(Val::Int(q.nanos().cmp(&o.nanos()) as i64)),
        _ => failed("no such overload"),
    }
}

fn of_list<'a>(run: &mut Run<'a, '_>, items: &[Val<'a>], name: &str, args: &[Val<'a>]) -> Res<'a> {
    run.spend(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
    match (name, args) {
        ("isSorted", []) => Ok(Val::Bool(items.windows(2).all(|w| compare(&w[0], &w[1]).is_some_and(|o| o.is_le())))),
        ("sum", []) => {
            let mut total = match items.first() {
                Some(Val::Double(_)) => Val::Double(0.0),
                Some(Val::Uint(_)) => Val::Uint(0),
                Some(Val::Duration(_)) => Val::Duration(0),
                _ => Val::Int(0),
            };
            for i in items {
                total = match (&total, i) {
                    (Val::Int(a), Val::Int(b)) => a.checked_add(*b).map(Val::Int),
                    (Val::Uint(a), Val::Uint(b)) => a.checked_add(*b).map(Val::Uint),
                    (Val::Double(a), Val::Double(b)) => Some(Val::Double(a + b)),
                    (Val::Duration(a), Val::Duration(b)) => Some(Val::Duration(a + b)),
                    _ => None,
                }
                .map_or_else(|| failed("integer overflow"), Ok)?;
            }
            Ok(total)
        }
        ("min", []) => extreme(items, false),
        ("max", []) => extreme(items, true),
        ("indexOf", [x]) => Ok(items.iter().position(|i| equal(i, x)).map_or(Val::Int(-1), int)),
        ("lastIndexOf", [x]) => Ok(items.iter().rposition(|i| equal(i, x)).map_or(Val::Int(-1), int)),
        ("join", []) | ("join", [Val::String(_)]) => {
            let sep = if let [Val::String(s)] = args { s.to_string() } else { String::new() };
            let mut parts = Vec::with_capacity(items.len());
            for i in items {
                let Val::String(s) = i else { return failed("no such overload") };
                parts.push(s.to_string());
            }
            Ok(text(&parts.join(&sep)))
        }
        ("reverse", []) => Ok(list(items.iter().rev().cloned().collect())),
        ("distinct", []) => {
            let mut out: Vec<Val<'a>> = Vec::new();
            for i in items {
                if !out.iter().any(|o| equal(o, i)) {
                    out.push(i.clone());
                }
            }
            Ok(list(out))
        }
        ("sort", []) => {
            let mut out = items.to_vec();
            out.sort_by(|a, b| compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
            Ok(list(out))
        }
        ("slice", [Val::Int(a), Val::Int(b)]) => {
            let (a, b) = (usize::try_from(*a).unwrap_or(usize::MAX), usize::try_from(*b).unwrap_or(usize::MAX));
            items.get(a..b).map_or_else(|| failed("cannot slice"), |s| Ok(list(s.to_vec())))
        }
        ("flatten", []) => Ok(list(items.iter().flat_map(|i| i.items().unwrap_or_else(|| vec![i.clone()])).collect())),
        ("first", []) => Ok(Val::Optional(items.first().cloned().map(Arc::new))),
        ("last", []) => Ok(Val::Optional(items.last().cloned().map(Arc::new))),
        ("containsIP" | "containsCIDR", _) => failed("no such overload"),
        _ => failed("no such overload"),
    }
}

pub(crate) fn compile_regex(p: &str) -> Result<regex::Regex, EvalError> {
    regex(p)
}
