//! Responses.

use crate::expiry::Ttl;
use crate::value::ValueType;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a response's header.
pub const RESPONSE_BYTES: usize = 16;

/// The fixed header of every response.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct ResponseHeader {
    status: u8,
    more: u8,
    /// In the answer to a read, bits 24 to 39 of the milliseconds that the object has left.
    ttl_high: U16,
    /// In the answer to a read: the code of the value's type, and above [`TYPE_BITS`] the lower
    /// bits of the milliseconds that the object has left.
    count: U32,
    number: U64,
}

/// Bits of `count` that have the code of a value's type.
const TYPE_BITS: u32 = 8;

const _: () = assert!(size_of::<ResponseHeader>() == RESPONSE_BYTES);

/// The result of a request.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[repr(u8)]
pub enum Status {
    /// Done. `number`: the object's version, or what the request's documentation says.
    #[error("ok")]
    Ok = 0,
    /// The object does not exist.
    #[error("no such object")]
    NotFound = 1,
    /// The condition did not hold. `number`: the present version, 0 for no object.
    #[error("the condition does not hold")]
    Conflict = 2,
    /// This server does not serve that table, or that part of it.
    #[error("this server does not serve that table")]
    UnknownTable = 3,
    /// The increment failed. `number`: the code of the [reason](crate::value::IncrementError).
    #[error("the value cannot be incremented")]
    NotANumber = 4,
    /// Live data fills the memory given to the server, or the object is too long for its segments.
    #[error("the server's memory is full of live data")]
    MemoryFull = 5,
    /// The server can no longer make writes durable; body: why. Reads go on.
    #[error("the server cannot make writes durable and takes no more of them")]
    WritesStopped = 6,
    /// The request could not be parsed; body: why.
    #[error("the request is malformed")]
    Malformed = 7,
    /// The request is for another kind of server.
    #[error("this server does not take that request")]
    WrongRole = 8,
    /// A table of that name does not exist.
    #[error("no such table")]
    NoSuchTable = 9,
    /// There is no server that could serve a table.
    #[error("no server has enlisted yet")]
    NoServer = 10,
    /// A limit is reached, the coordinator's metadata cannot be changed, or the request cannot be
    /// granted; body: why.
    #[error("the coordinator refuses")]
    Refused = 11,
    /// The server's data belongs to another cluster, or the coordinator's metadata is older than
    /// what the server has seen; body: why.
    #[error("the data directory belongs to another cluster")]
    WrongCluster = 12,
    /// This master is being recovered: backups accept nothing from it any more.
    #[error("this server is being recovered by others")]
    Fenced = 13,
    /// This coordinator does not lead, and has not executed the request. `number`: the term of the
    /// leader; body: the leader's locator. Zero and empty when the leader is unknown.
    #[error("this coordinator does not lead")]
    NotLeading = 14,
    /// The requester lacks the rights. The answer does not show whether the table or object exists.
    #[error("this identity may not do that")]
    Denied = 15,
    /// Too few servers take replicas, so this server cannot acknowledge anything; body: how many
    /// servers are needed, and how many there are. `number`: zero when nothing was changed; one
    /// when the change is in the log and takes effect once enough servers take replicas.
    #[error("too few servers take replicas")]
    TooFewServers = 16,
    /// The server's disk is full, and nothing was changed; body: which file. Reads and removals
    /// still work; writes work again once there is room.
    #[error("the server's disk is full")]
    DiskFull = 17,
    /// Ask again; `number`: the microseconds after which the server expects to execute the
    /// operation. In the response to a batch, for an operation that the server has not executed.
    /// With `more`: the server is being recovered, and the server that takes over has perhaps
    /// executed the operation, or all operations of the batch.
    #[error("the server has not executed that operation, or is being recovered")]
    Busy = 18,
    /// The operation of a transaction is aborted, or cannot be prepared because another transaction
    /// locks the object.
    #[error("another transaction locks the object, or this one was aborted")]
    Aborted = 19,
    /// The table keeps no order of its keys.
    #[error("the table is not ordered")]
    NotOrdered = 20,
    /// The table has no such index.
    #[error("the table has no such index")]
    NoSuchIndex = 21,
}

impl TryFrom<u8> for Status {
    type Error = u8;

    fn try_from(byte: u8) -> Result<Self, u8> {
        Ok(match byte {
            0 => Self::Ok,
            1 => Self::NotFound,
            2 => Self::Conflict,
            3 => Self::UnknownTable,
            4 => Self::NotANumber,
            5 => Self::MemoryFull,
            6 => Self::WritesStopped,
            7 => Self::Malformed,
            8 => Self::WrongRole,
            9 => Self::NoSuchTable,
            10 => Self::NoServer,
            11 => Self::Refused,
            12 => Self::WrongCluster,
            13 => Self::Fenced,
            14 => Self::NotLeading,
            15 => Self::Denied,
            16 => Self::TooFewServers,
            17 => Self::DiskFull,
            18 => Self::Busy,
            19 => Self::Aborted,
            20 => Self::NotOrdered,
            21 => Self::NoSuchIndex,
            other => return Err(other),
        })
    }
}

/// A parsed response, borrowed from the bytes that contain it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answer<'a> {
    /// The result of the request.
    pub status: Status,
    /// Whether more follows: for a scan, objects behind the cursor.
    pub more: bool,
    /// A count, where the request's documentation says so; of a read, see
    /// [`value_type`](Self::value_type) and [`ttl`](Self::ttl).
    pub count: u32,
    /// The upper bits of [`ttl`](Self::ttl).
    pub ttl_high: u16,
    /// The object's version, or what the request's documentation says.
    pub number: u64,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Parses a response; `None` when the bytes are not one.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = ResponseHeader::ref_from_prefix(bytes).ok()?;
        let status = Status::try_from(header.status).ok()?;
        Some(Self {
            status,
            more: header.more != 0,
            count: header.count.get(),
            ttl_high: header.ttl_high.get(),
            number: header.number.get(),
            body,
        })
    }

    /// Returns the type of the value that was read.
    #[must_use]
    pub fn value_type(&self) -> ValueType {
        ValueType::of_code(self.count & ((1 << TYPE_BITS) - 1))
    }

    /// Returns after how long the object expires that was read; `None`: never. The server has
    /// counted from when it executed the read.
    #[must_use]
    pub fn ttl(&self) -> Option<Ttl> {
        let low = u64::from(self.count >> TYPE_BITS);
        Ttl::of_millis(u64::from(self.ttl_high) << (u32::BITS - TYPE_BITS) | low).ok()
    }
}

/// Encodes the header of a response.
#[must_use]
#[inline]
pub fn encode_answer(status: Status, more: bool, count: u32, number: u64) -> ResponseHeader {
    ResponseHeader {
        status: status as u8,
        more: u8::from(more),
        ttl_high: U16::new(0),
        count: U32::new(count),
        number: U64::new(number),
    }
}

/// Encodes the header of the answer to a read that found an object.
#[must_use]
#[inline]
pub fn encode_object(version: u64, value_type: ValueType, ttl: Option<Ttl>) -> ResponseHeader {
    let [a, b, c, d, e, ..] = ttl.map_or(0, Ttl::millis).to_le_bytes();
    let count = u32::from_le_bytes([value_type as u8, a, b, c]);
    ResponseHeader {
        ttl_high: U16::new(u16::from_le_bytes([d, e])),
        ..encode_answer(Status::Ok, false, count, version)
    }
}
