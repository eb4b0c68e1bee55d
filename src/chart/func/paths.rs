//! Paths and URLs as Go's path and net/url packages see them.

use super::Ty::{Map as M, Str as S};
use super::{Func, Out, err, f, map, s, text};
use crate::run::Runtime;
use crate::value::{Str, Tree, Val};

pub(super) fn table() -> Vec<Func> {
    let mut t = vec![f("urlParse", &[S], url_parse), f("urlJoin", &[M], url_join)];
    for (a, b) in [("base", "osBase"), ("dir", "osDir"), ("clean", "osClean"), ("ext", "osExt"), ("isAbs", "osIsAbs")] {
        let body: super::Body = match a {
            "base" => |_, a| Ok(Val::str(base(s(&a[0])))),
            "dir" => |_, a| {
                let p = s(&a[0]);
                let n = p.iter().rposition(|c| *c == b'/').map_or(0, |i| i + 1);
                Ok(Val::str(clean(&p[..n])))
            },
            "clean" => |_, a| Ok(Val::str(clean(s(&a[0])))),
            "ext" => |_, a| {
                let p = s(&a[0]);
                let from = p.iter().rposition(|c| *c == b'/').map_or(0, |i| i + 1);
                Ok(Val::str(p[from..].iter().rposition(|c| *c == b'.').map_or(&b""[..], |i| &p[from + i..])))
            },
            _ => |_, a| Ok(Val::Bool(s(&a[0]).starts_with(b"/"))),
        };
        t.push(f(a, &[S], body));
        t.push(f(b, &[S], body));
    }
    t
}

/// `path.Base`.
pub(crate) fn base(p: &[u8]) -> &[u8] {
    if p.is_empty() {
        return b".";
    }
    let mut end = p.len();
    while end > 0 && p[end - 1] == b'/' {
        end -= 1;
    }
    if end == 0 {
        return b"/";
    }
    let from = p[..end].iter().rposition(|c| *c == b'/').map_or(0, |i| i + 1);
    &p[from..end]
}

/// `path.Clean`.
pub(crate) fn clean(p: &[u8]) -> Vec<u8> {
    if p.is_empty() {
        return b".".to_vec();
    }
    let rooted = p[0] == b'/';
    let mut out: Vec<&[u8]> = Vec::new();
    for part in p.split(|c| *c == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match out.last() {
                Some(l) if *l != b".." => {
                    out.pop();
                }
                _ if !rooted => out.push(part),
                _ => {}
            },
            x => out.push(x),
        }
    }
    let mut r = if rooted { b"/".to_vec() } else { Vec::new() };
    r.extend(out.join(&b'/'));
    if r.is_empty() {
        r.push(b'.');
    }
    r
}

fn unreserved(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'~')
}

/// `url.QueryEscape`.
pub(super) fn query_escape(b: &[u8]) -> String {
    let mut o = String::new();
    for c in b {
        match c {
            b' ' => o.push('+'),
            c if unreserved(*c) => o.push(*c as char),
            c => o.push_str(&format!("%{c:02X}")),
        }
    }
    o
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Path,
    Host,
    User,
    Fragment,
}

fn keeps(c: u8, p: Part) -> bool {
    if unreserved(c) {
        return true;
    }
    match c {
        b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' => match p {
            Part::Path => c != b'?',
            Part::User => !matches!(c, b'@' | b'/' | b'?' | b':'),
            Part::Fragment | Part::Host => true,
        },
        b'!' | b'\'' | b'(' | b')' | b'*' => matches!(p, Part::Host | Part::Fragment),
        b'[' | b']' | b'<' | b'>' | b'"' => p == Part::Host,
        _ => false,
    }
}

fn escape(b: &str, p: Part) -> String {
    let mut o = String::new();
    for c in b.bytes() {
        if keeps(c, p) {
            o.push(c as char);
        } else {
            o.push_str(&format!("%{c:02X}"));
        }
    }
    o
}

fn unescape(t: &str, host: bool) -> Result<String, String> {
    let b = t.as_bytes();
    let mut o = Vec::new();
    let mut i = 0;
    while i < b.len() {
        if b[i] == b'%' {
            let h = b.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
            match h {
                Some(v) => {
                    o.push(v);
                    i += 3;
                }
                None => {
                    let end = (i + 3).min(b.len());
                    return Err(format!("invalid URL escape {}", crate::text::quote::quote(&b[i..end])));
                }
            }
        } else {
            if host && b[i] < 0x80 && !keeps(b[i], Part::Host) {
                return Err(format!("invalid character {} in host name", crate::text::quote::quote(&b[i..=i])));
            }
            o.push(b[i]);
            i += 1;
        }
    }
    Ok(crate::text::lossy(&o).into_owned())
}

#[derive(Default)]
struct Url {
    scheme: String,
    opaque: String,
    user: Option<(String, Option<String>)>,
    host: String,
    path: String,
    raw_path: String,
    query: String,
    force_query: bool,
    fragment: String,
}

fn parse(raw: &str) -> Result<Url, String> {
    let fault = |e: String| Err(format!("parse {}: {e}", crate::text::quote::quote(raw.as_bytes())));
    let mut u = Url::default();
    let mut rest = raw;
    if let Some((r, fr)) = rest.split_once('#') {
        u.fragment = match unescape(fr, false) {
            Ok(f) => f,
            Err(e) => return fault(e),
        };
        rest = r;
    }
    if rest.bytes().any(|c| c < b' ' || c == 0x7f) {
        return fault("net/url: invalid control character in URL".into());
    }
    if rest.is_empty() && !raw.is_empty() && !raw.starts_with('#') {
        return fault("empty url".into());
    }
    // Scheme.
    for (i, c) in rest.bytes().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return fault("missing protocol scheme".into()),
            b':' => {
                u.scheme = rest[..i].to_ascii_lowercase();
                rest = &rest[i + 1..];
                break;
            }
            _ => break,
        }
    }
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        u.force_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((r, q)) = rest.split_once('?') {
        u.query = q.into();
        rest = r;
    }
    if !rest.starts_with('/') {
        if !u.scheme.is_empty() {
            u.opaque = rest.into();
            return Ok(u);
        }
        let seg = rest.split('/').next().unwrap_or("");
        if seg.contains(':') {
            return fault("first path segment in URL cannot contain colon".into());
        }
    }
    if (!u.scheme.is_empty() || !rest.starts_with("///")) && rest.starts_with("//") {
        let (auth, path) = match rest[2..].find('/') {
            Some(i) => (&rest[2..2 + i], &rest[2 + i..]),
            None => (&rest[2..], ""),
        };
        let host = match auth.rfind('@') {
            None => auth,
            Some(i) => {
                let info = &auth[..i];
                let (n, p) = match info.split_once(':') {
                    Some((n, p)) => (n, Some(p)),
                    None => (info, None),
                };
                let un = |t: &str| unescape(t, false);
                u.user = Some((
                    match un(n) {
                        Ok(v) => v,
                        Err(e) => return fault(e),
                    },
                    match p.map(un).transpose() {
                        Ok(v) => v,
                        Err(e) => return fault(e),
                    },
                ));
                &auth[i + 1..]
            }
        };
        let after = if host.starts_with('[') {
            match host.rfind(']') {
                Some(i) => &host[i + 1..],
                None => return fault("missing ']' in host".into()),
            }
        } else {
            host.rfind(':').map_or("", |i| &host[i..])
        };
        if !after.is_empty() && (!after.starts_with(':') || !after[1..].bytes().all(|c| c.is_ascii_digit())) {
            return fault(format!("invalid port {} after host", crate::text::quote::quote(after.as_bytes())));
        }
        u.host = match unescape(host, true) {
            Ok(h) => h,
            Err(e) => return fault(e),
        };
        rest = path;
    }
    u.path = match unescape(rest, false) {
        Ok(p) => p,
        Err(e) => return fault(e),
    };
    if escape(&u.path, Part::Path) != rest {
        u.raw_path = rest.into();
    }
    Ok(u)
}

/// Scheme of a URL, empty if it has none; the error is Go's.
pub(crate) fn scheme(raw: &str) -> Result<String, String> {
    parse(raw).map(|url| url.scheme)
}

fn user_text(u: &(String, Option<String>)) -> String {
    match &u.1 {
        Some(p) => format!("{}:{}", escape(&u.0, Part::User), escape(p, Part::User)),
        None => escape(&u.0, Part::User),
    }
}

fn url_parse(_: &mut Runtime, a: &[Val]) -> Out {
    let u = match parse(&text(&a[0])) {
        Ok(u) => u,
        Err(e) => return err(format!("unable to parse url: {e}")),
    };
    let hostname = if let Some(h) = u.host.strip_prefix('[') { h.split(']').next().unwrap_or("").to_string() } else { u.host.split(':').next().unwrap_or("").to_string() };
    let user = u.user.as_ref().map_or(String::new(), user_text);
    let all = [("scheme", u.scheme), ("host", u.host), ("hostname", hostname), ("path", u.path), ("query", u.query), ("opaque", u.opaque), ("fragment", u.fragment), ("userinfo", user)];
    Ok(Val::map(all.into_iter().map(|(k, v)| (Str::from(k), Val::str(v))).collect::<Tree>()))
}

fn url_join(_: &mut Runtime, a: &[Val]) -> Out {
    let get = |k: &str| -> Result<String, super::GoErr> {
        match map(&a[0]).and_then(|m| m.get(k.as_bytes())) {
            None => Ok(String::new()),
            Some(Val::Str(s)) => Ok(s.text().into_owned()),
            Some(Val::Nil) => err(super::NIL_PANIC),
            Some(v) => err(format!("unable to parse {k} key, must be of type string, but {} found", v.kind_name())),
        }
    };
    let (scheme, host, path, query, opaque, fragment, info) = (get("scheme")?, get("host")?, get("path")?, get("query")?, get("opaque")?, get("fragment")?, get("userinfo")?);
    let mut user = None;
    if !info.is_empty() {
        match parse(&format!("proto://{info}@host")) {
            Ok(u) => user = u.user,
            Err(e) => return err(format!("unable to parse userinfo in dict: {e}")),
        }
    }
    let mut o = String::new();
    if !scheme.is_empty() {
        o.push_str(&scheme);
        o.push(':');
    }
    if !opaque.is_empty() {
        o.push_str(&opaque);
    } else {
        if !scheme.is_empty() || !host.is_empty() || user.is_some() {
            if !host.is_empty() || !path.is_empty() || user.is_some() {
                o.push_str("//");
            }
            if let Some(u) = &user {
                o.push_str(&user_text(u));
                o.push('@');
            }
            o.push_str(&escape(&host, Part::Host));
        }
        let p = escape(&path, Part::Path);
        if !p.is_empty() && !p.starts_with('/') && !host.is_empty() {
            o.push('/');
        }
        if o.is_empty() && p.split('/').next().is_some_and(|s| s.contains(':')) {
            o.push_str("./");
        }
        o.push_str(&p);
    }
    if !query.is_empty() {
        o.push('?');
        o.push_str(&query);
    }
    if !fragment.is_empty() {
        o.push('#');
        o.push_str(&escape(&fragment, Part::Fragment));
    }
    Ok(Val::str(o))
}
