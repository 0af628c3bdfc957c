//! Responses that are made, not found: buffers a reply's body is gathered from.

use crate::shares::Shares;
use sprat_wire::op::REPLICA_BYTES;

/// Bodies in flight that sessions have [shares](Shares) of, beside one each; a service that needs
/// more answers "retry".
pub(crate) const MAX_BODIES: usize = 4096;

/// Most words of explanation in flight beside them; answers beyond do without.
const MAX_WORDS: usize = 4096;

/// Largest buffer kept where it is for use again, bytes.
const KEEP_BYTES: usize = 128 << 10;

/// Longer ones kept for [`Bodies::make_long`], and the longest of them: a piece of a segment.
const SPARE_BUFFERS: usize = 8;
const SPARE_BYTES: usize = REPLICA_BYTES + 1024;

/// Buffers by number.
#[derive(Debug)]
pub(crate) struct Bodies {
    buffers: Vec<Vec<u8>>,
    /// Whose each is; nobody's is one of words.
    owners: Vec<Option<u32>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    shares: Shares,
    words: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        let (buffers, owners, free, spare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { buffers, owners, free, spare, shares: Shares::new(MAX_BODIES), words: 0 }
    }
}

impl Bodies {
    /// Fills a buffer for a session by `fill` and returns its number; `None`, and nothing filled,
    /// when the session has its share.
    pub(crate) fn make(&mut self, session: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        if !self.shares.admits(session) {
            return None;
        }
        self.shares.take(session);
        Some(self.fill(Some(session), fill))
    }

    /// The same with a buffer that has held much before, if there is one: its memory need not be
    /// had anew.
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

    /// A buffer with an explanation; `None` when there are too many.
    pub(crate) fn explain(&mut self, words: &str) -> Option<u32> {
        if self.words >= MAX_WORDS {
            return None;
        }
        self.words += 1;
        Some(self.fill(None, |out| out.extend_from_slice(words.as_bytes())))
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

    /// What sessions have of them.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The bytes of a buffer.
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
            None => self.words -= 1,
        }
        self.free.push(index);
    }
}
