//! The driver that bypasses the kernel: a host on Ethernet (see [`ether`](crate::ether)) over devices of DPDK.
//!
//! ```text
//! node -> send: headers and payload written once, into a frame of the device's pool -> flush: a burst to the device
//! device -> receive: a burst -> the host reads each frame -> datagrams to the node where they lie -> frames go back
//! ```
//!
//! Everything happens on the thread that opened the driver; nothing is allocated and the kernel is not called, but to
//! look for neighbours and to see whether links are up.

mod figures;
mod held;
mod interface;
mod link;
mod netlink;
mod open;
mod sys;
mod xdp;

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use self::link::Link;
use self::sys::{BURST, Burst, Pool, Seat};
use self::xdp::Shared;
use crate::driver::Sink;
use crate::ether::{Heard, Host, Unroutable};
use crate::{Counters, Driver, Nanos, Sources, Transmit};

pub use self::held::Held;
pub use self::link::DeviceState;
pub use self::open::Address;

/// Payloads that wait for a neighbour's hardware address; more are dropped.
const MAX_PARKED: usize = 64;

/// A last part of at least this many bytes goes to a device that copies from where it lies. Below it a second buffer
/// costs as much as a copy.
const LEAST_TAIL: usize = 1024;

/// Answers to pings kept for whoever asks; more are dropped.
const MAX_PONGS: usize = 64;

/// Looks at the devices in one call that finds nothing. A look costs some 10 ns, and whoever asks has far more to do
/// before asking again, with a frame perhaps lying there: half of that would be its delay.
const LOOKS: usize = 16;

/// Rounds between two looks at the clock.
const CLOCK_ROUNDS: u32 = 64;

/// Time between two looks at links and neighbours.
const TEND: Duration = Duration::from_millis(1);

/// Longest sleep of a node whose devices cannot wake it.
const NAP: Duration = Duration::from_millis(1);

/// The driver for DPDK's devices. Lives on the thread that opened it.
pub struct Dpdk {
    tx: DpdkTx,
    rx: DpdkRx,
}

/// The sending half of [`Dpdk`].
pub struct DpdkTx {
    host: Host,
    links: Vec<Link>,
    parked: Vec<(SocketAddr, Vec<u8>)>,
    pongs: Vec<u32>,
    pool: Pool,
    counters: Counters,
    start: Instant,
    rounds: u32,
    tended: Nanos,
    /// What devices that share an interface with the kernel may need when they are opened again.
    _shared: Vec<Shared>,
    /// Given up last: frames go back through it.
    _seat: Seat,
}

/// The receiving half.
pub(crate) struct DpdkRx {
    burst: Burst,
}

impl Dpdk {
    /// What the driver has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    /// The devices: what they are, and how they fare.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        self.tx.links.iter().map(Link::state).collect()
    }

    /// Frames that are not in the pool: queued, or at the devices.
    #[must_use]
    pub fn frames_in_use(&self) -> usize {
        self.tx.pool.used()
    }

    /// Sends an echo request (ICMP) of `len` bytes to a host; it is answered in the driver there, or in its kernel.
    /// Returns whether it has left: not as long as the host's hardware address is unknown, which is then asked for.
    /// `len` is 4 to what [`mtu`](Transmit::mtu) says.
    pub fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        self.tx.ping(peer, number, len)
    }

    /// The number of a ping that has been answered.
    pub fn take_pong(&mut self) -> Option<u32> {
        self.tx.take_pong()
    }

    pub(crate) fn into_parts(self) -> (DpdkTx, DpdkRx) {
        (self.tx, self.rx)
    }
}

impl Driver for Dpdk {
    type Tx = DpdkTx;

    fn local_addr(&self) -> SocketAddr {
        self.tx.local_addr()
    }

    fn tx(&mut self) -> &mut DpdkTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, DpdkTx>) -> io::Result<usize> {
        Ok(self.rx.receive(&mut self.tx, |tx| tx, sink))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.tx.sources(sources);
    }
}

impl DpdkRx {
    /// [`Driver::receive`], for whoever holds the sending half: `of` finds it.
    pub(crate) fn receive<T>(
        &mut self,
        holder: &mut T,
        of: impl Fn(&mut T) -> &mut DpdkTx,
        sink: Sink<'_, T>,
    ) -> usize {
        let mut frames = 0;
        for _ in 0..LOOKS {
            frames = self.look(holder, &of, sink);
            if frames > 0 {
                break;
            }
        }
        of(holder).tend();
        frames
    }

    #[inline]
    fn look<T>(&mut self, holder: &mut T, of: &impl Fn(&mut T) -> &mut DpdkTx, sink: Sink<'_, T>) -> usize {
        let mut frames = 0;
        for at in 0..of(holder).links.len() {
            let tx = of(holder);
            let Some(device) = tx.links[at].device_to_receive() else { continue };
            self.burst.receive(device);
            for (frame, checked) in self.burst.iter() {
                let tx = of(holder);
                match tx.host.read(at, frame, checked, &mut tx.counters) {
                    Heard::Datagram { from, payload } => {
                        tx.counters.received(payload.len());
                        frames += 1;
                        sink(holder, from, &frame[payload]);
                    }
                    Heard::Question => tx.answer(at),
                    Heard::Parting => tx.links[at].part(),
                    Heard::Pong { number, .. } if tx.pongs.len() < MAX_PONGS => tx.pongs.push(number),
                    Heard::Pong { .. } | Heard::Nothing => {}
                }
            }
            self.burst.clear();
        }
        frames
    }
}

impl Transmit for DpdkTx {
    fn mtu(&mut self, peer: SocketAddr) -> usize {
        self.host.mtu(peer.ip())
    }

    fn reliable(&self) -> bool {
        false
    }

    #[inline]
    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 || len > self.host.mtu(peer.ip()) {
            self.counters.dropped_size += 1;
            return;
        }
        let start = self.start;
        match self.host.route(peer, || Nanos(0) + start.elapsed()) {
            Ok(route) => {
                let (Some(mut draft), link) = (self.pool.draft(), &mut self.links[route.link()]) else {
                    self.counters.dropped_full += 1;
                    return;
                };
                self.counters.sent(1, len);
                if let [first @ .., tail] = parts
                    && tail.len() >= LEAST_TAIL
                    && route.is_blind()
                    && link.copies()
                {
                    let head = draft.bytes(route.len() + len - tail.len(), &self.pool);
                    gather(&mut head[route.len()..], first);
                    route.finish_before(head, tail.len());
                    let Some(back) = link.push_with(&self.pool, draft, tail, &mut self.counters) else { return };
                    draft = back; // no room: it waits its turn, as a copy
                }
                let bytes = draft.bytes(route.len() + len, &self.pool);
                gather(&mut bytes[route.len()..], parts);
                route.finish(bytes);
                if route.device_checks() {
                    let (before, ip) = route.layers();
                    draft.have_checked(before, ip, peer.is_ipv6());
                }
                link.push(draft, &mut self.counters);
            }
            Err(Unroutable::Family) => self.counters.dropped_unreachable += 1,
            Err(Unroutable::Asking(first)) => {
                if first {
                    self.ask(peer.ip());
                }
                self.park(peer, parts);
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        for link in &mut self.links {
            link.flush(&mut self.counters);
        }
    }
}

/// Copies `parts` one behind the other.
#[inline]
fn gather(to: &mut [u8], parts: &[IoSlice<'_>]) {
    let mut at = 0;
    for part in parts {
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

impl Drop for DpdkTx {
    /// Tells the other ends, so that they leave shared memory alone while it goes.
    fn drop(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].says_farewell() {
                self.message(link, |host| Some(host.parting(link)));
            }
        }
    }
}

impl DpdkTx {
    /// What the driver has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.host.address()
    }

    /// The hardware address of the first device.
    pub(crate) fn mac(&self) -> crate::Mac {
        self.links[0].mac()
    }

    pub(crate) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        sources.nap(NAP);
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Sends a message of the host's own over one link.
    fn message(&mut self, link: usize, message: impl FnOnce(&mut Host) -> Option<&[u8]>) -> bool {
        let (Some(mut draft), Some(message)) = (self.pool.draft(), message(&mut self.host)) else { return false };
        if message.len() > self.pool.room() {
            self.counters.dropped_size += 1;
            return false;
        }
        draft.bytes(message.len(), &self.pool).copy_from_slice(message);
        self.links[link].push(draft, &mut self.counters);
        self.links[link].flush(&mut self.counters);
        true
    }

    fn answer(&mut self, link: usize) {
        self.message(link, |host| Some(host.reply()));
    }

    fn ask(&mut self, ip: IpAddr) {
        for link in 0..self.links.len() {
            self.message(link, |host| Some(host.question(ip, link)));
        }
    }

    pub(crate) fn take_pong(&mut self) -> Option<u32> {
        self.pongs.pop()
    }

    pub(crate) fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        let now = self.now();
        match self.host.echo(peer, number, len, now) {
            Ok((link, _)) => self.message(link, |host| Some(host.reply())),
            Err(Unroutable::Asking(true)) => {
                self.ask(peer);
                false
            }
            Err(_) => false,
        }
    }

    #[cold]
    fn park(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        if self.parked.len() >= MAX_PARKED {
            self.counters.dropped_unreachable += 1;
            return;
        }
        self.parked.push((peer, parts.iter().flat_map(|part| part.iter().copied()).collect()));
    }

    /// What is due now and then, at the end of each round.
    #[inline]
    fn tend(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(CLOCK_ROUNDS) || !self.parked.is_empty() {
            self.look_around();
        }
    }

    #[cold]
    fn look_around(&mut self) {
        if !self.parked.is_empty() {
            for (peer, payload) in std::mem::take(&mut self.parked) {
                self.send(peer, &[IoSlice::new(&payload)]); // parks it again if need be
            }
            self.flush();
        }
        let now = self.now();
        if now.since(self.tended) < TEND {
            return;
        }
        self.tended = now;
        self.counters.no_buffer += u64::from(self.pool.is_empty());
        for at in 0..self.links.len() {
            let up = self.links[at].tend(now, &self.pool, &mut self.counters);
            self.host.set_mac(at, self.links[at].mac());
            if self.host.set_link(at, up) {
                self.message(at, |host| Some(host.announcement(at)));
            }
        }
        while let Some(ip) = self.host.take_due(now) {
            self.ask(ip);
        }
    }
}

const _: () = assert!(BURST <= u16::MAX as usize);
