//! File patterns: `.Files.Glob` (with `/` as separator) and `.helmignore` and `--show-only` matching.

/// A compiled pattern in the syntax of Helm's glob library.
pub struct Glob(Option<regex::Regex>);

impl Glob {
    /// Compiles; a faulty pattern matches everything, as in Helm.
    pub fn new(p: &str) -> Self {
        let re = to_regex(p).unwrap_or_else(|| ".*".into());
        Glob(regex::Regex::new(&format!("(?s)^(?:{re})$")).ok())
    }

    /// Does a path match?
    pub fn matches(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|r| r.is_match(path))
    }
}

fn to_regex(p: &str) -> Option<String> {
    let c: Vec<char> = p.chars().collect();
    let mut out = String::new();
    let mut i = 0;
    let mut depth = 0;
    while i < c.len() {
        match c[i] {
            '*' if c.get(i + 1) == Some(&'*') => {
                out.push_str(".*");
                while c.get(i + 1) == Some(&'*') {
                    i += 1;
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => {
                let end = c[i..].iter().position(|x| *x == ']')? + i;
                let body: String = c[i + 1..end].iter().collect();
                let (neg, body) = match body.strip_prefix('!') {
                    Some(b) => ("^", b),
                    None => ("", body.as_str()),
                };
                if body.is_empty() {
                    return None;
                }
                let b: Vec<char> = body.chars().collect();
                if b.len() == 3 && b[1] == '-' {
                    if b[0] > b[2] {
                        return None;
                    }
                    out.push_str(&format!("[{neg}{}-{}]", regex::escape(&b[0].to_string()), regex::escape(&b[2].to_string())));
                } else {
                    out.push_str(&format!("[{neg}{}]", b.iter().map(|x| regex::escape(&x.to_string()).replace('-', "\\-")).collect::<String>()));
                }
                i = end;
            }
            '{' => {
                depth += 1;
                out.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                out.push(')');
            }
            ',' if depth > 0 => out.push('|'),
            '\\' => {
                i += 1;
                out.push_str(&regex::escape(&c.get(i)?.to_string()));
            }
            x => out.push_str(&regex::escape(&x.to_string())),
        }
        i += 1;
    }
    (depth == 0).then_some(out)
}

/// Go's `filepath.Match`; `None` for a malformed pattern.
pub fn path_match(pattern: &str, name: &str) -> Option<bool> {
    let special = |b: &u8| matches!(b, b'*' | b'?' | b'[' | b'\\');
    let Some(literal) = pattern.bytes().position(|b| special(&b)) else { return Some(pattern == name) };
    // Most names differ from a pattern before its first special character or after its last star.
    if !pattern.as_bytes()[literal..].iter().any(|b| matches!(b, b'[' | b'\\')) {
        let tail = pattern.rfind(['*', '?']).map_or("", |i| &pattern[i + 1..]);
        if !name.starts_with(&pattern[..literal]) || !name.ends_with(tail) {
            return Some(false);
        }
    }
    let p: Vec<char> = pattern.chars().collect();
    well_formed(&p)?;
    let n: Vec<char> = name.chars().collect();
    Some(matches_from(&p, &n))
}

fn well_formed(p: &[char]) -> Option<()> {
    let mut i = 0;
    while i < p.len() {
        match p[i] {
            '\\' => {
                p.get(i + 1)?;
                i += 2;
            }
            '[' => i = class(p, i, None)?.1,
            _ => i += 1,
        }
    }
    Some(())
}

/// Reads a class at a place: does it hold the character, and where does it end.
fn class(p: &[char], at: usize, c: Option<char>) -> Option<(bool, usize)> {
    let mut i = at + 1;
    let negated = p.get(i) == Some(&'^');
    if negated {
        i += 1;
    }
    let one = |i: &mut usize| -> Option<char> {
        let mut c = *p.get(*i)?;
        if c == '-' || c == ']' {
            return None;
        }
        if c == '\\' {
            *i += 1;
            c = *p.get(*i)?;
        }
        *i += 1;
        Some(c)
    };
    let (mut hit, mut ranges) = (false, 0);
    loop {
        if p.get(i)? == &']' && ranges > 0 {
            break;
        }
        let lo = one(&mut i)?;
        let hi = if p.get(i) == Some(&'-') {
            i += 1;
            one(&mut i)?
        } else {
            lo
        };
        hit |= c.is_some_and(|c| lo <= c && c <= hi);
        ranges += 1;
    }
    Some((hit != negated, i + 1))
}

fn matches_from(p: &[char], n: &[char]) -> bool {
    // The last star and where it matched up to, to go back to.
    let (mut i, mut j) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let step = match p.get(i) {
            None if j == n.len() => return true,
            Some('*') => {
                back = Some((i, j));
                i += 1;
                continue;
            }
            Some(pc) if j < n.len() => match pc {
                '?' => (n[j] != '/').then_some(i + 1),
                '[' => class(p, i, Some(n[j])).and_then(|(hit, end)| hit.then_some(end)),
                '\\' => (p.get(i + 1) == Some(&n[j])).then_some(i + 2),
                c => (*c == n[j]).then_some(i + 1),
            },
            _ => None,
        };
        match step {
            Some(next) => {
                i = next;
                j += 1;
            }
            None => match back {
                Some((star, from)) if from < n.len() && n[from] != '/' => {
                    back = Some((star, from + 1));
                    i = star + 1;
                    j = from + 1;
                }
                _ => return false,
            },
        }
    }
}
