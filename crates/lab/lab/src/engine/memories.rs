//! The packet memory of a box, made and touched before its ports are opened.

use super::forwarding::{WorkerPorts, worker_ports};
use super::{EngineError, Forwarding};
use crate::line::{LineSettings, Rate};
use crate::memory::Memory;
use sprat_host::memory;

/// Rate that is assumed for a line without a rate when its memory is sized: 20 Gb/s, about what one
/// thread can copy.
pub const ASSUMED_BITS_PER_SECOND: u64 = 20_000_000_000;

/// Bytes of memory made for each 100 bytes that the lines can hold. It is more than 100 because
/// packets do not fill their last cells.
const CELL_WASTE_PERCENT: u64 = 150;

/// Bytes of memory that each worker gets for bursts, in addition to what its lines can fill.
const BURST_MEMORY: u64 = 16 << 20;

/// The packet memory of each worker of a box. Touching gigabytes takes seconds: make the memory
/// before the ports are opened, so that no packet waits meanwhile.
#[derive(Debug)]
pub struct Memories(Vec<Memory>);

impl Memories {
    /// Makes the memory of a box with these lines; `devices` says which ports are devices that
    /// bypass the kernel. Each worker gets `each` bytes; with `None`, as much as its lines need.
    /// The limits of [`Memory::new`] apply to both.
    ///
    /// # Errors
    /// [`EngineError::Memory`] if the machine has too little free memory; [`EngineError::Ports`] if
    /// that many ports cannot be joined in this way.
    pub fn make<'a>(
        forwarding: Forwarding,
        devices: &[bool],
        lines: impl Iterator<Item = &'a LineSettings>,
        each: Option<u64>,
    ) -> Result<Self, EngineError> {
        if !forwarding.joins(devices.len()) {
            return Err(EngineError::Ports(devices.len()));
        }
        Self::of(&worker_ports(forwarding, devices), lines, each)
    }

    pub(super) fn of<'a>(
        worker_ports: &[WorkerPorts],
        lines: impl Iterator<Item = &'a LineSettings>,
        each: Option<u64>,
    ) -> Result<Self, EngineError> {
        let lines: Vec<_> = lines.collect();
        let needed = |worker_ports: &WorkerPorts| {
            each.unwrap_or_else(|| {
                filled_by(worker_ports.outputs.iter().map(|&port| lines[port])) + BURST_MEMORY
            })
        };
        let needed: Vec<_> = worker_ports.iter().map(needed).collect();
        enough_memory(needed.iter().fold(0, |sum: u64, more| sum.saturating_add(*more)))?;
        Ok(Self(needed.into_iter().map(Memory::new).collect()))
    }

    pub(super) fn workers(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_vec(self) -> Vec<Memory> {
        self.0
    }
}

/// Returns an error if the machine has less free memory than `needed`. The memory is touched when
/// it is made: without this check the allocation would succeed, and the kernel would kill a process
/// later.
fn enough_memory(needed: u64) -> Result<(), EngineError> {
    match memory("MemAvailable") {
        Some(available) if needed > available => {
            Err(EngineError::Memory { needed: needed >> 20, available: available >> 20 })
        }
        _ => Ok(()),
    }
}

/// Returns the packet memory that these lines can fill, in bytes.
pub(super) fn filled_by<'a>(lines: impl Iterator<Item = &'a LineSettings>) -> u64 {
    let assumed = Rate::new(ASSUMED_BITS_PER_SECOND).expect("within limits");
    let held: u64 = lines.map(|settings| settings.capacity(assumed)).sum();
    held / 100 * CELL_WASTE_PERCENT
}
