//! A board: chips of blocks, the trees that reduce words of the blocks, and the threads that
//! simulate the blocks.

use crate::block::Block;
use crate::instruction::BLOCKS;
use crate::word::{Width, Word};
use std::cmp::Ordering;
use std::num::NonZero;
use thiserror::Error;

/// Limit on the chips of a board.
pub const MAX_CHIPS: usize = 4;

/// The size and clock of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    chips: usize,
    clock: f64,
}

/// Why a machine of a shape cannot exist.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum ShapeError {
    /// The machine has no chip, or more than [`MAX_CHIPS`].
    #[error("{0} chips: a board has 1 to {MAX_CHIPS}")]
    Chips(usize),
    /// The clock is too slow or too fast.
    #[error("a clock of {0} Hz: 1 to 1e12 is possible; the design's is 5e8, and 4e8 was used")]
    Clock(f64),
}

impl Shape {
    /// The machine as designed: one chip at 500 MHz.
    pub const DESIGN: Self = Self { chips: 1, clock: 500e6 };
    /// A board as deployed: 4 chips at 400 MHz.
    pub const DEPLOYED: Self = Self { chips: MAX_CHIPS, clock: 400e6 };

    /// Creates a shape of this many chips, with a clock in Hz.
    ///
    /// # Errors
    /// [`ShapeError::Chips`] unless `chips` is from 1 to [`MAX_CHIPS`]; [`ShapeError::Clock`]
    /// unless `clock` is from 1 Hz to 1e12 Hz.
    pub fn new(chips: usize, clock: f64) -> Result<Self, ShapeError> {
        if !(1..=MAX_CHIPS).contains(&chips) {
            return Err(ShapeError::Chips(chips));
        }
        if !(1.0..=1e12).contains(&clock) {
            return Err(ShapeError::Clock(clock));
        }
        Ok(Self { chips, clock })
    }

    /// Returns the number of chips.
    #[must_use]
    pub fn chips(self) -> usize {
        self.chips
    }

    /// Returns the number of cycles per second.
    #[must_use]
    pub fn clock(self) -> f64 {
        self.clock
    }

    /// Returns the number of blocks on all chips.
    #[must_use]
    pub fn blocks(self) -> usize {
        self.chips * BLOCKS
    }
}

/// How the tree of a chip combines one word of each of its blocks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TreeOperation {
    /// The sum, in long words.
    Sum,
    /// The minimum. Words that are not numbers are ignored, unless all words are.
    Min,
    /// The maximum. Words that are not numbers are ignored, unless all words are.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
}

impl TreeOperation {
    /// Reduces words as the tree does: level by level, where each node combines two words.
    ///
    /// # Panics
    /// `words` is empty.
    #[must_use]
    pub fn reduce(self, mut words: Vec<Word>) -> Word {
        assert!(!words.is_empty(), "a tree has leaves");
        while words.len() > 1 {
            words = words
                .chunks(2)
                .map(|pair| {
                    pair.iter().copied().reduce(|a, b| self.node(a, b)).expect("one or two")
                })
                .collect();
        }
        words[0]
    }

    fn node(self, a: Word, b: Word) -> Word {
        let keep = |first: Ordering| match a.compare(b) {
            Some(order) if order == first => b,
            None if a.is_nan() => b,
            _ => a,
        };
        match self {
            Self::Sum => a.add(b, Width::Long),
            Self::Min => keep(Ordering::Greater),
            Self::Max => keep(Ordering::Less),
            Self::And => Word::from_bits(a.bits() & b.bits()),
            Self::Or => Word::from_bits(a.bits() | b.bits()),
        }
    }
}

/// All blocks of a board.
#[derive(Clone, Debug)]
pub struct Board {
    shape: Shape,
    blocks: Vec<Block>,
}

impl Board {
    /// Creates a board whose words are all zero.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { shape, blocks: (0..shape.blocks()).map(Block::new).collect() }
    }

    /// Returns the size and clock of the machine.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the blocks, chip by chip.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the blocks for writing.
    pub fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// Runs `work` on all blocks, in at most as many threads as the processor can run at the same
    /// time. Returns when `work` has run on all blocks.
    pub fn for_each_block(&mut self, work: impl Fn(&mut Block) + Sync) {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = self.blocks.len().div_ceil(threads);
        std::thread::scope(|scope| {
            for blocks in self.blocks.chunks_mut(share) {
                scope.spawn(|| blocks.iter_mut().for_each(&work));
            }
        });
    }

    /// Reduces one word of broadcast memory, at address `at`, of a range of blocks, with the tree
    /// of their chip.
    ///
    /// # Panics
    /// The range is empty, the blocks are not all on one chip, or there is no such block or word.
    /// Each chip has its own tree.
    #[must_use]
    pub fn reduce(
        &self,
        operation: TreeOperation,
        blocks: std::ops::Range<usize>,
        at: usize,
    ) -> Word {
        assert!(blocks.start / BLOCKS == (blocks.end - 1) / BLOCKS, "a tree is of one chip");
        operation.reduce(self.blocks[blocks].iter().map(|block| block.broadcast(at)).collect())
    }
}
