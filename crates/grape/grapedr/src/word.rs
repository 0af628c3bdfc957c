//! Words of 72 bits: a sign, 11 bits of exponent and 60 bits of fraction. A short word has a
//! fraction of 24 bits, and occupies the upper half of a word.

use std::fmt;

/// Number of bits of a long word.
pub const LONG_BITS: u32 = 72;

/// Number of bits of a long word's significand, including the hidden bit.
pub const LONG_PRECISION: u32 = 61;

/// Number of bits of a short word's significand, including the hidden bit.
pub const SHORT_PRECISION: u32 = 25;

/// The largest exponent field. Infinity, and words that are not numbers, have it.
pub(crate) const EXPONENT: u64 = 0x7ff;

/// The position of the exponent in [`Word::high`], which is the same as in an `f64`.
pub(crate) const EXPONENT_SHIFT: u32 = 52;

/// The sign in [`Word::high`].
pub(crate) const SIGN: u64 = 1 << 63;

/// The bits of [`Word::high`] that a short word does not have.
pub(crate) const BEHIND_SHORT: u64 = (1 << 28) - 1;

/// The number of bits of a significand that an operation keeps.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Width {
    /// 25 bits: the result is a short word.
    Short,
    /// 61 bits: the result is a long word.
    Long,
}

/// A long word, or a short word followed by zeros. Sign, exponent (biased by 1023) and fraction are
/// laid out as in IEEE 754. So the upper 64 bits of a long word are an `f64` with a truncated
/// fraction, and a short word is an `f64` whose last 28 bits are missing.
///
/// An exponent field of 0 means zero, whatever the fraction is: there are no subnormals. A result
/// that is below the least normal number before rounding becomes a zero of its sign. An exponent
/// field of 2047 means infinity, or, with a fraction, not a number. Of the words that are not
/// numbers, operations return only [`Word::NAN`]. Rounding is to nearest, ties to even. Results
/// beyond the range become infinity.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Word {
    high: u64,
    low: u8,
}

impl Word {
    /// Plus zero, with all bits clear.
    pub const ZERO: Self = Self { high: 0, low: 0 };
    /// All bits set: the result of a comparison that holds.
    pub const ONES: Self = Self { high: u64::MAX, low: u8::MAX };
    /// Infinity.
    pub const INFINITY: Self = Self { high: EXPONENT << EXPONENT_SHIFT, low: 0 };
    /// The result of operations whose result is not a number.
    pub const NAN: Self = Self { high: 0x7ff8 << 48, low: 0 };

    /// Creates a word from its bits. Bits above [`LONG_BITS`] are dropped.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, ..] = bits.to_le_bytes();
        Self { high: u64::from_le_bytes([b1, b2, b3, b4, b5, b6, b7, b8]), low: b0 }
    }

    /// Returns the bits of the word.
    #[must_use]
    pub fn bits(self) -> u128 {
        u128::from(self.high) << 8 | u128::from(self.low)
    }

    pub(crate) const fn from_parts(high: u64, low: u8) -> Self {
        Self { high, low }
    }

    /// Returns the upper 64 bits.
    pub(crate) const fn high(self) -> u64 {
        self.high
    }

    /// Returns the lower 8 bits.
    pub(crate) const fn low(self) -> u8 {
        self.low
    }

    /// Converts a number exactly, except that subnormals become zero. All `f32` numbers become
    /// short words.
    #[must_use]
    pub fn from_f64(number: f64) -> Self {
        if number.is_nan() { Self::NAN } else { Self { high: flushed(number.to_bits()), low: 0 } }
    }

    /// Converts the word to the nearest `f64`, ties to even.
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

    /// Converts the word to the nearest `f32`, ties to even, with one rounding.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        // The lower bits are truncated, and the last bit of the `f64` records whether any of them
        // was set. The `f64` has enough bits more than an `f32`: rounding it gives the same result
        // as rounding the word.
        let cut =
            f64::from_bits(flushed(self.high) | u64::from(self.low != 0 && self.exponent() != 0));
        #[expect(clippy::cast_possible_truncation, reason = "rounded to nearest")]
        let narrow = if self.is_nan() { f32::NAN } else { cut as f32 };
        narrow
    }

    /// Returns the short word in the upper half. The bits behind it become zero.
    #[must_use]
    pub fn short(self) -> Self {
        Self { high: self.high & !BEHIND_SHORT, low: 0 }
    }

    /// Returns whether all bits behind the short word are zero.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.high & BEHIND_SHORT == 0 && self.low == 0
    }

    /// Returns whether the word is not a number.
    #[must_use]
    pub fn is_nan(self) -> bool {
        let magnitude = self.high & !SIGN;
        magnitude > Self::INFINITY.high || magnitude == Self::INFINITY.high && self.low != 0
    }

    /// Returns whether the word is infinity of either sign.
    #[must_use]
    pub fn is_infinite(self) -> bool {
        self.high & !SIGN == Self::INFINITY.high && self.low == 0
    }

    /// Returns whether the word is zero of either sign.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.exponent() == 0
    }

    /// Returns whether the word's sign is set.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.high & SIGN != 0
    }

    /// Returns the exponent field.
    pub(crate) fn exponent(self) -> u64 {
        self.high >> EXPONENT_SHIFT & EXPONENT
    }

    /// Returns the significand of a normal number, 61 bits including the hidden bit.
    pub(crate) fn significand(self) -> u64 {
        self.high << 8 & ((1 << 60) - 1) | u64::from(self.low) | 1 << 60
    }
}

/// Replaces a subnormal number by a zero of the same sign.
pub(crate) fn flushed(high: u64) -> u64 {
    if high >> EXPONENT_SHIFT & EXPONENT == 0 { high & SIGN } else { high }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#020x} ({:?})", self.bits(), self.to_f64())
    }
}
