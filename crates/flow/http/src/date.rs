//! HTTP dates, and the times with nanoseconds in Sprat's own fields.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time in seconds and nanoseconds since 1970, as `stat` returns it. Nanoseconds count forwards
/// even before 1970.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, less than 1,000,000,000.
    pub nanoseconds: u32,
}

impl Moment {
    /// Formats an HTTP date, in whole seconds. Times before 1970 become 1970; times after 9999
    /// become the end of 9999.
    #[must_use]
    pub fn http(self) -> String {
        httpdate::fmt_http_date(
            UNIX_EPOCH + Duration::from_secs(self.seconds.clamp(0, LAST).unsigned_abs()),
        )
    }

    /// Parses an HTTP date in any of its three formats.
    #[must_use]
    pub fn parse_http(text: &str) -> Option<Self> {
        let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self { seconds: i64::try_from(since.as_secs()).ok()?, nanoseconds: 0 })
    }
}

/// The last second that an HTTP date can represent: the end of the year 9999.
const LAST: i64 = 253_402_300_799;

impl std::fmt::Display for Moment {
    /// Formats as `SECONDS.NNNNNNNNN`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl std::str::FromStr for Moment {
    type Err = ParseMomentError;

    fn from_str(text: &str) -> Result<Self, ParseMomentError> {
        let (seconds, nanoseconds) = text.split_once('.').ok_or(ParseMomentError)?;
        if nanoseconds.len() != 9 || !nanoseconds.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseMomentError);
        }
        let seconds = seconds.parse().map_err(|_| ParseMomentError)?;
        Ok(Self { seconds, nanoseconds: nanoseconds.parse().map_err(|_| ParseMomentError)? })
    }
}

/// The text is not a time of the form `SECONDS.NNNNNNNNN`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a time: want SECONDS.NNNNNNNNN since 1970")]
pub struct ParseMomentError;

/// Parses seconds since 1970, which may be negative, with up to nine decimal digits.
#[must_use]
pub fn time(text: &str) -> Option<SystemTime> {
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let nanos: u32 = format!("{nanos:0<9}").parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let seconds: i64 = seconds.parse().ok()?;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole)? } else { UNIX_EPOCH.checked_add(whole)? };
    base.checked_add(Duration::from_nanos(nanos.into()))
}

/// Returns the current time as an HTTP date.
#[must_use]
pub fn now() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_written() {
        for moment in
            [(0, 0), (1_700_000_000, 1), (-1, 999_999_999), (i64::MAX, 999_999_999), (i64::MIN, 0)]
        {
            let moment = Moment { seconds: moment.0, nanoseconds: moment.1 };
            assert_eq!(moment.to_string().parse(), Ok(moment));
            assert!(Moment::parse_http(&moment.http()).is_some(), "{}", moment.http());
        }
        for text in ["", "1", "1.", "1.5", "1.0000000000", "1.+00000000", "x.000000000"] {
            assert_eq!(text.parse::<Moment>(), Err(ParseMomentError), "{text}");
        }
    }
}
