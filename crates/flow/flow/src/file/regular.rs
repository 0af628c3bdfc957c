//! Opens only regular files for reading. To open a pipe would wait for a writer, and to open a
//! device may have side effects.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a path cannot be opened as a regular file.
#[derive(Debug, Error)]
pub enum RegularError {
    /// The path leads to something other than a regular file.
    #[error("{}: is {kind}, and only regular files are copied", path.display())]
    Other {
        /// The path.
        path: PathBuf,
        /// What is at the path, as a noun with its article, such as `a folder`.
        kind: &'static str,
    },
    /// The file cannot be opened or examined.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Opens the regular file at `path`, or the regular file to which a symbolic link at `path` leads,
/// and returns it with its metadata. Never waits for a pipe or a device. It checks the type before
/// it opens the file, and again afterwards, because the name may have been given to something else
/// in between.
///
/// # Errors
/// [`RegularError::Other`] if the path leads to something other than a regular file.
/// [`RegularError::Io`] if the file does not exist or cannot be opened.
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
        Some(kind) => Err(RegularError::Other { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

/// Returns a noun with its article, such as `a folder`, if the file is not a regular file.
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
