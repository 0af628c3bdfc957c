//! [`BypassDriver`] and its two halves: a host on its ports.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

#[cfg(feature = "dpdk")]
use super::dpdk::{Burst, Parcel, Seat};
#[cfg(feature = "dpdk")]
use super::exchange::{self, Share};
use super::memif::Memif;
use super::port::Port;
use super::state::DeviceState;
use crate::driver::Sink;
use crate::ether::{Heard, Host, Unroutable};
use crate::{Counters, Driver, Nanos, Sources, Transmit};

/// Payloads that wait for a neighbour's hardware address; more are dropped.
const MAX_PARKED: usize = 64;

/// Answers to pings kept for whoever asks; more are dropped.
const MAX_PONGS: usize = 64;

/// Frames taken from one port before the others have their turn, and whoever asked: a few, so that
/// what they lead to is sent while the next are read.
const BURST: usize = 4;

/// Looks at the ports in one call that finds nothing. A look costs some 10 ns, and whoever asks has
/// far more to do before asking again, with a frame perhaps lying there: half of that would be its
/// delay.
const LOOKS: usize = 16;

/// Rounds between two looks at the clock.
pub(super) const CLOCK_ROUNDS: u32 = 64;

/// Time between two looks at links and neighbours.
pub(super) const TEND: Duration = Duration::from_millis(1);

/// The same while a port comes to terms with its peer, who waits for each answer.
pub(super) const JOIN: Duration = Duration::from_micros(20);

/// Longest sleep while a neighbour is asked whether it is there.
const WATCHING: Duration = Duration::from_millis(10);

/// The driver that bypasses the kernel. Lives on the thread that opened it.
pub struct BypassDriver {
    pub(super) tx: BypassTx,
    rx: BypassRx,
}

/// The sending half of [`BypassDriver`].
pub struct BypassTx {
    /// Of the one port, if other nodes have theirs. Given up first: there are frames in it.
    #[cfg(feature = "dpdk")]
    pub(super) share: Option<Share>,
    host: Host,
    pub(super) ports: Vec<Port>,
    parked: Vec<(SocketAddr, Vec<u8>)>,
    pongs: Vec<u32>,
    counters: Counters,
    start: Instant,
    rounds: u32,
    tended: Nanos,
    /// Somebody sleeps on our ports.
    asleep: Cell<bool>,
    /// Given up last: frames go back through it.
    #[cfg(feature = "dpdk")]
    seat: Option<Seat>,
}

/// The receiving half.
pub(crate) struct BypassRx {
    /// A frame, copied out of shared memory.
    frame: Vec<u8>,
    #[cfg(feature = "dpdk")]
    burst: Burst,
}

impl BypassDriver {
    pub(super) fn new(host: Host, ports: Vec<Port>, longest_frame: usize) -> Self {
        let tx = BypassTx {
            #[cfg(feature = "dpdk")]
            share: None,
            host,
            ports,
            parked: Vec::with_capacity(MAX_PARKED),
            pongs: Vec::with_capacity(MAX_PONGS),
            counters: Counters::default(),
            start: Instant::now(),
            rounds: 0,
            tended: Nanos(0),
            asleep: Cell::new(false),
            #[cfg(feature = "dpdk")]
            seat: None,
        };
        let rx = BypassRx {
            frame: vec![0; longest_frame],
            #[cfg(feature = "dpdk")]
            burst: Burst::new(),
        };
        Self { tx, rx }
    }

    /// The same, with a part in an exchange.
    #[cfg(feature = "dpdk")]
    pub(super) fn sharing(mut self, share: Option<Share>) -> Self {
        self.tx.share = share;
        self
    }

    /// The same, with this thread's place in DPDK.
    #[cfg(feature = "dpdk")]
    pub(super) fn seated(mut self, seat: Option<Seat>) -> Self {
        self.tx.seat = seat;
        self
    }

    /// What the driver has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    /// The devices: what they are, and how they fare.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        self.tx.ports.iter().map(Port::state).collect()
    }

    /// Frames that wait for room, or that devices have.
    #[must_use]
    pub fn frames_in_use(&self) -> usize {
        self.tx.ports.iter().map(Port::frames_in_use).sum()
    }

    /// Sends an echo request (ICMP) of `len` bytes to a host; it is answered in the driver there,
    /// or in its kernel. Returns whether it has left: not as long as the host's hardware
    /// address is unknown, which is then asked for. `len` is 4 to what [`mtu`](Transmit::mtu)
    /// says.
    pub fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        self.tx.ping(peer, number, len)
    }

    /// The number of a ping that has been answered.
    pub fn take_pong(&mut self) -> Option<u32> {
        self.tx.take_pong()
    }

    pub(crate) fn into_parts(self) -> (BypassTx, BypassRx) {
        (self.tx, self.rx)
    }
}

impl Driver for BypassDriver {
    type Tx = BypassTx;

    fn local_addr(&self) -> SocketAddr {
        self.tx.local_addr()
    }

    fn tx(&mut self) -> &mut BypassTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, BypassTx>) -> io::Result<usize> {
        Ok(self.rx.receive(&mut self.tx, |tx| tx, sink))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.tx.sources(sources);
    }
}

impl BypassRx {
    /// [`Driver::receive`], for whoever holds the sending half: `of` finds it.
    pub(crate) fn receive<T>(
        &mut self,
        holder: &mut T,
        of: impl Fn(&mut T) -> &mut BypassTx,
        sink: Sink<'_, T>,
    ) -> usize {
        of(holder).wake();
        let mut frames = 0;
        for _ in 0..LOOKS {
            for at in 0..of(holder).ports.len() {
                frames += self.look(at, holder, &of, sink);
            }
            if frames > 0 {
                break;
            }
        }
        of(holder).tend();
        frames
    }

    #[inline]
    fn look<T>(
        &mut self,
        at: usize,
        holder: &mut T,
        of: &impl Fn(&mut T) -> &mut BypassTx,
        sink: Sink<'_, T>,
    ) -> usize {
        let mut frames = 0;
        #[cfg(feature = "dpdk")]
        if let Port::Dpdk(dpdk) = &mut of(holder).ports[at] {
            dpdk.receive(&mut self.burst);
            let shared = of(holder).share.is_some();
            if shared && !self.burst.is_empty() {
                of(holder).sort_out(at, &mut self.burst);
            }
            for (frame, checked) in self.burst.iter() {
                frames += hear(at, frame, checked, holder, of, sink);
            }
            self.burst.clear();
            if shared {
                frames += take_over(at, holder, of, sink);
            }
            return frames;
        }
        for _ in 0..BURST {
            let Some(len) =
                of(holder).ports[at].memif().and_then(|memif| memif.take(&mut self.frame))
            else {
                break;
            };
            frames += hear(at, &self.frame[..len], true, holder, of, sink);
        }
        if let Some(memif) = of(holder).ports[at].memif() {
            memif.release();
        }
        frames
    }
}

/// Does what a frame asks for: 1 if it was a datagram, which `sink` has had.
#[inline]
fn hear<T>(
    at: usize,
    frame: &[u8],
    checked: bool,
    holder: &mut T,
    of: &impl Fn(&mut T) -> &mut BypassTx,
    sink: Sink<'_, T>,
) -> usize {
    let tx = of(holder);
    match tx.host.read(at, frame, checked, &mut tx.counters) {
        Heard::Datagram { from, payload } => {
            tx.counters.received(payload.len());
            sink(holder, from, &frame[payload]);
            return 1;
        }
        Heard::Question if tx.speaks() => tx.answer(at),
        Heard::Pong { number, .. } if tx.pongs.len() < MAX_PONGS => tx.pongs.push(number),
        Heard::Question | Heard::Pong { .. } | Heard::Nothing => {}
    }
    0
}

/// Does what is asked for by frames that came to other nodes and are for this one.
#[cfg(feature = "dpdk")]
fn take_over<T>(
    at: usize,
    holder: &mut T,
    of: &impl Fn(&mut T) -> &mut BypassTx,
    sink: Sink<'_, T>,
) -> usize {
    let mut frames = 0;
    for _ in 0..BURST {
        let Some(parcel) = of(holder).share.as_ref().and_then(Share::take) else { break };
        let (frame, checked) = parcel.frame();
        frames += hear(at, frame, checked, holder, of, sink);
    }
    frames
}

impl Transmit for BypassTx {
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
        match self.host.route_of(peer, len, || Nanos(0) + start.elapsed()) {
            Ok(route) => {
                self.counters.sent(1, len);
                self.ports[route.link()].send(route, parts, len, &mut self.counters);
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
        for port in &mut self.ports {
            port.flush(&mut self.counters);
        }
    }
}

impl BypassTx {
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
        self.ports[0].mac()
    }

    pub(crate) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.asleep.set(true);
        let now = self.now();
        self.ports.iter().for_each(|port| port.sources(now, sources));
        #[cfg(feature = "dpdk")]
        self.share.iter().for_each(|share| share.sources(sources));
        if self.host.is_watching() {
            sources.nap(WATCHING);
        }
    }

    /// Hands over what is another node's, and to each of them a copy of what is for all.
    #[cfg(feature = "dpdk")]
    fn sort_out(&mut self, port: usize, burst: &mut Burst) {
        let (Some(share), Some(pool)) = (&self.share, self.ports[port].pool()) else { return };
        let (own, nodes) = (share.number(), share.nodes());
        let first = self.host.address().port() - u16::try_from(own).expect("few");
        let whose = |frame: &[u8]| exchange::whose(frame, first, nodes);
        burst.take_out(
            |frame| whose(frame).filter(|&number| number != own),
            |to, parcel| share.hand_over(to, parcel),
        );
        for (frame, checked) in burst.iter().filter(|(frame, _)| whose(frame).is_none()) {
            for other in share.others() {
                if let Some(copy) = Parcel::copy(frame, checked, pool) {
                    share.hand_over(other, copy);
                }
            }
        }
    }

    /// Whether this node answers what is asked of the address: one of those that share it does.
    #[cfg(feature = "dpdk")]
    fn speaks(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.number() == 0)
    }

    #[cfg(not(feature = "dpdk"))]
    fn speaks(&self) -> bool {
        true
    }

    /// Awake again, if we slept: what woke us may be a port's own affair.
    #[inline]
    fn wake(&mut self) {
        if self.asleep.replace(false) {
            self.ports.iter_mut().filter_map(Port::memif).for_each(Memif::wake);
            #[cfg(feature = "dpdk")]
            self.share.iter().for_each(Share::wake);
            (self.rounds, self.tended) = (u32::MAX, Nanos(0));
        }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    fn answer(&mut self, port: usize) {
        self.ports[port].send_frame(self.host.reply(), &mut self.counters);
    }

    fn ask(&mut self, ip: IpAddr) {
        for (at, port) in self.ports.iter_mut().enumerate() {
            port.send_frame(self.host.question(ip, at), &mut self.counters);
        }
    }

    pub(crate) fn take_pong(&mut self) -> Option<u32> {
        self.pongs.pop()
    }

    pub(crate) fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        let now = self.now();
        match self.host.echo(peer, number, len, now) {
            Ok((link, frame)) => {
                self.ports[link].send_frame(frame, &mut self.counters);
                true
            }
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
        let every = if self.ports.iter().any(Port::is_joining) { JOIN } else { TEND };
        if now.since(self.tended) < every && self.tended != Nanos(0) {
            return;
        }
        self.tended = now;
        for (at, port) in self.ports.iter_mut().enumerate() {
            let up = port.tend(now, &mut self.counters);
            self.host.set_mac(at, port.mac());
            if self.host.set_link(at, up) {
                port.send_frame(self.host.announcement(at), &mut self.counters);
            }
        }
        let Self { host, ports, counters, .. } = self;
        host.watch(now, |port, frame| ports[port].send_frame(frame, counters));
        while let Some(ip) = self.host.take_due(now) {
            self.ask(ip);
        }
    }
}
