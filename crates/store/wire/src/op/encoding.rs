//! Encodes a request as three parts (header, key, value), and parses the bytes of a request. The
//! parser refuses unknown operations, surplus bytes, and fields that are invalid or over a limit.

use super::{
    BackupRequest, BatchItems, ClusterSeen, Condition, CopyStep, Load, MAX_LOADS,
    MAX_RESTORED_VERSION, Malformed, MoveCursor, MoveStage, REQUEST_BYTES, RangeBytes,
    RecoveredPart, Request, RequestHeader, TableOptions, WITH_ID, WITH_TTL, WatchCursor, WhenFull,
    backup,
};
use crate::elements::{CollectionId, sort_key};
use crate::expiry::{TIME_CLIENT, TTL_BYTES, Ttl};
use crate::index::parse_new_index;
use crate::once::{OPERATION_ID_BYTES, OperationId, OperationIdBytes};
use crate::order::RangeQuery;
use crate::tablet::{MAX_TABLETS, table_of};
use crate::transaction::{Decision, MAX_TRANSACTION_KEY, Plan};
use crate::value::{NUMBER_BYTES, ValueType};
use crate::{MAX_KEY, MAX_TABLE_NAME, MAX_VALUE};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

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
const BATCH: u8 = 11;
const PREPARE: u8 = 12;
const DECIDE: u8 = 13;
const SET_TTL: u8 = 14;
const SCAN_RANGE: u8 = 15;
const RESTORE: u8 = 16;

/// In place of the type of a value that is restored: it is that of an element of a collection.
const ELEMENT: u8 = 4;
const COPY_LOG: u8 = 17;
const WATCH: u8 = 18;
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
const CREATE_INDEX: u8 = 47;
const DROP_INDEX: u8 = 48;

impl RequestHeader {
    /// Returns the header of a batch, which its items follow.
    #[must_use]
    pub fn batch() -> Self {
        Self { op: BATCH, ..Self::new_zeroed() }
    }
}

/// Value of `condition` in a scan that goes on from a cursor.
const CONTINUE: u8 = 1;

impl<'a> Request<'a> {
    /// Returns the request's bytes in three parts: header, key, value. The operation's id, and the
    /// [time to live](Self::ttl_bytes), if the request has these, go between header and key.
    ///
    /// # Panics
    /// When the key or a name is over [`MAX_KEY`], or an id, offset or edition in a request to a
    /// backup is over its limit. Callers check what comes from outside.
    #[must_use]
    #[inline]
    pub fn parts(&self) -> (RequestHeader, &'a [u8], &'a [u8]) {
        const NOTHING: &[u8] = &[];
        let (op, condition, table, argument, key, value) = match *self {
            Self::Read { table, key } => (READ, 0, table, 0, key, NOTHING),
            Self::Write { table, key, value, condition, ttl } => {
                let (code, argument) = condition.encode();
                (WRITE, code | ttl_flag(ttl), table, argument, key, value)
            }
            Self::SetTtl { table, key, condition, ttl } => {
                let (code, argument) = condition.encode();
                (SET_TTL, code | ttl_flag(ttl), table, argument, key, NOTHING)
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
            Self::ScanRange { table, position, query } => {
                (SCAN_RANGE, 0, table, position, NOTHING, query.bytes())
            }
            Self::Prepare { table, key, condition, plan } => {
                let (code, argument) = condition.encode();
                (PREPARE, code, table, argument, key, plan.bytes())
            }
            Self::Decide { table, position, id, decision } => {
                (DECIDE, decision as u8, table, position, &id[..], NOTHING)
            }
            Self::Batch { items } => (BATCH, 0, 0, 0, NOTHING, items.bytes()),
            Self::Restore { table, key, value, value_type, version, ttl } => {
                let code = value_type.map_or(ELEMENT, |value_type| value_type as u8);
                (RESTORE, code | ttl_flag(ttl), table, version, key, value)
            }
            Self::CopyLog { step } => {
                let (code, number, bytes) = step.parts();
                (COPY_LOG, code, 0, number, NOTHING, bytes)
            }
            Self::Watch { table, position, from } => {
                (WATCH, 0, table, position, NOTHING, from.as_bytes())
            }
            Self::TableStats { table } => (TABLE_STATS, 0, table, 0, NOTHING, NOTHING),
            Self::Echo { table, value } => (ECHO, 0, table, 0, NOTHING, value),
            Self::ServerStats => (SERVER_STATS, 0, 0, 0, NOTHING, NOTHING),
            Self::CreateTable { name, options: TableOptions { tablets, when_full, ordered } } => {
                (CREATE_TABLE, when_full as u8, tablets, ordered.into(), name.as_bytes(), NOTHING)
            }
            Self::DropTable { name } => (DROP_TABLE, 0, 0, 0, name.as_bytes(), NOTHING),
            Self::FindTable { name } => (FIND_TABLE, 0, 0, 0, name.as_bytes(), NOTHING),
            Self::CreateIndex { table, index } => (CREATE_INDEX, 0, 0, 0, table.as_bytes(), index),
            Self::DropIndex { table, index } => {
                (DROP_INDEX, 0, 0, 0, table.as_bytes(), index.as_bytes())
            }
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
            Self::Recovered { server, part, failure, no_room } => {
                (RECOVERED, no_room.into(), server, 0, part.as_bytes(), failure.as_bytes())
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

    /// Returns the request's bytes, with the operation's id if there is one.
    ///
    /// # Panics
    /// As [`parts`](Self::parts).
    #[must_use]
    pub fn to_bytes(&self, id: Option<&OperationId>) -> Vec<u8> {
        let (header, key, value) = self.parts();
        let header = if id.is_some() { header.with_id() } else { header };
        let (id, ttl) = (id.map(OperationId::bytes), self.ttl_bytes());
        let id = id.as_ref().map_or(&[][..], |id| &id[..]);
        let ttl = ttl.as_ref().map_or(&[][..], |ttl| &ttl[..]);
        [header.as_bytes(), id, ttl, key, value].concat()
    }

    /// Parses a request without an operation's id.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are too few or too many, the operation is unknown, a field is
    /// invalid or over its limit, or the request has an operation's id.
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
    /// [`Malformed`] when the bytes are too few or too many, the operation is unknown, a field is
    /// invalid or over its limit, or an operation that changes no object has an id.
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
        let id = OperationId::of(id);
        if !request.takes_id() || id.client == TIME_CLIENT {
            return Err(Malformed::Id(header.op));
        }
        Ok((request, Some(id)))
    }

    #[inline]
    fn parse_op(header: &RequestHeader, mut rest: &'a [u8]) -> Result<Self, Malformed> {
        let (mut condition, mut ttl) = (header.condition, None);
        if matches!(header.op, WRITE | SET_TTL | RESTORE) && condition & WITH_TTL != 0 {
            let (millis, behind) = rest
                .split_first_chunk::<TTL_BYTES>()
                .ok_or(Malformed::Short(REQUEST_BYTES + rest.len()))?;
            ttl = Some(Ttl::of_bytes(millis).map_err(|_| Malformed::Ttl)?);
            (condition, rest) = (condition & !WITH_TTL, behind);
        }
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
        if matches!(header.op, READ..=TABLE_STATS | ECHO | PREPARE..=RESTORE | WATCH | LOCATE_TABLE)
            && table_of(table) != table
        {
            return Err(Malformed::Table(table));
        }
        let takes_value = matches!(
            header.op,
            WRITE
                | ECHO
                | RECOVERED
                | ENLIST
                | LOADS
                | BATCH
                | PREPARE
                | SCAN_RANGE
                | RESTORE
                | COPY_LOG
                | WATCH
                | CREATE_INDEX
                | DROP_INDEX
        );
        if !takes_value && !value.is_empty() {
            return Err(Malformed::Trailing(value.len()));
        }
        let name = || match str::from_utf8(key) {
            Ok(name) if (1..=MAX_TABLE_NAME).contains(&name.len()) => Ok(name),
            _ => Err(Malformed::Name),
        };
        let seen = || {
            ClusterSeen::ref_from_bytes(key)
                .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))
        };
        let keyless = |request| {
            if key.is_empty() { Ok(request) } else { Err(Malformed::Trailing(key.len())) }
        };
        match header.op {
            READ => Ok(Self::Read { table, key }),
            WRITE | ECHO | RESTORE if value.len() > MAX_VALUE => {
                Err(Malformed::ValueTooLarge(value.len()))
            }
            WRITE => Ok(Self::Write {
                table,
                key,
                value,
                condition: Condition::parse(condition, argument)?,
                ttl,
            }),
            SET_TTL => Ok(Self::SetTtl {
                table,
                key,
                condition: Condition::parse(condition, argument)?,
                ttl,
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
            SCAN_RANGE => {
                let query = RangeQuery::parse(value).ok_or(Malformed::Query)?;
                keyless(Self::ScanRange { table, position: argument, query })
            }
            PREPARE => Ok(Self::Prepare {
                table,
                key,
                condition: Condition::parse(header.condition, argument)?,
                plan: Plan::parse(value)
                    .filter(|_| key.len() <= MAX_TRANSACTION_KEY)
                    .ok_or(Malformed::Plan)?,
            }),
            DECIDE => {
                let id = <&[u8; OPERATION_ID_BYTES]>::try_from(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let decision =
                    Decision::of(header.condition).ok_or(Malformed::Condition(header.condition))?;
                Ok(Self::Decide { table, position: argument, id, decision })
            }
            RESTORE => {
                let value_type = match condition {
                    ELEMENT => None,
                    code => Some(ValueType::of_code(code.into())),
                };
                let is_valid = match value_type {
                    None => ttl.is_none() && sort_key(key, value).is_some(),
                    Some(ValueType::Bytes) => condition == 0,
                    Some(ValueType::Integer | ValueType::Double) => value.len() == NUMBER_BYTES,
                    Some(ValueType::Collection) => {
                        value.len() == NUMBER_BYTES && CollectionId::of(value).is_some()
                    }
                };
                if !is_valid || argument > MAX_RESTORED_VERSION {
                    return Err(Malformed::Object);
                }
                Ok(Self::Restore { table, key, value, value_type, version: argument, ttl })
            }
            COPY_LOG => {
                let step = CopyStep::of(header.condition, argument, value);
                keyless(Self::CopyLog { step: step.ok_or(Malformed::Copy)? })
            }
            WATCH => {
                let from = WatchCursor::ref_from_bytes(value).map_err(|_| Malformed::Watch)?;
                keyless(Self::Watch { table, position: argument, from })
            }
            BATCH => keyless(Self::Batch { items: BatchItems::parse(value)? }),
            TABLE_STATS => keyless(Self::TableStats { table }),
            SERVER_STATS => keyless(Self::ServerStats),
            ECHO => keyless(Self::Echo { table, value }),
            CREATE_TABLE if table as usize > MAX_TABLETS => Err(Malformed::Tablets(table)),
            CREATE_TABLE => {
                let when_full =
                    WhenFull::of(header.condition).ok_or(Malformed::Condition(header.condition))?;
                let ordered = match argument {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed::Options(argument)),
                };
                let options = TableOptions { tablets: table, when_full, ordered };
                Ok(Self::CreateTable { name: name()?, options })
            }
            DROP_TABLE => Ok(Self::DropTable { name: name()? }),
            FIND_TABLE => Ok(Self::FindTable { name: name()? }),
            CREATE_INDEX => {
                parse_new_index(value).ok_or(Malformed::Index)?;
                Ok(Self::CreateIndex { table: name()?, index: value })
            }
            DROP_INDEX => match str::from_utf8(value) {
                Ok(index) => Ok(Self::DropIndex { table: name()?, index }),
                Err(_) => Err(Malformed::Index),
            },
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
                let part = RecoveredPart::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let failure =
                    str::from_utf8(value).ok().filter(|failure| failure.len() <= MAX_TABLE_NAME);
                Ok(Self::Recovered {
                    server: table,
                    part,
                    failure: failure.ok_or(Malformed::Name)?,
                    no_room: header.condition != 0,
                })
            }
            MOVE_TABLET => {
                let range = RangeBytes::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let to = u32::try_from(argument).map_err(|_| Malformed::Server(u32::MAX))?;
                range.range().ok_or(Malformed::Range)?;
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
                    loads: loads.ok_or(Malformed::Range)?,
                })
            }
            DRAIN if header.condition > 1 => Err(Malformed::Condition(header.condition)),
            DRAIN => keyless(Self::Drain { server: table, drain: header.condition == 1 }),
            COLLECT => {
                let from = MoveCursor::ref_from_bytes(key)
                    .map_err(|_| Malformed::Short(REQUEST_BYTES + key.len()))?;
                let stage =
                    MoveStage::of(header.condition).ok_or(Malformed::Stage(header.condition))?;
                Ok(Self::Collect { order: argument, stage, from })
            }
            other => Err(Malformed::Op(other)),
        }
    }
}

/// Returns the bit by which a request says that it has a time to live.
fn ttl_flag(ttl: Option<Ttl>) -> u8 {
    if ttl.is_some() { WITH_TTL } else { 0 }
}
