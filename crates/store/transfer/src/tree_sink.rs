//! Export to a directory tree.
//!
//! The tree is made in a new directory next to its destination, so that no link in an existing
//! destination can redirect a path. It gets its name when it is complete.

use super::publish::{parent_of, sync_directory};
use super::{Error, Item, ItemSink, OmitReason, Omitted, display_key};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The longest component of a path on Linux filesystems, in bytes.
const MAX_COMPONENT: usize = 255;

/// Writes every item as a file. If this is dropped without [`publish`](Self::publish), the tree is
/// removed.
#[derive(Debug)]
pub struct TreeSink {
    staging: TempDir,
    target: PathBuf,
    omitted: Omitted,
}

impl TreeSink {
    /// Creates a temporary directory next to `target`.
    ///
    /// # Errors
    /// When `target` exists and is not an empty directory, has no file name, or no directory can be
    /// created next to it.
    pub fn create(target: &Path) -> Result<Self, Error> {
        let parent = parent_of(target)?;
        if target.symlink_metadata().is_ok() && !is_empty_directory(target) {
            return Err(Error::Exists(target.to_owned()));
        }
        let staging = tempfile::Builder::new()
            .prefix(".sprat-export-")
            .permissions(Permissions::from_mode(0o777)) // less the umask, like any new directory
            .tempdir_in(parent)
            .map_err(|error| Error::io(parent, error))?;
        Ok(Self { staging, target: target.to_owned(), omitted: Omitted::default() })
    }

    /// Makes the tree durable and gives it its name; returns the items left out.
    ///
    /// # Errors
    /// When the disk fails, or a file or a directory with contents was created at the destination
    /// meanwhile.
    pub fn publish(self) -> Result<Omitted, Error> {
        let staging = self.staging.path();
        File::open(staging)
            .and_then(|directory| Ok(rustix::fs::syncfs(&directory)?))
            .map_err(|error| Error::io(staging, error))?;
        fs::rename(staging, &self.target).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
                Error::Exists(self.target.clone())
            }
            _ => Error::io(&self.target, error),
        })?;
        let _renamed = self.staging.keep();
        sync_directory(parent_of(&self.target)?)?;
        Ok(self.omitted)
    }
}

impl ItemSink for TreeSink {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        if item.is_reserved() {
            return Ok(());
        }
        let written = match check_path(&item.key) {
            Ok(path) => write_file(&self.staging.path().join(path), &item.value)?,
            Err(reason) => Err(reason),
        };
        if let Err(reason) = written {
            self.omitted.add(display_key(&item.key), reason);
        }
        Ok(())
    }

    fn omitted(&self) -> &Omitted {
        &self.omitted
    }
}

/// Returns the key as a path below the root; an error if it is not a plain relative path.
fn check_path(key: &[u8]) -> Result<&Path, OmitReason> {
    for component in key.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." | b".." => return Err(OmitReason::NotAPath),
            _ if component.contains(&0) => return Err(OmitReason::NotAPath),
            _ if component.len() > MAX_COMPONENT => return Err(OmitReason::LongPath),
            _ => {}
        }
    }
    Ok(Path::new(OsStr::from_bytes(key)))
}

/// Writes the file and creates its directories. The inner error is caused by the key, the outer one
/// by the disk.
fn write_file(path: &Path, value: &[u8]) -> Result<Result<(), OmitReason>, Error> {
    let written = match File::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().expect("below the staging directory");
            fs::create_dir_all(directory).and_then(|()| File::create(path))
        }
        other => other,
    }
    .and_then(|mut file| file.write_all(value));
    match written {
        Ok(()) => Ok(Ok(())),
        Err(error) => match error.kind() {
            io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists => Ok(Err(OmitReason::Conflict)),
            io::ErrorKind::InvalidFilename => Ok(Err(OmitReason::LongPath)),
            _ => Err(Error::io(path, error)),
        },
    }
}

fn is_empty_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
