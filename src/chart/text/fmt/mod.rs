//! Go's fmt: default formatting of values, `Sprint`, and `Sprintf` with all its verbs, flags and complaints.

use super::decode_rune;
use super::quote::{quote, quote_ascii, quote_rune};
use crate::value::{List, ListTy, MAX_DEPTH, Obj, Val};
use std::fmt::Write;

mod float;

pub use float::{float_g, float_g32, float_prec, float_v};
use float::{hex_float, sharpen};

/// A duration as Go prints it.
pub fn duration(d: i64) -> String {
    if d == 0 {
        return "0s".into();
    }
    let (neg, u) = (d < 0, d.unsigned_abs());
    let frac = |v: u64, unit: u64| {
        let (w, r) = (v / unit, v % unit);
        if r == 0 {
            return w.to_string();
        }
        let width = unit.ilog10() as usize;
        format!("{w}.{}", format!("{r:0width$}").trim_end_matches('0'))
    };
    let s = if u < 1_000 {
        format!("{u}ns")
    } else if u < 1_000_000 {
        format!("{}µs", frac(u, 1_000))
    } else if u < 1_000_000_000 {
        format!("{}ms", frac(u, 1_000_000))
    } else {
        let minute = 60_000_000_000;
        let (m, rest) = (u / minute, u % minute);
        let mut s = format!("{}s", frac(rest, 1_000_000_000));
        if m > 0 {
            s = format!("{}m{s}", m % 60);
            if m >= 60 {
                s = format!("{}h{s}", m / 60);
            }
        }
        s
    };
    if neg { format!("-{s}") } else { s }
}

/// Appends a value in its default form (`%v`).
pub fn write_v(out: &mut Vec<u8>, v: &Val) {
    value(out, v, 0, false);
}

fn value(out: &mut Vec<u8>, v: &Val, depth: usize, plus: bool) {
    if depth > MAX_DEPTH {
        return;
    }
    match v {
        Val::No | Val::Nil => out.extend_from_slice(b"<nil>"),
        Val::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Val::Int(i) | Val::Int64(i) => {
            let _ = std::io::Write::write_fmt(out, format_args!("{i}"));
        }
        Val::Byte(b) => out.extend_from_slice(b.to_string().as_bytes()),
        Val::Float(f) => out.extend_from_slice(float_v(*f).as_bytes()),
        Val::Str(s) => out.extend_from_slice(s.as_bytes()),
        Val::List(l) => {
            out.push(b'[');
            for (i, e) in l.v.iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                value(out, e, depth + 1, plus);
            }
            out.push(b']');
        }
        Val::Map(m) => {
            out.extend_from_slice(b"map[");
            for (i, (k, e)) in m.entries().iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                out.extend_from_slice(k.as_bytes());
                out.push(b':');
                value(out, e, depth + 1, plus);
            }
            out.push(b']');
        }
        Val::Obj(o) => out.extend_from_slice(object(o, depth, plus).as_bytes()),
    }
}

fn object(o: &Obj, depth: usize, plus: bool) -> String {
    match o {
        Obj::Caps(c) => {
            let mut apis = Vec::new();
            value(&mut apis, &c.apis, 1, plus);
            let kube = fields(plus, &[("Version", &c.kube.version), ("normalizedVersion", &c.kube.normalized), ("Major", &c.kube.major), ("Minor", &c.kube.minor)]);
            let helm = object(&Obj::Helm(c.helm.clone()), 1, plus);
            let amp = if depth == 0 { "&" } else { "" };
            let name = |n: &str| if plus { format!("{n}:") } else { String::new() };
            format!("{amp}{{{}{kube} {}{} {}{helm}}}", name("KubeVersion"), name("APIVersions"), crate::text::lossy(&apis), name("HelmVersion"))
        }
        // Kept behind a pointer by its methods only: printed as a struct unless addressable, where String() applies.
        Obj::Kube(k) => k.normalized.clone(),
        Obj::Helm(h) => {
            let mut all: Vec<(&str, &str)> = vec![("Version", &h.version), ("GitCommit", &h.commit), ("GitTreeState", &h.state), ("GoVersion", &h.go)];
            if let Some(c) = &h.client {
                all.push(("KubeClientVersion", c));
            }
            let all: Vec<(&str, &String)> = Vec::from_iter(all.iter().map(|(n, _)| (*n, match *n {
                "Version" => &h.version,
                "GitCommit" => &h.commit,
                "GitTreeState" => &h.state,
                "GoVersion" => &h.go,
                _ => h.client.as_ref().unwrap_or(&h.go),
            })));
            fields(plus, &all)
        }
        Obj::Semver(v) => v.to_string(),
        Obj::Time(t) => crate::func::date::show(t),
        Obj::Duration(d) => duration(*d),
        Obj::Cert(c) => fields(plus, &[("Cert", &c.cert), ("Key", &c.key)]),
        Obj::Error(e) => e.clone(),
        Obj::Complex(a, b) => {
            let im = float_v(*b);
            let sign = if im.starts_with(['-', '+']) { "" } else { "+" };
            format!("({}{sign}{im}i)", float_v(*a))
        }
        Obj::Named(_, i, s) => {
            if s.is_empty() {
                i.to_string()
            } else {
                s.clone()
            }
        }
    }
}

fn fields(plus: bool, all: &[(&str, &String)]) -> String {
    let parts: Vec<String> = all.iter().map(|(n, v)| if plus { format!("{n}:{v}") } else { (*v).clone() }).collect();
    format!("{{{}}}", parts.join(" "))
}

/// `fmt.Sprint` of one value.
pub fn sprint(v: &Val) -> String {
    let mut out = Vec::new();
    write_v(&mut out, v);
    crate::text::lossy(&out).into_owned()
}

/// `fmt.Sprint`: a blank between two neighbours that are both no strings.
pub fn sprint_all(args: &[Val]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, a) in args.iter().enumerate() {
        if i > 0 && !matches!(a, Val::Str(_)) && !matches!(args[i - 1], Val::Str(_)) {
            out.push(b' ');
        }
        write_v(&mut out, a);
    }
    out
}

#[derive(Default, Clone)]
struct Flags {
    /// `%#v`: Go syntax.
    go: bool,
    /// `%+v`: field names.
    names: bool,
    width: Option<usize>,
    prec: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
}

fn pad(out: &mut Vec<u8>, s: &[u8], f: &Flags) {
    let n = super::runes(s).count();
    let fill = f.width.unwrap_or(0).saturating_sub(n);
    if f.minus {
        out.extend_from_slice(s);
        out.extend(std::iter::repeat_n(b' ', fill));
    } else {
        out.extend(std::iter::repeat_n(if f.zero { b'0' } else { b' ' }, fill));
        out.extend_from_slice(s);
    }
}

fn integer(out: &mut Vec<u8>, v: i64, unsigned: Option<u64>, verb: u8, f: &Flags) {
    let neg = unsigned.is_none() && v < 0;
    let u = unsigned.unwrap_or(v.unsigned_abs());
    let mut digits = match verb {
        b'b' => format!("{u:b}"),
        b'o' | b'O' => format!("{u:o}"),
        b'x' => format!("{u:x}"),
        b'X' => format!("{u:X}"),
        _ => u.to_string(),
    };
    let mut prec = 0;
    if let Some(p) = f.prec {
        prec = p;
        if p == 0 && u == 0 {
            pad(out, b"", &Flags { zero: false, ..f.clone() });
            return;
        }
    } else if f.zero && !f.minus {
        prec = f.width.unwrap_or(0);
        if neg || f.plus || f.space {
            prec = prec.saturating_sub(1);
        }
    }
    while digits.len() < prec.min(10_000) {
        digits.insert(0, '0');
    }
    let mut s = String::new();
    if neg {
        s.push('-');
    } else if f.plus {
        s.push('+');
    } else if f.space {
        s.push(' ');
    }
    if f.sharp {
        match verb {
            b'b' => s.push_str("0b"),
            b'o' | b'O' if !digits.starts_with('0') => digits.insert(0, '0'),
            b'x' => s.push_str("0x"),
            b'X' => s.push_str("0X"),
            _ => {}
        }
    }
    if verb == b'O' {
        s.push_str("0o");
    }
    s.push_str(&digits);
    pad(out, s.as_bytes(), &Flags { zero: false, ..f.clone() });
}

fn unicode(r: u32, sharp: bool) -> String {
    if sharp { super::rune_name(r) } else { format!("U+{r:04X}") }
}

fn float(out: &mut Vec<u8>, v: f64, verb: u8, f: &Flags) {
    let upper = matches!(verb, b'E' | b'G' | b'F' | b'X');
    let mut s = match verb {
        b'v' => f.prec.map_or_else(|| float_v(v), |p| float_prec(v, b'g', p)),
        b'g' | b'G' => match f.prec {
            None => float_g(v, 6),
            Some(p) => float_prec(v, b'g', p),
        },
        b'e' | b'E' => float_prec(v, b'e', f.prec.unwrap_or(6)),
        b'x' | b'X' => hex_float(v),
        b'b' => format!("{}p{:+}", v.to_bits() & ((1 << 52) - 1) | (1 << 52), ((v.to_bits() >> 52) & 0x7ff) as i64 - 1075),
        _ => float_prec(v, b'f', f.prec.unwrap_or(6)),
    };
    if f.sharp && verb != b'b' && v.is_finite() {
        s = sharpen(&s, verb, f.prec);
    }
    if upper {
        s = s.to_uppercase().replace("NAN", "NaN").replace("INF", "Inf");
    }
    if f.plus && !s.starts_with(['-', '+']) {
        s.insert(0, '+');
    } else if !f.plus && s.starts_with("+Inf") {
        // The sign of an infinity is always shown.
    } else if f.space && !s.starts_with(['-', '+']) {
        s.insert(0, ' ');
    }
    let finite = v.is_finite();
    if f.zero && finite && !f.minus && s.starts_with(['-', '+', ' ']) && f.width.is_some_and(|w| w > s.len()) {
        out.push(s.as_bytes()[0]);
        let w = f.width.map(|w| w - 1);
        pad(out, &s.as_bytes()[1..], &Flags { width: w, ..f.clone() });
        return;
    }
    pad(out, s.as_bytes(), &Flags { zero: f.zero && finite && !f.minus, ..f.clone() });
}

fn truncate(s: &[u8], f: &Flags) -> Vec<u8> {
    match f.prec {
        Some(p) => {
            let end = super::runes(s).nth(p).map_or(s.len(), |(i, ..)| i);
            s[..end].to_vec()
        }
        None => s.to_vec(),
    }
}

fn string(out: &mut Vec<u8>, s: &[u8], verb: u8, f: &Flags) -> bool {
    match verb {
        b'v' if f.go => pad(out, quote(s).as_bytes(), f),
        b'v' | b's' => pad(out, &truncate(s, f), f),
        b'q' => {
            let t = truncate(s, f);
            let q = if f.sharp && !t.contains(&b'`') && std::str::from_utf8(&t).is_ok_and(|s| s.chars().all(|c| c == '\t' || c >= ' ' && c != '\u{7f}' && c != '\u{feff}')) {
                format!("`{}`", crate::text::lossy(&t))
            } else if f.plus {
                quote_ascii(&t)
            } else {
                quote(&t)
            };
            pad(out, q.as_bytes(), f);
        }
        b'x' | b'X' => {
            let t = &s[..f.prec.unwrap_or(s.len()).min(s.len())];
            let mut h = String::new();
            for (i, b) in t.iter().enumerate() {
                if f.space && i > 0 {
                    h.push(' ');
                }
                if f.sharp && (f.space || i == 0) {
                    h.push_str(if verb == b'x' { "0x" } else { "0X" });
                }
                let _ = if verb == b'x' { write!(h, "{b:02x}") } else { write!(h, "{b:02X}") };
            }
            pad(out, h.as_bytes(), f);
        }
        _ => return false,
    }
    true
}

fn bad_verb(out: &mut Vec<u8>, verb: char, v: &Val, f: &Flags) {
    out.extend_from_slice(format!("%!{verb}(").as_bytes());
    if v.is_some() {
        out.extend_from_slice(v.type_name().as_bytes());
        out.push(b'=');
        one(out, v, 'v', f, 0);
    } else {
        out.extend_from_slice(b"<nil>");
    }
    out.push(b')');
}

fn go_syntax(out: &mut Vec<u8>, v: &Val, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match v {
        Val::No | Val::Nil => out.extend_from_slice(b"interface {}(nil)"),
        Val::Str(s) => out.extend_from_slice(quote(s.as_bytes()).as_bytes()),
        Val::Byte(b) => out.extend_from_slice(format!("0x{b:x}").as_bytes()),
        Val::Map(m) => {
            out.extend_from_slice(v.type_name().as_bytes());
            out.push(b'{');
            for (i, (k, e)) in m.entries().iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                out.extend_from_slice(quote(k.as_bytes()).as_bytes());
                out.push(b':');
                go_syntax(out, e, depth + 1);
            }
            out.push(b'}');
        }
        Val::List(l) => {
            out.extend_from_slice(v.type_name().as_bytes());
            if l.nil {
                out.extend_from_slice(b"(nil)");
                return;
            }
            out.push(b'{');
            for (i, e) in l.v.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                go_syntax(out, e, depth + 1);
            }
            out.push(b'}');
        }
        Val::Obj(o) => match &**o {
            Obj::Duration(d) => out.extend_from_slice(d.to_string().as_bytes()),
            _ => write_v(out, v),
        },
        _ => write_v(out, v),
    }
}

fn one(out: &mut Vec<u8>, v: &Val, verb: char, f: &Flags, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match verb {
        'T' => {
            string(out, if v.is_some() { v.type_name() } else { "<nil>" }.as_bytes(), b's', f);
            return;
        }
        'p' if !matches!(v, Val::Map(_) | Val::List(_)) => return bad_verb(out, verb, v, f),
        'v' if f.go => {
            if depth == 0 && !v.is_some() {
                pad(out, b"<nil>", f);
            } else if let Val::Str(s) = v {
                string(out, s.as_bytes(), b'v', f);
            } else {
                go_syntax(out, v, depth);
            }
            return;
        }
        _ => {}
    }
    if !v.is_some() {
        if depth > 0 {
            out.extend_from_slice(b"<nil>");
        } else if verb == 'v' {
            pad(out, b"<nil>", &Flags { zero: false, ..f.clone() });
        } else {
            bad_verb(out, verb, v, f);
        }
        return;
    }
    let b = if verb.is_ascii() { verb as u8 } else { 0 };
    match v {
        Val::Bool(t) if matches!(b, b't' | b'v') => pad(out, if *t { b"true" } else { b"false" }, f),
        Val::Int(i) | Val::Int64(i) => match b {
            b'v' | b'd' => integer(out, *i, None, b'd', f),
            b'b' | b'o' | b'O' | b'x' | b'X' => integer(out, *i, None, b, f),
            b'c' => pad(out, char::from_u32(*i as u32).unwrap_or('\u{FFFD}').to_string().as_bytes(), f),
            b'q' => pad(out, quote_rune(u32::try_from(*i).ok().and_then(char::from_u32).unwrap_or('\u{FFFD}')).as_bytes(), f),
            b'U' if *i < 0 => pad(out, format!("U+{:X}", *i as u64).as_bytes(), f),
            b'U' => pad(out, unicode(*i as u32, f.sharp).as_bytes(), f),
            _ => bad_verb(out, verb, v, f),
        },
        Val::Byte(i) => match b {
            b'v' | b'd' => integer(out, 0, Some(*i as u64), b'd', f),
            b'b' | b'o' | b'O' | b'x' | b'X' => integer(out, 0, Some(*i as u64), b, f),
            b'c' => pad(out, (*i as char).to_string().as_bytes(), f),
            b'q' => pad(out, quote_rune(*i as char).as_bytes(), f),
            b'U' => pad(out, unicode(*i as u32, f.sharp).as_bytes(), f),
            _ => bad_verb(out, verb, v, f),
        },
        Val::Float(x) => match b {
            b'v' | b'b' | b'g' | b'G' | b'x' | b'X' | b'f' | b'F' | b'e' | b'E' => float(out, *x, b, f),
            _ => bad_verb(out, verb, v, f),
        },
        Val::Str(s) => {
            if !string(out, s.as_bytes(), b, f) {
                bad_verb(out, verb, v, f);
            }
        }
        Val::List(l) => list(out, l, verb, f, depth),
        Val::Map(m) => {
            if b == b'p' {
                out.extend_from_slice(b"0xc000000000");
                return;
            }
            out.extend_from_slice(b"map[");
            for (i, (k, e)) in m.entries().iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                one(out, &Val::Str(k.clone()), verb, f, depth + 1);
                out.push(b':');
                one(out, e, verb, f, depth + 1);
            }
            out.push(b']');
        }
        Val::Obj(o) => match (&**o, b) {
            (Obj::Named(_, i, name), _) if name.is_empty() || matches!(b, b'd' | b'b' | b'o' | b'x' | b'X' | b'c' | b'q' | b'U') => one(out, &Val::Int64(*i), verb, f, depth),
            (Obj::Duration(d), b'd' | b'b' | b'o' | b'x' | b'X') => one(out, &Val::Int64(*d), verb, f, depth),
            (Obj::Cert(_) | Obj::Caps(_) | Obj::Helm(_), b'v') => out.extend_from_slice(object(o, depth, f.names).as_bytes()),
            (Obj::Cert(c), _) => {
                out.push(b'{');
                one(out, &Val::str(c.cert.as_str()), verb, f, depth + 1);
                out.push(b' ');
                one(out, &Val::str(c.key.as_str()), verb, f, depth + 1);
                out.push(b'}');
            }
            (Obj::Helm(h), _) => {
                out.push(b'{');
                let all = [Some(&h.version), Some(&h.commit), Some(&h.state), Some(&h.go), h.client.as_ref()];
                for (i, s) in all.into_iter().flatten().enumerate() {
                    if i > 0 {
                        out.push(b' ');
                    }
                    one(out, &Val::str(s.as_str()), verb, f, depth + 1);
                }
                out.push(b'}');
            }
            _ => {
                let s = object(o, depth, f.names);
                if !string(out, s.as_bytes(), b, f) {
                    bad_verb(out, verb, v, f);
                }
            }
        },
        _ => bad_verb(out, verb, v, f),
    }
}

fn list(out: &mut Vec<u8>, l: &List, verb: char, f: &Flags, depth: usize) {
    if l.ty == ListTy::Bytes && matches!(verb, 's' | 'q' | 'x' | 'X') {
        let bytes: Vec<u8> = l.v.iter().map(|v| if let Val::Byte(b) = v { *b } else { 0 }).collect();
        string(out, &bytes, verb as u8, f);
        return;
    }
    if verb == 'p' {
        out.extend_from_slice(b"0xc000000000");
        return;
    }
    out.push(b'[');
    for (i, e) in l.v.iter().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        one(out, e, verb, f, depth + 1);
    }
    out.push(b']');
}

fn number(fmt: &[u8], i: &mut usize) -> Option<usize> {
    let start = *i;
    let mut n = 0usize;
    while *i < fmt.len() && fmt[*i].is_ascii_digit() {
        n = n * 10 + (fmt[*i] - b'0') as usize;
        if n > 1_000_000 {
            return None;
        }
        *i += 1;
    }
    (*i > start).then_some(n)
}

/// `fmt.Sprintf`.
pub fn sprintf(fmt: &[u8], args: &[Val]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fmt.len() + 16);
    let mut arg = 0usize;
    let mut reordered = false;
    let mut i = 0;
    while i < fmt.len() {
        let lit = fmt[i..].iter().position(|b| *b == b'%').map_or(fmt.len(), |p| i + p);
        out.extend_from_slice(&fmt[i..lit]);
        i = lit;
        if i >= fmt.len() {
            break;
        }
        i += 1;
        let mut f = Flags::default();
        let mut good = true;
        let mut after_index = false;
        while i < fmt.len() {
            match fmt[i] {
                b'#' => f.sharp = true,
                b'0' => f.zero = true,
                b'+' => f.plus = true,
                b'-' => f.minus = true,
                b' ' => f.space = true,
                _ => break,
            }
            i += 1;
        }
        let index = |i: &mut usize, arg: &mut usize, good: &mut bool, reordered: &mut bool| -> bool {
            if fmt.get(*i) != Some(&b'[') {
                return false;
            }
            *reordered = true;
            let Some(close) = fmt[*i..].iter().position(|b| *b == b']') else {
                *good = false;
                *i += 1;
                return false;
            };
            let n = std::str::from_utf8(&fmt[*i + 1..*i + close]).ok().and_then(|s| s.parse::<usize>().ok());
            *i += close + 1;
            match n {
                Some(n) if n >= 1 && n <= args.len() => {
                    *arg = n - 1;
                    true
                }
                _ => {
                    *good = false;
                    true
                }
            }
        };
        after_index |= index(&mut i, &mut arg, &mut good, &mut reordered);
        let int_arg = |arg: &mut usize| -> Option<i64> {
            let v = args.get(*arg).and_then(|v| match v {
                Val::Int(i) | Val::Int64(i) if i.abs() <= 1_000_000 => Some(*i),
                Val::Byte(b) => Some(*b as i64),
                _ => None,
            });
            if *arg < args.len() {
                *arg += 1;
            }
            v
        };
        if fmt.get(i) == Some(&b'*') {
            i += 1;
            match int_arg(&mut arg) {
                Some(w) => {
                    if w < 0 {
                        f.minus = true;
                        f.zero = false;
                    }
                    f.width = Some(w.unsigned_abs() as usize);
                }
                None => out.extend_from_slice(b"%!(BADWIDTH)"),
            }
            after_index = false;
        } else {
            f.width = number(fmt, &mut i);
            if after_index && f.width.is_some() {
                good = false;
            }
        }
        if fmt.get(i) == Some(&b'.') {
            i += 1;
            if after_index {
                good = false;
            }
            after_index = index(&mut i, &mut arg, &mut good, &mut reordered);
            if fmt.get(i) == Some(&b'*') {
                i += 1;
                match int_arg(&mut arg) {
                    Some(p) if p >= 0 => f.prec = Some(p as usize),
                    Some(_) => {}
                    None => out.extend_from_slice(b"%!(BADPREC)"),
                }
                after_index = false;
            } else {
                f.prec = Some(number(fmt, &mut i).unwrap_or(0));
            }
        }
        if !after_index {
            index(&mut i, &mut arg, &mut good, &mut reordered);
        }
        if i >= fmt.len() {
            out.extend_from_slice(b"%!(NOVERB)");
            break;
        }
        let (verb, w) = decode_rune(&fmt[i..]);
        i += w;
        let wide = f.width.unwrap_or(0);
        f.width = f.width.map(|w| w.min(100_000));
        let _ = wide;
        if verb == '%' {
            out.push(b'%');
        } else if !good {
            out.extend_from_slice(format!("%!{verb}(BADINDEX)").as_bytes());
        } else if arg >= args.len() {
            out.extend_from_slice(format!("%!{verb}(MISSING)").as_bytes());
        } else {
            if f.minus {
                f.zero = false;
            }
            if verb == 'v' {
                f.go = std::mem::take(&mut f.sharp);
                f.names = std::mem::take(&mut f.plus);
            }
            one(&mut out, &args[arg], verb, &f, 0);
            arg += 1;
        }
    }
    if !reordered && arg < args.len() {
        out.extend_from_slice(b"%!(EXTRA ");
        for (n, a) in args[arg..].iter().enumerate() {
            if n > 0 {
                out.extend_from_slice(b", ");
            }
            if a.is_some() {
                out.extend_from_slice(a.type_name().as_bytes());
                out.push(b'=');
                one(&mut out, a, 'v', &Flags::default(), 0);
            } else {
                out.extend_from_slice(b"<nil>");
            }
        }
        out.push(b')');
    }
    out
}
