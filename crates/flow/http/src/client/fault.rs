//! Failures of a connection.

use crate::error::Error;
use std::io;
use std::time::Duration;

/// A failure of a connection. The connection cannot be used afterwards. A fault does not name its
/// request: [`Fault::into_error`] adds the name.
#[derive(Debug)]
pub enum Fault {
    /// The host's name cannot be resolved, no address of the host accepts a connection, or the
    /// connection failed in the TLS handshake.
    NoConnection(io::Error),
    /// The connection or the body ended before all expected bytes had arrived.
    Ended,
    /// For this long, nothing was received, or nothing that was sent was acknowledged.
    TimedOut(Duration),
    /// The kernel or TLS failed to receive or to send.
    Io(io::Error),
    /// The caller's [`Cancel`](crate::Cancel) was cancelled.
    Cancelled,
    /// The bytes received are not valid HTTP, or exceed a limit.
    Malformed(String),
    /// The server's certificate is not trusted, or TLS failed for another reason.
    Untrusted(String),
}

impl Fault {
    /// Turns the fault into the error of a request to `source_name`. Faults that may be transient
    /// become [`Error::Unreachable`].
    #[must_use]
    pub fn into_error(self, source_name: &str) -> Error {
        let source_name = source_name.to_owned();
        let why = match self {
            Self::NoConnection(error) => format!("cannot connect: {error}"),
            Self::Ended => "the connection ended in the middle".to_owned(),
            Self::TimedOut(time) => format!("no data arrived for {time:?}"),
            Self::Io(error) => format!("the connection broke: {error}"),
            Self::Cancelled => return Error::Cancelled,
            Self::Malformed(why) => return Error::Protocol { source_name, why },
            Self::Untrusted(why) => return Error::Untrusted { source_name, why },
        };
        Error::Unreachable { source_name, why }
    }
}
