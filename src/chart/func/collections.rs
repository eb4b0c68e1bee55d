//! Lists and dictionaries.

use super::Ty::{Any, Int, Map as M, Str as S};
use super::math::to_int;
use super::{Func, GoErr, NIL_PANIC, Out, err, f, int, map, s, strings, strval, v};
use crate::limit::MAX_ITEMS;
use crate::run::Runtime;
use crate::value::{ListTy, Str, Tree, Val};
use std::sync::Arc;

pub(super) fn table() -> Vec<Func> {
    let mut t = vec![
        v("list", &[], Any, |_, a| Ok(Val::list(clean(a)))),
        v("tuple", &[], Any, |_, a| Ok(Val::list(clean(a)))),
        v("dict", &[], Any, dict),
        f("get", &[M, S], |_, a| Ok(map(&a[0]).and_then(|m| m.get(s(&a[1]))).unwrap_or_else(|| Val::str("")))),
        f("set", &[M, S, Any], set),
        f("unset", &[M, S], |_, a| {
            if let Some(m) = map(&a[0]) {
                m.lock().remove(s(&a[1]));
            }
            Ok(as_any(&a[0]))
        }),
        f("hasKey", &[M, S], |_, a| Ok(Val::Bool(map(&a[0]).is_some_and(|m| m.lock().contains_key(s(&a[1])))))),
        v("pluck", &[S], M, |_, a| Ok(Val::list(a[1..].iter().filter_map(|m| map(m).and_then(|m| m.get(s(&a[0])))).collect()))),
        v("keys", &[], M, |_, a| Ok(strings(a.iter().filter_map(map).flat_map(|m| m.lock().keys().cloned().collect::<Vec<_>>())))),
        f("values", &[M], |_, a| Ok(Val::list(map(&a[0]).map_or(Vec::new(), |m| m.lock().values().cloned().collect())))),
        v("pick", &[M], S, |_, a| {
            let mut t = Tree::new();
            if let Some(m) = map(&a[0]) {
                for k in &a[1..] {
                    if let (Val::Str(k), Some(v)) = (k, m.get(s(k))) {
                        t.insert(k.clone(), v);
                    }
                }
            }
            Ok(Val::map(t))
        }),
        v("omit", &[M], S, |_, a| {
            let mut t = map(&a[0]).map_or(Tree::new(), |m| m.lock().clone());
            for k in &a[1..] {
                t.remove(s(k));
            }
            Ok(Val::map(t))
        }),
        v("dig", &[], Any, dig),
        v("slice", &[Any], Any, slice),
        v("mustSlice", &[Any], Any, slice),
        v("concat", &[], Any, concat),
        f("has", &[Any, Any], has),
        f("mustHas", &[Any, Any], has),
        v("without", &[Any], Any, without),
        v("mustWithout", &[Any], Any, without),
        f("chunk", &[Int, Any], chunk),
        f("mustChunk", &[Int, Any], chunk),
    ];
    for name in ["append", "push", "mustAppend", "mustPush"] {
        t.push(f(name, &[Any, Any], |_, a| with(&a[0], "Cannot push on type", |l| Ok(Val::list(l.iter().cloned().chain([nil(&a[1])]).collect())))));
    }
    for name in ["prepend", "mustPrepend"] {
        t.push(f(name, &[Any, Any], |_, a| with(&a[0], "Cannot prepend on type", |l| Ok(Val::list([nil(&a[1])].into_iter().chain(l.iter().cloned()).collect())))));
    }
    for name in ["first", "mustFirst"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot find first on type", |l| Ok(l.first().cloned().unwrap_or(Val::Nil)))));
    }
    for name in ["last", "mustLast"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot find last on type", |l| Ok(l.last().cloned().unwrap_or(Val::Nil)))));
    }
    for name in ["rest", "mustRest"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot find rest on type", |l| Ok(l.get(1..).map_or(Val::nil_list(ListTy::Any), |l| Val::list(l.to_vec()))))));
    }
    for name in ["initial", "mustInitial"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot find initial on type", |l| Ok(l.split_last().map_or(Val::nil_list(ListTy::Any), |(_, l)| Val::list(l.to_vec()))))));
    }
    for name in ["reverse", "mustReverse"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot find reverse on type", |l| Ok(Val::list(l.iter().rev().cloned().collect())))));
    }
    for name in ["compact", "mustCompact"] {
        t.push(f(name, &[Any], |_, a| with(&a[0], "Cannot compact on type", |l| Ok(Val::list(l.iter().filter(|v| !super::convert::empty(v)).cloned().collect())))));
    }
    for name in ["uniq", "mustUniq"] {
        t.push(f(name, &[Any], |rt, a| {
            rt.burn(list_len(&a[0]).saturating_mul(list_len(&a[0])) as u64 / 16)?;
            with(&a[0], "Cannot find uniq on type", |l| {
                let mut out: Vec<Val> = Vec::new();
                for v in l {
                    if !out.iter().any(|o| o.deep_equal(v)) {
                        out.push(v.clone());
                    }
                }
                Ok(Val::list(out))
            })
        }));
    }
    t
}

/// A missing argument inside a container is a nil.
fn nil(v: &Val) -> Val {
    match v {
        Val::No => Val::Nil,
        v => v.clone(),
    }
}

fn clean(a: &[Val]) -> Vec<Val> {
    a.iter().map(nil).collect()
}

/// A named map type becomes `map[string]interface {}` when a function returns it; contents stay shared.
fn as_any(v: &Val) -> Val {
    v.clone()
}

fn list_len(v: &Val) -> usize {
    if let Val::List(l) = v { l.v.len() } else { 0 }
}

fn with(v: &Val, message: &str, run: impl FnOnce(&[Val]) -> Out) -> Out {
    match v {
        Val::List(l) => {
            if l.v.len() > MAX_ITEMS {
                return err("list too long");
            }
            run(&l.v)
        }
        Val::No | Val::Nil => err(NIL_PANIC),
        v => err(format!("{message} {}", v.kind_name())),
    }
}

fn dict(_: &mut Runtime, a: &[Val]) -> Out {
    let mut t = Tree::new();
    for pair in a.chunks(2) {
        let value = pair.get(1).map_or_else(|| Val::str(""), nil);
        t.insert(strval(&pair[0]), value);
    }
    Ok(Val::map(t))
}

fn set(_: &mut Runtime, a: &[Val]) -> Out {
    let Some(m) = map(&a[0]) else { return err("assignment to entry in nil map") };
    m.lock().insert(Str::from(s(&a[1])), nil(&a[2]));
    Ok(as_any(&a[0]))
}

fn conversion(v: &Val, want: &str) -> GoErr {
    GoErr::new(match v {
        Val::No | Val::Nil => format!("interface conversion: interface {{}} is nil, not {want}"),
        v => format!("interface conversion: interface {{}} is {}, not {want}", v.type_name()),
    })
}

const MAP: &str = "map[string]interface {}";

fn plain_map(v: &Val) -> Option<&Arc<crate::value::Map>> {
    map(v).filter(|m| m.ty == crate::value::MapTy::Any)
}

fn dig(_: &mut Runtime, a: &[Val]) -> Out {
    let [keys @ .., default, last] = a else { return err("dig needs at least three arguments") };
    if keys.is_empty() {
        return err("dig needs at least three arguments");
    }
    let mut at = last.clone();
    if plain_map(&at).is_none() {
        return Err(conversion(&at, MAP));
    }
    for k in keys {
        if k.as_str().is_none() {
            return Err(conversion(k, "string"));
        }
    }
    for (i, k) in keys.iter().enumerate() {
        let Some(m) = plain_map(&at) else { return Err(conversion(&at, MAP)) };
        match m.get(s(k)) {
            None => return Ok(default.clone()),
            Some(v) if i + 1 == keys.len() => return Ok(v),
            Some(v) => at = v,
        }
    }
    Ok(default.clone())
}

fn slice(_: &mut Runtime, a: &[Val]) -> Out {
    let l = match &a[0] {
        Val::List(l) => l,
        Val::No | Val::Nil => return err(NIL_PANIC),
        v => return err(format!("list should be type of slice or array but {}", v.kind_name())),
    };
    if l.v.is_empty() {
        return Ok(Val::Nil);
    }
    let n = l.v.len() as i64;
    let start = a.get(1).map_or(0, to_int);
    let end = a.get(2).map_or(n, to_int);
    if start < 0 || end < start || end > n {
        return err("reflect.Value.Slice: slice index out of bounds");
    }
    Ok(Val::typed_list(l.ty, l.v[start as usize..end as usize].to_vec()))
}

fn concat(_: &mut Runtime, a: &[Val]) -> Out {
    let mut out = Vec::new();
    for v in a {
        match v {
            Val::List(l) => out.extend(l.v.iter().cloned()),
            Val::No | Val::Nil => return err(NIL_PANIC),
            v => return err(format!("Cannot concat type {} as list", v.kind_name())),
        }
        if out.len() > MAX_ITEMS {
            return err("list too long");
        }
    }
    Ok(if out.is_empty() { Val::nil_list(ListTy::Any) } else { Val::list(out) })
}

fn has(_: &mut Runtime, a: &[Val]) -> Out {
    match &a[1] {
        Val::No | Val::Nil => Ok(Val::Bool(false)),
        Val::List(l) => Ok(Val::Bool(l.v.iter().any(|v| v.deep_equal(&a[0])))),
        v => err(format!("Cannot find has on type {}", v.kind_name())),
    }
}

fn without(_: &mut Runtime, a: &[Val]) -> Out {
    with(&a[0], "Cannot find without on type", |l| Ok(Val::list(l.iter().filter(|v| !a[1..].iter().any(|o| o.deep_equal(v))).cloned().collect())))
}

fn chunk(_: &mut Runtime, a: &[Val]) -> Out {
    let n = int(&a[0]);
    with(&a[1], "Cannot chunk type", |l| {
        if n <= 0 {
            return if l.is_empty() && n != 0 { Ok(Val::typed_list(ListTy::Lists, Vec::new())) } else { err("runtime error: makeslice: len out of range") };
        }
        Ok(Val::typed_list(ListTy::Lists, l.chunks(n as usize).map(|c| Val::list(c.to_vec())).collect()))
    })
}
