//! The other end of a session, and how packets are packed and sent to it.

use std::io::IoSlice;
use std::net::SocketAddr;

use sprat_chance::Chance;
use sprat_net::{Nanos, Transmit};
use sprat_wire::channel::{CHANNEL_HEADER_BYTES, NO_CHANNEL, SEAL_BYTES};
use sprat_wire::packet::{FROM_SERVER, HEADER_BYTES, HELD, Header, Kind, Refusal};
use zerocopy::IntoBytes;

use crate::channel::{Channels, Requester};
use crate::config::{COPY_BYTES, MAX_MTU, MIN_MTU, PROBE_BYTES};
use crate::counters::Counters;

/// The address and the channel of the other end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The channel to the peer; [`NO_CHANNEL`] if the endpoint uses none.
    pub(crate) channel: u32,
}

impl Peer {
    /// A peer of an endpoint without channels.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self { address, channel: NO_CHANNEL }
    }
}

/// The other end of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    /// Index of the session at the peer.
    pub(crate) session: u32,
    pub(crate) token: u32,
    /// The largest frame of the session, in bytes, without what sealing adds.
    pub(crate) mtu: u32,
    /// [`FROM_SERVER`] if this end is the server, else 0.
    pub(crate) side: u8,
}

/// Converts a number of bytes, at most `MAX_MESSAGE`, to the form that headers use.
#[inline]
pub(crate) fn word(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("messages are bounded")
}

impl Link {
    /// Returns the number of bytes of a message in one packet.
    #[inline]
    pub(crate) fn fragment(&self) -> usize {
        self.mtu as usize - HEADER_BYTES
    }

    #[inline]
    pub(crate) fn header(
        &self,
        kind: Kind,
        slot: usize,
        sequence: u32,
        offset: usize,
        total: usize,
    ) -> Header {
        let slot = u8::try_from(slot).expect("slots are bounded");
        Header {
            kind: kind as u8,
            slot: slot | self.side,
            payload: 0.into(),
            session: self.session.into(),
            token: self.token.into(),
            sequence: sequence.into(),
            offset: word(offset).into(),
            total: word(total).into(),
        }
    }

    /// Makes the header of a packet that concerns the session as a whole.
    pub(crate) fn control(&self, kind: Kind) -> Header {
        self.header(kind, 0, 0, 0, 0)
    }
}

/// Packets being packed into a frame.
#[derive(Debug)]
pub(crate) struct Outbox {
    peer: Option<Peer>,
    limit: usize,
    frame: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { peer: None, limit: 0, frame: Vec::with_capacity(MAX_MTU + SEAL_BYTES) }
    }
}

/// The parts of an endpoint that both roles work with during a call.
pub(crate) struct Io<'a, T: ?Sized> {
    pub(crate) now: Nanos,
    pub(crate) tx: &'a mut T,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) counters: &'a mut Counters,
    pub(crate) random: &'a mut Chance,
    /// The endpoint's channels, if it uses any; every frame then goes through one of them.
    pub(crate) channels: Option<&'a mut Channels>,
}

impl<T: Transmit + ?Sized> Io<'_, T> {
    /// Returns the largest frame, in bytes, that this end can exchange with `peer`: the driver's
    /// limit less what sealing adds, at most `cap`, and at least `MIN_MTU`.
    pub(crate) fn mtu(&mut self, peer: SocketAddr, cap: usize) -> u32 {
        let sealed = if self.channels.is_some() { SEAL_BYTES } else { 0 };
        word(self.tx.mtu(peer).saturating_sub(sealed).min(cap).clamp(MIN_MTU, MAX_MTU))
    }

    /// Returns the route to an address. If the endpoint uses channels, begins a channel to the
    /// address if there is none; the route has [`NO_CHANNEL`] if there is no room for another
    /// channel.
    pub(crate) fn route_to(&mut self, address: SocketAddr) -> Peer {
        let channel = match &mut self.channels {
            Some(channels) => channels.route_to(self.now, address, self.random, self.tx),
            None => NO_CHANNEL,
        };
        Peer { address, channel }
    }

    /// Returns whether packets to the peer can be sent; false while its channel is being opened.
    pub(crate) fn is_reachable(&self, peer: Peer) -> bool {
        self.channels.as_ref().is_none_or(|channels| channels.is_open(peer.channel))
    }

    /// Notes that the peer did not answer, so that a silent channel is probed.
    pub(crate) fn suspect(&mut self, peer: Peer) {
        if let Some(channels) = &mut self.channels {
            channels.suspect(self.now, peer.channel, self.random, self.tx);
        }
    }

    /// Returns the member at the other end of the peer's channel.
    #[inline]
    pub(crate) fn requester(&self, peer: Peer) -> Requester {
        self.channels
            .as_ref()
            .map_or(Requester::ANYONE, |channels| channels.requester(peer.channel))
    }

    /// Packs one packet, which has a header and a payload in up to two parts, into the frame for
    /// its receiver. Sends that frame at once if the payload is over [`COPY_BYTES`]; otherwise
    /// [`flush`](Self::flush) or a later packet sends it.
    #[inline]
    pub(crate) fn send(&mut self, link: &Link, mut header: Header, parts: [&[u8]; 2]) {
        let payload = parts[0].len() + parts[1].len();
        let limit = link.mtu as usize;
        debug_assert!(HEADER_BYTES + payload <= limit);
        header.payload = u16::try_from(payload).expect("a packet fits its frame").into();
        self.counters.packets_out += 1;
        let sealed = self.channels.is_some();
        let lead = if sealed { CHANNEL_HEADER_BYTES } else { 0 };
        let outbox = &mut *self.outbox;
        let capacity = outbox.limit.min(limit + lead);
        if outbox.peer != Some(link.peer) || outbox.frame.len() + HEADER_BYTES + payload > capacity
        {
            self.flush();
            self.outbox.peer = Some(link.peer);
            self.outbox.limit = limit + lead;
            self.outbox.frame.resize(lead, 0);
        }
        let outbox = &mut *self.outbox;
        if payload <= COPY_BYTES || sealed {
            outbox.limit = outbox.limit.min(limit + lead);
            outbox.frame.extend_from_slice(header.as_bytes());
            outbox.frame.extend_from_slice(parts[0]);
            outbox.frame.extend_from_slice(parts[1]);
            if payload > COPY_BYTES {
                // A long packet ends its frame, sealed or not, because a packet that probes a path
                // must have a frame of its own.
                self.flush();
            }
            return;
        }
        let slices = [&outbox.frame, header.as_bytes(), parts[0], parts[1]].map(IoSlice::new);
        let first = usize::from(outbox.frame.is_empty());
        let end = if parts[1].is_empty() { 3 } else { 4 };
        self.tx.send(link.peer.address, &slices[first..end]);
        self.counters.frames_out += 1;
        outbox.frame.clear();
        outbox.peer = None;
    }

    /// Hands the frame being packed to the driver.
    pub(crate) fn flush(&mut self) {
        if let Some(peer) = self.outbox.peer.take()
            && !self.outbox.frame.is_empty()
        {
            let frame = &mut self.outbox.frame;
            let leaves = match &mut self.channels {
                Some(channels) => channels.seal(peer.channel, peer.address, frame),
                None => true,
            };
            if leaves {
                self.tx.send(peer.address, &[IoSlice::new(frame)]);
                self.counters.frames_out += 1;
            }
            self.outbox.frame.clear();
        }
    }

    /// Refuses a packet, which `session` and `token` identify to its sender.
    pub(crate) fn refuse(&mut self, peer: Peer, session: u32, token: u32, why: Refusal) {
        self.counters.refused += 1;
        let link = Link { peer, session, token, mtu: word(MIN_MTU), side: FROM_SERVER };
        let header = link.header(Kind::Refuse, 0, 0, why as usize, 0);
        self.send(&link, header, [&[], &[]]);
    }
}

/// Returns zeros that extend a control packet with `len` bytes of payload to a frame of `frame`
/// bytes, at most [`PROBE_BYTES`].
pub(crate) fn padding(len: usize, frame: usize) -> &'static [u8] {
    static ZEROES: [u8; PROBE_BYTES] = [0; PROBE_BYTES];
    &ZEROES[..frame.min(PROBE_BYTES).saturating_sub(HEADER_BYTES + len)]
}

/// Returns the header, with the flag that asks for an acknowledgement if `held` is true.
pub(crate) fn held(mut header: Header, held: bool) -> Header {
    if held {
        header.slot |= HELD;
    }
    header
}
