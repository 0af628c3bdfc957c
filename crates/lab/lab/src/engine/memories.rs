//! The packet memory of a box, made and touched before its ports are opened.

use super::forwarding::{WorkerPorts, worker_ports};
use super::{EngineError, Forwarding};
use crate::line::{LineSettings, Rate};
use crate::memory::Memory;
use sprat_host::memory;

/// Rate at which a line without a rate is assumed to be filled, when its memory is sized: 20 Gb/s,
/// about what one thread can copy.
pub const ASSUMED_BITS_PER_SECOND: u64 = 20_000_000_000;

/// Memory made for each 100 bytes that the lines hold: packets do not fill their last cells.
const CELL_WASTE_PERCENT: u64 = 150;

/// Memory made beyond that for bursts, in bytes.
const BURST_MEMORY: u64 = 16 << 20;

/// The packet memory of each worker of a box. Touching gigabytes takes seconds: if the memory is
/// made before the ports are opened, no packet has to wait for that.
#[derive(Debug)]
pub struct Memories(Vec<Memory>);

impl Memories {
    /// Makes the memory of a box with these lines; `devices` says which ports are devices past the
    /// kernel. Each worker gets `each` bytes, or as much as its lines need.
    ///
    /// # Errors
    /// The machine does not have that much memory, or that many ports cannot be joined in this way.
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

/// Refuses more memory than the machine has: the memory is touched when it is made, so the kernel
/// would kill a process for want of memory instead of failing the allocation.
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
