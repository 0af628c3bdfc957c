//! Memory aligned for direct I/O.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment of all reads and writes in memory and on disk, in bytes. A file is accessed by direct
/// I/O only if this is a multiple of the alignment that its device requires.
pub const BLOCK_BYTES: usize = 4096;

#[derive(Clone, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// An owned buffer of whole blocks, aligned to [`BLOCK_BYTES`]. Dereferences to its bytes.
pub struct AlignedBuf {
    blocks: Vec<Block>,
}

impl AlignedBuf {
    /// Allocates a zeroed buffer of at least `bytes`, rounded up to whole blocks.
    ///
    /// # Panics
    /// If there is not enough memory.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let count = bytes.div_ceil(BLOCK_BYTES);
        // Fresh memory from the kernel is zero, so that no page is touched before its first use.
        Self { blocks: Block::new_vec_zeroed(count).expect("memory for a buffer") }
    }

    /// Makes the buffer at least `bytes` long, keeping its contents; new bytes are zero.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub fn grow(&mut self, bytes: usize) {
        let count = bytes.div_ceil(BLOCK_BYTES);
        if count > self.blocks.len() {
            let mut grown = Self::zeroed(bytes);
            grown[..self.len()].copy_from_slice(self);
            *self = grown;
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.blocks.as_bytes()
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_bytes()
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} B)", self.len())
    }
}
