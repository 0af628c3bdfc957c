//! Quantities of flags, in the one grammar of `sprat_units`, within what each flag can be.

use sprat_units::{UnitError, duration, rate, seconds, size};
use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) fn bounded(text: &str, least: f64, most: f64, what: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("want {what} from {least} to {most}"))
}

pub(super) fn counted(text: &str, most: usize, what: &str) -> Result<usize, String> {
    let value = text.parse().ok().filter(|value| (1..=most).contains(value));
    value.ok_or_else(|| format!("want 1 to {most} {what}"))
}

/// How long a turn of a measurement is; a number alone is seconds.
pub(super) fn turn(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_millis(10)..=Duration::from_secs(3600), "10ms to 1h")
}

/// How long nothing may come; a number alone is seconds.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_secs(1)..=Duration::from_secs(86_400), "1s to 1d")
}

/// Time after which a client gives up on an operation; 0 would be before it has asked.
pub(super) fn operation_timeout(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(1)..=Duration::from_secs(86_400), "1ms to 1d")
}

/// Bits per second that a copy may take; at 0, which others take for no limit, it would never end.
pub(super) fn limit(text: &str) -> Result<u64, String> {
    within(
        rate(text),
        8 * sprat_pace::MIN_RATE..=u64::MAX,
        "8kb/s at least; without --limit there is none",
    )
}

/// How long a run with many histories is; a number alone is seconds.
pub(super) fn long(text: &str) -> Result<Duration, String> {
    within(seconds(text), Duration::from_secs(1)..=Duration::from_secs(1_000_000), "1s to 1000000s")
}

/// How often a box is looked at for a drawing.
pub(super) fn sample_time(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(10)..=Duration::from_secs(60), "10ms to 60s")
}

/// How often somebody who watches is told.
pub(super) fn look_time(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_millis(100)..=Duration::from_secs(60), "100ms to 60s")
}

/// There and back.
pub(super) fn round_trip(text: &str) -> Result<Duration, String> {
    within(duration(text), Duration::from_micros(1)..=Duration::from_secs(10), "1us to 10s")
}

/// The bytes of an object.
pub(super) fn object_size(text: &str) -> Result<u32, String> {
    let bytes = within(size(text), 1..=sprat_wire::MAX_VALUE as u64, "1 to 1MiB")?;
    Ok(u32::try_from(bytes).expect("an object is smaller"))
}

fn within<T: PartialOrd>(
    read: Result<T, UnitError>,
    limits: RangeInclusive<T>,
    told: &str,
) -> Result<T, String> {
    match read {
        Ok(value) if limits.contains(&value) => Ok(value),
        Ok(_) => Err(format!("want {told}")),
        Err(error) => Err(error.to_string()),
    }
}
