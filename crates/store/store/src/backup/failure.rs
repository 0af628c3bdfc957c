//! The errors of a log or file of replicas that is open.

use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// A kind of request to the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskOperation {
    /// Write log bytes.
    Write,
    /// Make what was written durable.
    Sync,
    /// Give the file room for more segments.
    Grow,
    /// Write the file header.
    Header,
    /// Wait for a completion.
    Wait,
}

impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Grow => "grow",
            Self::Header => "write the header of",
            Self::Wait => "wait for",
        })
    }
}

/// The disk failed. From then on the log's contents on disk are unknown until the log is opened
/// again, so no more bytes are taken, and no more are reported durable.
#[derive(Clone, Debug, Error)]
#[error(
    "cannot {operation} {file} at offset {offset}: {}{source}; writes are refused until the log is \
     reopened",
    if super::growth::is_full(source) { "the disk is full: " } else { "" }
)]
pub struct Failed {
    /// The request that failed.
    pub operation: DiskOperation,
    /// The file.
    pub file: String,
    /// Offset in the file, in bytes; zero where there is none.
    pub offset: u64,
    /// The system's error.
    pub source: Arc<io::Error>,
}

/// Why bytes were not taken.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// A request to the disk has failed before.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The segment's frame cannot hold the bytes: seal the segment and continue in a new one.
    #[error("segment {segment} has {room} B left, too few for {asked} B")]
    NoRoom {
        /// The segment.
        segment: u64,
        /// Number of bytes that [`room`](super::Backup::room) returned.
        room: usize,
        /// Number of bytes that were to be appended.
        asked: usize,
    },
    /// Too many segments are not finished on disk, or too many replicas are not sealed, so no other
    /// segment can begin: wait for progress.
    #[error("the disk is too many segments behind: wait for a commit before starting another")]
    Behind,
    /// Every frame that the capacity allows is in use: free segments first.
    #[error("all {0} segment frames of the log are in use: no room for another segment")]
    NoFrame(u32),
}
