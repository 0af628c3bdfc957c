//! Exceptions: one for each kind of error that a program may want to handle.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use sprat_flow::copy;
use sprat_flow::file;

create_exception!(sprat.flow, Error, PyException, "A copy failed.");
create_exception!(sprat.flow, UsageError, Error, "The arguments are invalid.");
create_exception!(sprat.flow, NotFound, Error, "The source has no such file.");
create_exception!(sprat.flow, Denied, Error, "The source denies access to the file.");
create_exception!(
    sprat.flow,
    Unreachable,
    Error,
    "The source cannot be reached, or stopped answering; the same call continues the copy."
);
create_exception!(sprat.flow, Untrusted, Error, "The other end's certificate is not trusted.");
create_exception!(
    sprat.flow,
    ProtocolError,
    Error,
    "The source violates HTTP, or contradicts what it sent before."
);
create_exception!(sprat.flow, Changed, Error, "The file changed repeatedly while it was fetched.");
create_exception!(
    sprat.flow,
    Corrupt,
    Error,
    "Bytes were changed on their way, or the file does not have the given hash."
);
create_exception!(
    sprat.flow,
    Exists,
    Error,
    "The destination exists, and differs from the source."
);
create_exception!(
    sprat.flow,
    DestinationError,
    Error,
    "The destination, or a file named in the arguments, cannot be written or read."
);

/// The exception of an error.
pub(crate) fn exception(error: &copy::Error) -> PyErr {
    let text = sprat_flow::escape_controls(&error.to_string()).into_owned();
    match error {
        copy::Error::Usage(_) | copy::Error::Destination(file::DestinationError::NoName(_)) => {
            UsageError::new_err(text)
        }
        copy::Error::NotFound { .. } => NotFound::new_err(text),
        copy::Error::Denied { .. } => Denied::new_err(text),
        copy::Error::Unreachable { .. } => Unreachable::new_err(text),
        copy::Error::Untrusted { .. } => Untrusted::new_err(text),
        copy::Error::Protocol { .. } => ProtocolError::new_err(text),
        copy::Error::Changed { .. } => Changed::new_err(text),
        copy::Error::Corrupt { .. } => Corrupt::new_err(text),
        copy::Error::Destination(
            file::DestinationError::Exists(_) | file::DestinationError::Other { .. },
        ) => Exists::new_err(text),
        copy::Error::Refused { .. }
        | copy::Error::Sink(_)
        | copy::Error::Destination(file::DestinationError::Io { .. })
        | copy::Error::File { .. } => DestinationError::new_err(text),
        // Only an exception of a callback, or Ctrl-C, cancels a copy; the caller then raises that
        // exception instead.
        copy::Error::Cancelled => Error::new_err(text),
    }
}
