//! Sizes and a disk that the tests of logs and of files of replicas share.

use sprat_disk::{Access, FileDisk};
use sprat_store::backup::Durability;
use std::path::Path;

/// Bytes of a segment, and of the frame that it gets. Both are small, and the frame is hardly
/// larger than the segment, so that limits are reached often.
pub(crate) const SEGMENT: u32 = 16 << 10;
pub(crate) const FRAME: u32 = 20 << 10;

/// Opens a file with the access that its durability needs.
pub(crate) fn disk(path: &Path, durability: Durability) -> FileDisk {
    let access = match durability {
        Durability::Sync => Access::Direct,
        Durability::Buffered => Access::Cached,
    };
    FileDisk::open(path, access).unwrap()
}
