//! Requests that clients and servers send to coordinators, masters and backups, and the answers.
//!
//! A request is a [`RequestHeader`], then `key_len` bytes of key (or name, or locator), then the
//! value. A request that changes an object may have an id, which then follows the header
//! ([`OperationId`](crate::once::OperationId)). A time to live, if the request has one, follows
//! these ([`Ttl`]). A response is a [`ResponseHeader`], then a body
//! whose meaning depends on the request.

mod answer;
mod backup;
mod batch;
mod cluster;
mod copying;
mod encoding;
mod moving;
mod records;
mod select;
mod watching;

pub use answer::{Answer, RESPONSE_BYTES, ResponseHeader, Status, encode_answer, encode_object};
pub use backup::{
    BackupRequest, MAX_EDITION, REPLICA_BYTES, ReplicaId, ReplicaRecord, push_replica,
};
pub use batch::{
    BATCH_ANSWER_BYTES, BatchItems, ITEM_LENGTH_BYTES, MAX_BATCH, MAX_BATCH_BYTES, item_length,
    push_item,
};
pub use cluster::{Assignment, RecoveryOrder};
pub use copying::{COPY_BYTES, COPY_IDLE, CopyCursor, CopySegment, CopyStep, MAX_HOLD};
pub use moving::{MoveCursor, MoveOrder, MoveStage, RangeBytes};
pub use records::{
    Item, Items, Records, ScanRecord, ServerRecord, TableOptions, TableRecord, TabletRecord,
    WhenFull, fits_record, push_counter, push_server, push_table, push_text, write_scan_record,
};

pub use select::{MAX_SELECTED, Selection};
pub use watching::{FEED_IDLE, WATCH_WAIT, WatchCursor, WatchHead, WatchPage};

use crate::elements::{self, ELEMENTS};
use crate::expiry::{TIME_CLIENT, TTL_BYTES, Ttl};
use crate::once::OPERATION_ID_BYTES;
use crate::order::RangeQuery;
use crate::tablet::{self, MAX_TABLETS};
use crate::transaction::{Decision, Plan, TransactionAction};
use crate::value::ValueType;
use crate::{MAX_TABLE_NAME, MAX_VERSION};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a request's header.
pub const REQUEST_BYTES: usize = 16;

/// The bit of `op` that marks a request with an operation's id.
const WITH_ID: u8 = 0x80;

/// The bit of `condition` that marks a request with a time to live.
const WITH_TTL: u8 = 0x80;

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
    /// Returns the header of a request whose operation has an id, which follows it.
    #[must_use]
    #[inline]
    pub fn with_id(self) -> Self {
        Self { op: self.op | WITH_ID, ..self }
    }
}

/// The highest version of an object that is [restored](Request::Restore). Later writes of the
/// object have as many versions left.
pub const MAX_RESTORED_VERSION: u64 = MAX_VERSION / 2;

/// The condition under which a write or remove takes place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Condition {
    /// No condition.
    #[default]
    None,
    /// The object must not exist.
    Absent,
    /// The object must exist.
    Exists,
    /// The object must have this version.
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

    /// Returns whether the condition holds for an object of this version; `None` stands for no
    /// object.
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

/// A parsed request, borrowed from the bytes that contain it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// To a master: read an object. Body of the answer: the value; the header has the code of its
    /// type and the [time that the object has left](Answer::ttl).
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
        /// The condition for the write.
        condition: Condition,
        /// After how long the object expires; `None`: never.
        ttl: Option<Ttl>,
    },
    /// To a master: set after how long an object expires, and leave its value as it is.
    SetTtl {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// The condition for the change.
        condition: Condition,
        /// After how long the object expires; `None`: never.
        ttl: Option<Ttl>,
    },
    /// To a master: remove an object.
    Remove {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// The condition for the removal.
        condition: Condition,
    },
    /// To a master: add to an integer counter, a little-endian `i64`; an absent counter counts as
    /// 0. Body of the answer: the new value. An object that is not such a counter, or would
    ///    overflow, is not changed: see [`Number::added_to`](crate::value::Number::added_to).
    IncrementI64 {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// The number to add.
        delta: i64,
    },
    /// To a master: add to a double counter, a little-endian `f64` that stays finite. Otherwise
    /// like [`IncrementI64`](Self::IncrementI64).
    IncrementF64 {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// The number to add.
        delta: f64,
    },
    /// To a master: execute these requests for single objects, one after another. Each takes effect
    /// by itself, or not, as if it were sent alone. Body of the answer: the [`BatchItems`] of their
    /// answers.
    Batch {
        /// The requests.
        items: BatchItems<'a>,
    },
    /// To a master: prepare this operation of a transaction, which must have an id. `Ok`: it is
    /// prepared, and its object is locked. `Conflict`: the condition does not hold. `Aborted`:
    /// another transaction locks the object, or this operation was aborted. `number`: the
    /// [preparation](crate::transaction::Preparation) of the transaction. See
    /// [`crate::transaction`].
    Prepare {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// The condition for the transaction.
        condition: Condition,
        /// What the operation does, and for which transaction.
        plan: Plan<'a>,
    },
    /// To a master: decide an operation of a transaction. `number` of the answer: the
    /// [state](crate::transaction::OperationState) of the operation.
    Decide {
        /// Table id.
        table: u32,
        /// The position of the object's key.
        position: u64,
        /// The bytes of the operation's id.
        id: &'a [u8; OPERATION_ID_BYTES],
        /// What to do.
        decision: Decision,
    },
    /// To a master: store an object of a backup with its version, unless the server has that
    /// version or a later one. `number` of the answer: the version that the object has.
    Restore {
        /// Table id.
        table: u32,
        /// Key.
        key: &'a [u8],
        /// Value; 8 bytes for a counter or a collection.
        value: &'a [u8],
        /// The value's type; `None` for an [element](crate::elements) of a collection, or the
        /// record of its owner.
        value_type: Option<ValueType>,
        /// Version; at most [`MAX_RESTORED_VERSION`].
        version: u64,
        /// After how long the object expires; `None`: never.
        ttl: Option<Ttl>,
    },
    /// To a master: return the next objects of a table, in the order of [`Items`]' cursors. Body of
    /// the answer: [`Items`]; `more`: another scan is needed, from the cursor in `number`. An
    /// answer covers one tablet at most; the next tablet may be at another server.
    Scan {
        /// Table id.
        table: u32,
        /// Cursor of the previous answer; `None` to begin.
        after: Option<u64>,
    },
    /// To a master: return the first objects of a range of keys of an ordered table, or of an
    /// index, that are in the tablets of the table that this server serves, of which one has this
    /// position. Body of the answer: a [`RangePage`](crate::order::RangePage).
    /// [`Status::NotOrdered`]: the table has no order. [`Status::NoSuchIndex`]: or no such index.
    ScanRange {
        /// Table id.
        table: u32,
        /// A position in one of the tablets.
        position: u64,
        /// The keys, and how many objects to return.
        query: RangeQuery<'a>,
    },
    /// To a master: return what has changed in a tablet, or wait for it. Body of the answer: a
    /// [`WatchPage`].
    Watch {
        /// Table id.
        table: u32,
        /// A position in the tablet.
        position: u64,
        /// What the client has.
        from: &'a WatchCursor,
    },
    /// To a master: count a table's objects (`number`) and bytes (body: a counter), and measure its
    /// orders (body, behind the counter: [`OrderStats`](crate::index::OrderStats)).
    TableStats {
        /// Table id.
        table: u32,
    },
    /// To a master: send a value back, to measure the cost of a call without the store. Body of the
    /// answer: the value.
    Echo {
        /// Table id, which selects the master.
        table: u32,
        /// The value to send back.
        value: &'a [u8],
    },
    /// To a master: take a step of a copy of its log.
    CopyLog {
        /// The step.
        step: CopyStep<'a>,
    },
    /// To a master or coordinator: return its counters. Body of the answer: [`Records`].
    ServerStats,
    /// To a coordinator: make a table unless it exists. Body of the answer: one [`TableRecord`].
    CreateTable {
        /// Name of the table.
        name: &'a str,
        /// What the table is made with.
        options: TableOptions,
    },
    /// To a coordinator: drop a table and all its objects.
    DropTable {
        /// Name of the table.
        name: &'a str,
    },
    /// To a coordinator: find a table by name. Body of the answer: one [`TableRecord`].
    FindTable {
        /// Name of the table.
        name: &'a str,
    },
    /// To a coordinator: make an index of a table unless it exists. Body of the answer: one
    /// [`TableRecord`].
    CreateIndex {
        /// Name of the table.
        table: &'a str,
        /// The bytes of the [new index](crate::index::new_index).
        index: &'a [u8],
    },
    /// To a coordinator: drop an index of a table. Body of the answer: one [`TableRecord`].
    /// [`Status::NoSuchIndex`]: there is none of that name.
    DropIndex {
        /// Name of the table.
        table: &'a str,
        /// Name of the index.
        index: &'a str,
    },
    /// To a coordinator: locate a table's tablets. Body of the answer: one [`TableRecord`].
    LocateTable {
        /// Table id.
        table: u32,
    },
    /// To a coordinator: list the tables on which the requester has rights, in the order of their
    /// names. Body of the answer: [`TableRecord`]s.
    ListTables,
    /// To a coordinator: list all servers. Body of the answer: [`ServerRecord`]s.
    ListServers,
    /// To a coordinator: find the leader. `number` of the answer: the term. Body: the leader's
    /// locator. If there is only one coordinator, the term is zero and the body is empty. A
    /// coordinator that does not lead answers [`Status::NotLeading`].
    WhoLeads,
    /// Server to coordinator: join the cluster. `number` of the answer: the server's id. Body of
    /// the answer: a counter named `cluster`, the cluster's id, and one named `version`, the
    /// version of the map.
    Enlist {
        /// The id that the server had before; zero when it never had an id.
        server: u32,
        /// The cluster that the server's data belongs to; zero when the server has no data.
        cluster: u64,
        /// Number of replicas of the server's log that other servers keep; the server then keeps
        /// replicas of their logs. Zero: the server's log is on its own disk.
        copies: u8,
        /// The server's locator for clients.
        locator: &'a str,
        /// The server's rack ([`is_rack`](crate::is_rack)); empty when none was given.
        rack: &'a str,
    },
    /// Server to coordinator: wait for a map newer than version `known`. Answered when there is
    /// one, or after a while. `number`: the version of the map. Body of the answer: an
    /// [`Assignment`]. A coordinator whose metadata belong to another cluster, or are older than
    /// what the server has seen, answers [`Status::WrongCluster`] with the reason.
    Assignments {
        /// Id of the server.
        server: u32,
        /// Version of the map that the server has applied.
        known: u64,
        /// What the server has seen of its cluster.
        seen: &'a ClusterSeen,
    },
    /// Server to coordinator: send a copy of the catalog, which the server keeps so that lost
    /// metadata can be rebuilt; also from an admin, for a backup, with `server` zero. `number`: the
    /// version of the catalog. A coordinator of other or
    /// older metadata answers as to [`Assignments`](Self::Assignments).
    CopyCatalog {
        /// Id of the server.
        server: u32,
        /// What the server has seen of its cluster.
        seen: &'a ClusterSeen,
    },
    /// Server to coordinator: record that open heads of the server's log below this segment are
    /// void: a recovery must ignore them. Answered when the record is durable.
    Void {
        /// Id of the server.
        server: u32,
        /// The lowest segment that counts even if it is an open head.
        segment: u64,
    },
    /// Server to coordinator: report that the server has recovered its part of a failed server,
    /// durably, or cannot do so for now. Answered when the report is recorded and clients may use
    /// the part. `Refused` when the part is not, or is no longer, assigned to the server.
    Recovered {
        /// Id of the server.
        server: u32,
        /// The part of the failed server.
        part: &'a RecoveredPart,
        /// Why the part cannot be recovered; empty when it is recovered.
        failure: &'a str,
        /// Whether the reason is that the part does not fit into the server's memory or disk.
        no_room: bool,
    },
    /// To a coordinator: move a tablet, or a part of one, to another server. Answered when the
    /// coordinator has recorded the order to move; the move is done when the table's record shows
    /// it.
    MoveTablet {
        /// Table id.
        table: u32,
        /// Id of the server to move it to.
        to: u32,
        /// The positions to move.
        range: &'a RangeBytes,
    },
    /// To a coordinator: move all tablets of a server to others and assign no more tablets to it;
    /// or, with `drain` false, assign tablets to it again.
    Drain {
        /// Id of the server.
        server: u32,
        /// True to drain the server, false to undo that.
        drain: bool,
    },
    /// Server to master: send more of the tablet that moves to the requesting server. Body of the
    /// answer: the lowest version that new objects may have, then entries. `number`: the cursor for
    /// the next request, or how many changes are left; `more` is set while any are left.
    Collect {
        /// Id of the [order](MoveOrder) to move the tablet.
        order: u64,
        /// The stage of the move.
        stage: MoveStage,
        /// Where to continue.
        from: &'a MoveCursor,
    },
    /// Server to coordinator: report the sizes and loads of the server's tablets, at most
    /// [`MAX_LOADS`] of them.
    Loads {
        /// Id of the server.
        server: u32,
        /// Bytes of objects that the server's log has room for.
        capacity: u64,
        /// The load of each tablet.
        loads: &'a [Load],
    },
    /// To a backup: see [`BackupRequest`].
    Backup(BackupRequest<'a>),
}

/// A part of a failed server that another server has recovered: see [`Request::Recovered`].
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct RecoveredPart {
    /// Id of the recovery order.
    pub order: U64,
    /// Segment of the recovering server's log at which the part begins: only entries in this
    /// segment and later ones count.
    pub since: U64,
}

/// What a server has seen of its cluster. A coordinator whose metadata belong to another cluster,
/// or (if it is the only coordinator) are older, answers such a server with
/// [`Status::WrongCluster`].
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
pub struct ClusterSeen {
    /// The cluster's id; zero if the server belongs to none yet.
    pub cluster: U64,
    /// The highest version of the map that the server has received, or that its disk recorded
    /// before its start.
    pub version: U64,
}

/// The largest number of tablets whose load a server reports in one request.
pub const MAX_LOADS: usize = 1024;

/// The load of a tablet on its server: see [`Request::Loads`].
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Load {
    /// Table id.
    pub table: U32,
    /// Requests per second for the tablet, smoothed over several reports.
    pub requests: U32,
    /// How many of these requests are for the upper half of the tablet's positions.
    pub second_half: U32,
    /// Estimate of the bytes of the tablet's objects in the log, keys and headers included: the
    /// server's bytes of the table, divided in proportion to the ranges of its tablets there.
    pub bytes: U64,
    /// The tablet's positions.
    pub range: RangeBytes,
}

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Malformed {
    /// Fewer bytes than the request needs, or a field of another length than it must have.
    #[error("request of {0} bytes is cut short")]
    Short(usize),
    /// An unknown operation.
    #[error("unknown operation {0}")]
    Op(u8),
    /// An unknown condition, or flags that the operation does not take.
    #[error("unknown condition {0}")]
    Condition(u8),
    /// Bytes behind the request's end, or more bytes than a write to a replica may have.
    #[error("{0} bytes too many after the request")]
    Trailing(usize),
    /// A value over the limit.
    #[error("value of {0} bytes is over the limit of 1 MiB")]
    ValueTooLarge(usize),
    /// A name or locator that is too long, empty, or not UTF-8, or the reason for a failed recovery
    /// that is too long or not UTF-8.
    #[error("a name must be 1 to {MAX_TABLE_NAME} bytes of UTF-8")]
    Name,
    /// A name that is not valid for a rack.
    #[error("a rack is named by 1 to {max} of letters, digits, _ and -", max = crate::MAX_RACK)]
    Rack,
    /// A server id over the limit.
    #[error("server id {0} is over the limit of {max}", max = crate::MAX_SERVER_ID)]
    Server(u32),
    /// A table id with the bit of a table of [completions](crate::once::COMPLETIONS), of
    /// [prepared entries](crate::transaction::PREPARED) or of [elements](ELEMENTS).
    #[error("table id {0} is over the limit of {max}", max = ELEMENTS - 1)]
    Table(u32),
    /// A plan of an operation of a transaction that is not valid.
    #[error("the plan of a transaction's operation is invalid, or over a limit")]
    Plan,
    /// More tablets than a table may have.
    #[error("{0} tablets are over the limit of {max}", max = MAX_TABLETS)]
    Tablets(u32),
    /// A range of positions that ends before it begins, or a list of loads that is too long or not
    /// whole.
    #[error("a range of positions that ends before it starts")]
    Range,
    /// Options of a new table that this program does not know.
    #[error("a table with options {0:#x}; this program knows only 0x1, ordered")]
    Options(u64),
    /// A new index whose name or definition is not valid.
    #[error("an index whose name or definition is invalid")]
    Index,
    /// A scan of a range of keys that is not valid.
    #[error("a scan of a range of keys whose keys or limit are invalid")]
    Query,
    /// An object to restore of an unknown type, with a version over its limit, or a counter that
    /// does not have 8 bytes.
    #[error("an object to restore whose type, version or length is invalid")]
    Object,
    /// An invalid step of a copy of a log.
    #[error("an invalid step of a copy of a log")]
    Copy,
    /// What a client has of a feed is not a [`WatchCursor`].
    #[error("the place from which to watch is malformed")]
    Watch,
    /// An unknown stage of a move.
    #[error("unknown stage {0} of a move")]
    Stage(u8),
    /// A selection of tablets that is invalid or too long.
    #[error("an invalid selection of tablets")]
    Selection,
    /// A batch of no operations, or of more than [`MAX_BATCH`].
    #[error("a batch of {0} operations; it must have 1 to {MAX_BATCH}")]
    Batch(usize),
    /// An operation's id in a request that takes none, or the id of
    /// [no client](crate::expiry::TIME_CLIENT).
    #[error("operation {0} takes no id, or not that of client {TIME_CLIENT}")]
    Id(u8),
    /// A time to live of zero, over the limit, or in a request that takes none.
    #[error("the time to live is invalid, or the operation takes none")]
    Ttl,
    /// An offset outside a segment, or in a request that takes no offset.
    #[error("offset {0} is not in a segment, or does not belong there")]
    Offset(u32),
}

impl<'a> Request<'a> {
    /// Returns the table whose master the request is for; `None` for a request to a server as a
    /// whole or to a coordinator.
    #[must_use]
    #[inline]
    pub fn table(&self) -> Option<u32> {
        match *self {
            Self::Read { table, .. }
            | Self::Write { table, .. }
            | Self::SetTtl { table, .. }
            | Self::Remove { table, .. }
            | Self::IncrementI64 { table, .. }
            | Self::IncrementF64 { table, .. }
            | Self::Restore { table, .. }
            | Self::Prepare { table, .. }
            | Self::Decide { table, .. }
            | Self::Scan { table, .. }
            | Self::ScanRange { table, .. }
            | Self::Watch { table, .. }
            | Self::TableStats { table }
            | Self::Echo { table, .. } => Some(table),
            _ => None,
        }
    }

    /// Returns the table and key of the object that the request is for; `None` if it is not for a
    /// single object.
    #[must_use]
    #[inline]
    pub fn object(&self) -> Option<(u32, &'a [u8])> {
        match *self {
            Self::Read { table, key }
            | Self::Write { table, key, .. }
            | Self::SetTtl { table, key, .. }
            | Self::Remove { table, key, .. }
            | Self::IncrementI64 { table, key, .. }
            | Self::IncrementF64 { table, key, .. }
            | Self::Restore { table, key, .. }
            | Self::Prepare { table, key, .. } => Some((table, key)),
            _ => None,
        }
    }

    /// Returns the position that decides which tablet, and so which server, the request is for.
    /// `seed` is the seed of keys' positions. A request for a whole table has position zero.
    #[must_use]
    #[inline]
    pub fn position(&self, seed: u64) -> u64 {
        match (self, self.object()) {
            (Self::Restore { key, value_type: None, .. }, _) => elements::position(key),
            (_, Some((table, key))) => tablet::position(seed, table, key),
            (
                Self::Decide { position, .. }
                | Self::ScanRange { position, .. }
                | Self::Watch { position, .. },
                _,
            ) => *position,
            (Self::Scan { after: Some(after), .. }, _) => after.saturating_add(1),
            _ => 0,
        }
    }

    /// Returns whether the request may give an object a time to live.
    #[must_use]
    #[inline]
    pub fn has_ttl(&self) -> bool {
        match self {
            Self::Write { ttl, .. } | Self::SetTtl { ttl, .. } | Self::Restore { ttl, .. } => {
                ttl.is_some()
            }
            Self::Prepare { .. } | Self::Decide { .. } => true,
            _ => false,
        }
    }

    /// Returns the bytes of the request's time to live, which follow its header and id.
    #[must_use]
    #[inline]
    pub fn ttl_bytes(&self) -> Option<[u8; TTL_BYTES]> {
        match self {
            Self::Write { ttl, .. } | Self::SetTtl { ttl, .. } | Self::Restore { ttl, .. } => {
                ttl.map(Ttl::bytes)
            }
            _ => None,
        }
    }

    /// Returns whether a batch may have the request: it concerns a single object.
    #[must_use]
    #[inline]
    pub fn may_be_in_batch(&self) -> bool {
        matches!(self, Self::Decide { .. }) || self.object().is_some()
    }

    /// Returns whether the request needs the right to change the table.
    #[must_use]
    #[inline]
    pub fn needs_write_right(&self) -> bool {
        match self {
            Self::Prepare { plan, .. } => plan.action() != TransactionAction::Check,
            _ => self.changes_object(),
        }
    }

    /// Returns whether the request may change or lock an object.
    #[must_use]
    #[inline]
    pub fn changes_object(&self) -> bool {
        self.takes_id() || matches!(self, Self::Restore { .. })
    }

    /// Returns whether the request may have an [`OperationId`](crate::once::OperationId), because
    /// it must take effect once only.
    #[must_use]
    #[inline]
    pub fn takes_id(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::SetTtl { .. }
                | Self::Remove { .. }
                | Self::IncrementI64 { .. }
                | Self::IncrementF64 { .. }
                | Self::Prepare { .. }
        )
    }

    /// Returns whether executing the request twice has the same effect as once, so that it may be
    /// sent again when its answer is lost.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        !self.takes_id() && !matches!(self, Self::DropTable { .. } | Self::Batch { .. })
    }
}
