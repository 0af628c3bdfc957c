//! What of a file has arrived for good: groups are written down here when their bytes are durable,
//! not before.
//!
//! So a transfer that was killed, or whose machine lost power, goes on from here: what the journal
//! has is on the disk, and only what it lacks is fetched. A group's record follows the sync of its
//! bytes, and a torn record is no record.

mod record;

pub use record::{Identity, Parsed, begin, groups, parse};

use crate::file::irregular;
use crate::group::{Value, count};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// Most bytes of a journal for a file of `length`: each group's record on its own, several times
/// over.
fn most_bytes(length: u64) -> u64 {
    (1 << 16) + count(length).saturating_mul(4 * 64)
}

/// A journal, open for more.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Begins a journal at `path`, in the place of one that may be there, for the transfer of a
    /// file.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn begin(path: &Path, identity: &Identity) -> io::Result<Self> {
        let mut file = open(path, OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&begin(identity))?;
        file.sync_data()?;
        Ok(Self { file })
    }

    /// Takes up the journal at `path`, for a file of `length` bytes, cutting a torn end. None:
    /// there is none that can be read.
    ///
    /// # Errors
    /// The filesystem's.
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

    /// Writes down groups that are durable, durably.
    ///
    /// # Errors
    /// The filesystem's. Then these groups may be fetched again, no worse.
    pub fn append(&mut self, durable: &BTreeMap<u64, Value>) -> io::Result<()> {
        let mut bytes = Vec::new();
        groups(&mut bytes, durable);
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }
}

/// The boot of this machine; empty when it does not tell.
#[must_use]
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn open(path: &Path, more: OFlags) -> io::Result<File> {
    // Not through a link that somebody put there.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    match irregular(file.metadata()?.file_type()) {
        Some(what) => Err(io::Error::other(format!("is {what}; a journal needs that name"))),
        None => Ok(file),
    }
}
