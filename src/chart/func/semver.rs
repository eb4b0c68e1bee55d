//! Semantic versions and constraints as Masterminds/semver has them.

use super::Ty::Str as S;
use super::{Func, GoErr, f, text};
use crate::text::quote::quote;
use crate::value::{Obj, Val};
use regex::Regex;
use std::cmp::Ordering;
use std::fmt;
use std::sync::OnceLock;

pub(super) fn table() -> Vec<Func> {
    vec![
        f("semver", &[S], |_, a| Version::parse(&text(&a[0])).map(|v| Val::obj(Obj::Semver(v))).map_err(GoErr::new)),
        f("semverCompare", &[S, S], |_, a| {
            let c = Constraints::parse(&text(&a[0])).map_err(GoErr::new)?;
            let v = Version::parse(&text(&a[1])).map_err(GoErr::new)?;
            Ok(Val::Bool(c.check(&v)))
        }),
    ]
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major.
    pub major: u64,
    /// Minor.
    pub minor: u64,
    /// Patch.
    pub patch: u64,
    /// Pre-release.
    pub pre: String,
    /// Build metadata.
    pub meta: String,
    /// As written.
    pub original: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.meta.is_empty() {
            write!(f, "+{}", self.meta)?;
        }
        Ok(())
    }
}

const NUM: &str = r"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";
const CV: &str = r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";
const OPS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

struct Patterns {
    version: Regex,
    constraint: Regex,
    range: Regex,
    find: Regex,
    valid: Regex,
}

fn patterns() -> Option<&'static Patterns> {
    static P: OnceLock<Option<Patterns>> = OnceLock::new();
    P.get_or_init(|| {
        Some(Patterns {
            version: Regex::new(&format!("^{NUM}$")).ok()?,
            constraint: Regex::new(&format!(r"^\s*({OPS})\s*({CV})\s*$")).ok()?,
            range: Regex::new(&format!(r"\s*({CV})\s+-\s+({CV})\s*")).ok()?,
            find: Regex::new(&format!(r"({OPS})\s*({CV})")).ok()?,
            valid: Regex::new(&format!(r"^(\s*({OPS})\s*({CV})\s*)((?:\s+|,\s*)({OPS})\s*({CV})\s*)*$")).ok()?,
        })
    })
    .as_ref()
}

impl Version {
    /// Reads a version, missing parts count as 0.
    pub fn parse(v: &str) -> Result<Version, String> {
        if v.len() > 256 {
            return Err("version string is too long (max 256 bytes)".into());
        }
        let invalid = || "invalid semantic version".to_string();
        let m = patterns().ok_or_else(invalid)?.version.captures(v).ok_or_else(invalid)?;
        let num = |i: usize| -> Result<u64, String> {
            let t = m.get(i).map_or("", |m| m.as_str()).trim_start_matches('.');
            if t.is_empty() {
                return Ok(0);
            }
            t.parse().map_err(|_| format!("error parsing version segment: strconv.ParseUint: parsing {}: value out of range", quote(t.as_bytes())))
        };
        let pre = m.get(5).map_or("", |m| m.as_str()).to_string();
        let out = Version { major: num(1)?, minor: num(2)?, patch: num(3)?, meta: m.get(8).map_or("", |m| m.as_str()).into(), pre, original: v.into() };
        for p in out.pre.split('.') {
            if p.len() > 1 && p.starts_with('0') && p.bytes().all(|c| c.is_ascii_digit()) {
                return Err("version segment starts with 0".into());
            }
        }
        Ok(out)
    }

    /// Order; metadata does not count.
    pub fn order(&self, o: &Version) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(o.major, o.minor, o.patch)).then_with(|| match (self.pre.is_empty(), o.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => pre_order(&self.pre, &o.pre),
        })
    }

    /// The version with one part raised, as `IncMajor` and its like do it.
    pub fn raised(&self, part: &str) -> Version {
        let v = if self.original.starts_with('v') { "v" } else { "" };
        let (mut major, mut minor, mut patch) = (self.major, self.minor, self.patch);
        match part {
            "IncMajor" => (major, minor, patch) = (major + 1, 0, 0),
            "IncMinor" => (minor, patch) = (minor + 1, 0),
            _ if self.pre.is_empty() => patch += 1,
            _ => {}
        }
        Version { major, minor, patch, pre: String::new(), meta: String::new(), original: format!("{v}{major}.{minor}.{patch}") }
    }
}

fn pre_order(a: &str, b: &str) -> Ordering {
    let (x, y): (Vec<&str>, Vec<&str>) = (a.split('.').collect(), b.split('.').collect());
    for i in 0..x.len().max(y.len()) {
        let (p, q) = (x.get(i).copied().unwrap_or(""), y.get(i).copied().unwrap_or(""));
        if p == q {
            continue;
        }
        if p.is_empty() {
            return Ordering::Less;
        }
        if q.is_empty() {
            return Ordering::Greater;
        }
        return match (p.parse::<u64>(), q.parse::<u64>()) {
            (Err(_), Err(_)) => p.cmp(q),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Ok(m), Ok(n)) => m.cmp(&n),
        };
    }
    Ordering::Equal
}

struct Constraint {
    con: Version,
    op: String,
    minor_dirty: bool,
    patch_dirty: bool,
    dirty: bool,
}

/// Alternatives of conjunctions.
pub struct Constraints(Vec<Vec<Constraint>>);

fn is_x(s: &str) -> bool {
    matches!(s, "x" | "X" | "*")
}

impl Constraints {
    /// Reads a constraint.
    pub fn parse(c: &str) -> Result<Constraints, String> {
        if c.len() > 512 {
            return Err("constraint string is too long (max 512 bytes)".into());
        }
        let Some(p) = patterns() else { return Err("constraint parser error".into()) };
        let mut text = c.to_string();
        for m in p.range.captures_iter(c) {
            let get = |i| m.get(i).map_or("", |m| m.as_str());
            text = text.replacen(get(0), &format!(">= {}, <= {} ", get(1), get(11)), 1);
        }
        let parts: Vec<&str> = text.split("||").collect();
        if parts.len() > 32 {
            return Err("too many constraint groups (max 32)".into());
        }
        let mut ors = Vec::new();
        for part in parts {
            if !p.valid.is_match(part) {
                return Err(format!("improper constraint: {}", quote(part.as_bytes())));
            }
            let mut all: Vec<&str> = p.find.find_iter(part).map(|m| m.as_str()).collect();
            if all.is_empty() {
                all.push(part);
            }
            ors.push(all.into_iter().map(|s| Constraint::parse(p, s)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(Constraints(ors))
    }

    /// Does a version satisfy it?
    pub fn check(&self, v: &Version) -> bool {
        self.0.iter().any(|and| {
            let pre = and.iter().any(|c| !c.con.pre.is_empty());
            and.iter().all(|c| c.check(v, pre))
        })
    }
}

impl Constraint {
    fn parse(p: &Patterns, s: &str) -> Result<Constraint, String> {
        let Some(m) = p.constraint.captures(s) else { return Err(format!("improper constraint: {}", quote(s.as_bytes()))) };
        let get = |i| m.get(i).map_or("", |m| m.as_str());
        let (mut dirty, mut minor_dirty, mut patch_dirty) = (false, false, false);
        let dot = |i| get(i).trim_start_matches('.');
        let ver = if is_x(get(3)) || get(3).is_empty() {
            dirty = true;
            format!("0.0.0{}", get(6))
        } else if is_x(dot(4)) || get(4).is_empty() {
            dirty = true;
            minor_dirty = true;
            format!("{}.0.0{}", get(3), get(6))
        } else if is_x(dot(5)) || get(5).is_empty() {
            dirty = true;
            patch_dirty = true;
            format!("{}{}.0{}", get(3), get(4), get(6))
        } else {
            get(2).to_string()
        };
        let con = Version::parse(&ver).map_err(|_| "constraint parser error".to_string())?;
        Ok(Constraint { con, op: get(1).into(), minor_dirty, patch_dirty, dirty })
    }

    fn check(&self, v: &Version, pre: bool) -> bool {
        if !v.pre.is_empty() && !pre {
            return false;
        }
        let c = &self.con;
        let ord = v.order(c);
        match self.op.as_str() {
            "" | "=" => {
                if self.dirty {
                    self.tilde(v)
                } else {
                    ord.is_eq()
                }
            }
            "!=" => {
                if self.dirty {
                    if c.major != v.major || c.minor != v.minor && !self.minor_dirty {
                        return true;
                    }
                    if self.minor_dirty {
                        return false;
                    }
                    if c.patch != v.patch && !self.patch_dirty {
                        return true;
                    }
                    if self.patch_dirty {
                        return (!v.pre.is_empty() || !c.pre.is_empty()) && v.pre != c.pre;
                    }
                }
                !ord.is_eq()
            }
            ">" => {
                if !self.dirty {
                    return ord.is_gt();
                }
                if v.major != c.major {
                    return v.major > c.major;
                }
                if self.minor_dirty {
                    return false;
                }
                if self.patch_dirty {
                    return v.minor > c.minor;
                }
                ord.is_gt()
            }
            "<" => ord.is_lt(),
            ">=" | "=>" => ord.is_ge(),
            "<=" | "=<" => {
                if !self.dirty {
                    return ord.is_le();
                }
                !(v.major > c.major || v.major == c.major && v.minor > c.minor && !self.minor_dirty)
            }
            "~" | "~>" => self.tilde(v),
            _ => self.caret(v),
        }
    }

    fn tilde(&self, v: &Version) -> bool {
        let c = &self.con;
        if v.order(c).is_lt() {
            return false;
        }
        if c.major == 0 && c.minor == 0 && c.patch == 0 && !self.minor_dirty && !self.patch_dirty {
            return true;
        }
        v.major == c.major && (v.minor == c.minor || self.minor_dirty)
    }

    fn caret(&self, v: &Version) -> bool {
        let c = &self.con;
        if v.order(c).is_lt() {
            return false;
        }
        if c.major > 0 || self.minor_dirty {
            return v.major == c.major;
        }
        if c.major == 0 && v.major > 0 {
            return false;
        }
        if c.minor > 0 || self.patch_dirty {
            return v.minor == c.minor;
        }
        if c.minor == 0 && v.minor > 0 {
            return false;
        }
        c.patch == v.patch
    }
}

/// Helm's `IsCompatibleRange`: faults count as no.
pub fn compatible(range: &str, version: &str) -> bool {
    match (Constraints::parse(range), Version::parse(version)) {
        (Ok(c), Ok(v)) => c.check(&v),
        _ => false,
    }
}
