//! Why a request failed.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an address cannot be used, or a request got no response. A response with an error status is
/// not an error here.
///
/// The messages name no flag or setting that would help. A caller that has such flags adds its own
/// text.
#[derive(Debug, Error)]
pub enum Error {
    /// The address is invalid. The text says what is wrong, and what to write instead.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or the connection failed. The request may be repeated.
    #[error("{source_name}: {why}")]
    Unreachable {
        /// The address of the request.
        source_name: String,
        /// The last failure.
        why: String,
    },
    /// The server's certificate is not trusted, or TLS failed for another reason.
    #[error("{source_name}: {why}")]
    Untrusted {
        /// The address of the request.
        source_name: String,
        /// What is wrong with the certificate, or why TLS failed.
        why: String,
    },
    /// The server violates HTTP, or redirects to an address that a client must not follow.
    #[error("{source_name}: {why}")]
    Protocol {
        /// The address of the request.
        source_name: String,
        /// What the server did.
        why: String,
    },
    /// The file of trusted certificates cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The caller cancelled the request.
    #[error("stopped")]
    Cancelled,
}
