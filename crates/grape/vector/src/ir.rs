//! The body of a kernel's loop over j, in terms of what processors have: operations on vectors, and
//! a memory location for each input.

use sprat_formula::Value;

/// Bytes of memory for one spilled value: the size of the longest vector.
pub(crate) const SPILL: usize = 64;

/// The type of the numbers in a vector.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    /// 32-bit numbers. On processors without mask registers, also masks: a lane is selected if the
    /// sign bit of its number is set.
    F32,
    /// 64-bit numbers, or masks as for [`Kind::F32`].
    F64,
    /// A mask in a mask register.
    Mask,
}

impl Kind {
    /// Returns the size of one number in bytes.
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

/// Where a value is in memory, if no instruction of the loop computes it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Home {
    /// The value has no location: an instruction computes it.
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

/// The operation of an instruction. Its operands are called `a`, `b` and `c`, in this order.
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
    /// `a` times two to the power of `b`. `b` must be a whole number.
    Scale,
    /// Shifts bits to the left.
    Shift(u8),
    /// Converts numbers of the other size to this type.
    Convert,
    /// Compares by this predicate, as instructions encode it. The result is a mask.
    Compare(u8),
    /// `b` in the lanes that the mask `a` selects, otherwise `c`.
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
    /// The type of the numbers that the instruction works on. The result has the same type, except
    /// for comparisons. For a conversion, it is the type of the result.
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
    /// The byte offset at which the accumulator's vector is stored.
    pub(crate) at: usize,
    /// The constant with which the accumulator starts.
    pub(crate) start: Var,
    /// The factor by which the accumulator is multiplied after the loop, and the constant that
    /// holds the factor. `None` if there is no factor.
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
