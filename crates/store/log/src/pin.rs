//! Pins: they keep an entry's bytes in place after a call, because a response is gathered directly
//! from the log's memory.

use crate::log::{Log, Ref};

/// Keeps an entry's bytes in place. The entry may be overwritten, removed or moved meanwhile; the
/// bytes stay.
///
/// Return a pin with [`Log::unpin`]: until then the cleaner can neither free nor compact any part
/// of the entry's segment. Each pin thus blocks up to 8 MB of memory, so the caller must bound the
/// number and duration of pins.
#[derive(Debug)]
#[must_use = "a pin holds memory until it is given back"]
pub struct Pin {
    slot: u32,
    value: std::ops::Range<usize>,
    version: u64,
}

impl Pin {
    /// Returns the version of the object.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of bytes of the value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Returns whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }
}

impl Log {
    /// Pins the entry at a reference.
    pub fn pin(&mut self, reference: Ref) -> Pin {
        let entry = self.memory.entry(reference.address);
        let (version, value_len) = (entry.version, entry.value.len());
        let slot = self.memory.seglets.owner(reference.address);
        self.memory.pin(slot);
        let end = reference.address + reference.len;
        Pin { slot, value: end - value_len..end, version }
    }

    /// Returns the value of a pinned entry.
    #[inline]
    #[must_use]
    pub fn bytes(&self, pin: &Pin) -> &[u8] {
        &self.memory.bytes[pin.value.clone()]
    }

    /// Ends a pin.
    #[expect(clippy::needless_pass_by_value, reason = "a pin is given back once")]
    pub fn unpin(&mut self, pin: Pin) {
        self.memory.unpin(pin.slot);
    }
}
