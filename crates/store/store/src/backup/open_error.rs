//! Why a log could not be opened.

use super::Failed;
use super::report::Corruption;
use std::io;
use thiserror::Error;

/// Why a log, or a file of replicas, could not be opened. The file is unchanged, except after
/// [`OpenError::Failed`].
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// A segment that belongs to the log is not in the file.
    #[error(
        "{file} lacks segment {segment}, which its newest head, segment {head}, lists; nothing was \
         changed"
    )]
    Missing {
        /// The file.
        file: String,
        /// The segment.
        segment: u64,
        /// The head that lists the segment.
        head: u64,
    },
    /// The file was written by a newer program.
    #[error(
        "{file} has format version {version}, newer than this program's: start it with a newer \
         one; nothing was changed"
    )]
    Newer {
        /// The file.
        file: String,
        /// The file's format version.
        version: u32,
    },
    /// The file belongs to another cluster or server, or has segments of another size.
    #[error("{file} is not this server's {what}: its {field} differs; nothing was changed")]
    Foreign {
        /// The file.
        file: String,
        /// The kind of file that it should be.
        what: &'static str,
        /// The field that differs.
        field: &'static str,
    },
    /// The file was cut short.
    #[error(
        "{file} was cut short: it has {has} segment frames of at least {had}; nothing was changed"
    )]
    Short {
        /// The file.
        file: String,
        /// Number of whole frames that it has.
        has: u32,
        /// Number of whole frames that the file had according to its header.
        had: u32,
    },
    /// The file could not be read.
    #[error("cannot read {file} at offset {offset}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file could be read but not written.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The receiver of segments stopped the replay.
    #[error("replay was stopped by its receiver")]
    Stopped,
}
