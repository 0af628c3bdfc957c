//! Frames kept from a driver, as by a device that gives none back.

use super::BypassDriver;
use super::dpdk::Draft;
use super::port::Port;

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

impl BypassDriver {
    /// Takes all frames out of the pools of DPDK's devices that are in them: for tests of what
    /// happens then.
    #[must_use]
    pub fn hold_all(&mut self) -> Held {
        let pools = self.tx.ports.iter_mut().filter_map(Port::pool);
        Held { frames: pools.flat_map(|pool| std::iter::from_fn(|| pool.draft())).collect() }
    }
}
