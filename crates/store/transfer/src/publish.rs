//! A file that gets its name only when it is complete.

use super::Error;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Number of bytes that are buffered before a write.
const BUFFER_BYTES: usize = 256 << 10;

/// A file being written next to its destination. If this is dropped without
/// [`publish`](Self::publish), the file is removed.
#[derive(Debug)]
pub struct OutFile {
    writer: BufWriter<NamedTempFile>,
    target: PathBuf,
}

impl OutFile {
    /// Creates a temporary file next to `target`.
    ///
    /// # Errors
    /// When `target` exists, has no file name, or no file can be created next to it.
    pub fn create(target: &Path) -> Result<Self, Error> {
        let parent = parent_of(target)?;
        if target.symlink_metadata().is_ok() {
            return Err(Error::Exists(target.to_owned()));
        }
        let file = tempfile::Builder::new()
            .prefix(".sprat-export-")
            .permissions(Permissions::from_mode(0o666)) // less the umask, like any new file
            .tempfile_in(parent)
            .map_err(|error| Error::io(parent, error))?;
        Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, file), target: target.to_owned() })
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// When writing fails, or a file of that name was created meanwhile. That file is not changed.
    pub fn publish(self) -> Result<(), Error> {
        let at = |error| Error::io(&self.target, error);
        let file = self.writer.into_inner().map_err(|error| at(error.into_error()))?;
        file.as_file().sync_all().map_err(at)?;
        file.persist_noclobber(&self.target).map_err(|failed| match failed.error.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists(self.target.clone()),
            _ => at(failed.error),
        })?;
        sync_directory(parent_of(&self.target)?)
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Returns the directory of `target`.
pub(super) fn parent_of(target: &Path) -> Result<&Path, Error> {
    if target.file_name().is_none() {
        return Err(Error::NoName(target.to_owned()));
    }
    Ok(match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    })
}

/// Makes the names in `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::io(directory, error))
}
