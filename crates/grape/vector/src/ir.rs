//! The body of a kernel's loop over j in terms of what processors have: operations on vectors, and
//! a memory location for each input.

use sprat_formula::Value;

/// Bytes of memory for one spilled value: those of the longest vector.
pub(crate) const SPILL: usize = 64;

/// The type of the numbers in a vector.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    /// 32-bit numbers; also masks on processors without mask registers, where the sign of each
    /// number decides.
    F32,
    /// 64-bit numbers, or masks likewise.
    F64,
    /// A mask in a mask register.
    Mask,
}

impl Kind {
    /// Returns the bytes of one number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Mask => unreachable!("masks lie in registers"),
        }
    }
}

/// A value of the body: its index in [`Body::vars`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Var(pub(crate) u32);

impl Var {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value lies before the loop begins.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Home {
    /// Nowhere: an instruction computes it.
    None,
    /// A vector of the tile, at this byte offset.
    Tile(usize),
    /// One number in the row of a j, at this byte offset.
    Row(usize),
    /// A constant: its index in [`Body::pool`].
    Pool(usize),
    /// An accumulator: its index in [`Body::sums`].
    Sum(usize),
}

/// The operation of an instruction. Its operands are `a`, `b` and `c`, in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    /// `if a < b { a } else { b }`.
    Min,
    Max,
    /// Bitwise on numbers.
    And,
    Or,
    Xor,
    /// `a * b + c`.
    Fma,
    /// `c - a * b`.
    Fnma,
    Sqrt,
    /// An estimate of the inverse square root.
    Estimate,
    /// Rounds to the nearest whole number.
    Round,
    /// `a` times two to the power of `b`, which is a whole number.
    Scale,
    /// Shifts bits to the left.
    Shift(u8),
    /// Converts from the other type of number.
    Convert,
    /// Compares by the predicate of the instruction's encoding, and gives a mask.
    Compare(u8),
    /// `b` where the mask `a` holds, otherwise `c`.
    Blend,
    /// Bitwise on masks in mask registers.
    MaskAnd,
    MaskOr,
    MaskNot,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// The type of the numbers that it works on, which is also the type of its result except for
    /// comparisons.
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
pub(crate) enum PoolConstant {
    /// A number, given by its bits.
    Bits(Kind, u64),
    /// A value that is computed once per run.
    Run(Kind, Value),
}

impl PoolConstant {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Bits(kind, _) | Self::Run(kind, _) => kind,
        }
    }
}

/// An accumulator of one of the unrolled vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub(crate) var: Var,
    /// The byte offset where its vector is stored.
    pub(crate) at: usize,
    /// The constant that it starts with.
    pub(crate) start: Var,
    /// The factor that it is multiplied by after the loop, if any, and the constant that holds it.
    pub(crate) scale: Option<(f64, Var)>,
}

/// The body of the loop.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) vars: Vec<(Kind, Home)>,
    pub(crate) insts: Vec<Inst>,
    pub(crate) pool: Vec<PoolConstant>,
    pub(crate) sums: Vec<Sum>,
}
