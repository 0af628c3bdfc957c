//! Requests that are refused.

use thiserror::Error;

/// A request that is answered with nothing but an error.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{status}: {what}")]
pub struct Refused {
    /// The status of the answer.
    pub status: u16,
    /// Why, for whoever sent it.
    pub what: String,
}

impl Refused {
    /// Not HTTP as we take it (400).
    #[must_use]
    pub fn bad(what: &str) -> Self {
        Self { status: 400, what: what.to_owned() }
    }

    /// Nothing of that name (404).
    #[must_use]
    pub fn missing() -> Self {
        Self { status: 404, what: "there is no such file".to_owned() }
    }
}
