//! Where the files of backups are: a folder, or another place that the caller provides.

use rustix::fs::OFlags;
use rustix::io::Errno;
use sprat_host::replace;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The files of backups. A file's name has at most one slash, such as `points/NAME.json`.
///
/// Files are written whole, and most of them never again.
pub trait Storage: Send + Sync {
    /// Returns where a file is, for messages; where all files are if `name` is empty.
    fn place(&self, name: &str) -> String;

    /// Returns whether nothing is here, except what a lock needs.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn is_empty(&self) -> io::Result<bool>;

    /// Returns the files whose names begin with `part` and a slash: the rest of each name, and the
    /// length.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn list(&self, part: &str) -> io::Result<Vec<(String, u64)>>;

    /// Returns the bytes of a file; `None` if there is none of this name.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes a file, whole or not at all. When this returns, the file survives failures.
    ///
    /// # Errors
    /// The storage cannot be written, or the lock was lost.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The storage cannot be written, or the lock was lost.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Keeps others from locking the storage until it is dropped. If another process has locked it,
    /// returns what is known of that process.
    ///
    /// # Errors
    /// The storage cannot be written.
    fn lock(&mut self) -> io::Result<Option<String>>;

    /// Returns whether reading a file takes so long that a file that is needed again is better kept
    /// on this machine.
    fn is_remote(&self) -> bool;
}

/// Name of the file that is locked while a folder is changed.
const LOCK: &str = "lock";

/// A folder.
pub(crate) struct Disk {
    path: PathBuf,
    /// Held while the folder is changed.
    lock: Option<File>,
}

impl Disk {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), lock: None }
    }

    /// Returns the names of the entries of a folder; none if there is no such folder.
    fn entries(&self, folder: &str) -> io::Result<Vec<fs::DirEntry>> {
        match fs::read_dir(self.path.join(folder)) {
            Ok(list) => list.collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl Storage for Disk {
    fn place(&self, name: &str) -> String {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        path.display().to_string()
    }

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.entries("")?.iter().all(|entry| entry.file_name() == LOCK))
    }

    fn list(&self, part: &str) -> io::Result<Vec<(String, u64)>> {
        let file = |entry: &fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, entry.metadata()?.len()))
        };
        self.entries(part)?.iter().map(file).collect()
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        replace(&self.path.join(name), bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn lock(&mut self) -> io::Result<Option<String>> {
        fs::create_dir_all(&self.path)?;
        match sprat_disk::open_locked(&self.path.join(LOCK), OFlags::empty()) {
            Ok(lock) => self.lock = Some(lock),
            Err(Errno::WOULDBLOCK) => return Ok(Some("another process".to_owned())),
            Err(error) => return Err(error.into()),
        }
        Ok(None)
    }

    fn is_remote(&self) -> bool {
        false
    }
}
