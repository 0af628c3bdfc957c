//! Figures about a compiled kernel.

use crate::target::Target;

/// The limit for the code of one loop, in bytes: several times what the longest program needs.
pub const MAX_CODE: usize = 16 << 20;

/// Figures about a compiled kernel, for reports and tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Facts {
    /// The target that the kernel was compiled for.
    pub target: Target,
    /// Particles that one vector holds.
    pub lanes: usize,
    /// Vectors of i that the loop works on at the same time.
    pub unroll: usize,
    /// Bytes of code; 0 if the target is portable.
    pub code: usize,
    /// Instructions of one loop iteration: one j for all its vectors.
    pub instructions: usize,
    /// Vector registers that the code uses.
    pub registers: usize,
    /// Values that were spilled from registers to memory.
    pub spills: usize,
    /// Bytes of a row, which is one j as it is broadcast.
    pub row: usize,
}
