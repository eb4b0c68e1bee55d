//! Values of CEL. Objects from requests stay JSON until a field of them is asked for.

use crate::fields::{equal as json_equal, order as json_order};
use crate::quantity::Quantity;
use crate::structural::{Additional, Schema, Type};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A value.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// null
    Null,
    /// bool
    Bool(bool),
    /// int
    Int(i64),
    /// uint
    Uint(u64),
    /// double
    Double(f64),
    /// string
    String(Arc<str>),
    /// bytes
    Bytes(Arc<[u8]>),
    /// list
    List(Arc<Vec<Val<'a>>>),
    /// map
    Map(Arc<BTreeMap<Key, Val<'a>>>),
    /// A list or map of a request, with its schema when one is known.
    Json(&'a Value, Option<&'a Schema>),
    /// google.protobuf.Duration, in nanoseconds
    Duration(i128),
    /// google.protobuf.Timestamp
    Timestamp(jiff::Timestamp),
    /// optional_type
    Optional(Option<Arc<Val<'a>>>),
    /// type
    Type(Arc<str>),
    /// kubernetes.Quantity
    Quantity(Quantity),
    /// net.IP
    Ip(IpAddr),
    /// net.CIDR
    Cidr(IpAddr, u8),
    /// kubernetes.URL
    Url(Arc<super::url::Url>),
    /// kubernetes.Semver
    Semver(Arc<super::semver::Semver>),
    /// kubernetes.NamedFormat
    Format(&'static str),
}

/// Keys of maps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// bool
    Bool(bool),
    /// int and uint
    Int(i128),
    /// string
    String(Arc<str>),
}

impl Key {
    pub(crate) fn val<'a>(&self) -> Val<'a> {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(i) => i64::try_from(*i).map(Val::Int).unwrap_or(Val::Uint(u64::try_from(*i).unwrap_or(u64::MAX))),
            Self::String(s) => Val::String(s.clone()),
        }
    }
    pub(crate) fn of(v: &Val<'_>) -> Option<Self> {
        Some(match v {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(i) => Self::Int(i128::from(*i)),
            Val::Uint(u) => Self::Int(i128::from(*u)),
            Val::Double(d) if d.fract() == 0.0 && d.abs() < 9e18 => Self::Int(*d as i128),
            Val::String(s) => Self::String(s.clone()),
            _ => return None,
        })
    }
}

/// A JSON value as CEL sees it under its schema.
pub(crate) fn of_json<'a>(v: &'a Value, s: Option<&'a Schema>) -> Val<'a> {
    match v {
        Value::Null => Val::Null,
        Value::Bool(b) => Val::Bool(*b),
        Value::Number(n) => match (s.and_then(|s| s.ty), n.as_i64()) {
            (Some(Type::Number), _) => Val::Double(n.as_f64().unwrap_or(0.0)),
            (_, Some(i)) => Val::Int(i),
            (_, None) => n.as_u64().map_or_else(|| Val::Double(n.as_f64().unwrap_or(0.0)), Val::Uint),
        },
        Value::String(t) => {
            let format = s.and_then(|s| s.limits.format.as_deref());
            match format {
                Some("date-time") => t.parse().map_or_else(|_| Val::String(t.as_str().into()), Val::Timestamp),
                Some("date") => format!("{t}T00:00:00Z").parse().map_or_else(|_| Val::String(t.as_str().into()), Val::Timestamp),
                Some("duration") => super::duration::parse(t).map_or_else(|| Val::String(t.as_str().into()), Val::Duration),
                Some("byte") => {
                    use base64::Engine;
                    base64::engine::general_purpose::STANDARD.decode(t).map_or_else(|_| Val::String(t.as_str().into()), |b| Val::Bytes(b.into()))
                }
                _ => Val::String(t.as_str().into()),
            }
        }
        Value::Array(_) | Value::Object(_) => Val::Json(v, s),
    }
}

/// The schema of a field or entry.
pub(crate) fn child_schema<'a>(s: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    let s = s?;
    s.properties.get(name).or(match &s.additional {
        Some(Additional::Schema(a)) => Some(a),
        _ => None,
    })
}

/// A property name as it is written in rules: `a-b` is `a__dash__b`.
pub(crate) fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        return None;
    }
    let mut out = String::new();
    let mut rest = name;
    if let Some(word) = name.strip_prefix("__").and_then(|n| n.strip_suffix("__")) {
        const KEYWORDS: [&str; 21] = [
            "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
        ];
        if KEYWORDS.contains(&word) {
            return Some(word.to_owned());
        }
    }
    while let Some(i) = rest.find("__") {
        out.push_str(&rest[..i]);
        let tail = &rest[i..];
        let (piece, with) = if tail.starts_with("__dot__") {
            (7, ".")
        } else if tail.starts_with("__dash__") {
            (8, "-")
        } else if tail.starts_with("__slash__") {
            (9, "/")
        } else if tail.starts_with("__underscores__") {
            (15, "__")
        } else {
            return None;
        };
        out.push_str(with);
        rest = &tail[piece..];
    }
    out.push_str(rest);
    Some(out)
}

impl<'a> Val<'a> {
    /// A string value.
    pub fn string(s: &str) -> Self {
        Self::String(s.into())
    }

    /// Name of the type as CEL's `type()` gives it.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Json(Value::Array(_), _) => "list",
            Self::Map(_) | Self::Json(..) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// The elements of a list.
    pub(crate) fn items(&self) -> Option<Vec<Val<'a>>> {
        match self {
            Self::List(l) => Some(l.as_ref().clone()),
            Self::Json(Value::Array(a), s) => Some(a.iter().map(|v| of_json(v, s.and_then(|s| s.items.as_deref()))).collect()),
            _ => None,
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Option<Vec<(Key, Val<'a>)>> {
        match self {
            Self::Map(m) => Some(m.iter().map(|(k, v)| (k.clone(), v.clone())).collect()),
            Self::Json(Value::Object(o), s) => Some(o.iter().map(|(k, v)| (Key::String(k.as_str().into()), of_json(v, child_schema(*s, k)))).collect()),
            _ => None,
        }
    }

    /// Number of elements, entries, characters or bytes.
    pub(crate) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::String(s) => s.chars().count(),
            Self::Bytes(b) => b.len(),
            Self::List(l) => l.len(),
            Self::Map(m) => m.len(),
            Self::Json(Value::Array(a), _) => a.len(),
            Self::Json(Value::Object(o), _) => o.len(),
            _ => return None,
        })
    }

    /// A field or entry by name.
    pub(crate) fn field(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Self::Map(m) => m.get(&Key::String(name.into())).cloned(),
            Self::Json(Value::Object(o), s) => {
                if let Some(v) = o.get(name) {
                    return Some(of_json(v, child_schema(*s, name)));
                }
                let raw = unescape(name)?;
                o.get(&raw).map(|v| of_json(v, child_schema(*s, &raw)))
            }
            Self::Optional(Some(v)) => v.field(name),
            _ => None,
        }
    }

    /// As JSON, for messages and mutations.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null | Self::Optional(None) => Value::Null,
            Self::Bool(b) => Value::from(*b),
            Self::Int(i) => Value::from(*i),
            Self::Uint(u) => Value::from(*u),
            Self::Double(d) => Value::from(*d),
            Self::String(s) => Value::from(s.as_ref()),
            Self::Bytes(b) => {
                use base64::Engine;
                Value::from(base64::engine::general_purpose::STANDARD.encode(b))
            }
            Self::List(l) => Value::Array(l.iter().map(Val::to_json).collect()),
            Self::Map(m) => {
                let mut o = Map::new();
                for (k, v) in m.iter() {
                    let k = match k {
                        Key::String(s) => s.to_string(),
                        Key::Bool(b) => b.to_string(),
                        Key::Int(i) => i.to_string(),
                    };
                    o.insert(k, v.to_json());
                }
                Value::Object(o)
            }
            Self::Json(v, _) => (*v).clone(),
            Self::Duration(n) => Value::from(super::duration::show(*n)),
            Self::Timestamp(t) => Value::from(t.to_string()),
            Self::Optional(Some(v)) => v.to_json(),
            Self::Type(t) => Value::from(t.as_ref()),
            Self::Quantity(q) => Value::from(q.canonical()),
            Self::Ip(i) => Value::from(i.to_string()),
            Self::Cidr(i, p) => Value::from(format!("{i}/{p}")),
            Self::Url(u) => Value::from(u.text.as_str()),
            Self::Semver(v) => Value::from(v.to_string()),
            Self::Format(f) => Value::from(*f),
        }
    }
}

/// Equality across types: numbers by value, sets regardless of order, all else by structure.
pub(crate) fn equal(a: &Val<'_>, b: &Val<'_>) -> bool {
    if let (Val::Json(x, s), Val::Json(y, _)) = (a, b) {
        if s.is_none_or(|s| s.list_type.as_deref() != Some("set") && s.list_type.as_deref() != Some("map")) && json_equal(x, y) {
            return true;
        }
    }
    if let (Some(x), Some(y)) = (a.items(), b.items()) {
        if x.len() != y.len() {
            return false;
        }
        let unordered = matches!(a, Val::Json(_, Some(s)) if matches!(s.list_type.as_deref(), Some("set" | "map")));
        if unordered {
            return x.iter().all(|i| y.iter().any(|j| equal(i, j)));
        }
        return x.iter().zip(&y).all(|(i, j)| equal(i, j));
    }
    if let (Some(x), Some(y)) = (a.entries(), b.entries()) {
        return x.len() == y.len() && x.iter().zip(&y).all(|((k, v), (l, w))| k == l && equal(v, w));
    }
    match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(x), Val::Bool(y)) => x == y,
        (Val::String(x), Val::String(y)) => x == y,
        (Val::Bytes(x), Val::Bytes(y)) => x == y,
        (Val::Type(x), Val::Type(y)) => x == y,
        (Val::Optional(None), Val::Optional(None)) => true,
        (Val::Optional(Some(x)), Val::Optional(Some(y))) => equal(x, y),
        (Val::Url(x), Val::Url(y)) => x.text == y.text,
        (Val::Ip(x), Val::Ip(y)) => x == y,
        (Val::Cidr(x, p), Val::Cidr(y, q)) => x == y && p == q,
        (Val::Semver(x), Val::Semver(y)) => x.order(y).is_eq(),
        _ => compare(a, b) == Some(Ordering::Equal),
    }
}

/// Order of two values of comparable types.
pub(crate) fn compare(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    Some(match (a, b) {
        (Val::Int(x), Val::Int(y)) => x.cmp(y),
        (Val::Uint(x), Val::Uint(y)) => x.cmp(y),
        (Val::Int(x), Val::Uint(y)) => i128::from(*x).cmp(&i128::from(*y)),
        (Val::Uint(x), Val::Int(y)) => i128::from(*x).cmp(&i128::from(*y)),
        (Val::Double(x), Val::Double(y)) => return x.partial_cmp(y),
        (Val::Double(x), Val::Int(y)) => return x.partial_cmp(&(*y as f64)),
        (Val::Int(x), Val::Double(y)) => return (*x as f64).partial_cmp(y),
        (Val::Double(x), Val::Uint(y)) => return x.partial_cmp(&(*y as f64)),
        (Val::Uint(x), Val::Double(y)) => return (*x as f64).partial_cmp(y),
        (Val::Bool(x), Val::Bool(y)) => x.cmp(y),
        (Val::String(x), Val::String(y)) => x.cmp(y),
        (Val::Bytes(x), Val::Bytes(y)) => x.cmp(y),
        (Val::Duration(x), Val::Duration(y)) => x.cmp(y),
        (Val::Timestamp(x), Val::Timestamp(y)) => x.cmp(y),
        (Val::Quantity(x), Val::Quantity(y)) => return x.partial_cmp(y),
        (Val::Semver(x), Val::Semver(y)) => x.order(y),
        _ => return None,
    })
}

/// Joins two lists: sets by union, keyed lists by key, all others end to end.
pub(crate) fn join<'a>(a: &Val<'a>, b: &Val<'a>) -> Option<Val<'a>> {
    let (mut x, y) = (a.items()?, b.items()?);
    let schema = match a {
        Val::Json(_, s) => *s,
        _ => None,
    };
    match schema.and_then(|s| s.list_type.as_deref()) {
        Some("set") => {
            for j in y {
                if !x.iter().any(|i| equal(i, &j)) {
                    x.push(j);
                }
            }
        }
        Some("map") => {
            let keys = schema.map(|s| s.list_map_keys.as_slice()).unwrap_or_default();
            let key = |v: &Val<'_>| Value::Array(keys.iter().map(|k| v.field(k).map_or(Value::Null, |f| f.to_json())).collect());
            for j in y {
                match x.iter().position(|i| json_order(&key(i), &key(&j)).is_eq()) {
                    Some(i) => x[i] = j,
                    None => x.push(j),
                }
            }
        }
        _ => x.extend(y),
    }
    Some(Val::List(Arc::new(x)))
}
