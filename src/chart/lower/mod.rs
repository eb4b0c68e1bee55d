//! Lowering of Go templates to Jinja text with private delimiters; minijinja's virtual machine walks it.
//!
//! Text and control flow become Jinja's own text, `if`, `for`, `break` and `continue`; every pipeline becomes a call of one object,
//! `h(N)`, with the number of a step in a table, which computes with Go's meanings. Variables and dots stay with that object. Large
//! bodies are lowered when they are first needed, each as a template of its own: most of a chart is switched off.

pub mod vm;

use crate::template::ast::{List, Node};
use crate::template::step::Place;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

/// Opens and closes blocks and prints; these characters are encoded where texts hold them.
pub const OPEN: &str = "\u{1}[";
/// Closes a block.
pub const CLOSE: &str = "]\u{1}";
/// Opens a print.
pub const PRINT: &str = "\u{1}(";
/// Closes a print.
pub const END: &str = ")\u{1}";

/// A node and where it stands.
struct Spot {
    list: Arc<List>,
    at: usize,
    place: Place,
}

impl Spot {
    fn node(&self) -> &Node {
        &self.list.nodes[self.at]
    }
}

/// What a numbered call does.
enum Op {
    /// A long text, encoded when it is first needed.
    Text(Spot, OnceLock<minijinja::Value>),
    /// Prints an action or a template, decides an `if` or `with`, begins a `range`.
    Step(Spot),
    /// Begins a round of a range.
    Round(Spot),
    /// Executes a body that is lowered when it is first needed.
    Later(Arc<List>, Place, OnceLock<Option<vm::Ready>>),
}

/// Bodies with fewer nodes are lowered at once. Random templates of the tests are small.
const LARGE: usize = if cfg!(test) { 2 } else { 8 };
/// Texts of fewer bytes are part of the Jinja text.
const LONG: usize = if cfg!(test) { 8 } else { 256 };

/// A lowered template.
#[derive(Default)]
pub struct Lowered {
    /// Jinja text.
    pub source: String,
    ops: Vec<Op>,
}

/// Bytes that Jinja's text cannot hold travel as characters of the last private plane.
fn encode(b: &[u8], out: &mut String) {
    if let Ok(s) = std::str::from_utf8(b)
        && !s.contains('\u{1}')
    {
        out.push_str(s);
        return;
    }
    for (i, c, w) in crate::text::runes(b) {
        if c == '\u{FFFD}' && w == 1 || c == '\u{1}' {
            out.push(char::from_u32(0x10_FE00 + b[i] as u32).unwrap_or(c));
        } else {
            out.push(c);
        }
    }
}

/// Back to bytes.
fn decode(s: String, out: &mut Vec<u8>) {
    // The first byte of all of plane 16, where bytes that are no text are kept.
    if memchr::memchr(0xF4, s.as_bytes()).is_none() {
        if out.is_empty() {
            *out = s.into_bytes();
        } else {
            out.extend_from_slice(s.as_bytes());
        }
        return;
    }
    let mut buf = [0; 4];
    for c in s.chars() {
        match c as u32 {
            u @ 0x10_FE00..=0x10_FEFF => out.push((u - 0x10_FE00) as u8),
            _ => out.extend_from_slice(c.encode_utf8(&mut buf).as_bytes()),
        }
    }
}

/// Lowers a body that stands at a place.
pub fn lower(list: &Arc<List>, place: Place) -> Lowered {
    let mut lowered = Lowered::default();
    lowered.list(list, place);
    lowered
}

impl Lowered {
    fn op(&mut self, op: Op) -> usize {
        self.ops.push(op);
        self.ops.len() - 1
    }

    fn print(&mut self, op: Op) {
        let n = self.op(op);
        let _ = write!(self.source, "{PRINT}h({n}){END}");
    }

    fn block(&mut self, text: &str) {
        let _ = write!(self.source, "{OPEN} {text} {CLOSE}");
    }

    /// A body: here, or for later when it is large.
    fn body(&mut self, list: &Arc<List>, place: Place) {
        if list.leaves || list.size < LARGE {
            return self.list(list, place);
        }
        self.print(Op::Later(list.clone(), place, OnceLock::new()));
    }

    fn list(&mut self, list: &Arc<List>, place: Place) {
        for (at, node) in list.nodes.iter().enumerate() {
            let spot = |place: Place| Spot { list: list.clone(), at, place };
            match node {
                Node::Text(_, text) if text.len() < LONG => encode(text.as_bytes(), &mut self.source),
                Node::Text(..) => self.print(Op::Text(spot(place), OnceLock::new())),
                Node::Action(..) | Node::Template(..) => self.print(Op::Step(spot(place))),
                Node::If(_) => self.chain(list, at, place),
                Node::With(b) => {
                    let n = self.op(Op::Step(spot(place)));
                    self.block(&format!("if h({n})"));
                    self.body(&b.list, Place { blocks: place.blocks + 1, dots: place.dots + 1, ..place });
                    self.otherwise(b.otherwise.as_ref(), place);
                    self.block("endif");
                }
                Node::Range(b) => {
                    let n = self.op(Op::Step(spot(place)));
                    self.block(&format!("for i in h({n})"));
                    let inner = Place { blocks: place.blocks + 1, dots: place.dots + 1, walks: place.walks + 1 };
                    self.print(Op::Round(spot(inner)));
                    self.list(&b.list, inner);
                    self.otherwise(b.otherwise.as_ref(), place);
                    self.block("endfor");
                }
                Node::Break(_) => self.block("break"),
                Node::Continue(_) => self.block("continue"),
            }
        }
    }

    fn otherwise(&mut self, list: Option<&Arc<List>>, place: Place) {
        if let Some(list) = list {
            self.block("else");
            self.body(list, Place { blocks: place.blocks + 1, ..place });
        }
    }

    /// An `if` with every `else if` after it.
    fn chain(&mut self, list: &Arc<List>, at: usize, place: Place) {
        let (mut list, mut at, mut place, mut word) = (list, at, place, "if");
        while let Node::If(b) = &list.nodes[at] {
            let n = self.op(Op::Step(Spot { list: list.clone(), at, place }));
            self.block(&format!("{word} h({n})"));
            place.blocks += 1;
            self.body(&b.list, place);
            match &b.otherwise {
                Some(l) if matches!(l.nodes[..], [Node::If(_)]) => (list, at, word) = (l, 0, "elif"),
                Some(l) => {
                    self.block("else");
                    self.body(l, place);
                    break;
                }
                None => break,
            }
        }
        self.block("endif");
    }
}
