//! The body of a kernel's loop over j as what processors have: operations on vectors, with a place
//! in memory for whatever is given.

use sprat_formula::Value;

/// Bytes of a place in memory for a value that had to leave its register: of the longest vector.
pub(crate) const SPILL: usize = 64;

/// What a vector of one value is made of.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    /// Numbers of 32 bits; also what a mask is on processors without mask registers, by the sign of
    /// each.
    F32,
    /// Numbers of 64 bits, or masks likewise.
    F64,
    /// A mask in a register of its own kind.
    Mask,
}

impl Kind {
    /// Bytes of one number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Mask => unreachable!("masks lie in registers"),
        }
    }
}

/// A value of the body: its place in [`Body::vars`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Var(pub(crate) u32);

impl Var {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value lies before the loop begins, if it does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Home {
    /// Nowhere: an instruction makes it.
    None,
    /// A vector of the tile, at these bytes.
    Tile(usize),
    /// One number of the row of a j, at these bytes.
    Row(usize),
    /// A constant: its place in [`Body::pool`].
    Pool(usize),
    /// An accumulator: its place in [`Body::sums`].
    Sum(usize),
}

/// What an instruction does. Operands are `a`, `b`, `c` in order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    /// `if a < b { a } else { b }`.
    Min,
    Max,
    /// Bits of numbers.
    And,
    Or,
    Xor,
    /// `a * b + c`.
    Fma,
    /// `c - a * b`.
    Fnma,
    Sqrt,
    /// One over the square root, some bits of it.
    Estimate,
    /// To the nearest whole number.
    Round,
    /// `a` times two to the power of `b`, a whole number.
    Scale,
    /// Bits to the left.
    Shift(u8),
    /// From the other kind of number.
    Convert,
    /// A mask, by the predicate that the instruction encodes.
    Compare(u8),
    /// `a`, a mask: where it holds `b`, else `c`.
    Blend,
    /// Bits of masks in their own registers.
    MaskAnd,
    MaskOr,
    MaskNot,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// Of the numbers that it works on: of what it makes, but for comparisons.
    pub(crate) kind: Kind,
    pub(crate) to: Var,
    pub(crate) operands: [Var; 3],
    pub(crate) count: u8,
}

impl Inst {
    pub(crate) fn operands(&self) -> &[Var] {
        &self.operands[..usize::from(self.count)]
    }
}

/// A constant of the loop.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Pooled {
    /// A number, by its bits.
    Bits(Kind, u64),
    /// What is computed once a run.
    Run(Kind, Value),
}

impl Pooled {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Bits(kind, _) | Self::Run(kind, _) => kind,
        }
    }
}

/// An accumulator of one unrolled vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub(crate) var: Var,
    /// Where its vector goes, in bytes.
    pub(crate) at: usize,
    /// What it begins with.
    pub(crate) start: Var,
    /// By what it is multiplied in the end, if by anything: also as a value.
    pub(crate) scale: Option<(f64, Var)>,
}

/// The body of the loop.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) vars: Vec<(Kind, Home)>,
    pub(crate) insts: Vec<Inst>,
    pub(crate) pool: Vec<Pooled>,
    pub(crate) sums: Vec<Sum>,
}
