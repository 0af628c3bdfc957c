//! Compares every operation on words of all kinds with MPFR, which rounds once.

use proptest::prelude::*;
use rug::Float;
use rug::float::Round;
use rug::ops::AddAssignRound;
use sprat_grapedr::{Width, Word};
use std::cmp::Ordering;

/// Precision in bits: far more than any sum or product needs.
const EXACT: u32 = 2300;

/// Returns the exact number of a word, or `None` if the word is not a number.
fn exact(word: Word) -> Option<Float> {
    if word.is_nan() {
        return None;
    }
    let sign = if word.is_negative() { -1 } else { 1 };
    if word.is_infinite() {
        return Some(Float::with_val(
            EXACT,
            if sign < 0 { f64::NEG_INFINITY } else { f64::INFINITY },
        ));
    }
    if word.is_zero() {
        return Some(Float::with_val(EXACT, if sign < 0 { -0.0 } else { 0.0 }));
    }
    let exponent = i32::try_from(word.bits() >> 60 & 0x7ff).unwrap();
    let significand = word.bits() & ((1 << 60) - 1) | 1 << 60;
    Some((Float::with_val(EXACT, significand) << (exponent - 1023 - 60)) * sign)
}

/// Returns the word of a number. MPFR rounds it.
fn word(number: &Float, width: Width) -> Word {
    if number.is_nan() {
        return Word::NAN;
    }
    let sign = u128::from(number.is_sign_negative()) << 71;
    let least = Float::with_val(EXACT, 1) >> 1022;
    if number.cmp_abs(&least) == Some(Ordering::Less) {
        return Word::from_bits(sign);
    }
    let (rounded, _) = Float::with_val_round(width.precision(), number, Round::Nearest);
    let exponent = rounded.get_exp().unwrap_or(i32::MAX);
    if rounded.is_infinite() || exponent > 1024 {
        return Word::from_bits(sign | Word::INFINITY.bits());
    }
    let (integer, by) = rounded.to_integer_exp().unwrap();
    let integer = integer.to_u128_wrapping();
    let magnitude = if number.is_sign_negative() { integer.wrapping_neg() } else { integer };
    let length = 128 - i32::try_from(magnitude.leading_zeros()).unwrap();
    assert_eq!(length + by, exponent);
    let fraction = (magnitude << (61 - length)) & ((1 << 60) - 1);
    Word::from_bits(sign | u128::try_from(exponent - 1 + 1023).unwrap() << 60 | fraction)
}

/// Returns the nearest `f32`. Subnormals are rounded to multiples of the least subnormal, because
/// the library's own conversion is off by one for some of them.
fn narrow(number: &Float) -> f32 {
    let normal = Float::with_val(EXACT, f32::MIN_POSITIVE);
    if number.cmp_abs(&normal) != Some(Ordering::Less) || number.is_zero() {
        return number.to_f32();
    }
    let (units, _) =
        Float::with_val(EXACT, number << 149).to_integer_round(Round::Nearest).unwrap();
    let magnitude = f32::from_bits(units.abs().to_u32().unwrap());
    if number.is_sign_negative() { -magnitude } else { magnitude }
}

/// Random words of all kinds: with random bits, with similar exponents, and at the ends of the
/// range; both long and short.
fn words() -> impl Strategy<Value = Word> {
    let fraction = prop_oneof![
        any::<u64>().prop_map(|bits| u128::from(bits >> 4)),
        any::<u64>().prop_map(|bits| u128::from(bits >> 40 << 36)),
        Just(0),
        Just((1 << 60) - 1),
        Just(1),
        Just(1 << 36),
        (0u32..60).prop_map(|bit| 1 << bit),
        (0u32..60).prop_map(|bit| ((1 << 60) - 1) >> bit << bit),
    ];
    let exponent = prop_oneof![
        4 => 960u128..1086,
        2 => 0u128..2048,
        1 => prop_oneof![Just(0u128), Just(1), Just(2), Just(2045), Just(2046), Just(2047)],
        1 => 500u128..524,
        1 => 1510u128..1550,
    ];
    let long = (any::<bool>(), exponent, fraction).prop_map(|(sign, exponent, fraction)| {
        Word::from_bits(u128::from(sign) << 71 | exponent << 60 | fraction)
    });
    (long, any::<bool>()).prop_map(|(word, short)| if short { word.short() } else { word })
}

fn widths() -> impl Strategy<Value = Width> {
    prop_oneof![Just(Width::Short), Just(Width::Long)]
}

/// Returns MPFR's result for two words.
fn judged(a: Word, b: Word, width: Width, operation: impl Fn(&Float, &Float) -> Float) -> Word {
    match (exact(a), exact(b)) {
        (Some(a), Some(b)) => word(&operation(&a, &b), width),
        _ => Word::NAN,
    }
}

fn sum(a: &Float, b: &Float) -> Float {
    let mut sum = a.clone();
    assert!(
        sum.add_assign_round(b, Round::Nearest) == Ordering::Equal || sum.is_nan(),
        "EXACT is too small"
    );
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn sums_are_rounded_once(a in words(), b in words(), width in widths()) {
        prop_assert_eq!(a.add(b, width), judged(a, b, width, sum));
        prop_assert_eq!(a.sub(b, width), judged(a, b, width, |a, b| sum(a, &-b.clone())));
    }

    /// Tests neighbours, whose differences lose nearly all bits, and words whose sums are half-way
    /// between two words.
    #[test]
    fn sums_of_neighbours(a in words(), by in -3i32..64, delta in -2i64..3, width in widths()) {
        let shifted = u128::try_from(by.max(0)).unwrap() << 60;
        let near = Word::from_bits(
            (a.bits().wrapping_sub(shifted)).wrapping_add_signed(i128::from(delta)),
        );
        prop_assert_eq!(a.sub(near, width), judged(a, near, width, |a, b| sum(a, &-b.clone())));
        prop_assert_eq!(a.add(near, width), judged(a, near, width, sum));
    }

    #[test]
    fn products_are_rounded_once(a in words(), b in words(), width in widths()) {
        prop_assert_eq!(a.mul(b, width), judged(a, b, width, |a, b| Float::with_val(EXACT, a * b)));
    }

    #[test]
    fn comparisons_are_of_numbers(a in words(), b in words()) {
        let expected = exact(a).zip(exact(b)).and_then(|(a, b)| a.partial_cmp(&b));
        prop_assert_eq!(a.compare(b), expected);
        prop_assert_eq!(a.compare(a), exact(a).map(|_| Ordering::Equal));
    }

    #[test]
    fn conversions_round_once(a in words()) {
        prop_assert_eq!(
            a.rounded(Width::Short),
            exact(a).map_or(Word::NAN, |a| word(&a, Width::Short))
        );
        prop_assert!(a.rounded(Width::Short).is_short());
        let Some(number) = exact(a) else {
            prop_assert!(a.to_f64().is_nan() && a.to_f32().is_nan());
            return Ok(());
        };
        prop_assert_eq!(a.to_f64().to_bits(), number.to_f64().to_bits());
        prop_assert_eq!(a.to_f32().to_bits(), narrow(&number).to_bits());
    }

    #[test]
    fn numbers_come_in_exactly(number: f64, narrow: f32) {
        let back = Word::from_f64(number).to_f64();
        if number.is_nan() {
            prop_assert!(back.is_nan());
        } else {
            let expected = if number.is_subnormal() { 0f64.copysign(number) } else { number };
            prop_assert_eq!(back.to_bits(), expected.to_bits());
        }
        let wide = Word::from_f64(f64::from(narrow));
        prop_assert!(wide.is_short());
        prop_assert!(narrow.is_nan() || wide.to_f32().to_bits() == narrow.to_bits());
    }
}

/// The word is between two subnormals of `f32`, slightly closer to the upper one.
#[test]
fn a_subnormal_of_f32_is_rounded_once() {
    let word = Word::from_bits(0x37_c4f4_5a10_0000_0000);
    assert_eq!(word.to_f32().to_bits(), 343_319);
}
