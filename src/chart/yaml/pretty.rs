//! `toYamlPretty`: YAML as the third generation of the reference library writes it, lists indented by two.

use super::resolve::{Res, resolve};
use super::emit::natural;
use crate::text::fmt::float_g;
use crate::value::{MAX_DEPTH, Val};

/// The text without its final newline.
pub fn to_yaml_pretty(v: &Val) -> Vec<u8> {
    // The layout differs from toYaml's only in indented lists, unlimited width and number forms: emit and re-indent.
    let mut out = Vec::new();
    node(&mut out, v, 0, Place::Top, 0);
    while out.last() == Some(&b'\n') {
        out.pop();
    }
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Top,
    Map,
    Seq,
}

fn scalar(v: &Val) -> Option<Vec<u8>> {
    Some(match v {
        Val::No | Val::Nil => b"null".to_vec(),
        Val::Bool(b) => b.to_string().into_bytes(),
        Val::Int(i) | Val::Int64(i) => i.to_string().into_bytes(),
        Val::Byte(b) => b.to_string().into_bytes(),
        Val::Float(f) => float_g(*f, 21).into_bytes(),
        Val::Str(_) => return None,
        Val::List(l) if l.v.is_empty() => b"[]".to_vec(),
        Val::Map(m) if m.is_empty() => b"{}".to_vec(),
        Val::List(_) | Val::Map(_) => return None,
        Val::Obj(_) => crate::text::fmt::sprint(v).into_bytes(),
    })
}

/// YAML 1.2 core words, and 1.1 booleans that are still quoted.
fn needs_quotes(s: &[u8]) -> bool {
    if matches!(resolve(s), Res::Str) {
        return super::resolve::base60(s);
    }
    true
}

fn string(out: &mut Vec<u8>, s: &[u8], indent: usize) {
    let text = Val::str(s);
    if s.contains(&b'\n') {
        // A literal block: taken from the common emitter and indented.
        if let Some(t) = super::emit::to_yaml(&text) {
            let mut lines = t.split(|c| *c == b'\n');
            out.extend_from_slice(lines.next().unwrap_or(b""));
            for l in lines {
                out.push(b'\n');
                if !l.is_empty() {
                    let body = l.strip_prefix(b"  ").unwrap_or(l);
                    out.extend(std::iter::repeat_n(b' ', indent));
                    out.extend_from_slice(body);
                }
            }
            while out.last() == Some(&b'\n') {
                out.pop();
            }
        }
        return;
    }
    if needs_quotes(s) {
        out.push(b'"');
        out.extend_from_slice(s);
        out.push(b'"');
        return;
    }
    if let Some(mut t) = super::emit::to_yaml(&text) {
        t.pop();
        // Undo folding: the newer library does not fold here.
        let joined: Vec<u8> = t.split(|c| *c == b'\n').enumerate().map(|(i, l)| if i == 0 { l } else { l.strip_prefix(b"  ").unwrap_or(l) }).collect::<Vec<_>>().join(&b' ');
        out.extend_from_slice(&joined);
    }
}

fn node(out: &mut Vec<u8>, v: &Val, indent: usize, place: Place, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(s) = scalar(v) {
        out.extend_from_slice(&s);
        out.push(b'\n');
        return;
    }
    let pad = |out: &mut Vec<u8>, n: usize| out.extend(std::iter::repeat_n(b' ', n));
    match v {
        Val::Str(s) => {
            string(out, s.as_bytes(), indent.max(if place == Place::Top { 2 } else { indent }));
            out.push(b'\n');
        }
        Val::Map(m) => {
            let mut e = m.entries();
            e.sort_by(|a, b| natural(a.0.as_bytes(), b.0.as_bytes()));
            for (i, (k, x)) in e.iter().enumerate() {
                if i > 0 || place == Place::Map {
                    pad(out, indent);
                }
                string(out, k.as_bytes(), 0);
                out.push(b':');
                child(out, x, indent, depth);
            }
        }
        Val::List(l) => {
            for (i, x) in l.v.iter().enumerate() {
                if i > 0 || place == Place::Map {
                    pad(out, indent);
                }
                out.extend_from_slice(b"- ");
                node(out, x, indent + 2, Place::Seq, depth + 1);
            }
        }
        _ => {}
    }
}

fn child(out: &mut Vec<u8>, x: &Val, indent: usize, depth: usize) {
    match x {
        Val::Map(m) if !m.is_empty() => {
            out.push(b'\n');
            node(out, x, indent + 2, Place::Map, depth + 1);
        }
        Val::List(l) if !l.v.is_empty() => {
            out.push(b'\n');
            node(out, x, indent + 2, Place::Map, depth + 1);
        }
        _ => {
            out.push(b' ');
            node(out, x, indent + 2, Place::Map, depth + 1);
        }
    }
}
