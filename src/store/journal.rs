//! SQLite's write-ahead log as a file: longer than what is in it, and brought to the disk after each commit.
//!
//! Overwriting bytes that a file already has costs the disk one flush; growing a file costs the file system's journal two
//! more. So the log gets its length ahead of time, and only data is flushed, which SQLite by itself does not do. A reader of
//! the log stops at the zeros: a frame has a page number, which is never zero.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes by which the log grows at a time.
const STEP: usize = 1 << 20;

/// The log beside a database.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Its length when it last grew.
    length: u64,
}

impl Journal {
    /// The log of an open database.
    pub(crate) fn open(database: &Path) -> io::Result<Self> {
        let database = database.canonicalize()?;
        let mut path = OsString::from(&database);
        path.push("-wal");
        let file = OpenOptions::new().write(true).open(path)?;
        if let Some(folder) = database.parent() {
            // The names of both files, too, must outlive a power failure.
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { length: file.metadata()?.len(), file })
    }

    /// Brings what was committed to the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length > self.length {
            // SQLite came to the end and made it longer. Where there is no room to go ahead, it goes on like that.
            self.length = match self.grow(length) {
                Ok(()) => length + STEP as u64,
                Err(_) => length,
            };
        }
        self.file.sync_data()
    }

    fn grow(&mut self, from: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(from))?;
        self.file.write_all(&vec![0; STEP])
    }

    /// One that cannot be brought to any disk.
    #[cfg(test)]
    pub(crate) fn broken() -> Self {
        let (_, writer) = io::pipe().unwrap();
        Self { file: File::from(std::os::fd::OwnedFd::from(writer)), length: 0 }
    }
}
