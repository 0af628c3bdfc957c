//! Figures about a compiled kernel.

use crate::target::Target;

/// Limit on the code of one loop, in bytes: several times what the longest program needs.
pub const MAX_CODE: usize = 16 << 20;

/// Figures about a compiled kernel, for reports and tests. If the kernel has a quick and a careful
/// loop, they are those of the quick loop. For the portable target, the figures about code are 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Facts {
    /// The target that the kernel was compiled for.
    pub target: Target,
    /// Number of particles that one vector holds.
    pub lanes: usize,
    /// Number of vectors of i on which the loop works at the same time.
    pub unroll: usize,
    /// Bytes of code.
    pub code: usize,
    /// Number of instructions of one loop iteration, which computes one j with all vectors of i.
    pub instructions: usize,
    /// Number of vector registers that the code uses.
    pub registers: usize,
    /// Number of values that were spilled from registers to memory.
    pub spills: usize,
    /// Bytes of a row: the values of one j, each of which is broadcast to all lanes.
    pub row: usize,
}
