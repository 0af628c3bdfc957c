//! Parses durations.

use crate::{Kind, UnitError, split};
use std::time::Duration;

const TIME: Kind =
    Kind { quantity: "time", examples: "250ms, 90s, 10m or 1h, say", most: "584 years" };

/// Parses a time: one or several numbers, each with a unit `ns`, `us`, `ms`, `s`, `m` (minutes),
/// `h` or `d`. `nsec`, `usec`, `msec`, `sec` (each also with an `s` at its end) and `min` are other
/// names of these units.
///
/// # Errors
/// The text is not a time, or exceeds 584 years. A number alone is refused, except 0, because it
/// means milliseconds to some programs, seconds to others and microseconds to tc.
///
/// ```
/// use {sprat_units::duration, std::time::Duration};
/// assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
/// assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
/// assert_eq!(
///     duration("60").unwrap_err().to_string(),
///     r#""60" can be read two ways: write 60s or 60ms"#
/// );
/// ```
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    read(text, None)
}

/// Parses a time like [`duration`], but a number alone is in seconds. For options that have always
/// been in seconds, as their help says.
///
/// # Errors
/// The text is not a time, or exceeds 584 years.
///
/// ```
/// use {sprat_units::seconds, std::time::Duration};
/// assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
/// assert_eq!(seconds("0.5"), seconds("500ms"));
/// ```
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    read(text, Some(1_000_000_000))
}

/// Parses a time. `alone` is the unit of a number without a unit, in nanoseconds; `None` refuses
/// such a number.
fn read(text: &str, alone: Option<u64>) -> Result<Duration, UnitError> {
    let mut rest = text.trim();
    let mut nanos = 0_u64;
    let mut parts = 0;
    // Each iteration consumes at least one digit.
    while parts == 0 || !rest.is_empty() {
        let (number, behind) = split(rest).ok_or_else(|| TIME.unknown(text))?;
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let is_alone = parts == 0 && end == behind.len();
        let scale = match (behind[..end].trim_end(), alone) {
            ("ns" | "nsec" | "nsecs", _) => 1,
            ("us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "usecs", _) => 1_000,
            ("ms" | "msec" | "msecs", _) => 1_000_000,
            ("s" | "sec" | "secs", _) => 1_000_000_000,
            ("m" | "min", _) => 60_000_000_000,
            ("h", _) => 3_600_000_000_000,
            ("d", _) => 86_400_000_000_000,
            ("", Some(scale)) if is_alone => scale,
            ("", None) if is_alone && number.value() == 0.0 => 1,
            ("", None) if is_alone => {
                let digits = text.trim();
                let (one, other) = (format!("{digits}s"), format!("{digits}ms"));
                return Err(UnitError::Ambiguous { text: text.to_owned(), one, other });
            }
            _ => return Err(TIME.unknown(text)),
        };
        let more = number.times(scale).and_then(|more| nanos.checked_add(more));
        nanos = more.ok_or_else(|| TIME.too_much(text))?;
        rest = &behind[end..];
        parts += 1;
    }
    Ok(Duration::from_nanos(nanos))
}
