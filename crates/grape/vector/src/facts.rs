//! What became of a kernel when it was compiled.

use crate::target::Target;

/// Code of a loop, at most: several times what the longest program comes to.
pub const MAX_CODE: usize = 16 << 20;

/// What became of a kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Facts {
    /// For what it was compiled.
    pub target: Target,
    /// Particles that a vector holds.
    pub lanes: usize,
    /// Vectors of i that the loop works on at a time.
    pub unroll: usize,
    /// Bytes of code; 0 where there is none.
    pub code: usize,
    /// Instructions of the loop, for all its vectors and one j.
    pub instructions: usize,
    /// Vector registers used.
    pub registers: usize,
    /// Values that had to make room, and lie in memory for a while.
    pub spills: usize,
    /// Bytes of a j as it is broadcast.
    pub row: usize,
}
