//! Rejected requests.

use thiserror::Error;

/// A rejected request: the status and the text of its response.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{status}: {reason}")]
pub struct Refused {
    /// The status of the response.
    pub status: u16,
    /// The reason, as a text for the client.
    pub reason: String,
}

impl Refused {
    /// Returns the rejection of a malformed request (400).
    #[must_use]
    pub fn bad(reason: &str) -> Self {
        Self { status: 400, reason: reason.to_owned() }
    }

    /// Returns the rejection of a name that does not exist (404).
    #[must_use]
    pub fn missing() -> Self {
        Self { status: 404, reason: "there is no such file".to_owned() }
    }
}
