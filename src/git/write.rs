//! Writing commits: the whole wanted state of many branches at once, equal files and directories written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use git2::Repository;

use crate::error::{CommitError, ReadError, TransportError};
use crate::id::{ObjectId, ObjectKind};
use crate::objects::Objects;
use crate::tree::{self, DIRECTORY, Mode};

/// A file's content with its id, which is computed once however many branches have it.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    id: ObjectId,
    bytes: Arc<[u8]>,
}

impl Content {
    /// Takes the content of a file.
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { id: ObjectId::hash(ObjectKind::Blob, &bytes), bytes }
    }

    /// The id of the blob.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.id, self.bytes.len())
    }
}

/// Who made a commit, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
    /// Seconds since 1970.
    pub seconds: i64,
    /// Minutes east of Greenwich.
    pub offset: i32,
}

impl Signature {
    fn line(&self) -> Result<String, CommitError> {
        let fine = |t: &str| !t.trim().is_empty() && !t.contains(['<', '>', '\n', '\r', '\0']);
        if !fine(&self.name) || !fine(&self.email) {
            return Err(CommitError::Signature);
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.unsigned_abs();
        Ok(format!("{} <{}> {} {sign}{:02}{:02}", self.name.trim(), self.email.trim(), self.seconds, minutes / 60, minutes % 60))
    }
}

/// What a commit changes against its parent, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// New files.
    pub added: Vec<String>,
    /// Files with other content.
    pub changed: Vec<String>,
    /// Files that are gone.
    pub removed: Vec<String>,
}

impl Changes {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    /// All paths, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        let mut out: Vec<&str> = self.added.iter().chain(&self.changed).chain(&self.removed).map(String::as_str).collect();
        out.sort_unstable();
        out
    }
}

/// Says whether a path of the parent is ours, that is: removed when it is not wanted any more. All others are kept.
pub type Ours = Arc<dyn Fn(&str) -> bool + Send + Sync>;
/// Makes the message from what changes.
pub type Message = Arc<dyn Fn(&Changes) -> String + Send + Sync>;

/// The whole wanted state of one branch.
#[derive(Clone)]
pub struct Draft {
    /// The commit to build on; none for a new branch.
    pub parent: Option<ObjectId>,
    /// All our files.
    pub files: BTreeMap<String, Content>,
    /// Which files of the parent are ours.
    pub ours: Ours,
    /// The message.
    pub message: Message,
    /// Who wrote it.
    pub author: Signature,
    /// Who committed it.
    pub committer: Signature,
}

/// What became of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The parent has this state already (or there is neither a parent nor a file): no commit.
    Unchanged,
    /// A new commit, stored but in no branch yet.
    Commit {
        /// Its id.
        id: ObjectId,
        /// Its tree.
        tree: ObjectId,
        /// What it changes.
        changes: Changes,
        /// The objects that the parent does not have, the commit among them.
        objects: Vec<ObjectId>,
    },
}

/// New objects of one batch.
type Fresh = BTreeMap<ObjectId, (ObjectKind, Arc<[u8]>)>;

struct Before {
    files: BTreeMap<String, (Mode, ObjectId)>,
    trees: BTreeSet<ObjectId>,
    root: Option<ObjectId>,
}

/// Writes the commits of all drafts; one that fails does not hold the others back.
pub(crate) fn write(objects: &Objects, drafts: &[Draft]) -> Result<Vec<Result<Written, CommitError>>, TransportError> {
    let mut fresh = Fresh::new();
    let out: Vec<Result<Written, CommitError>> = objects.with::<_, TransportError>(|repository| {
        let odb = repository.odb()?;
        Ok(drafts.iter().map(|draft| one(objects, repository, &odb, draft, &mut fresh)).collect())
    })?;
    objects.store(fresh.iter().map(|(id, (kind, content))| (*id, *kind, &content[..])))?;
    Ok(out)
}

fn one(objects: &Objects, repository: &Repository, odb: &git2::Odb<'_>, draft: &Draft, fresh: &mut Fresh) -> Result<Written, CommitError> {
    for path in draft.files.keys() {
        check_path(path)?;
    }
    let author = draft.author.line()?;
    let committer = draft.committer.line()?;
    let before = read_before(objects, repository, draft.parent)?;

    let mut wanted: BTreeMap<&str, (Mode, ObjectId)> = BTreeMap::new();
    let mut changes = Changes::default();
    for (path, (mode, id)) in &before.files {
        if draft.files.contains_key(path) {
            continue;
        }
        if (draft.ours)(path) {
            changes.removed.push(path.clone());
        } else {
            wanted.insert(path, (*mode, *id));
        }
    }
    let mut new_objects = BTreeSet::new();
    for (path, content) in &draft.files {
        match before.files.get(path) {
            Some((Mode::File, id)) if *id == content.id => {}
            Some(_) => changes.changed.push(path.clone()),
            None => changes.added.push(path.clone()),
        }
        if before.files.get(path).is_none_or(|(_, id)| *id != content.id) && new_objects.insert(content.id) && !Objects::known(odb, content.id) {
            fresh.entry(content.id).or_insert_with(|| (ObjectKind::Blob, content.bytes.clone()));
        }
        wanted.insert(path, (Mode::File, content.id));
    }
    if changes.is_empty() {
        return Ok(Written::Unchanged);
    }
    let root = build(&wanted)?;
    let tree = store_node(&root, &before.trees, odb, &mut new_objects, fresh);
    if before.root == Some(tree) {
        return Ok(Written::Unchanged);
    }
    let mut text = format!("tree {tree}\n");
    if let Some(parent) = draft.parent {
        text.push_str(&format!("parent {parent}\n"));
    }
    let mut message = (draft.message)(&changes).replace('\0', "");
    if !message.ends_with('\n') {
        message.push('\n');
    }
    text.push_str(&format!("author {author}\ncommitter {committer}\n\n{message}"));
    let id = ObjectId::hash(ObjectKind::Commit, text.as_bytes());
    fresh.insert(id, (ObjectKind::Commit, text.into_bytes().into()));
    new_objects.insert(id);
    Ok(Written::Commit { id, tree, changes, objects: new_objects.into_iter().collect() })
}

fn read_before(objects: &Objects, repository: &Repository, parent: Option<ObjectId>) -> Result<Before, CommitError> {
    let mut before = Before { files: BTreeMap::new(), trees: BTreeSet::new(), root: None };
    let Some(parent) = parent else { return Ok(before) };
    let root = objects.tree_of(repository, parent)?;
    before.root = Some(root);
    let mut open = vec![(String::new(), root, 0)];
    while let Some((prefix, id, depth)) = open.pop() {
        if depth > 64 {
            return Err(ReadError::TooDeep { limit: 64 }.into());
        }
        before.trees.insert(id);
        for entry in tree::entries(objects, repository, id)? {
            // A name that is no UTF-8 cannot be kept faithfully; such a branch is not ours to rewrite.
            let name = String::from_utf8(entry.name).map_err(|e| CommitError::Path(String::from_utf8_lossy(e.as_bytes()).into_owned()))?;
            let path = format!("{prefix}{name}");
            if entry.mode == DIRECTORY {
                open.push((format!("{path}/"), entry.id, depth + 1));
            } else {
                before.files.insert(path, (tree::mode(entry.mode), entry.id));
            }
        }
    }
    Ok(before)
}

enum Node<'a> {
    File(Mode, ObjectId),
    Directory(BTreeMap<&'a str, Node<'a>>),
}

fn build<'a>(files: &BTreeMap<&'a str, (Mode, ObjectId)>) -> Result<Node<'a>, CommitError> {
    let mut root = BTreeMap::new();
    for (path, (mode, id)) in files {
        let mut at = &mut root;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                if at.insert(part, Node::File(*mode, *id)).is_some() {
                    return Err(CommitError::Conflict((*path).to_owned()));
                }
                break;
            }
            match at.entry(part).or_insert_with(|| Node::Directory(BTreeMap::new())) {
                Node::Directory(inner) => at = inner,
                Node::File(..) => return Err(CommitError::Conflict((*path).to_owned())),
            }
        }
    }
    Ok(Node::Directory(root))
}

/// Writes a directory and those below it; what the parent has already is only named.
fn store_node(node: &Node<'_>, had: &BTreeSet<ObjectId>, odb: &git2::Odb<'_>, new: &mut BTreeSet<ObjectId>, fresh: &mut Fresh) -> ObjectId {
    let inner = match node {
        Node::File(_, id) => return *id,
        Node::Directory(inner) => inner,
    };
    // Git sorts a directory as if its name ended with a slash.
    let mut sorted: Vec<(String, &str, &Node<'_>)> = inner
        .iter()
        .map(|(name, node)| match node {
            Node::File(..) => ((*name).to_owned(), *name, node),
            Node::Directory(_) => (format!("{name}/"), *name, node),
        })
        .collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut content = Vec::new();
    for (_, name, node) in sorted {
        let (mode, id) = match node {
            Node::File(mode, id) => (mode.octal(), *id),
            Node::Directory(_) => ("40000", store_node(node, had, odb, new, fresh)),
        };
        content.extend_from_slice(mode.as_bytes());
        content.push(b' ');
        content.extend_from_slice(name.as_bytes());
        content.push(0);
        content.extend_from_slice(id.as_bytes());
    }
    let id = ObjectId::hash(ObjectKind::Tree, &content);
    if !had.contains(&id) && new.insert(id) && !fresh.contains_key(&id) && !Objects::known(odb, id) {
        fresh.insert(id, (ObjectKind::Tree, content.into()));
    }
    id
}

/// Refuses what Git, or a file system that the branch is checked out on, would not take or would take for something else.
fn check_path(path: &str) -> Result<(), CommitError> {
    let fine = !path.is_empty()
        && path.len() <= 4096
        && path.split('/').all(|part| {
            let dotgit = part.eq_ignore_ascii_case(".git") || part.to_ascii_lowercase().starts_with("git~");
            !part.is_empty() && part != "." && part != ".." && !dotgit && part.len() <= 255 && !part.contains(['\0', '\\', '\n', '\r'])
        });
    if fine { Ok(()) } else { Err(CommitError::Path(path.to_owned())) }
}
