//! Instructions: at most one operation for each unit, executed by all elements on vectors of four,
//! within the limits of the ports.

use crate::ports::{PortError, Ports};
use crate::word::{Width, Word};

/// Elements of the vector that each processing element works on in one instruction.
pub const VECTOR: usize = 4;

/// Cycles that one pass of an instruction takes: one for each element of the vector.
pub const PASS_CYCLES: u64 = 4;

/// Processing elements of a block.
pub const ELEMENTS: usize = 32;

/// Blocks of a chip.
pub const BLOCKS: usize = 16;

/// Words of an element's register file.
pub const REGISTERS: usize = 32;

/// Words of an element's local memory.
pub const LOCAL_WORDS: usize = 256;

/// Words of a block's broadcast memory. The real number was not published; this one is our choice.
pub const BROADCAST_WORDS: usize = 1024;

/// Mask registers of an element, with one bit for each element of the vector. The real number was
/// not published; this one is our choice.
pub const MASKS: usize = 4;

/// A unit of a processing element.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unit {
    /// Adds, subtracts and compares numbers.
    Adder,
    /// Multiplies numbers.
    Multiplier,
    /// Operates on bits and integers.
    Logic,
}

/// An operation of a unit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// The sum of two words of any width, rounded to this width.
    Add(Width),
    /// The difference, rounded to this width.
    Sub(Width),
    /// All bits set if the first operand is less, otherwise none.
    Less,
    /// All bits set if the first operand is less or equal.
    LessEqual,
    /// All bits set if both operands are equal.
    Equal,
    /// All bits set if the operands differ or one is not a number.
    NotEqual,
    /// The product: of two short words in one pass, ignoring the bits behind them, or of two long
    /// words in two passes.
    Mul(Width),
    /// The integer sum of the words' bits, without the carry out.
    IntegerAdd,
    /// The integer difference of the words' bits.
    IntegerSub,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The bits of the first operand shifted left by the second; zero beyond 71.
    ShiftLeft,
    /// The bits of the first operand shifted right, filled with zeros.
    ShiftRight,
    /// The only operand, unchanged.
    Pass,
}

/// The source of an operand. A vector consists of four consecutive words, one for each element of
/// the vector.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Source {
    /// The register file.
    Register(Place),
    /// The auxiliary register, which holds a vector.
    Auxiliary,
    /// Local memory.
    Local(Place),
    /// The block's broadcast memory, which all elements share. In the loop, addresses are relative
    /// to the first word of the current j.
    Broadcast(Place),
    /// A constant in the instruction.
    Immediate(Word),
    /// The element's number within its block, as an integer.
    ElementId,
    /// The block's number within its chip, as an integer.
    BlockId,
}

/// The destination of a result.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// The register file.
    Register(Place),
    /// The auxiliary register.
    Auxiliary,
    /// Local memory.
    Local(Place),
    /// A mask, which is set if the result has any bit set.
    Mask(u8),
    /// The block's broadcast memory, written by one of its elements.
    Broadcast {
        /// The address.
        place: Place,
        /// The element whose result is written.
        element: u8,
    },
}

/// The address of one word, or of four consecutive ones.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Place {
    /// The first word.
    pub at: u16,
    /// Whether each element of the vector has its own word.
    pub vector: bool,
}

impl Place {
    /// Creates the address of one word for all elements of the vector.
    #[must_use]
    pub fn one(at: u16) -> Self {
        Self { at, vector: false }
    }

    /// Creates the address of four words.
    #[must_use]
    pub fn four(at: u16) -> Self {
        Self { at, vector: true }
    }

    /// Returns the word of one element of the vector.
    pub(crate) fn of(self, lane: usize) -> usize {
        usize::from(self.at) + if self.vector { lane } else { 0 }
    }

    /// Returns the address behind the last word.
    pub(crate) fn end(self) -> usize {
        self.of(VECTOR - 1) + 1
    }
}

/// The condition for storing a result: a mask that must be set, or clear.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Condition {
    /// The mask register.
    pub mask: u8,
    /// Whether the mask must be set or clear.
    pub set: bool,
}

/// The operation of one unit in an instruction.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Operation {
    /// What the unit computes.
    pub code: Code,
    /// The operands: one for [`Code::Pass`], otherwise two.
    pub sources: Vec<Source>,
    /// The destinations of the result, at least one.
    pub targets: Vec<Target>,
    /// The condition for storing the result; `None` stores it always.
    pub condition: Option<Condition>,
}

/// Operations that are issued together. All operands are read before any result is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instruction {
    operations: Vec<Operation>,
}

impl Code {
    /// Returns the unit that executes this operation.
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

    /// Returns the number of operands.
    #[must_use]
    pub fn operands(self) -> usize {
        if self == Self::Pass { 1 } else { 2 }
    }

    /// Returns the passes through the vector: 2 for a long product, whose second factor goes
    /// through the multiplier in halves, otherwise 1.
    #[must_use]
    pub fn passes(self) -> u64 {
        if self == Self::Mul(Width::Long) { 2 } else { 1 }
    }
}

impl Instruction {
    /// Combines operations to one instruction.
    ///
    /// # Errors
    /// [`PortError`] if the units, memories or ports do not allow the combination.
    pub fn new(operations: Vec<Operation>) -> Result<Self, PortError> {
        let mut ports = Ports::default();
        for operation in &operations {
            ports = ports.with(operation)?;
        }
        Ok(Self { operations })
    }

    /// Returns the operations in the given order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the steps, which are passes through the vector. An instruction without operations
    /// takes one.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.operations.iter().map(|operation| operation.code.passes()).max().unwrap_or(1)
    }

    /// Returns the cycles that it takes.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.steps() * PASS_CYCLES
    }
}

/// A program of the machine: the instructions that run once, and those that run for each j.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// Words of broadcast memory that belong to one j. The loop's addresses advance by this from
    /// one j to the next.
    pub stride: u16,
    /// The instructions that run once, before the loop.
    pub init: Vec<Instruction>,
    /// The instructions that run for each j.
    pub body: Vec<Instruction>,
}

/// Returns the steps of a sequence of instructions.
#[must_use]
pub fn steps(instructions: &[Instruction]) -> u64 {
    instructions.iter().map(Instruction::steps).sum()
}
