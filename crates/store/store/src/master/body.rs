//! What a response of the master is gathered from.

use crate::bodies::Bodies;
use crate::shares::Shares;
use sprat_log::{Log, Pin, Ref};

/// Memory that a response is gathered from.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A value in the log, by the number of its pin.
    Value(u32),
    /// A buffer made for it.
    Made(u32),
}

impl From<u32> for Body {
    fn from(made: u32) -> Self {
        Self::Made(made)
    }
}

/// Values pinned at once that sessions have shares of, beside one each; each keeps a segment's
/// memory from the cleaner.
pub const MAX_PINS: usize = 4096;

/// Bodies handed out and not yet given back.
pub(super) struct Held {
    /// Values, and for which session each is held.
    pins: Vec<Option<(Pin, u32)>>,
    free: Vec<u32>,
    shares: Shares,
    pub(super) made: Bodies,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            pins: Vec::new(),
            free: Vec::new(),
            shares: Shares::new(MAX_PINS),
            made: Bodies::default(),
        }
    }
}

impl Held {
    /// Pins a value for a session; `None` when that has its share of them.
    #[inline]
    pub(super) fn pin(&mut self, session: u32, log: &mut Log, reference: Ref) -> Option<Body> {
        if !self.shares.admits(session) {
            return None;
        }
        self.shares.take(session);
        let index = self.free.pop().unwrap_or_else(|| {
            self.pins.push(None);
            u32::try_from(self.pins.len() - 1).expect("few")
        });
        self.pins[index as usize] = Some((log.pin(reference), session));
        Some(Body::Value(index))
    }

    #[inline]
    pub(super) fn bytes<'a>(&'a self, log: &'a Log, body: Body) -> &'a [u8] {
        match body {
            Body::Value(index) => {
                let (pin, _) = self.pins[index as usize].as_ref().expect("pinned until released");
                log.bytes(pin)
            }
            Body::Made(index) => self.made.bytes(index),
        }
    }

    #[inline]
    pub(super) fn release(&mut self, log: &mut Log, body: Body) {
        match body {
            Body::Value(index) => {
                let (pin, session) = self.pins[index as usize].take().expect("released once");
                log.unpin(pin);
                self.shares.give(session);
                self.free.push(index);
            }
            Body::Made(index) => self.made.release(index),
        }
    }

    /// What sessions have of the values that may be pinned.
    pub(super) fn pinned(&self) -> &Shares {
        &self.shares
    }
}
