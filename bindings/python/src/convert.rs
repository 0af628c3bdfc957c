//! Converts Python's arguments to the types of the file mover.

use crate::errors::UsageError;
use pyo3::{FromPyObject, PyResult};
use sprat_flow::group::Value;
use sprat_units::UnitError;
use std::time::Duration;

/// Upper limit on a timeout (a day). A longer one raises `UsageError`.
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Parses a hash of 64 hexadecimal digits.
pub(crate) fn sum(name: &str, text: Option<&str>) -> PyResult<Option<Value>> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || UsageError::new_err(format!("{name}: want 64 hexadecimal digits"));
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut value = [0; 32];
    for (byte, digits) in value.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(Some(value))
}

/// A quantity: a number in the unit that its keyword has, or a text with a unit ("2Gb/s", "90s",
/// "64MiB").
#[derive(FromPyObject)]
pub(crate) enum Quantity {
    Text(String),
    Whole(u64),
    Fraction(f64),
}

impl Quantity {
    /// Returns the quantity as a timeout; a number is in seconds.
    pub(crate) fn timeout(self) -> PyResult<Duration> {
        let time = match self {
            Self::Text(text) => read("timeout", sprat_units::duration(&text))?,
            Self::Whole(seconds) => Duration::from_secs(seconds),
            Self::Fraction(seconds) => Duration::try_from_secs_f64(seconds)
                .map_err(|_| UsageError::new_err(format!("timeout: {seconds} s is not a time")))?,
        };
        if time.is_zero() || time > MAX_TIMEOUT {
            let most = MAX_TIMEOUT.as_secs();
            return Err(UsageError::new_err(format!(
                "timeout: {time:?}; want more than 0, and {most} s at most"
            )));
        }
        Ok(time)
    }

    /// Returns the quantity as bytes per second; a text may be in bits per second.
    pub(crate) fn limit(self) -> PyResult<u64> {
        let bytes = match self {
            Self::Text(text) => read("limit", sprat_units::rate(&text))? / 8,
            number => number.whole("limit")?,
        };
        if bytes == 0 {
            return Err(UsageError::new_err("limit: 0 bytes a second; want more, or None"));
        }
        Ok(bytes)
    }

    /// Returns the quantity as bytes.
    pub(crate) fn bytes(self, name: &str) -> PyResult<usize> {
        let bytes = match self {
            Self::Text(text) => read(name, sprat_units::size(&text))?,
            number => number.whole(name)?,
        };
        usize::try_from(bytes)
            .map_err(|_| UsageError::new_err(format!("{name}: {bytes} is too large")))
    }

    fn whole(self, name: &str) -> PyResult<u64> {
        match self {
            Self::Whole(number) => Ok(number),
            _ => Err(UsageError::new_err(format!(
                "{name}: want a whole number, or a text with a unit"
            ))),
        }
    }
}

fn read<T>(name: &str, read: Result<T, UnitError>) -> PyResult<T> {
    read.map_err(|error| UsageError::new_err(format!("{name}: {error}")))
}

/// Formats a hash as hexadecimal digits.
pub(crate) fn hex(value: &Value) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}
