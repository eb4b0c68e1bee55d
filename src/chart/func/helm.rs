//! Functions Helm adds: YAML, TOML and JSON both ways, `include`, `tpl`, `required`, `fail`, `lookup`.

use super::Ty::{Any, Str as S};
use super::{Func, GoErr, Out, err, f, s, text, toml};
use crate::run::Runtime;
use crate::value::{Str, Tree, Val};
use crate::yaml::{decode, decode_document, pretty, to_yaml};

pub(super) fn table() -> Vec<Func> {
    vec![
        f("toYaml", &[Any], |rt, a| to_yaml_text(rt, &a[0])),
        f("mustToYaml", &[Any], must_to_yaml),
        f("toYamlPretty", &[Any], |_, a| Ok(Val::str(pretty::to_yaml_pretty(&a[0])))),
        f("fromYaml", &[S], |_, a| {
            Ok(Val::map(decode_document(s(&a[0])).unwrap_or_else(|e| error_map(e.0))))
        }),
        f("fromYamlArray", &[S], |_, a| {
            Ok(match decode(s(&a[0])) {
                Ok(l @ Val::List(_)) => l,
                Ok(Val::Nil | Val::No) => Val::list(Vec::new()),
                Ok(v) => Val::list(vec![Val::str(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type []interface {{}}", crate::yaml::decode::json_kind(&v)))]),
                Err(e) => Val::list(vec![Val::str(e.0)]),
            })
        }),
        f("fromJson", &[S], |_, a| Ok(Val::map(crate::json::decode_map(s(&a[0])).unwrap_or_else(error_map)))),
        f("fromJsonArray", &[S], |_, a| {
            Ok(match crate::json::decode(s(&a[0])) {
                Ok(l @ Val::List(_)) => l,
                Ok(Val::Nil | Val::No) => Val::nil_list(crate::value::ListTy::Any),
                Ok(v) => Val::list(vec![Val::str(format!("json: cannot unmarshal {} into Go value of type []interface {{}}", crate::yaml::decode::json_kind(&v)))]),
                Err(e) => Val::list(vec![Val::str(e)]),
            })
        }),
        f("toToml", &[Any], |_, a| if a[0].is_some() { Ok(Val::str(toml::encode(&a[0]).unwrap_or_else(String::into_bytes))) } else { err("reflect: call of reflect.Value.Type on zero Value") }),
        f("mustToToml", &[Any], |_, a| toml::encode(&a[0]).map(Val::str).map_err(GoErr::new)),
        f("fromToml", &[S], |_, a| Ok(Val::map(toml::decode(&text(&a[0])).unwrap_or_else(error_map)))),
        f("include", &[S, Any], |rt, a| rt.include(&text(&a[0]), s(&a[0]), &a[1])),
        f("tpl", &[S, Any], |rt, a| match &a[0] {
            Val::Str(t) => rt.tpl(t, &a[1]),
            _ => Ok(Val::str("")),
        }),
        f("required", &[S, Any], |_, a| match &a[1] {
            Val::No | Val::Nil => err(warn(&text(&a[0]))),
            Val::Str(v) if v.is_empty() => err(warn(&text(&a[0]))),
            v => Ok(v.clone()),
        }),
        f("fail", &[S], |_, a| err(warn(&text(&a[0])))),
        f("lookup", &[S, S, S, S], |rt, a| Ok(rt.lookup(&text(&a[0]), &text(&a[1]), &text(&a[2]), &text(&a[3])))),
        f("getHostByName", &[S], |_, _| Ok(Val::str(""))),
    ]
}

/// Marks a message of the chart's author, which Helm prints alone.
fn warn(m: &str) -> String {
    format!("HELM_ERR_START{m}HELM_ERR_END")
}

fn error_map(e: String) -> Tree {
    Tree::from([(Str::from("Error"), Val::str(e))])
}

fn to_yaml_text(rt: &mut Runtime, v: &Val) -> Out {
    let mut out = to_yaml(v).unwrap_or_default();
    rt.grew(out.len())?;
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    Ok(Val::str(out))
}

fn must_to_yaml(_: &mut Runtime, a: &[Val]) -> Out {
    match to_yaml(&a[0]) {
        Some(mut o) => {
            if o.last() == Some(&b'\n') {
                o.pop();
            }
            Ok(Val::str(o))
        }
        None => err(match crate::json::encode(&a[0], crate::json::Form { html: true, pretty: false }) {
            Err(e) => format!("error marshaling into JSON: {e}"),
            Ok(_) => "yaml: control characters are not allowed".into(),
        }),
    }
}
