//! Opening what is to be read, if it is a regular file. A pipe would hold its reader until somebody
//! writes, and to open a device may do something: neither is ever opened.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there is no file to read.
#[derive(Debug, Error)]
pub enum RegularError {
    /// Something else has the name.
    #[error("{}: is {what}, and only regular files are copied", path.display())]
    Other {
        /// The path.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Opens the regular file at `path`, or the one that a symbolic link there leads to, and returns it
/// with its metadata. The call never waits: what is not a regular file is refused before it is
/// opened, and again after, in case the name was given to something else meanwhile.
///
/// # Errors
/// [`RegularError`].
pub fn open_regular(path: &Path) -> Result<(File, Metadata), RegularError> {
    let failed = |source| RegularError::Io { path: path.to_owned(), source };
    check(path, &path.metadata().map_err(failed)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    let meta = file.metadata().map_err(failed)?;
    check(path, &meta)?;
    Ok((file, meta))
}

fn check(path: &Path, meta: &Metadata) -> Result<(), RegularError> {
    match irregular(meta.file_type()) {
        Some(what) => Err(RegularError::Other { path: path.to_owned(), what }),
        None => Ok(()),
    }
}

/// Names what a file is that is not a regular one.
#[must_use]
pub fn irregular(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}
