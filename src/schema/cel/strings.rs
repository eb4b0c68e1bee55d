//! Member functions of strings.

use super::eval::{EvalError, Run, failed, tenth};
use super::format;
use super::functions::compile_regex;
use super::value::Val;
use std::sync::Arc;

type Res<'a> = Result<Val<'a>, EvalError>;

/// A function of a string; `None` when strings have none of this name.
pub(crate) fn member<'a>(run: &mut Run<'a, '_>, s: &str, name: &str, args: &[Val<'a>]) -> Option<Res<'a>> {
    let bool_of = |b: bool| Some(Ok(Val::Bool(b)));
    let text = |t: &str| Some(Ok(Val::string(t)));
    let chars = || s.chars().collect::<Vec<char>>();
    let at = |i: &i64| usize::try_from(*i).ok();
    match (name, args) {
        ("contains", [Val::String(x)]) => bool_of(s.contains(&**x)),
        ("startsWith", [Val::String(x)]) => bool_of(s.starts_with(&**x)),
        ("endsWith", [Val::String(x)]) => bool_of(s.ends_with(&**x)),
        ("matches", [Val::String(p)]) => {
            // A pattern costs a quarter of its length for every tenth of the text.
            if let Err(e) = run.spend(tenth(s.len()).saturating_mul(u64::try_from(p.len().div_ceil(4)).unwrap_or(1))) {
                return Some(Err(e));
            }
            Some(compile_regex(p).map(|r| Val::Bool(r.is_match(s))))
        }
        ("find", [Val::String(p)]) => Some(compile_regex(p).map(|r| Val::string(r.find(s).map_or("", |m| m.as_str())))),
        ("findAll", [Val::String(p)]) => Some(compile_regex(p).map(|r| strings(r.find_iter(s).map(|m| m.as_str().to_owned()).collect()))),
        ("findAll", [Val::String(p), Val::Int(n)]) => {
            let limit = usize::try_from(*n).unwrap_or(usize::MAX);
            Some(compile_regex(p).map(|r| strings(r.find_iter(s).take(limit).map(|m| m.as_str().to_owned()).collect())))
        }
        ("charAt", [Val::Int(i)]) => {
            let c = chars();
            Some(match at(i) {
                Some(i) if i < c.len() => Ok(Val::string(&c[i].to_string())),
                Some(i) if i == c.len() => Ok(Val::string("")),
                _ => failed(format!("index out of range: {i}")),
            })
        }
        ("indexOf", [Val::String(x)]) => Some(Ok(index(s.find(&**x), s))),
        ("indexOf", [Val::String(x), Val::Int(from)]) => {
            let c = chars();
            Some(match at(from) {
                Some(i) if i <= c.len() => {
                    let tail: String = c[i..].iter().collect();
                    Ok(match tail.find(&**x) {
                        Some(n) => Val::Int(i64::try_from(tail[..n].chars().count() + i).unwrap_or(-1)),
                        None => Val::Int(-1),
                    })
                }
                _ => failed(format!("index out of range: {from}")),
            })
        }
        ("lastIndexOf", [Val::String(x)]) => Some(Ok(index(s.rfind(&**x), s))),
        ("lastIndexOf", [Val::String(x), Val::Int(until)]) => {
            let c = chars();
            Some(match at(until) {
                Some(i) if i < c.len() => {
                    let n = x.chars().count();
                    let head: String = c[..(i + n).min(c.len())].iter().collect();
                    Ok(index(head.rfind(&**x), &head))
                }
                _ => failed(format!("index out of range: {until}")),
            })
        }
        ("lowerAscii", []) => text(&s.to_ascii_lowercase()),
        ("upperAscii", []) => text(&s.to_ascii_uppercase()),
        ("trim", []) => text(s.trim()),
        ("reverse", []) => text(&s.chars().rev().collect::<String>()),
        ("replace", [Val::String(a), Val::String(b)]) => text(&s.replace(&**a, b)),
        ("replace", [Val::String(a), Val::String(b), Val::Int(n)]) => text(&usize::try_from(*n).map_or_else(|_| s.replace(&**a, b), |n| s.replacen(&**a, b, n))),
        ("split", [Val::String(x)]) => Some(Ok(strings(split(s, x, None)))),
        ("split", [Val::String(x), Val::Int(n)]) => Some(Ok(match n {
            0 => strings(Vec::new()),
            n => strings(split(s, x, usize::try_from(*n).ok())),
        })),
        ("substring", [Val::Int(a)]) => Some(substring(&chars(), *a, None)),
        ("substring", [Val::Int(a), Val::Int(b)]) => Some(substring(&chars(), *a, Some(*b))),
        ("format", [list]) => {
            let items = list.items()?;
            Some(format::format(s, &items))
        }
        ("size", []) => Some(Ok(Val::Int(i64::try_from(s.chars().count()).unwrap_or(i64::MAX)))),
        _ => None,
    }
}

fn index(bytes: Option<usize>, s: &str) -> Val<'static> {
    Val::Int(bytes.and_then(|n| i64::try_from(s[..n].chars().count()).ok()).unwrap_or(-1))
}

fn strings(v: Vec<String>) -> Val<'static> {
    Val::List(Arc::new(v.iter().map(|s| Val::string(s)).collect()))
}

fn split(s: &str, sep: &str, limit: Option<usize>) -> Vec<String> {
    let pieces: Vec<String> = if sep.is_empty() { s.chars().map(|c| c.to_string()).collect() } else { s.split(sep).map(str::to_owned).collect() };
    match limit {
        Some(n) if pieces.len() > n => {
            let mut out = pieces[..n - 1].to_vec();
            out.push(pieces[n - 1..].join(sep));
            out
        }
        _ => pieces,
    }
}

fn substring<'a>(c: &[char], a: i64, b: Option<i64>) -> Res<'a> {
    let len = i64::try_from(c.len()).unwrap_or(i64::MAX);
    let b = b.unwrap_or(len);
    if a < 0 || a > len || b < 0 || b > len {
        return failed(format!("index out of range: {}", if a < 0 || a > len { a } else { b }));
    }
    if a > b {
        return failed(format!("invalid substring range. start: {a}, end: {b}"));
    }
    let (a, b) = (usize::try_from(a).unwrap_or(0), usize::try_from(b).unwrap_or(0));
    Ok(Val::string(&c[a..b].iter().collect::<String>()))
}
