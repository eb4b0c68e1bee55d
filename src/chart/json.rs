//! JSON as Go's encoding/json writes and reads it, with its complaints.

use crate::text::{decode_rune, quote::quote};
use crate::value::{ListTy, MAX_DEPTH, Map, Obj, Str, Tree, Val};
use base64::Engine as _;
use std::fmt::Write;

/// A float64 in JSON's form.
pub fn float_json(f: f64) -> String {
    let a = f.abs();
    if a != 0.0 && !(1e-6..1e21).contains(&a) {
        let s = crate::text::fmt::float_g(f, -400);
        // e-09 becomes e-9.
        let n = s.len();
        if n >= 4 && s.as_bytes()[n - 4] == b'e' && s.as_bytes()[n - 3] == b'-' && s.as_bytes()[n - 2] == b'0' {
            return format!("{}{}", &s[..n - 2], &s[n - 1..]);
        }
        return s;
    }
    if f == 0.0 && f.is_sign_negative() {
        return "-0".into();
    }
    format!("{f}")
}

/// Text with each invalid byte replaced.
pub fn valid(b: &[u8]) -> String {
    let mut s = String::with_capacity(b.len());
    for (_, c, _) in crate::text::runes(b) {
        s.push(c);
    }
    s
}

/// How to write.
#[derive(Clone, Copy)]
pub struct Form {
    /// `<`, `>` and `&` escaped.
    pub html: bool,
    /// Indented by two blanks.
    pub pretty: bool,
}

/// Encodes a value; the error is Go's text.
pub fn encode(v: &Val, form: Form) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write(&mut out, v, form, 0)?;
    Ok(out)
}

/// Writes a JSON string.
pub fn write_string(out: &mut Vec<u8>, b: &[u8], html: bool) {
    out.push(b'"');
    let mut i = 0;
    while i < b.len() {
        let c = b[i];
        if c < 0x80 {
            let esc: &[u8] = match c {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                8 => b"\\b",
                12 => b"\\f",
                b'<' | b'>' | b'&' if html => {
                    out.extend_from_slice(format!("\\u{c:04x}").as_bytes());
                    b""
                }
                0..=31 => {
                    out.extend_from_slice(format!("\\u{c:04x}").as_bytes());
                    b""
                }
                _ => {
                    out.push(c);
                    b""
                }
            };
            out.extend_from_slice(esc);
            i += 1;
            continue;
        }
        let (r, w) = decode_rune(&b[i..]);
        if r == '\u{FFFD}' && w == 1 {
            out.extend_from_slice(b"\\ufffd");
        } else if r == '\u{2028}' || r == '\u{2029}' {
            out.extend_from_slice(format!("\\u{:04x}", r as u32).as_bytes());
        } else {
            out.extend_from_slice(&b[i..i + w]);
        }
        i += w;
    }
    out.push(b'"');
}

fn line(out: &mut Vec<u8>, form: Form, depth: usize) {
    if form.pretty {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', 2 * depth));
    }
}

fn write_fields(out: &mut Vec<u8>, fields: &[(&[u8], Val)], form: Form, depth: usize) -> Result<(), String> {
    if fields.is_empty() {
        out.extend_from_slice(b"{}");
        return Ok(());
    }
    out.push(b'{');
    for (i, (k, v)) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        line(out, form, depth + 1);
        write_string(out, k, form.html);
        out.push(b':');
        if form.pretty {
            out.push(b' ');
        }
        write(out, v, form, depth + 1)?;
    }
    line(out, form, depth);
    out.push(b'}');
    Ok(())
}

fn write(out: &mut Vec<u8>, v: &Val, form: Form, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("json: unsupported value: encountered a cycle via map[string]interface {}".into());
    }
    match v {
        Val::No | Val::Nil => out.extend_from_slice(b"null"),
        Val::Bool(b) => out.extend_from_slice(b.to_string().as_bytes()),
        Val::Int(i) | Val::Int64(i) => out.extend_from_slice(i.to_string().as_bytes()),
        Val::Byte(b) => out.extend_from_slice(b.to_string().as_bytes()),
        Val::Float(f) if !f.is_finite() => return Err(format!("json: unsupported value: {}", crate::text::fmt::float_v(*f))),
        Val::Float(f) => out.extend_from_slice(float_json(*f).as_bytes()),
        Val::Str(s) => write_string(out, s.as_bytes(), form.html),
        Val::List(l) if l.nil => out.extend_from_slice(b"null"),
        Val::List(l) if l.ty == ListTy::Bytes => {
            let b: Vec<u8> = l.v.iter().map(|v| if let Val::Byte(b) = v { *b } else { 0 }).collect();
            write_string(out, base64::engine::general_purpose::STANDARD.encode(b).as_bytes(), form.html);
        }
        Val::List(l) => {
            if l.v.is_empty() {
                out.extend_from_slice(b"[]");
                return Ok(());
            }
            out.push(b'[');
            for (i, e) in l.v.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(out, form, depth + 1);
                write(out, e, form, depth + 1)?;
            }
            line(out, form, depth);
            out.push(b']');
        }
        Val::Map(m) if m.ty == crate::value::MapTy::NilStr => out.extend_from_slice(b"null"),
        Val::Map(m) => {
            let entries = m.entries();
            let fields: Vec<(&[u8], Val)> = entries.iter().map(|(k, v)| (k.as_bytes(), v.clone())).collect();
            write_fields(out, &fields, form, depth)?;
        }
        Val::Obj(o) => return object(out, o, form, depth),
    }
    Ok(())
}

fn object(out: &mut Vec<u8>, o: &Obj, form: Form, depth: usize) -> Result<(), String> {
    let s = |t: &String| Val::str(t.as_str());
    let fields: Vec<(&[u8], Val)> = match o {
        Obj::Caps(c) => vec![(b"KubeVersion", Val::obj(Obj::Kube(c.kube.clone()))), (b"APIVersions", c.apis.clone()), (b"HelmVersion", Val::obj(Obj::Helm(c.helm.clone())))],
        Obj::Kube(k) => vec![(b"Version", s(&k.version)), (b"Major", s(&k.major)), (b"Minor", s(&k.minor))],
        Obj::Helm(h) => {
            let all: [(&[u8], Option<&String>); 5] = [(b"version", Some(&h.version)), (b"git_commit", Some(&h.commit)), (b"git_tree_state", Some(&h.state)), (b"go_version", Some(&h.go)), (b"kube_client_version", h.client.as_ref())];
            all.into_iter().filter_map(|(k, v)| v.filter(|v| !v.is_empty()).map(|v| (k, s(v)))).collect()
        }
        Obj::Cert(c) => vec![(b"Cert", s(&c.cert)), (b"Key", s(&c.key))],
        Obj::Error(_) => Vec::new(),
        Obj::Semver(v) => {
            write_string(out, v.to_string().as_bytes(), form.html);
            return Ok(());
        }
        Obj::Time(t) => {
            write_string(out, crate::func::date::rfc3339_nano(t).as_bytes(), form.html);
            return Ok(());
        }
        Obj::Duration(d) => {
            out.extend_from_slice(d.to_string().as_bytes());
            return Ok(());
        }
        Obj::Named(_, i, _) => {
            out.extend_from_slice(i.to_string().as_bytes());
            return Ok(());
        }
        Obj::Complex(..) => return Err("json: unsupported type: complex128".into()),
    };
    write_fields(out, &fields, form, depth)
}

struct Reader<'a> {
    b: &'a [u8],
    i: usize,
}

/// Reads one JSON text; the error is Go's.
pub fn decode(b: &[u8]) -> Result<Val, String> {
    let mut r = Reader { b, i: 0 };
    let v = r.value(0)?;
    r.space();
    match r.b.get(r.i) {
        None => Ok(v),
        Some(_) => Err(r.bad("after top-level value")),
    }
}

/// Reads an object into a map, with Go's complaint for other kinds.
pub fn decode_map(b: &[u8]) -> Result<Tree, String> {
    match decode(b)? {
        Val::Map(m) => Ok(Map::lock(&m).clone()),
        Val::Nil => Ok(Tree::new()),
        v => Err(format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", crate::yaml::decode::json_kind(&v))),
    }
}

const END: &str = "unexpected end of JSON input";

impl Reader<'_> {
    fn space(&mut self) {
        while matches!(self.b.get(self.i), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.i += 1;
        }
    }

    fn bad(&self, context: &str) -> String {
        // The end counts as a blank, which most places accept.
        let c = match self.b.get(self.i) {
            Some(&c) => c,
            None if context.contains("literal t") || context.contains("literal f") || context.contains("literal n") || context.contains("numeric literal") || context.contains("escape") => b' ',
            None => return END.into(),
        };
        let q = match c {
            b'\'' => "'\\''".to_string(),
            b'"' => "'\"'".to_string(),
            c => {
                let s = quote((c as char).to_string().as_bytes());
                format!("'{}'", &s[1..s.len() - 1])
            }
        };
        format!("invalid character {q} {context}")
    }

    fn value(&mut self, depth: usize) -> Result<Val, String> {
        if depth > 10_000 {
            return Err("exceeded max depth".into());
        }
        self.space();
        match self.b.get(self.i) {
            None => Err(END.into()),
            Some(b'{') => stacker::maybe_grow(64 << 10, 1 << 20, || self.object(depth)),
            Some(b'[') => stacker::maybe_grow(64 << 10, 1 << 20, || self.array(depth)),
            Some(b'"') => Ok(Val::str(self.string()?)),
            Some(b't') => self.literal("true", Val::Bool(true)),
            Some(b'f') => self.literal("false", Val::Bool(false)),
            Some(b'n') => self.literal("null", Val::Nil),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.bad("looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str, v: Val) -> Result<Val, String> {
        for (n, w) in word.bytes().enumerate() {
            match self.b.get(self.i) {
                Some(c) if *c == w => self.i += 1,
                _ => {
                    debug_assert!(n > 0);
                    return Err(self.bad(&format!("in literal {word} (expecting '{}')", w as char)));
                }
            }
        }
        Ok(v)
    }

    fn number(&mut self) -> Result<Val, String> {
        let s = self.i;
        if self.b[self.i] == b'-' {
            self.i += 1;
        }
        match self.b.get(self.i) {
            Some(b'0') => self.i += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.bad("in numeric literal")),
        }
        if self.b.get(self.i) == Some(&b'.') {
            self.i += 1;
            if !self.b.get(self.i).is_some_and(u8::is_ascii_digit) {
                return Err(self.bad("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.b.get(self.i), Some(b'e' | b'E')) {
            self.i += 1;
            if matches!(self.b.get(self.i), Some(b'+' | b'-')) {
                self.i += 1;
            }
            if !self.b.get(self.i).is_some_and(u8::is_ascii_digit) {
                return Err(self.bad("in exponent of numeric literal"));
            }
            self.digits();
        }
        let t = crate::text::lossy(&self.b[s..self.i]);
        match t.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Val::Float(f)),
            _ => Err(format!("json: cannot unmarshal number {t} into Go value of type float64")),
        }
    }

    fn digits(&mut self) {
        while self.b.get(self.i).is_some_and(u8::is_ascii_digit) {
            self.i += 1;
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, String> {
        self.i += 1;
        let mut out = String::new();
        loop {
            let Some(&c) = self.b.get(self.i) else { return Err(END.into()) };
            match c {
                b'"' => {
                    self.i += 1;
                    return Ok(out.into_bytes());
                }
                b'\\' => {
                    self.i += 1;
                    let Some(&e) = self.b.get(self.i) else { return Err(self.bad("in string escape code")) };
                    match e {
                        b'b' => out.push('\u{8}'),
                        b'f' => out.push('\u{c}'),
                        b'n' => out.push('\n'),
                        b'r' => out.push('\r'),
                        b't' => out.push('\t'),
                        b'\\' | b'/' | b'"' => out.push(e as char),
                        b'u' => {
                            let mut v = self.hex4()?;
                            if (0xD800..0xDC00).contains(&v) && self.b.get(self.i + 1) == Some(&b'\\') && self.b.get(self.i + 2) == Some(&b'u') {
                                let back = self.i;
                                self.i += 2;
                                let low = self.hex4()?;
                                if (0xDC00..0xE000).contains(&low) {
                                    v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
                                } else {
                                    self.i = back;
                                }
                            }
                            out.push(char::from_u32(v).unwrap_or('\u{FFFD}'));
                        }
                        _ => return Err(self.bad("in string escape code")),
                    }
                    self.i += 1;
                }
                0..=31 => return Err(self.bad("in string literal")),
                _ => {
                    let (r, w) = decode_rune(&self.b[self.i..]);
                    out.push(r);
                    self.i += w;
                }
            }
        }
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut v = 0;
        for _ in 0..4 {
            self.i += 1;
            match self.b.get(self.i).map(|c| (*c as char).to_digit(16)) {
                Some(Some(d)) => v = v * 16 + d,
                _ => return Err(self.bad("in \\u hexadecimal character escape")),
            }
        }
        Ok(v)
    }

    fn array(&mut self, depth: usize) -> Result<Val, String> {
        self.i += 1;
        let mut v = Vec::new();
        self.space();
        if self.b.get(self.i) == Some(&b']') {
            self.i += 1;
            return Ok(Val::list(v));
        }
        loop {
            v.push(self.value(depth + 1)?);
            self.space();
            match self.b.get(self.i) {
                Some(b',') => self.i += 1,
                Some(b']') => {
                    self.i += 1;
                    return Ok(Val::list(v));
                }
                _ => return Err(self.bad("after array element")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Val, String> {
        self.i += 1;
        let mut m = Tree::new();
        self.space();
        if self.b.get(self.i) == Some(&b'}') {
            self.i += 1;
            return Ok(Val::map(m));
        }
        loop {
            self.space();
            if self.b.get(self.i) != Some(&b'"') {
                return Err(self.bad("looking for beginning of object key string"));
            }
            let k = self.string()?;
            self.space();
            if self.b.get(self.i) != Some(&b':') {
                return Err(self.bad("after object key"));
            }
            self.i += 1;
            let v = self.value(depth + 1)?;
            m.insert(Str::from(k), v);
            self.space();
            match self.b.get(self.i) {
                Some(b',') => self.i += 1,
                Some(b'}') => {
                    self.i += 1;
                    return Ok(Val::map(m));
                }
                _ => return Err(self.bad("after object key:value pair")),
            }
        }
    }
}

/// `%v` style text used in a few messages.
pub fn debug_text(v: &Val) -> String {
    let mut s = String::new();
    let _ = write!(s, "{}", crate::text::fmt::sprint(v));
    s
}

/// Reads the first JSON value of a text and tells how many bytes it took.
pub fn decode_first(b: &[u8]) -> Result<(Val, usize), String> {
    let mut r = Reader { b, i: 0 };
    let v = r.value(0)?;
    Ok((v, r.i))
}
