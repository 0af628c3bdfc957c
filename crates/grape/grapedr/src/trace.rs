//! A record of what one processing element computes, instruction by instruction.

use crate::instruction::{ELEMENTS, Instruction, VECTOR};
use crate::word::Word;

/// Limit on the instructions of a trace. A larger limit is reduced to this.
pub const MAX_TRACE: usize = 1 << 16;

/// A record of what an element of a block computes, until the trace is full.
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
    /// The block's cycle count when the instruction began.
    pub cycle: u64,
    /// The instruction.
    pub instruction: Instruction,
    /// The base to which addresses of broadcast memory were relative.
    pub base: usize,
    /// The results of each operation, for each element of the vector, whether or not they were
    /// stored.
    pub values: Vec<[Word; VECTOR]>,
}

impl Trace {
    /// Creates a trace of an element. It records at most `limit` instructions, and at most
    /// [`MAX_TRACE`].
    ///
    /// # Panics
    /// A block has no such element.
    #[must_use]
    pub fn new(element: usize, limit: usize) -> Self {
        assert!(element < ELEMENTS, "a block has elements 0 to {}", ELEMENTS - 1);
        Self { element, limit: limit.min(MAX_TRACE), entries: Vec::new(), left_out: 0 }
    }

    /// Returns the element that is traced.
    #[must_use]
    pub fn element(&self) -> usize {
        self.element
    }

    /// Returns the recorded instructions.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of instructions that were not recorded because the trace was full.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn record(
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
