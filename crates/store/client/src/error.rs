//! The client's errors.

use sprat_wire::op::{Answer, Status};
use sprat_wire::value::{IncrementError, ValueType};
use std::time::Duration;
use thiserror::Error;

/// Why an operation failed. The message says what to do. A program decides by
/// [`is_retryable`](Self::is_retryable) and [`is_indeterminate`](Self::is_indeterminate).
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The condition did not hold; nothing was changed.
    #[error("the condition does not hold: {}", match .current {
        Some(version) => format!("the object has version {version}"),
        None => "there is no such object".into(),
    })]
    Conflict {
        /// The object's version; `None` when there is no object.
        current: Option<u64>,
    },
    /// Another client changed an object that the transaction has read, or its transaction locks
    /// one; nothing was changed.
    #[error("another client changed or locked an object of the transaction; nothing was changed")]
    TransactionConflict,
    /// A transaction cannot be executed; nothing was changed.
    #[error("not a valid transaction: {0}")]
    BadTransaction(String),
    /// There is no table of that name.
    #[error(
        "no table named {0:?}; `sprat table list` lists the tables, `sprat table create {0}` \
         creates it"
    )]
    NoSuchTable(String),
    /// The table was dropped while in use, or this client has not opened a table of that number.
    #[error("table {0} is gone: it was dropped (or it was not opened by this client)")]
    TableDropped(u32),
    /// The key is too long.
    #[error("key of {0} bytes; the longest is {max} bytes", max = sprat_wire::MAX_KEY)]
    KeyTooLarge(usize),
    /// The value is too long.
    #[error("value of {0} bytes; the longest is {max} bytes (1 MiB)", max = sprat_wire::MAX_VALUE)]
    ValueTooLarge(usize),
    /// The name is not valid for a table.
    #[error(
        "{0:?} cannot name a table: a name has 1 to {max} bytes",
        max = sprat_wire::MAX_TABLE_NAME
    )]
    BadTableName(String),
    /// The object cannot be incremented in this way; it was not changed.
    #[error("cannot increment: {0}")]
    NotANumber(IncrementError),
    /// Live data fills the server's memory; nothing was changed.
    #[error(
        "the server's memory is full of live data; remove objects, or start it with more --memory"
    )]
    MemoryFull,
    /// The server's disk has no room for more; nothing was changed.
    #[error("{0}; remove objects, or free space on that disk: writes then resume automatically")]
    DiskFull(String),
    /// The server can no longer make writes durable; this write may or may not survive a crash.
    #[error("the server takes no more writes until it is restarted: {0}")]
    WritesStopped(String),
    /// Too few servers take replicas, so the server cannot acknowledge changes for now.
    #[error("{server} cannot acknowledge anything for now: {reason}; {}", if *.may_take_effect {
        "the operation may take effect once there are enough; read before trying again"
    } else {
        "nothing was changed"
    })]
    TooFewServers {
        /// The server that has the table.
        server: String,
        /// In words: how many servers are needed, and how many there are.
        reason: String,
        /// Whether the operation may take effect later.
        may_take_effect: bool,
    },
    /// No answer in time to an operation that changes something: it may or may not have been
    /// executed.
    #[error(
        "no answer from {server} within {waited:?}: the operation may or may not have been \
         executed; read before trying again"
    )]
    Indeterminate {
        /// The server that did not answer.
        server: String,
        /// How long the client waited.
        waited: Duration,
    },
    /// The connection was lost with the operation in progress: it may or may not have been
    /// executed.
    #[error(
        "lost the connection to {server} during the operation: it may or may not have been \
         executed; read before trying again"
    )]
    Lost {
        /// The server that was lost.
        server: String,
    },
    /// No answer in time. The operation was not executed, or may safely be executed again.
    #[error(
        "no answer from {server} within {waited:?}; is it running, can it be reached, and does \
         --identity belong to its cluster? Trying again is safe"
    )]
    Timeout {
        /// The server that did not answer.
        server: String,
        /// How long the client waited.
        waited: Duration,
    },
    /// The server of this part of the table failed, and no other server has recovered that part
    /// yet. The operation was not executed, or may safely be executed again.
    #[error(
        "table {table}: the server of this part failed, and other servers have not recovered it \
         within {waited:?}; `sprat status` shows their progress and what they lack. Trying again \
         is safe"
    )]
    Recovering {
        /// The table's number.
        table: u32,
        /// How long the client waited.
        waited: Duration,
    },
    /// No coordinator listens at any of the addresses given, and none was ever reached. Nothing was
    /// executed.
    #[error(
        "connection refused: no coordinator listens at {0}; is it running, and is that its address?"
    )]
    ConnectionRefused(String),
    /// The table keeps no order of its keys, so ranges of them cannot be scanned.
    #[error("table {0} is not ordered; only tables that were made with `--ordered` are")]
    NotOrdered(u32),
    /// The table has no such index.
    #[error(
        "the table has no such index: it was dropped, or never made; `sprat index list TABLE` \
         lists a table's indexes"
    )]
    NoSuchIndex,
    /// The name or the definition of an index is not valid.
    #[error("not a valid index: its name must have 1 to 255 bytes, and its definition be valid")]
    BadIndex,
    /// A field is of another type than the fields of the index.
    #[error("index {index:?} has fields of type {wanted}, and this one is of type {given}")]
    FieldType {
        /// The name of the index.
        index: String,
        /// The type of the field.
        given: ValueType,
        /// The type of the index's fields.
        wanted: ValueType,
    },
    /// No server has enlisted with the coordinator.
    #[error("the coordinator knows no server yet; start one with `sprat server -C {0}`")]
    NoServer(String),
    /// The coordinator or server refused the request, and gave a reason.
    #[error("{server} refused: {reason}")]
    Refused {
        /// The coordinator or server.
        server: String,
        /// The reason it gave.
        reason: String,
    },
    /// The client's identity does not have the rights for this operation.
    #[error(
        "{server} denied the request: this identity has no right to do that; `sprat key show` \
         prints its rights"
    )]
    Denied {
        /// The server that refused.
        server: String,
    },
    /// A locator is invalid, a transport cannot be opened or has failed, the identity is not valid
    /// now, or the client's thread has ended.
    #[error("{0}")]
    Endpoint(String),
    /// The answer cannot be parsed: the server has another version, or a fault.
    #[error(
        "{server} gave an answer that this client does not understand; \
         are both of the same version?"
    )]
    Protocol {
        /// The server that answered.
        server: String,
    },
    /// As many operations are in progress as one client allows; take answers first.
    #[error(
        "{0} operations are in progress, this client's limit; take answers before submitting more"
    )]
    TooManyPending(usize),
}

impl Error {
    /// Returns whether the same operation may be tried again without further checks.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Recovering { .. }
                | Self::ConnectionRefused(_)
                | Self::NoServer(_)
                | Self::TooManyPending(_)
                | Self::TransactionConflict
                | Self::TooFewServers { may_take_effect: false, .. }
        )
    }

    /// Returns whether the operation may have been executed although it failed.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        matches!(
            self,
            Self::Indeterminate { .. }
                | Self::Lost { .. }
                | Self::WritesStopped(_)
                | Self::TooFewServers { may_take_effect: true, .. }
        )
    }

    /// Returns whether a request that changes nothing if it is repeated may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_retryable()
            || self.is_indeterminate()
            || matches!(self, Self::DiskFull(_) | Self::MemoryFull | Self::Endpoint(_))
    }

    /// Returns the error for an answer's status other than `Ok` and `NotFound`. `server`, `table`
    /// and `name` describe the request in it.
    pub(crate) fn of_answer(answer: &Answer<'_>, server: &str, table: u32, name: &str) -> Self {
        let Answer { status, number, body, .. } = *answer;
        let reason = || String::from_utf8_lossy(body).into_owned();
        match status {
            Status::Aborted => Self::TransactionConflict,
            Status::Conflict => Self::Conflict { current: (number != 0).then_some(number) },
            Status::NoSuchTable => Self::NoSuchTable(name.to_owned()),
            Status::UnknownTable => Self::TableDropped(table),
            Status::NotANumber => Self::NotANumber(IncrementError::of_code(number)),
            Status::MemoryFull => Self::MemoryFull,
            Status::DiskFull => Self::DiskFull(reason()),
            Status::WritesStopped => Self::WritesStopped(reason()),
            Status::TooFewServers => Self::TooFewServers {
                server: server.to_owned(),
                reason: reason(),
                may_take_effect: number != 0,
            },
            Status::Denied => Self::Denied { server: server.to_owned() },
            Status::NoServer => Self::NoServer(server.to_owned()),
            Status::NotOrdered => Self::NotOrdered(table),
            Status::NoSuchIndex => Self::NoSuchIndex,
            Status::Malformed
            | Status::Refused
            | Status::WrongCluster
            | Status::WrongRole
            | Status::Fenced
            | Status::NotLeading => {
                let reason = if body.is_empty() { status.to_string() } else { reason() };
                Self::Refused { server: server.to_owned(), reason }
            }
            Status::Ok | Status::NotFound | Status::Busy => {
                Self::Protocol { server: server.to_owned() }
            }
        }
    }
}
