//! The host: its settings, links, neighbours and routes, and how it reacts to frames.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use super::headers::{IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::messages::Sender;
use super::neighbours::Neighbours;
use super::parse::{Inbound, Reader, Unread};
use super::paths::{Paths, index_of};
use super::route::{Checksums, Origin, Route};
use super::{MAX_LINKS, MAX_MTU, MIN_MTU};
use crate::{Counters, Mac, Nanos};

/// Interval at which the host looks for neighbours that were sent frames and do not answer.
const WATCH: Duration = Duration::from_millis(10);

/// The largest number of peers for which the host remembers a path MTU below that of the links. At
/// the limit the host forgets all of them, and learns their path MTUs again from routers.
const MAX_NARROW: usize = 4096;

/// Bytes of an echo's identifier and sequence number.
const ECHO_HEAD: usize = 4;

/// The addresses of a host and the limits of its network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostSettings {
    /// The host's address and UDP port.
    pub address: SocketAddr,
    /// Number of leading bits of the address that the host shares with its neighbours.
    pub prefix: u8,
    /// The router to all hosts that are not neighbours. Without one every peer counts as a
    /// neighbour.
    pub gateway: Option<IpAddr>,
    /// VLAN tag of the host's frames; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// The largest IP packet, in bytes: [`MIN_MTU`] to [`MAX_MTU`].
    pub mtu: usize,
}

impl HostSettings {
    /// Returns the neighbour to which packets for `ip` are sent: the peer itself or the gateway.
    fn next_hop(&self, ip: IpAddr) -> IpAddr {
        match self.gateway {
            Some(gateway) if !same_prefix(ip, self.address.ip(), self.prefix) => gateway,
            _ => ip,
        }
    }
}

/// The settings of one of a host's links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkSettings {
    /// The link's hardware address.
    pub mac: Mac,
    /// Who computes the UDP checksums of frames sent over the link.
    pub checksums: Checksums,
}

/// The meaning of a received frame, as [`EtherHost::read`] returns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FrameEvent {
    /// A datagram for the host's port.
    Datagram {
        /// The sender's address.
        from: SocketAddr,
        /// The range of the data in the frame.
        payload: Range<usize>,
    },
    /// A request (ARP, neighbour solicitation or echo). The caller sends the
    /// [reply](EtherHost::reply) over the link from which the frame came.
    Request,
    /// The reply to an [echo](EtherHost::echo).
    EchoReply {
        /// The host that replied.
        from: IpAddr,
        /// The echo's identifier and sequence number.
        number: u32,
    },
    /// The host has handled or dropped the frame; the caller has nothing to do.
    Nothing,
}

/// Why there is no route to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unroutable {
    /// The peer is of the other address family.
    Family,
    /// The peer's hardware address is not known. If true, its resolution starts now, and the caller
    /// must send [`EtherHost::solicitation`] over every link.
    Resolving(bool),
}

struct Link {
    settings: LinkSettings,
    up: bool,
}

/// A host on Ethernet, sans-IO: it parses received frames and builds the headers of frames to send,
/// but owns no device, thread or clock.
///
/// For each received frame call [`read`](Self::read), which returns the datagram or says that the
/// [`reply`](Self::reply) must be sent. To send, get the headers from [`route`](Self::route) or
/// [`route_of`](Self::route_of). If the neighbour's hardware address is unknown, they return
/// [`Unroutable::Resolving`]: keep the datagram, and send the [`solicitation`](Self::solicitation).
/// About every millisecond report the links by [`set_link`](Self::set_link), call
/// [`watch`](Self::watch), and repeat solicitations for the addresses that
/// [`take_due`](Self::take_due) returns.
///
/// Frames that the host itself composes lie in one buffer, and are valid until the next call.
pub struct EtherHost {
    settings: HostSettings,
    links: Vec<Link>,
    neighbours: Neighbours,
    /// Counts changes of links. The count is part of the routes' generation.
    link_changes: u32,
    paths: Paths,
    watched: Nanos,
    narrow: HashMap<IpAddr, usize>,
    message: Vec<u8>,
}

impl EtherHost {
    /// Creates a host with 1 to [`MAX_LINKS`] links, all of them up.
    ///
    /// # Panics
    /// If there are no links or more, the MTU is out of its range, or the gateway is of the other
    /// address family.
    #[must_use]
    pub fn new(settings: HostSettings, links: &[LinkSettings]) -> Self {
        assert!(
            (1..=MAX_LINKS).contains(&links.len()),
            "1 to {MAX_LINKS} links, not {}",
            links.len()
        );
        assert!(
            (MIN_MTU..=MAX_MTU).contains(&settings.mtu),
            "an MTU of {MIN_MTU} to {MAX_MTU}, not {}",
            settings.mtu
        );
        assert!(
            settings.gateway.is_none_or(|gateway| gateway.is_ipv4() == settings.address.is_ipv4())
        );
        Self {
            settings,
            links: links.iter().map(|&settings| Link { settings, up: true }).collect(),
            neighbours: Neighbours::default(),
            link_changes: 0,
            paths: Paths::default(),
            watched: Nanos(0),
            narrow: HashMap::new(),
            message: Vec::new(),
        }
    }

    /// Returns the host's address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Returns the length of the longest datagram to a peer, in bytes of data.
    #[must_use]
    pub fn mtu(&self, peer: IpAddr) -> usize {
        let packet = self
            .narrow
            .get(&peer)
            .map_or(self.settings.mtu, |&narrow| narrow.min(self.settings.mtu));
        packet - UDP_BYTES - if peer.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Reports that a link is up or down. From now on frames take a link that is down only if no
    /// link that is up reaches the peer. Returns whether the link has just come up. The caller
    /// should then send the host's [announcement](Self::announcement) over it.
    pub fn set_link(&mut self, link: usize, up: bool) -> bool {
        let changed = self.links[link].up != up;
        if changed {
            self.links[link].up = up;
            self.link_changes = self.link_changes.wrapping_add(1);
            if up {
                self.neighbours.forget(link);
            }
        }
        changed && up
    }

    /// Reports the hardware address of a link, which changes if its device is replaced.
    pub fn set_mac(&mut self, link: usize, mac: Mac) {
        let own = &mut self.links[link].settings.mac;
        if *own != mac {
            *own = mac;
            self.link_changes = self.link_changes.wrapping_add(1);
        }
    }

    /// Returns a frame that announces the host's address to the neighbours on a link. They then
    /// forget any other host that had the address before.
    pub fn announcement(&mut self, link: usize) -> &[u8] {
        let sender = self.sender(link);
        sender.announce(&mut self.message);
        &self.message
    }

    /// Handles a frame received over `link` and returns what it means. `checked` says that the
    /// device has verified the frame's checksums. Counts dropped frames in `counters`.
    #[inline]
    pub fn read(
        &mut self,
        link: usize,
        frame: &[u8],
        checked: bool,
        counters: &mut Counters,
    ) -> FrameEvent {
        let own = self.links[link].settings;
        let reader = Reader {
            vlan: self.settings.vlan,
            verify: !checked && own.checksums != Checksums::Spared,
        };
        let ours = frame.starts_with(&own.mac.0);
        let group = frame.first().is_some_and(|first| first & 1 != 0);
        let inbound = if ours || group || frame.len() < 6 {
            reader.read(frame)
        } else {
            Err(Unread::Foreign)
        };
        match inbound {
            Ok(Inbound::Datagram { from, to, mac, payload })
                if to == self.settings.address && ours =>
            {
                self.learn_sender(from, link, mac);
                FrameEvent::Datagram { from, payload }
            }
            // A datagram to a multicast group is not for our port.
            Ok(Inbound::Datagram { .. }) => {
                counters.foreign += 1;
                FrameEvent::Nothing
            }
            Ok(other) => self.handle_message(link, other, frame),
            Err(Unread::Foreign) => {
                counters.foreign += 1;
                FrameEvent::Nothing
            }
            Err(Unread::Malformed) => {
                counters.malformed += 1;
                FrameEvent::Nothing
            }
            Err(Unread::Corrupt) => {
                counters.corrupt += 1;
                FrameEvent::Nothing
            }
        }
    }

    #[cold]
    fn handle_message(&mut self, link: usize, inbound: Inbound, frame: &[u8]) -> FrameEvent {
        let own = self.settings.address.ip();
        match inbound {
            Inbound::WhoHas { target, from, mac } if target == own => {
                if from.is_unspecified() {
                    // The request is a probe for duplicate addresses, without a source address to
                    // reply to.
                    return FrameEvent::Nothing;
                }
                self.neighbours.learn(from, link, mac);
                let sender = self.sender(link);
                sender.advertise(&mut self.message, from, mac);
                FrameEvent::Request
            }
            // A request for the sender's own address is an announcement, which only updates
            // neighbours that we know.
            Inbound::WhoHas { target, from, mac }
                if target == from && self.neighbours.knows(from) =>
            {
                self.neighbours.learn(from, link, mac);
                FrameEvent::Nothing
            }
            // A reply to a group is an announcement too. One from an unknown neighbour is ignored.
            Inbound::IsAt { from, .. } if frame[0] & 1 != 0 && !self.neighbours.knows(from) => {
                FrameEvent::Nothing
            }
            Inbound::IsAt { from, mac } if from.is_ipv4() == own.is_ipv4() && from != own => {
                self.neighbours.confirm(from, link, mac);
                FrameEvent::Nothing
            }
            Inbound::Echo { from, to, mac, body } if to == own && body.len() >= ECHO_HEAD => {
                let sender = self.sender(link);
                sender.echo(&mut self.message, (mac, from), true, &frame[body]);
                FrameEvent::Request
            }
            Inbound::EchoReply { from, to, body } if to == own => match frame[body].first_chunk() {
                Some(&number) => FrameEvent::EchoReply { from, number: u32::from_be_bytes(number) },
                None => FrameEvent::Nothing,
            },
            Inbound::TooBig { peer, mtu } => {
                if (MIN_MTU..self.settings.mtu).contains(&mtu) {
                    if self.narrow.len() >= MAX_NARROW {
                        self.narrow.clear();
                    }
                    self.narrow.insert(peer, mtu);
                }
                FrameEvent::Nothing
            }
            _ => FrameEvent::Nothing,
        }
    }

    /// Returns the reply to a [request](FrameEvent::Request).
    #[must_use]
    pub fn reply(&self) -> &[u8] {
        &self.message
    }

    /// Learns the hardware address of a datagram's sender, so that the reply needs no resolution.
    /// Applies only to neighbours, because a frame that a gateway forwards has the gateway's
    /// hardware address.
    #[inline]
    fn learn_sender(&mut self, from: SocketAddr, link: usize, mac: Mac) {
        if self.paths.note_received(from, link, mac) {
            return;
        }
        if self.settings.next_hop(from.ip()) == from.ip()
            && self.neighbours.mac(from.ip(), link) != Some(mac)
        {
            self.neighbours.learn(from.ip(), link, mac);
        }
    }

    /// Returns the route to a peer. Of the links that are up, a hash of the peer selects one.
    ///
    /// # Errors
    /// [`Unroutable::Family`] when the peer is of the other address family, and
    /// [`Unroutable::Resolving`] while its hardware address is not known.
    #[inline]
    pub fn route(
        &mut self,
        peer: SocketAddr,
        now: impl FnOnce() -> Nanos,
    ) -> Result<&Route, Unroutable> {
        self.route_of(peer, 0, now)
    }

    /// Returns the route of a datagram of `len` bytes to a peer. Long datagrams are spread in turn
    /// over all links that are up and reach the peer.
    ///
    /// # Errors
    /// [`Unroutable::Family`] when the peer is of the other address family, and
    /// [`Unroutable::Resolving`] while its hardware address is not known.
    #[inline]
    pub fn route_of(
        &mut self,
        peer: SocketAddr,
        len: usize,
        now: impl FnOnce() -> Nanos,
    ) -> Result<&Route, Unroutable> {
        let (index, generation) = (index_of(peer), self.generation());
        if !self.paths.has(index, peer, generation) {
            let routes = self.find(peer, now)?;
            self.paths.put(index, peer, generation, routes);
        }
        Ok(self.paths.pick(index, len))
    }

    #[cold]
    fn find(
        &mut self,
        peer: SocketAddr,
        now: impl FnOnce() -> Nanos,
    ) -> Result<Vec<Route>, Unroutable> {
        if peer.is_ipv4() != self.settings.address.is_ipv4() {
            return Err(Unroutable::Family);
        }
        let hop = self.settings.next_hop(peer.ip());
        // Spread peers over the links that reach them. A link that is down is used only if there is
        // no other.
        let mut links: Vec<_> = self.links_to(hop).filter(|&link| self.links[link].up).collect();
        if links.is_empty() {
            links.extend(self.links_to(hop).next());
        }
        if links.is_empty() {
            return Err(Unroutable::Resolving(self.neighbours.want(hop, now())));
        }
        let own = index_of(peer) % links.len();
        links.rotate_left(own);
        let route = |link: usize| {
            let mac = self.neighbours.mac(hop, link).expect("known");
            let LinkSettings { mac: own, checksums } = self.links[link].settings;
            let origin = Origin {
                mac: own,
                vlan: self.settings.vlan,
                address: self.settings.address,
                checksums,
            };
            Route::new(&origin, peer, mac, link)
        };
        Ok(links.into_iter().map(route).collect())
    }

    /// Detects links that are up and yet lead nowhere. If frames were sent to a neighbour over a
    /// link and none came back over it, the host probes the neighbour over that link; if the
    /// neighbour does not answer, the host uses another link until the neighbour answers. Call this
    /// about every millisecond; it passes each probe and its link to `probe`. Does nothing for a
    /// host with one link.
    pub fn watch(&mut self, now: Nanos, mut probe: impl FnMut(usize, &[u8])) {
        if self.links.len() < 2 || now.since(self.watched) < WATCH {
            return;
        }
        self.watched = now;
        let Self { paths, neighbours, settings, .. } = self;
        paths.take_marks(|peer, link, heard| neighbours.mark(settings.next_hop(peer), link, heard));
        for (ip, link, mac) in self.neighbours.watch(now) {
            let sender = self.sender(link);
            sender.probe(&mut self.message, ip, mac);
            probe(link, &self.message);
        }
    }

    /// Returns whether a neighbour is being probed or was lost over a link, so that
    /// [`watch`](Self::watch) must be called.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.neighbours.has_doubts()
    }

    /// Returns the links over which a neighbour is reachable.
    fn links_to(&self, hop: IpAddr) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(move |&link| self.neighbours.mac(hop, link).is_some())
    }

    fn generation(&self) -> u32 {
        self.neighbours.generation().wrapping_add(self.link_changes)
    }

    fn sender(&self, link: usize) -> Sender {
        let mac = self.links[link].settings.mac;
        Sender { mac, address: self.settings.address.ip(), vlan: self.settings.vlan }
    }

    /// Returns the ARP request or neighbour solicitation to send over `link` for the next hop to
    /// `ip`.
    pub fn solicitation(&mut self, ip: IpAddr, link: usize) -> &[u8] {
        let (sender, hop) = (self.sender(link), self.settings.next_hop(ip));
        sender.solicit(&mut self.message, hop);
        &self.message
    }

    /// Returns whether every remembered neighbour has a hardware address, so that
    /// [`take_due`](Self::take_due) returns nothing.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.neighbours.is_settled()
    }

    /// Returns a neighbour that has not answered and must now be solicited again over every link.
    pub fn take_due(&mut self, now: Nanos) -> Option<IpAddr> {
        self.neighbours.take_due(now)
    }

    /// Composes an echo request to a peer, with `len` bytes after the headers. The first four of
    /// these bytes are `number`. Returns the frame, and the link to send it over.
    ///
    /// # Panics
    /// If `len` is not between 4 and [`mtu`](Self::mtu).
    ///
    /// # Errors
    /// [`Unroutable::Family`] when the peer is of the other address family, and
    /// [`Unroutable::Resolving`] while its hardware address is not known.
    pub fn echo(
        &mut self,
        peer: IpAddr,
        number: u32,
        len: usize,
        now: Nanos,
    ) -> Result<(usize, &[u8]), Unroutable> {
        assert!(
            (ECHO_HEAD..=self.mtu(peer)).contains(&len),
            "an echo of {ECHO_HEAD} to {} bytes",
            self.mtu(peer)
        );
        let route = self.route(SocketAddr::new(peer, self.settings.address.port()), || now)?;
        let (link, mac) = (route.link, route.mac);
        let mut body = vec![0; len];
        body[..ECHO_HEAD].copy_from_slice(&number.to_be_bytes());
        self.sender(link).echo(&mut self.message, (mac, peer), false, &body);
        Ok((link, &self.message))
    }
}

/// Returns whether two addresses share their first `prefix` bits.
fn same_prefix(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let differ = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(prefix).min(128)
}
