//! Sizes, rates, shares and durations as people type them: one grammar for every command, file and
//! interface.
//!
//! | what | examples | a number alone |
//! | --- | --- | --- |
//! | [`size`] | `1500`, `64K`, `16G`, `16GiB`, `1.5GB` | bytes |
//! | [`rate`] | `100M`, `2Gbit`, `2Gb/s`, `9600`, `10MB/s` | bits a second |
//! | [`duration`] | `250ms`, `90s`, `10m`, `1h30m` | refused, but for 0 |
//! | [`seconds`] | the same | seconds |
//! | [`share`], [`ratio`] | `0.1%`, `50 %`, `150%` | refused, but for 0 |
//!
//! `MB` is 10^6 bytes and `MiB` 2^20, in each of them. Where the tools that people come from
//! differ, so does what they take a lone letter for, and Sprat does as most of them: `16G` of
//! memory is 16 GiB, as to dd, curl, rclone and the JVM; `1G` as a rate is 10^9 bits a second, as
//! to tc and iperf3. What two of them read in two ways, and no convention decides, is refused with
//! both readings named.
//!
//! [`figure`] is the way back: figures as people read them. [`html`] makes text safe on the pages
//! that show them.

pub mod figure;
pub mod html;
mod time;

pub use time::{duration, seconds};

use thiserror::Error;

/// Why a text is not the quantity that was asked for, and what would be.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UnitError {
    /// Not a number with a unit that the quantity has.
    #[error("{text:?} is not a {what}; write {examples}")]
    Unknown {
        /// The text.
        text: String,
        /// Which quantity was asked for.
        what: &'static str,
        /// What would do.
        examples: &'static str,
    },
    /// It means one thing to some people and another to others.
    #[error("{text:?} can be read two ways: write {one} or {other}")]
    Ambiguous {
        /// The text.
        text: String,
        /// One reading, in words that leave no doubt.
        one: String,
        /// The other.
        other: String,
    },
    /// More than the quantity can be.
    #[error("{text:?} is more than there can be: the limit is {most}")]
    TooMuch {
        /// The text.
        text: String,
        /// The most there can be.
        most: &'static str,
    },
}

/// What a quantity is called in complaints.
struct Kind {
    what: &'static str,
    examples: &'static str,
    most: &'static str,
}

impl Kind {
    fn unknown(&self, text: &str) -> UnitError {
        UnitError::Unknown { text: text.to_owned(), what: self.what, examples: self.examples }
    }

    fn too_much(&self, text: &str) -> UnitError {
        UnitError::TooMuch { text: text.to_owned(), most: self.most }
    }
}

const SIZE: Kind = Kind {
    what: "size",
    examples: "512M or 16GiB (2^20, 2^30) or 1.5GB (10^9), say",
    most: "16 EiB",
};
const RATE: Kind = Kind {
    what: "rate",
    examples: "2Gb/s, 100Mbit or 100M (bits), or 10MB/s (bytes), say",
    most: "10^18 bits a second",
};
const SHARE: Kind = Kind {
    what: "share",
    examples: "0.1% or 50%, say",
    most: "100%, or 1000% of what can be more than all",
};

/// Most bits a second that a rate can be.
const MAX_RATE: u64 = 1_000_000_000_000_000_000;

/// Bytes: a number, alone or with `B`; with `K`, `M`, `G`, `T` or `P`, also as `KiB` or `Ki`
/// (powers of 1024); or with `kB`, `MB`, `GB`, `TB` or `PB` (powers of 1000). Large letters and
/// small ones are the same here.
///
/// # Errors
/// Not a size, or more than a `u64` holds.
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

/// Bits a second: a number with `k`, `M`, `G` or `T` (powers of 1000; of 1024 with an `i` behind),
/// alone or before `bit`, `b/s`, `bit/s`, `bps`, or, where bytes are meant, `B/s`. A number alone
/// is bits a second.
///
/// # Errors
/// Not a rate, or more than 10^18. `2GB` is no rate, but an amount, and tc takes `100mbps` for
/// bytes where others take it for bits: both readings are named.
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

/// A share of a whole, from 0 to 1: a percentage.
///
/// # Errors
/// Not a share, or more than all. A number without `%`, but for 0, is refused: `0.1` is a tenth to
/// some and a thousandth to others, and the two differ by more than any measurement would show as
/// wrong.
///
/// ```
/// use sprat_units::share;
/// assert_eq!(share("0.1%"), Ok(0.001));
/// assert_eq!(share("0"), Ok(0.0));
/// assert_eq!(share("0.1").unwrap_err().to_string(), r#""0.1" can be read two ways: write 0.1% or 10%"#);
/// ```
pub fn share(text: &str) -> Result<f64, UnitError> {
    part(text, 1.0)
}

/// [`share`], of what can be more than all: up to 1000 %.
///
/// # Errors
/// As for [`share`].
///
/// ```
/// assert_eq!(sprat_units::ratio("150%"), Ok(1.5));
/// ```
pub fn ratio(text: &str) -> Result<f64, UnitError> {
    part(text, 10.0)
}

fn part(text: &str, most: f64) -> Result<f64, UnitError> {
    let (number, unit) = split(text).ok_or_else(|| SHARE.unknown(text))?;
    let value = number.value();
    match unit {
        // The decimal is read once, so that what `percent` writes is exactly what it was given.
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

/// A share in the fewest digits that [`share`] takes for exactly the same.
///
/// # Panics
/// If it is not from 0 to 1.
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
    // Digits before the point, of the share in percent.
    match usize::try_from(1 + exponent + 2) {
        _ if share == 0.0 => "0%".to_owned(),
        Ok(before) if before >= digits.len() => format!("{digits:0<before$}%"),
        Ok(before) if before > 0 => format!("{}.{}%", &digits[..before], &digits[before..]),
        _ => format!("0.{}{digits}%", "0".repeat(usize::try_from(-3 - exponent).unwrap_or(0))),
    }
}

/// A number as it was typed: exact where it is whole.
#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    Broken(f64),
}

impl Number {
    fn value(self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "what a double does not hold exactly is past any limit here"
            )]
            Self::Whole(number) => number as f64,
            Self::Broken(number) => number,
        }
    }

    /// So many times as much, rounded to a whole; `None` past a `u64`.
    fn times(self, scale: u64) -> Option<u64> {
        match self {
            Self::Whole(number) => number.checked_mul(scale),
            Self::Broken(number) => {
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

/// A number without sign or exponent, and what stands behind it.
fn split(text: &str) -> Option<(Number, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = match digits.parse() {
        Ok(whole) => Number::Whole(whole),
        Err(_) => Number::Broken(digits.parse().ok()?),
    };
    Some((number, unit.trim_start()))
}

/// The power that a unit's letter stands for, and the rest of the unit.
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
