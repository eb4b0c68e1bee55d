//! Evaluation of CEL with a cost budget.

use super::ast::{Expr, Literal, Loop, Node};
use super::functions;
use super::value::{Key, Val, compare, equal, join};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// More work than the budget allows.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    /// Anything else, in CEL's words.
    #[error("{0}")]
    Failed(String),
}

pub(crate) fn failed<T>(words: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Failed(words.into()))
}

/// Variables by name.
pub type Variables<'a> = BTreeMap<String, Val<'a>>;

/// One evaluation.
pub(crate) struct Run<'a, 'e> {
    pub(crate) variables: &'e Variables<'a>,
    /// Loop variables, innermost last.
    locals: Vec<(String, Val<'a>)>,
    pub(crate) left: u64,
}

type Res<'a> = Result<Val<'a>, EvalError>;

impl<'a, 'e> Run<'a, 'e> {
    pub(crate) fn new(variables: &'e Variables<'a>, budget: u64) -> Self {
        Self { variables, locals: Vec::new(), left: budget }
    }

    /// Takes units from the budget.
    pub(crate) fn spend(&mut self, units: u64) -> Result<(), EvalError> {
        match self.left.checked_sub(units) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(EvalError::Cost)
            }
        }
    }

    pub(crate) fn eval(&mut self, e: &Expr) -> Res<'a> {
        match &e.node {
            Node::Literal(l) => Ok(match l {
                Literal::Null => Val::Null,
                Literal::Bool(b) => Val::Bool(*b),
                Literal::Int(i) => Val::Int(*i),
                Literal::Uint(u) => Val::Uint(*u),
                Literal::Double(d) => Val::Double(*d),
                Literal::String(s) => Val::string(s),
                Literal::Bytes(b) => Val::Bytes(b.as_slice().into()),
            }),
            Node::Ident(n) => self.ident(n),
            Node::Select { of, field, optional } => {
                if let Some(v) = self.dotted(e) {
                    return Ok(v);
                }
                let v = self.eval(of)?;
                self.spend(1)?;
                select(&v, field, *optional)
            }
            Node::Has { of, field } => {
                let v = self.eval(of)?;
                self.spend(1)?;
                match &v {
                    Val::Optional(None) => Ok(Val::Bool(false)),
                    v if v.entries().is_some() || matches!(v, Val::Optional(_)) => Ok(Val::Bool(v.field(field).is_some_and(|x| !matches!(x, Val::Null)))),
                    _ => failed("no such overload"),
                }
            }
            Node::Index { of, key, optional } => {
                let v = self.eval(of)?;
                let k = self.eval(key)?;
                self.spend(1)?;
                index(&v, &k, *optional)
            }
            Node::And(a, b) => self.logic(a, b, false),
            Node::Or(a, b) => self.logic(a, b, true),
            Node::If(c, a, b) => {
                let c = self.eval(c)?;
                match c {
                    Val::Bool(true) => self.eval(a),
                    Val::Bool(false) => self.eval(b),
                    _ => failed("no such overload"),
                }
            }
            Node::List(items) => {
                self.spend(10)?;
                let mut out = Vec::with_capacity(items.len());
                for (x, optional) in items {
                    match self.eval(x)? {
                        Val::Optional(v) if *optional => out.extend(v.map(|v| v.as_ref().clone())),
                        v => out.push(v),
                    }
                }
                Ok(Val::List(Arc::new(out)))
            }
            Node::Map(entries) => {
                self.spend(30)?;
                let mut out = BTreeMap::new();
                for (k, v, optional) in entries {
                    let k = self.eval(k)?;
                    let Some(key) = Key::of(&k) else { return failed("unsupported key type") };
                    let v = self.eval(v)?;
                    let v = match v {
                        Val::Optional(None) if *optional => continue,
                        Val::Optional(Some(v)) if *optional => v.as_ref().clone(),
                        v => v,
                    };
                    if out.insert(key, v).is_some() {
                        return failed("Failed with repeated key");
                    }
                }
                Ok(Val::Map(Arc::new(out)))
            }
            Node::Struct { fields, .. } => {
                self.spend(40)?;
                let mut out = BTreeMap::new();
                for (name, v, optional) in fields {
                    let v = match self.eval(v)? {
                        Val::Optional(None) if *optional => continue,
                        Val::Optional(Some(v)) if *optional => v.as_ref().clone(),
                        v => v,
                    };
                    let raw = super::value::unescape(name).unwrap_or_else(|| name.clone());
                    out.insert(Key::String(raw.as_str().into()), v);
                }
                Ok(Val::Map(Arc::new(out)))
            }
            Node::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Node::Loop { kind, range, var, var2, filter, body } => self.walk(*kind, range, var, var2.as_deref(), filter.as_deref(), body),
        }
    }

    fn ident(&mut self, n: &str) -> Res<'a> {
        if let Some((_, v)) = self.locals.iter().rev().find(|(name, _)| name == n) {
            let v = v.clone();
            self.spend(1)?;
            return Ok(v);
        }
        if let Some(v) = self.variables.get(n) {
            let v = v.clone();
            self.spend(1)?;
            return Ok(v);
        }
        match n {
            "int" | "uint" | "double" | "string" | "bytes" | "bool" | "list" | "map" | "null_type" | "type" => Ok(Val::Type(n.into())),
            _ => failed(format!("undeclared reference to '{n}' (in container '')")),
        }
    }

    /// A variable whose own name has dots, or a type by its long name.
    fn dotted(&self, e: &Expr) -> Option<Val<'a>> {
        fn name(e: &Expr) -> Option<String> {
            match &e.node {
                Node::Ident(n) => Some(n.clone()),
                Node::Select { of, field, optional: false } => name(of).map(|n| format!("{n}.{field}")),
                _ => None,
            }
        }
        let n = name(e)?;
        match n.as_str() {
            "google.protobuf.Timestamp" | "google.protobuf.Duration" | "kubernetes.Quantity" | "kubernetes.URL" | "net.IP" | "net.CIDR" | "kubernetes.Semver" => Some(Val::Type(n.as_str().into())),
            _ => self.variables.get(&n).cloned(),
        }
    }

    fn logic(&mut self, a: &Expr, b: &Expr, decided_by: bool) -> Res<'a> {
        let l = self.eval(a);
        match &l {
            Ok(Val::Bool(x)) if *x == decided_by => return l,
            Err(EvalError::Cost) => return l,
            _ => {}
        }
        let r = self.eval(b);
        match (l, r) {
            (_, Ok(Val::Bool(y))) if y == decided_by => Ok(Val::Bool(y)),
            (_, Err(EvalError::Cost)) => Err(EvalError::Cost),
            (Ok(Val::Bool(_)), Ok(Val::Bool(y))) => Ok(Val::Bool(y)),
            (Err(e), _) | (_, Err(e)) => Err(e),
            _ => failed("no such overload"),
        }
    }

    fn call(&mut self, name: &str, target: Option<&Expr>, args: &[Expr]) -> Res<'a> {
        // Namespaced functions look like member calls on an identifier.
        if let Some(t) = target {
            if let Node::Ident(ns) = &t.node {
                let local = self.locals.iter().any(|(n, _)| n == ns) || self.variables.contains_key(ns);
                if !local && functions::is_namespace(ns) {
                    let values = self.all(args)?;
                    return functions::global(self, &format!("{ns}.{name}"), &values);
                }
            }
            let v = self.eval(t)?;
            // Both optional operators look at their argument only when needed.
            if let (Val::Optional(o), "or" | "orValue") = (&v, name) {
                self.spend(1)?;
                return match (o, args) {
                    (Some(x), [_]) => Ok(if name == "or" { v.clone() } else { x.as_ref().clone() }),
                    (None, [other]) => self.eval(other),
                    _ => failed("no such overload"),
                };
            }
            let values = self.all(args)?;
            return functions::member(self, &v, name, &values);
        }
        let values = self.all(args)?;
        match (name, values.as_slice()) {
            ("_==_", [a, b]) => self.sized(a, b).map(|()| Val::Bool(equal(a, b))),
            ("_!=_", [a, b]) => self.sized(a, b).map(|()| Val::Bool(!equal(a, b))),
            ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
                self.sized(a, b)?;
                let Some(o) = compare(a, b) else { return failed("no such overload") };
                Ok(Val::Bool(match name {
                    "_<_" => o.is_lt(),
                    "_<=_" => o.is_le(),
                    "_>_" => o.is_gt(),
                    _ => o.is_ge(),
                }))
            }
            ("@in", [a, b]) => {
                let n = u64::try_from(b.size().unwrap_or(0)).unwrap_or(u64::MAX);
                if let Some(items) = b.items() {
                    self.spend(n.max(1))?;
                    return Ok(Val::Bool(items.iter().any(|i| equal(a, i))));
                }
                self.spend(1)?;
                match (b, Key::of(a)) {
                    (Val::Json(serde_json::Value::Object(o), _), Some(Key::String(k))) => Ok(Val::Bool(o.contains_key(&*k))),
                    (Val::Map(m), Some(k)) => Ok(Val::Bool(m.contains_key(&k))),
                    (Val::Json(..) | Val::Map(_), _) => Ok(Val::Bool(false)),
                    _ => failed("no such overload"),
                }
            }
            ("!_", [Val::Bool(b)]) => self.spend(1).map(|()| Val::Bool(!b)),
            ("-_", [Val::Int(i)]) => self.spend(1).and_then(|()| i.checked_neg().map_or_else(|| failed("integer overflow"), |n| Ok(Val::Int(n)))),
            ("-_", [Val::Double(d)]) => self.spend(1).map(|()| Val::Double(-d)),
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => self.arithmetic(name, a, b),
            _ => functions::global(self, name, &values),
        }
    }

    fn all(&mut self, args: &[Expr]) -> Result<Vec<Val<'a>>, EvalError> {
        args.iter().map(|a| self.eval(a)).collect()
    }

    /// Comparing costs a tenth of the shorter text.
    fn sized(&mut self, a: &Val<'_>, b: &Val<'_>) -> Result<(), EvalError> {
        let n = match (a.size(), b.size()) {
            (Some(x), Some(y)) => x.min(y),
            _ => 1,
        };
        self.spend(tenth(n))
    }

    fn arithmetic(&mut self, op: &str, a: &Val<'a>, b: &Val<'a>) -> Res<'a> {
        let over = || failed("integer overflow");
        match (a, b) {
            (Val::Int(x), Val::Int(y)) => {
                self.spend(1)?;
                let r = match op {
                    "_+_" => x.checked_add(*y),
                    "_-_" => x.checked_sub(*y),
                    "_*_" => x.checked_mul(*y),
                    _ if *y == 0 => return failed(if op == "_/_" { "division by zero" } else { "modulus by zero" }),
                    "_/_" => x.checked_div(*y),
                    _ => x.checked_rem(*y),
                };
                r.map_or_else(over, |n| Ok(Val::Int(n)))
            }
            (Val::Uint(x), Val::Uint(y)) => {
                self.spend(1)?;
                let r = match op {
                    "_+_" => x.checked_add(*y),
                    "_-_" => x.checked_sub(*y),
                    "_*_" => x.checked_mul(*y),
                    _ if *y == 0 => return failed(if op == "_/_" { "division by zero" } else { "modulus by zero" }),
                    "_/_" => x.checked_div(*y),
                    _ => x.checked_rem(*y),
                };
                r.map_or_else(|| failed("unsigned integer overflow"), |n| Ok(Val::Uint(n)))
            }
            (Val::Double(x), Val::Double(y)) if op != "_%_" => {
                self.spend(1)?;
                Ok(Val::Double(match op {
                    "_+_" => x + y,
                    "_-_" => x - y,
                    "_*_" => x * y,
                    _ => x / y,
                }))
            }
            (Val::String(x), Val::String(y)) if op == "_+_" => {
                self.spend(tenth(x.len() + y.len()))?;
                Ok(Val::string(&format!("{x}{y}")))
            }
            (Val::Bytes(x), Val::Bytes(y)) if op == "_+_" => {
                self.spend(tenth(x.len() + y.len()))?;
                Ok(Val::Bytes([x.as_ref(), y.as_ref()].concat().into()))
            }
            (Val::Duration(x), Val::Duration(y)) if matches!(op, "_+_" | "_-_") => {
                self.spend(1)?;
                Ok(Val::Duration(if op == "_+_" { x + y } else { x - y }))
            }
            (Val::Timestamp(t), Val::Duration(d)) if matches!(op, "_+_" | "_-_") => self.shift(*t, if op == "_+_" { *d } else { -*d }),
            (Val::Duration(d), Val::Timestamp(t)) if op == "_+_" => self.shift(*t, *d),
            (Val::Timestamp(x), Val::Timestamp(y)) if op == "_-_" => {
                self.spend(1)?;
                Ok(Val::Duration(x.as_nanosecond() - y.as_nanosecond()))
            }
            _ if op == "_+_" => {
                self.spend(1)?;
                join(a, b).map_or_else(|| failed("no such overload"), Ok)
            }
            _ => failed("no such overload"),
        }
    }

    fn shift(&mut self, t: jiff::Timestamp, by: i128) -> Res<'a> {
        self.spend(1)?;
        jiff::Timestamp::from_nanosecond(t.as_nanosecond() + by).map_or_else(|_| failed("timestamp overflow"), |t| Ok(Val::Timestamp(t)))
    }

    fn walk(&mut self, kind: Loop, range: &Expr, var: &str, var2: Option<&str>, filter: Option<&Expr>, body: &Expr) -> Res<'a> {
        let r = self.eval(range)?;
        if matches!(kind, Loop::OptMap | Loop::OptFlatMap) {
            return match r {
                Val::Optional(None) => Ok(Val::Optional(None)),
                Val::Optional(Some(v)) => {
                    self.locals.push((var.to_owned(), v.as_ref().clone()));
                    let out = self.eval(body);
                    self.locals.pop();
                    let out = out?;
                    Ok(if kind == Loop::OptMap { Val::Optional(Some(Arc::new(out))) } else { out })
                }
                _ => failed("no such overload"),
            };
        }
        // Elements, and what the loop variables are for each.
        let elements: Vec<(Val<'a>, Option<Val<'a>>)> = match (r.items(), r.entries()) {
            (Some(items), _) if var2.is_some() => items.into_iter().enumerate().map(|(i, v)| (Val::Int(i64::try_from(i).unwrap_or(i64::MAX)), Some(v))).collect(),
            (Some(items), _) => items.into_iter().map(|v| (v, None)).collect(),
            (_, Some(entries)) => entries.into_iter().map(|(k, v)| (k.val(), var2.map(|_| v))).collect(),
            _ => return failed(format!("expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)", r.type_name())),
        };
        let mut list = Vec::new();
        let mut map: BTreeMap<Key, Val<'a>> = BTreeMap::new();
        let mut keyed: Vec<(Val<'a>, Val<'a>)> = Vec::new();
        let mut count = 0;
        let mut first_error = None;
        for (one, two) in elements {
            self.spend(1)?;
            let depth = self.locals.len();
            self.locals.push((var.to_owned(), one.clone()));
            if let (Some(n), Some(v)) = (var2, &two) {
                self.locals.push((n.to_owned(), v.clone()));
            }
            let kept = match filter {
                Some(f) => self.eval(f),
                None => Ok(Val::Bool(true)),
            };
            let out = match kept {
                Ok(Val::Bool(true)) => Some(self.eval(body)),
                Ok(Val::Bool(false)) => None,
                Ok(_) => Some(failed("no such overload")),
                Err(e) => Some(Err(e)),
            };
            self.locals.truncate(depth);
            let Some(out) = out else { continue };
            match kind {
                Loop::All | Loop::Exists => match out {
                    Ok(Val::Bool(b)) if b == (kind == Loop::Exists) => return Ok(Val::Bool(b)),
                    Ok(Val::Bool(_)) => {}
                    Ok(_) => first_error = first_error.or(Some(EvalError::Failed("no such overload".into()))),
                    Err(EvalError::Cost) => return Err(EvalError::Cost),
                    Err(e) => first_error = first_error.or(Some(e)),
                },
                Loop::ExistsOne => match out? {
                    Val::Bool(b) => count += usize::from(b),
                    _ => return failed("no such overload"),
                },
                Loop::Filter => match out? {
                    Val::Bool(true) => match &r {
                        _ if r.items().is_some() => list.push(one),
                        _ => list.push(one),
                    },
                    Val::Bool(false) => {}
                    _ => return failed("no such overload"),
                },
                Loop::Map | Loop::TransformList => list.push(out?),
                Loop::SortBy => keyed.push((out?, one)),
                Loop::TransformMap => {
                    let v = out?;
                    if let Some(k) = Key::of(&one) {
                        map.insert(k, v);
                    }
                }
                Loop::TransformMapEntry => {
                    let v = out?;
                    for (k, x) in v.entries().unwrap_or_default() {
                        if map.insert(k, x).is_some() {
                            return failed("insert failed: key already exists");
                        }
                    }
                }
                Loop::OptMap | Loop::OptFlatMap => {}
            }
        }
        if let Some(e) = first_error {
            return Err(e);
        }
        Ok(match kind {
            Loop::All => Val::Bool(true),
            Loop::Exists => Val::Bool(false),
            Loop::ExistsOne => Val::Bool(count == 1),
            Loop::TransformMap | Loop::TransformMapEntry => Val::Map(Arc::new(map)),
            Loop::SortBy => {
                keyed.sort_by(|a, b| compare(&a.0, &b.0).unwrap_or(std::cmp::Ordering::Equal));
                Val::List(Arc::new(keyed.into_iter().map(|(_, v)| v).collect()))
            }
            _ => Val::List(Arc::new(list)),
        })
    }
}

/// A tenth of a length, at least one unit.
pub(crate) fn tenth(n: usize) -> u64 {
    u64::try_from(n.div_ceil(10)).unwrap_or(u64::MAX).max(1)
}

fn select<'a>(v: &Val<'a>, field: &str, optional: bool) -> Res<'a> {
    let through = matches!(v, Val::Optional(_));
    if optional || through {
        return Ok(Val::Optional(match v {
            Val::Optional(None) => None,
            v => v.field(field).map(Arc::new),
        }));
    }
    match v.field(field) {
        Some(x) => Ok(x),
        None if matches!(v, Val::Map(_) | Val::Json(serde_json::Value::Object(_), _)) => failed(format!("no such key: {field}")),
        None => failed("no such overload"),
    }
}

fn index<'a>(v: &Val<'a>, k: &Val<'a>, optional: bool) -> Res<'a> {
    let (v, through) = match v {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(x)) => (x.as_ref().clone(), true),
        v => (v.clone(), false),
    };
    let lenient = optional || through;
    let found = match v.size() {
        Some(n) if matches!(v, Val::List(_) | Val::Json(serde_json::Value::Array(_), _)) => {
            let i = match k {
                Val::Int(i) => usize::try_from(*i).ok(),
                Val::Uint(u) => usize::try_from(*u).ok(),
                Val::Double(d) if d.fract() == 0.0 && *d >= 0.0 => Some(*d as usize),
                Val::Double(_) => None,
                _ => return failed("unsupported index type"),
            };
            let found = i.filter(|i| *i < n).and_then(|i| match &v {
                Val::List(l) => l.get(i).cloned(),
                Val::Json(serde_json::Value::Array(a), s) => a.get(i).map(|x| super::value::of_json(x, s.and_then(|s| s.items.as_deref()))),
                _ => None,
            });
            if found.is_none() && !lenient {
                return failed(format!("index out of bounds: {}", k.to_json()));
            }
            found
        }
        _ => {
            let found = match (&v, Key::of(k)) {
                (Val::Map(m), Some(key)) => m.get(&key).cloned(),
                (Val::Json(serde_json::Value::Object(o), s), Some(Key::String(n))) => o.get(&*n).map(|x| super::value::of_json(x, super::value::child_schema(*s, &n))),
                (Val::Map(_) | Val::Json(..), _) => None,
                _ => return failed("no such overload"),
            };
            if found.is_none() && !lenient {
                return failed(format!("no such key: {}", k.to_json().as_str().map_or_else(|| k.to_json().to_string(), str::to_owned)));
            }
            found
        }
    };
    Ok(if lenient { Val::Optional(found.map(Arc::new)) } else { found.unwrap_or(Val::Null) })
}
