//! Responses that are made, not found: buffers a reply's body is gathered from.

/// Most bodies in flight; a service that needs more answers "retry".
pub(crate) const MAX_BODIES: usize = 4096;

/// Largest buffer kept for use again, bytes.
const KEEP_BYTES: usize = 128 << 10;

/// Buffers by number.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
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

    /// The bytes of a buffer.
    #[must_use]
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        &self.buffers[index as usize]
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, index: u32) {
        let buffer = &mut self.buffers[index as usize];
        if buffer.capacity() > KEEP_BYTES {
            *buffer = Vec::new();
        }
        buffer.clear();
        debug_assert!(!self.free.contains(&index), "released twice");
        self.free.push(index);
    }
}
