//! The options with which a log, or a file of replicas, is opened, and its limits.

use sprat_wire::SEGMENT_BYTES;
use sprat_wire::frame::FRAME_BYTES;
use std::time::Duration;

/// When an append is reported durable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// When the write survives a power failure. Open the disk for direct access.
    #[default]
    Sync,
    /// When the write survives the end of this process: the kernel has it. The kernel is made to
    /// write it to the disk about every [`SYNC_INTERVAL`]. Open the disk for cached access.
    Buffered,
}

/// The interval at which [`Durability::Buffered`] has the kernel sync what was written: bytes that
/// only the kernel has are at risk in a power failure for about this long.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Frames of a file of replicas that are made ready in advance, so that a segment that begins need
/// not wait for the file to grow. For a log more frames are made ready.
pub const SPARE_FRAMES: usize = 2;

/// Spare frames of a node's own log. When the file cannot grow, the cleaner needs this number of
/// spare frames to free other frames. Some of the spare frames are freed frames that wait for a
/// sync.
pub(super) const SPARE_FRAMES_OF_LOG: usize = sprat_log::RESERVED_SEGMENTS + SETTLING_FRAMES + 1;

/// Frames of a log on a full disk that are freed but must not be written again before the next
/// sync.
pub(super) const SETTLING_FRAMES: usize = 2;

/// Interval at which the growth of a file is retried when the disk has no room for it.
pub const GROW_AGAIN: Duration = Duration::from_secs(1);

/// The largest number of segments of a log that are not yet both sealed and written: a head, the
/// next one, and survivors. While this many are open, no other can begin.
pub const MAX_OPEN: usize = 16;

/// The largest number of replicas that can be appended to at once, of all masters together.
pub const MAX_OPEN_REPLICAS: usize = 256;

/// The largest number of replicas, in addition to the [`MAX_OPEN_REPLICAS`], that are sealed and
/// still being written.
pub(super) const MAX_ENDING_REPLICAS: usize = 64;

/// The largest number of threads that replay.
pub const MAX_REPLAY_THREADS: usize = 16;

/// How to open a log, or a file of replicas.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the cluster; a file of another cluster is refused.
    pub cluster: [u8; 16],
    /// The server that owns the file; a file of another server is refused.
    pub server: u64,
    /// When an append is reported durable.
    pub durability: Durability,
    /// The largest number of frames that the file may grow to, at least [`SPARE_FRAMES`]. A file
    /// that already has more keeps them.
    pub max_frames: u32,
    /// Threads that read and check segments at start, 1 to [`MAX_REPLAY_THREADS`].
    pub threads: usize,
    /// The largest number of bytes of log in a segment. An existing file must have been created
    /// with the same number.
    pub segment_bytes: u32,
    /// Bytes of a frame, for a new file: `segment_bytes` and room for chunk headers, in whole
    /// blocks.
    pub frame_bytes: u32,
}

impl Options {
    /// Returns the options for a log of `server` in `cluster`: [`Durability::Sync`], full-size
    /// segments, at most `max_frames` of them, and two threads that replay.
    #[must_use]
    pub fn new(cluster: [u8; 16], server: u64, max_frames: u32) -> Self {
        Self {
            cluster,
            server,
            durability: Durability::Sync,
            max_frames,
            threads: 2,
            segment_bytes: u32::try_from(SEGMENT_BYTES).expect("8 MB"),
            frame_bytes: u32::try_from(FRAME_BYTES).expect("9 MB"),
        }
    }
}
