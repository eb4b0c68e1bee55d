//! Word and case functions: camel, snake and kebab case, wrapping, abbreviating, initials.

use super::Ty::{Int, Str as S};
use super::{Func, Out, f, int, s, text};
use crate::run::Runtime;
use crate::text::{is_digit, is_letter, is_space};
use crate::value::Val;

pub(super) fn table() -> Vec<Func> {
    vec![
        f("title", &[S], |_, a| Ok(Val::str(title(&text(&a[0]))))),
        f("untitle", &[S], |_, a| Ok(Val::str(uncapitalize(&text(&a[0]))))),
        f("initials", &[S], |_, a| Ok(Val::str(initials(&text(&a[0]))))),
        f("swapcase", &[S], |_, a| Ok(Val::str(swap_case(&text(&a[0]))))),
        f("nospace", &[S], |_, a| Ok(Val::str(no_space(s(&a[0]))))),
        f("snakecase", &[S], |_, a| Ok(Val::str(separated(&text(&a[0]), '_')))),
        f("kebabcase", &[S], |_, a| Ok(Val::str(separated(&text(&a[0]), '-')))),
        f("camelcase", &[S], |_, a| Ok(Val::str(pascal(&text(&a[0]))))),
        f("wrap", &[Int, S], |_, a| Ok(Val::str(wrap(s(&a[1]), int(&a[0]), b"\n", false)))),
        f("wrapWith", &[Int, S, S], |_, a| Ok(Val::str(wrap(s(&a[2]), int(&a[0]), if s(&a[1]).is_empty() { b"\n" } else { s(&a[1]) }, true)))),
        f("abbrev", &[Int, S], abbrev),
        f("abbrevboth", &[Int, Int, S], abbrevboth),
    ]
}

/// Upper case of one character, where that is one character.
pub(super) fn to_upper(c: char) -> char {
    let mut u = c.to_uppercase();
    match (u.next(), u.next()) {
        (Some(c), None) => c,
        _ => c,
    }
}

/// Lower case of one character, where that is one character.
pub(super) fn to_lower(c: char) -> char {
    let mut u = c.to_lowercase();
    match (u.next(), u.next()) {
        (Some(l), None) => l,
        _ if c == '\u{130}' => 'i',
        _ => c,
    }
}

/// `strings.Title`.
fn title(t: &str) -> String {
    let mut prev = ' ';
    t.chars()
        .map(|c| {
            let sep = if prev.is_ascii() { !(prev.is_ascii_alphanumeric() || prev == '_') } else { !is_letter(prev) && !is_digit(prev) && is_space(prev) };
            prev = c;
            if sep { to_upper(c) } else { c }
        })
        .collect()
}

fn uncapitalize(t: &str) -> String {
    let mut next = true;
    t.chars()
        .map(|c| {
            if is_space(c) {
                next = true;
                c
            } else if next {
                next = false;
                to_lower(c)
            } else {
                c
            }
        })
        .collect()
}

fn initials(t: &str) -> String {
    let mut out = String::new();
    let mut last = true;
    for c in t.chars() {
        if is_space(c) {
            last = true;
        } else if last {
            out.push(c);
            last = false;
        }
    }
    out
}

fn swap_case(t: &str) -> String {
    let mut space = true;
    t.chars()
        .map(|c| {
            if c.is_uppercase() {
                space = false;
                to_lower(c)
            } else if c.is_lowercase() {
                if space {
                    space = false;
                    return to_upper(c);
                }
                to_upper(c)
            } else {
                space = is_space(c);
                c
            }
        })
        .collect()
}

/// Works byte by byte, as the original does (bytes above 0x7F are read as Latin-1).
fn no_space(b: &[u8]) -> Vec<u8> {
    if !b.iter().any(|c| is_space(*c as char)) {
        return b.to_vec();
    }
    let mut s = String::new();
    for c in b {
        if !is_space(*c as char) {
            s.push(*c as char);
        }
    }
    s.into_bytes()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Word {
    Invalid,
    Number,
    Upper,
    Alphabet,
    Connector,
    Punct,
    Other,
}

fn connector(c: char) -> bool {
    c == '-' || c == '_' || is_space(c)
}

fn alphabet(c: char) -> bool {
    // Letters of scripts that have cases.
    is_letter(c) && (c.is_lowercase() || c.is_uppercase() || c.is_ascii_alphabetic())
}

fn punct(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

fn number(c: char) -> bool {
    c.is_numeric()
}

fn next_word(t: &[char]) -> (Word, &[char], &[char]) {
    let Some(&c) = t.first() else { return (Word::Invalid, &[], &[]) };
    let take = |f: fn(char) -> bool| t.iter().take_while(|c| f(**c)).count();
    let (w, n) = if connector(c) {
        (Word::Connector, take(connector))
    } else if punct(c) {
        (Word::Punct, take(punct))
    } else if c.is_uppercase() {
        let ups = take(char::is_uppercase);
        let n = if ups > 1 {
            // "HTTPStatus": the S belongs to the next word.
            if t.get(ups).is_some_and(|c| alphabet(*c)) { ups - 1 } else { ups }
        } else {
            1 + t[1..].iter().take_while(|c| alphabet(**c) && !c.is_uppercase()).count()
        };
        (Word::Upper, n)
    } else if alphabet(c) {
        (Word::Alphabet, t.iter().take_while(|c| alphabet(**c) && !c.is_uppercase()).count())
    } else if number(c) {
        (Word::Number, take(number))
    } else {
        (Word::Other, t.iter().take_while(|c| !connector(**c) && !alphabet(**c) && !number(**c) && !punct(**c)).count())
    };
    (w, &t[..n], &t[n..])
}

fn lower_to(out: &mut String, w: Word, word: &[char], conn: char) {
    match w {
        Word::Upper | Word::Alphabet | Word::Number | Word::Other | Word::Punct | Word::Invalid => {
            if w == Word::Upper || w == Word::Alphabet {
                out.extend(word.iter().map(|c| to_lower(*c)));
            } else {
                out.extend(word);
            }
        }
        Word::Connector => out.extend(std::iter::repeat_n(conn, word.len())),
    }
}

/// Snake or kebab case.
fn separated(t: &str, conn: char) -> String {
    let chars: Vec<char> = t.chars().collect();
    let mut out = String::new();
    if chars.is_empty() {
        return out;
    }
    let (mut wt, mut word, mut rest) = next_word(&chars);
    while !rest.is_empty() {
        if wt != Word::Connector {
            lower_to(&mut out, wt, word, conn);
        }
        let (prev, last) = (wt, word);
        (wt, word, rest) = next_word(rest);
        match prev {
            Word::Number => {
                while matches!(wt, Word::Alphabet | Word::Number) {
                    lower_to(&mut out, wt, word, conn);
                    (wt, word, rest) = next_word(rest);
                }
                if !matches!(wt, Word::Invalid | Word::Punct | Word::Connector) {
                    out.push(conn);
                }
            }
            Word::Connector => lower_to(&mut out, prev, last, conn),
            Word::Punct => {}
            _ => {
                if wt != Word::Number {
                    if wt != Word::Connector && wt != Word::Punct {
                        out.push(conn);
                    }
                    continue;
                }
                if rest.is_empty() {
                    continue;
                }
                let last = word;
                (wt, word, rest) = next_word(rest);
                if wt != Word::Alphabet {
                    lower_to(&mut out, Word::Number, last, conn);
                    if wt != Word::Connector && wt != Word::Punct {
                        out.push(conn);
                    }
                    continue;
                }
                out.push(conn);
                lower_to(&mut out, Word::Number, last, conn);
                while matches!(wt, Word::Alphabet | Word::Number) {
                    lower_to(&mut out, wt, word, conn);
                    (wt, word, rest) = next_word(rest);
                }
                if !matches!(wt, Word::Invalid | Word::Connector | Word::Punct) {
                    out.push(conn);
                }
            }
        }
    }
    lower_to(&mut out, wt, word, conn);
    out
}

/// Pascal case; leading connectors stay, a run of capitals after the first letter of a word becomes lower case.
fn pascal(t: &str) -> String {
    let mut out = String::new();
    let mut chars = t.chars().peekable();
    let mut upper_word = false;
    let mut cur = None;
    for c in chars.by_ref() {
        if !connector(c) {
            upper_word = c.is_uppercase();
            cur = Some(to_upper(c));
            break;
        }
        out.push(c);
        cur = Some(c);
    }
    let Some(mut cur) = cur else { return out };
    if chars.peek().is_none() {
        out.push(cur);
        return out;
    }
    for c in chars {
        let (before, mut c) = (cur, c);
        if connector(c) && connector(before) {
            out.push(before);
        } else if connector(before) {
            upper_word = c.is_uppercase();
            c = to_upper(c);
        } else {
            if upper_word {
                if c.is_uppercase() {
                    c = to_lower(c);
                } else {
                    upper_word = false;
                }
            }
            out.push(before);
        }
        cur = c;
    }
    out.push(cur);
    out
}

fn wrap(t: &[u8], width: i64, newline: &[u8], long: bool) -> Vec<u8> {
    let width = width.max(1) as usize;
    let mut out = Vec::new();
    let mut at = 0;
    while t.len() - at > width {
        if t[at] == b' ' {
            at += 1;
            continue;
        }
        let end = (width + at + 1).min(t.len());
        match t[at..end].iter().rposition(|c| *c == b' ') {
            Some(i) => {
                out.extend_from_slice(&t[at..at + i]);
                out.extend_from_slice(newline);
                at += i + 1;
            }
            None if long => {
                out.extend_from_slice(&t[at..at + width]);
                out.extend_from_slice(newline);
                at += width;
            }
            None => match t[at + width..].iter().position(|c| *c == b' ') {
                None => {
                    out.extend_from_slice(&t[at..]);
                    at = t.len();
                }
                Some(i) => {
                    out.extend_from_slice(&t[at..at + width + i]);
                    out.extend_from_slice(newline);
                    at += width + i + 1;
                }
            },
        }
    }
    out.extend_from_slice(&t[at..]);
    out
}

fn abbreviate(t: &[u8], offset: i64, max: i64) -> Vec<u8> {
    let n = t.len() as i64;
    if max < 4 || t.is_empty() {
        return Vec::new();
    }
    if n <= max {
        return t.to_vec();
    }
    let mut offset = offset.min(n);
    if n - offset < max - 3 {
        offset = n - (max - 3);
    }
    if offset <= 4 {
        return [&t[..(max - 3) as usize], b"..."].concat();
    }
    if max < 7 {
        return Vec::new();
    }
    if offset + max - 3 < n {
        return [b"..." as &[u8], &abbreviate(&t[offset as usize..], 0, max - 3)].concat();
    }
    [b"..." as &[u8], &t[(n - (max - 3)) as usize..]].concat()
}

fn abbrev(_: &mut Runtime, a: &[Val]) -> Out {
    let w = int(&a[0]);
    if w < 4 {
        return Ok(a[1].clone());
    }
    Ok(Val::str(abbreviate(s(&a[1]), 0, w)))
}

fn abbrevboth(_: &mut Runtime, a: &[Val]) -> Out {
    let (left, right) = (int(&a[0]), int(&a[1]));
    if right < 4 || left > 0 && right < 7 {
        return Ok(a[2].clone());
    }
    Ok(Val::str(abbreviate(s(&a[2]), left.max(0), right)))
}

