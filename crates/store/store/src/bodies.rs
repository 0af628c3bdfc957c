//! Buffers for the bodies of responses that are composed, because they are not in the log as such.

use crate::shares::Shares;
use sprat_wire::op::REPLICA_BYTES;

/// Limit on the buffers in flight that sessions [share](Shares). In addition each session may
/// always have one buffer. A service that needs more buffers asks the client to retry.
pub(crate) const MAX_BUFFERS: usize = 4096;

/// The largest number of explanations in flight at once, which are not counted among
/// [`MAX_BUFFERS`]. Further replies are sent without an explanation.
const MAX_TEXTS: usize = 4096;

/// Capacity, in bytes, up to which a released buffer keeps its memory.
const KEEP_BYTES: usize = 128 << 10;

/// The largest number of longer buffers kept for [`ResponseBuffers::make_long`], and their largest
/// capacity in bytes: a piece of a segment, and 1 KiB more.
const SPARE_BUFFERS: usize = 8;
const SPARE_BYTES: usize = REPLICA_BYTES + 1024;

/// Buffers by number. A service fills one for a reply, the RPC layer reads it by its number while
/// it sends the reply, and then releases it.
#[derive(Debug)]
pub(crate) struct ResponseBuffers {
    buffers: Vec<Vec<u8>>,
    /// The session that each buffer is charged to; `None` for an explanation.
    owners: Vec<Option<u32>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    shares: Shares,
    texts: usize,
}

impl Default for ResponseBuffers {
    fn default() -> Self {
        let (buffers, owners, free, spare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { buffers, owners, free, spare, shares: Shares::new(MAX_BUFFERS), texts: 0 }
    }
}

impl ResponseBuffers {
    /// Returns whether a session may have one more buffer.
    pub(crate) fn admits(&mut self, session: u32) -> bool {
        self.shares.admits(session)
    }

    /// Fills a buffer for a session with `fill` and returns its number. `None`, and nothing is
    /// filled, when the session has used up its share.
    pub(crate) fn make(&mut self, session: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        if !self.shares.admits(session) {
            return None;
        }
        self.shares.take(session);
        Some(self.fill(Some(session), fill))
    }

    /// Like [`make`](Self::make), but prefers a buffer that was long before, so that no memory need
    /// be allocated for it.
    pub(crate) fn make_long(
        &mut self,
        session: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Option<u32> {
        let spare = self.spare.pop();
        self.make(session, |out| {
            if let Some(spare) = spare {
                *out = spare;
            }
            fill(out);
        })
    }

    /// Fills a buffer with an explanation; `None` when there are too many.
    pub(crate) fn make_text(&mut self, texts: &str) -> Option<u32> {
        if self.texts >= MAX_TEXTS {
            return None;
        }
        self.texts += 1;
        Some(self.fill(None, |out| out.extend_from_slice(texts.as_bytes())))
    }

    fn fill(&mut self, owner: Option<u32>, fill: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.owners.push(None);
            u32::try_from(self.buffers.len() - 1).expect("few")
        });
        let buffer = &mut self.buffers[index as usize];
        assert!(buffer.is_empty());
        fill(buffer);
        self.owners[index as usize] = owner;
        index
    }

    /// Returns the sessions' shares of the buffers.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns the bytes of a buffer.
    #[must_use]
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        &self.buffers[index as usize]
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, index: u32) {
        let buffer = &mut self.buffers[index as usize];
        buffer.clear();
        if buffer.capacity() > KEEP_BYTES {
            let long = std::mem::take(buffer);
            if long.capacity() <= SPARE_BYTES && self.spare.len() < SPARE_BUFFERS {
                self.spare.push(long);
            }
        }
        debug_assert!(!self.free.contains(&index), "released twice");
        match self.owners[index as usize].take() {
            Some(session) => self.shares.give(session),
            None => self.texts -= 1,
        }
        self.free.push(index);
    }
}
