//! Where a transfer writes, and how the whole file gets its name.
//!
//! `NAME` is written as `NAME.sprat-part`, with `NAME.sprat-journal` beside it, and appears only
//! when it is whole and durable.

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

/// Longest name that common filesystems take, bytes.
const NAME_BYTES: usize = 255;

const PART: &str = ".sprat-part";
const JOURNAL: &str = ".sprat-journal";

/// Permission bits that are kept: who may read, write and run. Never set-user-id and its like,
/// which only this machine may give.
const MODE_BITS: u32 = 0o777;

/// Why a file cannot have its name.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// It does not end in a name.
    #[error("{}: not the name of a file; add one", .0.display())]
    NoName(PathBuf),
    /// Something of that name is there.
    #[error("{}: exists; --force replaces it, another name keeps both", .0.display())]
    Exists(PathBuf),
    /// Something that is not a file has the name, and is never replaced by one.
    #[error("{}: is {what}, and stays; a file needs another name", path.display())]
    Other {
        /// The destination.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// What a file has besides its bytes; what is not known stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// When its bytes changed last.
    pub modified: Option<SystemTime>,
    /// Extended attributes of the user's.
    pub xattrs: Xattrs,
}

/// The names of a destination.
#[derive(Clone, Debug)]
pub struct Place {
    target: PathBuf,
    part: PathBuf,
    journal: PathBuf,
}

impl Place {
    /// The place of the file that will be `target`.
    ///
    /// # Errors
    /// [`PlaceError::NoName`].
    pub fn of(target: &Path) -> Result<Self, PlaceError> {
        let no_name = || PlaceError::NoName(target.to_owned());
        let name = target.file_name().ok_or_else(no_name)?;
        if target.as_os_str().as_bytes().ends_with(b"/") {
            return Err(no_name());
        }
        let beside = |ending: &str| target.with_file_name(with_ending(name, ending));
        Ok(Self { target: target.to_owned(), part: beside(PART), journal: beside(JOURNAL) })
    }

    /// The same, with names that are hidden while it is on its way: `.NAME.sprat-part`.
    ///
    /// # Errors
    /// [`PlaceError::NoName`].
    pub fn hidden(target: &Path) -> Result<Self, PlaceError> {
        let name = target.file_name().ok_or_else(|| PlaceError::NoName(target.to_owned()))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        Ok(Self { target: target.to_owned(), ..Self::of(&target.with_file_name(hidden))? })
    }

    /// The place whose part has this name; none: no part has, or it was too long to be kept whole.
    #[must_use]
    pub fn of_part(name: &OsStr) -> Option<Self> {
        let stem = name.as_bytes().strip_suffix(PART.as_bytes())?;
        Self::of(Path::new(OsStr::from_bytes(stem)))
            .ok()
            .filter(|place| place.part.as_os_str() == name)
    }

    /// Whether a name is one that a file has while it is on its way, or its journal.
    #[must_use]
    pub fn is_own(name: &OsStr) -> bool {
        [PART, JOURNAL].iter().any(|ending| name.as_bytes().ends_with(ending.as_bytes()))
    }

    /// Refuses a destination that is there and is no file: a folder, a pipe, a device, or a link to
    /// one of these. To rename a file over a device would take the device away.
    ///
    /// # Errors
    /// [`PlaceError::Other`].
    pub fn check(&self) -> Result<(), PlaceError> {
        match self.target.metadata().ok().and_then(|meta| irregular(meta.file_type())) {
            Some(what) => Err(PlaceError::Other { path: self.target.clone(), what }),
            None => Ok(()),
        }
    }

    /// Begins the part anew, empty, for nobody else: for a file that is written at once.
    ///
    /// # Errors
    /// The filesystem's, and that another transfer writes it.
    pub fn create(&self) -> io::Result<File> {
        let file = open_locked(&self.part, OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        if let Some(what) = irregular(file.metadata()?.file_type()) {
            return Err(io::Error::other(format!("is {what}; a file on its way needs that name")));
        }
        self.forget()?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Removes the journal: what is there of the file is about to be overwritten.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The name it will have.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The name of what there is of it.
    #[must_use]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// The name of the journal that tells what that is.
    #[must_use]
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// Gives the part, whole and durable, its name, durably, and removes the journal. Without
    /// `force` no file of that name is touched.
    ///
    /// # Errors
    /// [`PlaceError`]; the part is still there then.
    pub fn publish(&self, force: bool) -> Result<(), PlaceError> {
        self.name(force)?;
        sync_directory(folder(&self.target))
    }

    /// The same without waiting until the name is durable: for many files, before one
    /// [`sync_directory`].
    ///
    /// # Errors
    /// [`PlaceError`]; the part is still there then.
    pub fn name(&self, force: bool) -> Result<(), PlaceError> {
        let failed =
            |errno: Errno| PlaceError::Io { path: self.target.clone(), source: errno.into() };
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
                // Filesystems without that flag: a link fails as well when the name is taken.
                Err(Errno::INVAL | Errno::NOSYS) => self.link(),
                other => other,
            }
            .map_err(|errno| match errno {
                Errno::EXIST => PlaceError::Exists(self.target.clone()),
                errno => failed(errno),
            })?;
        }
        let _ = std::fs::remove_file(&self.journal); // a journal without a part is nothing
        Ok(())
    }

    /// Removes part and journal.
    ///
    /// # Errors
    /// One of them is there and cannot be removed.
    pub fn discard(&self) -> Result<(), PlaceError> {
        for path in [&self.journal, &self.part] {
            match std::fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(PlaceError::Io { path: path.clone(), source });
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
/// [`PlaceError::Io`].
pub fn sync_directory(directory: &Path) -> Result<(), PlaceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::open(directory, flags, Mode::empty()).and_then(rustix::fs::fsync);
    synced.map_err(|errno| PlaceError::Io { path: directory.to_owned(), source: errno.into() })
}

/// The directory of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Attributes {
    /// Gives them to a file. Without a mode it gets the one that any new file of this process has.
    ///
    /// # Errors
    /// The filesystem refuses; what it takes it has.
    pub fn give(&self, file: impl AsFd) -> io::Result<()> {
        let mode = match self.mode {
            Some(mode) => mode & MODE_BITS,
            None => 0o666 & !umask(),
        };
        let xattrs = xattrs::give(&self.xattrs, &file);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        if let Some(modified) = self.modified {
            let last_modification = timespec(modified);
            let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            rustix::fs::futimens(&file, &Timestamps { last_access, last_modification })?;
        }
        xattrs
    }
}

/// What this process takes from the mode of a new file. Read where the kernel tells it: asking by
/// setting it is for one thread only.
pub(crate) fn umask() -> u32 {
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

/// `name` with an ending; a name that would be too long is cut, and told from others by its hash.
fn with_ending(name: &OsStr, ending: &str) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    if bytes.len() + ending.len() > NAME_BYTES {
        let hash = blake3::hash(&bytes).to_hex();
        let hash = &hash.as_bytes()[..16];
        bytes.truncate(NAME_BYTES - ending.len() - hash.len());
        // A cut within a character would be refused by filesystems that want UTF-8.
        while std::str::from_utf8(&bytes).is_err() && name.to_str().is_some() {
            bytes.pop();
        }
        bytes.extend(hash);
    }
    bytes.extend(ending.as_bytes());
    OsStr::from_bytes(&bytes).to_owned()
}
