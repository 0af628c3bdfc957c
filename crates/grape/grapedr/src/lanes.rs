//! One word of each element of a block, and the units' operations on all these words together.

use crate::instruction::{Code, ELEMENTS};
use crate::word::{BEHIND_SHORT, EXPONENT, EXPONENT_SHIFT, LONG_BITS, SIGN, Width, Word, flushed};
use std::cmp::Ordering;

/// One word of each element of a block. The upper 64 bits contain a short word. They are stored
/// separately from the lower 8 bits, so that operations on short words can be vectorized.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    high: [u64; ELEMENTS],
    low: [u8; ELEMENTS],
}

impl Lanes {
    pub(crate) fn all(word: Word) -> Self {
        Self { high: [word.high(); ELEMENTS], low: [word.low(); ELEMENTS] }
    }

    pub(crate) fn fill(&mut self, word: Word) {
        self.high.fill(word.high());
        self.low.fill(word.low());
    }

    pub(crate) fn get(&self, element: usize) -> Word {
        Word::from_parts(self.high[element], self.low[element])
    }

    pub(crate) fn set(&mut self, element: usize, word: Word) {
        self.high[element] = word.high();
        self.low[element] = word.low();
    }

    /// Copies the words of `from` for the elements whose bit is set in `bits`.
    pub(crate) fn store(&mut self, from: &Self, bits: u32) {
        if bits == u32::MAX {
            self.clone_from(from);
            return;
        }
        for element in (0..ELEMENTS).filter(|element| bits >> element & 1 == 1) {
            self.set(element, from.get(element));
        }
    }

    /// Returns one bit for each element. It is set if any bit of the element's word is set.
    pub(crate) fn any(&self) -> u32 {
        (0..ELEMENTS)
            .fold(0, |bits, e| bits | u32::from(self.high[e] != 0 || self.low[e] != 0) << e)
    }

    /// Computes an operation on two operands, and stores the result here.
    pub(crate) fn compute(&mut self, code: Code, a: &Self, b: &Self) {
        match code {
            Code::Add(Width::Short) if a.is_short() && b.is_short() => {
                self.short(a, b, |a, b| a + b)
            }
            Code::Sub(Width::Short) if a.is_short() && b.is_short() => {
                self.short(a, b, |a, b| a - b)
            }
            Code::Mul(Width::Short) => self.short(a, b, |a, b| a * b),
            Code::Add(width) => self.words(a, b, |a, b| a.add(b, width)),
            Code::Sub(width) => self.words(a, b, |a, b| a.sub(b, width)),
            Code::Mul(Width::Long) => self.words(a, b, |a, b| a.mul(b, Width::Long)),
            Code::Less => self.words(a, b, |a, b| holds(a.compare(b) == Some(Ordering::Less))),
            Code::LessEqual => {
                self.words(a, b, |a, b| holds(a.compare(b).is_some_and(Ordering::is_le)))
            }
            Code::Equal => self.words(a, b, |a, b| holds(a.compare(b) == Some(Ordering::Equal))),
            Code::NotEqual => self.words(a, b, |a, b| holds(a.compare(b) != Some(Ordering::Equal))),
            Code::IntegerAdd => {
                self.words(a, b, |a, b| Word::from_bits(a.bits().wrapping_add(b.bits())))
            }
            Code::IntegerSub => {
                self.words(a, b, |a, b| Word::from_bits(a.bits().wrapping_sub(b.bits())))
            }
            Code::And => self.bits(a, b, |a, b| a & b, |a, b| a & b),
            Code::Or => self.bits(a, b, |a, b| a | b, |a, b| a | b),
            Code::Xor => self.bits(a, b, |a, b| a ^ b, |a, b| a ^ b),
            Code::ShiftLeft => {
                self.words(a, b, |a, b| Word::from_bits(by(b).map_or(0, |by| a.bits() << by)))
            }
            Code::ShiftRight => {
                self.words(a, b, |a, b| Word::from_bits(by(b).map_or(0, |by| a.bits() >> by)))
            }
            Code::Pass => self.clone_from(a),
        }
    }

    fn is_short(&self) -> bool {
        let high = self.high.iter().fold(0, |all, high| all | high);
        let low = self.low.iter().fold(0, |all, low| all | low);
        high & BEHIND_SHORT == 0 && low == 0
    }

    fn words(&mut self, a: &Self, b: &Self, operation: impl Fn(Word, Word) -> Word) {
        for element in 0..ELEMENTS {
            self.set(element, operation(a.get(element), b.get(element)));
        }
    }

    fn bits(
        &mut self,
        a: &Self,
        b: &Self,
        high: impl Fn(u64, u64) -> u64,
        low: impl Fn(u8, u8) -> u8,
    ) {
        for element in 0..ELEMENTS {
            self.high[element] = high(a.high[element], b.high[element]);
            self.low[element] = low(a.low[element], b.low[element]);
        }
    }

    /// Computes an operation on short operands in `f64`, which represents them exactly. A product
    /// has at most 50 bits, so it is exact in `f64`. A sum is first rounded to 53 bits. That is
    /// more than twice 25 bits, so rounding the sum again to 25 bits gives the correctly rounded
    /// sum.
    fn short(&mut self, a: &Self, b: &Self, operation: impl Fn(f64, f64) -> f64) {
        let operand = |high: u64| f64::from_bits(flushed(high & !BEHIND_SHORT));
        for element in 0..ELEMENTS {
            self.high[element] =
                short(operation(operand(a.high[element]), operand(b.high[element])));
        }
        self.low.fill(0);
    }
}

fn holds(holds: bool) -> Word {
    if holds { Word::ONES } else { Word::ZERO }
}

/// Returns the distance of a shift. `None` if the shift moves all bits out of the word.
fn by(word: Word) -> Option<u32> {
    u32::try_from(word.bits()).ok().filter(|&by| by < LONG_BITS)
}

/// Rounds the result of a short operation, computed in `f64`, to the nearest short word.
fn short(number: f64) -> u64 {
    let bits = number.to_bits();
    let exponent = bits >> EXPONENT_SHIFT & EXPONENT;
    let rounded = (bits + (BEHIND_SHORT >> 1) + (bits >> 28 & 1)) & !BEHIND_SHORT;
    if exponent == 0 {
        bits & SIGN
    } else if number.is_nan() {
        Word::NAN.high()
    } else {
        rounded
    }
}
