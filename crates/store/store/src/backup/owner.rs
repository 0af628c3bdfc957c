//! The owner of the segments in a file, and what depends on it.

use super::config::{
    MAX_ENDING_REPLICAS, MAX_OPEN, MAX_OPEN_REPLICAS, Options, SPARE_FRAMES, SPARE_FRAMES_OF_LOG,
};
use sprat_wire::frame::{BLOCK_BYTES, REPLICA_FILE};

/// The owner of the segments in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// This node's own log: each head is written after its predecessor, and the newest head lists
    /// the segments that belong to the log.
    Log,
    /// Replicas of other masters' segments, each independent of the others.
    Replicas,
}

impl Owner {
    /// Returns the largest number of segments open at once.
    pub(super) fn max_open(self) -> usize {
        match self {
            Self::Log => MAX_OPEN,
            Self::Replicas => MAX_OPEN_REPLICAS + MAX_ENDING_REPLICAS,
        }
    }

    /// Returns the number of frames that are made ready in advance.
    pub(super) fn spare_frames(self) -> usize {
        match self {
            Self::Log => SPARE_FRAMES_OF_LOG,
            Self::Replicas => SPARE_FRAMES,
        }
    }

    /// Returns the number of bytes of a frame that chunks may take: the last block of a replica's
    /// frame is a mark.
    pub(super) fn chunk_bytes(self, frame_bytes: u32) -> usize {
        match self {
            Self::Log => frame_bytes as usize,
            Self::Replicas => frame_bytes as usize - BLOCK_BYTES,
        }
    }

    /// Returns the server in the file's header.
    pub(super) fn server(self, options: &Options) -> u64 {
        assert!(options.server < REPLICA_FILE, "server {} is out of range", options.server);
        match self {
            Self::Log => options.server,
            Self::Replicas => options.server | REPLICA_FILE,
        }
    }
}
