//! Label and field selectors as text in a query.

use std::collections::BTreeSet;

use crate::status::ApiError;

/// What one requirement asks of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

/// A label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    needs: Vec<(String, Need)>,
}

impl Labels {
    /// Reads `a=b,c!=d,e in (x,y),f notin (z),g,!h`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let bad = |why: String| ApiError::bad_request(format!("unable to parse requirement: {why}"));
        let mut needs = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (part, after) = cut(rest);
            rest = after;
            let part = part.trim();
            if part.is_empty() {
                return Err(bad("found ',', expected: !, identifier, or 'end of string'".into()));
            }
            needs.push(requirement(part).map_err(bad)?);
        }
        Ok(Self { needs })
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether labels fit; `get` finds the value of a key.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.needs.iter().all(|(key, need)| match (need, get(key)) {
            (Need::Exists, value) => value.is_some(),
            (Need::Absent, value) => value.is_none(),
            (Need::In(set), value) => value.is_some_and(|v| set.contains(v)),
            (Need::NotIn(set), value) => value.is_none_or(|v| !set.contains(v)),
            (Need::Above(n), value) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
            (Need::Below(n), value) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
        })
    }
}

/// The text up to the next comma outside parentheses, and what follows it.
fn cut(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn requirement(part: &str) -> Result<(String, Need), String> {
    if let Some(key) = part.strip_prefix('!') {
        return Ok((label_key(key)?, Need::Absent));
    }
    if let Some(open) = part.find('(') {
        let list = part[open..].strip_prefix('(').and_then(|p| p.trim_end().strip_suffix(')'));
        let list = list.ok_or_else(|| "found '', expected: ',' or ')'".to_owned())?;
        let values: BTreeSet<String> = list.split(',').map(label_value).collect::<Result<_, _>>()?;
        let head = part[..open].trim();
        return match head.rsplit_once(char::is_whitespace) {
            Some((key, "in")) => Ok((label_key(key)?, Need::In(values))),
            Some((key, "notin")) => Ok((label_key(key)?, Need::NotIn(values))),
            _ => Err(format!("found '{head}', expected: in, notin, =, ==, !=, gt, lt")),
        };
    }
    for (sign, make) in [
        ("!=", (|v| Need::NotIn([v].into())) as fn(String) -> Need),
        ("==", |v| Need::In([v].into())),
        ("=", |v| Need::In([v].into())),
    ] {
        if let Some((key, value)) = part.split_once(sign) {
            return Ok((label_key(key)?, make(label_value(value)?)));
        }
    }
    for (sign, above) in [('>', true), ('<', false)] {
        if let Some((key, value)) = part.split_once(sign) {
            let n: i64 = value.trim().parse().map_err(|_| format!("values[0]: Invalid value: \"{}\": for 'Gt', 'Lt' operators, the value must be an integer", value.trim()))?;
            return Ok((label_key(key)?, if above { Need::Above(n) } else { Need::Below(n) }));
        }
    }
    Ok((label_key(part)?, Need::Exists))
}

fn label_key(text: &str) -> Result<String, String> {
    let key = text.trim();
    if key.is_empty() {
        return Err("found '', expected: identifier".into());
    }
    if key.contains(char::is_whitespace) {
        let second = key.split_whitespace().nth(1).unwrap_or("");
        return Err(format!("found '{second}', expected: in, notin, =, ==, !=, gt, lt"));
    }
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(fine) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(format!(
            "key: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ));
    }
    Ok(key.into())
}

fn label_value(text: &str) -> Result<String, String> {
    let value = text.trim();
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    if value.len() > 63 || !value.chars().all(fine) || !ends(value.chars().next()) || !ends(value.chars().last()) {
        return Err(format!(
            "values[0]: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ));
    }
    Ok(value.into())
}

/// A field selector: `metadata.name=x,status.phase!=Running`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// Path, wanted value, whether it must be equal (else: must differ).
    pub terms: Vec<(String, String, bool)>,
}

impl Fields {
    /// Reads the text of a query; `\,`, `\=` and `\\` stand for themselves.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text, ',').into_iter().filter(|p| !p.is_empty()) {
            let (path, value, equal) = split_term(&part)
                .ok_or_else(|| ApiError::bad_request(format!("invalid field selector: \"{text}\"; can't understand \"{part}\"")))?;
            terms.push((path, unescape(&value), equal));
        }
        Ok(Self { terms })
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a field must have, if the selector says so.
    #[must_use]
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.terms.iter().find(|(p, _, equal)| p == path && *equal).map(|(_, v, _)| v.as_str())
    }

    /// Whether an object fits; `get` finds the text of a field (absent = empty).
    pub fn matches(&self, get: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|(path, value, equal)| (get(path) == *value) == *equal)
    }
}

fn split_term(part: &str) -> Option<(String, String, bool)> {
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((path, value)) = part.split_once(sign) {
            return Some((path.to_owned(), value.to_owned(), equal));
        }
    }
    None
}

fn split_unescaped(text: &str, at: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == at && !escaped {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn label_selectors_select() {
        let labels = [("app", "web"), ("tier", "a-1"), ("n", "5"), ("x.io/role", "")];
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=b", true),
            ("app in (db, web)", true),
            ("app notin (web),tier", false),
            ("!missing,x.io/role", true),
            ("missing!=v", true),
            ("missing", false),
            ("n>4", true),
            ("n < 5", false),
            ("x.io/role=", true),
        ] {
            let selector = Labels::parse(text).unwrap();
            let get = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
            assert_eq!(selector.matches(get), expected, "{text}");
        }
        for bad in ["a b", "=x", "a in (x", "a=b c", "-a=b"] {
            assert!(Labels::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors_select() {
        let get = |path: &str| if path == "metadata.name" { "a,b".to_owned() } else { String::new() };
        assert!(Fields::parse("metadata.name=a\\,b,status.phase!=x").unwrap().matches(get));
        assert!(!Fields::parse("metadata.name!=a\\,b").unwrap().matches(get));
        assert!(Fields::parse("nonsense").is_err());
    }
}
