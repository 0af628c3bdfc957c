//! The header of a packet between two RPC endpoints.
//!
//! A frame (one datagram, or one length-prefixed record of a stream) carries one or more packets,
//! each a [`Header`] followed by `payload` bytes. This module defines their layout; the crate `rpc`
//! documents what the fields mean to a session.

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the packet layout, agreed in the `Connect` packet.
pub const PROTOCOL_VERSION: u16 = 1;

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 24;

/// The largest number of slots that a session can have: [`Header::slot`] has six bits for their
/// numbers.
pub const MAX_SLOTS: usize = 64;

/// Flag in [`Header::slot`]: the session's server sent the packet. `session` is then an index at
/// the client.
pub const FROM_SERVER: u8 = 0x80;

/// Flag in [`Header::slot`] of a [`Kind::Response`]: the server holds memory for the response,
/// which a [`Kind::Ack`] releases.
pub const HELD: u8 = 0x40;

/// The bits of the slot's number in [`Header::slot`].
pub const SLOT_MASK: u8 = 0x3f;

const _: () = assert!(MAX_SLOTS == SLOT_MASK as usize + 1);
const _: () = assert!(FROM_SERVER | HELD | SLOT_MASK == 0xff);

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// Client to server: open a session. Payload: [`Connect`].
    Connect = 1,
    /// Server to client: the session is open. Payload: [`Accept`].
    Accept = 2,
    /// Server to client: refused. `offset` is a [`Refusal`]. `session` and `token` are those of the
    /// refused packet; if that was a `Connect`, they are the client's index and nonce.
    Refuse = 3,
    /// Client to server: a fragment of a request.
    Request = 4,
    /// Server to client: a fragment of a response.
    Response = 5,
    /// Receiver of a long message to its sender: the bytes before `offset` may be sent.
    Grant = 6,
    /// Receiver of a long message to its sender: send `total` bytes from `offset` again.
    Resend = 7,
    /// In answer to a packet: keep waiting. The request is incomplete, is being executed, or must
    /// wait for the end of the slot's previous request; or the missing bytes will come.
    Busy = 8,
    /// Server to client: the request was not executed; send it again after `offset` microseconds.
    Retry = 9,
    /// Client to server: does the session still exist?
    Ping = 10,
    /// Server to client: the session still exists, in answer to `Ping`.
    Pong = 11,
    /// From either end: the session is over.
    Close = 12,
    /// Client to server: the whole response has arrived, or the call has ended without it; the
    /// server need not hold the response.
    Ack = 13,
}

impl TryFrom<u8> for Kind {
    type Error = Malformed;

    fn try_from(byte: u8) -> Result<Self, Malformed> {
        Ok(match byte {
            1 => Self::Connect,
            2 => Self::Accept,
            3 => Self::Refuse,
            4 => Self::Request,
            5 => Self::Response,
            6 => Self::Grant,
            7 => Self::Resend,
            8 => Self::Busy,
            9 => Self::Retry,
            10 => Self::Ping,
            11 => Self::Pong,
            12 => Self::Close,
            13 => Self::Ack,
            _ => return Err(Malformed::Kind(byte)),
        })
    }
}

/// Why a server refused a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Refusal {
    /// The session does not exist: the server restarted, or forgot a silent client.
    UnknownSession = 0,
    /// The server speaks another [`PROTOCOL_VERSION`].
    Version = 1,
    /// The server has as many sessions as it allows.
    Full = 2,
    /// The server is shutting down.
    Draining = 3,
}

impl TryFrom<u32> for Refusal {
    type Error = Malformed;

    fn try_from(word: u32) -> Result<Self, Malformed> {
        Ok(match word {
            0 => Self::UnknownSession,
            1 => Self::Version,
            2 => Self::Full,
            3 => Self::Draining,
            _ => return Err(Malformed::Refusal(word)),
        })
    }
}

/// The fixed header of every packet.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The code of the packet's [`Kind`].
    pub kind: u8,
    /// Number of the request's slot ([`SLOT_MASK`]), and flags ([`FROM_SERVER`], [`HELD`]).
    pub slot: u8,
    /// Bytes of payload that follow this header.
    pub payload: U16,
    /// Index of the session at the receiver.
    pub session: U32,
    /// The session's token, drawn at random by its server. A stray packet has another token.
    pub token: U32,
    /// Number of the request in its slot. It begins at 1, grows by one with each request, and
    /// wraps.
    pub sequence: U32,
    /// Offset in the message at which the payload begins (or see [`Kind`]).
    pub offset: U32,
    /// Bytes in the whole message (or see [`Kind`]).
    pub total: U32,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// Returns the number of the slot, below [`MAX_SLOTS`].
    #[inline]
    #[must_use]
    pub fn slot_index(&self) -> usize {
        usize::from(self.slot & SLOT_MASK)
    }

    /// Returns whether the session's server sent the packet.
    #[inline]
    #[must_use]
    pub fn from_server(&self) -> bool {
        self.slot & FROM_SERVER != 0
    }

    /// Returns whether the server holds memory for this response, which an acknowledgement
    /// releases.
    #[inline]
    #[must_use]
    pub fn held(&self) -> bool {
        self.slot & HELD != 0
    }
}

/// Why bytes from the network are not a packet.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Malformed {
    /// Fewer bytes than a header.
    #[error("{0} bytes are too few for a packet header")]
    Short(usize),
    /// The header states more payload than there is.
    #[error("packet promises {promised} bytes of payload, {present} present")]
    Truncated {
        /// Bytes that the header states.
        promised: usize,
        /// Bytes present.
        present: usize,
    },
    /// An unknown kind.
    #[error("unknown packet kind {0}")]
    Kind(u8),
    /// An unknown reason for a refusal.
    #[error("unknown refusal {0}")]
    Refusal(u32),
}

/// One packet within a frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The purpose of the packet.
    pub kind: Kind,
    /// The header of the packet.
    pub header: &'a Header,
    /// The payload of the packet.
    pub payload: &'a [u8],
}

/// Splits the first packet off a frame; returns it and the rest of the frame.
///
/// # Errors
/// [`Malformed`] when the frame is shorter than a header, the kind is unknown, or the header states
/// more payload than there is. The rest of the frame is then lost too, as there is no way to find
/// the next packet.
#[inline]
pub fn split(frame: &[u8]) -> Result<(Packet<'_>, &[u8]), Malformed> {
    let (header, rest) =
        Header::ref_from_prefix(frame).map_err(|_| Malformed::Short(frame.len()))?;
    let kind = Kind::try_from(header.kind)?;
    let promised = usize::from(header.payload.get());
    if promised > rest.len() {
        return Err(Malformed::Truncated { promised, present: rest.len() });
    }
    let (payload, rest) = rest.split_at(promised);
    Ok((Packet { kind, header, payload }, rest))
}

/// Payload of [`Kind::Connect`]. Zeros may follow, so that the frame has the length that `mtu`
/// offers, up to 9000 bytes.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Connect {
    /// [`PROTOCOL_VERSION`] of the client.
    pub version: U16,
    /// Number of slots that the client requests.
    pub slots: U16,
    /// Index of the session at the client.
    pub session: U32,
    /// Drawn at random by the client. By it the server recognizes a repeated `Connect` and repeats
    /// its answer.
    pub nonce: U32,
    /// The largest frame that the client and its path can carry, in bytes.
    pub mtu: U32,
}

/// Payload of [`Kind::Accept`]. Zeros may follow, up to the length of the frame that it answers.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Accept {
    /// Nonce of the `Connect` that this answers.
    pub nonce: U32,
    /// Index of the session at the server.
    pub session: U32,
    /// The session's token.
    pub token: U32,
    /// Slots granted, at most as many as requested.
    pub slots: U16,
    /// Silence of the client, in seconds, after which the server forgets the session.
    pub ttl: U16,
    /// The largest frame that both ends can carry, in bytes.
    pub mtu: U32,
}
