//! Instructions. An instruction has at most one operation for each unit. All elements execute it on
//! vectors of four words, within the limits of the ports.

use crate::ports::{PortError, Ports};
use crate::word::{Width, Word};

/// Number of elements of the vector on which each processing element works in one instruction.
pub const VECTOR: usize = 4;

/// Number of cycles that one pass of an instruction takes: one for each element of the vector.
pub const PASS_CYCLES: u64 = 4;

/// Number of processing elements in a block.
pub const ELEMENTS: usize = 32;

/// Number of blocks in a chip.
pub const BLOCKS: usize = 16;

/// Number of words in an element's register file.
pub const REGISTERS: usize = 32;

/// Number of words in an element's local memory.
pub const LOCAL_WORDS: usize = 256;

/// Number of words in a block's broadcast memory. The real number was not published; this one is
/// our choice.
pub const BROADCAST_WORDS: usize = 1024;

/// Number of mask registers of an element. Each has one bit for each element of the vector. The
/// real number was not published; this one is our choice.
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
    /// All bits set if the first operand is less than the second, otherwise no bits.
    Less,
    /// All bits set if the first operand is less than or equal to the second, otherwise no bits.
    LessEqual,
    /// All bits set if both operands are equal, otherwise no bits.
    Equal,
    /// All bits set if the operands differ or one is not a number, otherwise no bits.
    NotEqual,
    /// The product of two short words, in one pass, or of two long words, in two passes. A short
    /// product ignores the bits behind the short words.
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
    /// The bits of the first operand, shifted left by the second. Zero if the second is above 71.
    ShiftLeft,
    /// The bits of the first operand, shifted right by the second and filled with zeros.
    ShiftRight,
    /// The only operand, unchanged.
    Pass,
}

/// The source of an operand. A vector is four consecutive words, one for each element of the
/// vector.
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
    /// A mask. Its bit is set if any bit of the result is set.
    Mask(u8),
    /// The block's broadcast memory. One of the block's elements writes it.
    Broadcast {
        /// The address.
        place: Place,
        /// The element whose result is written.
        element: u8,
    },
}

/// The address of one word, or of four consecutive words.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Place {
    /// The address of the first word.
    pub at: u16,
    /// Whether each element of the vector has its own word. If not, all use the same word.
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

    /// Returns the address of the word of one element of the vector.
    pub(crate) fn of(self, lane: usize) -> usize {
        usize::from(self.at) + if self.vector { lane } else { 0 }
    }

    /// Returns the address behind the last word.
    pub(crate) fn end(self) -> usize {
        self.of(VECTOR - 1) + 1
    }
}

/// The condition under which a result is stored: a mask must be set, or it must be clear.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Condition {
    /// The mask register.
    pub mask: u8,
    /// Whether the mask must be set (`true`) or clear (`false`).
    pub set: bool,
}

/// The operation of one unit in an instruction.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Operation {
    /// What the unit computes.
    pub code: Code,
    /// The operands: one for [`Code::Pass`], otherwise two.
    pub sources: Vec<Source>,
    /// The destinations of the result; at least one.
    pub targets: Vec<Target>,
    /// The condition under which the result is stored. With `None` it is always stored.
    pub condition: Option<Condition>,
}

/// Operations that are issued together. All their operands are read before any result is written.
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

    /// Returns the number of passes through the vector: 2 for a long product, because its second
    /// factor goes through the multiplier in halves, and otherwise 1.
    #[must_use]
    pub fn passes(self) -> u64 {
        if self == Self::Mul(Width::Long) { 2 } else { 1 }
    }
}

impl Instruction {
    /// Combines operations into one instruction.
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

    /// Returns the operations, in the order in which they were given.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the number of steps. A step is a pass through the vector. An instruction without
    /// operations takes one step.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.operations.iter().map(|operation| operation.code.passes()).max().unwrap_or(1)
    }

    /// Returns the number of cycles that the instruction takes.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.steps() * PASS_CYCLES
    }
}

/// A program of the machine: instructions that run once, and instructions that run for each j.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listing {
    /// Number of words of broadcast memory that belong to one j. From one j to the next, the loop's
    /// addresses advance by this number.
    pub stride: u16,
    /// The instructions that run once, before the loop.
    pub init: Vec<Instruction>,
    /// The instructions that run for each j.
    pub body: Vec<Instruction>,
}

/// Returns the number of steps of a sequence of instructions.
#[must_use]
pub fn steps(instructions: &[Instruction]) -> u64 {
    instructions.iter().map(Instruction::steps).sum()
}
