//! Parses sizes, rates, shares and durations as people type them. Every command, file and interface
//! uses this one grammar.
//!
//! | what | examples | a number alone |
//! | --- | --- | --- |
//! | [`size`] | `1500`, `64K`, `16G`, `16GiB`, `1.5GB` | bytes |
//! | [`rate`] | `100M`, `2Gbit`, `2Gb/s`, `9600`, `10MB/s` | bits a second |
//! | [`duration`] | `250ms`, `90s`, `10m`, `1h30m` | refused, except 0 |
//! | [`seconds`] | the same | seconds |
//! | [`share`], [`ratio`] | `0.1%`, `50 %`, `150%` | refused, except 0 |
//!
//! `MB` is 10^6 bytes and `MiB` 2^20 everywhere. Tools differ in the meaning of a lone letter, and
//! Sprat follows the majority: `16G` of memory is 16 GiB, as in dd, curl, rclone and the JVM; `1G`
//! as a rate is 10^9 bits a second, as in tc and iperf3. Any other text that common tools read in
//! two different ways is refused, and the error names both readings.
//!
//! [`figure`] formats numbers for people. [`html`] escapes text for web pages.

pub mod figure;
pub mod html;
mod time;

pub use time::{duration, seconds};

use thiserror::Error;

/// Why a text is not the expected quantity, with examples of texts that are.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UnitError {
    /// The text is not a number with a unit of the quantity.
    #[error("{text:?} is not a {quantity}; write {examples}")]
    Unknown {
        /// The text that was given.
        text: String,
        /// The expected quantity.
        quantity: &'static str,
        /// Texts that are valid.
        examples: &'static str,
    },
    /// Common tools read the text in two different ways.
    #[error("{text:?} can be read two ways: write {one} or {other}")]
    Ambiguous {
        /// The text that was given.
        text: String,
        /// One reading, written unambiguously.
        one: String,
        /// The other reading, written unambiguously.
        other: String,
    },
    /// The quantity is too large.
    #[error("{text:?} is too large: the limit is {most}")]
    TooMuch {
        /// The text that was given.
        text: String,
        /// The limit, with its unit.
        most: &'static str,
    },
}

/// The words for a quantity in error messages.
struct Kind {
    quantity: &'static str,
    examples: &'static str,
    most: &'static str,
}

impl Kind {
    fn unknown(&self, text: &str) -> UnitError {
        UnitError::Unknown {
            text: text.to_owned(),
            quantity: self.quantity,
            examples: self.examples,
        }
    }

    fn too_much(&self, text: &str) -> UnitError {
        UnitError::TooMuch { text: text.to_owned(), most: self.most }
    }
}

const SIZE: Kind = Kind {
    quantity: "size",
    examples: "512M or 16GiB (2^20, 2^30) or 1.5GB (10^9), say",
    most: "16 EiB",
};
const RATE: Kind = Kind {
    quantity: "rate",
    examples: "2Gb/s, 100Mbit or 100M (bits), or 10MB/s (bytes), say",
    most: "10^18 bits a second",
};
const SHARE: Kind = Kind {
    quantity: "share",
    examples: "0.1% or 50%, say",
    most: "100%, or 1000% of what can be more than all",
};

/// The largest rate accepted, in bits per second.
const MAX_RATE: u64 = 1_000_000_000_000_000_000;

/// Parses a size in bytes. A number alone, or with `B`, is in bytes. `K`, `M`, `G`, `T` and `P` are
/// powers of 1024, also if written like `Ki` or `KiB`. `kB`, `MB`, `GB`, `TB` and `PB` are powers
/// of 1000. Case does not matter.
///
/// # Errors
/// The text is not a size, or exceeds a `u64`.
///
/// ```
/// use sprat_units::size;
/// assert_eq!(size("16G"), Ok(16 << 30));
/// assert_eq!(size("16GiB"), size("16G"));
/// assert_eq!(size("1.5GB"), Ok(1_500_000_000));
/// assert_eq!(size("1500"), Ok(1500));
/// ```
pub fn size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text).ok_or_else(|| SIZE.unknown(text))?;
    let unit = unit.to_ascii_lowercase();
    let (power, rest) = prefix(&unit);
    let scale = match rest {
        "" | "ib" | "i" if power > 0 => 1024_u64.pow(power),
        "b" if power > 0 => 1000_u64.pow(power),
        "" | "b" => 1,
        _ => return Err(SIZE.unknown(text)),
    };
    number.times(scale).ok_or_else(|| SIZE.too_much(text))
}

/// Parses a rate in bits per second. A number alone is in bits per second. `k`, `M`, `G`, `T` and
/// `P` are powers of 1000, and with an `i` after the letter powers of 1024. A unit may follow: `b`,
/// `bit`, `bits`, `b/s`, `bit/s`, `bits/s`, or `bps` after a capital letter, for bits; `B/s` or
/// `Bps` for bytes.
///
/// # Errors
/// The text is not a rate, or exceeds 10^18 bits per second. `2GB` and `100mbps` are refused as
/// ambiguous, and the error names both readings: `2GB` is an amount rather than a rate, and
/// `100mbps` means bytes to tc and bits to other tools.
///
/// ```
/// use sprat_units::rate;
/// assert_eq!(rate("2Gb/s"), Ok(2_000_000_000));
/// assert_eq!(rate("100mbit"), rate("100M"));
/// assert_eq!(rate("10MB/s"), Ok(80_000_000));
/// assert!(rate("100mbps").is_err());
/// ```
pub fn rate(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text).ok_or_else(|| RATE.unknown(text))?;
    let (power, rest) = prefix(unit);
    let (base, rest) = match rest.strip_prefix('i') {
        Some(rest) if power > 0 => (1024_u64, rest),
        _ => (1000, rest),
    };
    let digits = &text.trim()[..text.trim().len() - unit.len()];
    let letters = &unit[..unit.len() - rest.len()];
    let both = |unit: &str| {
        let letters = if letters == "m" || letters == "g" {
            letters.to_uppercase()
        } else {
            letters.to_owned()
        };
        format!("{}{letters}{unit}", digits.trim_end())
    };
    let bits = match rest {
        "" | "bit" | "bits" | "b/s" | "bit/s" | "bits/s" | "b" => 1,
        "bps" if letters.contains(|letter: char| letter.is_ascii_uppercase()) => 1,
        "B/s" | "Bps" => 8,
        "bps" | "B" => {
            let (one, other) = (both("b/s"), both("B/s"));
            return Err(UnitError::Ambiguous { text: text.to_owned(), one, other });
        }
        _ => return Err(RATE.unknown(text)),
    };
    let scaled = number.times(base.pow(power) * bits);
    scaled.filter(|bits| *bits <= MAX_RATE).ok_or_else(|| RATE.too_much(text))
}

/// Parses a share of a whole, from 0 to 1, written as a percentage.
///
/// # Errors
/// The text is not a share, or exceeds 100 %. A number without `%` is refused, except 0, because
/// `0.1` is a tenth to some people and a thousandth to others, and a measurement would not reveal
/// the mistake.
///
/// ```
/// use sprat_units::share;
/// assert_eq!(share("0.1%"), Ok(0.001));
/// assert_eq!(share("0"), Ok(0.0));
/// assert_eq!(
///     share("0.1").unwrap_err().to_string(),
///     r#""0.1" can be read two ways: write 0.1% or 10%"#
/// );
/// ```
pub fn share(text: &str) -> Result<f64, UnitError> {
    percentage(text, 1.0)
}

/// Parses a ratio of up to 1000 %, written as a percentage. Otherwise it is parsed like a
/// [`share`].
///
/// # Errors
/// The text is not a ratio, or exceeds 1000 %. A number without `%` is refused, except 0.
///
/// ```
/// assert_eq!(sprat_units::ratio("150%"), Ok(1.5));
/// ```
pub fn ratio(text: &str) -> Result<f64, UnitError> {
    percentage(text, 10.0)
}

fn percentage(text: &str, most: f64) -> Result<f64, UnitError> {
    let (number, unit) = split(text).ok_or_else(|| SHARE.unknown(text))?;
    let value = number.value();
    match unit {
        // Parse the decimal only once, so that the result of `percent` parses back exactly.
        "%" if value <= most * 100.0 => format!("{}e-2", text.trim().trim_end_matches(['%', ' ']))
            .parse()
            .map_err(|_| SHARE.unknown(text)),
        "%" => Err(SHARE.too_much(text)),
        "" if value == 0.0 => Ok(0.0),
        "" if value <= 1.0 => {
            let (one, other) = (format!("{value}%"), percent(value));
            Err(UnitError::Ambiguous { text: text.to_owned(), one, other })
        }
        _ => Err(SHARE.unknown(text)),
    }
}

/// Formats a share with the fewest digits that [`share`] parses back exactly.
///
/// # Panics
/// If `share` is not from 0 to 1.
///
/// ```
/// use sprat_units::percent;
/// assert_eq!(percent(0.07), "7%");
/// assert_eq!(percent(0.000_012_5), "0.00125%");
/// ```
#[must_use]
pub fn percent(share: f64) -> String {
    assert!((0.0..=1.0).contains(&share), "{share} is not a share");
    let text = format!("{share:e}");
    let (mantissa, exponent) = text.split_once('e').expect("it was asked for");
    let exponent: i32 = exponent.parse().expect("a small number");
    let digits = mantissa.replace('.', "");
    // The number of digits before the percentage's decimal point.
    match usize::try_from(1 + exponent + 2) {
        _ if share == 0.0 => "0%".to_owned(),
        Ok(before) if before >= digits.len() => format!("{digits:0<before$}%"),
        Ok(before) if before > 0 => format!("{}.{}%", &digits[..before], &digits[before..]),
        _ => format!("0.{}{digits}%", "0".repeat(usize::try_from(-3 - exponent).unwrap_or(0))),
    }
}

/// A number as typed. An integer is exact.
#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    Fraction(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "what a double does not hold exactly is past any limit here"
            )]
            Self::Whole(number) => number as f64,
            Self::Fraction(number) => number,
        }
    }

    /// Multiplies by `scale` and rounds to an integer. `None` if the result does not fit a `u64`.
    fn times(self, scale: u64) -> Option<u64> {
        match self {
            Self::Whole(number) => number.checked_mul(scale),
            Self::Fraction(number) => {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "scales are powers, which a double holds"
                )]
                let product = number * scale as f64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the range is checked first"
                )]
                (0.0..1.8e19).contains(&product).then(|| product.round() as u64)
            }
        }
    }
}

/// Splits a text into a number, without sign or exponent, and the text after the number.
fn split(text: &str) -> Option<(Number, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = match digits.parse() {
        Ok(whole) => Number::Whole(whole),
        Err(_) => Number::Fraction(digits.parse().ok()?),
    };
    Some((number, unit.trim_start()))
}

/// Returns the power that the unit's first letter stands for (`k` is 1), and the remaining unit.
/// Without such a letter the power is 0.
fn prefix(unit: &str) -> (u32, &str) {
    let power = match unit.bytes().next() {
        Some(b'k' | b'K') => 1,
        Some(b'm' | b'M') => 2,
        Some(b'g' | b'G') => 3,
        Some(b't' | b'T') => 4,
        Some(b'p' | b'P') => 5,
        _ => return (0, unit),
    };
    (power, &unit[1..])
}
