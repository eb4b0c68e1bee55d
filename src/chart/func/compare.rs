//! Go's own template functions: comparison, `not`, `len`, `index`, `slice`, `call`.

use super::Ty::{Any, Value};
use super::{Func, GoErr, Out, Special, err, f, v};
use crate::run::Runtime;
use crate::text::fmt::sprintf;
use crate::value::{ListTy, MapTy, Obj, Str, Val};

pub(super) fn table() -> Vec<Func> {
    let _ = Any;
    vec![
        Func { special: Special::And, ..v("and", &[Value], Value, |_, a| Ok(a.iter().find(|v| !v.truth()).or(a.last()).cloned().unwrap_or_default())) },
        Func { special: Special::Or, ..v("or", &[Value], Value, |_, a| Ok(a.iter().find(|v| v.truth()).or(a.last()).cloned().unwrap_or_default())) },
        Func { special: Special::Call, ..v("call", &[Value], Value, call) },
        f("not", &[Value], |_, a| Ok(Val::Bool(!a[0].truth()))),
        v("eq", &[Value], Value, |_, a| eq(&a[0], &a[1..]).map(Val::Bool)),
        f("ne", &[Value, Value], |_, a| eq(&a[0], &a[1..]).map(|b| Val::Bool(!b))),
        f("lt", &[Value, Value], |_, a| lt(&a[0], &a[1]).map(Val::Bool)),
        f("le", &[Value, Value], |_, a| le(&a[0], &a[1]).map(Val::Bool)),
        f("gt", &[Value, Value], |_, a| le(&a[0], &a[1]).map(|b| Val::Bool(!b))),
        f("ge", &[Value, Value], |_, a| lt(&a[0], &a[1]).map(|b| Val::Bool(!b))),
        f("len", &[Value], |_, a| length(&a[0])),
        v("index", &[Value], Value, |_, a| index(&a[0], &a[1..])),
    ]
}

fn call(_: &mut Runtime, a: &[Val]) -> Out {
    // No value of a chart is ever a function.
    match a.first() {
        Some(v) if v.is_some() => err(format!("non-function {} of type {}", "", v.type_name())),
        _ => err("call of nil"),
    }
}

#[derive(PartialEq, Clone, Copy)]
enum Kind {
    Invalid,
    Bool,
    Complex,
    Int,
    Float,
    Str,
    Uint,
}

fn kind(v: &Val) -> Kind {
    match v {
        Val::Bool(_) => Kind::Bool,
        Val::Int(_) | Val::Int64(_) => Kind::Int,
        Val::Byte(_) => Kind::Uint,
        Val::Float(_) => Kind::Float,
        Val::Str(_) => Kind::Str,
        Val::Obj(o) => match &**o {
            Obj::Named("uint64", ..) => Kind::Uint,
            Obj::Duration(_) | Obj::Named(..) => Kind::Int,
            Obj::Complex(..) => Kind::Complex,
            _ => Kind::Invalid,
        },
        _ => Kind::Invalid,
    }
}

fn as_int(v: &Val) -> i64 {
    match v {
        Val::Int(i) | Val::Int64(i) => *i,
        Val::Byte(b) => *b as i64,
        Val::Obj(o) => match &**o {
            Obj::Duration(i) | Obj::Named(_, i, _) => *i,
            _ => 0,
        },
        _ => 0,
    }
}

fn type_of(v: &Val) -> &'static str {
    v.static_type()
}

/// Equality of two basic values, as `eq` has it.
pub fn basic_equal(a: &Val, b: &Val) -> Result<bool, GoErr> {
    eq(a, std::slice::from_ref(b))
}

fn eq(a: &Val, rest: &[Val]) -> Result<bool, GoErr> {
    if rest.is_empty() {
        return err("missing argument for comparison");
    }
    let k1 = kind(a);
    for b in rest {
        let k2 = kind(b);
        let truth = if k1 != k2 {
            match (k1, k2) {
                (Kind::Int, Kind::Uint) | (Kind::Uint, Kind::Int) => as_int(a) == as_int(b),
                _ => {
                    if a.is_some() && b.is_some() {
                        return err(format!("incompatible types for comparison: {} and {}", type_of(a), type_of(b)));
                    }
                    false
                }
            }
        } else {
            match (a, b) {
                (Val::Bool(x), Val::Bool(y)) => x == y,
                (Val::Float(x), Val::Float(y)) => x == y,
                (Val::Str(x), Val::Str(y)) => x == y,
                _ if matches!(k1, Kind::Int | Kind::Uint) => as_int(a) == as_int(b),
                _ => other_equal(a, b)?,
            }
        };
        if truth {
            return Ok(true);
        }
    }
    Ok(false)
}

fn shown(v: &Val, verb: &str) -> String {
    crate::text::lossy(&sprintf(verb.as_bytes(), std::slice::from_ref(v))).into_owned()
}

fn is_nil(v: &Val) -> bool {
    matches!(v, Val::No | Val::Nil) || matches!(v, Val::List(l) if l.nil)
}

fn other_equal(a: &Val, b: &Val) -> Result<bool, GoErr> {
    if a.kind_name() != b.kind_name() && a.is_some() && b.is_some() {
        return err(format!("non-comparable types {}: {}, {}: {}", shown(a, "%s"), type_of(a), type_of(b), shown(b, "%v")));
    }
    if is_nil(a) || is_nil(b) {
        return Ok(is_nil(a) == is_nil(b));
    }
    if matches!(b, Val::Map(_) | Val::List(_)) {
        return err(format!("non-comparable type {}: {}", shown(b, "%s"), type_of(b)));
    }
    Ok(a.deep_equal(b))
}

fn lt(a: &Val, b: &Val) -> Result<bool, GoErr> {
    let bad = || GoErr::new("invalid type for comparison");
    let (k1, k2) = (kind(a), kind(b));
    if k1 == Kind::Invalid || k2 == Kind::Invalid {
        return Err(bad());
    }
    if k1 != k2 {
        return match (k1, k2) {
            (Kind::Int, Kind::Uint) | (Kind::Uint, Kind::Int) => Ok(as_int(a) < as_int(b)),
            _ => err(format!("incompatible types for comparison: {} and {}", type_of(a), type_of(b))),
        };
    }
    match (a, b) {
        (Val::Float(x), Val::Float(y)) => Ok(x < y),
        (Val::Str(x), Val::Str(y)) => Ok(x < y),
        _ if matches!(k1, Kind::Int | Kind::Uint) => Ok(as_int(a) < as_int(b)),
        _ => Err(bad()),
    }
}

fn le(a: &Val, b: &Val) -> Result<bool, GoErr> {
    Ok(lt(a, b)? || eq(a, std::slice::from_ref(b))?)
}

fn length(v: &Val) -> Out {
    Ok(Val::Int(match v {
        Val::Str(s) => s.len() as i64,
        Val::List(l) => l.v.len() as i64,
        Val::Map(m) => m.len() as i64,
        Val::Nil => return err("len of nil pointer"),
        Val::No => return err("reflect: call of reflect.Value.Type on zero Value"),
        v => return err(format!("len of type {}", elem_type(v))),
    }))
}

/// Type after following a pointer.
fn elem_type(v: &Val) -> &str {
    v.type_name().trim_start_matches('*')
}

fn index_arg(i: &Val, cap: usize) -> Result<usize, GoErr> {
    let x = match kind(i) {
        Kind::Int | Kind::Uint => as_int(i),
        _ if !i.is_some() => return err("cannot index slice/array with nil"),
        _ => return err(format!("cannot index slice/array with type {}", type_of(i))),
    };
    if x < 0 || x as usize > cap {
        return err(format!("index out of range: {x}"));
    }
    Ok(x as usize)
}

fn index(item: &Val, indexes: &[Val]) -> Out {
    if !item.is_some() {
        return err("index of untyped nil");
    }
    let mut item = item.clone();
    for i in indexes {
        item = match &item {
            Val::Str(s) => {
                let x = index_arg(i, s.len())?;
                match s.as_bytes().get(x) {
                    Some(b) => Val::Byte(*b),
                    None => return err("reflect: string index out of range"),
                }
            }
            Val::List(l) => {
                let x = index_arg(i, l.v.len())?;
                match l.v.get(x) {
                    Some(v) => v.clone(),
                    None => return err("reflect: slice index out of range"),
                }
            }
            Val::Map(m) => {
                let key: Str = match i {
                    Val::Str(k) => k.clone(),
                    Val::No | Val::Nil => return err("value is nil; should be of type string"),
                    i => return err(format!("value has type {}; should be string", type_of(i))),
                };
                m.get(key.as_bytes()).unwrap_or_else(|| zero_element(m.ty))
            }
            Val::Nil | Val::No => return err("index of nil pointer"),
            v => return err(format!("can't index item of type {}", elem_type(v))),
        };
    }
    Ok(item)
}

/// What a missing key of a map gives.
pub(crate) fn zero_element(ty: MapTy) -> Val {
    match ty {
        MapTy::Any | MapTy::Values => Val::Nil,
        MapTy::Str | MapTy::NilStr => Val::str(""),
        MapTy::Files => Val::nil_list(ListTy::Bytes),
    }
}
