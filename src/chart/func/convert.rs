//! Defaults, emptiness, types, JSON: sprig's and Helm's conversions.

use super::Ty::{Any, Bool, Str as S};
use super::{Func, GoErr, Out, f, s, v};
use crate::json::{Form, decode, encode};
use crate::run::Runtime;
use crate::value::Val;

const PLAIN: Form = Form { html: true, pretty: false };
const RAW: Form = Form { html: false, pretty: false };
const PRETTY: Form = Form { html: true, pretty: true };

pub(super) fn table() -> Vec<Func> {
    vec![
        v("default", &[Any], Any, |_, a| Ok(if a.len() < 2 || empty(&a[1]) { a[0].clone() } else { a[1].clone() })),
        f("empty", &[Any], |_, a| Ok(Val::Bool(empty(&a[0])))),
        v("coalesce", &[], Any, |_, a| Ok(a.iter().find(|v| !empty(v)).cloned().unwrap_or(Val::Nil))),
        v("all", &[], Any, |_, a| Ok(Val::Bool(!a.iter().any(empty)))),
        v("any", &[], Any, |_, a| Ok(Val::Bool(a.iter().any(|v| !empty(v))))),
        f("ternary", &[Any, Any, Bool], |_, a| Ok(if a[2].truth() { a[0].clone() } else { a[1].clone() })),
        f("deepCopy", &[Any], deep_copy),
        f("mustDeepCopy", &[Any], deep_copy),
        f("typeOf", &[Any], |_, a| Ok(Val::str(a[0].type_name()))),
        f("typeIs", &[S, Any], |_, a| Ok(Val::Bool(s(&a[0]) == a[1].type_name().as_bytes()))),
        f("typeIsLike", &[S, Any], |_, a| {
            let t = a[1].type_name().as_bytes();
            Ok(Val::Bool(s(&a[0]) == t || t.strip_prefix(b"*").is_some_and(|t| s(&a[0]) == t)))
        }),
        f("kindOf", &[Any], |_, a| Ok(Val::str(a[0].kind_name()))),
        f("kindIs", &[S, Any], |_, a| Ok(Val::Bool(s(&a[0]) == a[1].kind_name().as_bytes()))),
        f("deepEqual", &[Any, Any], |_, a| Ok(Val::Bool(a[0].deep_equal(&a[1])))),
        f("toJson", &[Any], |_, a| Ok(Val::str(encode(&a[0], PLAIN).unwrap_or_default()))),
        f("mustToJson", &[Any], |_, a| encode(&a[0], PLAIN).map(Val::str).map_err(GoErr::new)),
        f("toPrettyJson", &[Any], |_, a| Ok(Val::str(encode(&a[0], PRETTY).unwrap_or_default()))),
        f("mustToPrettyJson", &[Any], |_, a| encode(&a[0], PRETTY).map(Val::str).map_err(GoErr::new)),
        f("toRawJson", &[Any], |_, a| encode(&a[0], RAW).map(Val::str).map_err(GoErr::new)),
        f("mustToRawJson", &[Any], |_, a| encode(&a[0], RAW).map(Val::str).map_err(GoErr::new)),
        f("mustFromJson", &[S], |_, a| decode(s(&a[0])).map_err(GoErr::new)),
    ]
}

/// sprig's `empty`: zero values of every kind.
pub(crate) fn empty(v: &Val) -> bool {
    !v.truth()
}

fn deep_copy(_: &mut Runtime, a: &[Val]) -> Out {
    match &a[0] {
        Val::No | Val::Nil => super::err("reflect: call of reflect.Value.Type on zero Value"),
        v => Ok(v.deep_copy()),
    }
}
