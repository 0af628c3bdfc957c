//! The files of roots and identities: text, so that they can be copied as text.
//!
//! The first line names the kind of file. The secret parts and the certificate follow in base64,
//! broken into lines. Their last bytes are the first bytes of a SHA-256 checksum, by which an
//! incomplete copy is noticed.

use crate::identity::Identity;
use crate::root::Root;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::{SHA256, digest};
use rustix::fs::{CWD, Mode, OFlags};
use sprat_wire::certificate::{KEY_BYTES, MAX_CERTIFICATE};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The largest file accepted, in bytes; a larger file is refused as damaged.
pub const MAX_FILE: usize = 16 << 10;

/// First lines of the two kinds of files.
const ROOT: &str = "sprat root 1";
const IDENTITY: &str = "sprat identity 1";

/// The file contains only this number of bytes of the SHA-256 checksum: the first ones.
const SUM: usize = 8;

/// Base64 characters in a line.
const LINE: usize = 64;

/// Mode bits that give access to others than the owner; a file must have none of them.
const OTHERS: u32 = 0o077;

const _: () = assert!(3 * KEY_BYTES + MAX_CERTIFICATE + SUM < MAX_FILE / 2);

/// Why a root or identity could not be loaded or saved.
#[derive(Debug, Error)]
pub enum FileError {
    /// The operating system reported an error.
    #[error("{path}: {cause}")]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Users other than the owner have access to the file.
    #[error("{path}: others can read it (mode {mode:04o}): chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
    },
    /// The file is of another kind, or damaged.
    #[error("{path}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
}

impl Root {
    /// Loads a root from a file that only its owner can read.
    ///
    /// # Errors
    /// [`FileError::System`] when the file cannot be opened or read or is not UTF-8,
    /// [`FileError::Open`] when its mode gives others than its owner access, and
    /// [`FileError::Damaged`] when it is no root's file, is longer than `MAX_FILE`, or is damaged.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let bytes = read(path, ROOT)?;
        match bytes.as_chunks::<KEY_BYTES>() {
            ([seed, door_key], []) => Ok(Self::from_parts(*seed, *door_key)),
            _ => Err(damaged(path, format!("damaged: a root of {} bytes", bytes.len()))),
        }
    }

    /// Saves the root to a new file that only its owner can read.
    ///
    /// # Errors
    /// [`FileError::System`] when the file exists already, or cannot be created, written or synced.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write(path, ROOT, &[self.seed, self.door_key].concat())
    }
}

impl Identity {
    /// Loads an identity from a file that only its owner can read.
    ///
    /// # Errors
    /// [`FileError::System`] when the file cannot be opened or read or is not UTF-8,
    /// [`FileError::Open`] when its mode gives others than its owner access, and
    /// [`FileError::Damaged`] when it is no identity's file, is longer than `MAX_FILE`, or is
    /// damaged. An identity whose parts do not belong together counts as damaged.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let bytes = read(path, IDENTITY)?;
        let damage = |what: String| damaged(path, what);
        let (keys, certificate_bytes) = bytes
            .split_at_checked(3 * KEY_BYTES)
            .ok_or_else(|| damage(format!("damaged: an identity of {} bytes", bytes.len())))?;
        let &[secret, door_key, root] = keys.as_chunks::<KEY_BYTES>().0 else {
            unreachable!("three keys")
        };
        Self::from_parts(secret, door_key, root, certificate_bytes.to_vec())
            .map_err(|why| damage(why.to_string()))
    }

    /// Saves the identity to a new file that only its owner can read.
    ///
    /// # Errors
    /// [`FileError::System`] when the file exists already, or cannot be created, written or synced.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write(
            path,
            IDENTITY,
            &[&self.secret[..], &self.door_key, &self.root, &self.certificate_bytes].concat(),
        )
    }
}

fn damaged(path: &Path, what: String) -> FileError {
    FileError::Damaged { path: path.to_owned(), what }
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |cause| FileError::System { path, cause }
}

fn read(path: &Path, first: &str) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(system(path))?;
    let meta = file.metadata().map_err(system(path))?;
    let mode = meta.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(FileError::Open { path: path.to_owned(), mode });
    }
    if !meta.is_file() || meta.size() > MAX_FILE as u64 {
        return Err(damaged(path, format!("its first line is not `{first}`")));
    }
    let mut text = String::new();
    file.take(MAX_FILE as u64).read_to_string(&mut text).map_err(system(path))?;
    let mut lines = text.lines();
    match lines.next() {
        Some(line) if line == first => {}
        Some(ROOT) => {
            return Err(damaged(path, "this is a cluster's root; expected an identity".into()));
        }
        Some(IDENTITY) => {
            return Err(damaged(path, "this is an identity; expected a cluster's root".into()));
        }
        _ => return Err(damaged(path, format!("its first line is not `{first}`"))),
    }
    let coded: String = lines.map(str::trim).collect();
    let bytes =
        BASE64_STANDARD.decode(coded).map_err(|why| damaged(path, format!("damaged: {why}")))?;
    let (bytes, sum) = bytes
        .split_last_chunk::<SUM>()
        .ok_or_else(|| damaged(path, "damaged: it is too short".into()))?;
    if digest(&SHA256, bytes).as_ref()[..SUM] != *sum {
        return Err(damaged(path, "damaged: its checksum does not match".into()));
    }
    Ok(bytes.to_vec())
}

fn write(path: &Path, first: &str, bytes: &[u8]) -> Result<(), FileError> {
    let sum = digest(&SHA256, bytes);
    let coded = BASE64_STANDARD.encode([bytes, &sum.as_ref()[..SUM]].concat());
    let mut text = format!("{first}\n");
    for line in coded.as_bytes().chunks(LINE) {
        text.push_str(str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(file.map_err(|error| system(path)(error.into()))?);
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(system(path))
}
