//! Words: 72 bits of which sign, exponent and fraction are 1, 11 and 60, and the short ones of 1,
//! 11 and 24 that lie in their upper half.

use std::fmt;

/// Bits of a long word.
pub const LONG_BITS: u32 = 72;

/// Bits of a long word's significand, the hidden one included.
pub const LONG_PRECISION: u32 = 61;

/// Bits of a short word's significand, the hidden one included.
pub const SHORT_PRECISION: u32 = 25;

/// The greatest exponent field: of infinity, and of what is not a number.
pub(crate) const EXPONENT: u64 = 0x7ff;

/// Where the exponent begins in [`Word::high`], as in a `f64`.
pub(crate) const EXPONENT_SHIFT: u32 = 52;

/// The sign in [`Word::high`].
pub(crate) const SIGN: u64 = 1 << 63;

/// The bits of [`Word::high`] that are behind a short word.
pub(crate) const BEHIND_SHORT: u64 = (1 << 28) - 1;

/// How many bits of a significand an operation leaves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Width {
    /// 25: the result is a short word.
    Short,
    /// 61: the result is a long word.
    Long,
}

/// A long word, or a short one with zeros behind it. Sign, exponent (biased by 1023) and fraction
/// stand as in IEEE 754, so that the upper 64 bits of a long word are a `f64` with the fraction
/// cut, and a short word is one with 28 bits fewer.
///
/// An exponent field of 0 is a zero, whatever the fraction: there are no subnormals, and results
/// below the least normal number (before they are rounded) are zeros of their sign. A field of 2047
/// is infinity, or, with a fraction, not a number; operations make [`Word::NAN`] of these and no
/// other. Rounding is to nearest, ties to even; beyond the range it gives infinity.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Word {
    high: u64,
    low: u8,
}

impl Word {
    /// Plus zero; all bits clear.
    pub const ZERO: Self = Self { high: 0, low: 0 };
    /// All bits set: what comparisons give where they hold.
    pub const ONES: Self = Self { high: u64::MAX, low: u8::MAX };
    /// Infinity.
    pub const INFINITY: Self = Self { high: EXPONENT << EXPONENT_SHIFT, low: 0 };
    /// What operations give that have no answer.
    pub const NAN: Self = Self { high: 0x7ff8 << 48, low: 0 };

    /// The word of these bits; those above [`LONG_BITS`] are dropped.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, ..] = bits.to_le_bytes();
        Self { high: u64::from_le_bytes([b1, b2, b3, b4, b5, b6, b7, b8]), low: b0 }
    }

    /// Its bits.
    #[must_use]
    pub fn bits(self) -> u128 {
        u128::from(self.high) << 8 | u128::from(self.low)
    }

    pub(crate) const fn from_parts(high: u64, low: u8) -> Self {
        Self { high, low }
    }

    /// The upper 64 bits.
    pub(crate) const fn high(self) -> u64 {
        self.high
    }

    /// The lower 8 bits.
    pub(crate) const fn low(self) -> u8 {
        self.low
    }

    /// The same number, exactly; of a subnormal, zero. Also how `f32` come in: all of them are
    /// short words.
    #[must_use]
    pub fn from_f64(number: f64) -> Self {
        if number.is_nan() { Self::NAN } else { Self { high: flushed(number.to_bits()), low: 0 } }
    }

    /// The nearest `f64`, ties to even.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        if self.is_nan() {
            return f64::NAN;
        }
        let high = flushed(self.high);
        let even = high & 1;
        let up = self.exponent() != 0 && !self.is_infinite() && u64::from(self.low) + even > 0x80;
        f64::from_bits(high + u64::from(up))
    }

    /// The nearest `f32`, ties to even: rounded once.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        // Cut, with what was cut marked in the last bit: a `f64` has enough more bits than a `f32`
        // for that to round as the whole does.
        let cut =
            f64::from_bits(flushed(self.high) | u64::from(self.low != 0 && self.exponent() != 0));
        #[expect(clippy::cast_possible_truncation, reason = "rounded to nearest")]
        let narrow = if self.is_nan() { f32::NAN } else { cut as f32 };
        narrow
    }

    /// The short word that lies in the upper half: what is behind it is dropped.
    #[must_use]
    pub fn short(self) -> Self {
        Self { high: self.high & !BEHIND_SHORT, low: 0 }
    }

    /// Whether nothing lies behind the short word.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.high & BEHIND_SHORT == 0 && self.low == 0
    }

    /// Whether it is not a number.
    #[must_use]
    pub fn is_nan(self) -> bool {
        let magnitude = self.high & !SIGN;
        magnitude > Self::INFINITY.high || magnitude == Self::INFINITY.high && self.low != 0
    }

    /// Whether it is infinity of either sign.
    #[must_use]
    pub fn is_infinite(self) -> bool {
        self.high & !SIGN == Self::INFINITY.high && self.low == 0
    }

    /// Whether it is zero of either sign.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.exponent() == 0
    }

    /// Whether the sign is set.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.high & SIGN != 0
    }

    /// The exponent field.
    pub(crate) fn exponent(self) -> u64 {
        self.high >> EXPONENT_SHIFT & EXPONENT
    }

    /// The significand of a normal number, its hidden bit included: 61 bits.
    pub(crate) fn significand(self) -> u64 {
        self.high << 8 & ((1 << 60) - 1) | u64::from(self.low) | 1 << 60
    }
}

/// Zero of its sign instead of a subnormal.
pub(crate) fn flushed(high: u64) -> u64 {
    if high >> EXPONENT_SHIFT & EXPONENT == 0 { high & SIGN } else { high }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#020x} ({:?})", self.bits(), self.to_f64())
    }
}
