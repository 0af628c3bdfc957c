//! Responses that are made, not found: buffers a reply's body is gathered from.

use sprat_wire::op::REPLICA_BYTES;

/// Most bodies in flight; a service that needs more answers "retry".
pub(crate) const MAX_BODIES: usize = 4096;

/// Largest buffer kept where it is for use again, bytes.
const KEEP_BYTES: usize = 128 << 10;

/// Longer ones kept for [`Bodies::make_long`], and the longest of them: a piece of a segment.
const SPARE_BUFFERS: usize = 8;
const SPARE_BYTES: usize = REPLICA_BYTES + 1024;

/// Buffers by number.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
}

impl Bodies {
    /// Fills a buffer by `fill` and returns its number; `None`, and nothing filled, when [`MAX_BODIES`] are in use.
    pub(crate) fn make(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.buffers.len() < MAX_BODIES => {
                self.buffers.push(Vec::new());
                u32::try_from(self.buffers.len() - 1).expect("MAX_BODIES fits")
            }
            None => return None,
        };
        let buffer = &mut self.buffers[index as usize];
        assert!(buffer.is_empty());
        fill(buffer);
        Some(index)
    }

    /// The same with a buffer that has held much before, if there is one: its memory need not be had anew.
    pub(crate) fn make_long(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Option<u32> {
        let spare = self.spare.pop();
        self.make(|out| {
            if let Some(spare) = spare {
                *out = spare;
            }
            fill(out);
        })
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
        self.free.push(index);
    }
}
