//! The values templates work on: Go's own distinctions (nil and no value, int and int64, typed maps and lists, raw byte strings).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A Go string: any bytes, usually UTF-8; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str(Arc<[u8]>);

impl Str {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// No bytes?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// As text, invalid bytes replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        crate::text::lossy(&self.0)
    }
}

impl From<&str> for Str {
    fn from(s: &str) -> Self {
        Str(Arc::from(s.as_bytes()))
    }
}
impl From<String> for Str {
    fn from(s: String) -> Self {
        Str(Arc::from(s.into_bytes()))
    }
}
impl From<&[u8]> for Str {
    fn from(s: &[u8]) -> Self {
        Str(Arc::from(s))
    }
}
impl From<Vec<u8>> for Str {
    fn from(s: Vec<u8>) -> Self {
        Str(Arc::from(s))
    }
}
impl Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}
impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}
impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text(), f)
    }
}

/// A value.
#[derive(Clone, Debug, Default)]
pub enum Val {
    /// No value at all (Go's invalid `reflect.Value`).
    #[default]
    No,
    /// A nil inside an interface.
    Nil,
    /// bool.
    Bool(bool),
    /// int.
    Int(i64),
    /// int64.
    Int64(i64),
    /// uint8, as indexing a string gives.
    Byte(u8),
    /// float64.
    Float(f64),
    /// string.
    Str(Str),
    /// A slice.
    List(Arc<List>),
    /// A map, shared and mutable.
    Map(Arc<Map>),
    /// A value of another named type.
    Obj(Arc<Obj>),
}

/// Element type of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListTy {
    /// `[]interface {}`.
    Any,
    /// `[]string`.
    Str,
    /// `[]int`.
    Int,
    /// `[]uint8`.
    Bytes,
    /// `[][]interface {}`.
    Lists,
    /// `common.VersionSet`.
    Versions,
    /// `[]map[string]interface {}`: TOML's arrays of tables.
    Maps,
}

/// A list.
#[derive(Debug)]
pub struct List {
    /// Type.
    pub ty: ListTy,
    /// A nil slice: empty, but `null` in JSON.
    pub nil: bool,
    /// Elements.
    pub v: Vec<Val>,
}

/// Type of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapTy {
    /// `map[string]interface {}`.
    Any,
    /// `common.Values`.
    Values,
    /// `map[string]string`.
    Str,
    /// `engine.files`.
    Files,
    /// A nil `map[string]string`: empty, but `null` in JSON.
    NilStr,
}

/// Contents of a map.
pub type Tree = BTreeMap<Str, Val>;

/// A map.
#[derive(Debug)]
pub struct Map {
    /// Type.
    pub ty: MapTy,
    m: Arc<Mutex<Tree>>,
}

impl Map {
    /// The contents; hold the guard briefly and never while calling templates or functions.
    pub fn lock(&self) -> MutexGuard<'_, Tree> {
        self.m.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The same contents, shared, under another type.
    pub fn retyped(&self, ty: MapTy) -> Val {
        Val::Map(Arc::new(Map { ty, m: self.m.clone() }))
    }
    /// The same contents?
    pub fn same(&self, o: &Map) -> bool {
        Arc::ptr_eq(&self.m, &o.m)
    }
    /// Value of a key.
    pub fn get(&self, key: &[u8]) -> Option<Val> {
        self.lock().get(key).cloned()
    }
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.lock().len()
    }
    /// No keys?
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
    /// A copy of the contents (values shared).
    pub fn entries(&self) -> Vec<(Str, Val)> {
        self.lock().iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// A moment with its place on the clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    /// Nanoseconds since 1970 UTC; Go's zero time is far before.
    pub nanos: i128,
    /// Offset from UTC in seconds, and zone name.
    pub zone: (i32, String),
    /// Monotonic reading, printed as Go does for `now`.
    pub mono: Option<f64>,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Cert {
    /// Certificate.
    pub cert: String,
    /// Private key.
    pub key: String,
}

/// Kubernetes version as templates see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    /// Full version, with `v`.
    pub version: String,
    /// Without suffixes, with `v`.
    pub normalized: String,
    /// Major number.
    pub major: String,
    /// Minor number.
    pub minor: String,
}

/// Version of Helm that is imitated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelmVersion {
    /// `v4.3.1`.
    pub version: String,
    /// Commit.
    pub commit: String,
    /// State of the tree.
    pub state: String,
    /// Go version.
    pub go: String,
    /// client-go version, absent in Helm 3.
    pub client: Option<String>,
}

/// Facts about the cluster and Helm.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Kubernetes version.
    pub kube: KubeVersion,
    /// API versions.
    pub apis: Val,
    /// Helm version.
    pub helm: HelmVersion,
}

/// Values of named types.
#[derive(Clone, Debug)]
pub enum Obj {
    /// `*common.Capabilities`.
    Caps(Caps),
    /// `common.KubeVersion`.
    Kube(KubeVersion),
    /// `version.BuildInfo`.
    Helm(HelmVersion),
    /// `*semver.Version`.
    Semver(crate::func::semver::Version),
    /// `time.Time`.
    Time(Time),
    /// `time.Duration`, nanoseconds.
    Duration(i64),
    /// `sprig.certificate`.
    Cert(Cert),
    /// An error value.
    Error(String),
    /// complex128.
    Complex(f64, f64),
    /// int32 (a month or weekday of a time), with its name if any.
    Named(&'static str, i64, String),
}

impl Val {
    /// A string.
    pub fn str(s: impl Into<Str>) -> Val {
        Val::Str(s.into())
    }
    /// A `map[string]interface {}`.
    pub fn map(m: Tree) -> Val {
        Val::typed_map(MapTy::Any, m)
    }
    /// A map of a type.
    pub fn typed_map(ty: MapTy, m: Tree) -> Val {
        Val::Map(Arc::new(Map { ty, m: Arc::new(Mutex::new(m)) }))
    }
    /// A `[]interface {}`.
    pub fn list(v: Vec<Val>) -> Val {
        Val::typed_list(ListTy::Any, v)
    }
    /// A list of a type.
    pub fn typed_list(ty: ListTy, v: Vec<Val>) -> Val {
        Val::List(Arc::new(List { ty, nil: false, v }))
    }
    /// A nil list of a type.
    pub fn nil_list(ty: ListTy) -> Val {
        Val::List(Arc::new(List { ty, nil: true, v: Vec::new() }))
    }
    /// A value of a named type.
    pub fn obj(o: Obj) -> Val {
        Val::Obj(Arc::new(o))
    }
    /// Neither nil nor missing?
    pub fn is_some(&self) -> bool {
        !matches!(self, Val::No | Val::Nil)
    }
    /// The map inside.
    pub fn as_map(&self) -> Option<&Arc<Map>> {
        match self {
            Val::Map(m) => Some(m),
            _ => None,
        }
    }
    /// The bytes of a string.
    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Val::Str(s) => Some(s),
            _ => None,
        }
    }
    /// A table as Helm's values code understands it: `map[string]interface {}`.
    pub fn as_table(&self) -> Option<&Arc<Map>> {
        match self {
            Val::Map(m) if matches!(m.ty, MapTy::Any | MapTy::Values) => Some(m),
            _ => None,
        }
    }

    /// Truth as `if` sees it.
    pub fn truth(&self) -> bool {
        match self {
            Val::No | Val::Nil => false,
            Val::Bool(b) => *b,
            Val::Int(i) | Val::Int64(i) => *i != 0,
            Val::Byte(b) => *b != 0,
            Val::Float(f) => *f != 0.0,
            Val::Str(s) => !s.is_empty(),
            Val::List(l) => !l.v.is_empty(),
            Val::Map(m) => !m.is_empty(),
            Val::Obj(o) => match &**o {
                Obj::Duration(d) => *d != 0,
                Obj::Named(_, i, _) => *i != 0,
                Obj::Complex(a, b) => *a != 0.0 || *b != 0.0,
                _ => true,
            },
        }
    }

    /// Name of the Go type, as `%T` prints it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Val::No | Val::Nil => "<nil>",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Int64(_) => "int64",
            Val::Byte(_) => "uint8",
            Val::Float(_) => "float64",
            Val::Str(_) => "string",
            Val::List(l) => match l.ty {
                ListTy::Any => "[]interface {}",
                ListTy::Str => "[]string",
                ListTy::Int => "[]int",
                ListTy::Bytes => "[]uint8",
                ListTy::Lists => "[][]interface {}",
                ListTy::Versions => "common.VersionSet",
                ListTy::Maps => "[]map[string]interface {}",
            },
            Val::Map(m) => match m.ty {
                MapTy::Any => "map[string]interface {}",
                MapTy::Values => "common.Values",
                MapTy::Str | MapTy::NilStr => "map[string]string",
                MapTy::Files => "engine.files",
            },
            Val::Obj(o) => match &**o {
                Obj::Caps(_) => "*common.Capabilities",
                Obj::Kube(_) => "common.KubeVersion",
                Obj::Helm(_) => "version.BuildInfo",
                Obj::Semver(_) => "*semver.Version",
                Obj::Time(_) => "time.Time",
                Obj::Duration(_) => "time.Duration",
                Obj::Cert(_) => "sprig.certificate",
                Obj::Error(_) => "*errors.errorString",
                Obj::Complex(..) => "complex128",
                Obj::Named(t, ..) => t,
            },
        }
    }

    /// Name of the Go type in positions where an interface holding nil is `interface {}`.
    pub fn static_type(&self) -> &'static str {
        match self {
            Val::Nil => "interface {}",
            v => v.type_name(),
        }
    }

    /// Name of the Go kind.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Val::No | Val::Nil => "invalid",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Int64(_) => "int64",
            Val::Byte(_) => "uint8",
            Val::Float(_) => "float64",
            Val::Str(_) => "string",
            Val::List(_) => "slice",
            Val::Map(_) => "map",
            Val::Obj(o) => match &**o {
                Obj::Caps(_) | Obj::Semver(_) | Obj::Error(_) => "ptr",
                Obj::Kube(_) | Obj::Helm(_) | Obj::Time(_) | Obj::Cert(_) => "struct",
                Obj::Duration(_) => "int64",
                Obj::Complex(..) => "complex128",
                Obj::Named("uint64", ..) => "uint64",
                Obj::Named(..) => "int",
            },
        }
    }

    /// A copy that shares nothing mutable.
    pub fn deep_copy(&self) -> Val {
        self.deep(0)
    }

    fn deep(&self, depth: usize) -> Val {
        if depth > MAX_DEPTH {
            return Val::Nil;
        }
        match self {
            Val::Map(m) => {
                let copy = m.entries().into_iter().map(|(k, v)| (k, v.deep(depth + 1))).collect();
                Val::typed_map(m.ty, copy)
            }
            Val::List(l) if matches!(l.ty, ListTy::Any | ListTy::Lists | ListTy::Maps) && !l.nil => Val::typed_list(l.ty, l.v.iter().map(|v| v.deep(depth + 1)).collect()),
            v => v.clone(),
        }
    }

    /// `reflect.DeepEqual`.
    pub fn deep_equal(&self, o: &Val) -> bool {
        self.equal(o, 0)
    }

    fn equal(&self, o: &Val, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        match (self, o) {
            (Val::No | Val::Nil, Val::No | Val::Nil) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Int(a), Val::Int(b)) | (Val::Int64(a), Val::Int64(b)) => a == b,
            (Val::Byte(a), Val::Byte(b)) => a == b,
            (Val::Float(a), Val::Float(b)) => a == b,
            (Val::Str(a), Val::Str(b)) => a == b,
            (Val::List(a), Val::List(b)) => a.ty == b.ty && a.nil == b.nil && a.v.len() == b.v.len() && a.v.iter().zip(&b.v).all(|(a, b)| a.equal(b, depth + 1)),
            (Val::Map(a), Val::Map(b)) => {
                if a.same(b) {
                    return true;
                }
                if a.ty != b.ty {
                    return false;
                }
                let (a, b) = (a.entries(), b.entries());
                a.len() == b.len() && a.iter().zip(&b).all(|((k, v), (l, w))| k == l && v.equal(w, depth + 1))
            }
            (Val::Obj(a), Val::Obj(b)) => {
                Arc::ptr_eq(a, b)
                    || match (&**a, &**b) {
                        (Obj::Duration(a), Obj::Duration(b)) => a == b,
                        (Obj::Kube(a), Obj::Kube(b)) => a == b,
                        (Obj::Helm(a), Obj::Helm(b)) => a == b,
                        (Obj::Time(a), Obj::Time(b)) => a == b,
                        (Obj::Semver(a), Obj::Semver(b)) => a == b,
                        (Obj::Complex(a, b), Obj::Complex(c, d)) => a == c && b == d,
                        _ => false,
                    }
            }
            _ => false,
        }
    }

    /// The value in `serde_json` form; numbers without a fraction become integers.
    pub fn to_json(&self) -> serde_json::Value {
        self.json(0)
    }

    fn json(&self, depth: usize) -> serde_json::Value {
        use serde_json::Value as J;
        if depth > MAX_DEPTH {
            return J::Null;
        }
        match self {
            Val::No | Val::Nil => J::Null,
            Val::Bool(b) => J::Bool(*b),
            Val::Int(i) | Val::Int64(i) => J::from(*i),
            Val::Byte(b) => J::from(*b),
            Val::Float(f) => {
                if f.fract() == 0.0 && f.abs() < 9.0e15 {
                    J::from(*f as i64)
                } else {
                    J::from(*f)
                }
            }
            Val::Str(s) => J::String(s.text().into_owned()),
            Val::List(l) => J::Array(l.v.iter().map(|v| v.json(depth + 1)).collect()),
            Val::Map(m) => J::Object(m.entries().into_iter().map(|(k, v)| (k.text().into_owned(), v.json(depth + 1))).collect()),
            Val::Obj(_) => J::String(crate::text::fmt::sprint(self)),
        }
    }

    /// From `serde_json`; every number becomes a float64, as Helm's values have it.
    pub fn from_json(j: &serde_json::Value) -> Val {
        use serde_json::Value as J;
        match j {
            J::Null => Val::Nil,
            J::Bool(b) => Val::Bool(*b),
            J::Number(n) => Val::Float(n.as_f64().unwrap_or(0.0)),
            J::String(s) => Val::str(s.as_str()),
            J::Array(a) => Val::list(a.iter().map(Val::from_json).collect()),
            J::Object(o) => Val::map(o.iter().map(|(k, v)| (Str::from(k.as_str()), Val::from_json(v))).collect()),
        }
    }
}

/// Deepest value tree that walks follow; deeper ones (a map that holds itself) are cut.
pub const MAX_DEPTH: usize = 1000;

impl Map {
    /// Keys to any value?
    pub fn is_plain(&self) -> bool {
        matches!(self.ty, MapTy::Any | MapTy::Values)
    }
}
