//! Exit codes, and the code of each error. Scripts depend on them.

use sprat_archive::Error as ArchiveError;
use sprat_client::Error;
use sprat_flow::copy::Error as CopyError;
use sprat_flow::file::DestinationError;

/// Exit code: the object, table or index does not exist.
pub(crate) const NOT_FOUND: u8 = 3;

/// Exit code: a condition of the operation did not hold, or the destination exists.
pub(crate) const CONFLICT: u8 = 4;

/// Exit code: no answer in time, no server at the address, too few servers, or a table whose server
/// is being recovered.
pub(crate) const UNREACHABLE: u8 = 5;

/// Exit code: the command is done, but had to leave some items out or found some that are not as
/// they should be; or Ctrl-C stopped it between two steps of a change of a rack.
pub(crate) const INCOMPLETE: u8 = 6;

/// Exit code: the command is done, but the network box, a load or a bridge did not keep up.
pub(crate) const BEHIND: u8 = 7;

/// Exit code: the other end denies access, or cannot prove its identity.
pub(crate) const DENIED: u8 = 8;

/// Exit code: the source changed while it was fetched.
pub(crate) const CHANGED: u8 = 9;

/// Exit code: received or stored data is corrupt or lost, an answer violates the protocol, or a
/// computed result is wrong.
pub(crate) const CORRUPT: u8 = 10;

/// Exit code: the destination cannot be written: the disk is full, or permission is missing.
pub(crate) const UNWRITABLE: u8 = 11;

/// Exit code: interrupted, the code of a process that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Returns the exit code for an error: a code of its own if scripts may want to recognise the
/// error, otherwise 1.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<CopyError>() {
        return copy_exit_code(error);
    }
    if let Some(stopped) = error.downcast_ref::<sprat_grape::Stopped>() {
        return stopped.code;
    }
    if error.downcast_ref().is_some_and(sprat_ring::Error::is_interrupted) {
        return INTERRUPTED;
    }
    if let Some(error) = error.downcast_ref::<ArchiveError>() {
        return match error {
            ArchiveError::NoPoint { .. } | ArchiveError::NoTable(_) => NOT_FOUND,
            ArchiveError::TableExists(_) | ArchiveError::OtherCluster { .. } => CONFLICT,
            ArchiveError::Damaged(_) => CORRUPT,
            ArchiveError::Io { .. } => UNWRITABLE,
            ArchiveError::Recovering(_) | ArchiveError::NoCut(_) => UNREACHABLE,
            ArchiveError::Client(error) => client_exit_code(error),
            _ => 1,
        };
    }
    error.downcast_ref().map_or(1, client_exit_code)
}

/// Returns the exit code for an error of a client of the store.
fn client_exit_code(error: &Error) -> u8 {
    match error {
        Error::NoSuchTable(_) | Error::TableDropped(_) | Error::NoSuchIndex => NOT_FOUND,
        Error::Conflict { .. } | Error::TransactionConflict => CONFLICT,
        Error::Denied { .. } => DENIED,
        Error::Timeout { .. }
        | Error::Recovering { .. }
        | Error::Indeterminate { .. }
        | Error::Lost { .. }
        | Error::TooFewServers { .. }
        | Error::ConnectionRefused(_) => UNREACHABLE,
        _ => 1,
    }
}

/// Returns the exit code for an error of a copy.
fn copy_exit_code(error: &CopyError) -> u8 {
    match error {
        CopyError::Usage(_) | CopyError::Destination(DestinationError::NoName(_)) => 2,
        // A server refused an upload: the folder does not exist, the name is taken, access is
        // denied, or the disk is full.
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
