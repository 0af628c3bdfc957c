//! The shared directory. It resolves the paths of requests, which never lead out of it.
//!
//! The kernel resolves paths beneath the root (`openat2` with `RESOLVE_BENEATH`). It follows
//! symbolic links as long as they stay inside, even while files are being moved. On a kernel
//! without that call, each name is opened separately, and no link is followed.

use crate::file::Destination;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Limit on the attempts to resolve a path that changes meanwhile.
const TRIES: usize = 16;

/// The first name in the paths of the server's own resources.
pub const RESERVED: &str = ".sprat";

/// A shared directory.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    path: PathBuf,
    hidden: bool,
    /// Whether the kernel lacks `openat2`.
    by_name: bool,
}

/// The file or directory to which a path leads.
#[derive(Debug)]
pub enum Found {
    /// A regular file, open for reading.
    File(File, Metadata),
    /// A directory, open for reading.
    Directory(File, Metadata),
}

/// Why no file or directory was found at a path.
#[derive(Debug)]
pub enum FindError {
    /// There is no such file or directory, or it is not shown.
    Missing,
    /// The operating system denies access.
    Forbidden,
    /// The path keeps changing, or too many files are open.
    Busy,
    /// The operating system's error.
    Io(io::Error),
}

impl Root {
    /// Opens the directory `path` to share it. `hidden` says whether to show names that begin with
    /// a dot.
    /// # Errors
    /// `path` is not a directory, or it cannot be read.
    pub fn open(path: &Path, hidden: bool) -> io::Result<Self> {
        let directory = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let tried = rustix::fs::openat2(
            &directory,
            ".",
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            RESOLVE,
        );
        let path = path.canonicalize()?;
        Ok(Self { directory, path, hidden, by_name: tried.is_err() })
    }

    /// Returns the directory's path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether a name is shown.
    #[must_use]
    pub fn shows(&self, name: &std::ffi::OsStr) -> bool {
        !name.as_bytes().starts_with(b".") || (self.hidden && !Destination::is_transfer_name(name))
    }

    /// Opens the file or directory at these names. No name may contain a slash or be `.` or `..`.
    /// # Errors
    /// `FindError::Missing` if there is no file or directory at these names, it is not shown, or
    /// the path leads out of the root. `FindError::Forbidden` if access is denied.
    /// `FindError::Busy` if the path keeps changing or too many files are open. Otherwise
    /// `FindError::Io`.
    pub fn find(&self, names: &[OsString]) -> Result<Found, FindError> {
        if names.iter().any(|name| !self.shows(name))
            || names.first().is_some_and(|name| name == RESERVED)
        {
            return Err(FindError::Missing);
        }
        // Check the type first, by `O_PATH`, because to open a device or a pipe may have side
        // effects.
        let seen =
            File::from(self.resolve(names, OFlags::PATH)?).metadata().map_err(FindError::Io)?;
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        let flags = match seen.file_type() {
            kind if kind.is_file() => flags,
            kind if kind.is_dir() => flags | OFlags::DIRECTORY,
            _ => return Err(FindError::Missing),
        };
        let file = File::from(self.resolve(names, flags)?);
        let found = file.metadata().map_err(FindError::Io)?;
        let kind = found.file_type();
        match (found.dev(), found.ino()) == (seen.dev(), seen.ino()) {
            true if kind.is_dir() => Ok(Found::Directory(file, found)),
            true if kind.is_file() => Ok(Found::File(file, found)),
            // The path now leads to something else.
            _ if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() => {
                Err(FindError::Missing)
            }
            _ => Err(FindError::Busy),
        }
    }

    /// Opens the directory at these names, so that files can be stored in it.
    /// # Errors
    /// `FindError::Missing` if there is no such directory, or it lies outside the root. The other
    /// variants have the same causes as for [`Root::find`].
    pub fn folder(&self, names: &[OsString]) -> Result<OwnedFd, FindError> {
        self.resolve(names, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the directory at these names. Creates the missing directories of the path. Returns
    /// whether this call created the last of them.
    /// # Errors
    /// `FindError::Forbidden` if this process may not create a directory there, or the filesystem
    /// is read-only. `FindError::Missing` if something other than a directory has one of the names.
    /// `FindError::Io` if a directory cannot be created for another reason.
    pub fn make(&self, names: &[OsString]) -> Result<(OwnedFd, bool), FindError> {
        match self.folder(names) {
            Err(FindError::Missing) if !names.is_empty() => {}
            found => return found.map(|folder| (folder, false)),
        }
        let (name, before) = names.split_last().expect("the root is there");
        let (above, _) = self.make(before)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok((self.folder(names)?, true)),
            Err(Errno::EXIST) => Ok((self.folder(names)?, false)), // another client was faster
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Err(FindError::Forbidden),
            Err(errno) => Err(FindError::Io(errno.into())),
        }
    }

    fn resolve(&self, names: &[OsString], flags: OFlags) -> Result<OwnedFd, FindError> {
        for _ in 0..TRIES {
            let result =
                if self.by_name { self.walk(names, flags) } else { self.beneath(names, flags) };
            match result {
                Ok(found) => return Ok(found),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::ACCESS | Errno::PERM) => return Err(FindError::Forbidden),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Err(FindError::Busy),
                // The path does not exist, or leads out of the root.
                Err(
                    Errno::NOENT
                    | Errno::NOTDIR
                    | Errno::LOOP
                    | Errno::XDEV
                    | Errno::NAMETOOLONG
                    | Errno::NXIO,
                ) => {
                    return Err(FindError::Missing);
                }
                Err(errno) => return Err(FindError::Io(errno.into())),
            }
        }
        Err(FindError::Busy)
    }

    fn beneath(&self, names: &[OsString], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if names.is_empty() { PathBuf::from(".") } else { names.iter().collect() };
        rustix::fs::openat2(&self.directory, path, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE)
    }

    fn walk(&self, names: &[OsString], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let Some((last, before)) = names.split_last() else {
            return rustix::fs::openat(
                &self.directory,
                ".",
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            );
        };
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::io::dup(&self.directory)?;
        for name in before {
            at = rustix::fs::openat(&at, name, step, Mode::empty())?;
        }
        rustix::fs::openat(&at, last, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }
}

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Resolves paths in both ways. The directory that contains the root also contains a secret
    /// file.
    #[test]
    fn nothing_outside_is_found() {
        let outside = tempfile::tempdir().expect("a directory");
        std::fs::write(outside.path().join("secret"), "x").expect("a file");
        let inside = outside.path().join("inside");
        std::fs::create_dir_all(inside.join("sub")).expect("a directory");
        std::fs::write(inside.join("sub/file"), "y").expect("a file");
        std::fs::write(inside.join(".hidden"), "z").expect("a file");
        symlink("../secret", inside.join("up")).expect("a link");
        symlink("..", inside.join("parent")).expect("a link");
        symlink(outside.path().join("secret"), inside.join("absolute")).expect("a link");
        symlink("/proc/self/root", inside.join("magic")).expect("a link");
        symlink("sub/file", inside.join("within")).expect("a link");
        symlink("loop", inside.join("loop")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, inside.join("pipe"), Mode::RUSR).expect("a pipe");
        for (by_name, hidden) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut root = Root::open(&inside, hidden).expect("a root");
            root.by_name |= by_name;
            let find = |path: &str| {
                let names: Vec<OsString> = path.split('/').map(OsString::from).collect();
                root.find(&names)
            };
            for path in [
                "up",
                "parent",
                "parent/secret",
                "absolute",
                "magic",
                "magic/etc",
                "loop",
                "pipe",
                "none",
                "sub/none",
            ] {
                assert!(matches!(find(path), Err(FindError::Missing)), "{path}: {:?}", find(path));
            }
            assert!(matches!(find("sub/file/x"), Err(FindError::Missing)));
            assert!(matches!(find("sub/file"), Ok(Found::File(_, meta)) if meta.len() == 1));
            assert!(matches!(find("sub"), Ok(Found::Directory(..))));
            assert!(matches!(root.find(&[]), Ok(Found::Directory(..))));
            assert_eq!(
                find("within").is_ok(),
                !root.by_name,
                "only the kernel can follow a link safely"
            );
            assert_eq!(find(".hidden").is_ok(), hidden);
            assert!(matches!(find(".sprat"), Err(FindError::Missing)));
            assert!(matches!(find(&"a".repeat(300)), Err(FindError::Missing)));
        }
    }
}
