//! Patterns of paths to leave out, in the syntax of `.gitignore`.

/// Compiled patterns; the last one that matches decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    negated: bool,
    /// Only directories (and so everything below them).
    directory: bool,
    /// Segments from the root; a floating pattern begins with `**`.
    segments: Vec<String>,
}

impl Ignore {
    /// Reads patterns, one a line; empty ones and comments mean nothing.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        let rules = patterns.into_iter().filter_map(rule).collect();
        Self { rules }
    }

    /// Whether a file is left out: by itself, or by a directory above it.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        // A file below a left-out directory cannot be taken in again, as in Git.
        (1..=parts.len()).any(|end| {
            let directory = end < parts.len();
            let mut out = false;
            for rule in &self.rules {
                if (directory || !rule.directory) && matches(&rule.segments, &parts[..end]) {
                    out = !rule.negated;
                }
            }
            out
        })
    }
}

fn rule(line: &str) -> Option<Rule> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (negated, line) = match line.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, line.strip_prefix('\\').unwrap_or(line)),
    };
    let (directory, line) = match line.strip_suffix('/') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let anchored = line.contains('/');
    let mut segments: Vec<String> = line.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect();
    if segments.is_empty() {
        return None;
    }
    if !anchored {
        segments.insert(0, "**".to_owned());
    }
    Some(Rule { negated, directory, segments })
}

fn matches(pattern: &[String], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == "**" => {
            if rest.is_empty() {
                return !path.is_empty();
            }
            (0..=path.len()).any(|skip| matches(rest, &path[skip..]))
        }
        Some((first, rest)) => path.split_first().is_some_and(|(name, below)| glob(first.as_bytes(), name.as_bytes()) && matches(rest, below)),
    }
}

/// `*`, `?` and `[a-z]` within one name; linear in both lengths but for one step back per star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some(b'?') => Some(p + 1),
            Some(b'[') => class(pattern, p, text[t]),
            Some(b'\\') if pattern.get(p + 1) == Some(&text[t]) => Some(p + 2),
            Some(byte) if *byte == text[t] => Some(p + 1),
            _ => None,
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((at, from))) => {
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// Matches one byte against the class that begins at `at`; the index after it.
fn class(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(at + 1), Some(b'!' | b'^'));
    let mut i = at + 1 + usize::from(negated);
    let first = i;
    let mut hit = false;
    while let Some(&low) = pattern.get(i) {
        if low == b']' && i > first {
            return (hit != negated).then_some(i + 1);
        }
        match (pattern.get(i + 1), pattern.get(i + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                hit |= (low..=high).contains(&byte);
                i += 3;
            }
            _ => {
                hit |= low == byte;
                i += 1;
            }
        }
    }
    // Without an end it is a plain bracket.
    (byte == b'[').then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patterns: &[&str], path: &str, expect: bool) {
        assert_eq!(Ignore::new(patterns.iter().copied()).matches(path), expect, "{patterns:?} {path}");
    }

    #[test]
    fn as_git_does() {
        check(&["*.txt"], "a/b.txt", true);
        check(&["*.txt"], "a/b.txt.yaml", false);
        check(&["/a.yaml"], "a.yaml", true);
        check(&["/a.yaml"], "x/a.yaml", false);
        check(&["docs/"], "docs/a.yaml", true);
        check(&["docs/"], "x/docs/a.yaml", true);
        check(&["docs/"], "docs", false);
        check(&["a/**/z.yaml"], "a/z.yaml", true);
        check(&["a/**/z.yaml"], "a/b/c/z.yaml", true);
        check(&["a/*"], "a/b/c", true);
        check(&["*.yaml", "!keep.yaml"], "keep.yaml", false);
        check(&["docs/", "!docs/keep.yaml"], "docs/keep.yaml", true);
        check(&["v[0-9].yaml"], "v3.yaml", true);
        check(&["v[!0-9].yaml"], "v3.yaml", false);
        check(&["# no", "", "a"], "b", false);
        check(&["\\#a"], "#a", true);
        check(&["**"], "a/b", true);
    }
}
