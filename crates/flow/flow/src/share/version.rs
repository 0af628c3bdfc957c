//! One version of a file: what an entity tag stands for.

use sprat_http::date::Moment;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer than the grain of any filesystem's clock, which is 2 s at worst (FAT), and the second
/// that `changed` is cut to.
const SETTLED: Duration = Duration::from_secs(4);

/// What tells versions of a file apart. A file that is written has another time of change, to the
/// grain of the kernel's clock: some milliseconds before Linux 6.13, and since then always another
/// than one that was looked at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Version {
    /// Bytes.
    pub size: u64,
    /// When its bytes were changed, as far as its owner tells.
    pub modified: Moment,
    /// Permissions: the lowest twelve bits of the mode.
    pub mode: u32,
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Version {
    /// Of what `fstat` said.
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

    /// Whether a file that is written from now on will have another version for certain: its last
    /// change is longer ago than the grain of any clock that filesystems keep.
    #[must_use]
    pub(super) fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(self.changed.0.max(0).unsigned_abs());
        SystemTime::now().duration_since(UNIX_EPOCH + changed).is_ok_and(|since| since > SETTLED)
    }

    /// The strong entity tag, with its quotes. It tells nothing of the numbers it is made of.
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
