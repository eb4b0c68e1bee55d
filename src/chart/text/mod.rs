//! Text as Go sees it: runes of any bytes, letter classes, quoting, number and value formatting.

pub mod fmt;
pub mod quote;

use std::sync::OnceLock;

/// The rune at the start of some bytes and its width; an invalid byte is U+FFFD of width 1.
pub fn decode_rune(b: &[u8]) -> (char, usize) {
    let Some(&first) = b.first() else { return ('\u{FFFD}', 0) };
    if first < 0x80 {
        return (first as char, 1);
    }
    let width = match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return ('\u{FFFD}', 1),
    };
    match b.get(..width).and_then(|s| std::str::from_utf8(s).ok()).and_then(|s| s.chars().next()) {
        Some(c) => (c, width),
        None => ('\u{FFFD}', 1),
    }
}

/// Runes with their byte offsets.
pub fn runes(b: &[u8]) -> impl Iterator<Item = (usize, char, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= b.len() {
            return None;
        }
        let (c, w) = decode_rune(&b[at..]);
        let here = at;
        at += w;
        Some((here, c, w))
    })
}

fn class(cell: &'static OnceLock<Option<regex::Regex>>, pattern: &str, c: char) -> bool {
    let mut buf = [0; 4];
    cell.get_or_init(|| regex::Regex::new(pattern).ok()).as_ref().is_some_and(|r| r.is_match(c.encode_utf8(&mut buf)))
}

/// Unicode letter.
pub fn is_letter(c: char) -> bool {
    static L: OnceLock<Option<regex::Regex>> = OnceLock::new();
    c.is_ascii_alphabetic() || !c.is_ascii() && class(&L, r"^\p{L}$", c)
}

/// Unicode decimal digit.
pub fn is_digit(c: char) -> bool {
    static L: OnceLock<Option<regex::Regex>> = OnceLock::new();
    c.is_ascii_digit() || !c.is_ascii() && class(&L, r"^\p{Nd}$", c)
}

/// Printable as Go's strconv has it.
pub fn is_print(c: char) -> bool {
    static L: OnceLock<Option<regex::Regex>> = OnceLock::new();
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    c != '\u{AD}' && class(&L, r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$", c)
}

/// Go's `unicode.IsSpace`.
pub fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\u{B}' | '\u{C}' | '\r' | ' ' | '\u{85}' | '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{2028}' | '\u{2029}' | '\u{202F}' | '\u{205F}' | '\u{3000}')
}

/// Without Unicode blanks at both ends (`strings.TrimSpace`).
pub fn go_trim(b: &[u8]) -> &[u8] {
    go_trim_end(go_trim_start(b))
}

/// Without Unicode blanks at the start.
pub fn go_trim_start(b: &[u8]) -> &[u8] {
    let n = runes(b).take_while(|(_, c, _)| is_space(*c)).map(|(_, _, w)| w).sum();
    &b[n..]
}

/// Without Unicode blanks at the end.
pub fn go_trim_end(b: &[u8]) -> &[u8] {
    let mut end = b.len();
    while end > 0 {
        let mut i = end - 1;
        while i > 0 && end - i < 4 && b[i] & 0xC0 == 0x80 {
            i -= 1;
        }
        let (c, w) = decode_rune(&b[i..end]);
        if w != end - i || !is_space(c) {
            break;
        }
        end = i;
    }
    &b[..end]
}

/// A rune as `%#U` prints it.
pub fn rune_name(r: u32) -> String {
    match char::from_u32(r) {
        Some(c) if is_print(c) => format!("U+{r:04X} '{c}'"),
        _ if r > 0x10FFFF => "U+FFFFFFFFFFFFFFFF".into(),
        _ => format!("U+{r:04X}"),
    }
}

/// As text, invalid bytes replaced. Nearly all bytes are valid, which the check alone finds out much faster.
pub fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), std::borrow::Cow::Borrowed)
}
