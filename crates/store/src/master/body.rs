//! What a response of the master is gathered from.

use crate::bodies::Bodies;
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

/// Most values pinned at once; each keeps a segment's memory from the cleaner.
pub const MAX_PINS: usize = 4096;

/// Bodies handed out and not yet given back.
#[derive(Default)]
pub(super) struct Held {
    pins: Vec<Option<Pin>>,
    free: Vec<u32>,
    pub(super) made: Bodies,
}

impl Held {
    /// Pins a value; `None` when [`MAX_PINS`] are.
    #[inline]
    pub(super) fn pin(&mut self, log: &mut Log, reference: Ref) -> Option<Body> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.pins.len() < MAX_PINS => {
                self.pins.push(None);
                u32::try_from(self.pins.len() - 1).expect("MAX_PINS fits")
            }
            None => return None,
        };
        self.pins[index as usize] = Some(log.pin(reference));
        Some(Body::Value(index))
    }

    #[inline]
    pub(super) fn bytes<'a>(&'a self, log: &'a Log, body: Body) -> &'a [u8] {
        match body {
            Body::Value(index) => log.bytes(self.pins[index as usize].as_ref().expect("pinned until released")),
            Body::Made(index) => self.made.bytes(index),
        }
    }

    #[inline]
    pub(super) fn release(&mut self, log: &mut Log, body: Body) {
        match body {
            Body::Value(index) => {
                log.unpin(self.pins[index as usize].take().expect("released once"));
                self.free.push(index);
            }
            Body::Made(index) => self.made.release(index),
        }
    }

    pub(super) fn pinned(&self) -> usize {
        self.pins.len() - self.free.len()
    }
}
