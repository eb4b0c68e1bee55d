//! Reading trees: which files a commit has, straight from the object database, never checked out, links never followed.

use git2::Repository;

use crate::error::ReadError;
use crate::id::{ObjectId, ObjectKind};
use crate::objects::Objects;

/// The most bytes of one tree object.
const MAX_TREE: u64 = 16 << 20;

/// What an entry of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// A file.
    File,
    /// A file with the executable bit.
    Executable,
    /// A symbolic link; its blob holds the target.
    Symlink,
    /// A commit of another repository.
    Submodule,
}

impl Mode {
    pub(crate) fn octal(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Executable => "100755",
            Self::Symlink => "120000",
            Self::Submodule => "160000",
        }
    }
}

/// One entry that is no directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// The path from the root, with `/` between names.
    pub path: String,
    /// The blob (of a submodule: the commit).
    pub id: ObjectId,
    /// What it is.
    pub mode: Mode,
}

/// What a commit has under the paths asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The tree of the commit.
    pub tree: ObjectId,
    /// Sorted by path.
    pub files: Vec<TreeFile>,
    /// Paths that are no UTF-8, made printable; they are in no other list.
    pub unreadable: Vec<String>,
    /// Of the paths asked for, those that the commit does not have.
    pub missing: Vec<String>,
}

/// What to read of a tree, and how much at most.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Directories or files to read, without leading or trailing `/`; empty for everything.
    pub paths: Vec<String>,
    /// The most files.
    pub max_files: usize,
    /// The deepest nesting.
    pub max_depth: usize,
}

impl Filter {
    /// Everything, within 100,000 files and 64 directories deep.
    #[must_use]
    pub fn everything() -> Self {
        Self { paths: Vec::new(), max_files: 100_000, max_depth: 64 }
    }

    /// The same bounds under these paths; `.`, `./x` and `x/` are understood.
    #[must_use]
    pub fn under<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut out = Self::everything();
        for path in paths {
            let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
            if parts.is_empty() {
                out.paths.clear();
                return out;
            }
            out.paths.push(parts.join("/"));
        }
        out.paths.sort();
        out.paths.dedup();
        out
    }
}

/// One raw entry of a tree object.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) id: ObjectId,
}

pub(crate) fn entries(objects: &Objects, repository: &Repository, tree: ObjectId) -> Result<Vec<Entry>, ReadError> {
    let content = objects.object(repository, tree, ObjectKind::Tree, MAX_TREE)?;
    parse(&content).ok_or_else(|| ReadError::Object { what: format!("tree {tree}"), source: git2::Error::from_str("the tree is malformed") })
}

fn parse(mut content: &[u8]) -> Option<Vec<Entry>> {
    let mut out = Vec::new();
    while !content.is_empty() {
        let space = content.iter().position(|b| *b == b' ')?;
        let mode = u32::from_str_radix(std::str::from_utf8(&content[..space]).ok()?, 8).ok()?;
        content = &content[space + 1..];
        let end = content.iter().position(|b| *b == 0)?;
        let name = content[..end].to_vec();
        let id: [u8; 20] = content.get(end + 1..end + 21)?.try_into().ok()?;
        content = &content[end + 21..];
        out.push(Entry { name, mode, id: ObjectId::from_bytes(id) });
    }
    Some(out)
}

pub(crate) const DIRECTORY: u32 = 0o040000;

pub(crate) fn mode(raw: u32) -> Mode {
    match raw & 0o170000 {
        0o120000 => Mode::Symlink,
        0o160000 => Mode::Submodule,
        _ if raw & 0o100 != 0 => Mode::Executable,
        _ => Mode::File,
    }
}

/// Lists the files of a commit.
pub(crate) fn list(objects: &Objects, repository: &Repository, commit: ObjectId, filter: &Filter) -> Result<Listing, ReadError> {
    let tree = objects.tree_of(repository, commit)?;
    let mut out = Listing { tree, files: Vec::new(), unreadable: Vec::new(), missing: Vec::new() };
    let mut seen = vec![false; filter.paths.len()];
    walk(objects, repository, tree, "", 0, filter, &mut seen, &mut out)?;
    out.files.sort_by(|a, b| a.path.cmp(&b.path));
    out.missing = filter.paths.iter().zip(seen).filter(|(_, seen)| !seen).map(|(p, _)| p.clone()).collect();
    Ok(out)
}

#[expect(clippy::too_many_arguments, reason = "one recursion")]
fn walk(
    objects: &Objects,
    repository: &Repository,
    tree: ObjectId,
    prefix: &str,
    depth: usize,
    filter: &Filter,
    seen: &mut [bool],
    out: &mut Listing,
) -> Result<(), ReadError> {
    if depth > filter.max_depth {
        return Err(ReadError::TooDeep { limit: filter.max_depth });
    }
    for entry in entries(objects, repository, tree)? {
        let Ok(name) = std::str::from_utf8(&entry.name) else {
            out.unreadable.push(format!("{prefix}{}", String::from_utf8_lossy(&entry.name)));
            continue;
        };
        let path = format!("{prefix}{name}");
        let directory = entry.mode == DIRECTORY;
        let mut inside = filter.paths.is_empty();
        let mut towards = false;
        for (wanted, seen) in filter.paths.iter().zip(seen.iter_mut()) {
            if path == *wanted || (path.starts_with(wanted.as_str()) && path.as_bytes().get(wanted.len()) == Some(&b'/')) {
                inside = true;
                *seen = true;
            } else if wanted.starts_with(&path) && wanted.as_bytes().get(path.len()) == Some(&b'/') {
                towards = true;
            }
        }
        if directory {
            if inside || towards {
                walk(objects, repository, entry.id, &format!("{path}/"), depth + 1, filter, seen, out)?;
            }
        } else if inside {
            out.files.push(TreeFile { path, id: entry.id, mode: mode(entry.mode) });
            if out.files.len() > filter.max_files {
                return Err(ReadError::TooMany { limit: filter.max_files });
            }
        }
    }
    Ok(())
}
