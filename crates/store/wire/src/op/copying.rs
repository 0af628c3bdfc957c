//! Copies of a server's log, segment by segment, for a backup of the store.
//!
//! A client that makes a backup first copies segments while the server goes on as usual. Then it
//! asks all servers to *cut* their logs. A server that has cut its log lets no client know of
//! anything that is written after the cut, until the client releases it, within [`MAX_HOLD`]. So
//! if a client learns of a change on one server and then makes one on another, no backup has the
//! second without the first. What the backup lacks of the segments up to the cut, it copies then.

use std::time::Duration;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest time for which a server holds answers back after a cut.
pub const MAX_HOLD: Duration = Duration::from_millis(500);

/// How long a server keeps the segments of a cut from the cleaner, counted from the last request
/// of the client that makes the backup. As long no other client may copy its log.
pub const COPY_IDLE: Duration = Duration::from_secs(10);

/// About how many bytes of a segment an answer holds. A server spends some 20 us on it.
pub const COPY_BYTES: usize = 64 << 10;

/// What a client that copies a server's log wants from the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CopyStep<'a> {
    /// List the segments that can be copied now. Body of the answer: [`CopySegment`]s, by ascending
    /// ids.
    List,
    /// Cut the log, and hold answers back. `number` of the answer: the number of the cut. Body: the
    /// [`CopySegment`]s that hold what the log holds now.
    Cut,
    /// Hold answers back no longer. [`NotFound`](super::Status::NotFound): the server does not any
    /// more, so the cut is void.
    Release {
        /// The number of the cut.
        cut: u64,
        /// The segments of the cut that are still to be read, by ascending ids.
        wanted: &'a [U64],
    },
    /// Return the next entries of a segment. `more`: there are further ones. `number`: the bytes
    /// read so far. [`NotFound`](super::Status::NotFound): the segment is gone, or the cursor is
    /// not where the last answer ended; then begin again with the segment.
    Read(&'a CopyCursor),
    /// End: the client is done.
    End,
}

/// A segment of a log, in a list of those to copy.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct CopySegment {
    /// The segment's id.
    pub id: U64,
    /// Bytes of its live entries; the copy is about as long, and at times longer.
    pub bytes: U64,
}

/// Where to continue to read a segment.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct CopyCursor {
    /// The number of the cut to which the segment belongs; zero: read it as it is now.
    pub cut: U64,
    /// The segment's id.
    pub segment: U64,
    /// Bytes of the segment that were read; zero to begin.
    pub from: U32,
}

const LIST: u8 = 0;
const CUT: u8 = 1;
const RELEASE: u8 = 2;
const READ: u8 = 3;
const END: u8 = 4;

impl<'a> CopyStep<'a> {
    /// Returns the step's code, its number and its bytes.
    pub(super) fn parts(self) -> (u8, u64, &'a [u8]) {
        match self {
            Self::List => (LIST, 0, &[]),
            Self::Cut => (CUT, 0, &[]),
            Self::Release { cut, wanted } => (RELEASE, cut, wanted.as_bytes()),
            Self::Read(cursor) => (READ, 0, cursor.as_bytes()),
            Self::End => (END, 0, &[]),
        }
    }

    /// Returns the step of this code; `None` if it is not valid.
    pub(super) fn of(code: u8, number: u64, bytes: &'a [u8]) -> Option<Self> {
        Some(match code {
            LIST if bytes.is_empty() => Self::List,
            CUT if bytes.is_empty() => Self::Cut,
            RELEASE => {
                let wanted = <[U64]>::ref_from_bytes(bytes).ok()?;
                Self::Release { cut: number, wanted }
            }
            READ => Self::Read(CopyCursor::ref_from_bytes(bytes).ok()?),
            END if bytes.is_empty() => Self::End,
            _ => return None,
        })
    }
}
