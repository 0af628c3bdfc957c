//! Frames between ends that prove who they are: handshakes, and what is sealed.
//!
//! The first byte of such a frame is none that a [packet](crate::packet) begins with. What a
//! handshake's messages hold beside Noise's own bytes is told in [`Greeting`] and [`Reply`]; a
//! sealed frame holds packets, as an open one does.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of handshakes; both ends have the same, or no channel.
pub const CHANNEL_VERSION: u8 = 1;

/// First byte of a frame that begins a handshake.
pub const HELLO: u8 = 0xc1;

/// First byte of the answer to it.
pub const ANSWER: u8 = 0xc2;

/// First byte of the frame that ends a handshake.
pub const PROOF: u8 = 0xc3;

/// First byte of a sealed frame.
pub const SEALED: u8 = 0xc4;

/// Bytes of the header of each of them.
pub const LEAD_BYTES: usize = 16;

/// Bytes that prove a sealed frame genuine, at its end.
pub const TAG_BYTES: usize = 16;

/// By how much a frame grows when it is sealed.
pub const SEAL_BYTES: usize = LEAD_BYTES + TAG_BYTES;

/// Bytes of the frame that begins a handshake: no answer is longer, so nobody is sent more than he
/// sent.
pub const HELLO_BYTES: usize = 512;

/// The header of a handshake's frame.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Shake {
    /// [`HELLO`], [`ANSWER`] or [`PROOF`].
    pub kind: u8,
    /// [`CHANNEL_VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Number of the channel at the receiver; zero in a [`HELLO`].
    pub to: U32,
    /// Number of the channel at the sender.
    pub from: U32,
    /// Drawn at random by who begins, so that what is repeated finds its first answer.
    pub nonce: U32,
}

/// The header of a sealed frame. It is authenticated with what follows.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Lead {
    /// [`SEALED`].
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Number of the channel at the receiver.
    pub to: U32,
    /// Number of the frame among those that go this way: never the same twice.
    pub number: U64,
}

const _: () = assert!(size_of::<Shake>() == LEAD_BYTES && size_of::<Lead>() == LEAD_BYTES);

/// What a [`HELLO`] tells, sealed by the door key; zeroes follow.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Greeting {
    /// The channel that there was, as the receiver numbers it: if it is there still, it is
    /// answered in, and no other is made. [`NO_CHANNEL`] for none.
    pub old: U32,
    /// What names that channel at both ends.
    pub name: [u8; 8],
}

/// What an [`ANSWER`] tells before its sender's certificate.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct Reply {
    /// Number of the channel at its sender.
    pub channel: U32,
}

/// In place of a channel's number: none.
pub const NO_CHANNEL: u32 = u32::MAX;
