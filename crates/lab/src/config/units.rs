//! Numbers with units, as people write them.

use crate::chance::Probability;
use crate::engine::Tolerance;
use crate::line::{MAX_RATE, MIN_RATE, Rate};
use std::time::Duration;

/// A time: `100ms`, `1.5s`, `20us`, `0`.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number == 0.0 => 0.0,
        _ => return None,
    };
    whole(number * nanos).map(Duration::from_nanos)
}

/// A rate: `2Gb/s`, `100Mb/s`, `9600b/s`.
#[must_use]
pub fn rate(text: &str) -> Option<Rate> {
    let (number, unit) = split(text)?;
    let scale = match unit.strip_suffix("b/s").or_else(|| unit.strip_suffix("bit/s"))? {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return None,
    };
    let bits = whole(number * scale).filter(|bits| (MIN_RATE..=MAX_RATE).contains(bits))?;
    Rate::new(bits)
}

/// Bytes: `64MB`, `1GiB`, `1500`.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "" | "B" => 1.0,
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    whole(number * scale)
}

/// A tolerance: `5%`, or `5%:10ms`.
#[must_use]
pub fn tolerance(text: &str) -> Option<Tolerance> {
    let usual = Tolerance::default();
    let (part, late) = text.split_once(':').map_or((text, None), |(part, late)| (part, Some(late)));
    let late = late.map_or(Some(usual.late), duration)?;
    Some(Tolerance { share: share(part)?, late })
}

/// A share: `0.1%` or `0.001`.
pub(super) fn share(text: &str) -> Option<Probability> {
    let (number, unit) = split(text)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return None,
    };
    Probability::new(share)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

fn whole(number: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
    (0.0..1e18).contains(&number).then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        assert_eq!(rate("2Gb/s").map(Rate::bits_per_second), Some(2_000_000_000));
        assert_eq!(rate("9.6kbit/s").map(Rate::bits_per_second), Some(9_600));
        assert_eq!(size("64MB"), Some(64_000_000));
        assert_eq!(size("1GiB"), Some(1 << 30));
        assert_eq!(share("50%"), share("0.5"));
    }

    #[test]
    fn what_means_nothing() {
        for text in ["", "ms", "100", "-1ms", "1e3ms", "1.2.3s", "5 parsecs"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
        for text in ["2G", "0b/s", "2TB/s", "5000Gb/s"] {
            assert_eq!(rate(text), None, "{text:?}");
        }
        for text in ["101%", "1.01", "%", "nan"] {
            assert_eq!(share(text), None, "{text:?}");
        }
        assert_eq!(size("99999999999GB"), None);
    }
}
