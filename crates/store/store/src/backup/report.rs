//! The results of a replay.

use sprat_wire::entry::SegmentHeader;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// A segment as it was before the restart.
#[derive(Debug)]
pub struct ReplayedSegment {
    /// The segment's id.
    pub id: u64,
    /// The contents of the segment's header entry.
    pub header: SegmentHeader,
    /// The segment's log, from the header entry on; every entry in it is checked.
    pub bytes: Vec<u8>,
    /// The position of each object and tombstone in `bytes`, and the hash of its table and key. The
    /// header entry is not among them.
    pub entries: Vec<(u32, u64)>,
}

/// The unfinished end of the newest head.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cut {
    /// The segment; `None` when not even its number can be read.
    pub segment: Option<u64>,
    /// Offset of the cut in the file, in bytes.
    pub offset: u64,
    /// The length of the segment's log now, in bytes.
    pub log_end: u32,
    /// Bytes of log cut off, as far as what is left there shows.
    pub bytes: u64,
    /// A description of what was found at the cut.
    pub found: String,
}

/// A frame whose contents are no longer needed; it is free now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Garbage {
    /// The frame.
    pub frame: u32,
    /// The offset in the file at which the frame begins, in bytes.
    pub offset: u64,
    /// The segment that the frame held; `None` when the beginning of the frame cannot be read.
    pub segment: Option<u64>,
}

/// The results of opening a log, with everything that was left out.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Segments delivered.
    pub segments: u64,
    /// Objects and tombstones in these segments.
    pub entries: u64,
    /// Bytes of log in these segments.
    pub bytes: u64,
    /// The end that was cut off the newest head, or a head that never began.
    ///
    /// Chunks are cut off only if no chunk header on disk says that they were durable: those of the
    /// very last commit (under `Buffered`, after a power failure, those since the last sync). A
    /// commit that was torn by a power failure and never acknowledged leaves the same trace as one
    /// that was acknowledged and *then* damaged on the medium. So damage to exactly the last commit
    /// before a crash is cut off and reported here, and the log opens. After a clean close there is
    /// no such doubt: the log with such damage does not open.
    pub cut: Option<Cut>,
    /// Frames with segments that no longer count, because they were freed before or no head ever
    /// listed them; also frames whose beginning cannot be read.
    pub garbage: Vec<Garbage>,
    /// Whether one of the two copies of the file header was damaged; it has been rewritten.
    pub header_repaired: bool,
    /// Whether the log was closed cleanly.
    pub clean: bool,
    /// Highest segment id found in the file, also among garbage; zero if there is none. New
    /// segments take higher ids.
    pub highest_segment: u64,
    /// Number of objects that were left out because their tables had been dropped, by table id.
    pub left_out: BTreeMap<u32, u64>,
    /// Time from the first read to the last segment delivered.
    pub elapsed: Duration,
}

/// The file is inconsistent in a way that an unfinished write cannot explain.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "{file} is damaged at offset {offset}{}: expected {expected}, found {found}; \
     nothing was changed: restore the file from a copy, or from other replicas",
    segment.map(|id| format!(" (segment {id})")).unwrap_or_default()
)]
pub struct Corruption {
    /// The file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The segment at this offset; `None` for the file's header.
    pub segment: Option<u64>,
    /// A description of what the file should have at this offset.
    pub expected: String,
    /// A description of what the file has at this offset.
    pub found: String,
}
