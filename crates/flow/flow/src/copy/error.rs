//! Why a copy was not made, and what to do about it.

use crate::file::{PlaceError, RegularError, SinkError};
use sprat_http::Error as HttpError;
use sprat_http::client::Fault;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a copy was not made. There is no file under the destination's name then, or the one that was
/// there before.
#[derive(Debug, Error)]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The source has no such file.
    #[error(
        "{source_name}: there is no such file ({status}); see what there is at the folder above it"
    )]
    NotFound {
        /// The source.
        source_name: String,
        /// What the server said.
        status: u16,
    },
    /// The source does not give it to us.
    #[error("{source_name}: not for us ({status}); --token-file says who we are")]
    Denied {
        /// The source.
        source_name: String,
        /// What the server said.
        status: u16,
    },
    /// The server does not take what is sent to it.
    #[error("{target_name}: the server does not take it ({status}): {why}")]
    Refused {
        /// The destination.
        target_name: String,
        /// What the server said.
        status: u16,
        /// And in words.
        why: String,
    },
    /// Nobody there, or not for long enough.
    #[error("{source_name}: {why}; the same command goes on from here, --retries tries longer")]
    Unreachable {
        /// The source.
        source_name: String,
        /// What failed last.
        why: String,
    },
    /// The other end's certificate is not trusted.
    #[error("{source_name}: {why}; --cacert FILE says whom to trust")]
    Untrusted {
        /// The source.
        source_name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The other end does not keep to HTTP, or not to what it said before.
    #[error("{source_name}: {why}; nothing of it was kept under the file's name")]
    Protocol {
        /// The source.
        source_name: String,
        /// What it did.
        why: String,
    },
    /// The file changed while it was fetched, again and again.
    #[error("{source_name}: changes while it is fetched ({why}); fetch it when it rests")]
    Changed {
        /// The source.
        source_name: String,
        /// How that was seen.
        why: String,
    },
    /// Bytes arrive as others than were sent.
    #[error("{source_name}: {why}")]
    Corrupt {
        /// The source.
        source_name: String,
        /// Where, and what was tried.
        why: String,
    },
    /// The destination's file cannot be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The destination's name cannot be had.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file beside the destination, or one that was named, cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody asked it to stop.
    #[error("stopped; the same command goes on from here")]
    Cancelled,
}

impl Error {
    /// A local file that cannot be used.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// Whether it is about the source, so that another might do.
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

    /// The reason without the source's name.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::NotFound { status, .. } => format!("there is no such file ({status})"),
            Self::Denied { status, .. } => format!("not for us ({status})"),
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

/// What kind of trouble a request met, for who decides whether to ask again.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Of the passing kind; the server may have said when to come back.
    Passing(String, Option<std::time::Duration>),
    /// Nobody answers there.
    Nobody(String),
    /// The file is another one now.
    Changed(String),
    /// No use in asking again.
    Fatal(Error),
}

impl Trouble {
    /// The trouble as the end of a copy from this source.
    pub(crate) fn into_error(self, source_name: &str) -> Error {
        let source_name = source_name.to_owned();
        match self {
            Self::Passing(why, _) | Self::Nobody(why) => Error::Unreachable { source_name, why },
            Self::Changed(why) => Error::Changed { source_name, why },
            Self::Fatal(error) => error,
        }
    }
}

/// What a fault on the way means for the transfer.
pub(crate) fn fault(source_name: &str, fault: Fault) -> Trouble {
    let is_nobody = matches!(fault, Fault::NoConnection(_));
    match fault.into_error(source_name) {
        HttpError::Unreachable { why, .. } if is_nobody => Trouble::Nobody(why),
        HttpError::Unreachable { why, .. } => Trouble::Passing(why, None),
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
