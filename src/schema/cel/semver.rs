//! Semantic versions as the CEL library of Kubernetes reads them.

use std::cmp::Ordering;
use std::fmt;

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pre: Vec<String>,
    build: Vec<String>,
}

fn number(s: &str) -> Option<u64> {
    let plain = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s.len() == 1 || !s.starts_with('0'));
    if plain { s.parse().ok() } else { None }
}

impl Semver {
    /// Reads a version; `lenient` accepts a leading `v`, missing parts and leading zeros.
    pub(crate) fn parse(s: &str, lenient: bool) -> Option<Self> {
        let s = if lenient { s.strip_prefix('v').unwrap_or(s) } else { s };
        let (s, build) = s.split_once('+').map_or((s, None), |(a, b)| (a, Some(b)));
        let (core, pre) = s.split_once('-').map_or((s, None), |(a, b)| (a, Some(b)));
        let mut parts: Vec<String> = core.split('.').map(str::to_owned).collect();
        if lenient {
            for p in &mut parts {
                let t = p.trim_start_matches('0').to_owned();
                *p = if t.is_empty() && !p.is_empty() { "0".to_owned() } else { t };
            }
            while parts.len() < 3 {
                parts.push("0".to_owned());
            }
        }
        let [major, minor, patch] = parts.as_slice() else { return None };
        let words = |t: Option<&str>, numeric: bool| -> Option<Vec<String>> {
            let Some(t) = t else { return Some(Vec::new()) };
            let list: Vec<String> = t.split('.').map(str::to_owned).collect();
            let ok = list.iter().all(|w| {
                !w.is_empty()
                    && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                    && (!numeric || !w.bytes().all(|b| b.is_ascii_digit()) || number(w).is_some())
            });
            ok.then_some(list)
        };
        Some(Self { major: number(major)?, minor: number(minor)?, patch: number(patch)?, pre: words(pre, true)?, build: words(build, false)? })
    }

    pub(crate) fn order(&self, o: &Self) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(o.major, o.minor, o.patch)).then_with(|| match (self.pre.is_empty(), o.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                for (a, b) in self.pre.iter().zip(&o.pre) {
                    let c = match (number(a), number(b)) {
                        (Some(x), Some(y)) => x.cmp(&y),
                        (Some(_), None) => Ordering::Less,
                        (None, Some(_)) => Ordering::Greater,
                        (None, None) => a.cmp(b),
                    };
                    if c.is_ne() {
                        return c;
                    }
                }
                self.pre.len().cmp(&o.pre.len())
            }
        })
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build.join("."))?;
        }
        Ok(())
    }
}
