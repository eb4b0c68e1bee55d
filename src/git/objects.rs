//! The object database of one repository on this machine, through libgit2; handles are kept, since opening one costs more than a read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use git2::{OdbLookupFlags, Repository};
use parking_lot::Mutex;

use crate::error::{ReadError, TransportError};
use crate::id::{ObjectId, ObjectKind};
use crate::pack::Packer;

/// Idle handles kept per repository.
const KEEP: usize = 8;
/// Up to so many new objects are written one by one; more make a pack (as `receive.unpackLimit` of Git).
const LOOSE: usize = 100;

/// A repository on this machine.
pub(crate) struct Objects {
    path: PathBuf,
    idle: Mutex<Vec<Repository>>,
    /// Bytes of objects read, for local repositories the measure of what a fetch costs.
    pub(crate) read: AtomicU64,
}

impl Objects {
    /// A repository that somebody else made.
    pub(crate) fn existing(path: &Path) -> Self {
        Self { path: path.to_path_buf(), idle: Mutex::new(Vec::new()), read: AtomicU64::new(0) }
    }

    /// Our own bare repository for what is fetched from elsewhere; left-overs of killed fetches are removed.
    pub(crate) fn mirror(path: &Path) -> Result<Self, TransportError> {
        if !path.join("HEAD").exists() {
            let mut options = git2::RepositoryInitOptions::new();
            options.bare(true).no_reinit(false).mkpath(true).external_template(false);
            Repository::init_opts(path, &options)?;
        }
        clean(&path.join("objects/pack")).map_err(|source| TransportError::Directory { source })?;
        Ok(Self::existing(path))
    }

    /// Lends a handle.
    pub(crate) fn with<T, E: From<TransportError>>(&self, work: impl FnOnce(&Repository) -> Result<T, E>) -> Result<T, E> {
        let kept = self.idle.lock().pop();
        let repository = match kept {
            Some(repository) => repository,
            None => Repository::open(&self.path).map_err(|source| match source.code() {
                git2::ErrorCode::NotFound => TransportError::NoRepository { url: self.path.display().to_string() },
                _ => TransportError::Objects { source },
            })?,
        };
        let out = work(&repository);
        let mut idle = self.idle.lock();
        if idle.len() < KEEP {
            idle.push(repository);
        }
        out
    }

    pub(crate) fn has(&self, id: ObjectId) -> Result<bool, TransportError> {
        self.with(|r| Ok(r.odb()?.exists(id.oid())))
    }

    /// Reads an object whole, when it is of this kind and not larger than `limit` bytes.
    pub(crate) fn object(&self, repository: &Repository, id: ObjectId, kind: ObjectKind, limit: u64) -> Result<Vec<u8>, ReadError> {
        let fail = |source| ReadError::Object { what: format!("{} {id}", kind.name()), source };
        let odb = repository.odb().map_err(fail)?;
        let (size, found) = odb.read_header(id.oid()).map_err(fail)?;
        if found != kind.libgit2() {
            return Err(fail(git2::Error::from_str("the object is of another kind")));
        }
        if size as u64 > limit {
            return Err(ReadError::TooLarge { size: size as u64, limit });
        }
        let object = odb.read(id.oid()).map_err(fail)?;
        self.read.fetch_add(size as u64, Ordering::Relaxed);
        Ok(object.data().to_vec())
    }

    /// The tree of a commit.
    pub(crate) fn tree_of(&self, repository: &Repository, commit: ObjectId) -> Result<ObjectId, ReadError> {
        let fail = |source| ReadError::Object { what: format!("commit {commit}"), source };
        let found = repository.find_commit(commit.oid()).map_err(fail)?;
        Ok(ObjectId::from_oid(found.tree_id()))
    }

    /// Stores new objects: few one by one, many as a pack.
    pub(crate) fn store<'a>(&self, objects: impl ExactSizeIterator<Item = (ObjectId, ObjectKind, &'a [u8])>) -> Result<(), TransportError> {
        if objects.len() == 0 {
            return Ok(());
        }
        self.with(|repository| {
            let odb = repository.odb()?;
            if objects.len() <= LOOSE {
                for (_, kind, content) in objects {
                    odb.write(kind.libgit2(), content)?;
                }
                return Ok(());
            }
            let mut packer = Packer::new();
            for (_, kind, content) in objects {
                packer.add(kind, content).map_err(|source| TransportError::Directory { source })?;
            }
            let pack = packer.finish();
            let mut writer = odb.packwriter()?;
            std::io::Write::write_all(&mut writer, &pack).map_err(|source| TransportError::Directory { source })?;
            writer.commit()?;
            Ok(())
        })
    }

    /// Whether the object is here, without looking at the disk again for new packs.
    pub(crate) fn known(odb: &git2::Odb<'_>, id: ObjectId) -> bool {
        odb.exists_ext(id.oid(), OdbLookupFlags::NO_REFRESH)
    }

    /// A pack of these objects, which are all here.
    pub(crate) fn pack(&self, ids: impl Iterator<Item = ObjectId>) -> Result<Vec<u8>, TransportError> {
        self.with(|repository| {
            let odb = repository.odb()?;
            let mut packer = Packer::new();
            for id in ids {
                let object = odb.read(id.oid())?;
                let Some(kind) = ObjectKind::of(object.kind()) else { continue };
                packer.add(kind, object.data()).map_err(|source| TransportError::Directory { source })?;
            }
            Ok(packer.finish())
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes temporary packs that a killed process left behind; those younger than an hour may be in use.
fn clean(directory: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let finished = name.starts_with("pack-") && (name.ends_with(".pack") || name.ends_with(".idx"));
        let age = entry.metadata()?.modified().ok().and_then(|t| SystemTime::now().duration_since(t).ok());
        if !finished && age.is_some_and(|a| a > Duration::from_secs(3600)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
