//! Where the bodies of a master's responses lie.

use crate::bodies::ResponseBuffers;
use crate::shares::Shares;
use sprat_log::{Log, Pin, Ref};

/// The body of a master's response: a number by which the RPC layer gathers and releases it.
#[derive(Clone, Copy, Debug)]
pub enum MasterBody {
    /// A value in the log, by the number of its pin.
    Value(u32),
    /// A buffer that was filled for the response.
    Made(u32),
}

impl From<u32> for MasterBody {
    fn from(made: u32) -> Self {
        Self::Made(made)
    }
}

/// Limit on the pinned values that sessions share. In addition each session may always pin one
/// value. Each pin keeps the cleaner from the memory of a segment.
pub const MAX_PINS: usize = 4096;

/// The bodies that responses in flight use.
pub(super) struct HeldBodies {
    /// Pinned values, each with the session that it is charged to; `None` at a free index.
    pins: Vec<Option<(Pin, u32)>>,
    free: Vec<u32>,
    shares: Shares,
    pub(super) made: ResponseBuffers,
}

impl Default for HeldBodies {
    fn default() -> Self {
        Self {
            pins: Vec::new(),
            free: Vec::new(),
            shares: Shares::new(MAX_PINS),
            made: ResponseBuffers::default(),
        }
    }
}

impl HeldBodies {
    /// Pins a value for a session; `None` when the session has used up its share.
    #[inline]
    pub(super) fn pin(
        &mut self,
        session: u32,
        log: &mut Log,
        reference: Ref,
    ) -> Option<MasterBody> {
        if !self.shares.admits(session) {
            return None;
        }
        self.shares.take(session);
        let index = self.free.pop().unwrap_or_else(|| {
            self.pins.push(None);
            u32::try_from(self.pins.len() - 1).expect("few")
        });
        self.pins[index as usize] = Some((log.pin(reference), session));
        Some(MasterBody::Value(index))
    }

    #[inline]
    pub(super) fn bytes<'a>(&'a self, log: &'a Log, body: MasterBody) -> &'a [u8] {
        match body {
            MasterBody::Value(index) => {
                let (pin, _) = self.pins[index as usize].as_ref().expect("pinned until released");
                log.bytes(pin)
            }
            MasterBody::Made(index) => self.made.bytes(index),
        }
    }

    #[inline]
    pub(super) fn release(&mut self, log: &mut Log, body: MasterBody) {
        match body {
            MasterBody::Value(index) => {
                let (pin, session) = self.pins[index as usize].take().expect("released once");
                log.unpin(pin);
                self.shares.give(session);
                self.free.push(index);
            }
            MasterBody::Made(index) => self.made.release(index),
        }
    }

    /// Returns the sessions' shares of the values that may be pinned.
    pub(super) fn pinned(&self) -> &Shares {
        &self.shares
    }
}
