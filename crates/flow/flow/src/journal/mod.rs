//! The journal of an incomplete file, which lists the groups that are durable.
//!
//! A transfer that was killed, or whose machine lost power, resumes from the journal and fetches
//! only groups that are not listed. A group's record is written after the group's bytes were
//! synced. An incomplete record is ignored.

mod record;

pub use record::{Identity, Parsed, begin, groups, parse};

use crate::file::irregular;
use crate::group::{Value, count};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Returns the limit on the bytes that are read of a journal for a file of `length` bytes. Records
/// beyond the limit are dropped. There is room for several records of each group.
fn most_bytes(length: u64) -> u64 {
    (1 << 16) + count(length).saturating_mul(4 * 64)
}

/// A journal that is open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Creates the journal of a transfer at `path`. Replaces an existing journal.
    ///
    /// # Errors
    /// The journal cannot be created, written or synced, or its name belongs to something that is
    /// not a regular file.
    pub fn begin(path: &Path, identity: &Identity) -> io::Result<Self> {
        let mut file = open(path, OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&begin(identity))?;
        file.sync_data()?;
        Ok(Self { file })
    }

    /// Opens the journal at `path` of a file of `length` bytes. Removes an incomplete record at its
    /// end. `None` if there is no valid journal.
    ///
    /// # Errors
    /// The journal exists, but cannot be opened, read or truncated, or is not a regular file.
    pub fn resume(path: &Path, length: u64) -> io::Result<Option<(Self, Parsed)>> {
        let mut file = match open(path, OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(most_bytes(length)).read_to_end(&mut bytes)?;
        let Some(parsed) = parse(&bytes) else { return Ok(None) };
        file.set_len(parsed.whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Some((Self { file }, parsed)))
    }

    /// Appends groups that are durable, and makes their records durable.
    /// # Errors
    /// The records cannot be written or synced. The groups may then have to be fetched again.
    pub fn append(&mut self, durable: &BTreeMap<u64, Value>) -> io::Result<()> {
        let mut bytes = Vec::new();
        groups(&mut bytes, durable);
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }
}

/// Returns the id of this machine's current boot; empty if unknown.
#[must_use]
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn open(path: &Path, more: OFlags) -> io::Result<File> {
    // `NOFOLLOW`, because another user may have placed a link there.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    match irregular(file.metadata()?.file_type()) {
        Some(kind) => {
            Err(io::Error::other(format!("is {kind}; remove it: the journal needs that name")))
        }
        None => Ok(file),
    }
}
