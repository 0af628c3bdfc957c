//! Why a text is not a locator, and how to correct it.

use thiserror::Error;

/// The longest locator, in bytes of text. A longer text is refused.
pub(super) const MAX_TEXT: usize = 1024;

/// The error of parsing a locator.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("service locator `{text}`: {fault}")]
pub struct LocatorError {
    /// The text, cut if it is longer than a locator can be.
    pub text: String,
    /// What is wrong with the text, and how to correct it.
    pub fault: LocatorFault,
}

/// What is wrong with a locator.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum LocatorFault {
    /// The text is too long.
    #[error("{0} bytes are too long for a locator; the limit is {MAX_TEXT}")]
    TooLong(usize),
    /// The text names neither a port nor a transport: it has no colon, or what precedes the first
    /// colon is empty or contains an equals sign.
    #[error(
        "neither an address with its port nor a transport; write for example `127.0.0.1:11100` or \
         `tcp:host=127.0.0.1,port=11100`"
    )]
    NoTransport,
    /// The transport is unknown.
    #[error(
        "unknown transport `{found}`{}; there are tcp, fast+udp and fast+dpdk",
        meant(.suggestion)
    )]
    Transport {
        /// The word before the colon.
        found: String,
        /// A similar word that may have been meant.
        suggestion: Option<&'static str>,
    },
    /// A part of the locator has no equals sign.
    #[error("`{0}` is not of the form key=value")]
    NotAPair(String),
    /// The transport does not have this key.
    #[error("{transport} has no key `{found}`{}; it takes {keys}", meant(.suggestion))]
    Key {
        /// The transport of the locator.
        transport: &'static str,
        /// The unknown key.
        found: String,
        /// A similar word that may have been meant.
        suggestion: Option<&'static str>,
        /// The keys of the transport.
        keys: &'static str,
    },
    /// Only `fast+dpdk` has the key.
    #[error(
        "`{key}` is only for fast+dpdk: leave it out, or write `fast+dpdk:` for `{transport}:`"
    )]
    OnlyDpdk {
        /// The transport of the locator.
        transport: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A key is given twice.
    #[error("`{0}` is given twice; keep one")]
    Twice(&'static str),
    /// A required key is missing.
    #[error("`{key}` is missing; add `{key}={example}`")]
    Missing {
        /// The missing key.
        key: &'static str,
        /// A value that the key could have, for the message.
        example: &'static str,
    },
    /// There are more devices than a host can have.
    #[error("more than {0} devices, the limit of a host")]
    TooManyDevices(usize),
    /// A key has a value that is not allowed.
    #[error("`{key}={found}` is not {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value that the text gives.
        found: String,
        /// The expected value, with an example.
        wanted: &'static str,
    },
}

fn meant(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}
