//! The host: who it is, whom it knows, and what it makes of a frame.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use super::headers::{IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::messages::Sender;
use super::neighbours::Neighbours;
use super::parse::{Inbound, Reader, Unread};
use super::paths::{Paths, place};
use super::route::{Checksums, Origin, Route};
use super::{MAX_LINKS, MAX_MTU, MIN_MTU};
use crate::{Counters, Mac, Nanos};

/// Time between two looks at neighbours that are sent to and do not answer.
const WATCH: Duration = Duration::from_millis(10);

/// Peers whose path is narrower than our links; beyond that all are forgotten, and told of again.
const MAX_NARROW: usize = 4096;

/// Bytes of an echo's identifier and sequence number.
const ECHO_HEAD: usize = 4;

/// Who a host is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Its address and UDP port.
    pub address: SocketAddr,
    /// Leading bits of the address that neighbours share.
    pub prefix: u8,
    /// Who passes on what is for others. Without one everybody counts as a neighbour.
    pub gateway: Option<IpAddr>,
    /// Tag of its frames.
    pub vlan: Option<u16>,
    /// Largest IP packet, bytes: [`MIN_MTU`] to [`MAX_MTU`].
    pub mtu: usize,
}

impl Settings {
    /// The neighbour that takes what is for `ip`.
    fn next_hop(&self, ip: IpAddr) -> IpAddr {
        match self.gateway {
            Some(gateway) if !same_prefix(ip, self.address.ip(), self.prefix) => gateway,
            _ => ip,
        }
    }
}

/// One of its links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkSettings {
    /// Hardware address.
    pub mac: Mac,
    /// Who writes checksums.
    pub checksums: Checksums,
}

/// What a frame was to the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Heard {
    /// A datagram for its port. The range is of the frame.
    Datagram {
        /// Who sent it.
        from: SocketAddr,
        /// The data.
        payload: Range<usize>,
    },
    /// A question. The [answer](Host::reply) is to leave over the link the frame came from.
    Question,
    /// The answer to an [echo](Host::echo).
    Pong {
        /// Who answered.
        from: IpAddr,
        /// The echo's identifier and sequence number.
        number: u32,
    },
    /// Nothing that anybody must know of.
    Nothing,
}

/// Why there is no route to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unroutable {
    /// It is of the other family.
    Family,
    /// Its hardware address is being asked for, since before or, if true, from now on: then
    /// [`Host::question`] is to leave over every link.
    Asking(bool),
}

struct Link {
    settings: LinkSettings,
    up: bool,
}

/// See the [module](super).
pub struct Host {
    settings: Settings,
    links: Vec<Link>,
    neighbours: Neighbours,
    /// Counts changes of links.
    changes: u32,
    paths: Paths,
    watched: Nanos,
    narrow: HashMap<IpAddr, usize>,
    message: Vec<u8>,
}

impl Host {
    /// A host with 1 to [`MAX_LINKS`] links.
    #[must_use]
    pub fn new(settings: Settings, links: &[LinkSettings]) -> Self {
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
            changes: 0,
            paths: Paths::default(),
            watched: Nanos(0),
            narrow: HashMap::new(),
            message: Vec::new(),
        }
    }

    /// The host's address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Largest datagram to a peer, bytes of data.
    #[must_use]
    pub fn mtu(&self, peer: IpAddr) -> usize {
        let packet = self
            .narrow
            .get(&peer)
            .map_or(self.settings.mtu, |&narrow| narrow.min(self.settings.mtu));
        packet - UDP_BYTES - if peer.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Says that a link works, or does not any more. Peers reached over it are reached over another
    /// from now on. Returns whether it works again: then the host should
    /// [announce](Self::announcement) itself there.
    pub fn set_link(&mut self, link: usize, up: bool) -> bool {
        let changed = self.links[link].up != up;
        if changed {
            self.links[link].up = up;
            self.changes = self.changes.wrapping_add(1);
            if up {
                self.neighbours.forget(link);
            }
        }
        changed && up
    }

    /// Says what the hardware address of a link is: another, perhaps, when its device has been
    /// replaced.
    pub fn set_mac(&mut self, link: usize, mac: Mac) {
        let own = &mut self.links[link].settings.mac;
        if *own != mac {
            *own = mac;
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Tells the neighbours on a link who we are, so that they forget who had our address before.
    pub fn announcement(&mut self, link: usize) -> &[u8] {
        let sender = self.sender(link);
        sender.announce(&mut self.message);
        &self.message
    }

    /// What a frame that came over `link` is to the host. `checked`: the device has found its
    /// checksums right.
    #[inline]
    pub fn read(
        &mut self,
        link: usize,
        frame: &[u8],
        checked: bool,
        counters: &mut Counters,
    ) -> Heard {
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
                self.recognise(from, link, mac);
                Heard::Datagram { from, payload }
            }
            // Groups are only asked things.
            Ok(Inbound::Datagram { .. }) => {
                counters.foreign += 1;
                Heard::Nothing
            }
            Ok(other) => self.hear(link, other, frame),
            Err(Unread::Foreign) => {
                counters.foreign += 1;
                Heard::Nothing
            }
            Err(Unread::Malformed) => {
                counters.malformed += 1;
                Heard::Nothing
            }
            Err(Unread::Corrupt) => {
                counters.corrupt += 1;
                Heard::Nothing
            }
        }
    }

    #[cold]
    fn hear(&mut self, link: usize, inbound: Inbound, frame: &[u8]) -> Heard {
        let own = self.settings.address.ip();
        match inbound {
            Inbound::WhoHas { target, from, mac } if target == own => {
                if from.is_unspecified() {
                    return Heard::Nothing; // somebody checks that nobody has the address; there is none to answer
                }
                self.neighbours.learn(from, link, mac);
                let sender = self.sender(link);
                sender.tell(&mut self.message, from, mac);
                Heard::Question
            }
            // An announcement; news only of those we deal with.
            Inbound::WhoHas { target, from, mac }
                if target == from && self.neighbours.knows(from) =>
            {
                self.neighbours.learn(from, link, mac);
                Heard::Nothing
            }
            // To a group it is an announcement.
            Inbound::IsAt { from, .. } if frame[0] & 1 != 0 && !self.neighbours.knows(from) => {
                Heard::Nothing
            }
            Inbound::IsAt { from, mac } if from.is_ipv4() == own.is_ipv4() && from != own => {
                self.neighbours.confirm(from, link, mac);
                Heard::Nothing
            }
            Inbound::Echo { from, to, mac, body } if to == own && body.len() >= ECHO_HEAD => {
                let sender = self.sender(link);
                sender.echo(&mut self.message, (mac, from), true, &frame[body]);
                Heard::Question
            }
            Inbound::EchoReply { from, to, body } if to == own => match frame[body].first_chunk() {
                Some(&number) => Heard::Pong { from, number: u32::from_be_bytes(number) },
                None => Heard::Nothing,
            },
            Inbound::TooBig { peer, mtu } => {
                if (MIN_MTU..self.settings.mtu).contains(&mtu) {
                    if self.narrow.len() >= MAX_NARROW {
                        self.narrow.clear();
                    }
                    self.narrow.insert(peer, mtu);
                }
                Heard::Nothing
            }
            _ => Heard::Nothing,
        }
    }

    /// The answer to a [question](Heard::Question).
    #[must_use]
    pub fn reply(&self) -> &[u8] {
        &self.message
    }

    /// Keeps in mind where a peer's datagrams come from, so that the answer needs no question. Only
    /// from neighbours: what a gateway passes on has the gateway's hardware address.
    #[inline]
    fn recognise(&mut self, from: SocketAddr, link: usize, mac: Mac) {
        if self.paths.hear(from, link, mac) {
            return;
        }
        if self.settings.next_hop(from.ip()) == from.ip()
            && self.neighbours.mac(from.ip(), link) != Some(mac)
        {
            self.neighbours.learn(from.ip(), link, mac);
        }
    }

    /// How to reach a peer: over its own link, of those that work.
    ///
    /// # Errors
    /// [`Unroutable`].
    #[inline]
    pub fn route(
        &mut self,
        peer: SocketAddr,
        now: impl FnOnce() -> Nanos,
    ) -> Result<&Route, Unroutable> {
        self.route_of(peer, 0, now)
    }

    /// How a datagram of `len` bytes is to reach a peer: long ones go over all links that work, in
    /// turn.
    ///
    /// # Errors
    /// [`Unroutable`].
    #[inline]
    pub fn route_of(
        &mut self,
        peer: SocketAddr,
        len: usize,
        now: impl FnOnce() -> Nanos,
    ) -> Result<&Route, Unroutable> {
        let (place, generation) = (place(peer), self.generation());
        if !self.paths.has(place, peer, generation) {
            let routes = self.find(peer, now)?;
            self.paths.put(place, peer, generation, routes);
        }
        Ok(self.paths.pick(place, len))
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
        // Peers spread over the links that reach them; those that are down count only if there is
        // no other.
        let mut links: Vec<_> = self.links_to(hop).filter(|&link| self.links[link].up).collect();
        if links.is_empty() {
            links.extend(self.links_to(hop).next());
        }
        if links.is_empty() {
            return Err(Unroutable::Asking(self.neighbours.want(hop, now())));
        }
        let own = place(peer) % links.len();
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

    /// Looks after links that work and yet lead nowhere. A neighbour to which something was sent
    /// over one, and from which nothing came over it, is asked over it whether it is there; if
    /// it does not answer, it is reached over another until it does. To be called about every
    /// millisecond; hands what is to be sent, and its link, to `probe`. Only hosts with several
    /// links have anything to look after.
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

    /// Whether [`watch`](Self::watch) waits for an answer.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.neighbours.has_doubts()
    }

    /// The links over which a neighbour has been heard.
    fn links_to(&self, hop: IpAddr) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(move |&link| self.neighbours.mac(hop, link).is_some())
    }

    fn generation(&self) -> u32 {
        self.neighbours.generation().wrapping_add(self.changes)
    }

    fn sender(&self, link: usize) -> Sender {
        let mac = self.links[link].settings.mac;
        Sender { mac, address: self.settings.address.ip(), vlan: self.settings.vlan }
    }

    /// The question for the neighbour that takes what is for `ip`, as it leaves over `link`.
    pub fn question(&mut self, ip: IpAddr, link: usize) -> &[u8] {
        let (sender, hop) = (self.sender(link), self.settings.next_hop(ip));
        sender.ask(&mut self.message, hop);
        &self.message
    }

    /// Whether no neighbour is being asked for, and so [`take_due`](Self::take_due) has nothing to
    /// say.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.neighbours.is_settled()
    }

    /// A neighbour that has not answered, and is to be asked for again over every link.
    pub fn take_due(&mut self, now: Nanos) -> Option<IpAddr> {
        self.neighbours.take_due(now)
    }

    /// An echo request to a peer: `len` bytes of it besides the headers, 4 at least, the first of
    /// which are `number`. Returns the link it is to leave over, and the frame.
    ///
    /// # Errors
    /// [`Unroutable`].
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

/// Whether two addresses share their first `prefix` bits.
fn same_prefix(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let differ = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(prefix).min(128)
}
