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
    let p: Vec<char> = pattern.chars().collect();
    let n: Vec<char> = name.chars().collect();
    let mut re = String::from("(?s)^");
    let mut i = 0;
    while i < p.len() {
        match p[i] {
            '*' => re.push_str("[^/]*"),
            '?' => re.push_str("[^/]"),
            '[' => {
                i += 1;
                re.push('[');
                if p.get(i) == Some(&'^') {
                    re.push('^');
                    i += 1;
                }
                let mut any = false;
                loop {
                    let mut one = |i: &mut usize| -> Option<char> {
                        let mut c = *p.get(*i)?;
                        if c == '\\' {
                            *i += 1;
                            c = *p.get(*i)?;
                        }
                        *i += 1;
                        Some(c)
                    };
                    if p.get(i)? == &']' && any {
                        break;
                    }
                    if matches!(p.get(i)?, '-' | ']') {
                        return None;
                    }
                    let lo = one(&mut i)?;
                    let hi = if p.get(i) == Some(&'-') {
                        i += 1;
                        one(&mut i)?
                    } else {
                        lo
                    };
                    if lo <= hi {
                        re.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", lo as u32, hi as u32));
                    }
                    any = true;
                }
                re.push_str("&&[^/]]");
            }
            '\\' => {
                i += 1;
                re.push_str(&regex::escape(&p.get(i)?.to_string()));
            }
            c => re.push_str(&regex::escape(&c.to_string())),
        }
        i += 1;
    }
    re.push('$');
    let text: String = n.into_iter().collect();
    regex::Regex::new(&re).ok().map(|r| r.is_match(&text))
}
