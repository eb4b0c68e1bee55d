//! Reads YAML and JSON into values, with positions, bounds and faults that say what to mend.
//!
//! One pass over the parser's events builds the value; nothing recurses on the shape of the input, and everything is bounded:
//! bytes, depth, nodes (aliases count as what they stand for), documents. Positions are not stored beside every value: they
//! are found again on demand by [`locate`], so that the ordinary case pays nothing for them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;
use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use crate::{json, pointer, scalar};

/// A place in a text; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What is wrong with a text, where, and how to mend it. Displays as `line:column: message (hint)`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Fault {
    /// Where reading stopped.
    pub position: Position,
    /// What is wrong, one line.
    pub message: String,
    /// How to mend it, when that is known.
    pub hint: Option<&'static str>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.message)?;
        match self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl Fault {
    pub(crate) fn new(position: Position, message: impl Into<String>) -> Self {
        Fault { position, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The fault with the file it is in: `path:line:column: message (hint)`.
    pub fn in_file(&self, path: &str) -> String {
        format!("{path}:{self}")
    }
}

/// Bounds of what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text.
    pub bytes: usize,
    /// Levels of nesting. serde_json reads no more than 128 back.
    pub depth: usize,
    /// Values after aliases are put in; every 64 bytes of text count as one more.
    pub nodes: usize,
    /// Documents in one text.
    pub documents: usize,
}

impl Limits {
    /// A file of a source repository: large enough for every known bundle of definitions, small enough for the memory.
    pub const FILE: Limits = Limits { bytes: 8 << 20, depth: 100, nodes: 1_000_000, documents: 10_000 };
    /// One object: what an API server takes (3 MiB).
    pub const OBJECT: Limits = Limits { bytes: 3 << 20, depth: 100, nodes: 400_000, documents: 1 };
}

/// One document of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its value.
    pub value: Value,
    /// Where its content begins.
    pub start: Position,
    /// Its number in the text, from 0, empty documents counted; what [`locate`] asks for.
    pub index: usize,
}

/// The text of a file; the fault names the first byte that is not UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let good = std::str::from_utf8(good).unwrap_or_default();
        Fault::new(position_at(good, good.len()), "the text is not UTF-8").hint("save the file as UTF-8")
    })
}

/// Reads one document; an empty text is `null`.
pub fn parse(text: &str, limits: &Limits) -> Result<Value, Fault> {
    let mut documents = parse_all(text, &Limits { documents: 1, ..*limits })?;
    Ok(documents.pop().map_or(Value::Null, |document| document.value))
}

/// Reads the first document of a YAML text as Go's lenient readers do: of a key that is there twice the last value counts. Tells
/// these keys and where their later values stand.
pub fn parse_lenient(text: &str, limits: &Limits) -> Result<(Value, Vec<(String, Position)>), Fault> {
    if text.len() > limits.bytes {
        return parse(text, limits).map(|value| (value, Vec::new()));
    }
    let mut builder = Builder::new(&Limits { documents: 1, ..*limits }, None);
    builder.twice = Some(Vec::new());
    let mut documents = build(text.strip_prefix('\u{feff}').unwrap_or(text), &mut builder)?;
    Ok((documents.pop().map_or(Value::Null, |document| document.value), builder.twice.unwrap_or_default()))
}

/// Reads all documents of a YAML or JSON text. Documents without content are left out, as `kubectl` does.
pub fn parse_all(text: &str, limits: &Limits) -> Result<Vec<Document>, Fault> {
    read(text, limits, None)
}

/// Where each field of document `index` stands, by JSON pointer. Empty when the text cannot be read.
pub fn positions(text: &str, index: usize) -> BTreeMap<String, Position> {
    let mut recorder = Recorder { index, found: BTreeMap::new() };
    // Faults do not matter here: what was read before them is still placed.
    let _ = read(text, &Limits::FILE, Some(&mut recorder));
    recorder.found
}

/// Where the field at `path` (a JSON pointer) of document `index` stands, or the nearest field around it that is there.
pub fn locate(text: &str, index: usize, path: &str) -> Option<Position> {
    let found = positions(text, index);
    let mut path = path;
    loop {
        if let Some(position) = found.get(path) {
            return Some(*position);
        }
        path = &path[..path.rfind('/')?];
    }
}

/// Collects positions of one document.
pub(crate) struct Recorder {
    pub(crate) index: usize,
    pub(crate) found: BTreeMap<String, Position>,
}

fn read(text: &str, limits: &Limits, recorder: Option<&mut Recorder>) -> Result<Vec<Document>, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > limits.bytes {
        return Err(Fault::new(Position { line: 1, column: 1 }, format!("the text has {} bytes, at most {} are allowed", text.len(), limits.bytes))
            .hint("split the file"));
    }
    if json::looks_like(text) {
        let mut json_record = recorder.as_ref().map(|r| Recorder { index: r.index, found: BTreeMap::new() });
        match json::parse_all(text, limits, json_record.as_mut()) {
            Ok(documents) => {
                if let (Some(recorder), Some(found)) = (recorder, json_record) {
                    recorder.found = found.found;
                }
                return Ok(documents);
            }
            // YAML in flow style begins with a brace too; only when it is neither, JSON's fault is the one to tell.
            Err(fault) => return read_yaml(text, limits, recorder).map_err(|_| fault),
        }
    }
    read_yaml(text, limits, recorder)
}

fn read_yaml(text: &str, limits: &Limits, recorder: Option<&mut Recorder>) -> Result<Vec<Document>, Fault> {
    build(text, &mut Builder::new(limits, recorder))
}

fn build(text: &str, builder: &mut Builder<'_>) -> Result<Vec<Document>, Fault> {
    if let Some(at) = text.bytes().position(|b| (b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r')) || b == 0x7f) {
        return Err(Fault::new(position_at(text, at), "a control character is not allowed in YAML").hint("write it as an escape in double quotes"));
    }
    let mut parser = Parser::new_from_str(text);
    loop {
        let (event, mark) = parser.next_token().map_err(|error| syntax_fault(text, error.info(), error.marker()))?;
        if event == Event::StreamEnd {
            return Ok(std::mem::take(&mut builder.documents));
        }
        builder.event(event, position(&mark))?;
    }
}

fn position(mark: &Marker) -> Position {
    // The parser counts columns from 0, whatever its documentation says.
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

/// Line and column of a byte offset.
pub(crate) fn position_at(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

fn syntax_fault(text: &str, info: &str, mark: &Marker) -> Fault {
    let position = position(mark);
    let line = text.lines().nth(position.line - 1).unwrap_or_default();
    if info.contains("recursion limit") {
        return Fault::new(position, "nested too many levels deep");
    }
    let fault = Fault::new(position, info);
    let indentation = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    if indentation.contains('\t') {
        return fault.hint("indent with blanks, not with tabs");
    }
    if line.contains("{{") {
        return fault.hint("this looks like a template; put it into a chart, or quote the value");
    }
    if line.starts_with("<<<<<<<") || line.starts_with(">>>>>>>") || line.starts_with("=======") {
        return fault.hint("an unfinished merge; resolve the conflict");
    }
    if info.contains("mapping values are not allowed") || info.contains("simple key") {
        return fault.hint("check the indentation, and quote values that contain a colon");
    }
    if info.contains("unknown anchor") {
        return fault.hint("define the anchor before its use, in the same document");
    }
    if info.contains("did not find expected key") || info.contains("block collection") {
        return fault.hint("check the indentation of this line against the one above");
    }
    fault
}

/// What is being built.
enum Frame {
    Map { map: Map<String, Value>, key: Option<(String, Position)>, merge: bool, merged: Vec<Map<String, Value>>, anchor: usize, nodes_before: usize },
    List { items: Vec<Value>, anchor: usize, nodes_before: usize },
}

struct Builder<'a> {
    limits: Limits,
    frames: Vec<Frame>,
    /// Values by anchor, with the nodes they hold; cleared at every document.
    anchors: BTreeMap<usize, (Value, usize)>,
    nodes: usize,
    seen: usize,
    root: Option<(Value, Position)>,
    /// Where the collection at the root begins.
    begin: Option<Position>,
    documents: Vec<Document>,
    recorder: Option<&'a mut Recorder>,
    /// Keys that were there already, when that is no fault.
    twice: Option<Vec<(String, Position)>>,
}

impl<'a> Builder<'a> {
    fn new(limits: &Limits, recorder: Option<&'a mut Recorder>) -> Self {
        Builder { limits: *limits, frames: Vec::new(), anchors: BTreeMap::new(), nodes: 0, seen: 0, root: None, begin: None, documents: Vec::new(), recorder, twice: None }
    }

    fn event(&mut self, event: Event, at: Position) -> Result<(), Fault> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => Ok(()),
            Event::DocumentStart => {
                self.anchors.clear();
                Ok(())
            }
            Event::DocumentEnd => self.document_end(at),
            Event::Scalar(text, style, anchor, tag) => {
                let merge = style == TScalarStyle::Plain && tag.is_none() && text == "<<";
                let merge = merge || tag.as_ref().is_some_and(|t| yaml_tag(t) == Some("merge"));
                if merge && self.wants_key() {
                    self.merge_key();
                    return Ok(());
                }
                let nodes = 1 + text.len() / 64;
                self.count(nodes, at)?;
                let value = scalar_value(text, style, tag.as_ref(), at)?;
                self.value(value, anchor, nodes, at)
            }
            Event::Alias(id) => {
                let Some((value, nodes)) = self.anchors.get(&id) else {
                    return Err(Fault::new(at, "an alias refers to an anchor that is not complete or not in this document")
                        .hint("define the anchor before its use, in the same document"));
                };
                let (value, nodes) = (value.clone(), *nodes);
                self.count(nodes, at)?;
                self.value(value, 0, nodes, at)
            }
            Event::SequenceStart(anchor, _) => {
                self.place(at);
                self.enter(at)?;
                self.frames.push(Frame::List { items: Vec::new(), anchor, nodes_before: self.nodes });
                Ok(())
            }
            Event::MappingStart(anchor, _) => {
                self.place(at);
                self.enter(at)?;
                self.frames.push(Frame::Map { map: Map::new(), key: None, merge: false, merged: Vec::new(), anchor, nodes_before: self.nodes });
                Ok(())
            }
            Event::SequenceEnd => match self.frames.pop() {
                Some(Frame::List { items, anchor, nodes_before }) => {
                    let nodes = self.nodes - nodes_before + 1;
                    self.finish(Value::Array(items), anchor, nodes, at)
                }
                _ => Err(Fault::new(at, "a list ends where none began")),
            },
            Event::MappingEnd => match self.frames.pop() {
                Some(Frame::Map { mut map, merged, anchor, nodes_before, .. }) => {
                    // Keys written out win over merged ones; among merged maps the first one wins.
                    for source in merged {
                        for (key, value) in source {
                            map.entry(key).or_insert(value);
                        }
                    }
                    let nodes = self.nodes - nodes_before + 1;
                    self.finish(Value::Object(map), anchor, nodes, at)
                }
                _ => Err(Fault::new(at, "a mapping ends where none began")),
            },
        }
    }

    fn wants_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Map { key: None, merge: false, .. }))
    }

    fn merge_key(&mut self) {
        if let Some(Frame::Map { merge, .. }) = self.frames.last_mut() {
            *merge = true;
        }
    }

    fn enter(&mut self, at: Position) -> Result<(), Fault> {
        if self.frames.len() >= self.limits.depth {
            return Err(Fault::new(at, format!("nested more than {} levels deep", self.limits.depth)));
        }
        if self.frames.is_empty() {
            self.begin = Some(at);
        }
        self.count(1, at)
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.nodes {
            return Err(Fault::new(at, format!("more than {} values, aliases counted as what they stand for", self.limits.nodes))
                .hint("write the values out instead of nesting aliases"));
        }
        Ok(())
    }

    /// Remembers where the value that begins here stands, when this document is the one asked for.
    fn place(&mut self, at: Position) {
        let Some(recorder) = self.recorder.as_deref_mut() else { return };
        if recorder.index != self.seen {
            return;
        }
        let Some(path) = path_of(&self.frames) else { return };
        let place = match self.frames.last() {
            Some(Frame::Map { key: Some((_, key_at)), .. }) if key_at.line != at.line => *key_at,
            _ => at,
        };
        recorder.found.entry(path).or_insert(place);
    }

    /// The parser tells of a block mapping only at its first colon; its first key is where it begins.
    fn begins_at(&mut self, first_key: Position) {
        if self.frames.len() == 1 {
            self.begin = self.begin.map(|begin| begin.min(first_key));
        }
        let Some(recorder) = self.recorder.as_deref_mut() else { return };
        if recorder.index != self.seen {
            return;
        }
        let path = path_of(&self.frames[..self.frames.len() - 1]);
        if let Some(place) = path.and_then(|path| recorder.found.get_mut(&path)) {
            *place = (*place).min(first_key);
        }
    }

    fn value(&mut self, value: Value, anchor: usize, nodes: usize, at: Position) -> Result<(), Fault> {
        self.place(at);
        self.finish(value, anchor, nodes, at)
    }

    fn finish(&mut self, value: Value, anchor: usize, nodes: usize, at: Position) -> Result<(), Fault> {
        if anchor > 0 {
            // Keeping a copy costs as much as using it once.
            self.count(nodes, at)?;
            self.anchors.insert(anchor, (value.clone(), nodes));
        }
        match self.frames.last_mut() {
            None => {
                self.root = Some((value, at));
                Ok(())
            }
            Some(Frame::List { items, .. }) => {
                items.push(value);
                Ok(())
            }
            Some(Frame::Map { merge, merged, .. }) if *merge => {
                *merge = false;
                let sources = match value {
                    Value::Array(items) => items,
                    single => vec![single],
                };
                for source in sources {
                    let Value::Object(source) = source else {
                        return Err(Fault::new(at, "a merge key needs a mapping, or a list of mappings"));
                    };
                    merged.push(source);
                }
                Ok(())
            }
            Some(Frame::Map { map, key, .. }) => match key.take() {
                None => {
                    let Some(text) = scalar::key_text(&value) else {
                        return Err(Fault::new(at, format!("a key must be text, a number or a boolean, not {}", crate::patch::kind_word(&value)))
                            .hint("quote the key; {{ … }} without quotes is read as a key too"));
                    };
                    if map.contains_key(&text) && let Some(twice) = &mut self.twice {
                        twice.push((text.clone(), at));
                    } else if map.contains_key(&text) {
                        return Err(Fault::new(at, format!("the key {text:?} is there twice")).hint("remove one of the two"));
                    }
                    let first = map.is_empty();
                    *key = Some((text, at));
                    if first {
                        self.begins_at(at);
                    }
                    Ok(())
                }
                Some((text, _)) => {
                    map.insert(text, value);
                    Ok(())
                }
            },
        }
    }

    fn document_end(&mut self, at: Position) -> Result<(), Fault> {
        let index = self.seen;
        self.seen += 1;
        let Some((value, start)) = self.root.take() else { return Ok(()) };
        if value.is_null() {
            return Ok(());
        }
        if self.documents.len() >= self.limits.documents {
            return Err(Fault::new(at, format!("more than {} document{}", self.limits.documents, if self.limits.documents == 1 { "" } else { "s" })));
        }
        let start = self.begin.take().unwrap_or(start);
        self.documents.push(Document { value, start, index });
        Ok(())
    }
}

/// The pointer of the value that comes next; `None` for a key, or inside a merge, which are no fields of their own.
fn path_of(frames: &[Frame]) -> Option<String> {
    let mut path = String::new();
    for frame in frames {
        path.push('/');
        match frame {
            Frame::Map { key, .. } => path.push_str(&pointer::escape(&key.as_ref()?.0)),
            Frame::List { items, .. } => path.push_str(&items.len().to_string()),
        }
    }
    Some(path)
}

/// The value of a scalar: quoted text stays text, a tag decides, and the rest is resolved.
fn scalar_value(text: String, style: TScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Value, Fault> {
    let not_json = |_| Fault::new(at, "infinity and not-a-number have no place in JSON").hint("quote it to make it text");
    let Some(tag) = tag else {
        if style != TScalarStyle::Plain {
            return Ok(Value::String(text));
        }
        // Most scalars are text; do not copy them.
        return match scalar::resolve_plain(&text).map_err(not_json)? {
            Value::String(_) => Ok(Value::String(text)),
            other => Ok(other),
        };
    };
    let refuse = |what: &str| Fault::new(at, format!("{text:?} is no {what}, as its tag says")).hint("remove the tag or mend the value");
    match yaml_tag(tag) {
        Some("int") => match scalar::number(&text) {
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(Value::Number(number)),
            _ => Err(refuse("integer")),
        },
        Some("float") => scalar::number(&text).ok_or_else(|| refuse("number")),
        Some("bool") => scalar::boolean(&text).map(Value::Bool).ok_or_else(|| refuse("boolean")),
        Some("null") => Ok(Value::Null),
        Some("binary") => {
            use base64::Engine as _;
            let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let bytes = base64::engine::general_purpose::STANDARD.decode(packed).map_err(|_| refuse("base64"))?;
            String::from_utf8(bytes).map(Value::String).map_err(|_| Fault::new(at, "binary content that is not UTF-8 has no place in JSON"))
        }
        // `!!str`, timestamps and local tags: the text as it stands.
        _ => Ok(Value::String(text)),
    }
}

/// The name of a standard tag.
fn yaml_tag(tag: &Tag) -> Option<&str> {
    (tag.handle == "tag:yaml.org,2002:").then_some(tag.suffix.as_str()).or_else(|| tag.suffix.strip_prefix("tag:yaml.org,2002:"))
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
