//! `.helmignore`: which files of a chart directory do not belong to the chart.

use crate::glob::path_match;

struct Rule {
    pattern: String,
    negate: bool,
    must_dir: bool,
    /// Compared with the whole path instead of the last name.
    whole: bool,
}

/// Rules of one chart.
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Reads a `.helmignore`; Helm's own rule for hidden templates is added.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let mut all = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let mut l = line.trim();
            if l.is_empty() || l.starts_with('#') {
                continue;
            }
            if l.contains("**") {
                return Err("double-star (**) syntax is not supported".into());
            }
            if path_match(l, "abc").is_none() {
                return Err("syntax error in pattern".into());
            }
            let negate = l.starts_with('!');
            if negate {
                l = &l[1..];
            }
            let must_dir = l.ends_with('/');
            if must_dir {
                l = &l[..l.len() - 1];
            }
            let (whole, pattern) = match l.strip_prefix('/') {
                Some(p) => (true, p),
                None => (l.contains('/'), l),
            };
            all.push(Rule { pattern: pattern.into(), negate, must_dir, whole });
        }
        all.push(Rule { pattern: "templates/.?*".into(), negate: false, must_dir: false, whole: true });
        Ok(Rules(all))
    }

    fn one(&self, path: &str, dir: bool) -> bool {
        for r in &self.0 {
            let name = if r.whole { path } else { path.rsplit('/').next().unwrap_or(path) };
            let hit = path_match(&r.pattern, name).unwrap_or(false);
            if r.negate {
                if r.must_dir && !dir {
                    return true;
                }
                if !hit {
                    return true;
                }
                continue;
            }
            if r.must_dir && !dir {
                continue;
            }
            if hit {
                return true;
            }
        }
        false
    }

    /// Is a file, or a directory above it, ignored?
    pub fn ignores(&self, path: &str) -> bool {
        path.match_indices('/').any(|(i, _)| self.one(&path[..i], true)) || self.one(path, false)
    }
}
