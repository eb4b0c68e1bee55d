//! Scalars of the scanner: block, quoted and plain.

use super::{Error, Mark, Scanner, Style, Tok};
use std::borrow::Cow;

/// Bytes that never end a plain scalar outside of flow collections.
const ORDINARY: u8 = 1;
/// Bytes that never end one inside of them.
const IN_FLOW: u8 = 2;

/// What each byte is to a plain scalar.
static KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut c = 0x21;
    while c < 0x80 {
        kinds[c as usize] = match c {
            b':' => 0,
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => ORDINARY,
            _ => ORDINARY | IN_FLOW,
        };
        c += 1;
    }
    kinds
};

impl<'a> Scanner<'a> {
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<(), Error> {
        let start = self.at;
        self.skip_ascii(1);
        let mut chomp = 0i8;
        let mut increment = 0i64;
        let zero = "found an indentation indicator equal to 0";
        if matches!(self.byte(0), b'+' | b'-') {
            chomp = if self.byte(0) == b'+' { 1 } else { -1 };
            self.skip_ascii(1);
            if self.byte(0).is_ascii_digit() {
                if self.byte(0) == b'0' {
                    return self.fault(start, zero);
                }
                increment = (self.byte(0) - b'0') as i64;
                self.skip_ascii(1);
            }
        } else if self.byte(0).is_ascii_digit() {
            if self.byte(0) == b'0' {
                return self.fault(start, zero);
            }
            increment = (self.byte(0) - b'0') as i64;
            self.skip_ascii(1);
            if matches!(self.byte(0), b'+' | b'-') {
                chomp = if self.byte(0) == b'+' { 1 } else { -1 };
                self.skip_ascii(1);
            }
        }
        self.blanks();
        if self.byte(0) == b'#' {
            self.skip_to_break();
        }
        if !self.breakz(0) {
            return self.fault(start, "did not find expected comment or line break");
        }
        self.skip_line();
        let mut indent = 0;
        if increment > 0 {
            indent = if self.indent >= 0 { self.indent + increment } else { increment };
        }
        let mut s: Vec<u8> = Vec::new();
        let mut leading: Vec<u8> = Vec::new();
        let mut trailing: Vec<u8> = Vec::new();
        self.block_breaks(&mut indent, &mut trailing, start)?;
        let (mut leading_blank, mut trailing_blank);
        leading_blank = false;
        while self.at.column as i64 == indent && !self.z(0) {
            trailing_blank = self.blank(0);
            if !literal && !leading_blank && !trailing_blank && leading.first() == Some(&b'\n') {
                if trailing.is_empty() {
                    s.push(b' ');
                }
            } else {
                s.append(&mut leading);
            }
            leading.clear();
            s.append(&mut trailing);
            leading_blank = self.blank(0);
            let from = self.at.index;
            self.skip_to_break();
            s.extend_from_slice(&self.b[from..self.at.index.min(self.b.len())]);
            if self.brk(0) > 0 {
                self.read_line(&mut leading);
            }
            self.block_breaks(&mut indent, &mut trailing, start)?;
        }
        if chomp != -1 {
            s.append(&mut leading);
        }
        if chomp == 1 {
            s.append(&mut trailing);
        }
        self.push(Tok::Scalar(Cow::Owned(s), Style::Block), start, self.at);
        Ok(())
    }

    fn block_breaks(&mut self, indent: &mut i64, breaks: &mut Vec<u8>, start: Mark) -> Result<(), Error> {
        let mut max = 0i64;
        loop {
            while (*indent == 0 || (self.at.column as i64) < *indent) && self.byte(0) == b' ' {
                self.skip_ascii(1);
            }
            max = max.max(self.at.column as i64);
            if (*indent == 0 || (self.at.column as i64) < *indent) && self.byte(0) == b'\t' {
                return self.fault(start, "found a tab character where an indentation space is expected");
            }
            if self.brk(0) == 0 {
                break;
            }
            self.read_line(breaks);
        }
        if *indent == 0 {
            *indent = max.max(self.indent + 1).max(1);
        }
        Ok(())
    }

    pub(super) fn flow_scalar(&mut self, q: u8) -> Result<(), Error> {
        let start = self.at;
        self.skip_ascii(1);
        let single = q == b'\'';
        // Most quoted scalars are one line without escapes: lend them.
        let from = self.at.index;
        let mut k = 0;
        while let Some(&c) = self.b.get(from + k) {
            if !(0x20..0x7f).contains(&c) || c == q || !single && c == b'\\' {
                break;
            }
            k += 1;
        }
        if self.b.get(from + k) == Some(&q) && !(single && self.b.get(from + k + 1) == Some(&b'\'')) && self.at.column != 0 {
            let body = &self.b[from..from + k];
            self.skip_ascii(k + 1);
            self.push(Tok::Scalar(Cow::Borrowed(body), if single { Style::Single } else { Style::Double }), start, self.at);
            return Ok(());
        }
        let mut s: Vec<u8> = Vec::new();
        let mut whitespace: Vec<u8> = Vec::new();
        let mut leading: Vec<u8> = Vec::new();
        let mut trailing: Vec<u8> = Vec::new();
        loop {
            if self.at.column == 0 && (self.b[self.at.index.min(self.b.len())..].starts_with(b"---") || self.b[self.at.index.min(self.b.len())..].starts_with(b"...")) && self.blankz(3) {
                return self.fault(start, "found unexpected document indicator");
            }
            if self.z(0) {
                return self.fault(start, "found unexpected end of stream");
            }
            let mut leading_blanks = false;
            while !self.blankz(0) {
                let c = self.byte(0);
                if single && c == b'\'' && self.byte(1) == b'\'' {
                    s.push(b'\'');
                    self.skip_ascii(2);
                } else if c == q {
                    break;
                } else if !single && c == b'\\' && self.brk(1) > 0 {
                    self.skip_ascii(1);
                    self.skip_line();
                    leading_blanks = true;
                    break;
                } else if !single && c == b'\\' {
                    self.escape(&mut s, start)?;
                } else {
                    let i = self.at.index;
                    self.skip();
                    s.extend_from_slice(&self.b[i..self.at.index.min(self.b.len())]);
                }
            }
            if self.byte(0) == q && !self.eof() {
                break;
            }
            while self.blank(0) || self.brk(0) > 0 {
                if self.blank(0) {
                    if !leading_blanks {
                        whitespace.push(self.byte(0));
                    }
                    self.skip_ascii(1);
                } else if !leading_blanks {
                    whitespace.clear();
                    self.read_line(&mut leading);
                    leading_blanks = true;
                } else {
                    self.read_line(&mut trailing);
                }
            }
            if leading_blanks {
                if leading.first() == Some(&b'\n') {
                    if trailing.is_empty() {
                        s.push(b' ');
                    } else {
                        s.append(&mut trailing);
                    }
                } else {
                    s.append(&mut leading);
                    s.append(&mut trailing);
                }
                leading.clear();
                trailing.clear();
            } else {
                s.append(&mut whitespace);
            }
            whitespace.clear();
        }
        self.skip_ascii(1);
        self.push(Tok::Scalar(Cow::Owned(s), if single { Style::Single } else { Style::Double }), start, self.at);
        Ok(())
    }

    fn escape(&mut self, s: &mut Vec<u8>, start: Mark) -> Result<(), Error> {
        let mut put = |c: char| {
            let mut buf = [0; 4];
            s.extend_from_slice(c.encode_utf8(&mut buf).as_bytes());
        };
        let n = match self.byte(1) {
            b'0' => 0,
            b'a' => 7,
            b'b' => 8,
            b't' | b'\t' => 9,
            b'n' => 10,
            b'v' => 11,
            b'f' => 12,
            b'r' => 13,
            b'e' => 27,
            b' ' => 32,
            b'"' => 34,
            b'\'' => 39,
            b'\\' => 92,
            b'N' => 0x85,
            b'_' => 0xA0,
            b'L' => 0x2028,
            b'P' => 0x2029,
            b'x' | b'u' | b'U' => {
                let w = match self.byte(1) {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                self.skip_ascii(2);
                let mut v: u32 = 0;
                for k in 0..w {
                    match (self.byte(k) as char).to_digit(16) {
                        Some(d) => v = v.wrapping_shl(4) + d,
                        None => return self.fault(start, "did not find expected hexdecimal number"),
                    }
                }
                match char::from_u32(v) {
                    Some(c) => put(c),
                    None => return self.fault(start, "found invalid Unicode character escape code"),
                }
                self.skip_ascii(w);
                return Ok(());
            }
            _ => return self.fault(start, "found unknown escape character"),
        };
        put(char::from_u32(n).unwrap_or('\u{FFFD}'));
        self.skip_ascii(2);
        Ok(())
    }

    pub(super) fn plain_scalar(&mut self) -> Result<(), Error> {
        let start = self.at;
        let mut end = self.at;
        let mut s: Cow<'a, [u8]> = Cow::Borrowed(&[]);
        let mut whitespace: (usize, usize) = (0, 0);
        let (mut leading, mut trailing) = std::mem::take(&mut self.breaks);
        leading.clear();
        trailing.clear();
        let mut leading_blanks = false;
        let indent = self.indent + 1;
        loop {
            if self.at.column == 0 && matches!(self.byte(0), b'-' | b'.') && (self.b[self.at.index..].starts_with(b"---") || self.b[self.at.index..].starts_with(b"...")) && self.blankz(3) {
                break;
            }
            if self.byte(0) == b'#' {
                break;
            }
            let mut run = self.at.index;
            let mut first = true;
            while !self.blankz(0) {
                let c = self.byte(0);
                if c == b':' && self.blankz(1) || self.flow > 0 && matches!(c, b',' | b'?' | b'[' | b']' | b'{' | b'}') {
                    break;
                }
                if first {
                    first = false;
                    if leading_blanks || whitespace.1 > whitespace.0 {
                        let o = s.to_mut();
                        if leading_blanks {
                            if leading.first() == Some(&b'\n') {
                                if trailing.is_empty() {
                                    o.push(b' ');
                                } else {
                                    o.append(&mut trailing);
                                }
                            } else {
                                o.append(&mut leading);
                                o.append(&mut trailing);
                            }
                            leading.clear();
                            trailing.clear();
                            leading_blanks = false;
                        } else {
                            o.extend_from_slice(&self.b[whitespace.0..whitespace.1]);
                        }
                        whitespace = (0, 0);
                    }
                    run = self.at.index;
                }
                if c < 0x80 {
                    // This one is part of the scalar, and so is all that cannot end it, with the blanks between.
                    let ordinary = if self.flow > 0 { IN_FLOW } else { ORDINARY };
                    self.skip_ascii(1);
                    loop {
                        let rest = self.rest();
                        let run = super::run_of(rest, |c| KINDS[c as usize] & ordinary != 0);
                        let blanks = super::run_of(&rest[run..], |c| c == b' ');
                        match rest.get(run + blanks) {
                            Some(&c) if blanks > 0 && c != b'#' && KINDS[c as usize] & ordinary != 0 => self.skip_ascii(run + blanks + 1),
                            _ => {
                                self.skip_ascii(run);
                                break;
                            }
                        }
                    }
                } else {
                    self.skip();
                }
                end = self.at;
            }
            let stop = self.at.index.min(self.b.len());
            if stop > run && !first {
                if s.is_empty() && matches!(s, Cow::Borrowed(_)) {
                    s = Cow::Borrowed(&self.b[run..stop]);
                } else {
                    s.to_mut().extend_from_slice(&self.b[run..stop]);
                }
            }
            if !(self.blank(0) || self.brk(0) > 0) {
                break;
            }
            while self.blank(0) || self.brk(0) > 0 {
                if self.blank(0) {
                    if leading_blanks && (self.at.column as i64) < indent && self.byte(0) == b'\t' {
                        return self.fault(start, "found a tab character that violates indentation");
                    }
                    if !leading_blanks {
                        if whitespace.1 == whitespace.0 {
                            whitespace = (self.at.index, self.at.index);
                        }
                        whitespace.1 = self.at.index + 1;
                    }
                    self.skip_ascii(1);
                } else if !leading_blanks {
                    whitespace = (0, 0);
                    self.read_line(&mut leading);
                    leading_blanks = true;
                } else {
                    self.read_line(&mut trailing);
                }
            }
            if self.flow == 0 && (self.at.column as i64) < indent {
                break;
            }
        }
        self.push(Tok::Scalar(s, Style::Plain), start, end);
        self.breaks = (leading, trailing);
        if leading_blanks {
            self.key_allowed = true;
        }
        Ok(())
    }
}
