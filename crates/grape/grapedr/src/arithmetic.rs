//! Arithmetic of words in integers: what the adder, the multiplier and the comparisons do, rounded
//! once.

use crate::word::{EXPONENT, EXPONENT_SHIFT, LONG_PRECISION, SHORT_PRECISION, SIGN, Width, Word};
use std::cmp::Ordering;

/// Where the hidden bit of an unrounded significand stands.
const TOP: u32 = 127;

/// The bias of exponents.
const BIAS: i64 = 1023;

impl Width {
    /// Bits of the significand.
    #[must_use]
    pub fn precision(self) -> u32 {
        match self {
            Self::Short => SHORT_PRECISION,
            Self::Long => LONG_PRECISION,
        }
    }
}

impl Word {
    /// The sum, rounded to a width.
    #[must_use]
    #[inline]
    pub fn add(self, other: Self, width: Width) -> Self {
        let (a, b) =
            if self.magnitude() < other.magnitude() { (other, self) } else { (self, other) };
        if a.exponent() == EXPONENT || b.is_zero() {
            return add_special(a, b, width);
        }
        // The lesser may be a bit out of place only where bits were cut from it; one bit marks
        // these, far below where rounding looks.
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

    /// The difference, rounded to a width.
    #[must_use]
    #[inline]
    pub fn sub(self, other: Self, width: Width) -> Self {
        self.add(other.negated(), width)
    }

    /// The product, rounded to a width.
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
        // Of two significands of 61 bits the product has 121 bits, or 122 where it is 2 or more.
        let exponent = field(self) + field(other) - BIAS + 7 - i64::from(shift);
        pack(sign, exponent, product << shift, width)
    }

    /// The same with the sign turned, also of what is not a number.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::from_parts(self.high() ^ SIGN, self.low())
    }

    /// How it stands to another; nothing where one is not a number. Zeros are equal.
    #[must_use]
    #[inline]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        if self.is_nan() || other.is_nan() {
            return None;
        }
        Some(self.place().cmp(&other.place()))
    }

    /// Rounded to a width.
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

    /// Numbers in their order.
    fn place(self) -> i128 {
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

/// What is no normal number: not a number, or infinity or zero as it is.
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

/// Sums where the greater is no finite number, or the lesser is zero.
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

/// Products with zero, infinity, or what is not a number.
#[cold]
fn mul_special(a: Word, b: Word, sign: u64) -> Word {
    let infinite = a.is_infinite() || b.is_infinite();
    if a.is_nan() || b.is_nan() || infinite && (a.is_zero() || b.is_zero()) {
        return Word::NAN;
    }
    Word::from_parts(sign | if infinite { Word::INFINITY.high() } else { 0 }, 0)
}

/// The word of a sign, an exponent field out of any range, and a significand whose first bit stands
/// at [`TOP`].
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
    // Without the hidden bit, in the place of a long word's fraction; a carry out of it goes on
    // into the exponent, as it should.
    let fraction = (kept + u128::from(up)) << (LONG_PRECISION - width.precision());
    let Ok(below) = u128::try_from(exponent - 1) else { unreachable!("above 0") };
    let bits = (below << (LONG_PRECISION - 1)) + fraction;
    if bits >= Word::INFINITY.bits() {
        return Word::from_parts(sign | EXPONENT << EXPONENT_SHIFT, 0);
    }
    let word = Word::from_bits(bits);
    Word::from_parts(word.high() | sign, word.low())
}
