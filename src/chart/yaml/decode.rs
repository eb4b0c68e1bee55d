//! YAML documents to values, by way of what JSON can say: keys are strings, numbers are float64.

use super::parse::{Doc, Id, Kind, parse};
use super::resolve::{Res, resolve};
use crate::text::fmt::float_g32;
use crate::value::{Str, Tree, Val};
use base64::Engine as _;
use std::borrow::Cow;

/// Why a document was refused: the reference's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub String);

struct Decoder<'d, 'a> {
    doc: &'d Doc<'a>,
    open: Vec<Id>,
    count: u64,
    alias_count: u64,
    alias_depth: usize,
    /// Integers stay integers.
    ints: bool,
}

fn converting(e: impl std::fmt::Display) -> Fault {
    Fault(format!("error converting YAML to JSON: {e}"))
}

fn yaml(e: impl std::fmt::Display) -> Fault {
    converting(format!("yaml: {e}"))
}

/// Decodes the first document; numbers become float64.
pub fn decode(b: &[u8]) -> Result<Val, Fault> {
    decode_with(b, false)
}

/// Decodes the first document; integers stay integers (for targets that want strings).
pub fn decode_ints(b: &[u8]) -> Result<Val, Fault> {
    decode_with(b, true)
}

fn decode_with(b: &[u8], ints: bool) -> Result<Val, Fault> {
    let doc = parse(b).map_err(|e| yaml(e.0))?;
    decode_doc(&doc, ints)
}

/// A parsed document as a value.
pub fn decode_doc(doc: &Doc<'_>, ints: bool) -> Result<Val, Fault> {
    let Some(root) = doc.root else { return Ok(Val::Nil) };
    let mut d = Decoder { doc, open: Vec::new(), count: 0, alias_count: 0, alias_depth: 0, ints };
    let v = d.value(root)?;
    Ok(v)
}

/// Decodes a document that must be a map (an empty one gives an empty map).
pub fn decode_document(b: &[u8]) -> Result<Tree, Fault> {
    match decode(b)? {
        Val::Nil | Val::No => Ok(Tree::new()),
        Val::Map(m) => Ok(m.lock().clone()),
        v => Err(Fault(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_kind(&v)))),
    }
}

/// The JSON word for a value's kind in Go's complaints.
pub fn json_kind(v: &Val) -> &'static str {
    match v {
        Val::Str(_) => "string",
        Val::Bool(_) => "bool",
        Val::List(_) => "array",
        Val::Map(_) => "object",
        Val::Nil | Val::No => "null",
        _ => "number",
    }
}

fn short(tag: &str) -> String {
    match tag.strip_prefix("tag:yaml.org,2002:") {
        Some(s) => format!("!!{s}"),
        None => tag.into(),
    }
}

/// A key of a YAML map as JSON's string.
pub fn key_text<'d>(doc: &'d Doc<'_>, id: Id) -> Option<Cow<'d, [u8]>> {
    match &doc.node(id).kind {
        Kind::Scalar { value, plain } => {
            let n = doc.node(id);
            if n.tag.is_empty() && *plain {
                let text = match resolve(value) {
                    Res::Bool(b) => b.to_string(),
                    Res::Int(i) => i.to_string(),
                    Res::Float(f) => match float_g32(f) {
                        s if s == "+Inf" => ".inf".to_owned(),
                        s if s == "-Inf" => "-.inf".to_owned(),
                        s if s == "NaN" => ".nan".to_owned(),
                        s => s,
                    },
                    Res::Null | Res::Uint(_) => return None,
                    Res::Timestamp | Res::Str => return Some(Cow::Borrowed(value)),
                };
                return Some(Cow::Owned(text.into_bytes()));
            }
            Some(Cow::Borrowed(value))
        }
        Kind::Alias(_, t) => key_text(doc, *t),
        _ => None,
    }
}

/// Is the node `<<` as a merge key?
pub fn is_merge(doc: &Doc<'_>, id: Id) -> bool {
    let n = doc.node(id);
    matches!(&n.kind, Kind::Scalar { value, plain: true } if value.as_ref() == b"<<") && n.tag.is_empty() || n.tag == "tag:yaml.org,2002:merge"
}

/// A node in Go syntax (`%#v`).
fn go_syntax(doc: &Doc<'_>, id: Id, depth: usize) -> String {
    if depth > 100 {
        return String::new();
    }
    let n = doc.node(id);
    let below = |i: &Id| go_syntax(doc, *i, depth + 1);
    match &n.kind {
        Kind::Scalar { value, plain } if *plain && n.tag.is_empty() => match resolve(value) {
            Res::Null => "interface {}(nil)".into(),
            Res::Bool(b) => b.to_string(),
            Res::Int(i) => i.to_string(),
            Res::Uint(u) => format!("{u:#x}"),
            Res::Float(f) => crate::text::fmt::float_v(f),
            _ => crate::text::quote::quote(value),
        },
        Kind::Scalar { value, .. } => crate::text::quote::quote(value),
        Kind::Seq(items) => format!("[]interface {{}}{{{}}}", items.iter().map(below).collect::<Vec<_>>().join(", ")),
        Kind::Map(pairs) => format!("map[interface {{}}]interface {{}}{{{}}}", pairs.iter().map(|(k, v)| format!("{}:{}", below(k), below(v))).collect::<Vec<_>>().join(", ")),
        Kind::Alias(_, t) => go_syntax(doc, *t, depth + 1),
    }
}

impl Decoder<'_, '_> {
    fn value(&mut self, id: Id) -> Result<Val, Fault> {
        self.count += 1;
        if self.alias_depth > 0 {
            self.alias_count += 1;
        }
        if self.alias_count > 100 && self.count > 1000 && self.alias_count as f64 / self.count as f64 > ratio(self.count) {
            return Err(yaml("document contains excessive aliasing"));
        }
        let doc = self.doc;
        let n = doc.node(id);
        match &n.kind {
            Kind::Scalar { value, plain } => self.scalar(value, *plain, &n.tag),
            Kind::Seq(items) => {
                let mut v = Vec::with_capacity(items.len());
                for i in items {
                    v.push(stacker::maybe_grow(64 << 10, 1 << 20, || self.value(*i))?);
                }
                Ok(Val::list(v))
            }
            Kind::Map(_) => {
                let mut m = Tree::new();
                self.fill(id, &mut m)?;
                Ok(Val::map(m))
            }
            Kind::Alias(name, target) => {
                if self.open.contains(target) {
                    return Err(yaml(format!("anchor '{name}' value contains itself")));
                }
                self.open.push(*target);
                self.alias_depth += 1;
                let v = stacker::maybe_grow(64 << 10, 1 << 20, || self.value(*target));
                self.alias_depth -= 1;
                self.open.pop();
                v
            }
        }
    }

    fn fill(&mut self, id: Id, m: &mut Tree) -> Result<(), Fault> {
        let doc = self.doc;
        let Kind::Map(pairs) = &doc.node(id).kind else { return Ok(()) };
        // Anchored maps that hold themselves are caught by the alias check above.
        for (k, v) in pairs {
            if is_merge(doc, *k) {
                self.merge(*v, m)?;
                continue;
            }
            let key = match key_text(doc, *k) {
                Some(k) => k,
                None => return Err(self.bad_key(*k)),
            };
            let value = stacker::maybe_grow(64 << 10, 1 << 20, || self.value(*v))?;
            m.insert(Str::from(&*key), value);
        }
        Ok(())
    }

    fn bad_key(&self, k: Id) -> Fault {
        match &self.doc.node(k).kind {
            Kind::Scalar { value, .. } if matches!(resolve(value), Res::Null) => converting("unsupported map key of type: %!s(<nil>), key: <nil>, value: <nil>"),
            Kind::Scalar { value, .. } => converting(format!("unsupported map key of type: uint64, key: {}, value: <nil>", crate::text::lossy(value))),
            _ => yaml(format!("invalid map key: {}", go_syntax(self.doc, k, 0))),
        }
    }

    fn merge(&mut self, id: Id, m: &mut Tree) -> Result<(), Fault> {
        const WANT: &str = "map merge requires map or sequence of maps as the value";
        let doc = self.doc;
        let map_of = |id: Id| match &doc.node(id).kind {
            Kind::Map(_) => Some(id),
            Kind::Alias(_, t) if matches!(doc.node(*t).kind, Kind::Map(_)) => Some(*t),
            _ => None,
        };
        self.count += 1;
        match &doc.node(id).kind {
            Kind::Seq(items) => {
                for i in items.iter().rev() {
                    let t = map_of(*i).ok_or_else(|| yaml(WANT))?;
                    self.fill_alias(t, m)?;
                }
                Ok(())
            }
            _ => {
                let t = map_of(id).ok_or_else(|| yaml(WANT))?;
                self.fill_alias(t, m)
            }
        }
    }

    fn fill_alias(&mut self, t: Id, m: &mut Tree) -> Result<(), Fault> {
        if self.open.contains(&t) {
            return Err(yaml("anchor value contains itself"));
        }
        self.open.push(t);
        let r = stacker::maybe_grow(64 << 10, 1 << 20, || self.fill(t, m));
        self.open.pop();
        r
    }

    fn scalar(&self, value: &[u8], plain: bool, tag: &str) -> Result<Val, Fault> {
        let text = || Ok(Val::str(value));
        if tag.is_empty() {
            return if plain { self.resolved(value, resolve(value)) } else { text() };
        }
        let bad = |r: &str| Err(yaml(format!("cannot decode {r} `{}` as a {}", crate::text::lossy(value), short(tag))));
        let name = |r: &Res| match r {
            Res::Null => "!!null",
            Res::Bool(_) => "!!bool",
            Res::Int(_) | Res::Uint(_) => "!!int",
            Res::Float(_) => "!!float",
            Res::Timestamp => "!!timestamp",
            Res::Str => "!!str",
        };
        let r = resolve(value);
        match tag.strip_prefix("tag:yaml.org,2002:") {
            Some("str") => text(),
            Some("binary") => {
                let clean: Vec<u8> = value.iter().copied().filter(|c| !matches!(c, b'\n' | b'\r')).collect();
                match base64::engine::general_purpose::STANDARD.decode(&clean) {
                    Ok(d) => Ok(Val::str(d)),
                    Err(_) => Err(yaml("!!binary value contains invalid base64 data")),
                }
            }
            Some("float") => match r {
                Res::Int(i) => Ok(Val::Float(i as f64)),
                Res::Float(_) => self.resolved(value, r),
                r => bad(name(&r)),
            },
            Some(t @ ("bool" | "int" | "null" | "timestamp")) => {
                if name(&r) == format!("!!{t}") {
                    self.resolved(value, r)
                } else {
                    bad(name(&r))
                }
            }
            _ => text(),
        }
    }

    fn resolved(&self, value: &[u8], r: Res) -> Result<Val, Fault> {
        Ok(match r {
            Res::Null => Val::Nil,
            Res::Bool(b) => Val::Bool(b),
            Res::Int(i) if self.ints => Val::Int(i),
            Res::Int(i) => Val::Float(i as f64),
            Res::Uint(u) => Val::Float(u as f64),
            Res::Float(f) if !f.is_finite() => return Err(converting(format!("json: unsupported value: {}", crate::text::fmt::float_v(f)))),
            Res::Float(f) => Val::Float(f),
            Res::Timestamp | Res::Str => Val::str(value),
        })
    }
}

fn ratio(count: u64) -> f64 {
    match count {
        ..=400_000 => 0.99,
        4_000_000.. => 0.10,
        c => 0.99 - 0.89 * ((c - 400_000) as f64 / 3_600_000.0),
    }
}
