//! Object ids: twenty bytes of SHA-1, printed as forty hexadecimal digits.

use std::fmt;
use std::str::FromStr;

/// The name of a Git object (commit, tree, blob or tag).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 20]);

impl ObjectId {
    /// The id of "nothing": the old value of a reference that does not exist, the new value of one that is deleted.
    pub const ZERO: Self = Self([0; 20]);

    /// Takes the raw bytes of an id.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Whether this is [`ObjectId::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 20]
    }

    /// The first twelve digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }

    /// The id that an object of this kind with this content has.
    #[must_use]
    pub fn hash(kind: ObjectKind, content: &[u8]) -> Self {
        use sha1::Digest;
        let mut hasher = sha1::Sha1::new();
        hasher.update(format!("{} {}\0", kind.name(), content.len()).as_bytes());
        hasher.update(content);
        Self(hasher.finalize().into())
    }

    pub(crate) fn oid(self) -> git2::Oid {
        git2::Oid::from_bytes(&self.0).unwrap_or_else(|_| git2::Oid::ZERO_SHA1)
    }

    pub(crate) fn from_oid(oid: git2::Oid) -> Self {
        let mut raw = [0; 20];
        let bytes = oid.as_bytes();
        let n = bytes.len().min(20);
        raw[..n].copy_from_slice(&bytes[..n]);
        Self(raw)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// The text was not forty hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read object id: not forty hexadecimal digits")]
pub struct BadId;

impl FromStr for ObjectId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let mut raw = [0; 20];
        hex::decode_to_slice(text, &mut raw).map_err(|_| BadId)?;
        Ok(Self(raw))
    }
}

/// The four kinds of Git objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A revision.
    Commit,
    /// A directory.
    Tree,
    /// A file.
    Blob,
    /// An annotated tag.
    Tag,
}

impl ObjectKind {
    /// The word that Git hashes and prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }

    /// The number in a pack's entry header.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Tree => 2,
            Self::Blob => 3,
            Self::Tag => 4,
        }
    }

    pub(crate) fn libgit2(self) -> git2::ObjectType {
        match self {
            Self::Commit => git2::ObjectType::Commit,
            Self::Tree => git2::ObjectType::Tree,
            Self::Blob => git2::ObjectType::Blob,
            Self::Tag => git2::ObjectType::Tag,
        }
    }

    pub(crate) fn of(kind: git2::ObjectType) -> Option<Self> {
        match kind {
            git2::ObjectType::Commit => Some(Self::Commit),
            git2::ObjectType::Tree => Some(Self::Tree),
            git2::ObjectType::Blob => Some(Self::Blob),
            git2::ObjectType::Tag => Some(Self::Tag),
            git2::ObjectType::Any => None,
        }
    }
}
