//! What goes wrong on a connection.

use crate::error::Error;
use std::io;
use std::time::Duration;

/// What goes wrong on a connection, which is of no use afterwards. The connection does not know
/// what it is for: [`Fault::into_error`] adds that.
#[derive(Debug)]
pub enum Fault {
    /// No address of the host answers.
    NoConnection(io::Error),
    /// It ended where more should come.
    Ended,
    /// Nothing came for so long, or nothing of what was sent was acknowledged.
    Silent(Duration),
    /// The kernel refused to receive or to send.
    Io(io::Error),
    /// Somebody asked to stop.
    Cancelled,
    /// What came is not HTTP.
    Wrong(String),
    /// The other end is not who it should be.
    Untrusted(String),
}

impl Fault {
    /// The fault as the end of a request to `source_name`. All faults that may pass are
    /// [`Error::Unreachable`].
    #[must_use]
    pub fn into_error(self, source_name: &str) -> Error {
        let source_name = source_name.to_owned();
        let why = match self {
            Self::NoConnection(error) => format!("cannot connect: {error}"),
            Self::Ended => "the connection ended in the middle".to_owned(),
            Self::Silent(time) => format!("no byte came for {time:?}"),
            Self::Io(error) => format!("the connection broke: {error}"),
            Self::Cancelled => return Error::Cancelled,
            Self::Wrong(why) => return Error::Protocol { source_name, why },
            Self::Untrusted(why) => return Error::Untrusted { source_name, why },
        };
        Error::Unreachable { source_name, why }
    }
}
