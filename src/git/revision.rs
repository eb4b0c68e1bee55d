//! Which revision is meant, and which one it is now.

use std::fmt;

use semver::{Version, VersionReq};

use crate::error::ResolveError;
use crate::fetch::Advert;
use crate::id::ObjectId;

/// Which revision of a repository is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// The branch that HEAD names.
    Default,
    /// The tip of a branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The tag with the highest version in a range: `1.x`, `>=1.2 <2`, `^1 || ^3`.
    Range(String),
    /// A commit.
    Commit(ObjectId),
    /// Any reference by its full name.
    Name(String),
}

/// A revision as it was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// The branch, tag or reference; empty when a bare commit was asked for.
    pub name: String,
    /// The commit.
    pub commit: ObjectId,
}

impl fmt::Display for Revision {
    /// `main@sha1:<commit>`, or `sha1:<commit>` without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "sha1:{}", self.commit) } else { write!(f, "{}@sha1:{}", self.name, self.commit) }
    }
}

impl Selector {
    /// The prefixes of references that must be known to resolve this.
    pub(crate) fn prefixes(&self) -> Result<Vec<String>, ResolveError> {
        Ok(match self {
            Self::Default => vec!["HEAD".to_owned(), "refs/heads/".to_owned()],
            Self::Branch(name) => vec![checked(&format!("refs/heads/{name}"), name)?],
            Self::Tag(name) => vec![checked(&format!("refs/tags/{name}"), name)?],
            Self::Range(range) => {
                parse_range(range)?;
                vec!["refs/tags/".to_owned()]
            }
            Self::Commit(_) => Vec::new(),
            Self::Name(name) => vec![checked(name, name)?],
        })
    }

    /// Picks from the references of a remote.
    pub(crate) fn pick(&self, refs: &Advert) -> Result<Revision, ResolveError> {
        let nothing = ResolveError::Missing;
        match self {
            Self::Default => {
                let head = refs.head.as_deref().or_else(|| guess_head(refs));
                let commit = head.and_then(|h| refs.commit(h)).or_else(|| refs.commit("HEAD"));
                match (head, commit) {
                    (Some(head), Some(commit)) => Ok(Revision { name: short(head).to_owned(), commit }),
                    (None, Some(commit)) => Ok(Revision { name: String::new(), commit }),
                    _ if refs.refs.is_empty() => Err(ResolveError::Empty),
                    _ => Err(nothing("default branch".to_owned())),
                }
            }
            Self::Branch(name) => {
                let commit = refs.commit(&format!("refs/heads/{name}")).ok_or_else(|| nothing(format!("branch `{name}`")))?;
                Ok(Revision { name: name.clone(), commit })
            }
            Self::Tag(name) => {
                let commit = refs.commit(&format!("refs/tags/{name}")).ok_or_else(|| nothing(format!("tag `{name}`")))?;
                Ok(Revision { name: name.clone(), commit })
            }
            Self::Range(range) => {
                let wanted = parse_range(range)?;
                let best = refs
                    .refs
                    .keys()
                    .filter_map(|name| {
                        let tag = name.strip_prefix("refs/tags/")?;
                        let version = Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()?;
                        wanted.iter().any(|w| w.matches(&version)).then_some((version, tag))
                    })
                    // Versions that differ in build data only are equal to the range: the name decides.
                    .max_by(|a, b| a.0.cmp_precedence(&b.0).then_with(|| a.1.cmp(b.1)));
                let (_, tag) = best.ok_or_else(|| nothing(format!("tag with a version in `{range}`")))?;
                let commit = refs.commit(&format!("refs/tags/{tag}")).ok_or_else(|| nothing(format!("tag `{tag}`")))?;
                Ok(Revision { name: tag.to_owned(), commit })
            }
            Self::Commit(commit) => Ok(Revision { name: String::new(), commit: *commit }),
            Self::Name(name) => {
                let commit = refs.commit(name).ok_or_else(|| nothing(format!("reference `{name}`")))?;
                Ok(Revision { name: name.clone(), commit })
            }
        }
    }
}

/// Protocol 0 hosts that do not say where HEAD points: a branch with the same commit, `main` and `master` first.
fn guess_head(refs: &Advert) -> Option<&str> {
    let commit = refs.refs.get("HEAD")?;
    let same = |name: &&str| refs.refs.get(*name) == Some(commit);
    ["refs/heads/main", "refs/heads/master"]
        .into_iter()
        .find(same)
        .or_else(|| refs.refs.iter().find(|(n, id)| n.starts_with("refs/heads/") && *id == commit).map(|(n, _)| n.as_str()))
}

/// The name without `refs/heads/` or `refs/tags/`.
pub(crate) fn short(name: &str) -> &str {
    name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/")).unwrap_or(name)
}

pub(crate) fn checked(full: &str, shown: &str) -> Result<String, ResolveError> {
    if git2::Reference::is_valid_name(full) { Ok(full.to_owned()) } else { Err(ResolveError::Name(shown.to_owned())) }
}

/// Whether a text can be the name of a branch.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    !name.starts_with('-') && git2::Reference::is_valid_name(&format!("refs/heads/{name}"))
}

/// Alternatives by `||`; comparators by comma or blank.
fn parse_range(text: &str) -> Result<Vec<VersionReq>, ResolveError> {
    let bad = || ResolveError::Range(text.to_owned());
    text.split("||")
        .map(|part| {
            let mut joined = String::new();
            let mut after_operator = true;
            for word in part.replace(',', " ").split_whitespace() {
                if !after_operator {
                    joined.push_str(", ");
                }
                after_operator = word.chars().all(|c| "<>=~^".contains(c));
                let word = match word.find(|c: char| !"<>=~^".contains(c)) {
                    Some(at) if word[at..].starts_with('v') => format!("{}{}", &word[..at], &word[at + 1..]),
                    _ => word.to_owned(),
                };
                // A bare full version means exactly that one, as people expect of a range.
                let exact = word.starts_with(|c: char| c.is_ascii_digit()) && Version::parse(&word).is_ok() && joined.is_empty();
                if exact {
                    joined.push('=');
                }
                joined.push_str(&word);
            }
            if joined.is_empty() { Err(bad()) } else { VersionReq::parse(&joined).map_err(|_| bad()) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, tags: &[&str], expect: &str) {
        let mut refs = Advert::default();
        for (n, tag) in tags.iter().enumerate() {
            refs.refs.insert(format!("refs/tags/{tag}"), ObjectId::from_bytes([n as u8 + 1; 20]));
        }
        let got = match Selector::Range(range.to_owned()).pick(&refs) {
            Ok(revision) => revision.name,
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expect);
    }

    #[test]
    fn ranges() {
        let tags = ["v1.2.3", "v1.10.0", "2.0.0", "2.1.0-rc.1", "latest", "v3.0.0+b"];
        check("1.x", &tags, "v1.10.0");
        check(">=1.0.0 <2.0.0", &tags, "v1.10.0");
        check(">= 1.0.0, < 1.5", &tags, "v1.2.3");
        check("v1.2.3", &tags, "v1.2.3");
        check("^1 || ^2", &tags, "2.0.0");
        check(">=2.1.0-0", &tags, "v3.0.0+b");
        check("*", &tags, "v3.0.0+b");
        check("~2.1.0-0", &tags, "2.1.0-rc.1");
        check("9", &tags, "resolve revision: there is no tag with a version in `9`");
        check("", &tags, "resolve revision: `` is not a range of versions");
        check("what", &tags, "resolve revision: `what` is not a range of versions");
    }
}
