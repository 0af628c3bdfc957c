//! What a client asks of a coordinator or master, what servers ask of each other, and what is
//! answered.
//!
//! A request is a [`RequestHeader`], then `key_len` bytes of key (or name), then the value (or
//! locator). A change of an object may have an id, which then stands behind the header
//! ([`OperationId`]). A response is a [`ResponseHeader`], then a body whose meaning follows the
//! request.

mod answer;
mod backup;
mod cluster;
mod moving;
mod records;
mod select;

pub use answer::{Answer, RESPONSE_BYTES, ResponseHeader, Status, encode_answer};
pub use backup::{
    BackupRequest, MAX_EDITION, REPLICA_BYTES, ReplicaId, ReplicaRecord, push_replica,
};
pub use cluster::{Assignment, RecoveryOrder};
pub use moving::{Collected, MoveOrder, Stage, Stretch};
pub use records::{
    Item, Items, Records, ScanRecord, ServerRecord, TableRecord, TabletRecord, fits_record,
    push_counter, push_server, push_table, push_text, scan_record_len, write_scan_record,
};

pub use select::{MAX_SELECTED, Selection};

use crate::once::{COMPLETIONS, OperationId, OperationIdBytes};
use crate::tablet::{self, MAX_TABLETS};
use crate::{MAX_KEY, MAX_TABLE_NAME, MAX_VALUE, MAX_VERSION};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a request's header.
pub const REQUEST_BYTES: usize = 16;

/// The fixed header of every request.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct RequestHeader {
    op: u8,
    condition: u8,
    key_len: U16,
    table: U32,
    argument: U64,
}

const _: () = assert!(size_of::<RequestHeader>() == REQUEST_BYTES);

impl RequestHeader {
    /// The header of a request behind which its operation's id stands.
    #[must_use]
    #[inline]
    pub fn with_id(self) -> Self {
        Self { op: self.op | WITH_ID, ..self }
    }
}

/// What must hold of an object for a write or remove to take place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Condition {
    /// Nothing.
    #[default]
    None,
    /// There is no such object.
    Absent,
    /// There is such an object.
    Exists,
    /// The object has this version.
    Version(u64),
}

impl Condition {
    fn encode(self) -> (u8, u64) {
        match self {
            Self::None => (0, 0),
            Self::Absent => (1, 0),
            Self::Exists => (2, 0),
            Self::Version(version) => (3, version),
        }
    }

    fn parse(code: u8, argument: u64) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Absent),
            2 => Ok(Self::Exists),
            3 if argument <= MAX_VERSION => Ok(Self::Version(argument)),
            _ => Err(Malformed::Condition(code)),
        }
    }

    /// Whether it holds of an object with this version, or of no object.
    #[must_use]
    pub fn holds(self, version: Option<u64>) -> bool {
        match self {
            Self::None => true,
            Self::Absent => version.is_none(),
            Self::Exists => version.is_some(),
            Self::Version(wanted) => version == Some(wanted),
        }
    }
}

/// A request, parsed; borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// To a master: the object of a key. Body of the answer: the value; `count`: the code of its
    /// [type](crate::value::ValueType::code).
    Read {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
    },
    /// To a master: store an object.
    Write {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// What must hold first.
        condition: Condition,
    },
    /// To a master: remove an object.
    Remove {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// What must hold first.
        condition: Condition,
    },
    /// To a master: add to an integer counter, a little-endian `i64`; an absent one counts as 0.
    /// Body of the answer: the new value. What is no such counter, or would overflow, stays as it
    /// is: [`Number::added_to`](crate::value::Number::added_to).
    IncrementI64 {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// What to add; the sum must not overflow.
        delta: i64,
    },
    /// As [`IncrementI64`](Self::IncrementI64), for a double counter: a little-endian `f64`, which
    /// stays finite.
    IncrementF64 {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// What to add.
        delta: f64,
    },
    /// To a master: the next objects of a table, in the order of [`Items`]' cursors. Body of the
    /// answer: [`Items`]; `number`: the cursor to go on from, while `more` is set, perhaps at
    /// another server: of one tablet at a time is told.
    Scan {
        /// Table id.
        table: u32,
        /// Cursor that the last answer gave; `None` to begin.
        after: Option<u64>,
    },
    /// To a master: objects (`number`) and bytes (body: [`Records`] of counters) of a table.
    TableStats {
        /// Table id.
        table: u32,
    },
    /// To a master: send this back. What a call costs before there is any store. Body of the
    /// answer: the value.
    Echo {
        /// Table id: whose master is asked.
        table: u32,
        /// What to send back.
        value: &'a [u8],
    },
    /// To a master or coordinator: its counters. Body: [`Records`].
    ServerStats,
    /// To a coordinator: make a table unless it exists. Body of the answer: one [`TableRecord`].
    CreateTable {
        /// Its name.
        name: &'a str,
        /// In how many tablets it begins, at most [`MAX_TABLETS`]; zero: the coordinator decides.
        tablets: u32,
    },
    /// To a coordinator: drop a table and all its objects.
    DropTable {
        /// Its name.
        name: &'a str,
    },
    /// To a coordinator: one table. Body of the answer: one [`TableRecord`].
    FindTable {
        /// Its name.
        name: &'a str,
    },
    /// To a coordinator: where a table is by now. Body of the answer: one [`TableRecord`].
    LocateTable {
        /// Table id.
        table: u32,
    },
    /// To a coordinator: every table. Body of the answer: [`TableRecord`]s.
    ListTables,
    /// To a coordinator: every server. Body of the answer: [`ServerRecord`]s.
    ListServers,
    /// To a coordinator: who leads? `number` of the answer: the term, zero when there is but one
    /// coordinator. Body: the leader's locator. Of one that stands by the answer is
    /// [`Status::NotLeading`].
    WhoLeads,
    /// Server to coordinator: I serve here. `number` of the answer: the server's id.
    /// Body of the answer: a counter named `cluster`, the cluster's id, and one named `version`,
    /// that of the map.
    Enlist {
        /// The id it had before; zero when it never had one.
        server: u32,
        /// The cluster its data belongs to; zero when it has none.
        cluster: u64,
        /// Replicas that it keeps of its log on other servers, and then it keeps some for them;
        /// zero: its data is on its own disk.
        copies: u8,
        /// Where clients reach it.
        locator: &'a str,
        /// The rack that it is in ([`is_rack`](crate::is_rack)); empty when nobody has said.
        rack: &'a str,
    },
    /// Server to coordinator: I serve the tables of map version `known`; answer when there is a
    /// newer one, or after a while. `number`: its version. Body of the answer: an
    /// [`Assignment`]; [`Status::WrongCluster`], with the reason, from a coordinator whose
    /// metadata are another cluster's, or older than what the server has seen.
    Assignments {
        /// Who asks.
        server: u32,
        /// Map version it serves.
        known: u64,
        /// What it knows of its cluster.
        seen: &'a Seen,
    },
    /// Server to coordinator: a copy of the catalog, which I keep so that your metadata can be made
    /// again. `number`: its version. Otherwise answered as [`Assignments`](Self::Assignments)
    /// is.
    CopyCatalog {
        /// Who asks.
        server: u32,
        /// What it knows of its cluster.
        seen: &'a Seen,
    },
    /// Server to coordinator: open heads of my log below this segment are void. Answered when that
    /// is durable.
    Void {
        /// Whose log.
        server: u32,
        /// The least segment that counts though it is open.
        segment: u64,
    },
    /// Server to coordinator: what I was to bring back of a server that is gone is here, and
    /// durable, or cannot be had for now. Answered when others may know; `Refused` when it was
    /// not, or is no longer, mine to bring back.
    Recovered {
        /// Who says so.
        server: u32,
        /// What.
        what: &'a BroughtBack,
        /// Why it cannot be had; empty when it is there.
        failure: &'a str,
    },
    /// To a coordinator: have another server serve a tablet, or a part of one. Answered when that
    /// is written down; it is done when the table's record says so.
    MoveTablet {
        /// Table id.
        table: u32,
        /// Where to.
        to: u32,
        /// Which of its objects.
        range: &'a Stretch,
    },
    /// To a coordinator: have a server's tablets moved to others, and give it no more; or let it
    /// have some again.
    Drain {
        /// Which server.
        server: u32,
        /// Whether it is to be drained.
        drain: bool,
    },
    /// Server to master: give me more of the tablet that is to move from you to me. Body of the
    /// answer: the version that new objects have at least, then entries. `number`: the cursor
    /// to go on from, or how many changes are left; `more` while there is any.
    Collect {
        /// Which move.
        order: u64,
        /// What of it.
        stage: Stage,
        /// From where on.
        from: &'a Collected,
    },
    /// Server to coordinator: what my tablets hold, and how much is asked of them. Those beyond
    /// [`MAX_LOADS`] are left out.
    Loads {
        /// Who says so.
        server: u32,
        /// Bytes of objects that its log takes.
        capacity: u64,
        /// Of each tablet.
        loads: &'a [Load],
    },
    /// To a backup.
    Backup(BackupRequest<'a>),
}

/// What a server has brought back: see [`Request::Recovered`].
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct BroughtBack {
    /// Which order that was.
    pub order: U64,
    /// The segment of the log here from which on entries of it count.
    pub since: U64,
}

/// What a server knows of its cluster, by which a coordinator with other or older metadata is
/// recognised.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    PartialEq,
    Unaligned,
)]
#[repr(C)]
pub struct Seen {
    /// The cluster's id; zero if it has none.
    pub cluster: U64,
    /// The highest version of the map that it has been given, in this life or, as far as its disk
    /// holds, an earlier one.
    pub version: U64,
}

/// Most tablets of which a server tells the load.
pub const MAX_LOADS: usize = 1024;

/// What a tablet is to who serves it: see [`Request::Loads`].
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Load {
    /// Table id.
    pub table: U32,
    /// Requests a second.
    pub requests: U32,
    /// Of those, to the second half of its objects.
    pub second_half: U32,
    /// Bytes of its objects in the log, keys and headers included.
    pub bytes: U64,
    /// Which of the table's objects.
    pub range: Stretch,
}

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Malformed {
    /// Too few bytes.
    #[error("request of {0} bytes is cut short")]
    Short(usize),
    /// No such operation.
    #[error("unknown operation {0}")]
    Op(u8),
    /// No such condition.
    #[error("unknown condition {0}")]
    Condition(u8),
    /// Bytes where none belong.
    #[error("{0} bytes too many behind the request")]
    Trailing(usize),
    /// A value over the limit.
    #[error("value of {0} bytes is over the limit of 1 MB")]
    ValueTooLarge(usize),
    /// A name over the limit, empty, or not UTF-8.
    #[error("a name must be 1 to {MAX_TABLE_NAME} bytes of UTF-8")]
    Name,
    /// What names no rack.
    #[error("a rack is named by 1 to {max} of letters, digits, _ and -", max = crate::MAX_RACK)]
    Rack,
    /// A server id over the limit.
    #[error("server id {0} is over the limit of {max}", max = crate::MAX_SERVER_ID)]
    Server(u32),
    /// The id of a table's completions in place of a table's.
    #[error("table id {0} is over the limit of {max}", max = COMPLETIONS - 1)]
    Table(u32),
    /// More tablets than a table may have.
    #[error("{0} tablets are over the limit of {max}", max = MAX_TABLETS)]
    Tablets(u32),
    /// Positions the wrong way round.
    #[error("a run of positions that ends before it begins")]
    Stretch,
    /// No such stage of a move.
    #[error("unknown stage {0} of a move")]
    Stage(u8),
    /// A list of tablets that is none, or too long.
    #[error("a selection of tablets that makes no sense")]
    Selection,
    /// An operation's id where none belongs.
    #[error("operation {0} takes no id")]
    Id(u8),
    /// A place that no segment has, or where none belongs.
    #[error("offset {0} is not in a segment, or does not belong there")]
    Offset(u32),
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const REMOVE: u8 = 3;
const INCREMENT_I64: u8 = 4;
const INCREMENT_F64: u8 = 5;
const SCAN: u8 = 6;
const TABLE_STATS: u8 = 7;
const SERVER_STATS: u8 = 8;
const ECHO: u8 = 9;
const COLLECT: u8 = 10;
const CREATE_TABLE: u8 = 32;
const DROP_TABLE: u8 = 33;
const FIND_TABLE: u8 = 34;
const LIST_TABLES: u8 = 35;
const LIST_SERVERS: u8 = 36;
const ENLIST: u8 = 37;
const ASSIGNMENTS: u8 = 38;
const VOID: u8 = 39;
const RECOVERED: u8 = 40;
const LOCATE_TABLE: u8 = 41;
const WHO_LEADS: u8 = 42;
const MOVE_TABLET: u8 = 43;
const DRAIN: u8 = 44;
const LOADS: u8 = 45;
const COPY_CATALOG: u8 = 46;

/// Bit in `op` of a request whose operation has an id.
const WITH_ID: u8 = 0x80;

/// Code in `condition` of a scan that goes on from a cursor.
const CONTINUE: u8 = 1;

impl<'a> Request<'a> {
    /// The request's bytes in three parts: header, key, value.
    ///
    /// # Panics
    /// When the key or a name is over its limit: callers check at the edge.
    #[must_use]
    #[inline]
    pub fn parts(&self) -> (RequestHeader, &'a [u8], &'a [u8]) {
        const NOTHING: &[u8] = &[];
        let (op, condition, table, argument, key, value) = match *self {
            Self::Read { table, key } => (READ, 0, table, 0, key, NOTHING),
            Self::Write { table, key, value, condition } => {
                let (code, argument) = condition.encode();
                (WRITE, code, table, argument, key, value)
            }
            Self::Remove { table, key, condition } => {
                let (code, argument) = condition.encode();
                (REMOVE, code, table, argument, key, NOTHING)
            }
            Self::IncrementI64 { table, key, delta } => {
                (INCREMENT_I64, 0, table, delta.cast_unsigned(), key, NOTHING)
            }
            Self::IncrementF64 { table, key, delta } => {
                (INCREMENT_F64, 0, table, delta.to_bits(), key, NOTHING)
            }
            Self::Scan { table, after: None } => (SCAN, 0, table, 0, NOTHING, NOTHING),
            Self::Scan { table, after: Some(after) } => {
                (SCAN, CONTINUE, table, after, NOTHING, NOTHING)
            }
            Self::TableStats { table } => (TABLE_STATS, 0, table, 0, NOTHING, NOTHING),
            Self::Echo { table, value } => (ECHO, 0, table, 0, NOTHING, value),
            Self::ServerStats => (SERVER_STATS, 0, 0, 0, NOTHING, NOTHING),
            Self::CreateTable { name, tablets } => {
                (CREATE_TABLE, 0, tablets, 0, name.as_bytes(), NOTHING)
            }
            Self::DropTable { name } => (DROP_TABLE, 0, 0, 0, name.as_bytes(), NOTHING),
            Self::FindTable { name } => (FIND_TABLE, 0, 0, 0, name.as_bytes(), NOTHING),
            Self::LocateTable { table } => (LOCATE_TABLE, 0, table, 0, NOTHING, NOTHING),
            Self::ListTables => (LIST_TABLES, 0, 0, 0, NOTHING, NOTHING),
            Self::ListServers => (LIST_SERVERS, 0, 0, 0, NOTHING, NOTHING),
            Self::WhoLeads => (WHO_LEADS, 0, 0, 0, NOTHING, NOTHING),
            Self::Enlist { server, cluster, copies, locator, rack } => {
                (ENLIST, copies, server, cluster, locator.as_bytes(), rack.as_bytes())
            }
            Self::Assignments { server, known, seen } => {
                (ASSIGNMENTS, 0, server, known, seen.as_bytes(), NOTHING)
            }
            Self::CopyCatalog { server, seen } => {
                (COPY_CATALOG, 0, server, 0, seen.as_bytes(), NOTHING)
            }
            Self::Void { server, segment } => (VOID, 0, server, segment, NOTHING, NOTHING),
            Self::Recovered { server, what, failure } => {
                (RECOVERED, 0, server, 0, what.as_bytes(), failure.as_bytes())
            }
            Self::Loads { server, capacity, loads } => {
                (LOADS, 0, server, capacity, NOTHING, loads.as_bytes())
            }
            Self::MoveTablet { table, to, range } => {
                (MOVE_TABLET, 0, table, to.into(), range.as_bytes(), NOTHING)
            }
            Self::Drain { server, drain } => (DRAIN, drain.into(), server, 0, NOTHING, NOTHING),
            Self::Collect { order, stage, from } => {
                (COLLECT, stage.code(), 0, order, from.as_bytes(), NOTHING)
            }
            Self::Backup(request) => {
                let (header, bytes) = request.parts();
                return (header, NOTHING, bytes);
            }
        };
        assert!(key.len() <= MAX_KEY, "key within limits");
        let key_len = U16::new(u16::try_from(key.len()).expect("checked"));
        (
            RequestHeader {
                op,
                condition,
                key_len,
                table: U32::new(table),
                argument: U64::new(argument),
            },
            key,
            value,
        )
    }

    /// Parses a request without an operation's id.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Self::parse_with_id(bytes)? {
            (request, None) => Ok(request),
            (_, Some(_)) => Err(Malformed::Id(bytes[0] & !WITH_ID)),
        }
    }

    /// Parses a request, and its operation's id if it has one.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn parse_with_id(bytes: &'a [u8]) -> Result<(Self, Option<OperationId>), Malformed> {
        let Ok((header, rest)) = RequestHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::Short(bytes.len()));
        };
        if header.op & WITH_ID == 0 {
            return Ok((Self::parse_op(header, rest)?, None));
        }
        let Ok((id, rest)) = OperationIdBytes::ref_from_prefix(rest) else {
            return Err(Malformed::Short(bytes.len()));
        };
        let header = RequestHeader { op: header.op & !WITH_ID, ..*header };
        let request = Self::parse_op(&header, rest)?;
        if !request.changes_object() {
            return Err(Malformed::Id(header.op));
        }
        Ok((request, Some(OperationId::of(id))))
    }

    #[inline]
    fn parse_op(header: &RequestHeader, rest: &'a [u8]) -> Result<Self, Malformed> {
        let key_len = usize::from(header.key_len.get());
        if key_len > rest.len() {
            return Err(Malformed::Short(REQUEST_BYTES + rest.len()));
        }
        let (key, value) = rest.split_at(key_len);
        if (backup::FIRST..=backup::LAST).contains(&header.op) {
            return match key {
                [] => BackupRequest::parse(header, value).map(Self::Backup),
                key => Err(Malformed::Trailing(key.len())),
            };
        }
        let (table, argument) = (header.table.get(), header.argument.get());
        if matches!(header.op, READ..=TABLE_STATS | ECHO | LOCATE_TABLE) && table & COMPLETIONS != 0
        {
            return Err(Malformed::Table(table));
        }
        if !matches!(header.op, WRITE | ECHO | RECOVERED | ENLIST | LOADS) && !value.is_empty() {
            return Err(Malformed::Trailing(value.len()));
        }
        let name = || match str::from_utf8(key) {
            Ok(name) if (1..=MAX_TABLE_NAME).contains(&name.len()) => Ok(name),
            _ => Err(Malformed::Name),
        };
        let seen =
            || Seen::ref_from_bytes(key).map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()));
        let keyless = |request| {
            if key.is_empty() { Ok(request) } else { Err(Malformed::Trailing(key.len())) }
        };
        match header.op {
            READ => Ok(Self::Read { table, key }),
            WRITE | ECHO if value.len() > MAX_VALUE => Err(Malformed::ValueTooLarge(value.len())),
            WRITE => Ok(Self::Write {
                table,
                key,
                value,
                condition: Condition::parse(header.condition, argument)?,
            }),
            REMOVE => Ok(Self::Remove {
                table,
                key,
                condition: Condition::parse(header.condition, argument)?,
            }),
            INCREMENT_I64 => Ok(Self::IncrementI64 { table, key, delta: argument.cast_signed() }),
            INCREMENT_F64 => Ok(Self::IncrementF64 { table, key, delta: f64::from_bits(argument) }),
            SCAN => match header.condition {
                0 => keyless(Self::Scan { table, after: None }),
                CONTINUE => keyless(Self::Scan { table, after: Some(argument) }),
                other => Err(Malformed::Condition(other)),
            },
            TABLE_STATS => keyless(Self::TableStats { table }),
            SERVER_STATS => keyless(Self::ServerStats),
            ECHO => keyless(Self::Echo { table, value }),
            CREATE_TABLE if table as usize > MAX_TABLETS => Err(Malformed::Tablets(table)),
            CREATE_TABLE => Ok(Self::CreateTable { name: name()?, tablets: table }),
            DROP_TABLE => Ok(Self::DropTable { name: name()? }),
            FIND_TABLE => Ok(Self::FindTable { name: name()? }),
            LOCATE_TABLE => keyless(Self::LocateTable { table }),
            LIST_TABLES => keyless(Self::ListTables),
            LIST_SERVERS => keyless(Self::ListServers),
            WHO_LEADS => keyless(Self::WhoLeads),
            ENLIST => {
                let rack = str::from_utf8(value)
                    .ok()
                    .filter(|rack| rack.is_empty() || crate::is_rack(rack));
                let (locator, rack) = (name()?, rack.ok_or(Malformed::Rack)?);
                Ok(Self::Enlist {
                    server: table,
                    cluster: argument,
                    copies: header.condition,
                    locator,
                    rack,
                })
            }
            ASSIGNMENTS => Ok(Self::Assignments { server: table, known: argument, seen: seen()? }),
            COPY_CATALOG => Ok(Self::CopyCatalog { server: table, seen: seen()? }),
            VOID => keyless(Self::Void { server: table, segment: argument }),
            RECOVERED => {
                let what = BroughtBack::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let failure =
                    str::from_utf8(value).ok().filter(|failure| failure.len() <= MAX_TABLE_NAME);
                Ok(Self::Recovered {
                    server: table,
                    what,
                    failure: failure.ok_or(Malformed::Name)?,
                })
            }
            MOVE_TABLET => {
                let range = Stretch::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let to = u32::try_from(argument).map_err(|_| Malformed::Server(u32::MAX))?;
                range.range().ok_or(Malformed::Stretch)?;
                Ok(Self::MoveTablet { table, to, range })
            }
            LOADS => {
                let loads =
                    <[Load]>::ref_from_bytes(value).ok().filter(|loads| loads.len() <= MAX_LOADS);
                let loads =
                    loads.filter(|loads| loads.iter().all(|load| load.range.range().is_some()));
                keyless(Self::Loads {
                    server: table,
                    capacity: argument,
                    loads: loads.ok_or(Malformed::Stretch)?,
                })
            }
            DRAIN if header.condition > 1 => Err(Malformed::Condition(header.condition)),
            DRAIN => keyless(Self::Drain { server: table, drain: header.condition == 1 }),
            COLLECT => {
                let from = Collected::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let stage =
                    Stage::of(header.condition).ok_or(Malformed::Stage(header.condition))?;
                Ok(Self::Collect { order: argument, stage, from })
            }
            other => Err(Malformed::Op(other)),
        }
    }

    /// The table whose master it is for; `None` for what is asked of a server as a whole or of a
    /// coordinator.
    #[must_use]
    #[inline]
    pub fn table(&self) -> Option<u32> {
        match *self {
            Self::Read { table, .. }
            | Self::Write { table, .. }
            | Self::Remove { table, .. }
            | Self::IncrementI64 { table, .. }
            | Self::IncrementF64 { table, .. }
            | Self::Scan { table, .. }
            | Self::TableStats { table }
            | Self::Echo { table, .. } => Some(table),
            _ => None,
        }
    }

    /// The table and key of the one object it is for, if it is for one.
    #[must_use]
    #[inline]
    pub fn object(&self) -> Option<(u32, &'a [u8])> {
        match *self {
            Self::Read { table, key }
            | Self::Write { table, key, .. }
            | Self::Remove { table, key, .. }
            | Self::IncrementI64 { table, key, .. }
            | Self::IncrementF64 { table, key, .. } => Some((table, key)),
            _ => None,
        }
    }

    /// Where what it is for stands in its table's order, with keys hashed by `seed`: whoever has
    /// the tablet there is asked. The beginning, if it is about the table as a whole.
    #[must_use]
    #[inline]
    pub fn position(&self, seed: u64) -> u64 {
        match (self, self.object()) {
            (_, Some((table, key))) => tablet::position(seed, table, key),
            (Self::Scan { after: Some(after), .. }, _) => after.saturating_add(1),
            _ => 0,
        }
    }

    /// Whether it writes or removes an object, and so may have an [`OperationId`].
    #[must_use]
    #[inline]
    pub fn changes_object(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Remove { .. }
                | Self::IncrementI64 { .. }
                | Self::IncrementF64 { .. }
        )
    }

    /// Whether executing it twice is the same as once, so that it may be sent again when an answer
    /// is lost.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        !self.changes_object() && !matches!(self, Self::DropTable { .. })
    }
}
