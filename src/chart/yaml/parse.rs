//! YAML parser: tokens to a tree of nodes of the first document, in the order and with the complaints of the reference.

use super::scan::{Error, Mark, Scanner, Style, Tok, Token};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Number of a node in its document.
pub type Id = u32;

/// A node.
#[derive(Debug)]
pub struct Node<'a> {
    /// Content.
    pub kind: Kind<'a>,
    /// Tag in long form, empty if none.
    pub tag: String,
    /// Line from 0.
    pub line: usize,
}

/// Content of a node.
#[derive(Debug)]
pub enum Kind<'a> {
    /// A scalar; `plain` if it may be resolved.
    Scalar {
        /// Text.
        value: Cow<'a, [u8]>,
        /// Not quoted.
        plain: bool,
    },
    /// Entries.
    Seq(Vec<Id>),
    /// Keys and values.
    Map(Vec<(Id, Id)>),
    /// Anchor name and the node it names.
    Alias(&'a str, Id),
}

/// A parsed document.
#[derive(Debug, Default)]
pub struct Doc<'a> {
    /// All nodes.
    pub nodes: Vec<Node<'a>>,
    /// The top one; none in an empty stream.
    pub root: Option<Id>,
}

impl<'a> Doc<'a> {
    /// A node.
    pub fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id as usize]
    }
}

struct Parser<'a> {
    s: Scanner<'a>,
    doc: Doc<'a>,
    anchors: BTreeMap<&'a str, Id>,
    tags: Vec<(String, String)>,
    depth: usize,
}

/// Deepest nesting of nodes; the reference has none of its own beyond the scanner's 10,000.
const MAX_DEPTH: usize = 10_000;

/// Parses the first document.
pub fn parse(b: &[u8]) -> Result<Doc<'_>, Error> {
    let mut p = Parser { s: Scanner::new(b)?, doc: Doc::default(), anchors: BTreeMap::new(), tags: Vec::new(), depth: 0 };
    p.document()?;
    Ok(p.doc)
}

type Res<T> = Result<T, Error>;

fn fault<T>(problem: &str, at: Mark, context: Option<Mark>) -> Res<T> {
    let line = if at.line != 0 { at.line } else { context.map_or(0, |c| c.line) };
    Err(Error(if line != 0 { format!("line {line}: {problem}") } else { problem.into() }))
}

impl<'a> Parser<'a> {
    fn is(&mut self, f: impl Fn(&Tok<'a>) -> bool) -> Res<bool> {
        Ok(f(&self.s.peek()?.tok))
    }

    fn mark(&mut self) -> Res<Mark> {
        Ok(self.s.peek()?.start)
    }

    fn document(&mut self) -> Res<()> {
        let explicit = self.is(|t| matches!(t, Tok::Version(..) | Tok::TagDirective(..) | Tok::DocStart))?;
        if self.is(|t| matches!(t, Tok::StreamEnd))? {
            return Ok(());
        }
        let root = if explicit {
            self.directives()?;
            if !self.is(|t| matches!(t, Tok::DocStart))? {
                let m = self.mark()?;
                return fault("did not find expected <document start>", m, None);
            }
            self.s.take()?;
            if self.is(|t| matches!(t, Tok::Version(..) | Tok::TagDirective(..) | Tok::DocStart | Tok::DocEnd | Tok::StreamEnd))? {
                let m = self.mark()?;
                self.empty(m)
            } else {
                self.node(true, false)?
            }
        } else {
            self.default_tags();
            self.node(true, false)?
        };
        self.s.peek()?;
        self.doc.root = Some(root);
        Ok(())
    }

    fn default_tags(&mut self) {
        for (h, p) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            if !self.tags.iter().any(|(k, _)| k == h) {
                self.tags.push((h.into(), p.into()));
            }
        }
    }

    fn directives(&mut self) -> Res<()> {
        let mut version = false;
        loop {
            let t = self.s.peek()?.clone();
            match t.tok {
                Tok::Version(major, minor) => {
                    if version {
                        return fault("found duplicate %YAML directive", t.start, None);
                    }
                    if major != 1 || minor != 1 {
                        return fault("found incompatible YAML document", t.start, None);
                    }
                    version = true;
                }
                Tok::TagDirective(h, p) => {
                    if self.tags.iter().any(|(k, _)| *k == h) {
                        return fault("found duplicate %TAG directive", t.start, None);
                    }
                    self.tags.push((h, p));
                }
                _ => break,
            }
            self.s.take()?;
        }
        self.default_tags();
        Ok(())
    }

    fn push(&mut self, kind: Kind<'a>, tag: String, line: usize) -> Id {
        self.doc.nodes.push(Node { kind, tag, line });
        (self.doc.nodes.len() - 1) as Id
    }

    fn empty(&mut self, m: Mark) -> Id {
        self.push(Kind::Scalar { value: Cow::Borrowed(&[]), plain: true }, String::new(), m.line)
    }

    fn node(&mut self, block: bool, indentless: bool) -> Res<Id> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        let r = stacker::maybe_grow(64 << 10, 1 << 20, || self.node_inner(block, indentless));
        self.depth -= 1;
        r
    }

    fn node_inner(&mut self, block: bool, indentless: bool) -> Res<Id> {
        let t: &Token<'a> = self.s.peek()?;
        let start = t.start;
        if let Tok::Alias(name) = t.tok {
            self.s.take()?;
            let Some(&target) = self.anchors.get(name) else {
                return Err(Error(format!("unknown anchor '{name}' referenced")));
            };
            return Ok(self.push(Kind::Alias(name, target), String::new(), start.line));
        }
        let mut anchor = None;
        let mut tag = String::new();
        let mut tagged = None;
        for _ in 0..2 {
            match &self.s.peek()?.tok {
                Tok::Anchor(n) if anchor.is_none() => {
                    anchor = Some(*n);
                    self.s.take()?;
                }
                Tok::Tag(h, s) if tagged.is_none() => {
                    let (h, s) = (h.clone(), s.clone());
                    tagged = Some((h, s, self.mark()?));
                    self.s.take()?;
                }
                _ => break,
            }
        }
        if let Some((h, s, m)) = tagged {
            if h.is_empty() {
                tag = s;
            } else {
                match self.tags.iter().find(|(k, _)| *k == h) {
                    Some((_, p)) => tag = format!("{p}{s}"),
                    None => return fault("found undefined tag handle", m, Some(start)),
                }
            }
        }
        let t = self.s.peek()?;
        let line = if anchor.is_some() || !tag.is_empty() { start.line } else { t.start.line };
        let id = match &t.tok {
            Tok::BlockEntry if indentless => {
                let id = self.push(Kind::Seq(Vec::new()), tag, line);
                self.name(anchor, id);
                return self.indentless(id);
            }
            Tok::Scalar(_, style) => {
                let plain = tag.is_empty() && *style == Style::Plain || tag == "!";
                let Tok::Scalar(value, _) = self.s.take()?.tok else { return Err(Error("scalar expected".into())) };
                let id = self.push(Kind::Scalar { value, plain }, tag, line);
                self.name(anchor, id);
                return Ok(id);
            }
            Tok::FlowSeqStart => self.push(Kind::Seq(Vec::new()), tag, line),
            Tok::FlowMapStart => self.push(Kind::Map(Vec::new()), tag, line),
            Tok::BlockSeq if block => self.push(Kind::Seq(Vec::new()), tag, line),
            Tok::BlockMap if block => self.push(Kind::Map(Vec::new()), tag, line),
            _ if anchor.is_some() || !tag.is_empty() => {
                let plain = tag.is_empty();
                let id = self.push(Kind::Scalar { value: Cow::Borrowed(&[]), plain }, tag, line);
                self.name(anchor, id);
                return Ok(id);
            }
            _ => {
                let at = t.start;
                return fault("did not find expected node content", at, Some(start));
            }
        };
        self.name(anchor, id);
        let t = self.s.take()?;
        match t.tok {
            Tok::FlowSeqStart => self.flow_seq(id, t.start),
            Tok::FlowMapStart => self.flow_map(id, t.start),
            Tok::BlockSeq => self.block_seq(id, t.start),
            _ => self.block_map(id, t.start),
        }
    }

    fn name(&mut self, anchor: Option<&'a str>, id: Id) {
        if let Some(a) = anchor {
            self.anchors.insert(a, id);
        }
    }

    fn add(&mut self, seq: Id, item: Id) {
        if let Kind::Seq(v) = &mut self.doc.nodes[seq as usize].kind {
            v.push(item);
        }
    }

    fn put(&mut self, map: Id, k: Id, v: Id) {
        if let Kind::Map(m) = &mut self.doc.nodes[map as usize].kind {
            m.push((k, v));
        }
    }

    fn indentless(&mut self, id: Id) -> Res<Id> {
        while self.is(|t| matches!(t, Tok::BlockEntry))? {
            let m = self.s.take()?.end;
            let item = if self.is(|t| matches!(t, Tok::BlockEntry | Tok::Key | Tok::Value | Tok::BlockEnd))? { self.empty(m) } else { self.node(true, false)? };
            self.add(id, item);
        }
        Ok(id)
    }

    fn block_seq(&mut self, id: Id, start: Mark) -> Res<Id> {
        loop {
            let t = self.s.peek()?;
            match t.tok {
                Tok::BlockEntry => {
                    let m = self.s.take()?.end;
                    let item = if self.is(|t| matches!(t, Tok::BlockEntry | Tok::BlockEnd))? { self.empty(m) } else { self.node(true, false)? };
                    self.add(id, item);
                }
                Tok::BlockEnd => {
                    self.s.take()?;
                    return Ok(id);
                }
                _ => {
                    let at = t.start;
                    return fault("did not find expected '-' indicator", at, Some(start));
                }
            }
        }
    }

    fn block_map(&mut self, id: Id, start: Mark) -> Res<Id> {
        let ends = |t: &Tok<'a>| matches!(t, Tok::Key | Tok::Value | Tok::BlockEnd);
        loop {
            let t = self.s.peek()?;
            let (at, m);
            match t.tok {
                Tok::Key => {
                    m = self.s.take()?.end;
                    let k = if self.is(ends)? { self.empty(m) } else { self.node(true, true)? };
                    let v = self.block_value(ends)?;
                    self.put(id, k, v);
                }
                // A value without a key: the reference's key state sees neither KEY nor BLOCK-END.
                Tok::BlockEnd => {
                    self.s.take()?;
                    return Ok(id);
                }
                _ => {
                    at = t.start;
                    return fault("did not find expected key", at, Some(start));
                }
            }
        }
    }

    fn block_value(&mut self, ends: impl Fn(&Tok<'a>) -> bool) -> Res<Id> {
        if self.is(|t| matches!(t, Tok::Value))? {
            let m = self.s.take()?.end;
            return if self.is(ends)? { Ok(self.empty(m)) } else { self.node(true, true) };
        }
        let m = self.mark()?;
        Ok(self.empty(m))
    }

    fn flow_seq(&mut self, id: Id, start: Mark) -> Res<Id> {
        let mut first = true;
        loop {
            if !self.is(|t| matches!(t, Tok::FlowSeqEnd))? {
                if !first {
                    if self.is(|t| matches!(t, Tok::FlowEntry))? {
                        self.s.take()?;
                    } else {
                        let m = self.mark()?;
                        return fault("did not find expected ',' or ']'", m, Some(start));
                    }
                }
                first = false;
                if self.is(|t| matches!(t, Tok::Key))? {
                    let m = self.s.take()?.start;
                    let pair = self.push(Kind::Map(Vec::new()), String::new(), m.line);
                    let k = if self.is(|t| matches!(t, Tok::Value | Tok::FlowEntry | Tok::FlowSeqEnd))? {
                        let m = self.s.take()?.end;
                        self.empty(m)
                    } else {
                        self.node(false, false)?
                    };
                    let ends = |t: &Tok<'a>| matches!(t, Tok::FlowEntry | Tok::FlowSeqEnd);
                    let v = self.flow_value(ends)?;
                    self.put(pair, k, v);
                    self.add(id, pair);
                    continue;
                }
                if !self.is(|t| matches!(t, Tok::FlowSeqEnd))? {
                    let item = self.node(false, false)?;
                    self.add(id, item);
                    continue;
                }
            }
            self.s.take()?;
            return Ok(id);
        }
    }

    fn flow_value(&mut self, ends: impl Fn(&Tok<'a>) -> bool) -> Res<Id> {
        if self.is(|t| matches!(t, Tok::Value))? {
            self.s.take()?;
            if !self.is(ends)? {
                return self.node(false, false);
            }
        }
        let m = self.mark()?;
        Ok(self.empty(m))
    }

    fn flow_map(&mut self, id: Id, start: Mark) -> Res<Id> {
        let mut first = true;
        loop {
            if !self.is(|t| matches!(t, Tok::FlowMapEnd))? {
                if !first {
                    if self.is(|t| matches!(t, Tok::FlowEntry))? {
                        self.s.take()?;
                    } else {
                        let m = self.mark()?;
                        return fault("did not find expected ',' or '}'", m, Some(start));
                    }
                }
                first = false;
                let ends = |t: &Tok<'a>| matches!(t, Tok::FlowEntry | Tok::FlowMapEnd);
                if self.is(|t| matches!(t, Tok::Key))? {
                    self.s.take()?;
                    let k = if self.is(|t| matches!(t, Tok::Value | Tok::FlowEntry | Tok::FlowMapEnd))? {
                        let m = self.mark()?;
                        self.empty(m)
                    } else {
                        self.node(false, false)?
                    };
                    let v = self.flow_value(ends)?;
                    self.put(id, k, v);
                    continue;
                }
                if !self.is(|t| matches!(t, Tok::FlowMapEnd))? {
                    let k = self.node(false, false)?;
                    let m = self.mark()?;
                    let v = self.empty(m);
                    self.put(id, k, v);
                    continue;
                }
            }
            self.s.take()?;
            return Ok(id);
        }
    }
}
