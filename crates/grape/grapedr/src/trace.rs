//! What one processing element computes, written down instruction by instruction.

use crate::instruction::{ELEMENTS, Instruction, VECTOR};
use crate::word::Word;

/// Steps that a trace holds, at most.
pub const MAX_TRACE: usize = 1 << 16;

/// What an element of a block computes, from when it is watched until the trace is full.
#[derive(Clone, Debug)]
pub struct Trace {
    element: usize,
    limit: usize,
    entries: Vec<Entry>,
    left_out: u64,
}

/// One instruction of a trace.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The block's cycle at which it began.
    pub cycle: u64,
    /// What was executed.
    pub instruction: Instruction,
    /// Where places of broadcast memory counted from.
    pub base: usize,
    /// What each operation gave, for each element of the vector, stored or not.
    pub values: Vec<[Word; VECTOR]>,
}

impl Trace {
    /// Watches an element for so many instructions, [`MAX_TRACE`] at most.
    ///
    /// # Panics
    /// Where a block has no such element.
    #[must_use]
    pub fn new(element: usize, limit: usize) -> Self {
        assert!(element < ELEMENTS, "a block has elements 0 to {}", ELEMENTS - 1);
        Self { element, limit: limit.min(MAX_TRACE), entries: Vec::new(), left_out: 0 }
    }

    /// Which element is watched.
    #[must_use]
    pub fn element(&self) -> usize {
        self.element
    }

    /// What was written down.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Instructions that came when the trace was full.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn note(
        &mut self,
        cycle: u64,
        instruction: &Instruction,
        base: usize,
        values: impl FnOnce() -> Vec<[Word; VECTOR]>,
    ) {
        if self.entries.len() < self.limit {
            self.entries.push(Entry {
                cycle,
                instruction: instruction.clone(),
                base,
                values: values(),
            });
        } else {
            self.left_out += 1;
        }
    }
}
