//! Errors of a description, and checks that several of its parts use.

use super::limits::MAX_SPEC_BYTES;

/// An error in a description.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// The description is not TOML, has an unknown key, lacks a key, or has a value that cannot be
    /// parsed.
    #[error("{0}")]
    Toml(String),
    /// The description is longer than [`MAX_SPEC_BYTES`].
    #[error("{0} bytes: a description has at most {MAX_SPEC_BYTES}")]
    Long(usize),
    /// A value is out of range, or contradicts another value.
    #[error("{key} = {value}: want {want}")]
    Value {
        /// The key of the value.
        key: &'static str,
        /// The value.
        value: String,
        /// What is expected instead.
        want: String,
    },
}

/// Checks that a path needs no quoting in files that shells and Java read.
pub(crate) fn plain_path(key: &'static str, path: &str) -> Result<(), SpecError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !path.starts_with('/') || path.len() > 256 || !path.chars().all(plain) {
        let want = "an absolute path of letters, digits, dashes, dots and underscores";
        return Err(value(key, format!("{path:?}"), want));
    }
    Ok(())
}

pub(super) const PLAIN: &str = "1 to 32 letters, digits and dashes";

pub(super) fn is_plain(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

pub(crate) fn value(key: &'static str, value: String, want: impl Into<String>) -> SpecError {
    SpecError::Value { key, value, want: want.into() }
}

pub(crate) fn within(
    key: &'static str,
    count: usize,
    least: usize,
    most: usize,
) -> Result<(), SpecError> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(value(key, count.to_string(), format!("{least} to {most}")))
}
