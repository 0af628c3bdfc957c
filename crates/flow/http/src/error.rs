//! Why a request could not be made.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an address cannot be used, or a request got no answer. Answers that refuse are no errors
/// here: their status says so.
///
/// The texts name no flag or setting that would help: a caller that has such writes its own.
#[derive(Debug, Error)]
pub enum Error {
    /// The address makes no sense; the text says what is wrong and what to write.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or the connection to it broke. The request may be repeated.
    #[error("{source_name}: {why}")]
    Unreachable {
        /// The address.
        source_name: String,
        /// What failed last.
        why: String,
    },
    /// The server's certificate is not trusted.
    #[error("{source_name}: {why}")]
    Untrusted {
        /// The address.
        source_name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server does not keep to HTTP, or redirects to where clients are not led.
    #[error("{source_name}: {why}")]
    Protocol {
        /// The address.
        source_name: String,
        /// What it did.
        why: String,
    },
    /// The file of certificates to trust cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody asked to stop.
    #[error("stopped")]
    Cancelled,
}
