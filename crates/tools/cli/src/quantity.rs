//! Parsers of the quantities in flags. They use the grammar of `sprat_units` and check the range
//! that each flag allows.

use sprat_units::{UnitError, duration, rate, seconds, size};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a number from `least` to `most`. `what` names the number in the error.
pub(super) fn bounded(text: &str, least: f64, most: f64, what: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("want {what} from {least} to {most}"))
}

/// Parses a count from 1 to `most`. `what` names the counted things in the error.
pub(super) fn counted(text: &str, most: usize, what: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|value| (1..=most).contains(value));
    value.ok_or_else(|| format!("want 1 to {most} {what}"))
}

/// Parses how long one measurement runs; a bare number is seconds.
pub(super) fn measuring_time(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_millis(10)..=Duration::from_secs(3600), "10ms to 1h")
}

/// Parses how long a peer may be silent; a bare number is seconds.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_secs(1)..=Duration::from_secs(86_400), "1s to 1d")
}

/// Parses the time after which a client gives up on an operation. Rejects 0, with which the client
/// would give up before it has sent the request.
pub(super) fn operation_timeout(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(1)..=Duration::from_secs(86_400), "1ms to 1d")
}

/// Parses the bits per second that a copy may use. Rejects less than 8 kb/s, and with it 0: other
/// programs take 0 as "no limit", but here the copy would never end.
pub(super) fn limit(text: &str) -> Result<u64, String> {
    within(
        rate(text),
        8 * sprat_pace::MIN_RATE..=u64::MAX,
        "8kb/s or more; omit --limit for no limit",
    )
}

/// Parses how long a run of many histories lasts; a bare number is seconds.
pub(super) fn run_time(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_secs(1)..=Duration::from_secs(1_000_000), "1s to 1000000s")
}

/// Parses the interval between two samples of a box for a drawing.
pub(super) fn sample_interval(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(10)..=Duration::from_secs(60), "10ms to 60s")
}

/// Parses the interval between two updates of a display.
pub(super) fn update_interval(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(100)..=Duration::from_secs(60), "100ms to 60s")
}

/// Parses a path's round-trip time.
pub(super) fn round_trip(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_micros(1)..=Duration::from_secs(10), "1us to 10s")
}

/// Parses the size of an object's value in bytes.
pub(super) fn object_size(text: &str) -> Result<u32, String> {
    let bytes = within(size(text), 1..=sprat_wire::MAX_VALUE as u64, "1 to 1MiB")?;
    Ok(u32::try_from(bytes).expect("an object is smaller"))
}

fn within<T: PartialOrd>(
    read: Result<T, UnitError>,
    limits: RangeInclusive<T>,
    expected: &str,
) -> Result<T, String> {
    match read {
        Ok(value) if limits.contains(&value) => Ok(value),
        Ok(_) => Err(format!("want {expected}")),
        Err(error) => Err(error.to_string()),
    }
}
