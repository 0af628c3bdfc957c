//! Versions of a file, as entity tags identify them.

use sprat_http::date::Moment;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// If the last change of a file is older than this, any later change is visible in the version. The
/// time is longer than the resolution of any filesystem's clock (2 s on FAT) plus one second,
/// because `is_settled` truncates `changed` to the second.
const SETTLED: Duration = Duration::from_secs(4);

/// Identifies a version of a file. A write to the file changes its version, as far as the kernel's
/// clock distinguishes changes. Before Linux 6.13 it distinguishes changes that are some
/// milliseconds apart. Since then it distinguishes any changes between which the file was examined.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Version {
    /// Length in bytes.
    pub size: u64,
    /// Modification time, which the file's owner can set.
    pub modified: Moment,
    /// Permissions: the low twelve bits of the mode.
    pub mode: u32,
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Version {
    /// Takes the version from the result of `fstat`.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        Self {
            size: metadata.len(),
            modified: Moment { seconds: metadata.mtime(), nanoseconds },
            mode: metadata.mode() & 0o7777,
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether any later write will certainly change the version, because the last change
    /// is older than the resolution of any filesystem's clock.
    #[must_use]
    pub(super) fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(self.changed.0.max(0).unsigned_abs());
        SystemTime::now().duration_since(UNIX_EPOCH + changed).is_ok_and(|since| since > SETTLED)
    }

    /// Returns the strong entity tag, with its quotes. It is a hash that does not reveal inode or
    /// device numbers.
    #[must_use]
    pub fn tag(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("sprat share, entity tag, 1");
        for number in [self.device, self.inode, self.size] {
            hasher.update(&number.to_le_bytes());
        }
        for number in [
            self.modified.seconds,
            self.modified.nanoseconds.into(),
            self.changed.0,
            self.changed.1,
        ] {
            hasher.update(&number.to_le_bytes());
        }
        format!("\"{}\"", &hasher.finalize().to_hex()[..24])
    }
}
