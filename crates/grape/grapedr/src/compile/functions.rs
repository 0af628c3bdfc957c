//! Functions that the units do not have, built from the units' operations. Each begins with a guess
//! from the bits of a number. Newton steps then double the number of correct digits. Masked
//! corrections handle zero, infinity and negative numbers.

use super::micro::{Destination, MicroProgram, Operand, Value};
use crate::instruction::Code;
use crate::word::{Width, Word};

/// If half of a number's bits are subtracted from this constant, the exponent is halved and
/// negated. The result is within 3.5 % of the inverse root of twice the number.
const ROOT_GUESS: u128 = 0x5fde_eb50_c7b5_37a9 << 8;

/// The root of 2, rounded to a short word.
const ROOT_OF_2: f64 = 23_726_566.0 / 16_777_216.0;

/// If a number's bits are subtracted from this constant, the result is within 13 % of the number's
/// inverse.
const INVERSE_GUESS: u128 = 0x7fde_6238_22fc_16e6 << 8;

/// The highest bit of the exponent.
const UPPER_EXPONENT: u128 = 1 << 70;

/// 1.5 times 2^24. Adding it to a short word rounds the word to a whole number.
const ROUNDER: f64 = 25_165_824.0;

/// The shift from the lowest bit of a short word to the lowest bit of the exponent.
const TO_EXPONENT: u128 = 24;

/// The degrees of the exponential's polynomial for short and for long words, and the power from
/// which on the coefficients of the long polynomial are short.
const EXP_SHORT: u32 = 7;
const EXP_LONG: u32 = 13;
const EXP_SHORT_FROM: u32 = 9;

/// Below the first limit, e^x is less than the least normal number. Above the second limit, e^x
/// overflows.
const EXP_LEAST: f64 = -708.5;
const EXP_GREATEST: f64 = 709.782_712_893_384;

pub(crate) fn number(number: f64) -> Operand {
    Operand::Immediate(Word::from_f64(number))
}

fn bits(bits: u128) -> Operand {
    Operand::Immediate(Word::from_bits(bits))
}

const SHORT: Width = Width::Short;
const LONG: Width = Width::Long;

impl MicroProgram {
    pub(crate) fn add(&mut self, width: Width, a: Operand, b: Operand) -> Operand {
        self.compute(Code::Add(width), a, b)
    }

    pub(crate) fn sub(&mut self, width: Width, a: Operand, b: Operand) -> Operand {
        self.compute(Code::Sub(width), a, b)
    }

    pub(crate) fn mul(&mut self, width: Width, a: Operand, b: Operand) -> Operand {
        self.compute(Code::Mul(width), a, b)
    }

    /// Computes the inverse root, to `accuracy` bits, but at most to those of the width.
    pub(crate) fn rsqrt(&mut self, width: Width, x: Operand, accuracy: u8) -> Operand {
        let root = self.root_guess(width, x, accuracy);
        let value = self.writable_value(root);
        // The inverse root of zero is infinity, and the inverse root of infinity is zero.
        let mask = self.zero_or_infinite(width, x);
        self.replace_by(
            mask,
            Destination::Value(value),
            Code::Xor,
            x,
            Operand::Immediate(Word::INFINITY),
        );
        self.nan_if_negative(value, x);
        Operand::Value(value)
    }

    pub(crate) fn sqrt(&mut self, width: Width, x: Operand) -> Operand {
        let root = self.root_guess(width, x, u8::MAX);
        let product = self.mul(width, x, root);
        let value = self.writable_value(product);
        let mask = self.zero_or_infinite(width, x);
        self.replace(mask, Destination::Value(value), x);
        self.nan_if_negative(value, x);
        Operand::Value(value)
    }

    /// Computes a quotient. If the divisor is large, its inverse is so small that the correction
    /// terms in long words would be zero. In this case, both the divisor and the quotient are
    /// scaled by 2^-512.
    pub(crate) fn div(&mut self, width: Width, a: Operand, b: Operand) -> Operand {
        if width == SHORT {
            let inverse = self.inverse(SHORT, b);
            return self.mul(SHORT, a, inverse);
        }
        let scale = self.scale(b);
        let scaled = self.mul(LONG, b, scale);
        let inverse = self.inverse(LONG, scaled);
        let quotient = self.mul(LONG, a, inverse);
        self.mul(LONG, quotient, scale)
    }

    /// Returns 2^-512 for numbers of 2^513 and more, and 1 for other numbers. Only for the large
    /// numbers are both of the highest two bits of the exponent set. The lower of these bits is
    /// then subtracted from the exponent of 1.
    fn scale(&mut self, x: Operand) -> Operand {
        let up = self.compute(Code::ShiftLeft, x, bits(1));
        let both = self.compute(Code::And, up, x);
        let upper = self.compute(Code::And, both, bits(UPPER_EXPONENT));
        let lower = self.compute(Code::ShiftRight, upper, bits(1));
        self.compute(Code::IntegerSub, number(1.0), lower)
    }

    fn inverse(&mut self, width: Width, b: Operand) -> Operand {
        let mut inverse = self.compute(Code::IntegerSub, bits(INVERSE_GUESS), b);
        for _ in 0..3 {
            let product = self.mul(SHORT, b, inverse);
            let rest = self.sub(SHORT, number(2.0), product);
            inverse = self.mul(SHORT, inverse, rest);
        }
        if width == LONG {
            for _ in 0..2 {
                let product = self.mul(LONG, b, inverse);
                let error = self.sub(SHORT, number(1.0), product);
                let step = self.mul(SHORT, inverse, error);
                inverse = self.add(LONG, inverse, step);
            }
        }
        let value = self.writable_value(inverse);
        let mask = self.zero_or_infinite(width, b);
        self.replace_by(
            mask,
            Destination::Value(value),
            Code::Xor,
            b,
            Operand::Immediate(Word::INFINITY),
        );
        Operand::Value(value)
    }

    /// Computes e^x, where x = k ln 2 + f, as 2^k times a polynomial in f.
    pub(crate) fn exp(&mut self, width: Width, x: Operand) -> Operand {
        let quotient = self.mul(SHORT, x, number(std::f64::consts::LOG2_E));
        let shifted = self.add(SHORT, quotient, number(ROUNDER));
        let k = self.sub(SHORT, shifted, number(ROUNDER));
        let (high, low) = ln2(width);
        let above = self.mul(width, k, number(high));
        let below = self.mul(SHORT, k, number(low));
        let rest = self.sub(width, x, above);
        let f = self.sub(width, rest, below);
        let degree = if width == SHORT { EXP_SHORT } else { EXP_LONG };
        let mut sum = number(1.0 / factorial(degree));
        for power in (0..degree).rev() {
            let step = if power >= EXP_SHORT_FROM { SHORT } else { width };
            let product = self.mul(step, f, sum);
            sum = self.add(step, product, number(1.0 / factorial(power)));
        }
        let exponent = self.compute(Code::ShiftLeft, shifted, bits(TO_EXPONENT));
        let power = self.compute(Code::IntegerAdd, sum, exponent);
        let value = self.writable_value(power);
        let mask = self.mask(Code::Less, x, number(EXP_LEAST));
        self.replace(mask, Destination::Value(value), Operand::Immediate(Word::ZERO));
        let mask = self.mask(Code::Less, number(EXP_GREATEST), x);
        self.replace(mask, Destination::Value(value), Operand::Immediate(Word::INFINITY));
        Operand::Value(value)
    }

    /// Computes the inverse root of a positive finite number. Each short step reduces the relative
    /// error to 1.5 times its square: to 2^-9, to 2^-17, and then to the precision of short words.
    /// A long step computes the error with long products, and corrects it with short ones.
    ///
    /// The short steps work on `root`, the inverse root of twice the number: they compute
    /// `root (1.5 - x root^2)`. To work on the inverse root of the number itself, they would have
    /// to halve the number or double it. Half of the least number would be zero, and the double of
    /// the greatest would overflow. The square of the root of a large number would also be zero, so
    /// `x` is multiplied by `root` twice.
    fn root_guess(&mut self, width: Width, x: Operand, accuracy: u8) -> Operand {
        let (short, long) = match (accuracy, width) {
            (0..=9, _) => (1, 0),
            (10..=17, _) => (2, 0),
            (_, Width::Short) | (18..=23, _) => (3, 0),
            (24..=33, _) => (2, 1),
            _ => (2, 2),
        };
        let halved = self.compute(Code::ShiftRight, x, bits(1));
        let mut root = self.compute(Code::IntegerSub, bits(ROOT_GUESS), halved);
        for step in 1..=short {
            let once = self.mul(SHORT, x, root);
            let twice = self.mul(SHORT, once, root);
            let rest = self.sub(SHORT, number(1.5), twice);
            let from = if step == short { self.mul(SHORT, root, number(ROOT_OF_2)) } else { root };
            root = self.mul(SHORT, from, rest);
        }
        for _ in 0..long {
            let once = self.mul(LONG, x, root);
            let twice = self.mul(LONG, once, root);
            let error = self.sub(SHORT, number(1.0), twice);
            let half = self.mul(SHORT, error, number(0.5));
            let step = self.mul(SHORT, root, half);
            root = self.add(LONG, root, step);
        }
        root
    }

    /// Returns a value that may be overwritten: the operand itself, or a copy.
    fn writable_value(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Value(value) => value,
            _ => self.copy(operand),
        }
    }

    /// Returns a mask that is set if a number is zero or infinite: only these numbers equal their
    /// double.
    fn zero_or_infinite(&mut self, width: Width, x: Operand) -> usize {
        let twice = self.add(width, x, x);
        self.mask(Code::Equal, twice, x)
    }

    fn nan_if_negative(&mut self, value: Value, x: Operand) {
        let mask = self.mask(Code::Less, x, Operand::Immediate(Word::ZERO));
        self.replace(mask, Destination::Value(value), Operand::Immediate(Word::NAN));
    }
}

/// Returns ln 2 in two parts. The first part has so few bits that its product with any k is exact.
fn ln2(width: Width) -> (f64, f64) {
    // The difference between ln 2 and the `f64` that is closest to it.
    const REST: f64 = 2.319_046_813_846_299_6e-17;
    let whole = std::f64::consts::LN_2;
    let cut = if width == SHORT { 53 - 14 } else { 53 - 49 };
    let high = f64::from_bits(whole.to_bits() >> cut << cut);
    (high, (whole - high) + REST)
}

fn factorial(of: u32) -> f64 {
    (1..=of).map(f64::from).product()
}
