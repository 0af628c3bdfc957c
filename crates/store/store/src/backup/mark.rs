//! The mark in the last block of a replica's frame: which of the frame's chunks are free.

use sprat_disk::BLOCK_BYTES;
use sprat_wire::frame::{ChunkHeader, FREED, Seed};

/// Bytes of each of the two copies of a mark in its block. Because there are two, a flipped bit
/// does not bring back what was freed. If a torn write left two different copies, either copy may
/// be used.
pub(super) const MARK_BYTES: usize = BLOCK_BYTES / 2;

/// The contents of the last block of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mark {
    /// Everything with this incarnation or a lower one is free; zero means nothing is.
    Freed(u32),
    /// The mark is neither valid nor empty.
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
