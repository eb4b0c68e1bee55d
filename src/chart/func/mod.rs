//! Template functions: the table of signatures, argument access, and what a running render offers to them.

mod collections;
mod convert;
mod crypto;
mod compare;
pub mod date;
mod duration;
mod encode;
mod helm;
pub mod math;
mod merge;
mod paths;
mod random;
mod regexp;
pub mod semver;
mod strings;
mod toml;
mod words;

use crate::run::Runtime;
use crate::value::{ListTy, Map, Str, Val};
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use compare::basic_equal;
pub(crate) use compare::zero_element;
pub(crate) use duration::round as round_duration;
pub(crate) use paths::base as path_base;
pub(crate) use paths::clean as path_clean;
pub(crate) use paths::scheme as url_scheme;
pub(crate) use regexp::translate as translate_regex;
pub use random::Rng;

/// Static type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// `interface {}`.
    Any,
    /// `reflect.Value`: Go's own functions, which see missing values.
    Value,
    /// `string`.
    Str,
    /// `int`.
    Int,
    /// `bool`.
    Bool,
    /// `float64`.
    Float,
    /// `map[string]interface {}`.
    Map,
    /// `time.Time`.
    Time,
    /// `uint32`.
    Uint32,
    /// `[]interface {}`.
    List,
    /// `sprig.certificate`.
    Cert,
}

impl Ty {
    /// Go's name.
    pub fn name(self) -> &'static str {
        match self {
            Ty::Any => "interface {}",
            Ty::Value => "reflect.Value",
            Ty::Str => "string",
            Ty::Int => "int",
            Ty::Bool => "bool",
            Ty::Float => "float64",
            Ty::Map => "map[string]interface {}",
            Ty::Time => "time.Time",
            Ty::Uint32 => "uint32",
            Ty::List => "[]interface {}",
            Ty::Cert => "sprig.certificate",
        }
    }
    /// May nil be passed?
    pub fn nilable(self) -> bool {
        matches!(self, Ty::Any | Ty::Value | Ty::Map | Ty::List)
    }
}

/// An error with the chain Go would have wrapped: each link's text is its own words followed by the next link's text.
#[derive(Clone, Debug)]
pub struct GoErr {
    /// Own words.
    pub head: String,
    /// Made by the template engine itself.
    pub exec: bool,
    /// Cause.
    pub source: Option<Box<GoErr>>,
    /// A bound of ours was hit: nothing may swallow this.
    pub fatal: bool,
}

impl GoErr {
    /// A plain error.
    pub fn new(text: impl Into<String>) -> Self {
        Self { head: text.into(), exec: false, source: None, fatal: false }
    }
    /// A bound of ours was hit.
    pub fn fatal(text: impl Into<String>) -> Self {
        let mut e = Self::new(text);
        e.fatal = true;
        e
    }
    /// An error that wraps another.
    pub fn wrap(head: impl Into<String>, source: GoErr) -> Self {
        let fatal = source.fatal;
        Self { head: head.into(), exec: false, source: Some(Box::new(source)), fatal }
    }
    /// Whole text.
    pub fn text(&self) -> String {
        let mut s = self.head.clone();
        let mut at = &self.source;
        while let Some(e) = at {
            s.push_str(&e.head);
            at = &e.source;
        }
        s
    }
}

impl Drop for GoErr {
    fn drop(&mut self) {
        // A chain may be 1,000 links long: take it apart without recursion.
        let mut next = self.source.take();
        while let Some(mut e) = next {
            next = e.source.take();
        }
    }
}

impl fmt::Display for GoErr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for GoErr {}

/// Outcome of a function.
pub type Out = Result<Val, GoErr>;
/// Body of a function; arguments have been checked against the signature.
pub type Body = fn(&mut Runtime, &[Val]) -> Out;

/// A function.
pub struct Func {
    /// Name in templates.
    pub name: &'static str,
    /// Fixed parameters.
    pub params: &'static [Ty],
    /// Type of further arguments.
    pub rest: Option<Ty>,
    /// Body.
    pub body: Body,
    /// What the evaluators treat specially.
    pub special: Special,
}

/// Functions that are part of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// An ordinary function.
    None,
    /// `and`: stops at the first false argument.
    And,
    /// `or`: stops at the first true argument.
    Or,
    /// `call`.
    Call,
}

pub(crate) const fn f(name: &'static str, params: &'static [Ty], body: Body) -> Func {
    Func { name, params, rest: None, body, special: Special::None }
}

pub(crate) const fn v(name: &'static str, params: &'static [Ty], rest: Ty, body: Body) -> Func {
    Func { name, params, rest: Some(rest), body, special: Special::None }
}

/// All functions by name.
pub fn table() -> &'static [Func] {
    static T: OnceLock<Vec<Func>> = OnceLock::new();
    T.get_or_init(|| {
        let mut all = Vec::new();
        for part in [
            compare::table(),
            strings::table(),
            words::table(),
            collections::table(),
            merge::table(),
            convert::table(),
            math::table(),
            encode::table(),
            helm::table(),
            date::table(),
            duration::table(),
            regexp::table(),
            semver::table(),
            paths::table(),
            random::table(),
            crypto::table(),
        ] {
            all.extend(part);
        }
        all.sort_by_key(|f| f.name);
        all
    })
}

/// Number of a function in the table.
pub fn number(name: &str) -> Option<u16> {
    table().binary_search_by(|f| f.name.cmp(name)).ok().map(|i| i as u16)
}

pub(crate) fn err<T>(text: impl Into<String>) -> Result<T, GoErr> {
    Err(GoErr::new(text))
}

/// Bytes of a string argument.
pub(crate) fn s(v: &Val) -> &[u8] {
    match v {
        Val::Str(s) => s.as_bytes(),
        _ => b"",
    }
}

/// Text of a string argument.
pub(crate) fn text(v: &Val) -> std::borrow::Cow<'_, str> {
    crate::text::lossy(s(v))
}

/// An int argument.
pub(crate) fn int(v: &Val) -> i64 {
    match v {
        Val::Int(i) | Val::Int64(i) => *i,
        _ => 0,
    }
}

/// A map argument; `None` is a nil map.
pub(crate) fn map(v: &Val) -> Option<&Arc<Map>> {
    v.as_map()
}

pub(crate) fn strings(v: impl IntoIterator<Item = impl Into<Str>>) -> Val {
    Val::typed_list(ListTy::Str, v.into_iter().map(|s| Val::str(s)).collect())
}

/// A panic of Go's runtime on a nil argument.
pub(crate) const NIL_PANIC: &str = "runtime error: invalid memory address or nil pointer dereference";

/// sprig's `strval`: text of any value.
pub(crate) fn strval(v: &Val) -> Str {
    match v {
        Val::Str(s) => s.clone(),
        Val::List(l) if l.ty == ListTy::Bytes => Str::from(l.v.iter().map(|b| if let Val::Byte(b) = b { *b } else { 0 }).collect::<Vec<u8>>()),
        v => {
            let mut out = Vec::new();
            crate::text::fmt::write_v(&mut out, v);
            Str::from(out)
        }
    }
}
