//! Frames in a byte stream: a length of four bytes, little-endian, then the frame.

use std::io::IoSlice;
use std::ops::Range;

use crate::MAX_FRAME;

/// Bytes of a frame's length.
pub(super) const PREFIX: usize = 4;

/// What a connection's read buffer begins with, and the most it grows to, bytes.
const INBOX_FIRST: usize = 16 << 10;
const INBOX_MOST: usize = 256 << 10;

/// Write buffers above this size are given back once empty.
const OUTBOX_KEPT: usize = 64 << 10;

const _: () = assert!(PREFIX + MAX_FRAME <= INBOX_MOST);

/// A length that no frame has: whoever sent it does not speak our tongue, and there is no finding
/// the next frame.
#[derive(Debug)]
pub(super) struct BadLength;

/// Bytes read and not yet handed out.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read filled the buffer: there is more, and a bigger one would have taken it.
    filled: bool,
}

impl Inbox {
    /// Where to read to. Never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let kept = self.end - self.start;
        if kept == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0
            && (self.end == self.bytes.len() || self.missing() > self.bytes.len() - self.end)
        {
            // Only the beginning of a frame is left here; make it the beginning of the buffer.
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

    /// Notes that `count` bytes were read to where [`room`](Self::room) said. Returns whether that
    /// filled it, so that there may be more.
    pub(super) fn filled(&mut self, count: usize) -> bool {
        self.end += count;
        assert!(self.end <= self.bytes.len());
        self.filled = self.end == self.bytes.len();
        self.filled
    }

    /// Where the next frame lies, if it is whole.
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

    /// Length of the first frame, if that much has come.
    fn length(&self) -> Result<Option<usize>, BadLength> {
        let Some(prefix) = self.bytes[self.start..self.end].first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        match usize::try_from(u32::from_le_bytes(*prefix)) {
            Ok(len) if (1..=MAX_FRAME).contains(&len) => Ok(Some(len)),
            _ => Err(BadLength),
        }
    }

    /// Bytes of the first frame that have not come, as far as known; at least one.
    fn missing(&self) -> usize {
        let whole = match self.length() {
            Ok(Some(len)) => PREFIX + len,
            _ => PREFIX,
        };
        whole.saturating_sub(self.end - self.start).max(1)
    }
}

/// Bytes the kernel has yet to take.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    start: usize,
    /// Frames in it, as far as not begun: what is lost with the connection.
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

    /// Frames that were put in since it was last empty.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Appends a frame of `len` bytes, without its first `skip`, which have gone, prefix included.
    pub(super) fn push(&mut self, parts: &[IoSlice<'_>], len: usize, skip: usize) {
        // Move what is left to the front when that is less than has gone.
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

    /// Drops the first `count` bytes: the kernel has them.
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

/// The length that goes before a frame.
pub(super) fn prefix(len: usize) -> [u8; PREFIX] {
    u32::try_from(len).expect("a frame's length is limited").to_le_bytes()
}
