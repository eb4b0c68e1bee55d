//! Static check of an expression against a schema: undefined fields, unknown functions, operand types, and the most it can cost.

use super::ast::{Expr, Literal, Loop, Node};
use crate::shape::{Node as Place, Scalar};
use crate::structural::{Additional, Schema, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest request in bytes; bounds what no limit in the schema bounds.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// A static type.
#[derive(Clone, Debug)]
pub(crate) enum Ty<'s> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type,
    List(Box<Typed<'s>>),
    Map(Box<Typed<'s>>),
    /// An object with declared fields; true = it has apiVersion, kind and metadata of its own.
    Object(&'s Schema, bool),
    /// An object of a built-in type.
    Built(Place<'s>),
    /// An object with these fields and no other.
    Fields(Arc<BTreeMap<String, Typed<'s>>>),
    Optional(Box<Typed<'s>>),
    /// Quantity, IP, URL, …
    Library(&'static str),
}

/// A type and the most elements or characters a value of it has.
#[derive(Clone, Debug)]
pub(crate) struct Typed<'s> {
    pub(crate) ty: Ty<'s>,
    pub(crate) size: u64,
}

/// What a check finds.
#[derive(Clone, Debug)]
pub(crate) struct Checked<'s> {
    pub(crate) of: Typed<'s>,
    /// Most units it can cost.
    pub(crate) cost: u64,
}

type Fault = (usize, String);
type Res<'s> = Result<Checked<'s>, Fault>;

fn typed(ty: Ty<'_>) -> Typed<'_> {
    Typed { ty, size: 1 }
}

/// The smallest JSON text of a value, which bounds how many fit in a request.
fn smallest(s: &Schema) -> u64 {
    if s.int_or_string {
        return 1;
    }
    match s.ty {
        Some(Type::Boolean) => 4,
        Some(Type::Integer | Type::Number) => 1,
        Some(Type::String) => match s.limits.format.as_deref() {
            Some("date-time") => 21,
            Some("date") => 12,
            Some("duration") => 4,
            _ => 2,
        },
        Some(Type::Array) => 2,
        Some(Type::Object) | None => {
            2 + s.limits.required.iter().filter_map(|r| s.properties.get(r).map(|p| r.len() as u64 + 4 + smallest(p))).sum::<u64>()
        }
    }
}

/// The type a schema gives.
pub(crate) fn of_schema(s: &Schema, resource: bool) -> Typed<'_> {
    if s.int_or_string {
        return Typed { ty: Ty::Dyn, size: MAX_REQUEST - 2 };
    }
    match s.ty {
        Some(Type::Boolean) => typed(Ty::Bool),
        Some(Type::Integer) => typed(Ty::Int),
        Some(Type::Number) => typed(Ty::Double),
        Some(Type::String) => {
            let ty = match s.limits.format.as_deref() {
                Some("date-time" | "date") => return typed(Ty::Timestamp),
                Some("duration") => return typed(Ty::Duration),
                Some("byte") => Ty::Bytes,
                _ => Ty::String,
            };
            let listed = s.limits.enumeration.as_ref().and_then(|e| e.iter().filter_map(|v| v.as_str()).map(|t| t.len() as u64).max());
            let size = s.limits.max_length.map(|n| n.saturating_mul(4)).or(listed).unwrap_or(MAX_REQUEST - 2);
            Typed { ty, size }
        }
        Some(Type::Array) => {
            let Some(items) = s.items.as_deref() else { return Typed { ty: Ty::Dyn, size: MAX_REQUEST } };
            let size = s.limits.max_items.unwrap_or((MAX_REQUEST - 2) / (smallest(items) + 1));
            Typed { ty: Ty::List(Box::new(of_schema(items, items.embedded))), size }
        }
        Some(Type::Object) => match &s.additional {
            Some(Additional::Schema(a)) => {
                let size = s.limits.max_properties.unwrap_or((MAX_REQUEST - 2) / (smallest(a) + 6));
                Typed { ty: Ty::Map(Box::new(of_schema(a, a.embedded))), size }
            }
            _ if s.properties.is_empty() && s.preserve && !resource => Typed { ty: Ty::Dyn, size: MAX_REQUEST },
            _ => typed(Ty::Object(s, resource || s.embedded)),
        },
        None => Typed { ty: Ty::Dyn, size: MAX_REQUEST },
    }
}

/// The type that a place in a shape gives.
pub(crate) fn of_place(at: Place<'_>) -> Typed<'_> {
    let long = |ty| Typed { ty, size: MAX_REQUEST };
    match (at.scalar(), at.list(), at.map()) {
        (Some(Scalar::String | Scalar::Quantity), ..) => long(Ty::String),
        (Some(Scalar::Bytes), ..) => long(Ty::Bytes),
        (Some(Scalar::Int32 | Scalar::Int64), ..) => typed(Ty::Int),
        (Some(Scalar::Number), ..) => typed(Ty::Double),
        (Some(Scalar::Boolean), ..) => typed(Ty::Bool),
        (Some(Scalar::Time | Scalar::MicroTime), ..) => typed(Ty::Timestamp),
        (Some(Scalar::IntOrString | Scalar::Untyped), ..) => long(Ty::Dyn),
        (None, Some(list), _) => long(Ty::List(Box::new(of_place(at.at(list.item))))),
        (None, None, Some(map)) => match map.element {
            Some(element) if map.fields.is_empty() => long(Ty::Map(Box::new(of_place(at.at(element))))),
            _ => typed(Ty::Built(at)),
        },
        (None, None, None) => long(Ty::Dyn),
    }
}

/// How a type is called in messages.
fn show(t: &Ty<'_>) -> String {
    match t {
        Ty::Dyn => "dyn".into(),
        Ty::Null => "null".into(),
        Ty::Bool => "bool".into(),
        Ty::Int => "int".into(),
        Ty::Uint => "uint".into(),
        Ty::Double => "double".into(),
        Ty::String => "string".into(),
        Ty::Bytes => "bytes".into(),
        Ty::Duration => "google.protobuf.Duration".into(),
        Ty::Timestamp => "google.protobuf.Timestamp".into(),
        Ty::Type => "type".into(),
        Ty::List(e) => format!("list({})", show(&e.ty)),
        Ty::Map(e) => format!("map(string, {})", show(&e.ty)),
        Ty::Object(..) | Ty::Built(_) | Ty::Fields(_) => "object".into(),
        Ty::Optional(e) => format!("optional_type({})", show(&e.ty)),
        Ty::Library(n) => (*n).into(),
    }
}

/// Whether values of two types can be equal at all.
fn same(a: &Ty<'_>, b: &Ty<'_>) -> bool {
    match (a, b) {
        (Ty::Dyn, _) | (_, Ty::Dyn) => true,
        (Ty::List(x), Ty::List(y)) | (Ty::Map(x), Ty::Map(y)) | (Ty::Optional(x), Ty::Optional(y)) => same(&x.ty, &y.ty),
        (Ty::Object(..) | Ty::Built(_) | Ty::Fields(_), Ty::Object(..) | Ty::Built(_) | Ty::Fields(_) | Ty::Map(_) | Ty::Null) => true,
        (Ty::Map(_) | Ty::Null, Ty::Object(..) | Ty::Built(_) | Ty::Fields(_)) => true,
        (Ty::Library(x), Ty::Library(y)) => x == y,
        (Ty::Null, Ty::Duration | Ty::Timestamp | Ty::Optional(_)) => true,
        (Ty::Duration | Ty::Timestamp | Ty::Optional(_), Ty::Null) => true,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b) && !matches!((a, b), (Ty::Library(_), _)),
    }
}

fn numeric(t: &Ty<'_>) -> bool {
    matches!(t, Ty::Int | Ty::Uint | Ty::Double | Ty::Dyn)
}

fn no_overload<'s>(at: usize, name: &str, args: &[&Ty<'_>]) -> Res<'s> {
    let list: Vec<String> = args.iter().map(|t| show(t)).collect();
    Err((at, format!("found no matching overload for '{name}' applied to '({})'", list.join(", "))))
}

/// Variables in scope.
pub(crate) struct Scope<'s> {
    vars: Vec<(String, Typed<'s>)>,
}

/// Checks an expression with the given variables.
pub(crate) fn check<'s>(e: &Expr, vars: Vec<(String, Typed<'s>)>) -> Res<'s> {
    Scope { vars }.expr(e)
}

/// Checks only that every free name is known.
pub(crate) fn names(e: &Expr, known: &[&str]) -> Result<(), Fault> {
    let vars = known.iter().map(|n| ((*n).to_owned(), Typed { ty: Ty::Dyn, size: 1 })).collect();
    Scope { vars }.expr(e).map(|_| ())
}

impl<'s> Scope<'s> {
    fn expr(&mut self, e: &Expr) -> Res<'s> {
        let ok = |of: Typed<'s>, cost: u64| Ok(Checked { of, cost });
        match &e.node {
            Node::Literal(l) => ok(
                match l {
                    Literal::Null => typed(Ty::Null),
                    Literal::Bool(_) => typed(Ty::Bool),
                    Literal::Int(_) => typed(Ty::Int),
                    Literal::Uint(_) => typed(Ty::Uint),
                    Literal::Double(_) => typed(Ty::Double),
                    Literal::String(s) => Typed { ty: Ty::String, size: s.chars().count() as u64 },
                    Literal::Bytes(b) => Typed { ty: Ty::Bytes, size: b.len() as u64 },
                },
                0,
            ),
            Node::Ident(n) => {
                if let Some((_, t)) = self.vars.iter().rev().find(|(v, _)| v == n) {
                    return ok(t.clone(), 1);
                }
                match n.as_str() {
                    "int" | "uint" | "double" | "string" | "bytes" | "bool" | "list" | "map" | "null_type" | "type" => ok(typed(Ty::Type), 1),
                    _ => Err((e.at, format!("undeclared reference to '{n}' (in container '')"))),
                }
            }
            Node::Select { of, field, optional } => {
                if let Some(t) = self.dotted(e) {
                    return ok(t, 1);
                }
                let o = self.expr(of)?;
                let (ty, was_optional) = match o.of.ty {
                    Ty::Optional(t) => (t.ty, true),
                    t => (t, false),
                };
                let found = self.field(e.at, &ty, field)?;
                let out = if *optional || was_optional { typed(Ty::Optional(Box::new(found))) } else { found };
                ok(out, o.cost.saturating_add(1))
            }
            Node::Has { of, field } => {
                let o = self.expr(of)?;
                let ty = match o.of.ty {
                    Ty::Optional(t) => t.ty,
                    t => t,
                };
                self.field(e.at, &ty, field)?;
                ok(typed(Ty::Bool), o.cost.saturating_add(1))
            }
            Node::Index { of, key, optional } => {
                let (o, k) = (self.expr(of)?, self.expr(key)?);
                let (ty, was_optional) = match o.of.ty {
                    Ty::Optional(t) => (t.ty, true),
                    t => (t, false),
                };
                let found = match &ty {
                    Ty::List(i) if numeric(&k.of.ty) => (**i).clone(),
                    Ty::Map(v) => (**v).clone(),
                    Ty::Dyn => typed(Ty::Dyn),
                    Ty::Object(..) | Ty::Built(_) | Ty::Fields(_) => match &key.node {
                        Node::Literal(Literal::String(f)) => self.field(e.at, &ty, f).unwrap_or(typed(Ty::Dyn)),
                        _ => return no_overload(e.at, "_[_]", &[&ty, &k.of.ty]),
                    },
                    _ => return no_overload(e.at, "_[_]", &[&ty, &k.of.ty]),
                };
                let out = if *optional || was_optional { typed(Ty::Optional(Box::new(found))) } else { found };
                ok(out, o.cost.saturating_add(k.cost).saturating_add(1))
            }
            Node::And(a, b) | Node::Or(a, b) => {
                let (x, y) = (self.expr(a)?, self.expr(b)?);
                if !matches!((&x.of.ty, &y.of.ty), (Ty::Bool | Ty::Dyn, Ty::Bool | Ty::Dyn)) {
                    let name = if matches!(e.node, Node::And(..)) { "_&&_" } else { "_||_" };
                    return no_overload(e.at, name, &[&x.of.ty, &y.of.ty]);
                }
                ok(typed(Ty::Bool), x.cost.saturating_add(y.cost))
            }
            Node::If(c, a, b) => {
                let (c, x, y) = (self.expr(c)?, self.expr(a)?, self.expr(b)?);
                if !matches!(c.of.ty, Ty::Bool | Ty::Dyn) || !same(&x.of.ty, &y.of.ty) {
                    return no_overload(e.at, "_?_:_", &[&c.of.ty, &x.of.ty, &y.of.ty]);
                }
                let size = x.of.size.max(y.of.size);
                let ty = if matches!(x.of.ty, Ty::Dyn | Ty::Null) { y.of.ty } else { x.of.ty };
                ok(Typed { ty, size }, c.cost.saturating_add(x.cost.max(y.cost)))
            }
            Node::List(items) => {
                let mut cost: u64 = 10;
                let mut element = typed(Ty::Dyn);
                for (i, (x, _)) in items.iter().enumerate() {
                    let c = self.expr(x)?;
                    cost = cost.saturating_add(c.cost);
                    if i == 0 {
                        element = c.of;
                    } else if !same(&element.ty, &c.of.ty) {
                        element = Typed { ty: Ty::Dyn, size: element.size.max(c.of.size) };
                    } else {
                        element.size = element.size.max(c.of.size);
                    }
                }
                ok(Typed { ty: Ty::List(Box::new(element)), size: items.len() as u64 }, cost)
            }
            Node::Map(entries) => {
                let mut cost: u64 = 30;
                for (k, v, _) in entries {
                    cost = cost.saturating_add(self.expr(k)?.cost).saturating_add(self.expr(v)?.cost);
                }
                ok(Typed { ty: Ty::Map(Box::new(typed(Ty::Dyn))), size: entries.len() as u64 }, cost)
            }
            Node::Struct { fields, .. } => {
                let mut cost: u64 = 40;
                for (_, v, _) in fields {
                    cost = cost.saturating_add(self.expr(v)?.cost);
                }
                ok(typed(Ty::Dyn), cost)
            }
            Node::Call { name, target, args } => self.call(e.at, name, target.as_deref(), args),
            Node::Loop { kind, range, var, var2, filter, body } => {
                let r = self.expr(range)?;
                if matches!(kind, Loop::OptMap | Loop::OptFlatMap) {
                    let inner = match r.of.ty {
                        Ty::Optional(t) => *t,
                        _ => typed(Ty::Dyn),
                    };
                    let b = self.within(&[(var, inner)], body)?;
                    let out = if *kind == Loop::OptMap { typed(Ty::Optional(Box::new(b.of))) } else { b.of };
                    return ok(out, r.cost.saturating_add(b.cost));
                }
                let (one, two) = match (&r.of.ty, var2) {
                    (Ty::List(i), None) => ((**i).clone(), None),
                    (Ty::List(i), Some(_)) => (typed(Ty::Int), Some((**i).clone())),
                    (Ty::Map(v), _) => (Typed { ty: Ty::String, size: MAX_REQUEST / 8 }, Some((**v).clone())),
                    (Ty::Object(..) | Ty::Built(_) | Ty::Fields(_), _) => (Typed { ty: Ty::String, size: 64 }, Some(typed(Ty::Dyn))),
                    (Ty::Dyn, _) => (typed(Ty::Dyn), Some(typed(Ty::Dyn))),
                    (t, _) => return Err((range.at, format!("expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)", show(t)))),
                };
                let mut scope = vec![(var.as_str(), one.clone())];
                if let Some(v) = var2 {
                    scope.push((v.as_str(), two.unwrap_or(typed(Ty::Dyn))));
                }
                let scope: Vec<(&String, Typed<'s>)> = std::iter::once((var, scope[0].1.clone())).chain(var2.iter().zip(scope.into_iter().skip(1)).map(|(n, (_, t))| (n, t))).collect();
                let f = match filter {
                    Some(f) => self.within(&scope, f)?.cost,
                    None => 0,
                };
                let b = self.within(&scope, body)?;
                let predicate = matches!(kind, Loop::All | Loop::Exists | Loop::ExistsOne | Loop::Filter);
                if predicate && !matches!(b.of.ty, Ty::Bool | Ty::Dyn) {
                    return no_overload(e.at, if *kind == Loop::All { "_&&_" } else { "_||_" }, &[&Ty::Bool, &b.of.ty]);
                }
                let per = b.cost.saturating_add(f).saturating_add(3);
                let cost = r.cost.saturating_add(r.of.size.saturating_mul(per)).saturating_add(1);
                let out = match kind {
                    Loop::All | Loop::Exists | Loop::ExistsOne => typed(Ty::Bool),
                    Loop::Filter | Loop::SortBy => Typed { ty: Ty::List(Box::new(one)), size: r.of.size },
                    Loop::TransformMap | Loop::TransformMapEntry => Typed { ty: Ty::Map(Box::new(b.of)), size: r.of.size },
                    _ => Typed { ty: Ty::List(Box::new(b.of)), size: r.of.size },
                };
                ok(out, cost)
            }
        }
    }

    fn within(&mut self, vars: &[(&String, Typed<'s>)], body: &Expr) -> Res<'s> {
        let n = self.vars.len();
        self.vars.extend(vars.iter().map(|(v, t)| ((*v).clone(), t.clone())));
        let r = self.expr(body);
        self.vars.truncate(n);
        r
    }

    /// Variables with dots in their names, and types by their long names.
    fn dotted(&self, e: &Expr) -> Option<Typed<'s>> {
        fn name(e: &Expr) -> Option<String> {
            match &e.node {
                Node::Ident(n) => Some(n.clone()),
                Node::Select { of, field, optional: false } => name(of).map(|n| format!("{n}.{field}")),
                _ => None,
            }
        }
        let n = name(e)?;
        if n.starts_with("google.protobuf.") || n.starts_with("kubernetes.") || n.starts_with("net.") {
            return Some(typed(Ty::Type));
        }
        self.vars.iter().rev().find(|(v, _)| *v == n).map(|(_, t)| t.clone())
    }

    fn field(&self, at: usize, ty: &Ty<'s>, field: &str) -> Result<Typed<'s>, Fault> {
        match ty {
            Ty::Dyn => Ok(Typed { ty: Ty::Dyn, size: MAX_REQUEST }),
            Ty::Map(v) => Ok((**v).clone()),
            Ty::Object(s, resource) => object_field(s, *resource, field).ok_or_else(|| (at, format!("undefined field '{field}'"))),
            Ty::Built(place) => {
                let raw = super::value::unescape(field);
                let child = place.child(raw.as_deref().unwrap_or(field));
                child.map(of_place).ok_or_else(|| (at, format!("undefined field '{field}'")))
            }
            Ty::Fields(all) => all.get(field).cloned().ok_or_else(|| (at, format!("undefined field '{field}'"))),
            t => Err((at, format!("type '{}' does not support field selection", show(t)))),
        }
    }

    fn call(&mut self, at: usize, name: &str, target: Option<&Expr>, args: &[Expr]) -> Res<'s> {
        let mut cost: u64 = 0;
        let mut namespace = None;
        let mut of = None;
        if let Some(t) = target {
            match &t.node {
                Node::Ident(n) if super::functions::is_namespace(n) && !self.vars.iter().any(|(v, _)| v == n) => namespace = Some(n.clone()),
                _ => {
                    let c = self.expr(t)?;
                    cost = cost.saturating_add(c.cost);
                    of = Some(c.of);
                }
            }
        }
        let mut a = Vec::with_capacity(args.len());
        for x in args {
            let c = self.expr(x)?;
            cost = cost.saturating_add(c.cost);
            a.push(c.of);
        }
        let ok = |of: Typed<'s>, more: u64| Ok(Checked { of, cost: cost.saturating_add(more.max(1)) });
        let tenth = |n: u64| n.div_ceil(10).max(1);
        if let Some(ns) = namespace {
            return ok(namespaced(&ns, name, &a), a.iter().map(|t| t.size).fold(1, u64::saturating_mul).min(MAX_REQUEST));
        }
        if let Some(of) = of {
            return match member(&of, name, &a) {
                Some((t, units)) => ok(t, units),
                None => Err((at, format!("undeclared reference to '{name}' (in container '')"))),
            };
        }
        match (name, a.as_slice()) {
            ("_==_" | "_!=_", [x, y]) => {
                if !same(&x.ty, &y.ty) {
                    return no_overload(at, name, &[&x.ty, &y.ty]);
                }
                ok(typed(Ty::Bool), tenth(x.size.min(y.size)))
            }
            ("_<_" | "_<=_" | "_>_" | "_>=_", [x, y]) => {
                let fine = (numeric(&x.ty) && numeric(&y.ty)) || (same(&x.ty, &y.ty) && matches!(x.ty, Ty::String | Ty::Bytes | Ty::Bool | Ty::Duration | Ty::Timestamp | Ty::Dyn)) || matches!(y.ty, Ty::Dyn);
                if !fine {
                    return no_overload(at, name, &[&x.ty, &y.ty]);
                }
                ok(typed(Ty::Bool), tenth(x.size.min(y.size)))
            }
            ("@in", [x, y]) => match &y.ty {
                Ty::List(i) if same(&i.ty, &x.ty) => ok(typed(Ty::Bool), y.size),
                Ty::Map(_) | Ty::Dyn | Ty::Object(..) | Ty::Built(_) | Ty::Fields(_) => ok(typed(Ty::Bool), 1),
                _ => no_overload(at, "@in", &[&x.ty, &y.ty]),
            },
            ("!_", [x]) => if matches!(x.ty, Ty::Bool | Ty::Dyn) { ok(typed(Ty::Bool), 1) } else { no_overload(at, "!_", &[&x.ty]) },
            ("-_", [x]) => if matches!(x.ty, Ty::Int | Ty::Double | Ty::Dyn) { ok(x.clone(), 1) } else { no_overload(at, "-_", &[&x.ty]) },
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [x, y]) => {
                let size = x.size.saturating_add(y.size);
                let out = match (&x.ty, &y.ty) {
                    (Ty::Dyn, _) | (_, Ty::Dyn) => Ty::Dyn,
                    (Ty::Int, Ty::Int) => Ty::Int,
                    (Ty::Uint, Ty::Uint) => Ty::Uint,
                    (Ty::Double, Ty::Double) if name != "_%_" => Ty::Double,
                    (Ty::String, Ty::String) if name == "_+_" => Ty::String,
                    (Ty::Bytes, Ty::Bytes) if name == "_+_" => Ty::Bytes,
                    (Ty::List(i), Ty::List(j)) if name == "_+_" && same(&i.ty, &j.ty) => x.ty.clone(),
                    (Ty::Timestamp, Ty::Duration) if matches!(name, "_+_" | "_-_") => Ty::Timestamp,
                    (Ty::Duration, Ty::Timestamp) if name == "_+_" => Ty::Timestamp,
                    (Ty::Timestamp, Ty::Timestamp) if name == "_-_" => Ty::Duration,
                    (Ty::Duration, Ty::Duration) if matches!(name, "_+_" | "_-_") => Ty::Duration,
                    _ => return no_overload(at, name, &[&x.ty, &y.ty]),
                };
                let text = matches!(out, Ty::String | Ty::Bytes);
                ok(Typed { ty: out, size }, if text { tenth(size) } else { 1 })
            }
            _ => match global(name, &a) {
                Some((t, units)) => ok(t, units),
                None => Err((at, format!("undeclared reference to '{name}' (in container '')"))),
            },
        }
    }
}

fn object_field<'s>(s: &'s Schema, resource: bool, field: &str) -> Option<Typed<'s>> {
    let raw = super::value::unescape(field);
    let name = raw.as_deref().unwrap_or(field);
    if let Some(p) = s.properties.get(name) {
        if !(resource && name == "metadata") {
            return Some(of_schema(p, p.embedded));
        }
    }
    if resource {
        match name {
            "apiVersion" | "kind" => return Some(Typed { ty: Ty::String, size: 256 }),
            "metadata" => return Some(Typed { ty: Ty::Map(Box::new(Typed { ty: Ty::String, size: 253 })), size: 2 }),
            _ => {}
        }
    }
    (s.preserve && s.properties.is_empty()).then(|| Typed { ty: Ty::Dyn, size: MAX_REQUEST })
}

fn text<'s>(size: u64) -> Typed<'s> {
    Typed { ty: Ty::String, size }
}

fn list_of<'s>(item: Typed<'s>, size: u64) -> Typed<'s> {
    Typed { ty: Ty::List(Box::new(item)), size }
}

/// Type and cost of a global function.
fn global<'s>(name: &str, a: &[Typed<'s>]) -> Option<(Typed<'s>, u64)> {
    let size = a.first().map_or(1, |t| t.size);
    let tenth = size.div_ceil(10).max(1);
    Some(match name {
        "size" => (typed(Ty::Int), 1),
        "dyn" => (Typed { ty: Ty::Dyn, size }, 1),
        "type" => (typed(Ty::Type), 1),
        "int" => (typed(Ty::Int), 1),
        "uint" => (typed(Ty::Uint), 1),
        "double" => (typed(Ty::Double), 1),
        "string" => (text(size.max(64)), tenth),
        "bytes" => (Typed { ty: Ty::Bytes, size }, tenth),
        "bool" => (typed(Ty::Bool), 1),
        "duration" => (typed(Ty::Duration), 1),
        "timestamp" => (typed(Ty::Timestamp), 1),
        "matches" => (typed(Ty::Bool), tenth.saturating_mul(a.get(1).map_or(1, |t| t.size.div_ceil(4)).max(1))),
        "quantity" => (typed(Ty::Library("kubernetes.Quantity")), tenth),
        "url" => (typed(Ty::Library("kubernetes.URL")), tenth),
        "ip" => (typed(Ty::Library("net.IP")), tenth),
        "cidr" => (typed(Ty::Library("net.CIDR")), tenth),
        "semver" => (typed(Ty::Library("kubernetes.Semver")), tenth),
        "isQuantity" | "isURL" | "isIP" | "isCIDR" | "isSemver" => (typed(Ty::Bool), tenth),
        _ => return None,
    })
}

fn namespaced<'s>(ns: &str, name: &str, a: &[Typed<'s>]) -> Typed<'s> {
    match (ns, name) {
        ("optional", "none") => typed(Ty::Optional(Box::new(typed(Ty::Dyn)))),
        ("optional", _) => typed(Ty::Optional(Box::new(a.first().cloned().unwrap_or(typed(Ty::Dyn))))),
        ("sets", _) | ("ip", "isCanonical") => typed(Ty::Bool),
        ("strings", _) => text(a.first().map_or(1, |t| t.size)),
        _ => typed(Ty::Dyn),
    }
}

/// Type and cost of a member function.
fn member<'s>(of: &Typed<'s>, name: &str, a: &[Typed<'s>]) -> Option<(Typed<'s>, u64)> {
    let size = of.size;
    let tenth = size.div_ceil(10).max(1);
    let first = a.first().map_or(1, |t| t.size);
    let element = || match &of.ty {
        Ty::List(i) => (**i).clone(),
        _ => typed(Ty::Dyn),
    };
    Some(match name {
        "size" => (typed(Ty::Int), 1),
        "contains" => (typed(Ty::Bool), tenth.saturating_mul(first.div_ceil(10).max(1))),
        "startsWith" | "endsWith" => (typed(Ty::Bool), first.div_ceil(10).max(1)),
        "matches" => (typed(Ty::Bool), tenth.saturating_mul(first.div_ceil(4).max(1))),
        "find" => (text(size), tenth.saturating_mul(first.div_ceil(4).max(1))),
        "findAll" => (list_of(text(size), size), tenth.saturating_mul(first.div_ceil(4).max(1))),
        "indexOf" | "lastIndexOf" => (typed(Ty::Int), if matches!(of.ty, Ty::List(_)) { size.saturating_mul(first.div_ceil(10).max(1)) } else { tenth }),
        "charAt" => (text(1), 1),
        "lowerAscii" | "upperAscii" | "trim" | "substring" => (text(size), tenth),
        "reverse" => (of.clone(), tenth),
        "replace" => (text(size.saturating_mul(a.get(1).map_or(1, |t| t.size).max(1))), tenth),
        "split" => (list_of(text(size), size), tenth),
        "join" => (text(size.saturating_mul(element().size)), size.saturating_mul(element().size).div_ceil(10).max(1)),
        "format" => (text(size.saturating_add(first.saturating_mul(64))), tenth),
        "isSorted" => (typed(Ty::Bool), size),
        "sum" | "min" | "max" => (element(), size),
        "distinct" | "sort" | "slice" | "flatten" => (of.clone(), size),
        "first" | "last" => (typed(Ty::Optional(Box::new(element()))), 1),
        "hasValue" => (typed(Ty::Bool), 1),
        "value" | "orValue" => match &of.ty {
            Ty::Optional(t) => ((**t).clone(), 1),
            _ => (typed(Ty::Dyn), 1),
        },
        "or" => (of.clone(), 1),
        "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" | "sign" | "asInteger" | "compareTo" | "major" | "minor" | "patch" | "family" | "prefixLength" => (typed(Ty::Int), 1),
        "isInteger" | "isGreaterThan" | "isLessThan" | "isUnspecified" | "isLoopback" | "isLinkLocalMulticast" | "isLinkLocalUnicast" | "isGlobalUnicast" | "containsIP" | "containsCIDR" => (typed(Ty::Bool), tenth),
        "asApproximateFloat" => (typed(Ty::Double), 1),
        "add" | "sub" => (of.clone(), 1),
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => (text(2048), 1),
        "getQuery" => (Typed { ty: Ty::Map(Box::new(list_of(text(2048), 64))), size: 64 }, tenth),
        "ip" => (typed(Ty::Library("net.IP")), 1),
        "masked" => (of.clone(), 1),
        "validate" => (typed(Ty::Optional(Box::new(list_of(text(512), 8)))), 1),
        // Authorizer calls are answered by whoever sets the variable.
        "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "serviceAccount" | "check" | "allowed" | "reason" | "errored" | "error" | "fieldSelector" | "labelSelector" => (typed(Ty::Dyn), 1),
        _ => return None,
    })
}
