//! What can go wrong once the log is open.

use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// What the disk was asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// To write log bytes.
    Write,
    /// To make what was written durable.
    Sync,
    /// To give the file room for more segments.
    Grow,
    /// To write the file header.
    Header,
    /// To wait for an answer.
    Wait,
}

impl fmt::Display for Operation {
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

/// The disk refused something. What the log holds from then on is unknown until it is opened again,
/// so nothing more is taken or reported durable.
#[derive(Clone, Debug, Error)]
#[error(
    "cannot {operation} {file} at offset {offset}: {}{source}; writes are refused until the log is opened again",
    if super::growth::is_full(source) { "the disk is full: " } else { "" }
)]
pub struct Failed {
    /// What was asked.
    pub operation: Operation,
    /// Of which file.
    pub file: String,
    /// Where in the file, bytes; zero where there is no place.
    pub offset: u64,
    /// What the operating system said.
    pub source: Arc<io::Error>,
}

/// Why bytes were not taken.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// An earlier failure.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The segment's frame cannot hold the bytes: seal the segment and go on in a new one.
    #[error("segment {segment} has room for {room} B more, not for {asked}")]
    NoRoom {
        /// The segment.
        segment: u64,
        /// What [`room`](super::Backup::room) said.
        room: usize,
        /// Bytes asked for.
        asked: usize,
    },
    /// The disk has yet to finish so many segments that another cannot begin: wait for progress.
    #[error("the disk is too many segments behind: wait for a commit before beginning another")]
    Behind,
    /// Every frame that the capacity allows is in use: free segments first.
    #[error("all {0} segment frames of the log are in use: no room for another segment")]
    NoFrame(u32),
}
