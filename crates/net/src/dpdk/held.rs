//! Frames kept from a driver, as by a device that gives none back.

use super::Dpdk;
use super::sys::Draft;

/// Frames that their driver must do without until this is dropped.
pub struct Held {
    frames: Vec<Draft>,
}

impl Held {
    /// How many they are.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }
}

impl Dpdk {
    /// Takes all frames out of the pool that are in it: for tests of what happens then.
    #[must_use]
    pub fn hold_all(&mut self) -> Held {
        Held { frames: std::iter::from_fn(|| self.tx.pool.draft()).collect() }
    }
}
