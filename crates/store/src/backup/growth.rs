//! Making the file longer, ahead of need and in the background.
//!
//! Space is set aside first, so that a full disk shows before anyone depends on it, without changing the
//! file's size; then zeroes are written, a piece at a time between commits, because a block that was never
//! written costs its first writer a change of the filesystem's metadata, and with it a journal commit,
//! within every durable write; then one sync makes all of it permanent, and the file's header tells how long it is
//! now, so that one cut short later is noticed. A crash on the way leaves a shorter file, which the next start
//! continues.

use sprat_disk::{AlignedBuf, Op};
use std::ops::Range;

/// Bytes of zeroes in one write: well under a millisecond on the device, the longest a commit waits behind it.
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
}

/// What a growing file needs next.
pub(super) enum Next {
    Do(Op),
    /// A header that tells of so many frames.
    Header(u32),
    /// Nothing: these frames are ready.
    Ready(Range<u32>),
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
            Step::Reserve | Step::Sync => self.bytes.start,
            Step::Header => 0,
            Step::Zero(offset, _) => offset,
        }
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
