//! The destination of a transfer, and how the complete file gets its name.
//!
//! While `NAME` is being received, its bytes are in `NAME.sprat-part`, and the journal is
//! `NAME.sprat-journal` in the same directory. `NAME` appears only when the file is complete and
//! durable.

use super::{irregular, xattrs};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sprat_disk::open_locked;
use sprat_http::xattrs::Xattrs;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Limit on the length of a name, in bytes, on common filesystems. If the name of a part or journal
/// would be longer, the file's name in it is shortened, and a hash is appended.
const NAME_BYTES: usize = 255;

const PART: &str = ".sprat-part";
const JOURNAL: &str = ".sprat-journal";

/// Permission bits that are copied: read, write and execute. Bits such as set-user-id are never
/// copied, because a file from another machine must not run with another user's rights.
const MODE_BITS: u32 = 0o777;

/// Why a file cannot get its name.
#[derive(Debug, Error)]
pub enum DestinationError {
    /// The path does not end in a name.
    #[error("{}: not the name of a file; add one", .0.display())]
    NoName(PathBuf),
    /// A file with the name exists.
    #[error("{}: exists; --force replaces it, another name keeps both", .0.display())]
    Exists(PathBuf),
    /// The name belongs to something that is not a regular file. Sprat never replaces it.
    #[error(
        "{}: is {kind}, which Sprat never replaces; remove it, or choose another name",
        path.display()
    )]
    Other {
        /// The destination's path.
        path: PathBuf,
        /// What is at the path, as a noun with its article, such as `a folder`.
        kind: &'static str,
    },
    /// An operation on the file or directory failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Attributes that a received file gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// Permission bits; `None` for 666 without the bits of the process's umask.
    pub mode: Option<u32>,
    /// Modification time; `None` leaves the time unchanged.
    pub modified: Option<SystemTime>,
    /// The user's extended attributes.
    pub xattrs: Xattrs,
}

/// The paths of a file that is to be received: its final path, its part, and its journal.
///
/// Open the part with [`Sink::open`](super::Sink::open) or [`Destination::create`], write it, then
/// call [`Destination::publish`], which renames it. [`Destination::discard`] removes part and
/// journal. A lock on the part prevents two transfers to one destination at the same time.
#[derive(Clone, Debug)]
pub struct Destination {
    target: PathBuf,
    part: PathBuf,
    journal: PathBuf,
}

impl Destination {
    /// Creates the destination for a file named `target`.
    ///
    /// # Errors
    /// [`DestinationError::NoName`] if `target` is empty, or ends in a slash or in `..`.
    pub fn new(target: &Path) -> Result<Self, DestinationError> {
        let no_name = || DestinationError::NoName(target.to_owned());
        let name = target.file_name().ok_or_else(no_name)?;
        if target.as_os_str().as_bytes().ends_with(b"/") {
            return Err(no_name());
        }
        let beside = |ending: &str| target.with_file_name(with_ending(name, ending));
        Ok(Self { target: target.to_owned(), part: beside(PART), journal: beside(JOURNAL) })
    }

    /// Creates a destination whose part and journal have hidden names: `.NAME.sprat-part`.
    ///
    /// # Errors
    /// [`DestinationError::NoName`] if `target` does not end in a file's name.
    pub fn hidden(target: &Path) -> Result<Self, DestinationError> {
        let name = target.file_name().ok_or_else(|| DestinationError::NoName(target.to_owned()))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        Ok(Self { target: target.to_owned(), ..Self::new(&target.with_file_name(hidden))? })
    }

    /// Returns the destination whose part has this name. `None` if it is not the name of a part. If
    /// the final name was shortened in the part's name, the result has the shortened name as its
    /// final name, and another journal than the transfer.
    #[must_use]
    pub fn from_part_name(name: &OsStr) -> Option<Self> {
        let stem = name.as_bytes().strip_suffix(PART.as_bytes())?;
        Self::new(Path::new(OsStr::from_bytes(stem)))
            .ok()
            .filter(|destination| destination.part.as_os_str() == name)
    }

    /// Returns whether a name is that of a part or of a journal.
    #[must_use]
    pub fn is_transfer_name(name: &OsStr) -> bool {
        [PART, JOURNAL].iter().any(|ending| name.as_bytes().ends_with(ending.as_bytes()))
    }

    /// Rejects an existing destination that is not a regular file: a folder, a pipe, a device, or a
    /// link to one of these. To rename a file over a device would remove the device.
    ///
    /// # Errors
    /// [`DestinationError::Other`] if the destination exists and is not a regular file.
    pub fn check(&self) -> Result<(), DestinationError> {
        match self.target.metadata().ok().and_then(|meta| irregular(meta.file_type())) {
            Some(kind) => Err(DestinationError::Other { path: self.target.clone(), kind }),
            None => Ok(()),
        }
    }

    /// Opens the part, empty and locked, and removes the journal. Use it for a small file that is
    /// written at once.
    /// # Errors
    /// `WouldBlock` if another transfer has the lock. Otherwise the part or the journal cannot be
    /// changed, or the part is not a regular file.
    pub fn create(&self) -> io::Result<File> {
        let file = open_locked(&self.part, OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        if let Some(kind) = irregular(file.metadata()?.file_type()) {
            return Err(io::Error::other(format!(
                "is {kind}; remove it: the incomplete file needs that name"
            )));
        }
        self.remove_journal()?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Removes the journal, because the part that it describes is about to be overwritten.
    /// # Errors
    /// The journal exists and cannot be removed.
    pub fn remove_journal(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the final path.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the path of the incomplete file.
    #[must_use]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Returns the path of the journal.
    #[must_use]
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// Renames the part to its final name, makes the name durable, and removes the journal. The
    /// part must be complete and durable. Without `force` an existing file is not replaced.
    /// # Errors
    /// [`DestinationError::Exists`] if there is a file with the name and `force` is false.
    /// [`DestinationError::Io`] if the part cannot be renamed; the part then still exists. Also
    /// [`DestinationError::Io`] if only the sync of the directory fails; the file then has its
    /// name.
    pub fn publish(&self, force: bool) -> Result<(), DestinationError> {
        self.rename(force)?;
        sync_directory(folder(&self.target))
    }

    /// Renames the part as [`Destination::publish`] does, but does not make the name durable.
    /// Rename many files this way, and then call [`sync_directory`] once.
    /// # Errors
    /// [`DestinationError::Exists`] if there is a file with the name and `force` is false.
    /// [`DestinationError::Io`] if the part cannot be renamed. In both cases the part still exists.
    pub fn rename(&self, force: bool) -> Result<(), DestinationError> {
        let failed =
            |errno: Errno| DestinationError::Io { path: self.target.clone(), source: errno.into() };
        if force {
            rustix::fs::rename(&self.part, &self.target).map_err(failed)?;
        } else {
            match rustix::fs::renameat_with(
                CWD,
                &self.part,
                CWD,
                &self.target,
                RenameFlags::NOREPLACE,
            ) {
                // Some filesystems lack the flag. The creation of a link fails too if the name
                // exists.
                Err(Errno::INVAL | Errno::NOSYS) => self.link(),
                other => other,
            }
            .map_err(|errno| match errno {
                Errno::EXIST => DestinationError::Exists(self.target.clone()),
                errno => failed(errno),
            })?;
        }
        let _ = std::fs::remove_file(&self.journal); // a journal without its part is ignored
        Ok(())
    }

    /// Removes the part and the journal.
    /// # Errors
    /// The part or the journal exists and cannot be removed.
    pub fn discard(&self) -> Result<(), DestinationError> {
        for path in [&self.journal, &self.part] {
            match std::fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(DestinationError::Io { path: path.clone(), source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn link(&self) -> rustix::io::Result<()> {
        rustix::fs::linkat(CWD, &self.part, CWD, &self.target, AtFlags::empty())?;
        rustix::fs::unlink(&self.part)
    }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// [`DestinationError::Io`] if the directory cannot be opened or synced.
pub fn sync_directory(directory: &Path) -> Result<(), DestinationError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::open(directory, flags, Mode::empty()).and_then(rustix::fs::fsync);
    synced
        .map_err(|errno| DestinationError::Io { path: directory.to_owned(), source: errno.into() })
}

/// Returns the directory of a path.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Attributes {
    /// Sets the attributes on an open file. If `mode` is `None`, the file gets the permissions of
    /// any new file of this process.
    /// # Errors
    /// The filesystem rejects an attribute. If this is an extended attribute, permissions and time
    /// are set nevertheless.
    pub fn apply_to(&self, file: impl AsFd) -> io::Result<()> {
        let mode = match self.mode {
            Some(mode) => mode & MODE_BITS,
            None => 0o666 & !umask(),
        };
        let xattrs = xattrs::set(&self.xattrs, &file);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        if let Some(modified) = self.modified {
            let last_modification = timespec(modified);
            let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            rustix::fs::futimens(&file, &Timestamps { last_access, last_modification })?;
        }
        xattrs
    }
}

/// Returns the permissions of any new directory of this process.
pub(crate) fn folder_mode() -> u32 {
    0o777 & !umask()
}

/// Returns the process's umask, or 077 if it cannot be read. Reads it from `/proc`, because the
/// system call can return the umask only while setting it, which would affect other threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o077)
}

fn timespec(time: SystemTime) -> Timespec {
    let nanos = |duration: std::time::Duration| i64::from(duration.subsec_nanos());
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: nanos(after),
        },
        Err(error) => {
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match nanos(before) {
                0 => Timespec { tv_sec: -seconds, tv_nsec: 0 },
                nanos => Timespec { tv_sec: -seconds - 1, tv_nsec: 1_000_000_000 - nanos },
            }
        }
    }
}

/// Appends an ending to a name. If the result would be too long, the name is cut, and a hash makes
/// it unique.
fn with_ending(name: &OsStr, ending: &str) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    if bytes.len() + ending.len() > NAME_BYTES {
        let hash = blake3::hash(&bytes).to_hex();
        let hash = &hash.as_bytes()[..16];
        bytes.truncate(NAME_BYTES - ending.len() - hash.len());
        // Some filesystems accept only UTF-8, so the cut must not split a character.
        while std::str::from_utf8(&bytes).is_err() && name.to_str().is_some() {
            bytes.pop();
        }
        bytes.extend(hash);
    }
    bytes.extend(ending.as_bytes());
    OsStr::from_bytes(&bytes).to_owned()
}
