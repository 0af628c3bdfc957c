//! Frames: a virtio-net header and an Ethernet frame, parsed once when a port receives them.
//!
//! A port with segmentation offload delivers *super-packets*: up to 64 KB of one TCP or UDP flow
//! with one set of headers, which a wire would carry as many frames. [`Segments`] describes those
//! frames. Loss, queues and counters apply to them one by one.

mod checksum;
mod cut;
mod flow;
mod packet;
mod parse;
mod too_big;
mod unmade;
mod vnet;

pub(crate) use checksum::updated;
pub use flow::{Flow, ParseFlowError};
pub use packet::{Packet, Received};
pub(crate) use parse::is_tag;
pub use parse::{Malformed, parse};
pub use vnet::{VNET_BYTES, VnetHeader};

/// Bytes of an Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;

/// The length of the shortest Ethernet frame, in bytes and without its check sequence. Shorter
/// frames are padded to this length on a wire.
pub const MIN_FRAME: u32 = 60;

/// Bytes that Ethernet adds to a frame on a wire: check sequence 4, preamble and start 8, gap 12
/// (IEEE 802.3).
pub const WIRE_OVERHEAD: u16 = 24;

/// Where the headers of a frame are. All offsets are in bytes from the Ethernet header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// The packet's flow.
    pub flow: Flow,
    /// VLAN number of the outermost tag; `None` if the frame has no tag.
    pub vlan: Option<u16>,
    /// The network layer.
    pub network: Network,
    /// Offset of the network header.
    pub network_at: u16,
    /// Offset of the transport header. For fragments and unknown protocols, where it would be.
    pub transport_at: u16,
    /// Offset of the end of all headers that were understood. In a super-packet, each segment gets
    /// a copy of these headers.
    pub headers: u16,
    /// The frames that a wire would carry.
    pub segments: Segments,
}

/// The network layer of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Network {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Anything else, such as ARP.
    Other,
}

/// The frames that a packet would be on a wire. All have the same length, except the last, which
/// may be shorter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segments {
    /// Number of frames, at least one.
    pub count: u32,
    /// Ethernet bytes of each frame except the last, including headers.
    pub full: u32,
    /// Ethernet bytes of the last frame, including headers.
    pub last: u32,
}

impl Segments {
    /// Returns the description of a single frame of `bytes`.
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self { count: 1, full: bytes, last: bytes }
    }

    /// Returns the Ethernet bytes of all frames, including headers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.full) + u64::from(self.last)
    }

    /// Returns the bytes that all frames take on a wire. Each frame is padded to [`MIN_FRAME`], and
    /// takes `overhead` bytes more.
    #[must_use]
    pub fn wire_bytes(&self, overhead: u16) -> u64 {
        u64::from(self.count - 1) * on_wire(self.full, overhead) + on_wire(self.last, overhead)
    }

    /// Returns the bytes that frame `index`, counted from 0, takes on a wire.
    #[must_use]
    pub fn wire_bytes_of(&self, index: u32, overhead: u16) -> u64 {
        on_wire(if index + 1 < self.count { self.full } else { self.last }, overhead)
    }

    /// Returns how many frames, from the first on, fit into `room` bytes on the wire.
    #[must_use]
    pub fn fitting(&self, room: u64, overhead: u16) -> u32 {
        if self.wire_bytes(overhead) <= room {
            return self.count;
        }
        let full = room / on_wire(self.full, overhead).max(1);
        u32::try_from(full).unwrap_or(u32::MAX).min(self.count - 1)
    }

    /// Returns how many frames, from the first on, take at least `bytes` on the wire. The result is
    /// at least one, and at most the number of frames.
    #[must_use]
    pub fn filling(&self, bytes: u64, overhead: u16) -> u32 {
        let full = bytes.div_ceil(on_wire(self.full, overhead).max(1));
        u32::try_from(full).unwrap_or(u32::MAX).clamp(1, self.count)
    }
}

fn on_wire(bytes: u32, overhead: u16) -> u64 {
    u64::from(bytes.max(MIN_FRAME)) + u64::from(overhead)
}
