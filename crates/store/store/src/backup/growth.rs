//! Makes the file longer, in the background, before the space is needed.
//!
//! Space is reserved first, without changing the file's size, so that a full disk is noticed before
//! anything depends on the space. Then zeroes are written, a piece at a time between commits,
//! because the first write to a block changes the filesystem's metadata, and would cost a journal
//! commit within a durable write. Then one sync makes all of it permanent, and the file's header
//! records the new length, so that a truncated file is noticed later. A crash before that leaves a
//! shorter file, which the next start extends.
//!
//! A full disk stops only the growth: what was reserved so far is released, fewer frames are tried,
//! and then the growth is retried [periodically](super::GROW_AGAIN). The existing frames stay in
//! use.

use sprat_disk::{AlignedBuf, Op};
use sprat_net::Nanos;
use std::io;
use std::ops::Range;

/// Bytes of zeroes in one write: well under a millisecond on the device, which is the longest that
/// a commit waits behind it.
const PIECE_BYTES: usize = 256 << 10;

/// The largest number of frames added at a time, so that the filesystem commits its journal for
/// growth only once per this many segments. While the disk has no room for them, growth is by one
/// frame.
pub(super) const GROW_FRAMES: u32 = 4;

/// The step under way.
enum Step {
    Reserve,
    /// Writes zeroes: where the current piece begins and how long it is.
    Zero(u64, usize),
    Sync,
    Header,
    Release,
}

/// The next thing that a growing file needs.
pub(super) enum Next {
    /// This operation.
    Do(Op),
    /// A write of the file's header with this number of frames.
    Header(u32),
    /// Nothing: these frames are ready.
    Ready(Range<u32>),
    /// Nothing: there was no room, and what was reserved is released.
    GivenUp,
}

/// The purpose of a step of growth, which decides what its failure means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// Reserves room, or fills it with zeroes: if the disk has none, only the growth ends.
    Reserve,
    /// Makes the new frames permanent: a failure concerns earlier writes as well.
    Finish,
    /// Releases the room that was reserved in vain.
    Release,
}

/// A disk that had no room for more frames.
pub(super) struct DiskFull {
    /// The offset in the file for which the disk had no room, in bytes.
    pub(super) offset: u64,
    /// The system's error.
    pub(super) source: io::Error,
    /// When to retry; `None` until the time is known.
    pub(super) retry_at: Option<Nanos>,
}

/// Returns whether an error says that the disk is full, or the user's quota is used up.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The growth of the file by some frames.
pub(super) struct Growth {
    frames: Range<u32>,
    bytes: Range<u64>,
    step: Step,
    zeroes: Option<AlignedBuf>,
}

impl Growth {
    /// Begins to grow by `frames`, which lie at `bytes`.
    pub(super) fn begin(frames: Range<u32>, bytes: Range<u64>) -> (Self, Op) {
        assert!(!frames.is_empty() && !bytes.is_empty());
        let reserve = Op::Reserve { offset: bytes.start, len: bytes.end - bytes.start };
        let zeroes = Some(AlignedBuf::zeroed(PIECE_BYTES));
        (Self { frames, bytes, step: Step::Reserve, zeroes }, reserve)
    }

    /// Returns the offset in the file, in bytes, at which the step in progress works.
    pub(super) fn offset(&self) -> u64 {
        match self.step {
            Step::Reserve | Step::Sync | Step::Release => self.bytes.start,
            Step::Header => 0,
            Step::Zero(offset, _) => offset,
        }
    }

    /// Returns the purpose of the step under way.
    pub(super) fn purpose(&self) -> Purpose {
        match self.step {
            Step::Reserve | Step::Zero(..) => Purpose::Reserve,
            Step::Sync | Step::Header => Purpose::Finish,
            Step::Release => Purpose::Release,
        }
    }

    /// Releases what was reserved so far, since there is no more room.
    pub(super) fn abandon(&mut self) -> Op {
        self.step = Step::Release;
        Op::Release { offset: self.bytes.start }
    }

    /// Returns what comes next after a completed step, which gives its buffer back.
    pub(super) fn advance(&mut self, buffer: Option<AlignedBuf>) -> Next {
        let from = match self.step {
            Step::Reserve => self.bytes.start,
            Step::Zero(offset, len) => {
                self.zeroes = buffer;
                offset + len as u64
            }
            Step::Sync => {
                self.step = Step::Header;
                return Next::Header(self.frames.end);
            }
            Step::Header => return Next::Ready(self.frames.clone()),
            Step::Release => return Next::GivenUp,
        };
        let left = self.bytes.end - from;
        if left == 0 {
            self.step = Step::Sync;
            return Next::Do(Op::Sync);
        }
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        self.step = Step::Zero(from, len);
        let buffer = self.zeroes.take().expect("the zeroes come back with every write");
        Next::Do(Op::Write { buffer, len, offset: from, durable: false })
    }
}
