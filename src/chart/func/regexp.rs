//! Regular expressions with Go's syntax, replacement and complaints, on the `regex` crate.

use super::Ty::{Int, Str as S};
use super::{Func, GoErr, Out, f, int, s, strings, text};
use crate::run::Runtime;
use crate::value::{ListTy, Val};
use regex::bytes::Regex;

pub(super) fn table() -> Vec<Func> {
    vec![
        f("regexMatch", &[S, S], |rt, a| Ok(Val::Bool(compile(rt, &a[0]).is_ok_and(|r| r.is_match(s(&a[1])))))),
        f("mustRegexMatch", &[S, S], |rt, a| Ok(Val::Bool(compile(rt, &a[0])?.is_match(s(&a[1]))))),
        f("regexFindAll", &[S, S, Int], |rt, a| find_all(rt, a, true)),
        f("mustRegexFindAll", &[S, S, Int], |rt, a| find_all(rt, a, false)),
        f("regexFind", &[S, S], |rt, a| find(rt, a, true)),
        f("mustRegexFind", &[S, S], |rt, a| find(rt, a, false)),
        f("regexReplaceAll", &[S, S, S], |rt, a| replace(rt, a, true, true)),
        f("mustRegexReplaceAll", &[S, S, S], |rt, a| replace(rt, a, false, true)),
        f("regexReplaceAllLiteral", &[S, S, S], |rt, a| replace(rt, a, true, false)),
        f("mustRegexReplaceAllLiteral", &[S, S, S], |rt, a| replace(rt, a, false, false)),
        f("regexSplit", &[S, S, Int], |rt, a| split(rt, a, true)),
        f("mustRegexSplit", &[S, S, Int], |rt, a| split(rt, a, false)),
        f("regexQuoteMeta", &[S], |_, a| {
            let mut o = Vec::new();
            for c in s(&a[0]) {
                if br"\.+*?()|[]{}^$".contains(c) {
                    o.push(b'\\');
                }
                o.push(*c);
            }
            Ok(Val::str(o))
        }),
    ]
}

fn compile(rt: &mut Runtime, v: &Val) -> Result<Regex, GoErr> {
    rt.regex(&text(v))
}

/// Compiled or refused, the latter as `MustCompile` panics.
fn compiled(rt: &mut Runtime, v: &Val, must: bool) -> Result<Regex, GoErr> {
    compile(rt, v).map_err(|e| {
        if must {
            let p = text(v);
            let q = if p.contains('`') || p.chars().any(|c| c < ' ' && c != '\t' || c == '\u{7f}' || c == '\u{feff}') { crate::text::quote::quote(s(v)) } else { format!("`{p}`") };
            GoErr::new(format!("regexp: Compile({q}): {}", e.text()))
        } else {
            e
        }
    })
}

fn find_all(rt: &mut Runtime, a: &[Val], must: bool) -> Out {
    let r = compiled(rt, &a[0], must)?;
    let n = int(&a[2]);
    let max = if n < 0 { usize::MAX } else { n as usize };
    let all: Vec<&[u8]> = r.find_iter(s(&a[1])).take(max).map(|m| m.as_bytes()).collect();
    Ok(if all.is_empty() { Val::nil_list(ListTy::Str) } else { strings(all) })
}

fn find(rt: &mut Runtime, a: &[Val], must: bool) -> Out {
    let r = compiled(rt, &a[0], must)?;
    Ok(Val::str(r.find(s(&a[1])).map_or(&b""[..], |m| m.as_bytes())))
}

fn replace(rt: &mut Runtime, a: &[Val], must: bool, expand: bool) -> Out {
    let r = compiled(rt, &a[0], must)?;
    let (t, repl) = (s(&a[1]), s(&a[2]));
    let out = if expand { r.replace_all(t, repl) } else { r.replace_all(t, regex::bytes::NoExpand(repl)) };
    rt.grew(out.len())?;
    Ok(Val::str(out.into_owned()))
}

fn split(rt: &mut Runtime, a: &[Val], must: bool) -> Out {
    let r = compiled(rt, &a[0], must)?;
    let (t, n) = (s(&a[1]), int(&a[2]));
    if n == 0 {
        return Ok(Val::nil_list(ListTy::Str));
    }
    if !s(&a[0]).is_empty() && t.is_empty() {
        return Ok(strings([&b""[..]]));
    }
    let mut out: Vec<&[u8]> = Vec::new();
    let (mut beg, mut end) = (0, 0);
    let max = if n < 0 { usize::MAX } else { n as usize };
    for m in r.find_iter(t).take(max) {
        if n > 0 && out.len() + 1 == max {
            break;
        }
        end = m.start();
        if m.end() != 0 {
            out.push(&t[beg..end]);
        }
        beg = m.end();
    }
    if end != t.len() {
        out.push(&t[beg..]);
    }
    Ok(strings(out))
}

/// Rewrites Go's syntax for the `regex` crate, or gives Go's complaint.
pub(crate) fn translate(p: &str) -> Result<String, String> {
    let fault = |m: &str, part: &str| Err(format!("error parsing regexp: {m}: `{part}`"));
    let c: Vec<char> = p.chars().collect();
    let sub = |a: usize, b: usize| c[a..b.min(c.len())].iter().collect::<String>();
    let mut out = String::new();
    let mut i = 0;
    let mut depth = 0usize;
    // Start of the last atom, for repetition faults.
    let mut atom: Option<usize> = None;
    let mut repeated: Option<usize> = None;
    while i < c.len() {
        let start = i;
        match c[i] {
            '\\' => {
                let Some(&e) = c.get(i + 1) else { return Err("error parsing regexp: trailing backslash at end of expression: ``".into()) };
                if e == 'Q' {
                    let mut j = i + 2;
                    while j < c.len() && !(c[j] == '\\' && c.get(j + 1) == Some(&'E')) {
                        out.push_str(&regex::escape(&c[j].to_string()));
                        j += 1;
                    }
                    i = (j + 2).min(c.len().max(j));
                    atom = Some(start);
                    repeated = None;
                    continue;
                }
                i = escape(&c, i, &mut out, false)?;
                atom = Some(start);
                repeated = None;
            }
            '[' => {
                i = class(&c, i, &mut out)?;
                atom = Some(start);
                repeated = None;
            }
            '(' => {
                depth += 1;
                if c.get(i + 1) == Some(&'?') {
                    if matches!(c.get(i + 2), Some('=' | '!')) || c.get(i + 2) == Some(&'<') && matches!(c.get(i + 3), Some('=' | '!')) {
                        let n = if c[i + 2] == '<' { 4 } else { 3 };
                        return fault("invalid or unsupported Perl syntax", &sub(i, i + n));
                    }
                    let named = c.get(i + 2) == Some(&'P') || c.get(i + 2) == Some(&'<');
                    if named {
                        let end = c[i..].iter().position(|x| *x == '>').map(|e| i + e);
                        let Some(end) = end else { return fault("invalid named capture", &sub(i, c.len())) };
                        out.push_str(&sub(i, end + 1));
                        i = end + 1;
                    } else {
                        let mut j = i + 2;
                        while j < c.len() && matches!(c[j], 'i' | 'm' | 's' | 'U' | '-') {
                            j += 1;
                        }
                        match c.get(j) {
                            Some(':') => {}
                            Some(')') => depth -= 1,
                            None => return fault("missing argument to repetition operator", "?"),
                            _ => return fault("invalid or unsupported Perl syntax", &sub(i, j + 1)),
                        }
                        out.push_str(&sub(i, j + 1));
                        i = j + 1;
                    }
                } else {
                    out.push('(');
                    i += 1;
                }
                atom = None;
                repeated = None;
            }
            ')' => {
                if depth == 0 {
                    return fault("unexpected )", p);
                }
                depth -= 1;
                out.push(')');
                i += 1;
                atom = Some(start);
                repeated = None;
            }
            '|' => {
                out.push('|');
                i += 1;
                atom = None;
                repeated = None;
            }
            '*' | '+' | '?' | '{' => {
                let mut j = i + 1;
                let mut bounds = None;
                if c[i] == '{' {
                    let Some((e, min, max)) = counts(&c, i) else {
                        out.push_str("\\{");
                        i += 1;
                        atom = Some(start);
                        repeated = None;
                        continue;
                    };
                    j = e;
                    if min > 1000 || max.is_some_and(|m| m > 1000 || m < min) {
                        return fault("invalid repeat count", &sub(i, j));
                    }
                    bounds = Some(());
                }
                let lazy = c.get(j) == Some(&'?');
                let end = if lazy { j + 1 } else { j };
                if atom.is_none() {
                    return fault("missing argument to repetition operator", &sub(i, end));
                }
                if let Some(r) = repeated {
                    return fault("invalid nested repetition operator", &sub(r, end));
                }
                let _ = bounds;
                out.push_str(&sub(i, end));
                repeated = Some(i);
                i = end;
            }
            '&' | '~' | '#' | '-' | ' ' => {
                out.push(c[i]);
                i += 1;
                atom = Some(start);
                repeated = None;
            }
            '}' | ']' => {
                out.push('\\');
                out.push(c[i]);
                i += 1;
                atom = Some(start);
                repeated = None;
            }
            x => {
                out.push(x);
                i += 1;
                atom = Some(start);
                repeated = None;
            }
        }
    }
    if depth > 0 {
        return fault("missing closing )", p);
    }
    Ok(out)
}

/// `{n}`, `{n,}`, `{n,m}` at a place: end and bounds.
fn counts(c: &[char], i: usize) -> Option<(usize, u32, Option<u32>)> {
    let close = c[i..].iter().position(|x| *x == '}')? + i;
    let body: String = c[i + 1..close].iter().collect();
    let num = |s: &str| if s.is_empty() || s.len() > 1 && s.starts_with('0') || !s.bytes().all(|b| b.is_ascii_digit()) { None } else { Some(s.parse().unwrap_or(100_000)) };
    let (min, max) = match body.split_once(',') {
        None => {
            let n = num(&body)?;
            (n, Some(n))
        }
        Some((a, "")) => (num(a)?, None),
        Some((a, b)) => (num(a)?, Some(num(b)?)),
    };
    Some((close + 1, min, max))
}

fn escape(c: &[char], i: usize, out: &mut String, class: bool) -> Result<usize, String> {
    let e = c[i + 1];
    let bad = |n: usize| Err(format!("error parsing regexp: invalid escape sequence: `{}`", c[i..(i + n).min(c.len())].iter().collect::<String>()));
    let wrap = |out: &mut String, s: &str, neg: bool| {
        if neg {
            out.push_str(&format!("[^{s}]"));
        } else if class {
            out.push_str(s);
        } else {
            out.push_str(&format!("[{s}]"));
        }
    };
    match e {
        'd' | 'D' => wrap(out, "0-9", e == 'D'),
        's' | 'S' => wrap(out, r"\t\n\x0c\r ", e == 'S'),
        'w' | 'W' => wrap(out, "0-9A-Za-z_", e == 'W'),
        'b' if !class => out.push_str(r"(?-u:\b)"),
        'B' if !class => out.push_str(r"(?-u:\B)"),
        'A' if !class => out.push_str(r"\A"),
        'z' if !class => out.push_str(r"\z"),
        'C' if !class => out.push_str("(?s:.)"),
        'a' => out.push_str(r"\x07"),
        'f' => out.push_str(r"\x0c"),
        'n' => out.push_str(r"\n"),
        'r' => out.push_str(r"\r"),
        't' => out.push_str(r"\t"),
        'v' => out.push_str(r"\x0b"),
        'p' | 'P' => {
            let end = if c.get(i + 2) == Some(&'{') {
                match c[i..].iter().position(|x| *x == '}') {
                    Some(e) => i + e + 1,
                    None => return Err(format!("error parsing regexp: invalid character class range: `{}`", c[i..].iter().collect::<String>())),
                }
            } else {
                i + 3
            };
            out.extend(&c[i..end.min(c.len())]);
            return Ok(end);
        }
        'x' => {
            if c.get(i + 2) == Some(&'{') {
                let Some(e) = c[i..].iter().position(|x| *x == '}') else { return bad(2) };
                let hex: String = c[i + 3..i + e].iter().collect();
                match u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32) {
                    Some(_) => out.push_str(&format!("\\x{{{hex}}}")),
                    None => return bad(e + 1),
                }
                return Ok(i + e + 1);
            }
            let hex: String = c[(i + 2).min(c.len())..(i + 4).min(c.len())].iter().collect();
            if hex.len() != 2 || u32::from_str_radix(&hex, 16).is_err() {
                return bad(4);
            }
            out.push_str(&format!("\\x{{{hex}}}"));
            return Ok(i + 4);
        }
        '0'..='7' => {
            let mut j = i + 1;
            let mut v = 0;
            while j < c.len() && j < i + 4 && c[j].is_digit(8) {
                v = v * 8 + c[j].to_digit(8).unwrap_or(0);
                j += 1;
            }
            if e != '0' && j == i + 2 {
                return bad(2);
            }
            out.push_str(&format!("\\x{{{v:x}}}"));
            return Ok(j);
        }
        x if x.is_ascii() && !x.is_ascii_alphanumeric() => {
            out.push_str(&regex::escape(&x.to_string()));
        }
        _ => return bad(2),
    }
    Ok(i + 2)
}

fn class(c: &[char], i: usize, out: &mut String) -> Result<usize, String> {
    let whole = |from: usize| c[from..].iter().collect::<String>();
    out.push('[');
    let mut j = i + 1;
    if c.get(j) == Some(&'^') {
        out.push('^');
        j += 1;
    }
    let mut first = true;
    loop {
        let Some(&x) = c.get(j) else { return Err(format!("error parsing regexp: missing closing ]: `{}`", whole(i))) };
        if x == ']' && !first {
            out.push(']');
            return Ok(j + 1);
        }
        first = false;
        if x == '['
            && c.get(j + 1) == Some(&':')
            && let Some(e) = c[j + 2..].windows(2).position(|w| w == [':', ']'])
        {
            {
                let name: String = c[j..j + 2 + e + 2].iter().collect();
                let word = name.trim_matches(|c: char| !c.is_ascii_alphabetic());
                if !matches!(word, "alnum" | "alpha" | "ascii" | "blank" | "cntrl" | "digit" | "graph" | "lower" | "print" | "punct" | "space" | "upper" | "word" | "xdigit") {
                    return Err(format!("error parsing regexp: invalid character class range: `{name}`"));
                }
                out.push_str(&name);
                j += 2 + e + 2;
                continue;
            }
        }
        if x == '\\' {
            if j + 1 >= c.len() {
                return Err("error parsing regexp: trailing backslash at end of expression: ``".into());
            }
            if matches!(c[j + 1], 'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'p' | 'P') {
                j = escape(c, j, out, true)?;
                continue;
            }
        }
        let (lo, next) = single(c, j)?;
        // A range?
        if c.get(next) == Some(&'-') && c.get(next + 1).is_some_and(|x| *x != ']') {
            let (hi, end) = single(c, next + 1)?;
            if hi < lo {
                return Err(format!("error parsing regexp: invalid character class range: `{}`", c[j..end].iter().collect::<String>()));
            }
            out.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", lo as u32, hi as u32));
            j = end;
            continue;
        }
        out.push_str(&format!("\\x{{{:x}}}", lo as u32));
        j = next;
    }
}

/// One character of a class.
fn single(c: &[char], j: usize) -> Result<(char, usize), String> {
    if c[j] != '\\' {
        return Ok((c[j], j + 1));
    }
    if j + 1 >= c.len() {
        return Err("error parsing regexp: trailing backslash at end of expression: ``".into());
    }
    let mut s = String::new();
    let end = escape(c, j, &mut s, true)?;
    let ch = match s.as_str() {
        "\\n" => '\n',
        "\\r" => '\r',
        "\\t" => '\t',
        t if t.starts_with("\\x") => {
            let hex = t.trim_start_matches("\\x").trim_matches(['{', '}']);
            u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).unwrap_or('\u{FFFD}')
        }
        t => t.chars().last().unwrap_or('\\'),
    };
    Ok((ch, end))
}
