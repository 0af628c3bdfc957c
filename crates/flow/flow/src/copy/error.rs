//! Why a transfer failed, and what the user can do about it.

use crate::file::{DestinationError, RegularError, SinkError};
use sprat_http::Error as HttpError;
use sprat_http::client::Fault;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a transfer failed. A failed transfer leaves the destination unchanged: it does not exist, or
/// it is the file that was there before. The only exception is a failure of the final sync of the
/// destination's directory, when the new file already has its name. The bytes received usually stay
/// in a file next to the destination, so that the same transfer can resume.
#[derive(Debug, Error)]
pub enum Error {
    /// The options or arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// The source has no such file.
    #[error(
        "{source_name}: there is no such file ({status}); the folder above it lists the names \
         that exist"
    )]
    NotFound {
        /// The source's address.
        source_name: String,
        /// The HTTP status of the response.
        status: u16,
    },
    /// The server denies access to the source, or to the destination of an upload.
    #[error("{source_name}: access denied ({status}); give a token with --token-file")]
    Denied {
        /// The server's address.
        source_name: String,
        /// The HTTP status of the response.
        status: u16,
    },
    /// The server rejects the upload.
    #[error("{target_name}: the server rejected it ({status}): {why}")]
    Refused {
        /// The destination's address.
        target_name: String,
        /// The HTTP status of the response.
        status: u16,
        /// The reason, as the server states it.
        why: String,
    },
    /// The server cannot be reached, or its connections keep breaking.
    #[error(
        "{source_name}: {why}; run the same command again to continue; --retries keeps trying \
         longer"
    )]
    Unreachable {
        /// The server's address.
        source_name: String,
        /// Why the last attempt failed.
        why: String,
    },
    /// The server's certificate is not trusted, or TLS failed for another reason.
    #[error("{source_name}: {why}; name the certificate to trust with --cacert FILE")]
    Untrusted {
        /// The server's address.
        source_name: String,
        /// What is wrong with the certificate, or why TLS failed.
        why: String,
    },
    /// The server violates HTTP, or contradicts an earlier response.
    #[error("{source_name}: {why}; nothing was stored under the file's name")]
    Protocol {
        /// The server's address.
        source_name: String,
        /// What the server did.
        why: String,
    },
    /// The file kept changing while it was transferred.
    #[error(
        "{source_name}: the file keeps changing during the transfer ({why}); try again when \
         nothing writes to it"
    )]
    Changed {
        /// The source's address, or its local path.
        source_name: String,
        /// How the last change was noticed.
        why: String,
    },
    /// Bytes arrived corrupt even after retries, or a file does not match a given sum, or a source
    /// has other bytes than those that were received before.
    #[error("{source_name}: {why}")]
    Corrupt {
        /// The source, or the local file that does not match.
        source_name: String,
        /// What does not match, for example at which offset, and what was tried.
        why: String,
    },
    /// The destination's file cannot be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The destination's name cannot be used.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// A file next to the destination, or a file that the user named, cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The transfer was cancelled.
    #[error("stopped; run the same command again to continue")]
    Cancelled,
}

impl Error {
    /// Creates the error for a local file that cannot be used.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// Returns whether the error concerns the source, so that another source might succeed. False
    /// for [`Error::Changed`], which callers handle themselves.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::Denied { .. }
                | Self::Unreachable { .. }
                | Self::Untrusted { .. }
                | Self::Protocol { .. }
                | Self::Corrupt { .. }
        )
    }

    /// Returns the reason without the name of the source. For an error that does not concern the
    /// source, returns the whole text.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::NotFound { status, .. } => format!("there is no such file ({status})"),
            Self::Denied { status, .. } => format!("access denied ({status})"),
            Self::Unreachable { why, .. }
            | Self::Untrusted { why, .. }
            | Self::Protocol { why, .. }
            | Self::Changed { why, .. }
            | Self::Corrupt { why, .. } => why.clone(),
            other => other.to_string(),
        }
    }
}

impl From<RegularError> for Error {
    fn from(error: RegularError) -> Self {
        match error {
            RegularError::Other { .. } => Self::Usage(error.to_string()),
            RegularError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Self::Usage(format!("{}: there is no such file", path.display()))
            }
            RegularError::Io { path, source } => Self::file(path, source),
        }
    }
}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Usage(why) => Self::Usage(why),
            HttpError::Unreachable { source_name, why } => Self::Unreachable { source_name, why },
            HttpError::Untrusted { source_name, why } => Self::Untrusted { source_name, why },
            HttpError::Protocol { source_name, why } => Self::Protocol { source_name, why },
            HttpError::File { path, source } => Self::File { path, source },
            HttpError::Cancelled => Self::Cancelled,
        }
    }
}

/// The failure of a request, classified to decide whether to repeat the request.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The failure may pass. The second field is the pause that the server requested, if it
    /// requested one.
    Transient(String, Option<std::time::Duration>),
    /// No connection to the host can be established.
    Unreachable(String),
    /// The file at the source has changed.
    Changed(String),
    /// A repetition of the request would fail too.
    Fatal(Error),
}

impl Trouble {
    /// Turns the failure into the error of a transfer from `source_name`.
    pub(crate) fn into_error(self, source_name: &str) -> Error {
        let source_name = source_name.to_owned();
        match self {
            Self::Transient(why, _) | Self::Unreachable(why) => {
                Error::Unreachable { source_name, why }
            }
            Self::Changed(why) => Error::Changed { source_name, why },
            Self::Fatal(error) => error,
        }
    }
}

/// Classifies the fault of a connection to `source_name`.
pub(crate) fn fault(source_name: &str, fault: Fault) -> Trouble {
    let has_no_connection = matches!(fault, Fault::NoConnection(_));
    match fault.into_error(source_name) {
        HttpError::Unreachable { why, .. } if has_no_connection => Trouble::Unreachable(why),
        HttpError::Unreachable { why, .. } => Trouble::Transient(why, None),
        error => Trouble::Fatal(error.into()),
    }
}

impl From<HttpError> for Trouble {
    fn from(error: HttpError) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

impl From<SinkError> for Trouble {
    fn from(error: SinkError) -> Self {
        Self::Fatal(error.into())
    }
}
