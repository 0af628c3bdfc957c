//! Frames withheld from a driver, as if a device never returned them.

use super::BypassDriver;
use super::dpdk::Draft;
use super::port::Port;

/// Frames that their driver cannot use until the `HeldFrames` is dropped.
pub struct HeldFrames {
    frames: Vec<Draft>,
}

impl HeldFrames {
    /// Returns how many frames are held.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }
}

impl BypassDriver {
    /// Takes all frames out of the pools of DPDK's devices, so that a test can observe a driver
    /// without free buffers.
    #[must_use]
    pub fn hold_all(&mut self) -> HeldFrames {
        let pools = self.tx.ports.iter_mut().filter_map(Port::pool);
        HeldFrames { frames: pools.flat_map(|pool| std::iter::from_fn(|| pool.draft())).collect() }
    }
}
