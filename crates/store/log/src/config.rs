//! The configuration of a log.

use crate::table::ADDRESS_BITS;
use sprat_wire::entry::HEADER_BYTES;
use sprat_wire::{SEGLET_BYTES, SEGLETS_PER_SEGMENT, SEGMENT_BYTES};
use std::ops::RangeInclusive;
use thiserror::Error;

/// The least memory of a log, in bytes.
pub const MIN_MEMORY: usize = 64 * SEGLET_BYTES;

/// Seglets of the shortest segment that [`Config::new`] chooses.
const MIN_SEGMENT_SEGLETS: usize = 8;

/// The largest memory of a log, in bytes (256 GB less one seglet): the limit of the hash table's
/// addresses. A configuration with more memory is refused.
pub const MAX_MEMORY: usize = (1 << ADDRESS_BITS) - SEGLET_BYTES;

/// Segments on disk that writers leave to the cleaner: the survivors of one combination, and the
/// head that lists them.
pub(crate) const CLEANER_SEGMENTS: usize = 6;

/// Segments on disk that writers leave to removals when the disk is full, in addition to
/// [`CLEANER_SEGMENTS`]: a removal needs room for its tombstone.
pub(crate) const REMOVAL_SEGMENTS: usize = 2;

/// Segments that a disk must have room for in addition to the segments in use, so that a log on it
/// can be emptied: see [`crate::Log::limit_disk`].
pub const RESERVED_SEGMENTS: usize = CLEANER_SEGMENTS + REMOVAL_SEGMENTS;

/// Whether segments are replicated to a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// Every segment has a replica on disk. The caller writes the replica and reports its progress:
    /// see [`crate::Log::next_pending`].
    Tracked,
    /// There is no disk: entries count as durable once they are in memory, and removals need no
    /// tombstones.
    Volatile,
}

/// The configuration of a log. [`Config::new`] returns the usual configuration for a size of
/// memory.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes for the log; the hash table takes about 10 bytes an object in addition.
    pub memory: usize,
    /// Seed of the hash of keys. Cursors of scans stay valid, also across restarts, only while the
    /// seed stays the same.
    pub seed: u64,
    /// Whether there is a disk.
    pub durability: Durability,
    /// The largest length of a segment, in bytes: a multiple of a seglet, at most 8 MB and at most
    /// an eighth of the memory. A head's header, with eight bytes for each segment on disk, must
    /// fit into half of a segment. An entry that does not fit into a segment after the header is
    /// refused.
    pub segment_bytes: usize,
    /// The largest number of segments with a replica on disk at any time, including segments that
    /// wait to be freed.
    pub max_segments_on_disk: usize,
}

/// Why a log cannot have this configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The memory is below [`MIN_MEMORY`] or above [`MAX_MEMORY`].
    #[error("memory of {0} bytes is outside the limits, {MIN_MEMORY} to {MAX_MEMORY}")]
    Memory(usize),
    /// The length of a segment is no multiple of a seglet, is too long, or leaves too little room
    /// for a digest.
    #[error(
        "segments of {0} bytes: want a multiple of {SEGLET_BYTES}, at most {SEGMENT_BYTES} and an \
         eighth of the memory, with room for a digest"
    )]
    SegmentBytes(usize),
    /// Too few segments on disk to hold what fits in memory.
    #[error("{given} segments on disk are too few, {needed} are needed")]
    SegmentsOnDisk {
        /// The number of segments on disk in the configuration.
        given: usize,
        /// The smallest number that is permitted.
        needed: usize,
    },
    /// The configuration allows too many segments on disk for the memory: the half-filled last
    /// seglet of each segment would take too much of the memory.
    #[error("{given} segments on disk are too many for the memory; the limit is {most}")]
    SegmentsForMemory {
        /// The number of segments on disk in the configuration.
        given: usize,
        /// The largest number that is permitted.
        most: usize,
    },
    /// The address space could not be reserved.
    #[error("cannot reserve memory: {0}")]
    Reserve(#[from] std::io::Error),
}

impl Config {
    /// Returns the usual configuration for `memory` bytes of memory. A segment has a 32nd of the
    /// memory, but at least 512 KB and at most 8 MB. From 64 MB of memory on, objects of any
    /// permitted size fit. The disk may hold 16 more than twice the segments that fit into the
    /// memory.
    #[must_use]
    pub fn new(memory: usize, durability: Durability) -> Self {
        let seglets = memory / 32 / SEGLET_BYTES;
        Self::with_segments(
            memory,
            seglets.clamp(MIN_SEGMENT_SEGLETS, SEGLETS_PER_SEGMENT) * SEGLET_BYTES,
            durability,
        )
    }

    /// Returns the configuration for a log whose segments have this length, also if the log was
    /// made with another amount of memory. `memory` must be within
    /// [`memory_for`](Self::memory_for).
    #[must_use]
    pub fn with_segments(memory: usize, segment_bytes: usize, durability: Durability) -> Self {
        let memory = memory / SEGLET_BYTES * SEGLET_BYTES;
        Self {
            memory,
            seed: 0,
            durability,
            segment_bytes,
            max_segments_on_disk: 2 * memory / segment_bytes + 16,
        }
    }

    /// Returns the range of memory, in bytes, for a log with segments of this length: a segment is
    /// at most an eighth of the memory, and the digest of a full log fits into half a segment.
    #[must_use]
    pub fn memory_for(segment_bytes: usize) -> RangeInclusive<usize> {
        let listed = (segment_bytes / 2 - 64) / 8;
        let most = (listed - 2 * CLEANER_SEGMENTS) * 2 / 3 * segment_bytes;
        (8 * segment_bytes).max(MIN_MEMORY)..=most.min(MAX_MEMORY)
    }

    /// Returns the smallest number of segments on disk that can hold everything that fits in
    /// memory, and that leaves room for the cleaner.
    #[must_use]
    pub fn least_segments_on_disk(&self) -> usize {
        self.memory / self.segment_bytes * 3 / 2 + 2 * CLEANER_SEGMENTS
    }

    /// Returns the largest number of segments on disk: one for every two seglets. With more, the
    /// half-filled last seglets of the segments would leave too little memory.
    #[must_use]
    pub fn most_segments_on_disk(&self) -> usize {
        self.seglets() / 2
    }

    /// Seglets of the arena.
    pub(crate) fn seglets(&self) -> usize {
        self.memory / SEGLET_BYTES
    }

    /// Seglets that may be lost to the ends of segments: half a seglet for each segment on disk.
    pub(crate) fn seglets_lost(&self) -> usize {
        self.max_segments_on_disk / 2
    }

    /// Returns the number of bytes of a head's header when the disk has the largest number of
    /// segments.
    pub(crate) fn header_bytes_max(&self) -> usize {
        HEADER_BYTES + 24 + 8 * self.max_segments_on_disk
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&self.memory) {
            return Err(ConfigError::Memory(self.memory));
        }
        let segment = self.segment_bytes;
        let fits = (SEGLET_BYTES..=SEGMENT_BYTES.min(self.memory / 8)).contains(&segment);
        if !fits || !segment.is_multiple_of(SEGLET_BYTES) || self.header_bytes_max() > segment / 2 {
            return Err(ConfigError::SegmentBytes(segment));
        }
        let needed = self.least_segments_on_disk();
        if self.max_segments_on_disk < needed {
            return Err(ConfigError::SegmentsOnDisk { given: self.max_segments_on_disk, needed });
        }
        let most = self.most_segments_on_disk();
        if self.max_segments_on_disk > most {
            return Err(ConfigError::SegmentsForMemory { given: self.max_segments_on_disk, most });
        }
        Ok(())
    }
}
