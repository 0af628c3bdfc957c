//! What tests of files of frames share.

use sprat_disk::{Access, FileDisk};
use sprat_store::backup::Durability;
use std::path::Path;

/// Small segments and tight frames: everything that happens at the ends happens often.
pub(crate) const SEGMENT: u32 = 16 << 10;
pub(crate) const FRAME: u32 = 20 << 10;

/// A fixed sequence of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}

/// A file, opened as its durability wants it.
pub(crate) fn disk(path: &Path, durability: Durability) -> FileDisk {
    let access = match durability {
        Durability::Sync => Access::Direct,
        Durability::Buffered => Access::Cached,
    };
    FileDisk::open(path, access).unwrap()
}
