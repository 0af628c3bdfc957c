//! Making the file longer, ahead of need and in the background.
//!
//! Space is set aside first, so that a full disk shows before anyone depends on it, without
//! changing the file's size; then zeroes are written, a piece at a time between commits, because a
//! block that was never written costs its first writer a change of the filesystem's metadata, and
//! with it a journal commit, within every durable write; then one sync makes all of it permanent,
//! and the file's header tells how long it is now, so that one cut short later is noticed. A crash
//! on the way leaves a shorter file, which the next start continues.
//!
//! A disk that is full ends no more than the growth: what it has taken so far is given back, fewer
//! frames are tried, and then it is tried again [from time to time](super::GROW_AGAIN). The frames
//! that there are go on.

use sprat_disk::{AlignedBuf, Op};
use sprat_net::Nanos;
use std::io;
use std::ops::Range;

/// Bytes of zeroes in one write: well under a millisecond on the device, the longest a commit waits
/// behind it.
const PIECE_BYTES: usize = 256 << 10;

/// Most frames added at a time: the journal commits of growing come once in so many segments.
pub(super) const GROW_FRAMES: u32 = 4;

/// The step under way.
enum Step {
    Reserve,
    /// Writing zeroes; where the piece under way begins and how long it is.
    Zero(u64, usize),
    Sync,
    Header,
    Release,
}

/// What a growing file needs next.
pub(super) enum Next {
    Do(Op),
    /// A header that tells of so many frames.
    Header(u32),
    /// Nothing: these frames are ready.
    Ready(Range<u32>),
    /// Nothing: there was no room, and what was taken is given back.
    GivenUp,
}

/// What a step of growing does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Doing {
    /// Asks the disk for room: that there is none ends the growth alone.
    AsksForRoom,
    /// Makes the new frames permanent: that it fails concerns what was written before as well.
    Ends,
    /// Gives back what was taken in vain.
    GivesBack,
}

/// A disk that had no room for more frames.
pub(super) struct DiskFull {
    /// Where it had none, bytes from the file's beginning.
    pub(super) offset: u64,
    /// What the operating system said.
    pub(super) source: io::Error,
    /// When it is tried again; `None` until the time is known.
    pub(super) again_at: Option<Nanos>,
}

/// Whether an error says that the disk has no room, or none for us.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The file growing by some frames.
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

    /// Where the step under way works, bytes from the file's beginning.
    pub(super) fn offset(&self) -> u64 {
        match self.step {
            Step::Reserve | Step::Sync | Step::Release => self.bytes.start,
            Step::Header => 0,
            Step::Zero(offset, _) => offset,
        }
    }

    /// What the step under way does.
    pub(super) fn doing(&self) -> Doing {
        match self.step {
            Step::Reserve | Step::Zero(..) => Doing::AsksForRoom,
            Step::Sync | Step::Header => Doing::Ends,
            Step::Release => Doing::GivesBack,
        }
    }

    /// There is no room: gives back what was taken so far.
    pub(super) fn give_up(&mut self) -> Op {
        self.step = Step::Release;
        Op::Release { offset: self.bytes.start }
    }

    /// The step is done, its buffer back: what comes next.
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
