//! Frames in a byte stream. A little-endian length of four bytes precedes each frame.

use std::io::IoSlice;
use std::ops::Range;

use crate::MAX_FRAME;

/// Length of a frame's length prefix, in bytes.
pub(super) const PREFIX: usize = 4;

/// The initial size and the largest size of a connection's read buffer, in bytes.
const INBOX_FIRST: usize = 16 << 10;
const INBOX_MOST: usize = 256 << 10;

/// An empty write buffer with a larger capacity than this, in bytes, is shrunk.
const OUTBOX_KEPT: usize = 64 << 10;

const _: () = assert!(PREFIX + MAX_FRAME <= INBOX_MOST);

/// A length that no frame has. The sender does not use this protocol, and the next frame cannot be
/// found.
#[derive(Debug)]
pub(super) struct BadLength;

/// Bytes that were read but not yet passed on as frames.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read filled the buffer. Then there may be more bytes, for which the buffer
    /// grows.
    filled: bool,
}

impl Inbox {
    /// Returns the space to read into, which is never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let kept = self.end - self.start;
        if kept == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0
            && (self.end == self.bytes.len() || self.missing() > self.bytes.len() - self.end)
        {
            // Only the start of a frame is left. Move it to the front of the buffer.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, kept);
        }
        let wanted = if self.filled { self.bytes.len() * 2 } else { INBOX_FIRST };
        let wanted = wanted.max(self.end + self.missing()).clamp(INBOX_FIRST, INBOX_MOST);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        debug_assert!(self.end < self.bytes.len());
        &mut self.bytes[self.end..]
    }

    /// Notes that `count` bytes were read into [`room`](Self::room). Returns whether they filled
    /// the room, so that there may be more to read.
    pub(super) fn filled(&mut self, count: usize) -> bool {
        self.end += count;
        assert!(self.end <= self.bytes.len());
        self.filled = self.end == self.bytes.len();
        self.filled
    }

    /// Returns the range of the next frame, if the frame is complete.
    pub(super) fn next_frame(&mut self) -> Result<Option<Range<usize>>, BadLength> {
        let Some(len) = self.length()? else { return Ok(None) };
        let start = self.start + PREFIX;
        if self.end - start < len {
            return Ok(None);
        }
        self.start = start + len;
        Ok(Some(start..start + len))
    }

    pub(super) fn get(&self, frame: Range<usize>) -> &[u8] {
        &self.bytes[frame]
    }

    /// Returns the length of the first frame, if its prefix is complete.
    fn length(&self) -> Result<Option<usize>, BadLength> {
        let Some(prefix) = self.bytes[self.start..self.end].first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        match usize::try_from(u32::from_le_bytes(*prefix)) {
            Ok(len) if (1..=MAX_FRAME).contains(&len) => Ok(Some(len)),
            _ => Err(BadLength),
        }
    }

    /// Returns the number of bytes that the first frame still lacks, as far as that is known. It is
    /// at least one.
    fn missing(&self) -> usize {
        let whole = match self.length() {
            Ok(Some(len)) => PREFIX + len,
            _ => PREFIX,
        };
        whole.saturating_sub(self.end - self.start).max(1)
    }
}

/// Bytes to be sent that the kernel has not taken yet.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
    /// Frames added since the outbox was last empty. All of them count as lost if the connection
    /// breaks, although the kernel may have taken some.
    frames: u64,
}

impl Outbox {
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns the number of frames added since the outbox was last empty.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Appends the length prefix and a frame of `len` bytes. Leaves out the first `skip` bytes of
    /// both, which are sent already.
    pub(super) fn push(&mut self, parts: &[IoSlice<'_>], len: usize, skip: usize) {
        // Move the pending bytes to the front once they are shorter than the part already sent.
        if self.start > self.bytes.len() / 2 {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
        self.frames += 1;
        let mut skip = skip;
        let mut append = |part: &[u8]| {
            let skipped = skip.min(part.len());
            self.bytes.extend_from_slice(&part[skipped..]);
            skip -= skipped;
        };
        append(&prefix(len));
        parts.iter().for_each(|part| append(part));
    }

    /// Drops the first `count` bytes, which the kernel has taken.
    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.bytes.len());
        if self.is_empty() {
            self.start = 0;
            self.frames = 0;
            self.bytes.clear();
            self.bytes.shrink_to(OUTBOX_KEPT);
        }
    }
}

/// Returns the length prefix of a frame.
pub(super) fn prefix(len: usize) -> [u8; PREFIX] {
    u32::try_from(len).expect("a frame's length is limited").to_le_bytes()
}
