//! Lexer of Go templates: text, actions, trim markers, comments; tokens carry byte position and line.

use crate::text::quote::quote;
use crate::text::{decode_rune, is_digit, is_letter, rune_name};

/// Kinds of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A fault; the value is the message.
    Error,
    /// `true` or `false`.
    Bool,
    /// Any other printable ASCII character.
    Char,
    /// `'x'`.
    CharConstant,
    /// `1+2i`.
    Complex,
    /// `=`.
    Assign,
    /// `:=`.
    Declare,
    /// End of text.
    Eof,
    /// `.name`.
    Field,
    /// A name.
    Identifier,
    /// `{{`.
    LeftDelim,
    /// `(`.
    LeftParen,
    /// A number.
    Number,
    /// `|`.
    Pipe,
    /// A raw string with its quotes.
    RawString,
    /// `}}`.
    RightDelim,
    /// `)`.
    RightParen,
    /// Blanks between arguments.
    Space,
    /// A string with its quotes.
    String,
    /// Text between actions.
    Text,
    /// `$x`.
    Variable,
    /// `block`.
    Block,
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `.`.
    Dot,
    /// `define`.
    Define,
    /// `else`.
    Else,
    /// `end`.
    End,
    /// `if`.
    If,
    /// `nil`.
    Nil,
    /// `range`.
    Range,
    /// `template`.
    Template,
    /// `with`.
    With,
}

/// A token.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Kind.
    pub kind: Kind,
    /// Byte offset.
    pub pos: usize,
    /// Line, from 1.
    pub line: usize,
    /// Start and end of its text; the lexer's message replaces it for a fault.
    pub span: (usize, usize),
}

/// The lexer.
pub struct Lexer<'a> {
    /// Whole text.
    pub input: &'a [u8],
    pos: usize,
    start: usize,
    at_eof: bool,
    paren: usize,
    line: usize,
    start_line: usize,
    inside: bool,
    dead: bool,
    /// What the fault says that ended it.
    pub message: String,
}

const EOF: i32 = -1;

fn space(r: i32) -> bool {
    matches!(r, 32 | 9 | 13 | 10)
}

fn space_byte(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn alnum(r: i32) -> bool {
    r == '_' as i32 || char::from_u32(r as u32).is_some_and(|c| is_letter(c) || is_digit(c))
}

impl<'a> Lexer<'a> {
    /// A lexer over a text.
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, pos: 0, start: 0, at_eof: false, paren: 0, line: 1, start_line: 1, inside: false, dead: false, message: String::new() }
    }

    /// Text of a token.
    pub fn text(&self, it: &Item) -> &'a [u8] {
        &self.input[it.span.0..it.span.1]
    }

    /// A token as error texts show it.
    pub fn show(&self, it: &Item) -> String {
        match it.kind {
            Kind::Eof => "EOF".into(),
            Kind::Error => self.message.clone(),
            Kind::Block | Kind::Break | Kind::Continue | Kind::Dot | Kind::Define | Kind::Else | Kind::End | Kind::If | Kind::Nil | Kind::Range | Kind::Template | Kind::With => {
                format!("<{}>", crate::text::lossy(self.text(it)))
            }
            _ => {
                let t = self.text(it);
                if t.len() > 10 {
                    let mut end = 0;
                    for _ in 0..10 {
                        if end >= t.len() {
                            break;
                        }
                        end += decode_rune(&t[end..]).1;
                    }
                    return format!("{}...", quote(&t[..end]));
                }
                quote(t)
            }
        }
    }

    fn next(&mut self) -> i32 {
        if self.pos >= self.input.len() {
            self.at_eof = true;
            return EOF;
        }
        let b = self.input[self.pos];
        if b < 0x80 {
            self.pos += 1;
            self.line += usize::from(b == b'\n');
            return i32::from(b);
        }
        let (r, w) = decode_rune(&self.input[self.pos..]);
        self.pos += w;
        r as i32
    }

    fn peek(&mut self) -> i32 {
        if self.pos >= self.input.len() {
            self.at_eof = true;
            return EOF;
        }
        let b = self.input[self.pos];
        if b < 0x80 { i32::from(b) } else { decode_rune(&self.input[self.pos..]).0 as i32 }
    }

    fn backup(&mut self) {
        if !self.at_eof && self.pos > 0 {
            let mut i = self.pos - 1;
            if self.input[i] < 0x80 {
                self.pos = i;
                self.line -= usize::from(self.input[i] == b'\n');
                return;
            }
            while i > 0 && self.pos - i < 4 && self.input[i] & 0xC0 == 0x80 {
                i -= 1;
            }
            if decode_rune(&self.input[i..self.pos]).1 != self.pos - i {
                i = self.pos - 1;
            }
            self.pos = i;
        }
    }

    fn item(&mut self, kind: Kind) -> Item {
        let it = Item { kind, pos: self.start, line: self.start_line, span: (self.start, self.pos) };
        self.start = self.pos;
        self.start_line = self.line;
        it
    }

    fn newlines(&self, a: usize, b: usize) -> usize {
        memchr::memchr_iter(b'\n', &self.input[a..b]).count()
    }

    fn ignore(&mut self) {
        self.line += self.newlines(self.start, self.pos);
        self.start = self.pos;
        self.start_line = self.line;
    }

    fn fault(&mut self, message: String) -> Item {
        self.dead = true;
        self.message = message;
        Item { kind: Kind::Error, pos: self.start, line: self.start_line, span: (0, 0) }
    }

    fn accept(&mut self, set: &str) -> bool {
        let r = self.next();
        if r >= 0 && char::from_u32(r as u32).is_some_and(|c| set.contains(c)) {
            return true;
        }
        self.backup();
        false
    }

    fn run(&mut self, set: &str) {
        while self.accept(set) {}
    }

    fn rest(&self) -> &'a [u8] {
        &self.input[self.pos.min(self.input.len())..]
    }

    fn at_right(&self) -> Option<bool> {
        let r = self.rest();
        if r.len() >= 4 && space_byte(r[0]) && r[1] == b'-' && r[2..].starts_with(b"}}") {
            return Some(true);
        }
        r.starts_with(b"}}").then_some(false)
    }

    /// The next token.
    pub fn next_item(&mut self) -> Item {
        if self.dead {
            return Item { kind: Kind::Eof, pos: 0, line: self.start_line, span: (0, 0) };
        }
        if self.inside { self.inside_action() } else { self.text_mode() }
    }

    fn text_mode(&mut self) -> Item {
        loop {
            let Some(x) = find(self.rest(), b"{{") else {
                self.pos = self.input.len();
                if self.pos > self.start {
                    self.line += self.newlines(self.start, self.pos);
                    return self.item(Kind::Text);
                }
                return self.item(Kind::Eof);
            };
            if x > 0 {
                self.pos += x;
                let after = &self.input[self.pos + 2..];
                let mut trim = 0;
                if after.len() >= 2 && after[0] == b'-' && space_byte(after[1]) {
                    trim = self.input[self.start..self.pos].iter().rev().take_while(|b| space_byte(**b)).count();
                }
                self.pos -= trim;
                self.line += self.newlines(self.start, self.pos);
                let it = self.item(Kind::Text);
                self.pos += trim;
                self.ignore();
                if it.span.1 > it.span.0 {
                    return it;
                }
            }
            // Left delimiter.
            self.pos += 2;
            let r = self.rest();
            let after = if r.len() >= 2 && r[0] == b'-' && space_byte(r[1]) { 2 } else { 0 };
            if r[after..].starts_with(b"/*") {
                self.pos += after;
                self.ignore();
                self.pos += 2;
                let Some(x) = find(self.rest(), b"*/") else {
                    return self.fault("unclosed comment".into());
                };
                self.pos += x + 2;
                let Some(trim) = self.at_right() else {
                    return self.fault("comment ends before closing delimiter".into());
                };
                self.line += self.newlines(self.start, self.pos);
                self.start = self.pos;
                self.start_line = self.line;
                self.pos += if trim { 4 } else { 2 };
                if trim {
                    self.pos += self.rest().iter().take_while(|b| space_byte(**b)).count();
                }
                self.ignore();
                continue;
            }
            let it = self.item(Kind::LeftDelim);
            self.inside = true;
            self.pos += after;
            self.ignore();
            self.paren = 0;
            return it;
        }
    }

    fn right_delim(&mut self, trim: bool) -> Item {
        if trim {
            self.pos += 2;
            self.ignore();
        }
        self.pos += 2;
        let it = self.item(Kind::RightDelim);
        if trim {
            self.pos += self.rest().iter().take_while(|b| space_byte(**b)).count();
            self.ignore();
        }
        self.inside = false;
        it
    }

    fn inside_action(&mut self) -> Item {
        if let Some(trim) = self.at_right() {
            if self.paren == 0 {
                return self.right_delim(trim);
            }
            return self.fault("unclosed left paren".into());
        }
        let r = self.next();
        if r == EOF {
            return self.fault("unclosed action".into());
        }
        if space(r) {
            self.backup();
            return self.space();
        }
        match r as u8 as char {
            _ if r > 127 => {}
            '=' => return self.item(Kind::Assign),
            ':' => {
                if self.next() != '=' as i32 {
                    return self.fault("expected :=".into());
                }
                return self.item(Kind::Declare);
            }
            '|' => return self.item(Kind::Pipe),
            '"' => return self.quoted(b'"', Kind::String, "unterminated quoted string"),
            '`' => {
                loop {
                    match self.next() {
                        EOF => return self.fault("unterminated raw quoted string".into()),
                        96 => break,
                        _ => {}
                    }
                }
                return self.item(Kind::RawString);
            }
            '$' => {
                if self.at_terminator() {
                    return self.item(Kind::Variable);
                }
                return self.field(Kind::Variable);
            }
            '\'' => return self.quoted(b'\'', Kind::CharConstant, "unterminated character constant"),
            '.' if self.rest().first().is_none_or(|b| !b.is_ascii_digit()) && self.pos < self.input.len() => return self.field(Kind::Field),
            '.' | '+' | '-' | '0'..='9' => {
                self.backup();
                return self.number();
            }
            '(' => {
                self.paren += 1;
                return self.item(Kind::LeftParen);
            }
            ')' => {
                if self.paren == 0 {
                    return self.fault("unexpected right paren".into());
                }
                self.paren -= 1;
                return self.item(Kind::RightParen);
            }
            _ => {}
        }
        if alnum(r) {
            self.backup();
            return self.identifier();
        }
        if (32..127).contains(&r) {
            return self.item(Kind::Char);
        }
        self.fault(format!("unrecognized character in action: {}", rune_name(r as u32)))
    }

    fn space(&mut self) -> Item {
        let mut n = 0;
        while space(self.peek()) {
            self.next();
            n += 1;
        }
        let r = &self.input[self.pos - 1..];
        if r.len() >= 4 && r[1] == b'-' && r[2..].starts_with(b"}}") {
            self.at_eof = false;
            self.backup();
            if n == 1 {
                return self.right_delim(true);
            }
        }
        self.item(Kind::Space)
    }

    /// Passes letters and digits; gives what comes after them.
    fn word(&mut self) -> i32 {
        loop {
            self.pos += self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            let r = self.next();
            if !alnum(r) {
                self.backup();
                return r;
            }
        }
    }

    fn identifier(&mut self) -> Item {
        let r = self.word();
        if !self.at_terminator() {
            return self.fault(format!("bad character {}", rune_name(r as u32)));
        }
        let kind = match &self.input[self.start..self.pos] {
            b"block" => Kind::Block,
            b"break" => Kind::Break,
            b"continue" => Kind::Continue,
            b"define" => Kind::Define,
            b"else" => Kind::Else,
            b"end" => Kind::End,
            b"if" => Kind::If,
            b"nil" => Kind::Nil,
            b"range" => Kind::Range,
            b"template" => Kind::Template,
            b"with" => Kind::With,
            b"true" | b"false" => Kind::Bool,
            _ => Kind::Identifier,
        };
        self.item(kind)
    }

    fn field(&mut self, kind: Kind) -> Item {
        if self.at_terminator() {
            return self.item(if kind == Kind::Variable { kind } else { Kind::Dot });
        }
        let r = self.word();
        if !self.at_terminator() {
            return self.fault(format!("bad character {}", rune_name(r as u32)));
        }
        self.item(kind)
    }

    fn at_terminator(&mut self) -> bool {
        let r = self.peek();
        space(r) || r == EOF || matches!(r as u8, b'.' | b',' | b'|' | b':' | b')' | b'(') && r < 128 || self.rest().starts_with(b"}}")
    }

    fn quoted(&mut self, end: u8, kind: Kind, message: &str) -> Item {
        loop {
            match self.next() {
                92 => {
                    let r = self.next();
                    if r == EOF || r == 10 {
                        return self.fault(message.into());
                    }
                }
                EOF | 10 => return self.fault(message.into()),
                r if r == end as i32 => break,
                _ => {}
            }
        }
        self.item(kind)
    }

    fn number(&mut self) -> Item {
        let bad = |l: &mut Self| {
            let m = format!("bad number syntax: {}", quote(&l.input[l.start..l.pos]));
            l.fault(m)
        };
        if !self.scan_number() {
            return bad(self);
        }
        if matches!(self.peek(), 43 | 45) {
            if !self.scan_number() || self.input[self.pos - 1] != b'i' {
                return bad(self);
            }
            return self.item(Kind::Complex);
        }
        self.item(Kind::Number)
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.run(digits);
        if self.accept(".") {
            self.run(digits);
        }
        if digits.len() == 11 && self.accept("eE") || digits.len() == 23 && self.accept("pP") {
            self.accept("+-");
            self.run("0123456789_");
        }
        self.accept("i");
        if alnum(self.peek()) {
            self.next();
            return false;
        }
        true
    }
}

/// First place of a needle.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    memchr::memchr_iter(first, hay).find(|i| hay[*i..].starts_with(needle))
}
