//! Numbers as `INCRBYFLOAT` adds them. Redis computes with C's `long double`, which on x86 has a
//! mantissa of 64 bits, and shows 17 digits behind the point.

use num_bigint::{BigInt, BigUint, Sign};
use std::cmp::Ordering;

/// Bits of the mantissa.
const MANTISSA_BITS: u64 = 64;

/// The largest exponent of two of the highest bit, and the smallest.
const MAX_EXPONENT: i64 = 16383;
const MIN_EXPONENT: i64 = -16445;

/// The longest text of a number, in bytes.
const MAX_TEXT: usize = 5119;

/// The longest text of a sum, in bytes: a sign, 4,933 digits, or fewer and those behind the point.
pub(crate) const MAX_SUM: usize = 4960;

/// Digits behind the point.
const DIGITS: u32 = 17;

/// A number: `mantissa` times two to the power of `exponent`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Extended {
    Finite { mantissa: BigInt, exponent: i64 },
    Infinite,
}

impl Extended {
    pub(crate) fn zero() -> Self {
        Self::Finite { mantissa: BigInt::ZERO, exponent: 0 }
    }

    /// Parses a decimal number, as C's `strtold` does; `None` if the text is none, or is too near
    /// to zero or too far from it.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_TEXT)?;
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
            return Some(Self::Infinite);
        }
        let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((digits, exponent)) => {
                let is_number = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
                if is_number.is_empty() || !is_number.bytes().all(|it| it.is_ascii_digit()) {
                    return None;
                }
                // Exponents that do not fit are out of range in any case.
                (
                    digits,
                    exponent.parse::<i32>().unwrap_or(match exponent.as_bytes()[0] {
                        b'-' => i32::MIN,
                        _ => i32::MAX,
                    }),
                )
            }
            None => (unsigned, 0),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let all = [whole, part].concat();
        if all.is_empty() || !all.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let number = BigUint::parse_bytes(all.as_bytes(), 10)?;
        if number == BigUint::ZERO {
            return Some(Self::zero());
        }
        let power = i64::from(exponent) - i64::try_from(part.len()).ok()?;
        // Ten to this power, with as many digits as the text may have, is out of range.
        if power.unsigned_abs() > 2 * MAX_TEXT as u64 {
            return None;
        }
        let tens = BigUint::from(10u32).pow(u32::try_from(power.unsigned_abs()).ok()?);
        let (above, below) = if power < 0 { (number, tens) } else { (number * tens, 1u32.into()) };
        let sign = if text.starts_with('-') { Sign::Minus } else { Sign::Plus };
        match Self::rounded(sign, above, below, 0) {
            Some(Self::Infinite) | None => None,
            finite => finite,
        }
    }

    /// Rounds `above / below` times two to the power of `exponent`, which is not zero; `None` if
    /// that is too near to zero.
    fn rounded(sign: Sign, above: BigUint, below: BigUint, exponent: i64) -> Option<Self> {
        let signed = |bits: u64| i64::try_from(bits).expect("limited");
        // So the quotient has one bit too many, or two, before it is rounded.
        let shift = signed(MANTISSA_BITS) + 1 - (signed(above.bits()) - signed(below.bits()));
        let (above, below) = match shift {
            0.. => (above << shift, below),
            _ => (above, below << -shift),
        };
        let (mut quotient, rest) = (&above / &below, &above % &below);
        let dropped = quotient.bits() - MANTISSA_BITS;
        let low = &quotient & ((BigUint::from(1u32) << dropped) - 1u32);
        let half = BigUint::from(1u32) << (dropped - 1);
        quotient >>= dropped;
        let is_odd = quotient.bit(0);
        let up = match low.cmp(&half) {
            Ordering::Less => false,
            Ordering::Equal => rest != BigUint::ZERO || is_odd,
            Ordering::Greater => true,
        };
        quotient += u32::from(up);
        let exponent = exponent - shift + signed(dropped);
        let highest = exponent + signed(quotient.bits()) - 1;
        match highest {
            ..MIN_EXPONENT => None,
            MIN_EXPONENT..=MAX_EXPONENT => {
                Some(Self::Finite { mantissa: BigInt::from_biguint(sign, quotient), exponent })
            }
            _ => Some(Self::Infinite),
        }
    }

    /// Adds another number.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (
            Self::Finite { mantissa, exponent },
            Self::Finite { mantissa: more, exponent: of_more },
        ) = (self, other)
        else {
            return Self::Infinite;
        };
        let least = *exponent.min(of_more);
        let sum = (mantissa << (exponent - least)) + (more << (of_more - least));
        let (sign, sum) = sum.into_parts();
        match sign {
            Sign::NoSign => Self::zero(),
            _ => Self::rounded(sign, sum, 1u32.into(), least).unwrap_or_else(Self::zero),
        }
    }

    /// Renders a finite number with up to 17 digits behind the point; `None` for others.
    pub(crate) fn text(&self) -> Option<String> {
        let Self::Finite { mantissa, exponent } = self else { return None };
        let scaled = mantissa.magnitude() * BigUint::from(10u32).pow(DIGITS);
        let scaled = match exponent {
            0.. => scaled << *exponent,
            _ => {
                let dropped = exponent.unsigned_abs();
                let (whole, one) = (&scaled >> dropped, BigUint::from(1u32));
                let low = &scaled & ((&one << dropped) - 1u32);
                let up = match low.cmp(&(&one << (dropped - 1))) {
                    Ordering::Less => false,
                    Ordering::Equal => whole.bit(0),
                    Ordering::Greater => true,
                };
                whole + u32::from(up)
            }
        };
        let digits = format!("{:0>width$}", scaled.to_string(), width = DIGITS as usize + 1);
        let (whole, part) = digits.split_at(digits.len() - DIGITS as usize);
        let text = format!("{whole}.{part}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let is_negative = mantissa.sign() == Sign::Minus && text != "0";
        Some(if is_negative { format!("-{text}") } else { text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::Extended;

    fn sum(one: &str, other: &str) -> Option<String> {
        Extended::parse(one.as_bytes())?.plus(&Extended::parse(other.as_bytes())?).text()
    }

    #[test]
    fn sums_are_those_of_long_double() {
        for (one, other, expected) in [
            ("10.5", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("1e20", "1", "100000000000000000000"),
            ("1e-30", "0", "0"),
            ("-1e-30", "0", "0"),
            (".5", "5.", "5.5"),
            ("+1", "1", "2"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("3.14159265358979323846", "0", "3.14159265358979324"),
        ] {
            assert_eq!(sum(one, other).as_deref(), Some(expected), "{one} + {other}");
        }
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1e4932", "0").map(|text| text.len()), Some(4933));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", " 1", "1 ", "x", "1x", ".", "e5", "1e", "1e+", "nan", "--1", "1e5000", "1e-5000"]
        {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Extended::parse(&[b'1'; 5120]), None);
        assert_eq!(Extended::parse(b"-Infinity"), Some(Extended::Infinite));
    }
}
