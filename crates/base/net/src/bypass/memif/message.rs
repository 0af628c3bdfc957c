//! The messages that the two ends of a memory interface exchange over their socket.
//!
//! Every message has 128 bytes: its type, then its fields without gaps, then zeros. Numbers are in
//! the machine's byte order, because both ends run on the same machine. The layout is version 2.0
//! of the memif protocol, which VPP (`memif.h`) and DPDK use too.

use thiserror::Error;
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, native_endian as ne,
};

/// Length of a message, in bytes.
pub const MESSAGE_BYTES: usize = 128;

/// The version of the protocol: major in the upper byte, minor in the lower.
pub const VERSION: u16 = 0x0200;

/// Length of a name, in bytes.
const NAME: usize = 32;

/// Length of a disconnect's reason, in bytes, with the zero byte that ends it.
const REASON: usize = 96;

/// Length of a secret, in bytes.
pub const SECRET: usize = 24;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// The mode of interfaces that carry Ethernet frames.
const ETHERNET: u8 = 0;

/// Flag of a ring whose frames travel from the client to the server ("slave to master").
const TO_SERVER: u16 = 1;

/// A message of the handshake, or the disconnect that ends a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// Confirms the previous message.
    Ack,
    /// The server's first message, with its limits.
    Hello(Hello),
    /// The client's first message, with its request.
    Init(Init),
    /// Adds a region of the client's memory. Its descriptor is attached.
    AddRegion {
        /// The number of the region.
        index: u16,
        /// The region's length in bytes.
        bytes: u64,
    },
    /// Adds a ring in a region. The eventfd that wakes the ring's reader is attached.
    AddRing(AddRing),
    /// The client has sent everything.
    Connect,
    /// The server accepts: from now on frames may be sent.
    Connected,
    /// Ends the connection, with the reason.
    Disconnect(String),
}

/// The protocol versions, regions and rings that a server supports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Oldest and newest protocol version that the server speaks.
    pub versions: [u16; 2],
    /// The highest number of a region that the server accepts.
    pub max_region: u16,
    /// The highest numbers of rings that the server accepts: to the client, and to the server.
    pub max_rings: [u16; 2],
    /// The largest number of slots in a ring, as its base-2 logarithm.
    pub max_log2_slots: u8,
}

/// A client's request to connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Init {
    /// The version of the protocol that the client uses.
    pub version: u16,
    /// Number of the interface among those that share the socket.
    pub id: u32,
    /// Whether the interface carries Ethernet frames.
    pub ethernet: bool,
    /// The secret that the server demands.
    pub secret: [u8; SECRET],
}

/// Where a ring lies in shared memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AddRing {
    /// Whether frames travel from the client to the server.
    pub to_server: bool,
    /// The ring's number among the rings of its direction.
    pub index: u16,
    /// The number of the region in which the ring lies.
    pub region: u16,
    /// The ring's offset in the region, in bytes.
    pub offset: u32,
    /// The number of the ring's slots, as its base-2 logarithm.
    pub log2_slots: u8,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BadMessage {
    /// The message has an unknown type.
    #[error("a message of the unknown type {0}")]
    Type(u16),
    /// A ring has unknown flags.
    #[error("a ring with the unknown flags {0:#x}")]
    Flags(u16),
    /// A reason is not UTF-8.
    #[error("a reason that is not text")]
    Text,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    name: [u8; NAME],
    min_version: ne::U16,
    max_version: ne::U16,
    max_region: ne::U16,
    max_to_client: ne::U16,
    max_to_server: ne::U16,
    max_log2_slots: u8,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInit {
    version: ne::U16,
    id: ne::U32,
    mode: u8,
    secret: [u8; SECRET],
    name: [u8; NAME],
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRegion {
    index: ne::U16,
    bytes: ne::U64,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRing {
    flags: ne::U16,
    index: ne::U16,
    region: ne::U16,
    offset: ne::U32,
    log2_slots: u8,
    private_header: ne::U16,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDisconnect {
    code: ne::U32,
    reason: [u8; REASON],
}

impl Message {
    /// Parses a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the type is unknown, a ring has unknown flags, or the reason of a
    /// disconnect is not UTF-8.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, BadMessage> {
        let (kind, body) = bytes.split_at(2);
        Ok(match u16::from_ne_bytes([kind[0], kind[1]]) {
            ACK => Self::Ack,
            HELLO => {
                let raw: RawHello = front(body);
                Self::Hello(Hello {
                    versions: [raw.min_version.get(), raw.max_version.get()],
                    max_region: raw.max_region.get(),
                    max_rings: [raw.max_to_client.get(), raw.max_to_server.get()],
                    max_log2_slots: raw.max_log2_slots,
                })
            }
            INIT => {
                let raw: RawInit = front(body);
                let (version, id, secret) = (raw.version.get(), raw.id.get(), raw.secret);
                Self::Init(Init { version, id, ethernet: raw.mode == ETHERNET, secret })
            }
            ADD_REGION => {
                let raw: RawRegion = front(body);
                Self::AddRegion { index: raw.index.get(), bytes: raw.bytes.get() }
            }
            ADD_RING => {
                let raw: RawRing = front(body);
                if raw.flags.get() & !TO_SERVER != 0 {
                    return Err(BadMessage::Flags(raw.flags.get()));
                }
                Self::AddRing(AddRing {
                    to_server: raw.flags.get() == TO_SERVER,
                    index: raw.index.get(),
                    region: raw.region.get(),
                    offset: raw.offset.get(),
                    log2_slots: raw.log2_slots,
                })
            }
            CONNECT => Self::Connect,
            CONNECTED => Self::Connected,
            DISCONNECT => {
                let raw: RawDisconnect = front(body);
                // A zero byte ends the text. The last byte counts as a zero byte.
                let text =
                    raw.reason[..REASON - 1].split(|&byte| byte == 0).next().unwrap_or_default();
                Self::Disconnect(
                    std::str::from_utf8(text).map_err(|_| BadMessage::Text)?.to_owned(),
                )
            }
            unknown => return Err(BadMessage::Type(unknown)),
        })
    }

    /// Encodes the message. A reason that is too long is cut.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut put = |kind: u16, body: &[u8]| {
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[2..][..body.len()].copy_from_slice(body);
        };
        match self {
            Self::Ack => put(ACK, &[]),
            Self::Hello(hello) => {
                let raw = RawHello {
                    name: name(),
                    min_version: hello.versions[0].into(),
                    max_version: hello.versions[1].into(),
                    max_region: hello.max_region.into(),
                    max_to_client: hello.max_rings[0].into(),
                    max_to_server: hello.max_rings[1].into(),
                    max_log2_slots: hello.max_log2_slots,
                };
                put(HELLO, raw.as_bytes());
            }
            Self::Init(init) => {
                let mode = if init.ethernet { ETHERNET } else { ETHERNET + 1 };
                let (version, id) = (init.version.into(), init.id.into());
                put(
                    INIT,
                    RawInit { version, id, mode, secret: init.secret, name: name() }.as_bytes(),
                );
            }
            &Self::AddRegion { index, bytes } => {
                put(ADD_REGION, RawRegion { index: index.into(), bytes: bytes.into() }.as_bytes());
            }
            Self::AddRing(ring) => {
                let raw = RawRing {
                    flags: if ring.to_server { TO_SERVER } else { 0 }.into(),
                    index: ring.index.into(),
                    region: ring.region.into(),
                    offset: ring.offset.into(),
                    log2_slots: ring.log2_slots,
                    private_header: ne::U16::ZERO,
                };
                put(ADD_RING, raw.as_bytes());
            }
            Self::Connect => put(CONNECT, &name()),
            Self::Connected => put(CONNECTED, &name()),
            Self::Disconnect(reason) => {
                let mut raw = RawDisconnect::new_zeroed();
                let end = reason.floor_char_boundary(REASON - 1);
                raw.reason[..end].copy_from_slice(&reason.as_bytes()[..end]);
                put(DISCONNECT, raw.as_bytes());
            }
        }
        bytes
    }
}

/// Returns the name that we send to the peer.
fn name() -> [u8; NAME] {
    let mut name = [0; NAME];
    name[..5].copy_from_slice(b"sprat");
    name
}

fn front<T: FromBytes>(body: &[u8]) -> T {
    T::read_from_prefix(body).expect("messages have room for each kind").0
}

const _: () = {
    assert!(size_of::<RawHello>() == 43);
    assert!(size_of::<RawInit>() == 63);
    assert!(size_of::<RawRegion>() == 10);
    assert!(size_of::<RawRing>() == 13);
    assert!(size_of::<RawDisconnect>() == 100);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let hello = any::<([u16; 2], u16, [u16; 2], u8)>().prop_map(
            |(versions, max_region, max_rings, max_log2_slots)| {
                Message::Hello(Hello { versions, max_region, max_rings, max_log2_slots })
            },
        );
        let init =
            any::<(u16, u32, bool, [u8; SECRET])>().prop_map(|(version, id, ethernet, secret)| {
                Message::Init(Init { version, id, ethernet, secret })
            });
        let region =
            any::<(u16, u64)>().prop_map(|(index, bytes)| Message::AddRegion { index, bytes });
        let ring = any::<(bool, u16, u16, u32, u8)>().prop_map(
            |(to_server, index, region, offset, log2_slots)| {
                Message::AddRing(AddRing { to_server, index, region, offset, log2_slots })
            },
        );
        let end = "[a-zA-Z0-9 ]{0,95}".prop_map(Message::Disconnect);
        let bare = prop::sample::select(vec![Message::Ack, Message::Connect, Message::Connected]);
        prop_oneof![hello, init, region, ring, end, bare]
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in messages()) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }

        #[test]
        fn long_reasons_are_cut_between_characters(reason in "\\PC{0,200}") {
            let bytes = Message::Disconnect(reason.clone()).to_bytes();
            let Ok(Message::Disconnect(read)) = Message::parse(&bytes) else {
                panic!("a reason")
            };
            prop_assert!(reason.split('\0').next().expect("one").starts_with(&read));
        }
    }

    /// Found by fuzzing.
    #[test]
    fn a_reason_without_an_end_is_read_as_it_would_be_written() {
        let mut bytes = [b'x'; MESSAGE_BYTES];
        bytes[..2].copy_from_slice(&DISCONNECT.to_ne_bytes());
        let read = Message::parse(&bytes).expect("text");
        assert_eq!(read, Message::Disconnect("x".repeat(95)));
        assert_eq!(Message::parse(&read.to_bytes()), Ok(read));
    }

    #[test]
    fn the_layout_is_that_of_the_protocol() {
        let ring =
            AddRing { to_server: true, index: 2, region: 3, offset: 0x0405_0607, log2_slots: 8 };
        let bytes = Message::AddRing(ring).to_bytes();
        let mut expected = [5, 0, 1, 0, 2, 0, 3, 0, 7, 6, 5, 4, 8, 0, 0].to_vec();
        expected.resize(MESSAGE_BYTES, 0);
        #[cfg(target_endian = "little")]
        assert_eq!(bytes[..], expected);
        assert_eq!(Message::parse(&[9; MESSAGE_BYTES]), Err(BadMessage::Type(0x0909)));
    }
}
