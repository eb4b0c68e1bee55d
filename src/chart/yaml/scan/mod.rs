//! YAML scanner: bytes to tokens, with simple keys, indentation and the reference parser's complaints.

mod scalar;

use std::borrow::Cow;
use std::collections::VecDeque;

/// Place in the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// Byte offset.
    pub index: usize,
    /// Line from 0.
    pub line: usize,
    /// Column from 0, in characters.
    pub column: usize,
}

/// A fault: the message carries `line N: ` where the reference prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

/// Quoting style of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Not quoted.
    Plain,
    /// In `'`.
    Single,
    /// In `"`.
    Double,
    /// Block.
    Block,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub enum Tok<'a> {
    /// End of the stream.
    StreamEnd,
    /// `%YAML`.
    Version(i64, i64),
    /// `%TAG`.
    TagDirective(String, String),
    /// `---`.
    DocStart,
    /// `...`.
    DocEnd,
    /// Start of a block sequence.
    BlockSeq,
    /// Start of a block mapping.
    BlockMap,
    /// End of a block collection.
    BlockEnd,
    /// `[`.
    FlowSeqStart,
    /// `]`.
    FlowSeqEnd,
    /// `{`.
    FlowMapStart,
    /// `}`.
    FlowMapEnd,
    /// `-`.
    BlockEntry,
    /// `,`.
    FlowEntry,
    /// A key comes.
    Key,
    /// A value comes.
    Value,
    /// `*name`.
    Alias(&'a str),
    /// `&name`.
    Anchor(&'a str),
    /// Handle and suffix.
    Tag(String, String),
    /// A scalar.
    Scalar(Cow<'a, [u8]>, Style),
}

/// A token with its place.
#[derive(Debug, Clone)]
pub struct Token<'a> {
    /// Content.
    pub tok: Tok<'a>,
    /// Start.
    pub start: Mark,
    /// End.
    pub end: Mark,
}

#[derive(Clone, Copy, Default)]
struct Key {
    possible: bool,
    required: bool,
    number: usize,
    mark: Mark,
}

/// The scanner.
pub struct Scanner<'a> {
    b: &'a [u8],
    at: Mark,
    queue: VecDeque<Token<'a>>,
    parsed: usize,
    done: bool,
    indent: i64,
    indents: Vec<i64>,
    flow: usize,
    key_allowed: bool,
    keys: Vec<Key>,
    /// Line breaks inside of a plain scalar; the room for them is used again.
    breaks: (Vec<u8>, Vec<u8>),
}

/// Deepest nesting of flow or block collections.
const MAX_DEPTH: usize = 10_000;

fn line_fault(line: usize, problem: &str) -> Error {
    Error(format!("line {line}: {problem}"))
}

impl<'a> Scanner<'a> {
    /// A scanner; checks the encoding first.
    pub fn new(b: &'a [u8]) -> Result<Self, Error> {
        let mut s = Self {
            b,
            at: Mark::default(),
            queue: VecDeque::new(),
            parsed: 0,
            done: false,
            indent: -1,
            indents: Vec::new(),
            flow: 0,
            key_allowed: true,
            keys: vec![Key::default()],
            breaks: Default::default(),
        };
        check_encoding(b)?;
        if b.starts_with(&[0xEF, 0xBB, 0xBF]) {
            s.at.index = 3;
        }
        Ok(s)
    }

    fn byte(&self, k: usize) -> u8 {
        self.b.get(self.at.index + k).copied().unwrap_or(0)
    }

    fn eof(&self) -> bool {
        self.at.index >= self.b.len()
    }

    fn z(&self, k: usize) -> bool {
        self.at.index + k >= self.b.len() || self.b[self.at.index + k] == 0
    }

    fn blank(&self, k: usize) -> bool {
        self.at.index + k < self.b.len() && matches!(self.byte(k), b' ' | b'\t')
    }

    /// Width of a line break, 0 if there is none.
    fn brk(&self, k: usize) -> usize {
        let i = self.at.index + k;
        match self.b.get(i) {
            Some(b'\r') => 1,
            Some(b'\n') => 1,
            Some(0xC2) if self.b.get(i + 1) == Some(&0x85) => 2,
            Some(0xE2) if self.b.get(i + 1) == Some(&0x80) && matches!(self.b.get(i + 2), Some(0xA8 | 0xA9)) => 3,
            _ => 0,
        }
    }

    fn breakz(&self, k: usize) -> bool {
        self.z(k) || self.brk(k) > 0
    }

    fn blankz(&self, k: usize) -> bool {
        self.blank(k) || self.breakz(k)
    }

    fn width(&self) -> usize {
        match self.byte(0) {
            c if c < 0x80 => 1,
            c if c & 0xE0 == 0xC0 => 2,
            c if c & 0xF0 == 0xE0 => 3,
            _ => 4,
        }
    }

    fn skip(&mut self) {
        self.at.index = (self.at.index + self.width()).min(self.b.len().max(self.at.index + 1));
        self.at.column += 1;
    }

    fn skip_ascii(&mut self, n: usize) {
        self.at.index += n;
        self.at.column += n;
    }

    /// Passes what is left of the line.
    fn skip_to_break(&mut self) {
        loop {
            let run = run_of(self.rest(), |c| (0x20..0x80).contains(&c));
            self.skip_ascii(run);
            if self.breakz(0) {
                return;
            }
            self.skip();
        }
    }

    fn rest(&self) -> &'a [u8] {
        &self.b[self.at.index.min(self.b.len())..]
    }

    fn skip_line(&mut self) {
        let w = self.brk(0);
        if w == 0 {
            return;
        }
        self.at.index += if self.byte(0) == b'\r' && self.byte(1) == b'\n' { 2 } else { w };
        self.at.column = 0;
        self.at.line += 1;
    }

    /// Copies a line break in its normal form.
    fn read_line(&mut self, out: &mut Vec<u8>) {
        match self.byte(0) {
            b'\r' | b'\n' | 0xC2 => out.push(b'\n'),
            _ => {
                let i = self.at.index;
                out.extend_from_slice(&self.b[i..i + 3]);
            }
        }
        self.skip_line();
    }

    fn fault<T>(&self, context: Mark, problem: &str) -> Result<T, Error> {
        // The problem is at the current place; the reference adds one to a line that is not the first, and otherwise uses the context's.
        Err(if self.at.line != 0 {
            line_fault(self.at.line + 1, problem)
        } else if context.line != 0 {
            line_fault(context.line, problem)
        } else {
            Error(problem.into())
        })
    }

    /// The next token without taking it.
    pub fn peek(&mut self) -> Result<&Token<'a>, Error> {
        self.fill()?;
        match self.queue.front() {
            Some(t) => Ok(t),
            None => Err(Error("unexpected end of tokens".into())),
        }
    }

    /// Takes the next token.
    pub fn take(&mut self) -> Result<Token<'a>, Error> {
        self.fill()?;
        self.parsed += 1;
        self.queue.pop_front().ok_or_else(|| Error("unexpected end of tokens".into()))
    }

    fn fill(&mut self) -> Result<(), Error> {
        while self.need_more()? {
            self.fetch()?;
        }
        Ok(())
    }

    fn need_more(&mut self) -> Result<bool, Error> {
        if self.queue.is_empty() {
            return Ok(!self.done);
        }
        // A pending simple key may still put a token before the first one.
        for i in (0..self.keys.len()).rev() {
            let k = self.keys[i];
            if k.possible && k.number == self.parsed {
                if self.stale(k) {
                    self.expire(i)?;
                    return Ok(false);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn stale(&self, k: Key) -> bool {
        k.mark.line < self.at.line || k.mark.index + 1024 < self.at.index
    }

    fn expire(&mut self, i: usize) -> Result<(), Error> {
        if self.keys[i].required {
            let mark = self.keys[i].mark;
            return self.fault(mark, "could not find expected ':'");
        }
        self.keys[i].possible = false;
        Ok(())
    }

    fn push(&mut self, tok: Tok<'a>, start: Mark, end: Mark) {
        self.queue.push_back(Token { tok, start, end });
    }

    fn fetch(&mut self) -> Result<(), Error> {
        self.find_token()?;
        self.unroll(self.at.column as i64);
        if self.z(0) {
            return self.stream_end();
        }
        let c = self.byte(0);
        if self.at.column == 0 {
            if c == b'%' {
                return self.directive();
            }
            if c == b'-' && self.byte(1) == b'-' && self.byte(2) == b'-' && self.blankz(3) {
                return self.document(Tok::DocStart);
            }
            if c == b'.' && self.byte(1) == b'.' && self.byte(2) == b'.' && self.blankz(3) {
                return self.document(Tok::DocEnd);
            }
        }
        match c {
            b'[' => return self.flow_start(Tok::FlowSeqStart),
            b'{' => return self.flow_start(Tok::FlowMapStart),
            b']' => return self.flow_end(Tok::FlowSeqEnd),
            b'}' => return self.flow_end(Tok::FlowMapEnd),
            b',' => {
                self.remove_key()?;
                self.key_allowed = true;
                return self.indicator(Tok::FlowEntry);
            }
            b'-' if self.blankz(1) => return self.block_entry(),
            b'?' if self.flow > 0 || self.blankz(1) => return self.key(),
            b':' if self.flow > 0 || self.blankz(1) => return self.value(),
            b'*' | b'&' => {
                self.save_key()?;
                self.key_allowed = false;
                return self.anchor(c == b'*');
            }
            b'!' => {
                self.save_key()?;
                self.key_allowed = false;
                return self.tag();
            }
            b'|' | b'>' if self.flow == 0 => {
                self.remove_key()?;
                self.key_allowed = true;
                return self.block_scalar(c == b'|');
            }
            b'\'' | b'"' => {
                self.save_key()?;
                self.key_allowed = false;
                return self.flow_scalar(c);
            }
            _ => {}
        }
        let start = !(self.blankz(0) || matches!(c, b'-' | b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%' | b'@' | b'`'))
            || c == b'-' && !self.blank(1)
            || self.flow == 0 && matches!(c, b'?' | b':') && !self.blankz(1);
        if start {
            self.save_key()?;
            self.key_allowed = false;
            return self.plain_scalar();
        }
        self.fault(self.at, "found character that cannot start any token")
    }

    fn save_key(&mut self) -> Result<(), Error> {
        let required = self.flow == 0 && self.indent == self.at.column as i64;
        if self.key_allowed {
            let key = Key { possible: true, required, number: self.parsed + self.queue.len(), mark: self.at };
            self.remove_key()?;
            if let Some(k) = self.keys.last_mut() {
                *k = key;
            }
        }
        Ok(())
    }

    fn remove_key(&mut self) -> Result<(), Error> {
        let i = self.keys.len() - 1;
        if self.keys[i].possible && self.keys[i].required {
            let mark = self.keys[i].mark;
            return self.fault(mark, "could not find expected ':'");
        }
        self.keys[i].possible = false;
        Ok(())
    }

    fn roll(&mut self, column: i64, number: Option<usize>, tok: Tok<'a>, mark: Mark) -> Result<(), Error> {
        if self.flow > 0 || self.indent >= column {
            return Ok(());
        }
        if self.indents.len() > MAX_DEPTH {
            return self.fault(mark, &format!("exceeded max depth of {MAX_DEPTH}"));
        }
        self.indents.push(self.indent);
        self.indent = column;
        let t = Token { tok, start: mark, end: mark };
        match number {
            Some(n) => self.queue.insert(n - self.parsed, t),
            None => self.queue.push_back(t),
        }
        Ok(())
    }

    fn unroll(&mut self, column: i64) {
        if self.flow > 0 {
            return;
        }
        while self.indent > column {
            self.push(Tok::BlockEnd, self.at, self.at);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn stream_end(&mut self) -> Result<(), Error> {
        if self.at.column != 0 {
            self.at.column = 0;
            self.at.line += 1;
        }
        self.unroll(-1);
        self.remove_key()?;
        self.key_allowed = false;
        self.push(Tok::StreamEnd, self.at, self.at);
        self.done = true;
        Ok(())
    }

    fn document(&mut self, tok: Tok<'a>) -> Result<(), Error> {
        self.unroll(-1);
        self.remove_key()?;
        self.key_allowed = false;
        let start = self.at;
        self.skip_ascii(3);
        self.push(tok, start, self.at);
        Ok(())
    }

    fn indicator(&mut self, tok: Tok<'a>) -> Result<(), Error> {
        let start = self.at;
        self.skip_ascii(1);
        self.push(tok, start, self.at);
        Ok(())
    }

    fn flow_start(&mut self, tok: Tok<'a>) -> Result<(), Error> {
        self.save_key()?;
        self.keys.push(Key::default());
        self.flow += 1;
        if self.flow > MAX_DEPTH {
            return self.fault(self.at, &format!("exceeded max depth of {MAX_DEPTH}"));
        }
        self.key_allowed = true;
        self.indicator(tok)
    }

    fn flow_end(&mut self, tok: Tok<'a>) -> Result<(), Error> {
        self.remove_key()?;
        if self.flow > 0 {
            self.flow -= 1;
            self.keys.pop();
        }
        self.key_allowed = false;
        self.indicator(tok)
    }

    fn block_entry(&mut self) -> Result<(), Error> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.fault(self.at, "block sequence entries are not allowed in this context");
            }
            self.roll(self.at.column as i64, None, Tok::BlockSeq, self.at)?;
        }
        self.remove_key()?;
        self.key_allowed = true;
        self.indicator(Tok::BlockEntry)
    }

    fn key(&mut self) -> Result<(), Error> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.fault(self.at, "mapping keys are not allowed in this context");
            }
            self.roll(self.at.column as i64, None, Tok::BlockMap, self.at)?;
        }
        self.remove_key()?;
        self.key_allowed = self.flow == 0;
        self.indicator(Tok::Key)
    }

    fn value(&mut self) -> Result<(), Error> {
        let i = self.keys.len() - 1;
        let k = self.keys[i];
        if k.possible && self.stale(k) {
            self.expire(i)?;
        }
        let k = self.keys[i];
        if k.possible {
            let t = Token { tok: Tok::Key, start: k.mark, end: k.mark };
            self.queue.insert(k.number - self.parsed, t);
            self.roll(k.mark.column as i64, Some(k.number), Tok::BlockMap, k.mark)?;
            self.keys[i].possible = false;
            self.key_allowed = false;
        } else {
            if self.flow == 0 {
                if !self.key_allowed {
                    return self.fault(self.at, "mapping values are not allowed in this context");
                }
                self.roll(self.at.column as i64, None, Tok::BlockMap, self.at)?;
            }
            self.key_allowed = self.flow == 0;
        }
        self.indicator(Tok::Value)
    }

    fn find_token(&mut self) -> Result<(), Error> {
        loop {
            // A byte order mark at the start of a line is ignored.
            if self.at.column == 0 && self.b[self.at.index.min(self.b.len())..].starts_with(&[0xEF, 0xBB, 0xBF]) {
                self.skip();
            }
            let spaces = run_of(self.rest(), |c| c == b' ');
            self.skip_ascii(spaces);
            while self.byte(0) == b' ' || self.byte(0) == b'\t' && (self.flow > 0 || !self.key_allowed) {
                self.skip_ascii(1);
            }
            if self.byte(0) == b'#' {
                self.skip_to_break();
            }
            if self.brk(0) == 0 {
                return Ok(());
            }
            self.skip_line();
            if self.flow == 0 {
                self.key_allowed = true;
            }
        }
    }

    fn word_char(c: u8) -> bool {
        c.is_ascii_alphanumeric() || c == b'_' || c == b'-'
    }

    fn directive(&mut self) -> Result<(), Error> {
        self.unroll(-1);
        self.remove_key()?;
        self.key_allowed = false;
        let start = self.at;
        self.skip_ascii(1);
        let s = self.at.index;
        while Self::word_char(self.byte(0)) {
            self.skip_ascii(1);
        }
        let name = &self.b[s..self.at.index];
        if name.is_empty() {
            return self.fault(start, "could not find expected directive name");
        }
        if !self.blankz(0) {
            return self.fault(start, "found unexpected non-alphabetical character");
        }
        let tok = match name {
            b"YAML" => {
                self.blanks();
                let major = self.version_number(start)?;
                if self.byte(0) != b'.' {
                    return self.fault(start, "did not find expected digit or '.' character");
                }
                self.skip_ascii(1);
                let minor = self.version_number(start)?;
                Tok::Version(major, minor)
            }
            b"TAG" => {
                self.blanks();
                let handle = self.tag_handle(true, start)?;
                self.blanks();
                let prefix = self.tag_uri(true, None, start)?;
                if !self.blankz(0) {
                    return self.fault(start, "did not find expected whitespace or line break");
                }
                Tok::TagDirective(handle, prefix)
            }
            _ => return self.fault(start, "found unknown directive name"),
        };
        let end = self.at;
        self.blanks();
        if self.byte(0) == b'#' {
            self.skip_to_break();
        }
        if !self.breakz(0) {
            return self.fault(start, "did not find expected comment or line break");
        }
        self.skip_line();
        self.push(tok, start, end);
        Ok(())
    }

    fn blanks(&mut self) {
        while self.blank(0) {
            self.skip_ascii(1);
        }
    }

    fn version_number(&mut self, start: Mark) -> Result<i64, Error> {
        let (mut v, mut n) = (0, 0);
        while self.byte(0).is_ascii_digit() {
            n += 1;
            if n > 2 {
                return self.fault(start, "found extremely long version number");
            }
            v = v * 10 + (self.byte(0) - b'0') as i64;
            self.skip_ascii(1);
        }
        if n == 0 {
            return self.fault(start, "did not find expected version number");
        }
        Ok(v)
    }

    fn anchor(&mut self, alias: bool) -> Result<(), Error> {
        let start = self.at;
        self.skip_ascii(1);
        let s = self.at.index;
        while Self::word_char(self.byte(0)) {
            self.skip_ascii(1);
        }
        let name = std::str::from_utf8(&self.b[s..self.at.index]).unwrap_or("");
        if name.is_empty() || !(self.blankz(0) || matches!(self.byte(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`')) {
            return self.fault(start, "did not find expected alphabetic or numeric character");
        }
        self.push(if alias { Tok::Alias(name) } else { Tok::Anchor(name) }, start, self.at);
        Ok(())
    }

    fn tag(&mut self) -> Result<(), Error> {
        let start = self.at;
        let (handle, suffix);
        if self.byte(1) == b'<' {
            self.skip_ascii(2);
            handle = String::new();
            suffix = self.tag_uri(false, None, start)?;
            if self.byte(0) != b'>' {
                return self.fault(start, "did not find the expected '>'");
            }
            self.skip_ascii(1);
        } else {
            let h = self.tag_handle(false, start)?;
            if h.len() >= 2 && h.starts_with('!') && h.ends_with('!') {
                handle = h;
                suffix = self.tag_uri(false, None, start)?;
            } else {
                let s = self.tag_uri(false, Some(&h), start)?;
                if s.is_empty() {
                    (handle, suffix) = (String::new(), "!".into());
                } else {
                    (handle, suffix) = ("!".into(), s);
                }
            }
        }
        if !self.blankz(0) {
            return self.fault(start, "did not find expected whitespace or line break");
        }
        self.push(Tok::Tag(handle, suffix), start, self.at);
        Ok(())
    }

    fn tag_handle(&mut self, directive: bool, start: Mark) -> Result<String, Error> {
        if self.byte(0) != b'!' {
            return self.fault(start, "did not find expected '!'");
        }
        let mut s = String::from("!");
        self.skip_ascii(1);
        while Self::word_char(self.byte(0)) {
            s.push(self.byte(0) as char);
            self.skip_ascii(1);
        }
        if self.byte(0) == b'!' {
            s.push('!');
            self.skip_ascii(1);
        } else if directive && s != "!" {
            return self.fault(start, "did not find expected '!'");
        }
        Ok(s)
    }

    fn tag_uri(&mut self, directive: bool, head: Option<&str>, start: Mark) -> Result<String, Error> {
        let mut s: Vec<u8> = head.map_or(Vec::new(), |h| h.as_bytes()[1..].to_vec());
        let mut has = head.is_some_and(|h| !h.is_empty());
        loop {
            let c = self.byte(0);
            if c == b'%' {
                let hex = |b: u8| (b as char).to_digit(16);
                match (hex(self.byte(1)), hex(self.byte(2))) {
                    (Some(a), Some(b)) => s.push((a * 16 + b) as u8),
                    _ => return self.fault(start, "did not find URI escaped octet"),
                }
                self.skip_ascii(3);
            } else if Self::word_char(c) || matches!(c, b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' | b'[' | b']') {
                s.push(c);
                self.skip_ascii(1);
            } else {
                break;
            }
            has = true;
        }
        let _ = directive;
        if !has {
            return self.fault(start, "did not find expected tag URI");
        }
        Ok(crate::text::lossy(&s).into_owned())
    }
}

/// Length of the run of bytes of a kind at the start.
fn run_of(b: &[u8], kind: impl Fn(u8) -> bool) -> usize {
    b.iter().position(|c| !kind(*c)).unwrap_or(b.len())
}

fn check_encoding(b: &[u8]) -> Result<(), Error> {
    // The reader's complaints come without a line.
    let bad = |m: &str| Err(Error(m.into()));
    match std::str::from_utf8(b) {
        Err(e) => {
            let at = e.valid_up_to();
            if let Err(c) = control(&b[..at]) {
                return bad(c);
            }
            match b[at] {
                c if c & 0xE0 == 0xC0 || c & 0xF0 == 0xE0 || c & 0xF8 == 0xF0 => {
                    if e.error_len().is_none() {
                        return bad("incomplete UTF-8 octet sequence");
                    }
                    if b.get(at + 1).is_some_and(|c| c & 0xC0 == 0x80) {
                        return bad(if b[at] == 0xED { "invalid Unicode character" } else { "invalid length of a UTF-8 sequence" });
                    }
                    bad("invalid trailing UTF-8 octet")
                }
                _ => bad("invalid leading UTF-8 octet"),
            }
        }
        Ok(_) => match control(b) {
            Err(c) => bad(c),
            Ok(()) => Ok(()),
        },
    }
}

fn control(b: &[u8]) -> Result<(), &'static str> {
    /// Bytes that are looked at together: nearly all of them are ordinary.
    const STRIDE: usize = 32;
    let mut i = 0;
    while i < b.len() {
        if b[i..].first_chunk::<STRIDE>().is_some_and(|chunk| chunk.iter().fold(true, |plain, c| plain & ((0x20..0x7f).contains(c) | (*c == b'\n')))) {
            i += STRIDE;
            continue;
        }
        let c = b[i];
        if (0x20..0x7f).contains(&c) || c == b'\n' {
            i += 1;
            continue;
        }
        let (r, w) = crate::text::decode_rune(&b[i..]);
        let r = r as u32;
        let ok = r == 9 || r == 0xA || r == 0xD || (0x20..=0x7E).contains(&r) || r == 0x85 || (0xA0..=0xD7FF).contains(&r) || (0xE000..=0xFFFD).contains(&r) || r >= 0x10000;
        if !ok {
            return Err("control characters are not allowed");
        }
        i += w;
    }
    Ok(())
}
