//! Instructions: up to one operation for each unit of all elements, each on a vector of four,
//! within what the ports allow.

use crate::ports::{PortError, Ports};
use crate::word::{Width, Word};

/// Elements that each processing element works on in one instruction.
pub const VECTOR: usize = 4;

/// Cycles that a pass of an instruction takes: one for each element of the vector.
pub const PASS_CYCLES: u64 = 4;

/// Processing elements of a block.
pub const ELEMENTS: usize = 32;

/// Blocks of a chip.
pub const BLOCKS: usize = 16;

/// Words of an element's register file.
pub const REGISTERS: usize = 32;

/// Words of an element's local memory.
pub const LOCAL_WORDS: usize = 256;

/// Words of a block's broadcast memory. How many there are was not published: this is our choice.
pub const BROADCAST_WORDS: usize = 1024;

/// Mask registers of an element: one bit for each element of the vector. How many there are was not
/// published: this is our choice.
pub const MASKS: usize = 4;

/// What computes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unit {
    /// Adds, subtracts and compares numbers.
    Adder,
    /// Multiplies numbers.
    Multiplier,
    /// Works on bits.
    Logic,
}

/// What a unit does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// The sum of two words, of any width, rounded to one.
    Add(Width),
    /// The difference.
    Sub(Width),
    /// All bits set where the first is less, else none.
    Less,
    /// Where it is less or equal.
    LessEqual,
    /// Where both are equal.
    Equal,
    /// Where they are not, or one is not a number.
    NotEqual,
    /// The product: of two short words (what lies behind them is dropped) in one pass, of two long
    /// words in two.
    Mul(Width),
    /// Sum of the words' bits, as integers; what goes beyond is dropped.
    IntegerAdd,
    /// Their difference.
    IntegerSub,
    /// Bits that are in both.
    And,
    /// Bits that are in one or both.
    Or,
    /// Bits that are in one alone.
    Xor,
    /// Bits of the first, moved up by the second; none beyond 71.
    ShiftLeft,
    /// Moved down, zeros following.
    ShiftRight,
    /// Its only operand as it is.
    Pass,
}

/// Where an operand comes from. A vector is of four places from the given one, one for each element
/// of the vector.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Source {
    /// The register file.
    Register(Place),
    /// The auxiliary register: a vector.
    Auxiliary,
    /// Local memory.
    Local(Place),
    /// The block's broadcast memory: the same for all elements. Within the loop the place counts
    /// from the pass's own first word.
    Broadcast(Place),
    /// A word of the instruction.
    Immediate(Word),
    /// The element's number within its block, as an integer.
    ElementId,
    /// The block's number within its chip, as an integer.
    BlockId,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// The register file.
    Register(Place),
    /// The auxiliary register.
    Auxiliary,
    /// Local memory.
    Local(Place),
    /// A mask: whether any bit is set.
    Mask(u8),
    /// The block's broadcast memory, from one of its elements.
    Broadcast {
        /// Where.
        place: Place,
        /// Whose result.
        element: u8,
    },
}

/// One place, or four from it on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Place {
    /// The first.
    pub at: u16,
    /// Whether each element of the vector has its own.
    pub vector: bool,
}

impl Place {
    /// One place for all four.
    #[must_use]
    pub fn one(at: u16) -> Self {
        Self { at, vector: false }
    }

    /// Four places.
    #[must_use]
    pub fn four(at: u16) -> Self {
        Self { at, vector: true }
    }

    /// The place of an element of the vector.
    pub(crate) fn of(self, lane: usize) -> usize {
        usize::from(self.at) + if self.vector { lane } else { 0 }
    }

    /// How far it reaches.
    pub(crate) fn end(self) -> usize {
        self.of(VECTOR - 1) + 1
    }
}

/// A mask under which results are stored: where it is set, or where it is not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Condition {
    /// Which.
    pub mask: u8,
    /// What it must be.
    pub set: bool,
}

/// What one unit does in an instruction.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Operation {
    /// What.
    pub code: Code,
    /// Operands: one for [`Code::Pass`], else two.
    pub sources: Vec<Source>,
    /// Where the result goes: to one place or several.
    pub targets: Vec<Target>,
    /// Where it is stored, if not everywhere.
    pub condition: Option<Condition>,
}

/// Operations that are issued together. All operands are read before any result is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instruction {
    operations: Vec<Operation>,
}

impl Code {
    /// Who does it.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Add(_)
            | Self::Sub(_)
            | Self::Less
            | Self::LessEqual
            | Self::Equal
            | Self::NotEqual => Unit::Adder,
            Self::Mul(_) => Unit::Multiplier,
            _ => Unit::Logic,
        }
    }

    /// How many operands it takes.
    #[must_use]
    pub fn operands(self) -> usize {
        if self == Self::Pass { 1 } else { 2 }
    }

    /// Passes through the vector: 2 of a long product, whose second factor goes through the
    /// multiplier in halves.
    #[must_use]
    pub fn passes(self) -> u64 {
        if self == Self::Mul(Width::Long) { 2 } else { 1 }
    }
}

impl Instruction {
    /// The operations as one instruction.
    ///
    /// # Errors
    /// [`PortError`]: what a unit, a place or a port does not allow.
    pub fn new(operations: Vec<Operation>) -> Result<Self, PortError> {
        let mut ports = Ports::default();
        for operation in &operations {
            ports = ports.with(operation)?;
        }
        Ok(Self { operations })
    }

    /// What is issued, in the order given.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Steps: passes through the vector. An instruction without operations waits for one.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.operations.iter().map(|operation| operation.code.passes()).max().unwrap_or(1)
    }

    /// Cycles it takes.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.steps() * PASS_CYCLES
    }
}

/// A program of the machine: what is done once, and what is done for each j.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// Words of broadcast memory that belong to one j: how far the loop's places move from pass to
    /// pass.
    pub stride: u16,
    /// Once.
    pub init: Vec<Instruction>,
    /// For each j.
    pub body: Vec<Instruction>,
}

/// Steps of instructions.
#[must_use]
pub fn steps(instructions: &[Instruction]) -> u64 {
    instructions.iter().map(Instruction::steps).sum()
}
