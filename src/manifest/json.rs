//! Reads JSON with positions, bounds and a fault for duplicate keys, which serde_json passes over.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::pointer;
use crate::read::{Document, Fault, Limits, Position, Recorder, position_at};
use crate::scalar;

/// Whether the text begins as a JSON object (`kubectl` decides by the same look).
pub(crate) fn looks_like(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// All objects of the text, one after another.
pub(crate) fn parse_all(text: &str, limits: &Limits, recorder: Option<&mut Recorder>) -> Result<Vec<Document>, Fault> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, limits, nodes: 0, path: None, found: BTreeMap::new() };
    let mut documents = Vec::new();
    loop {
        reader.blanks();
        if reader.at >= reader.bytes.len() {
            if let Some(recorder) = recorder {
                recorder.found = reader.found;
            }
            return Ok(documents);
        }
        if documents.len() >= limits.documents {
            return Err(reader.fault(format!("more than {} document{}", limits.documents, if limits.documents == 1 { "" } else { "s" })));
        }
        let start = reader.at;
        let index = documents.len();
        reader.path = recorder.as_ref().is_some_and(|r| r.index == index).then(String::new);
        let value = reader.value(0)?;
        documents.push(Document { value, start: position_at(text, start), index });
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    limits: &'a Limits,
    nodes: usize,
    /// Where the reader is, while positions are collected.
    path: Option<String>,
    found: BTreeMap<String, Position>,
}

impl Reader<'_> {
    fn position(&self, offset: usize) -> Position {
        position_at(self.text, offset)
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.position(self.at), message)
    }

    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn push(&mut self, token: &str) -> usize {
        match &mut self.path {
            Some(path) => {
                let mark = path.len();
                path.push('/');
                path.push_str(&pointer::escape(token));
                mark
            }
            None => 0,
        }
    }

    fn pop(&mut self, mark: usize) {
        if let Some(path) = &mut self.path {
            path.truncate(mark);
        }
    }

    fn record(&mut self) {
        if let Some(path) = &self.path {
            let place = self.position(self.at);
            self.found.insert(path.clone(), place);
        }
    }

    fn count(&mut self, nodes: usize) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.nodes {
            return Err(self.fault(format!("more than {} values", self.limits.nodes)));
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        self.record();
        self.count(1)?;
        match self.bytes.get(self.at) {
            None => Err(self.fault("the text ends in the middle of a value")),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fault("no JSON value begins like this")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.fault("no JSON value begins like this"))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let parsed = serde_json::from_str::<Value>(text).ok().and_then(|value| match &value {
            Value::Number(number) if number.is_f64() => number.as_f64().and_then(scalar::from_f64),
            _ => Some(value),
        });
        parsed.ok_or_else(|| Fault::new(self.position(start), format!("{text:?} is no JSON number")))
    }

    fn string(&mut self) -> Result<String, Fault> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(Fault::new(self.position(start), "a text does not end").hint("close it with a double quote")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(b) if *b < 0x20 => return Err(self.fault("a control character inside a text").hint("write it as \\n or \\u00XX")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let quoted = self.text.get(start..self.at).unwrap_or_default();
        self.count(quoted.len() / 64)?;
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        if !inner.contains('\\') {
            return Ok(inner.to_owned());
        }
        serde_json::from_str(quoted).map_err(|_| Fault::new(self.position(start), "an escape in this text is wrong"))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        self.deeper(depth)?;
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.bytes.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.blanks();
            let mark = self.push(&items.len().to_string());
            items.push(self.value(depth + 1)?);
            self.pop(mark);
            self.blanks();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.fault("expected a comma or `]`")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.deeper(depth)?;
        self.at += 1;
        let mut map = Map::new();
        self.blanks();
        if self.bytes.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            self.blanks();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.fault("expected a key in double quotes"));
            }
            let key_at = self.at;
            let key = self.string()?;
            if map.contains_key(&key) {
                return Err(Fault::new(self.position(key_at), format!("the key {key:?} is there twice")).hint("remove one of the two"));
            }
            self.blanks();
            if self.bytes.get(self.at) != Some(&b':') {
                return Err(self.fault("expected a colon after the key"));
            }
            self.at += 1;
            self.blanks();
            let mark = self.push(&key);
            let value = self.value(depth + 1)?;
            self.pop(mark);
            map.insert(key, value);
            self.blanks();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                _ => return Err(self.fault("expected a comma or `}`")),
            }
        }
    }

    fn deeper(&self, depth: usize) -> Result<(), Fault> {
        if depth >= self.limits.depth {
            return Err(self.fault(format!("nested more than {} levels deep", self.limits.depth)));
        }
        Ok(())
    }
}
