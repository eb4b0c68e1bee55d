//! Methods and fields of the values that have some: files, version sets, capabilities, versions, times, certificates.

use crate::func::Ty::{self, Any, Str as S, Time as T};
use crate::func::{GoErr, Out, date};
use crate::glob::Glob;
use crate::run::Runtime;
use crate::value::{ListTy, Map, MapTy, Obj, Str, Time, Tree, Val};
use crate::yaml::to_yaml;
use base64::Engine as _;
use std::sync::Arc;

/// A method.
pub struct Method {
    /// Parameters.
    pub params: &'static [Ty],
    /// Type of further arguments.
    pub rest: Option<Ty>,
    /// Body: receiver and checked arguments.
    pub body: fn(&mut Runtime, &Val, &[Val]) -> Out,
}

const fn m(params: &'static [Ty], body: fn(&mut Runtime, &Val, &[Val]) -> Out) -> Method {
    Method { params, rest: None, body }
}

macro_rules! methods {
    ($name:expr, $($text:literal => $m:expr),+ $(,)?) => {
        match $name {
            $($text => {
                static M: Method = $m;
                Some(&M)
            })+
            _ => None,
        }
    };
}

/// The method of a value by name.
pub fn find(v: &Val, name: &[u8]) -> Option<&'static Method> {
    match v {
        Val::Map(map) => match map.ty {
            MapTy::Files => files(name),
            MapTy::Values => values(name),
            _ => None,
        },
        Val::List(l) if l.ty == ListTy::Versions => {
            methods!(name, b"Has" => m(&[S], |_, r, a| Ok(Val::Bool(matches!(r, Val::List(l) if l.v.iter().any(|v| v.deep_equal(&a[0])))))))
        }
        Val::Obj(o) => match &**o {
            Obj::Caps(_) => methods!(name, b"Copy" => m(&[], |_, r, _| Ok(r.clone()))),
            Obj::Kube(_) => methods!(name,
                b"String" => m(&[], |_, r, _| Ok(kube(r, |k| &k.normalized))),
                b"GitVersion" => m(&[], |_, r, _| Ok(kube(r, |k| &k.version))),
            ),
            Obj::Semver(_) => semver(name),
            Obj::Time(_) => times(name),
            Obj::Duration(_) => durations(name),
            Obj::Error(_) => methods!(name, b"Error" => m(&[], |_, r, _| Ok(Val::str(crate::text::fmt::sprint(r))))),
            Obj::Named(..) => methods!(name, b"String" => m(&[], |_, r, _| Ok(Val::str(crate::text::fmt::sprint(r))))),
            _ => None,
        },
        _ => None,
    }
}

/// The field of a struct by name.
pub fn field(v: &Val, name: &[u8]) -> Option<Val> {
    let Val::Obj(o) = v else { return None };
    let s = |t: &String| Some(Val::str(t.as_str()));
    match (&**o, name) {
        (Obj::Caps(c), b"KubeVersion") => Some(Val::obj(Obj::Kube(c.kube.clone()))),
        (Obj::Caps(c), b"APIVersions") => Some(c.apis.clone()),
        (Obj::Caps(c), b"HelmVersion") => Some(Val::obj(Obj::Helm(c.helm.clone()))),
        (Obj::Kube(k), b"Version") => s(&k.version),
        (Obj::Kube(k), b"Major") => s(&k.major),
        (Obj::Kube(k), b"Minor") => s(&k.minor),
        (Obj::Helm(h), b"Version") => s(&h.version),
        (Obj::Helm(h), b"GitCommit") => s(&h.commit),
        (Obj::Helm(h), b"GitTreeState") => s(&h.state),
        (Obj::Helm(h), b"GoVersion") => s(&h.go),
        (Obj::Helm(h), b"KubeClientVersion") => h.client.as_ref().and_then(s),
        (Obj::Cert(c), b"Cert") => s(&c.cert),
        (Obj::Cert(c), b"Key") => s(&c.key),
        _ => None,
    }
}

fn kube(r: &Val, get: fn(&crate::value::KubeVersion) -> &String) -> Val {
    match r {
        Val::Obj(o) => match &**o {
            Obj::Kube(k) => Val::str(get(k).as_str()),
            _ => Val::No,
        },
        _ => Val::No,
    }
}

fn map(r: &Val) -> Option<&Arc<Map>> {
    r.as_map()
}

fn text(v: &Val) -> &[u8] {
    v.as_str().map_or(b"", |s| s.as_bytes())
}

/// Bytes of a file as they are kept: a string.
fn content(r: &Val, name: &[u8]) -> Val {
    map(r).and_then(|m| m.get(name)).map_or_else(|| Val::str(""), |v| bytes_to_str(&v))
}

fn bytes_to_str(v: &Val) -> Val {
    match v {
        Val::List(l) => Val::str(l.v.iter().map(|b| if let Val::Byte(b) = b { *b } else { 0 }).collect::<Vec<u8>>()),
        v => v.clone(),
    }
}

/// A string as `[]byte`.
fn str_to_bytes(v: Val) -> Val {
    match v {
        Val::Str(s) => Val::typed_list(ListTy::Bytes, s.as_bytes().iter().map(|b| Val::Byte(*b)).collect()),
        v => v,
    }
}

fn flat(r: &Val, each: fn(&[u8]) -> Val) -> Out {
    let mut t = Tree::new();
    if let Some(m) = map(r) {
        for (k, v) in m.entries() {
            t.insert(Str::from(crate::func::path_base(k.as_bytes())), each(text(&bytes_to_str(&v))));
        }
    }
    let mut y = to_yaml(&Val::map(t)).unwrap_or_default();
    if y.last() == Some(&b'\n') {
        y.pop();
    }
    Ok(Val::str(y))
}

fn files(name: &[u8]) -> Option<&'static Method> {
    methods!(name,
        b"Get" => m(&[S], |_, r, a| Ok(content(r, text(&a[0])))),
        b"GetBytes" => m(&[S], |_, r, a| Ok(str_to_bytes(content(r, text(&a[0]))))),
        b"Glob" => m(&[S], |_, r, a| {
            let g = Glob::new(&crate::text::lossy(text(&a[0])));
            let t: Tree = map(r).map_or(Tree::new(), |m| m.entries().into_iter().filter(|(k, _)| g.matches(&k.text())).collect());
            Ok(Val::typed_map(MapTy::Files, t))
        }),
        b"AsConfig" => m(&[], |_, r, _| flat(r, |b| Val::str(b))),
        b"AsSecrets" => m(&[], |_, r, _| flat(r, |b| Val::str(base64::engine::general_purpose::STANDARD.encode(b)))),
        b"Lines" => m(&[S], |_, r, a| {
            let c = content(r, text(&a[0]));
            let b = text(&c);
            if b.is_empty() {
                return Ok(Val::typed_list(ListTy::Str, Vec::new()));
            }
            let b = b.strip_suffix(b"\n").unwrap_or(b);
            Ok(Val::typed_list(ListTy::Str, b.split(|c| *c == b'\n').map(Val::str).collect()))
        }),
    )
}

fn no_table(name: &[u8]) -> GoErr {
    GoErr::new(format!("{} is not a table", crate::text::quote::quote(name)))
}

fn table_at(r: &Val, path: &[u8]) -> Out {
    let mut at = r.clone();
    for part in path.split(|c| *c == b'.') {
        match at.as_table().and_then(|m| m.get(part)) {
            Some(v) if v.as_table().is_some() => at = v,
            _ => return Err(no_table(part)),
        }
    }
    match at {
        Val::Map(m) => Ok(Val::typed_map(MapTy::Values, m.lock().clone())),
        v => Ok(v),
    }
}

fn values(name: &[u8]) -> Option<&'static Method> {
    methods!(name,
        b"YAML" => m(&[], |_, r, _| Ok(Val::str(to_yaml(r).unwrap_or_default()))),
        b"AsMap" => m(&[], |_, r, _| Ok(match r {
            Val::Map(m) => Val::map(m.lock().clone()),
            r => r.clone(),
        })),
        b"Table" => m(&[S], |_, r, a| table_at(r, text(&a[0]))),
        b"PathValue" => m(&[S], |_, r, a| {
            let p = text(&a[0]);
            if p.is_empty() {
                return Err(GoErr::new("YAML path cannot be empty"));
            }
            let (head, key) = match p.iter().rposition(|c| *c == b'.') {
                Some(i) => (Some(&p[..i]), &p[i + 1..]),
                None => (None, p),
            };
            let none = || GoErr::new(format!("{} is not a value", crate::text::quote::quote(key)));
            let t = match head {
                Some(h) => table_at(r, h).map_err(|_| none())?,
                None => r.clone(),
            };
            match t.as_table().and_then(|m| m.get(key)) {
                Some(v) if v.as_table().is_none() => Ok(v),
                _ => Err(none()),
            }
        }),
    )
}

fn version(r: &Val) -> Option<&crate::func::semver::Version> {
    match r {
        Val::Obj(o) => match &**o {
            Obj::Semver(v) => Some(v),
            _ => None,
        },
        _ => None,
    }
}

fn with_version(r: &Val, get: impl FnOnce(&crate::func::semver::Version) -> Val) -> Out {
    Ok(version(r).map_or(Val::No, get))
}

fn compared(r: &Val, a: &[Val], test: fn(std::cmp::Ordering) -> bool) -> Out {
    match (version(r), version(&a[0])) {
        (Some(x), Some(y)) => Ok(Val::Bool(test(x.order(y)))),
        _ => Err(GoErr::new(format!("wrong type for value; expected *semver.Version; got {}", a[0].type_name()))),
    }
}

fn semver(name: &[u8]) -> Option<&'static Method> {
    methods!(name,
        b"Major" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Named("uint64", v.major as i64, String::new())))),
        b"Minor" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Named("uint64", v.minor as i64, String::new())))),
        b"Patch" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Named("uint64", v.patch as i64, String::new())))),
        b"Prerelease" => m(&[], |_, r, _| with_version(r, |v| Val::str(v.pre.as_str()))),
        b"Metadata" => m(&[], |_, r, _| with_version(r, |v| Val::str(v.meta.as_str()))),
        b"Original" => m(&[], |_, r, _| with_version(r, |v| Val::str(v.original.as_str()))),
        b"String" => m(&[], |_, r, _| with_version(r, |v| Val::str(v.to_string()))),
        b"IncMajor" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Semver(v.raised("IncMajor"))))),
        b"IncMinor" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Semver(v.raised("IncMinor"))))),
        b"IncPatch" => m(&[], |_, r, _| with_version(r, |v| Val::obj(Obj::Semver(v.raised("IncPatch"))))),
        b"Compare" => m(&[Any], |_, r, a| match (version(r), version(&a[0])) {
            (Some(x), Some(y)) => Ok(Val::Int(x.order(y) as i64)),
            _ => Err(GoErr::new("wrong type for value; expected *semver.Version")),
        }),
        b"LessThan" => m(&[Any], |_, r, a| compared(r, a, std::cmp::Ordering::is_lt)),
        b"LessThanEqual" => m(&[Any], |_, r, a| compared(r, a, std::cmp::Ordering::is_le)),
        b"GreaterThan" => m(&[Any], |_, r, a| compared(r, a, std::cmp::Ordering::is_gt)),
        b"GreaterThanEqual" => m(&[Any], |_, r, a| compared(r, a, std::cmp::Ordering::is_ge)),
        b"Equal" => m(&[Any], |_, r, a| compared(r, a, std::cmp::Ordering::is_eq)),
    )
}

fn time(r: &Val) -> Time {
    match r {
        Val::Obj(o) => match &**o {
            Obj::Time(t) => t.clone(),
            _ => date::ZERO,
        },
        _ => date::ZERO,
    }
}

fn dur(r: &Val) -> i64 {
    match r {
        Val::Obj(o) => match &**o {
            Obj::Duration(d) => *d,
            _ => 0,
        },
        Val::Int(i) | Val::Int64(i) => *i,
        _ => 0,
    }
}

fn duration(d: i128) -> Val {
    Val::obj(Obj::Duration(d.clamp(i64::MIN as i128, i64::MAX as i128) as i64))
}

fn times(name: &[u8]) -> Option<&'static Method> {
    methods!(name,
        b"Unix" => m(&[], |_, r, _| Ok(Val::Int64(time(r).nanos.div_euclid(1_000_000_000) as i64))),
        b"UnixMilli" => m(&[], |_, r, _| Ok(Val::Int64(time(r).nanos.div_euclid(1_000_000) as i64))),
        b"UnixMicro" => m(&[], |_, r, _| Ok(Val::Int64(time(r).nanos.div_euclid(1_000) as i64))),
        b"UnixNano" => m(&[], |_, r, _| Ok(Val::Int64(time(r).nanos as i64))),
        b"Year" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).year))),
        b"Day" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).day as i64))),
        b"Hour" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).hour as i64))),
        b"Minute" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).minute as i64))),
        b"Second" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).second as i64))),
        b"Nanosecond" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).nano as i64))),
        b"YearDay" => m(&[], |_, r, _| Ok(Val::Int(date::parts(&time(r)).yday as i64))),
        b"Month" => m(&[], |_, r, _| {
            let n = date::parts(&time(r)).month;
            Ok(Val::obj(Obj::Named("time.Month", n as i64, date::MONTHS[n as usize - 1].into())))
        }),
        b"Weekday" => m(&[], |_, r, _| {
            let n = date::parts(&time(r)).weekday;
            Ok(Val::obj(Obj::Named("time.Weekday", n as i64, date::DAYS[n as usize].into())))
        }),
        b"Format" => m(&[S], |_, r, a| Ok(Val::str(date::format(&crate::text::lossy(text(&a[0])), &time(r))))),
        b"String" => m(&[], |_, r, _| Ok(Val::str(date::show(&time(r))))),
        b"UTC" => m(&[], |_, r, _| Ok(Val::obj(Obj::Time(date::to_zone(&time(r), "UTC"))))),
        b"Local" => m(&[], |_, r, _| Ok(Val::obj(Obj::Time(date::to_zone(&time(r), "Local"))))),
        b"IsZero" => m(&[], |_, r, _| Ok(Val::Bool(time(r).nanos == date::ZERO.nanos))),
        b"Before" => m(&[T], |_, r, a| Ok(Val::Bool(time(r).nanos < time(&a[0]).nanos))),
        b"After" => m(&[T], |_, r, a| Ok(Val::Bool(time(r).nanos > time(&a[0]).nanos))),
        b"Equal" => m(&[T], |_, r, a| Ok(Val::Bool(time(r).nanos == time(&a[0]).nanos))),
        b"Sub" => m(&[T], |_, r, a| Ok(duration(time(r).nanos - time(&a[0]).nanos))),
        b"Add" => m(&[Any], |_, r, a| {
            let t = time(r);
            Ok(Val::obj(Obj::Time(Time { nanos: t.nanos + dur(&a[0]) as i128, ..t })))
        }),
        b"Truncate" => m(&[Any], |_, r, a| {
            let (t, d) = (time(r), dur(&a[0]) as i128);
            let from_zero = t.nanos - date::ZERO.nanos;
            Ok(Val::obj(Obj::Time(if d <= 0 { Time { mono: None, ..t } } else { Time { nanos: t.nanos - from_zero.rem_euclid(d), mono: None, ..t } })))
        }),
    )
}

fn durations(name: &[u8]) -> Option<&'static Method> {
    const S1: i64 = 1_000_000_000;
    methods!(name,
        b"String" => m(&[], |_, r, _| Ok(Val::str(crate::text::fmt::duration(dur(r))))),
        b"Nanoseconds" => m(&[], |_, r, _| Ok(Val::Int64(dur(r)))),
        b"Microseconds" => m(&[], |_, r, _| Ok(Val::Int64(dur(r) / 1_000))),
        b"Milliseconds" => m(&[], |_, r, _| Ok(Val::Int64(dur(r) / 1_000_000))),
        b"Seconds" => m(&[], |_, r, _| Ok(Val::Float((dur(r) / S1) as f64 + (dur(r) % S1) as f64 / 1e9))),
        b"Minutes" => m(&[], |_, r, _| Ok(Val::Float((dur(r) / (60 * S1)) as f64 + (dur(r) % (60 * S1)) as f64 / 6e10))),
        b"Hours" => m(&[], |_, r, _| Ok(Val::Float((dur(r) / (3600 * S1)) as f64 + (dur(r) % (3600 * S1)) as f64 / 3.6e12))),
        b"Abs" => m(&[], |_, r, _| Ok(duration((dur(r) as i128).abs()))),
        b"Round" => m(&[Any], |_, r, a| Ok(Val::obj(Obj::Duration(crate::func::round_duration(dur(r), dur(&a[0])))))),
        b"Truncate" => m(&[Any], |_, r, a| {
            let d = dur(&a[0]);
            Ok(Val::obj(Obj::Duration(if d <= 0 { dur(r) } else { dur(r) - dur(r) % d })))
        }),
    )
}
