//! Parses and prints numbers with units.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The largest number of any quantity, in its base unit.
const MAX: f64 = 1e21;

/// How a quantity is read and printed.
struct Units {
    want: &'static str,
    read: Read,
    /// Units for printing, smallest first, each with its size in base units.
    printed: &'static [(&'static str, f64)],
}

/// How a quantity is read.
enum Read {
    /// By `sprat_units`, whose functions return base units.
    Common(fn(&str) -> Option<f64>),
    /// As a number with one of these units, each with its size in base units.
    Units(&'static [(&'static str, f64)]),
}

impl Units {
    fn parse(&self, text: &str) -> Option<f64> {
        let value = match self.read {
            Read::Common(read) => read(text)?,
            Read::Units(known) => {
                let text = text.trim();
                let end =
                    text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
                let (number, unit) = (text[..end].parse::<f64>().ok()?, text[end..].trim_start());
                let (_, scale) = known.iter().find(|(name, _)| *name == unit)?;
                number * scale
            }
        };
        (0.0..=MAX).contains(&value).then_some(value)
    }

    fn format(&self, value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) =
            self.printed.iter().rfind(|(_, scale)| value >= *scale).unwrap_or(&self.printed[0]);
        write!(f, "{} {name}", digits(value / scale))
    }
}

/// Formats a number with three significant digits, but without decimals from 100 on, and with three
/// decimals below 1. Zeros at the end of the decimals are left out.
#[must_use]
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

macro_rules! quantity {
    (
        $(#[$doc:meta])*
        $name:ident, $units:ident = $want:literal, $read:expr, printed [$($printed:expr),+]
    ) => {
        const $units: Units = Units { want: $want, read: $read, printed: &[$($printed),+] };

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Parses a number with its unit. `None` if the text is not such a number.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                $units.parse(text).map(Self)
            }

            /// Multiplies the quantity.
            #[must_use]
            pub fn times(self, count: f64) -> Self {
                Self(self.0 * count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $units.format(self.0, f)
            }
        }

        impl std::ops::Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |sum, one| sum + one)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text)
                    .ok_or_else(|| D::Error::custom(format!("{text:?}: want {}", $units.want)))
            }
        }
    };
}

quantity!(
    /// Memory or disk capacity, in bytes.
    Bytes,
    BYTES = "bytes, such as \"32GiB\" or \"3.84TB\"",
    Read::Common(|text| sprat_units::size(text).ok().map(|bytes| bytes as f64)),
    printed [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15)]
);

quantity!(
    /// Bandwidth of memory or a disk, in bytes per second.
    ByteRate,
    BYTE_RATE = "bytes a second, such as \"550MB/s\"",
    Read::Common(|text| sprat_units::rate(text).ok().map(|bits| bits as f64 / 8.0)),
    printed [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)]
);

quantity!(
    /// Rate of a link, in bits per second.
    BitRate,
    BIT_RATE = "bits a second, such as \"2.5Gb/s\"",
    Read::Common(|text| sprat_units::rate(text).ok().map(|bits| bits as f64)),
    printed [("b/s", 1.0), ("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9), ("Tb/s", 1e12)]
);

quantity!(
    /// Clock frequency, or operations per second.
    Hertz,
    HERTZ = "a frequency, such as \"2.4GHz\"",
    Read::Units(&[
        ("Hz", 1.0),
        ("kHz", 1e3),
        ("MHz", 1e6),
        ("GHz", 1e9),
        ("op/s", 1.0),
        ("Gop/s", 1e9),
        ("Top/s", 1e12),
        ("Pop/s", 1e15),
    ]),
    printed [("op/s", 1.0), ("Mop/s", 1e6), ("Gop/s", 1e9), ("Top/s", 1e12), ("Pop/s", 1e15)]
);

quantity!(
    /// Power, in watts.
    Watts,
    WATTS = "watts, such as \"20W\" or \"2kW\"",
    Read::Units(&[("W", 1.0), ("kW", 1e3), ("MW", 1e6)]),
    printed [("W", 1.0), ("kW", 1e3), ("MW", 1e6)]
);

quantity!(
    /// Weight, in kilograms.
    Kilograms,
    KILOGRAMS = "a weight, such as \"12kg\"",
    Read::Units(&[("g", 1e-3), ("kg", 1.0), ("t", 1e3)]),
    printed [("g", 1e-3), ("kg", 1.0)]
);

quantity!(
    /// Time, in seconds.
    Seconds,
    SECONDS = "a time, such as \"400ns\" or \"5us\"",
    Read::Common(|text| sprat_units::duration(text).ok().map(|time| time.as_secs_f64())),
    printed [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_printed() {
        for (text, printed) in
            [("32 GB", "32 GB"), ("128GiB", "137 GB"), ("5.8TB", "5.8 TB"), ("0B", "0 B")]
        {
            assert_eq!(Bytes::parse(text).expect(text).to_string(), printed);
        }
        assert_eq!(BitRate::parse("2.5Gb/s"), Some(BitRate(2.5e9)));
        assert_eq!(
            Hertz::parse("1.7GHz").map(|clock| clock.times(2.0).to_string()).as_deref(),
            Some("3.4 Gop/s")
        );
        assert_eq!(Seconds::parse("400ns").map(|time| time.to_string()).as_deref(), Some("400 ns"));
        assert_eq!([Watts(20.0), Watts(1_980.0)].into_iter().sum::<Watts>().to_string(), "2 kW");
        assert_eq!(Kilograms(150.0).to_string(), "150 kg");
        assert_eq!(ByteRate(8.8e8).to_string(), "880 MB/s");
    }

    #[test]
    fn invalid_quantities_are_none() {
        for text in ["", "GB", "32GHz", "-1GB", "1e3GB", "nanGB", "9999999999PB", "3 2GB"] {
            assert_eq!(Bytes::parse(text), None, "{text:?}");
        }
        assert_eq!(BitRate::parse("2.5GB"), None, "bytes are not bits");
    }
}
