//! Values to YAML text as `toYaml` writes them: through JSON, natural key order, folding after column 80, the reference's quoting.

use super::resolve::{Res, base60, resolve};
use crate::json::float_json;
use crate::text::fmt::float_g;
use crate::text::{decode_rune, is_digit, is_letter};
use crate::value::{ListTy, MAX_DEPTH, Obj, Val};
use base64::Engine as _;
use std::cmp::Ordering;

/// Order of keys: numbers inside text by value, letters after other characters.
pub fn natural(a: &[u8], b: &[u8]) -> Ordering {
    // Runs of plain letters compare as bytes: the usual case.
    let (ar, br): (Vec<char>, Vec<char>) = (crate::text::lossy(a).chars().collect(), crate::text::lossy(b).chars().collect());
    for i in 0..ar.len().min(br.len()) {
        if ar[i] == br[i] {
            continue;
        }
        let (al, bl) = (is_letter(ar[i]), is_letter(br[i]));
        if al && bl {
            return ar[i].cmp(&br[i]);
        }
        if al || bl {
            return if bl { Ordering::Less } else { Ordering::Greater };
        }
        let (mut an, mut bn) = (0i64, 0i64);
        if ar[i] == '0' || br[i] == '0' {
            for j in (0..i).rev() {
                if !is_digit(ar[j]) {
                    break;
                }
                if ar[j] != '0' {
                    an = 1;
                    bn = 1;
                    break;
                }
            }
        }
        let (mut ai, mut bi) = (i, i);
        while ai < ar.len() && is_digit(ar[ai]) {
            an = an.wrapping_mul(10).wrapping_add(ar[ai] as i64 - '0' as i64);
            ai += 1;
        }
        while bi < br.len() && is_digit(br[bi]) {
            bn = bn.wrapping_mul(10).wrapping_add(br[bi] as i64 - '0' as i64);
            bi += 1;
        }
        if an != bn {
            return an.cmp(&bn);
        }
        if ai != bi {
            return ai.cmp(&bi);
        }
        return ar[i].cmp(&br[i]);
    }
    ar.len().cmp(&br.len())
}

/// The YAML text with its final newline; `None` where the reference fails (and Helm prints nothing).
pub fn to_yaml(v: &Val) -> Option<Vec<u8>> {
    let mut e = Emitter { out: Vec::new(), column: 0, whitespace: true, indention: true, indent: -1, ok: true };
    e.node(v, false, false, 0);
    e.write_indent();
    e.ok.then_some(e.out)
}

struct Emitter {
    out: Vec<u8>,
    column: usize,
    whitespace: bool,
    indention: bool,
    indent: i64,
    ok: bool,
}

const WIDTH: usize = 80;

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

struct Analysis {
    multiline: bool,
    plain: bool,
    single: bool,
    block: bool,
}

/// What of a string may be written how.
fn analyze(v: &[u8]) -> Analysis {
    if v.is_empty() {
        return Analysis { multiline: false, plain: true, single: true, block: false };
    }
    let mut block_ind = v.starts_with(b"---") || v.starts_with(b"...");
    let (mut breaks, mut special) = (false, false);
    let (mut lead_space, mut lead_break, mut trail_space, mut trail_break, mut break_space, mut space_break) = (false, false, false, false, false, false);
    let (mut prev_space, mut prev_break) = (false, false);
    let mut preceded = true;
    let mut i = 0;
    while i < v.len() {
        let c = v[i];
        let (r, w) = if c < 0x80 { (c as char, 1) } else { decode_rune(&v[i..]) };
        let followed = i + w >= v.len() || matches!(v[i + w], b' ' | b'\t');
        if i == 0 {
            match c {
                b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%' | b'@' | b'`' => block_ind = true,
                b'?' | b':' | b'-' if followed => block_ind = true,
                _ => {}
            }
        } else {
            match c {
                b':' if followed => block_ind = true,
                b'#' if preceded => block_ind = true,
                _ => {}
            }
        }
        if !printable(r) {
            special = true;
        }
        let is_break = matches!(r, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}');
        if c == b' ' {
            lead_space |= i == 0;
            trail_space |= i + w == v.len();
            break_space |= prev_break;
            prev_space = true;
            prev_break = false;
        } else if is_break {
            breaks = true;
            lead_break |= i == 0;
            trail_break |= i + w == v.len();
            space_break |= prev_space;
            prev_space = false;
            prev_break = true;
        } else {
            prev_space = false;
            prev_break = false;
        }
        preceded = c == b' ' || c == b'\t' || is_break;
        i += w;
    }
    let mut a = Analysis { multiline: breaks, plain: true, single: true, block: true };
    if lead_space || lead_break || trail_space || trail_break || breaks || block_ind {
        a.plain = false;
    }
    if trail_space {
        a.block = false;
    }
    if break_space {
        a.plain = false;
        a.single = false;
    }
    if space_break || special {
        a.plain = false;
        a.single = false;
        a.block = false;
    }
    a
}

/// Printable in the emitter's narrow sense: no tab, nothing beyond the basic plane.
fn printable(r: char) -> bool {
    let u = r as u32;
    u == 0x0A || (0x20..=0x7E).contains(&u) || (0xA0..=0xD7FF).contains(&u) || (0xE000..=0xFFFD).contains(&u) && u != 0xFEFF
}

impl Emitter {
    fn put(&mut self, b: u8) {
        self.out.push(b);
        self.column += 1;
    }

    fn put_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.max(0) as usize;
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.put_break();
        }
        while self.column < indent {
            self.put(b' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, s: &[u8], need: bool, is_ws: bool, is_indention: bool) {
        if need && !self.whitespace {
            self.put(b' ');
        }
        self.out.extend_from_slice(s);
        self.column += s.len();
        self.whitespace = is_ws;
        self.indention = self.indention && is_indention;
    }

    fn increase(&mut self, flow: bool, indentless: bool) -> i64 {
        let old = self.indent;
        if self.indent < 0 {
            self.indent = if flow { 2 } else { 0 };
        } else if !indentless {
            self.indent += 2;
        }
        old
    }

    fn node(&mut self, v: &Val, mapping: bool, key: bool, depth: usize) {
        if depth > MAX_DEPTH || self.out.len() > crate::limit::MAX_TEXT {
            self.ok = false;
            return;
        }
        match v {
            Val::No | Val::Nil => self.scalar(b"null", Style::Plain, key),
            Val::Bool(b) => self.scalar(if *b { b"true" } else { b"false" }, Style::Plain, key),
            Val::Int(i) | Val::Int64(i) => self.scalar(i.to_string().as_bytes(), Style::Plain, key),
            Val::Byte(b) => self.scalar(b.to_string().as_bytes(), Style::Plain, key),
            Val::Float(f) => self.float(*f, key),
            Val::Str(s) => self.string(s.as_bytes(), key),
            Val::List(l) if l.nil => self.scalar(b"null", Style::Plain, key),
            Val::List(l) if l.ty == ListTy::Bytes => {
                let b: Vec<u8> = l.v.iter().map(|v| if let Val::Byte(b) = v { *b } else { 0 }).collect();
                self.string(base64::engine::general_purpose::STANDARD.encode(b).as_bytes(), key);
            }
            Val::List(l) => {
                if l.v.is_empty() {
                    self.indicator(b"[", true, true, false);
                    self.indicator(b"]", false, false, false);
                    return;
                }
                let old = self.increase(false, mapping && !self.indention);
                for e in &l.v {
                    self.write_indent();
                    self.indicator(b"-", true, false, true);
                    self.node(e, false, false, depth + 1);
                }
                self.indent = old;
            }
            Val::Map(m) if m.ty == crate::value::MapTy::NilStr => self.scalar(b"null", Style::Plain, key),
            Val::Map(m) => {
                let entries = m.entries();
                self.map(entries.iter().map(|(k, v)| (k.as_bytes(), v)).collect(), depth);
            }
            Val::Obj(o) => self.object(o, key, depth),
        }
    }

    fn map(&mut self, mut entries: Vec<(&[u8], &Val)>, depth: usize) {
        if entries.is_empty() {
            self.indicator(b"{", true, true, false);
            self.indicator(b"}", false, false, false);
            return;
        }
        if entries.windows(2).any(|w| natural(w[0].0, w[1].0) == Ordering::Greater) {
            entries.sort_by(|a, b| natural(a.0, b.0));
        }
        let old = self.increase(false, false);
        for (k, v) in entries {
            self.write_indent();
            if k.len() <= 128 && !k.contains(&b'\n') && !analyze(k).multiline {
                self.string(k, true);
                self.indicator(b":", false, false, false);
            } else {
                self.indicator(b"?", true, false, true);
                self.string(k, false);
                self.write_indent();
                self.indicator(b":", true, false, true);
            }
            self.node(v, true, false, depth + 1);
        }
        self.indent = old;
    }

    fn object(&mut self, o: &Obj, key: bool, depth: usize) {
        let table = |e: &mut Self, fields: &[(&str, Val)]| {
            let all: Vec<(&[u8], &Val)> = fields.iter().map(|(k, v)| (k.as_bytes(), v)).collect();
            e.map(all, depth);
        };
        let s = |t: &str| Val::str(t);
        match o {
            Obj::Caps(c) => table(self, &[("KubeVersion", Val::obj(Obj::Kube(c.kube.clone()))), ("APIVersions", c.apis.clone()), ("HelmVersion", Val::obj(Obj::Helm(c.helm.clone())))]),
            Obj::Kube(k) => table(self, &[("Version", s(&k.version)), ("Major", s(&k.major)), ("Minor", s(&k.minor))]),
            Obj::Helm(h) => {
                let mut all = Vec::new();
                for (k, v) in [("version", Some(&h.version)), ("git_commit", Some(&h.commit)), ("git_tree_state", Some(&h.state)), ("go_version", Some(&h.go)), ("kube_client_version", h.client.as_ref())] {
                    if let Some(v) = v
                        && !v.is_empty()
                    {
                        all.push((k, s(v)));
                    }
                }
                table(self, &all);
            }
            Obj::Semver(v) => self.string(v.to_string().as_bytes(), key),
            Obj::Time(t) => self.string(crate::func::date::rfc3339_nano(t).as_bytes(), key),
            Obj::Duration(d) => self.scalar(d.to_string().as_bytes(), Style::Plain, key),
            Obj::Cert(c) => table(self, &[("Cert", s(&c.cert)), ("Key", s(&c.key))]),
            Obj::Error(_) => table(self, &[]),
            Obj::Named(_, i, _) => self.scalar(i.to_string().as_bytes(), Style::Plain, key),
            Obj::Complex(..) => self.ok = false,
        }
    }

    fn float(&mut self, f: f64, key: bool) {
        if !f.is_finite() {
            self.ok = false;
            return;
        }
        // The number goes through JSON text, which is read again as an integer where it is one.
        let text = float_json(f);
        match resolve(text.as_bytes()) {
            Res::Int(i) => self.scalar(i.to_string().as_bytes(), Style::Plain, key),
            Res::Uint(u) => self.scalar(u.to_string().as_bytes(), Style::Plain, key),
            _ => self.scalar(float_g(f, 6).as_bytes(), Style::Plain, key),
        }
    }

    fn string(&mut self, s: &[u8], key: bool) {
        let lossy;
        let s = match std::str::from_utf8(s) {
            Ok(_) => s,
            Err(_) => {
                lossy = crate::json::valid(s);
                lossy.as_bytes()
            }
        };
        // DEL, C1 controls and the like pass JSON unescaped and are refused when read as YAML.
        if s.iter().any(|c| *c == 0x7f || *c >= 0xC2) && s.iter().any(|c| *c == 0x7f || *c == 0xC2 || *c == 0xEF) && crate::text::lossy(s).chars().any(|c| matches!(c as u32, 0x7F..=0x84 | 0x86..=0x9F | 0xFFFE | 0xFFFF)) {
            self.ok = false;
            return;
        }
        let style = if s.contains(&b'\n') {
            Style::Literal
        } else if resolve(s) == Res::Str && !base60(s) {
            Style::Plain
        } else {
            Style::Double
        };
        self.scalar(s, style, key);
    }

    fn scalar(&mut self, v: &[u8], style: Style, key: bool) {
        let a = analyze(v);
        let mut style = style;
        if key && a.multiline {
            style = Style::Double;
        }
        if style == Style::Plain && (!a.plain || v.is_empty() && key) {
            style = Style::Single;
        }
        if style == Style::Single && !a.single {
            style = Style::Double;
        }
        if style == Style::Literal && (!a.block || key) {
            style = Style::Double;
        }
        let old = self.increase(true, false);
        match style {
            Style::Plain => self.plain(v, !key),
            Style::Single => self.single(v, !key),
            Style::Double => self.double(v, !key),
            Style::Literal => self.literal(v),
        }
        self.indent = old;
    }

    fn copy(&mut self, v: &[u8], i: &mut usize) {
        let w = decode_rune(&v[*i..]).1;
        self.out.extend_from_slice(&v[*i..*i + w]);
        self.column += 1;
        *i += w;
    }

    fn plain(&mut self, v: &[u8], breaks: bool) {
        if !self.whitespace {
            self.put(b' ');
        }
        if self.column + v.len() <= WIDTH || !breaks {
            self.out.extend_from_slice(v);
            self.column += crate::text::lossy(v).chars().count();
        } else {
            let mut spaces = false;
            let mut i = 0;
            while i < v.len() {
                if v[i] == b' ' {
                    if !spaces && self.column > WIDTH && v.get(i + 1) != Some(&b' ') {
                        self.write_indent();
                        i += 1;
                    } else {
                        self.copy(v, &mut i);
                    }
                    spaces = true;
                } else {
                    self.copy(v, &mut i);
                    spaces = false;
                }
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single(&mut self, v: &[u8], allow: bool) {
        self.indicator(b"'", true, false, false);
        let (mut spaces, mut breaks) = (false, false);
        let mut i = 0;
        while i < v.len() {
            let brk = break_width(v, i);
            if v[i] == b' ' {
                if allow && !spaces && self.column > WIDTH && i > 0 && i < v.len() - 1 && v.get(i + 1) != Some(&b' ') {
                    self.write_indent();
                    i += 1;
                } else {
                    self.copy(v, &mut i);
                }
                spaces = true;
            } else if brk > 0 {
                if !breaks && v[i] == b'\n' {
                    self.put_break();
                }
                self.write_break(v, &mut i, brk);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if v[i] == b'\'' {
                    self.put(b'\'');
                }
                self.copy(v, &mut i);
                self.indention = false;
                spaces = false;
                breaks = false;
            }
        }
        self.indicator(b"'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_break(&mut self, v: &[u8], i: &mut usize, w: usize) {
        if v[*i] == b'\n' {
            self.put_break();
        } else {
            self.out.extend_from_slice(&v[*i..*i + w]);
            self.column = 0;
        }
        *i += w;
    }

    fn double(&mut self, v: &[u8], allow: bool) {
        self.indicator(b"\"", true, false, false);
        let mut spaces = false;
        let mut i = 0;
        while i < v.len() {
            let (r, w) = decode_rune(&v[i..]);
            if !printable(r) || break_width(v, i) > 0 || r == '"' || r == '\\' || r == '\u{feff}' {
                i += w;
                self.put(b'\\');
                let u = r as u32;
                let short = match u {
                    0 => b'0',
                    7 => b'a',
                    8 => b'b',
                    9 => b't',
                    0xA => b'n',
                    0xB => b'v',
                    0xC => b'f',
                    0xD => b'r',
                    0x1b => b'e',
                    0x22 => b'"',
                    0x5c => b'\\',
                    0x85 => b'N',
                    0xA0 => b'_',
                    0x2028 => b'L',
                    0x2029 => b'P',
                    _ => 0,
                };
                if short != 0 {
                    self.put(short);
                } else {
                    let t = if u <= 0xFF {
                        format!("x{u:02X}")
                    } else if u <= 0xFFFF {
                        format!("u{u:04X}")
                    } else {
                        format!("U{u:08X}")
                    };
                    self.out.extend_from_slice(t.as_bytes());
                    self.column += t.len();
                }
                spaces = false;
            } else if r == ' ' {
                if allow && !spaces && self.column > WIDTH && i > 0 && i < v.len() - 1 {
                    self.write_indent();
                    if v.get(i + 1) == Some(&b' ') {
                        self.put(b'\\');
                    }
                    i += 1;
                } else {
                    self.copy(v, &mut i);
                }
                spaces = true;
            } else {
                self.copy(v, &mut i);
                spaces = false;
            }
        }
        self.indicator(b"\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn literal(&mut self, v: &[u8]) {
        self.indicator(b"|", true, false, false);
        if v[0] == b' ' || break_width(v, 0) > 0 {
            self.indicator(b"2", false, false, false);
        }
        let ends = |n: usize| -> Option<usize> {
            // Width of the break that ends v[..n].
            [1, 2, 3].into_iter().find(|w| n >= *w && break_width(v, n - w) == *w)
        };
        match ends(v.len()) {
            None => self.indicator(b"-", false, false, false),
            Some(w) if w == v.len() || ends(v.len() - w).is_some() => self.indicator(b"+", false, false, false),
            Some(_) => {}
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        let mut i = 0;
        while i < v.len() {
            let w = break_width(v, i);
            if w > 0 {
                self.write_break(v, &mut i, w);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                let end = v[i..].iter().position(|c| *c == b'\n' || *c == b'\r' || *c >= 0x80).map_or(v.len(), |p| i + p);
                if end > i {
                    self.out.extend_from_slice(&v[i..end]);
                    self.column += end - i;
                    i = end;
                } else {
                    self.copy(v, &mut i);
                }
                self.indention = false;
                breaks = false;
            }
        }
    }
}

fn break_width(v: &[u8], i: usize) -> usize {
    match v[i] {
        b'\r' | b'\n' => 1,
        0xC2 if v.get(i + 1) == Some(&0x85) => 2,
        0xE2 if v.get(i + 1) == Some(&0x80) && matches!(v.get(i + 2), Some(0xA8 | 0xA9)) => 3,
        _ => 0,
    }
}
