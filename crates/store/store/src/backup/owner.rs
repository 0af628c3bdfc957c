//! Whose segments a file holds, and what follows from that.

use super::config::{
    MAX_ENDING_REPLICAS, MAX_OPEN, MAX_OPEN_REPLICAS, Options, SPARE_FRAMES, SPARE_FRAMES_OF_LOG,
};
use sprat_wire::frame::{BLOCK_BYTES, REPLICA_FILE};

/// Whose segments a file holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// This node's own log: heads come in order, and the newest says what belongs to it.
    Log,
    /// Replicas for masters elsewhere, each a matter of its own.
    Replicas,
}

impl Owner {
    /// Most segments open at once.
    pub(super) fn most_open(self) -> usize {
        match self {
            Self::Log => MAX_OPEN,
            Self::Replicas => MAX_OPEN_REPLICAS + MAX_ENDING_REPLICAS,
        }
    }

    /// Frames kept ready ahead of need.
    pub(super) fn spare_frames(self) -> usize {
        match self {
            Self::Log => SPARE_FRAMES_OF_LOG,
            Self::Replicas => SPARE_FRAMES,
        }
    }

    /// Bytes of a frame that chunks may take: the last block of a replica's is a mark.
    pub(super) fn chunk_bytes(self, frame_bytes: u32) -> usize {
        match self {
            Self::Log => frame_bytes as usize,
            Self::Replicas => frame_bytes as usize - BLOCK_BYTES,
        }
    }

    /// What the file's header says of its server.
    pub(super) fn server(self, options: &Options) -> u64 {
        assert!(options.server < REPLICA_FILE, "server {} is out of range", options.server);
        match self {
            Self::Log => options.server,
            Self::Replicas => options.server | REPLICA_FILE,
        }
    }
}
