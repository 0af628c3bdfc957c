//! Arithmetic of words with integers: the results of the adder, the multiplier and the comparisons,
//! with one rounding.

use crate::word::{EXPONENT, EXPONENT_SHIFT, LONG_PRECISION, SHORT_PRECISION, SIGN, Width, Word};
use std::cmp::Ordering;

/// The bit position of the hidden bit in an unrounded significand.
const TOP: u32 = 127;

/// The bias of exponents.
const BIAS: i64 = 1023;

impl Width {
    /// Returns the number of bits of the significand, including the hidden bit.
    #[must_use]
    pub fn precision(self) -> u32 {
        match self {
            Self::Short => SHORT_PRECISION,
            Self::Long => LONG_PRECISION,
        }
    }
}

impl Word {
    /// Returns the sum, rounded to `width`.
    #[must_use]
    #[inline]
    pub fn add(self, other: Self, width: Width) -> Self {
        let (a, b) =
            if self.magnitude() < other.magnitude() { (other, self) } else { (self, other) };
        if a.exponent() == EXPONENT || b.is_zero() {
            return add_special(a, b, width);
        }
        // If bits of the smaller operand are shifted out, one sticky bit represents them. It is far
        // below the bits that decide the rounding.
        let distance = u32::try_from(a.exponent() - b.exponent()).expect("11 bits");
        let left = u128::from(a.significand()) << (TOP - LONG_PRECISION);
        let whole = u128::from(b.significand()) << (TOP - LONG_PRECISION);
        let right = match distance {
            0..=TOP => whole >> distance | u128::from(whole & ((1 << distance) - 1) != 0),
            _ => 1,
        };
        let same = a.is_negative() == b.is_negative();
        let sum = if same { left + right } else { left - right };
        if sum == 0 {
            return Self::ZERO;
        }
        let shift = sum.leading_zeros();
        let exponent = field(a) + 1 - i64::from(shift);
        pack(a.high() & SIGN, exponent, sum << shift, width)
    }

    /// Returns the difference, rounded to `width`.
    #[must_use]
    #[inline]
    pub fn sub(self, other: Self, width: Width) -> Self {
        self.add(other.negated(), width)
    }

    /// Returns the product, rounded to `width`.
    #[must_use]
    #[inline]
    pub fn mul(self, other: Self, width: Width) -> Self {
        let sign = (self.high() ^ other.high()) & SIGN;
        let special = |word: Self| word.exponent() == EXPONENT || word.is_zero();
        if special(self) || special(other) {
            return mul_special(self, other, sign);
        }
        let product = u128::from(self.significand()) * u128::from(other.significand());
        let shift = product.leading_zeros();
        // The product of two 61-bit significands has 121 bits, or 122 if it is 2 or more.
        let exponent = field(self) + field(other) - BIAS + 7 - i64::from(shift);
        pack(sign, exponent, product << shift, width)
    }

    /// Returns the word with the opposite sign, even if it is not a number.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::from_parts(self.high() ^ SIGN, self.low())
    }

    /// Compares two numbers. Returns `None` if one of them is not a number. Zeros of both signs are
    /// equal.
    #[must_use]
    #[inline]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        if self.is_nan() || other.is_nan() {
            return None;
        }
        Some(self.ordered().cmp(&other.ordered()))
    }

    /// Returns the word, rounded to `width`.
    #[must_use]
    pub fn rounded(self, width: Width) -> Self {
        if self.exponent() == EXPONENT || self.is_zero() {
            return quiet(self);
        }
        pack(
            self.high() & SIGN,
            field(self),
            u128::from(self.significand()) << (TOP + 1 - LONG_PRECISION),
            width,
        )
    }

    fn magnitude(self) -> (u64, u8) {
        (self.high() & !SIGN, self.low())
    }

    /// Returns an integer. The integers of words have the same order as the words' numbers.
    fn ordered(self) -> i128 {
        let magnitude = if self.is_zero() {
            0
        } else {
            i128::from(self.high() & !SIGN) << 8 | i128::from(self.low())
        };
        if self.is_negative() { -magnitude } else { magnitude }
    }
}

fn field(word: Word) -> i64 {
    i64::try_from(word.exponent()).expect("11 bits")
}

/// Normalizes a word that is infinite, zero or not a number.
fn quiet(word: Word) -> Word {
    if word.is_nan() {
        Word::NAN
    } else {
        Word::from_parts(
            crate::word::flushed(word.high()),
            if word.is_zero() { 0 } else { word.low() },
        )
    }
}

/// Adds two words if the larger one is not finite, or the smaller one is zero.
#[cold]
fn add_special(a: Word, b: Word, width: Width) -> Word {
    if a.is_nan() || b.is_nan() {
        return Word::NAN;
    }
    if a.is_infinite() {
        let opposed = b.is_infinite() && a.is_negative() != b.is_negative();
        return if opposed { Word::NAN } else { a };
    }
    if a.is_zero() {
        return if a.is_negative() && b.is_negative() { Word::ZERO.negated() } else { Word::ZERO };
    }
    a.rounded(width)
}

/// Multiplies two words if one is zero, infinite or not a number.
#[cold]
fn mul_special(a: Word, b: Word, sign: u64) -> Word {
    let infinite = a.is_infinite() || b.is_infinite();
    if a.is_nan() || b.is_nan() || infinite && (a.is_zero() || b.is_zero()) {
        return Word::NAN;
    }
    Word::from_parts(sign | if infinite { Word::INFINITY.high() } else { 0 }, 0)
}

/// Rounds a significand to a word. The first bit of `significand` must be at [`TOP`]. `exponent`
/// may be out of range.
#[inline]
fn pack(sign: u64, exponent: i64, significand: u128, width: Width) -> Word {
    debug_assert!(significand >> TOP == 1, "a significand begins with its hidden bit");
    if exponent <= 0 {
        return Word::from_parts(sign, 0);
    }
    let dropped = TOP + 1 - width.precision();
    let kept = significand >> dropped;
    let rest = significand << width.precision();
    let half = 1 << TOP;
    let up = rest > half || rest == half && kept & 1 == 1;
    // The fraction at its position in a long word, without the hidden bit. A carry out of the
    // fraction increments the exponent, which is correct.
    let fraction = (kept + u128::from(up)) << (LONG_PRECISION - width.precision());
    let Ok(below) = u128::try_from(exponent - 1) else { unreachable!("above 0") };
    let bits = (below << (LONG_PRECISION - 1)) + fraction;
    if bits >= Word::INFINITY.bits() {
        return Word::from_parts(sign | EXPONENT << EXPONENT_SHIFT, 0);
    }
    let word = Word::from_bits(bits);
    Word::from_parts(word.high() | sign, word.low())
}
