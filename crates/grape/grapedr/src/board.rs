//! A board: chips of blocks, the tree that reduces what they hold, and the threads on which they
//! are simulated.

use crate::block::Block;
use crate::instruction::BLOCKS;
use crate::word::{Width, Word};
use std::cmp::Ordering;
use std::num::NonZero;
use thiserror::Error;

/// Chips of a board, at most.
pub const MAX_CHIPS: usize = 4;

/// How large a machine is, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    chips: usize,
    clock: f64,
}

/// What no machine is like.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum ShapeError {
    /// No chip, or more than a board holds.
    #[error("{0} chips: a board has 1 to {MAX_CHIPS}")]
    Chips(usize),
    /// A clock that does not go.
    #[error("a clock of {0} Hz: 1 to 1e12 is possible; the design's is 5e8, and 4e8 was used")]
    Clock(f64),
}

impl Shape {
    /// The design: one chip at 500 MHz.
    pub const DESIGN: Self = Self { chips: 1, clock: 500e6 };
    /// A board as it was used: 4 chips at 400 MHz.
    pub const DEPLOYED: Self = Self { chips: MAX_CHIPS, clock: 400e6 };

    /// So many chips with a clock in Hz.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(chips: usize, clock: f64) -> Result<Self, ShapeError> {
        if !(1..=MAX_CHIPS).contains(&chips) {
            return Err(ShapeError::Chips(chips));
        }
        if !(1.0..=1e12).contains(&clock) {
            return Err(ShapeError::Clock(clock));
        }
        Ok(Self { chips, clock })
    }

    /// Chips.
    #[must_use]
    pub fn chips(self) -> usize {
        self.chips
    }

    /// Cycles a second.
    #[must_use]
    pub fn clock(self) -> f64 {
        self.clock
    }

    /// Blocks of all chips.
    #[must_use]
    pub fn blocks(self) -> usize {
        self.chips * BLOCKS
    }
}

/// What the tree makes of one word of each block.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Tree {
    /// The sum, long.
    Sum,
    /// The least; what is not a number is passed over.
    Min,
    /// The greatest; what is not a number is passed over.
    Max,
    /// Bits that are in all.
    And,
    /// Bits that are in any.
    Or,
}

impl Tree {
    /// What the tree gives of these words: of two it makes one, level by level.
    ///
    /// # Panics
    /// Of no words.
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
    /// A board with all words zero.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { shape, blocks: (0..shape.blocks()).map(Block::new).collect() }
    }

    /// How large it is.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Its blocks, chip by chip.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Its blocks, to be written.
    pub fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// Has something done by all blocks, on as many threads as the processor runs at a time.
    pub fn each(&mut self, work: impl Fn(&mut Block) + Sync) {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = self.blocks.len().div_ceil(threads);
        std::thread::scope(|scope| {
            for blocks in self.blocks.chunks_mut(share) {
                scope.spawn(|| blocks.iter_mut().for_each(&work));
            }
        });
    }

    /// What the tree makes of one word of broadcast memory of some blocks.
    ///
    /// # Panics
    /// Where these are not of one chip: each has a tree of its own.
    #[must_use]
    pub fn tree(&self, tree: Tree, blocks: std::ops::Range<usize>, at: usize) -> Word {
        assert!(blocks.start / BLOCKS == (blocks.end - 1) / BLOCKS, "a tree is of one chip");
        tree.reduce(self.blocks[blocks].iter().map(|block| block.broadcast(at)).collect())
    }
}
