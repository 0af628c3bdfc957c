//! What Python hands over, as the mover takes it.

use crate::errors::UsageError;
use pyo3::PyResult;
use sprat_flow::group::Value;
use std::time::Duration;

/// Longest patience, seconds.
const MAX_TIMEOUT: f64 = 86_400.0;

/// A sum of 64 hexadecimal digits.
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

/// Seconds.
pub(crate) fn timeout(seconds: f64) -> PyResult<Duration> {
    let wrong = || UsageError::new_err(format!("timeout: {seconds} s; want more than 0, and {MAX_TIMEOUT} at most"));
    if !(seconds > 0.0 && seconds <= MAX_TIMEOUT) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Hexadecimal digits.
pub(crate) fn hex(value: &Value) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}
