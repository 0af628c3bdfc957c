//! The packet memory of a box, made and touched before its ports are there.

use super::forwarding::{Ways, ways};
use super::{EngineError, Forwarding};
use crate::line::{Rate, Settings};
use crate::memory::Memory;
use sprat_host::memory;

/// What a line without a rate is taken to carry, when memory is made for it: 20 Gb/s, about what
/// one thread can copy.
pub const ASSUMED_BITS_PER_SECOND: u64 = 20_000_000_000;

/// Memory made beyond what the lines hold: packets do not fill their last cells.
const CELL_WASTE_PERCENT: u64 = 150;

/// Memory made beyond that for bursts: bytes.
const BURST_MEMORY: u64 = 16 << 20;

/// Packet memory of each lane of a box. Gigabytes take seconds to touch: made before the ports are
/// opened, nothing that comes has to wait for that.
#[derive(Debug)]
pub struct Memories(Vec<Memory>);

impl Memories {
    /// Makes the memory of a box whose ports are devices or not, and whose lines are these: `each`
    /// bytes for each lane, or as much as its lines need.
    ///
    /// # Errors
    /// The machine does not have that much, or so many ports cannot be joined so.
    pub fn make<'a>(
        forwarding: Forwarding,
        devices: &[bool],
        lines: impl Iterator<Item = &'a Settings>,
        each: Option<u64>,
    ) -> Result<Self, EngineError> {
        if !forwarding.joins(devices.len()) {
            return Err(EngineError::Ports(devices.len()));
        }
        Self::of(&ways(forwarding, devices), lines, each)
    }

    pub(super) fn of<'a>(
        ways: &[Ways],
        lines: impl Iterator<Item = &'a Settings>,
        each: Option<u64>,
    ) -> Result<Self, EngineError> {
        let lines: Vec<_> = lines.collect();
        let needed = |ways: &Ways| {
            each.unwrap_or_else(|| {
                filled_by(ways.outputs.iter().map(|&port| lines[port])) + BURST_MEMORY
            })
        };
        let needed: Vec<_> = ways.iter().map(needed).collect();
        enough_memory(needed.iter().fold(0, |sum: u64, more| sum.saturating_add(*more)))?;
        Ok(Self(needed.into_iter().map(Memory::new).collect()))
    }

    pub(super) fn lanes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_lanes(self) -> Vec<Memory> {
        self.0
    }
}

/// Refuses what the machine does not have: memory is touched when it is made, and the kernel would
/// end a process for it.
fn enough_memory(needed: u64) -> Result<(), EngineError> {
    match memory("MemAvailable") {
        Some(available) if needed > available => {
            Err(EngineError::Memory { needed: needed >> 20, available: available >> 20 })
        }
        _ => Ok(()),
    }
}

/// Packet memory that these lines can fill, in bytes.
pub(super) fn filled_by<'a>(lines: impl Iterator<Item = &'a Settings>) -> u64 {
    let assumed = Rate::new(ASSUMED_BITS_PER_SECOND).expect("within limits");
    let held: u64 = lines.map(|settings| settings.capacity(assumed)).sum();
    held / 100 * CELL_WASTE_PERCENT
}
