//! What the last block of a frame of replicas says: which of what is in it is free.

use sprat_disk::BLOCK_BYTES;
use sprat_wire::frame::{ChunkHeader, FREED, Seed};

/// A mark lies in its block twice, in so many bytes each: a flipped bit does not bring back what
/// was freed. When two ends of it are there, of a write that was torn, either is right.
pub(super) const MARK_BYTES: usize = BLOCK_BYTES / 2;

/// What the last block of a frame says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    /// Whoever has this incarnation or a lower one is free; zero: nobody.
    Freed(u32),
    /// Nothing that makes sense, and it is not empty.
    Damaged,
}

impl Mark {
    pub(super) fn parse(seed: Seed, block: &[u8]) -> Self {
        let copies =
            block.chunks_exact(MARK_BYTES).filter_map(|copy| ChunkHeader::parse(seed, copy).ok());
        let marks = copies.map(|chunk| chunk.header).filter(|header| header.segment == FREED);
        match marks.map(|header| header.incarnation).max() {
            Some(incarnation) => Self::Freed(incarnation),
            None if block.iter().all(|byte| *byte == 0) => Self::Freed(0),
            None => Self::Damaged,
        }
    }
}
