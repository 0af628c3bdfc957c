//! What the process ends with.

use sprat_client::Error;
use sprat_flow::copy::Error as CopyError;
use sprat_flow::file::DestinationError;

/// Exit code: the object or table is not there.
pub(crate) const NOT_FOUND: u8 = 3;

/// Exit code: a condition did not hold.
pub(crate) const CONFLICT: u8 = 4;

/// Exit code: no answer in time, or nobody there.
pub(crate) const UNREACHABLE: u8 = 5;

/// Exit code: done, but some items had to be left out.
pub(crate) const INCOMPLETE: u8 = 6;

/// Exit code: done, but the network box did not keep up.
pub(crate) const BEHIND: u8 = 7;

/// Exit code: the other end does not give it to us, or we cannot know who it is.
pub(crate) const DENIED: u8 = 8;

/// Exit code: the source changes while it is fetched.
pub(crate) const CHANGED: u8 = 9;

/// Exit code: what comes is not what was sent, or makes no sense.
pub(crate) const CORRUPT: u8 = 10;

/// Exit code: the destination cannot be written: the disk is full, or nobody may.
pub(crate) const UNWRITABLE: u8 = 11;

/// Exit code: interrupted, as of a process that Ctrl-C ends.
pub(crate) const INTERRUPTED: u8 = 130;

/// What the process ends with after an error: 1, unless a program may want to tell it apart.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<CopyError>() {
        return of_copy(error);
    }
    if let Some(stopped) = error.downcast_ref::<sprat_grape::Stopped>() {
        return stopped.code;
    }
    if error.downcast_ref().is_some_and(sprat_ring::Error::is_interrupted) {
        return INTERRUPTED;
    }
    match error.downcast_ref::<Error>() {
        Some(Error::NoSuchTable(_) | Error::TableDropped(_)) => NOT_FOUND,
        Some(Error::Conflict { .. }) => CONFLICT,
        Some(Error::Denied { .. }) => DENIED,
        Some(
            Error::Timeout { .. }
            | Error::Recovering { .. }
            | Error::Indeterminate { .. }
            | Error::Lost { .. }
            | Error::TooFewServers { .. }
            | Error::ConnectionRefused(_),
        ) => UNREACHABLE,
        _ => 1,
    }
}

/// What the process ends with after an error of a copy.
fn of_copy(error: &CopyError) -> u8 {
    match error {
        CopyError::Usage(_) | CopyError::Destination(DestinationError::NoName(_)) => 2,
        // What a server does not take, and why: no such folder there, one of that name, not for us,
        // no room.
        CopyError::Refused { status, .. } => match status {
            404 => NOT_FOUND,
            409 | 412 => CONFLICT,
            403 | 405 => DENIED,
            413 | 507 => UNWRITABLE,
            _ => CORRUPT,
        },
        CopyError::NotFound { .. } => NOT_FOUND,
        CopyError::Destination(DestinationError::Exists(_) | DestinationError::Other { .. }) => {
            CONFLICT
        }
        CopyError::Unreachable { .. } => UNREACHABLE,
        CopyError::Denied { .. } | CopyError::Untrusted { .. } => DENIED,
        CopyError::Changed { .. } => CHANGED,
        CopyError::Protocol { .. } | CopyError::Corrupt { .. } => CORRUPT,
        CopyError::Sink(_)
        | CopyError::Destination(DestinationError::Io { .. })
        | CopyError::File { .. } => UNWRITABLE,
        CopyError::Cancelled => INTERRUPTED,
    }
}
