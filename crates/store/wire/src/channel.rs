//! Frames of encrypted channels: handshakes and sealed frames.
//!
//! The first byte of such a frame differs from that of every [packet](crate::packet). Besides
//! Noise's own bytes, a handshake message contains a [`HelloPayload`] or an [`AnswerPayload`]. A
//! sealed frame contains packets, like a plain frame.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of handshakes. Two ends with different versions open no channel.
pub const CHANNEL_VERSION: u8 = 1;

/// First byte of a frame that begins a handshake.
pub const HELLO: u8 = 0xc1;

/// First byte of the answer to a [`HELLO`].
pub const ANSWER: u8 = 0xc2;

/// First byte of the frame that ends a handshake.
pub const PROOF: u8 = 0xc3;

/// First byte of a sealed frame.
pub const SEALED: u8 = 0xc4;

/// Bytes of the header of a handshake frame, and of a sealed frame.
pub const CHANNEL_HEADER_BYTES: usize = 16;

/// Bytes of the authentication tag at a sealed frame's end.
pub const TAG_BYTES: usize = 16;

/// Bytes that sealing adds to a frame.
pub const SEAL_BYTES: usize = CHANNEL_HEADER_BYTES + TAG_BYTES;

/// Bytes of the frame that begins a handshake. No answer is longer, so an attacker who forges the
/// sender's address cannot amplify traffic.
pub const HELLO_BYTES: usize = 512;

/// The header of a handshake's frame.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct HandshakeHeader {
    /// The kind of the message: [`HELLO`], [`ANSWER`] or [`PROOF`].
    pub kind: u8,
    /// The [`CHANNEL_VERSION`] of the sender.
    pub version: u8,
    /// Reserved: zero.
    pub reserved: [u8; 2],
    /// Number of the channel at the receiver; zero in a [`HELLO`].
    pub to: U32,
    /// Number of the channel at the sender.
    pub from: U32,
    /// Drawn at random by the initiator. The responder recognizes a repeated [`HELLO`] by this
    /// nonce, and repeats its answer.
    pub nonce: U32,
}

/// The header of a sealed frame. It is authenticated together with the frame's contents.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct SealedHeader {
    /// Always [`SEALED`].
    pub kind: u8,
    /// Reserved: zero.
    pub reserved: [u8; 3],
    /// Number of the channel at the receiver.
    pub to: U32,
    /// Number of the frame in this direction; never used twice.
    pub number: U64,
}

const _: () = assert!(
    size_of::<HandshakeHeader>() == CHANNEL_HEADER_BYTES
        && size_of::<SealedHeader>() == CHANNEL_HEADER_BYTES
);

/// The payload of a [`HELLO`], encrypted with the door key (a secret that all members share). Zeros
/// fill the rest of the frame.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct HelloPayload {
    /// The receiver's number of the channel that the sender already has with it; [`NO_CHANNEL`]
    /// when there is none. If this channel still exists, the receiver answers in it and opens no
    /// other.
    pub old: U32,
    /// The name of that channel, which both ends know.
    pub name: [u8; 8],
}

/// The payload of an [`ANSWER`]; its sender's certificate follows.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct AnswerPayload {
    /// Number of the channel at the sender of this answer.
    pub channel: U32,
}

/// Stands for a channel's number where there is no channel.
pub const NO_CHANNEL: u32 = u32::MAX;
