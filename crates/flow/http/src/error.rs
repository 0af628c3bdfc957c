//! Why a request failed.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an address cannot be used, or a request got no response. A response that refuses is not an
/// error here: its status says so.
///
/// The messages name no flag or setting that would help; a caller that has some writes its own.
#[derive(Debug, Error)]
pub enum Error {
    /// The address is invalid; the text says what is wrong and what to write.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or the connection broke. The request may be repeated.
    #[error("{source_name}: {why}")]
    Unreachable {
        /// The address.
        source_name: String,
        /// The last failure.
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
    /// The server violates HTTP, or redirects where a client must not follow.
    #[error("{source_name}: {why}")]
    Protocol {
        /// The address.
        source_name: String,
        /// What the server did.
        why: String,
    },
    /// The file of trusted certificates cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The caller cancelled the request.
    #[error("stopped")]
    Cancelled,
}
