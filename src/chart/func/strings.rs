//! Text functions: trimming, joining, indenting, quoting, cutting.

use super::Ty::{Any, Int, Str as S};
use super::{Func, Out, err, f, int, s, strings, strval, v};
use crate::limit::{MAX_ITEMS, MAX_TEXT};
use crate::run::Runtime;
use crate::text::fmt::{sprint_all, sprintf, write_v};
use crate::text::quote::quote;
use crate::text::{go_trim, runes};
use crate::value::{ListTy, MapTy, Str, Tree, Val};

pub(super) fn table() -> Vec<Func> {
    vec![
        v("print", &[], Any, |_, a| Ok(Val::str(sprint_all(a)))),
        v("println", &[], Any, println),
        v("printf", &[S], Any, |_, a| Ok(Val::str(sprintf(s(&a[0]), &a[1..])))),
        v("html", &[], Any, |_, a| Ok(Val::str(html(&eval_args(a))))),
        v("js", &[], Any, |_, a| Ok(Val::str(js(&eval_args(a))))),
        v("urlquery", &[], Any, |_, a| Ok(Val::str(super::paths::query_escape(&eval_args(a))))),
        f("trim", &[S], |_, a| Ok(Val::str(go_trim(s(&a[0]))))),
        f("upper", &[S], |_, a| Ok(upper(s(&a[0])))),
        f("lower", &[S], |_, a| Ok(lower(s(&a[0])))),
        f("repeat", &[Int, S], repeat),
        f("trimall", &[S, S], |_, a| Ok(trim_set(s(&a[0]), s(&a[1])))),
        f("trimAll", &[S, S], |_, a| Ok(trim_set(s(&a[0]), s(&a[1])))),
        f("trimSuffix", &[S, S], |_, a| Ok(a[1].as_str().map_or(Val::No, |t| t.as_bytes().strip_suffix(s(&a[0])).map_or(a[1].clone(), Val::str)))),
        f("trimPrefix", &[S, S], |_, a| Ok(a[1].as_str().map_or(Val::No, |t| t.as_bytes().strip_prefix(s(&a[0])).map_or(a[1].clone(), Val::str)))),
        f("contains", &[S, S], |_, a| Ok(Val::Bool(find(s(&a[1]), s(&a[0])).is_some()))),
        f("hasPrefix", &[S, S], |_, a| Ok(Val::Bool(s(&a[1]).starts_with(s(&a[0]))))),
        f("hasSuffix", &[S, S], |_, a| Ok(Val::Bool(s(&a[1]).ends_with(s(&a[0]))))),
        v("quote", &[], Any, |_, a| Ok(joined(a, |v| quote(strval(v).as_bytes()).into_bytes()))),
        v("squote", &[], Any, |_, a| {
            Ok(joined(a, |v| {
                let mut o = vec![b'\''];
                write_v(&mut o, v);
                o.push(b'\'');
                o
            }))
        }),
        v("cat", &[], Any, |_, a| {
            Ok(joined(a, |v| {
                let mut o = Vec::new();
                write_v(&mut o, v);
                o
            }))
        }),
        f("indent", &[Int, S], |_, a| indent(int(&a[0]), s(&a[1]), false)),
        f("nindent", &[Int, S], |_, a| indent(int(&a[0]), s(&a[1]), true)),
        f("replace", &[S, S, S], |_, a| Ok(Val::str(replace(s(&a[2]), s(&a[0]), s(&a[1]))?))),
        f("plural", &[S, S, Int], |_, a| Ok(if int(&a[2]) == 1 { a[0].clone() } else { a[1].clone() })),
        f("toString", &[Any], |_, a| Ok(Val::Str(strval(&a[0])))),
        f("toStrings", &[Any], |_, a| Ok(strings(str_slice(&a[0])))),
        f("trunc", &[Int, S], trunc),
        f("join", &[S, Any], |_, a| Ok(Val::str(str_slice(&a[1]).iter().map(Str::as_bytes).collect::<Vec<_>>().join(s(&a[0]))))),
        f("split", &[S, S], |_, a| Ok(numbered(split(s(&a[1]), s(&a[0]), -1)))),
        f("splitn", &[S, Int, S], |_, a| Ok(numbered(split(s(&a[2]), s(&a[0]), int(&a[1]))))),
        f("splitList", &[S, S], |_, a| Ok(strings(split(s(&a[1]), s(&a[0]), -1)))),
        f("substr", &[Int, Int, S], substr),
        f("sortAlpha", &[Any], |_, a| {
            Ok(match &a[0] {
                l @ Val::List(_) => {
                    let mut all = str_slice(l);
                    all.sort();
                    strings(all)
                }
                x => strings([strval(x)]),
            })
        }),
    ]
}

/// `evalArgs` of text/template: one string as it is, otherwise `Sprint`.
fn eval_args(a: &[Val]) -> Vec<u8> {
    match a {
        [Val::Str(s)] => s.as_bytes().to_vec(),
        a => {
            let all: Vec<Val> = a.iter().map(|v| if v.is_some() { v.clone() } else { Val::str("<no value>") }).collect();
            sprint_all(&all)
        }
    }
}

fn println(_: &mut Runtime, a: &[Val]) -> Out {
    let mut o = Vec::new();
    for (i, x) in a.iter().enumerate() {
        if i > 0 {
            o.push(b' ');
        }
        write_v(&mut o, x);
    }
    o.push(b'\n');
    Ok(Val::str(o))
}

fn html(b: &[u8]) -> Vec<u8> {
    let mut o = Vec::with_capacity(b.len());
    for c in b {
        match c {
            0 => o.extend_from_slice("\u{FFFD}".as_bytes()),
            b'"' => o.extend_from_slice(b"&#34;"),
            b'\'' => o.extend_from_slice(b"&#39;"),
            b'&' => o.extend_from_slice(b"&amp;"),
            b'<' => o.extend_from_slice(b"&lt;"),
            b'>' => o.extend_from_slice(b"&gt;"),
            c => o.push(*c),
        }
    }
    o
}

fn js(b: &[u8]) -> Vec<u8> {
    let mut o = Vec::with_capacity(b.len());
    for (i, r, w) in runes(b) {
        match r {
            '\\' => o.extend_from_slice(b"\\\\"),
            '\'' => o.extend_from_slice(b"\\'"),
            '"' => o.extend_from_slice(b"\\\""),
            '<' | '>' | '&' | '=' => o.extend_from_slice(format!("\\u{:04X}", r as u32).as_bytes()),
            r if r < ' ' => o.extend_from_slice(format!("\\u{:04X}", r as u32).as_bytes()),
            r if r.is_ascii() || crate::text::is_print(r) => o.extend_from_slice(&b[i..i + w]),
            r => o.extend_from_slice(format!("\\u{:04X}", r as u32).as_bytes()),
        }
    }
    o
}

fn map_chars(b: &[u8], ascii: fn(&u8) -> u8, all: impl Fn(&str) -> String) -> Val {
    if b.is_ascii() {
        return Val::str(b.iter().map(ascii).collect::<Vec<u8>>());
    }
    Val::str(all(&crate::json::valid(b)))
}

/// Each character by itself, as Go maps cases.
fn upper(b: &[u8]) -> Val {
    map_chars(b, u8::to_ascii_uppercase, |t| t.chars().map(super::words::to_upper).collect())
}

fn lower(b: &[u8]) -> Val {
    map_chars(b, u8::to_ascii_lowercase, |t| t.chars().map(super::words::to_lower).collect())
}

fn repeat(_: &mut Runtime, a: &[Val]) -> Out {
    let (n, t) = (int(&a[0]), s(&a[1]));
    if n < 0 {
        return err("strings: negative Repeat count");
    }
    match (n as usize).checked_mul(t.len()) {
        Some(len) if len <= MAX_TEXT => Ok(Val::str(t.repeat(n as usize))),
        _ => err("strings: Repeat output length overflow"),
    }
}

fn trim_set(set: &[u8], t: &[u8]) -> Val {
    let set: Vec<char> = runes(set).map(|(_, c, _)| c).collect();
    let start: usize = runes(t).take_while(|(_, c, _)| set.contains(c)).map(|(_, _, w)| w).sum();
    let all: Vec<_> = runes(&t[start..]).collect();
    let end: usize = all.iter().rev().take_while(|(_, c, _)| set.contains(c)).map(|(_, _, w)| w).sum();
    Val::str(&t[start..t.len() - end])
}

/// First place of a needle; an empty one is found at 0.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() { Some(0) } else { crate::template::lex::find(hay, needle) }
}

fn joined(a: &[Val], each: impl Fn(&Val) -> Vec<u8>) -> Val {
    Val::str(a.iter().filter(|v| v.is_some()).map(each).collect::<Vec<_>>().join(&b' '))
}

fn indent(n: i64, t: &[u8], newline: bool) -> Out {
    if n < 0 {
        return err("strings: negative Repeat count");
    }
    let n = n as usize;
    let lines = 1 + t.iter().filter(|c| **c == b'\n').count();
    if n.saturating_mul(lines).saturating_add(t.len()) > MAX_TEXT {
        return err("strings: Repeat output length overflow");
    }
    let mut o = Vec::with_capacity(t.len() + n * lines + 1);
    if newline {
        o.push(b'\n');
    }
    o.extend(std::iter::repeat_n(b' ', n));
    let mut from = 0;
    while let Some(i) = t[from..].iter().position(|c| *c == b'\n') {
        o.extend_from_slice(&t[from..=from + i]);
        o.extend(std::iter::repeat_n(b' ', n));
        from += i + 1;
    }
    o.extend_from_slice(&t[from..]);
    Ok(Val::str(o))
}

/// `strings.ReplaceAll`.
pub(crate) fn replace(t: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, super::GoErr> {
    let mut o = Vec::with_capacity(t.len());
    if old.is_empty() {
        if t.len().saturating_mul(new.len() + 1) > MAX_TEXT {
            return err("strings: Repeat output length overflow");
        }
        for (i, _, w) in runes(t) {
            o.extend_from_slice(new);
            o.extend_from_slice(&t[i..i + w]);
        }
        o.extend_from_slice(new);
        return Ok(o);
    }
    let mut from = 0;
    while let Some(i) = find(&t[from..], old) {
        o.extend_from_slice(&t[from..from + i]);
        o.extend_from_slice(new);
        if o.len() > MAX_TEXT {
            return err("strings: Repeat output length overflow");
        }
        from += i + old.len();
    }
    o.extend_from_slice(&t[from..]);
    Ok(o)
}

/// sprig's `strslice`: texts of a list's elements without nils, or of one value.
pub(super) fn str_slice(v: &Val) -> Vec<Str> {
    match v {
        Val::No | Val::Nil => Vec::new(),
        Val::List(l) if l.ty == ListTy::Str => l.v.iter().filter_map(|v| v.as_str().cloned()).collect(),
        Val::List(l) => l.v.iter().filter(|v| v.is_some()).map(strval).collect(),
        v => vec![strval(v)],
    }
}

fn trunc(_: &mut Runtime, a: &[Val]) -> Out {
    let (c, t) = (int(&a[0]), s(&a[1]));
    let n = t.len() as i64;
    if c < 0 && n + c > 0 {
        return Ok(Val::str(&t[(n + c) as usize..]));
    }
    if c >= 0 && n > c {
        return Ok(Val::str(&t[..c as usize]));
    }
    Ok(a[1].clone())
}

/// `strings.SplitN`.
pub(super) fn split<'t>(t: &'t [u8], sep: &[u8], n: i64) -> Vec<&'t [u8]> {
    let mut out = Vec::new();
    if n == 0 {
        return out;
    }
    let max = if n < 0 { MAX_ITEMS } else { n as usize };
    if sep.is_empty() {
        let mut from = 0;
        for (i, _, w) in runes(t) {
            if out.len() + 1 >= max {
                break;
            }
            out.push(&t[i..i + w]);
            from = i + w;
        }
        if from < t.len() {
            out.push(&t[from..]);
        }
        return out;
    }
    let mut from = 0;
    while out.len() + 1 < max {
        let Some(i) = find(&t[from..], sep) else { break };
        out.push(&t[from..from + i]);
        from += i + sep.len();
    }
    out.push(&t[from..]);
    out
}

fn numbered(parts: Vec<&[u8]>) -> Val {
    let m: Tree = parts.into_iter().enumerate().map(|(i, p)| (Str::from(format!("_{i}")), Val::str(p))).collect();
    Val::typed_map(MapTy::Str, m)
}

/// The panic of a bad slice expression on a string.
pub(super) fn slice_panic(start: Option<i64>, end: Option<i64>, len: usize) -> String {
    match (start, end) {
        (_, Some(e)) if e < 0 => format!("runtime error: slice bounds out of range [:{e}]"),
        (_, Some(e)) if e > len as i64 => format!("runtime error: slice bounds out of range [:{e}] with length {len}"),
        (Some(b), Some(e)) => format!("runtime error: slice bounds out of range [{b}:{e}]"),
        (Some(b), None) => format!("runtime error: slice bounds out of range [{b}:{len}]"),
        _ => "runtime error: slice bounds out of range".into(),
    }
}

fn substr(_: &mut Runtime, a: &[Val]) -> Out {
    let (start, end, t) = (int(&a[0]), int(&a[1]), s(&a[2]));
    let n = t.len() as i64;
    if start < 0 {
        if end < 0 || end > n {
            return err(slice_panic(None, Some(end), t.len()));
        }
        return Ok(Val::str(&t[..end as usize]));
    }
    if end < 0 || end > n {
        if start > n {
            return err(slice_panic(Some(start), None, t.len()));
        }
        return Ok(Val::str(&t[start as usize..]));
    }
    if start > end {
        return err(slice_panic(Some(start), Some(end), t.len()));
    }
    Ok(Val::str(&t[start as usize..end as usize]))
}
