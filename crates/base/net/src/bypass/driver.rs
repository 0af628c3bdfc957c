//! [`BypassDriver`] and its two halves: a host with its ports.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

#[cfg(feature = "dpdk")]
use super::dpdk::{Burst, Parcel, ThreadRegistration};
#[cfg(feature = "dpdk")]
use super::exchange::{self, DeviceShare};
use super::memif::Memif;
use super::port::Port;
use super::state::DeviceState;
use crate::driver::Sink;
use crate::ether::{EtherHost, FrameEvent, Unroutable};
use crate::{Counters, Driver, Nanos, Sources, Transmit};

/// The largest number of payloads that wait for a neighbour's hardware address. Further payloads
/// are dropped and counted.
const MAX_PARKED: usize = 64;

/// The largest number of echo replies kept until they are taken. Further replies are dropped.
const MAX_PONGS: usize = 64;

/// Number of frames taken from one memory interface, or from the inbox of a shared device, before
/// the other ports and the caller get their turn. It is small, so that replies are sent while the
/// next frames are read. Devices of DPDK's have a limit of their own.
const BURST: usize = 4;

/// Number of times that one call polls the ports if it finds no frame. A poll costs some 10 ns. The
/// time between two calls is far longer, and a frame that arrives in that time waits for half of it
/// on average.
const POLLS: usize = 16;

/// Calls of `receive`, or of `RawDevice::poll`, between two readings of the clock. While payloads
/// wait for a hardware address, every call of `receive` reads the clock.
pub(super) const CLOCK_ITERATIONS: u32 = 64;

/// Interval of maintenance of links and neighbours.
pub(super) const MAINTENANCE: Duration = Duration::from_millis(1);

/// The interval of maintenance while a port is in the handshake with its peer, because the peer
/// waits for each answer.
pub(super) const JOINING_MAINTENANCE: Duration = Duration::from_micros(20);

/// The longest sleep while a neighbour is being probed.
const WATCHING: Duration = Duration::from_millis(10);

/// The driver that bypasses the kernel: a host on Ethernet over one or several ports, each of which
/// is a memory interface or a device of DPDK's. It stays on the thread that opened it.
pub struct BypassDriver {
    pub(super) tx: BypassTx,
    rx: BypassRx,
}

/// The sending half of [`BypassDriver`].
pub struct BypassTx {
    /// The node's share of the only port, if other nodes use the device too. It holds frames, so it
    /// is dropped first.
    #[cfg(feature = "dpdk")]
    pub(super) share: Option<DeviceShare>,
    host: EtherHost,
    pub(super) ports: Vec<Port>,
    parked: Vec<(SocketAddr, Vec<u8>)>,
    pongs: Vec<u32>,
    counters: Counters,
    start: Instant,
    iterations: u32,
    maintained: Nanos,
    /// Whether the node has gone to sleep on our ports.
    asleep: Cell<bool>,
    /// Frames are returned through it, so it is dropped last.
    #[cfg(feature = "dpdk")]
    registration: Option<ThreadRegistration>,
}

/// The receiving half of [`BypassDriver`].
pub(crate) struct BypassRx {
    /// Space for a frame copied out of shared memory.
    frame: Vec<u8>,
    #[cfg(feature = "dpdk")]
    burst: Burst,
}

impl BypassDriver {
    pub(super) fn new(host: EtherHost, ports: Vec<Port>, longest_frame: usize) -> Self {
        let tx = BypassTx {
            #[cfg(feature = "dpdk")]
            share: None,
            host,
            ports,
            parked: Vec::with_capacity(MAX_PARKED),
            pongs: Vec::with_capacity(MAX_PONGS),
            counters: Counters::default(),
            start: Instant::now(),
            iterations: 0,
            maintained: Nanos(0),
            asleep: Cell::new(false),
            #[cfg(feature = "dpdk")]
            registration: None,
        };
        let rx = BypassRx {
            frame: vec![0; longest_frame],
            #[cfg(feature = "dpdk")]
            burst: Burst::new(),
        };
        Self { tx, rx }
    }

    /// Adds the node's share of the device.
    #[cfg(feature = "dpdk")]
    pub(super) fn with_share(mut self, share: Option<DeviceShare>) -> Self {
        self.tx.share = share;
        self
    }

    /// Adds this thread's registration with DPDK.
    #[cfg(feature = "dpdk")]
    pub(super) fn with_registration(mut self, registration: Option<ThreadRegistration>) -> Self {
        self.tx.registration = registration;
        self
    }

    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    /// Returns the state of each device.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        self.tx.ports.iter().map(Port::state).collect()
    }

    /// Returns the number of frames that wait for room or are queued in devices.
    #[must_use]
    pub fn frames_in_use(&self) -> usize {
        self.tx.ports.iter().map(Port::frames_in_use).sum()
    }

    /// Sends an ICMP echo request of `len` bytes, 4 to [`mtu`](Transmit::mtu), to a host, whose
    /// driver or kernel answers it. Returns whether the request was passed to a port. While the
    /// host's hardware address is unknown, the request is dropped, and the driver resolves the
    /// address.
    pub fn ping(&mut self, peer: IpAddr, number: u32, len: usize) -> bool {
        self.tx.ping(peer, number, len)
    }

    /// Returns the number of a ping that was answered and that no earlier call has returned, if
    /// there is one.
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
    /// Implements [`Driver::receive`] for any `holder` of the sending half. `of` returns the
    /// holder's sending half.
    pub(crate) fn receive<T>(
        &mut self,
        holder: &mut T,
        of: impl Fn(&mut T) -> &mut BypassTx,
        sink: Sink<'_, T>,
    ) -> usize {
        of(holder).wake();
        let mut frames = 0;
        for _ in 0..POLLS {
            for at in 0..of(holder).ports.len() {
                frames += self.poll_port(at, holder, &of, sink);
            }
            if frames > 0 {
                break;
            }
        }
        of(holder).end_iteration();
        frames
    }

    #[inline]
    fn poll_port<T>(
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
                of(holder).hand_over_foreign(at, &mut self.burst);
            }
            for (frame, checked) in self.burst.iter() {
                frames += handle_frame(at, frame, checked, holder, of, sink);
            }
            self.burst.clear();
            if shared {
                frames += receive_handed_over(at, holder, of, sink);
            }
            return frames;
        }
        for _ in 0..BURST {
            let Some(len) =
                of(holder).ports[at].memif().and_then(|memif| memif.take(&mut self.frame))
            else {
                break;
            };
            frames += handle_frame(at, &self.frame[..len], true, holder, of, sink);
        }
        if let Some(memif) = of(holder).ports[at].memif() {
            memif.release();
        }
        frames
    }
}

/// Handles a frame. If it is a datagram for this node, passes it to `sink` and returns 1; otherwise
/// returns 0.
#[inline]
fn handle_frame<T>(
    at: usize,
    frame: &[u8],
    checked: bool,
    holder: &mut T,
    of: &impl Fn(&mut T) -> &mut BypassTx,
    sink: Sink<'_, T>,
) -> usize {
    let tx = of(holder);
    match tx.host.read(at, frame, checked, &mut tx.counters) {
        FrameEvent::Datagram { from, payload } => {
            tx.counters.received(payload.len());
            sink(holder, from, &frame[payload]);
            return 1;
        }
        FrameEvent::Request if tx.replies_for_host() => tx.reply_over(at),
        FrameEvent::EchoReply { number, .. } if tx.pongs.len() < MAX_PONGS => tx.pongs.push(number),
        FrameEvent::Request | FrameEvent::EchoReply { .. } | FrameEvent::Nothing => {}
    }
    0
}

/// Handles frames for this node that other nodes received.
#[cfg(feature = "dpdk")]
fn receive_handed_over<T>(
    at: usize,
    holder: &mut T,
    of: &impl Fn(&mut T) -> &mut BypassTx,
    sink: Sink<'_, T>,
) -> usize {
    let mut frames = 0;
    for _ in 0..BURST {
        let Some(parcel) = of(holder).share.as_ref().and_then(DeviceShare::take) else { break };
        let (frame, checked) = parcel.frame();
        frames += handle_frame(at, frame, checked, holder, of, sink);
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
            Err(Unroutable::Resolving(first)) => {
                if first {
                    self.solicit(peer.ip());
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
    /// Returns the driver's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.host.address()
    }

    /// Returns the hardware address of the first device.
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

    /// Hands each frame for another node over to that node, and a copy of each frame for all nodes
    /// to every other node.
    #[cfg(feature = "dpdk")]
    fn hand_over_foreign(&mut self, port: usize, burst: &mut Burst) {
        let (Some(share), Some(pool)) = (&self.share, self.ports[port].pool()) else { return };
        let (own, nodes) = (share.number(), share.nodes());
        let first = self.host.address().port() - u16::try_from(own).expect("few");
        let node_of = |frame: &[u8]| exchange::destination_node(frame, first, nodes);
        burst.take_out(
            |frame| node_of(frame).filter(|&number| number != own),
            |to, parcel| share.hand_over(to, parcel),
        );
        for (frame, checked) in burst.iter().filter(|(frame, _)| node_of(frame).is_none()) {
            for other in share.others() {
                if let Some(copy) = Parcel::copy(frame, checked, pool) {
                    share.hand_over(other, copy);
                }
            }
        }
    }

    /// Returns whether this node answers requests to the address. Of the nodes that share it, one
    /// does.
    #[cfg(feature = "dpdk")]
    fn replies_for_host(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.number() == 0)
    }

    #[cfg(not(feature = "dpdk"))]
    fn replies_for_host(&self) -> bool {
        true
    }

    /// Leaves the sleeping state, if the node slept. The iteration then ends with maintenance, for
    /// which a port may have woken the node.
    #[inline]
    fn wake(&mut self) {
        if self.asleep.replace(false) {
            self.ports.iter_mut().filter_map(Port::memif).for_each(Memif::wake);
            #[cfg(feature = "dpdk")]
            self.share.iter().for_each(DeviceShare::wake);
            (self.iterations, self.maintained) = (u32::MAX, Nanos(0));
        }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    fn reply_over(&mut self, port: usize) {
        self.ports[port].send_frame(self.host.reply(), &mut self.counters);
    }

    fn solicit(&mut self, ip: IpAddr) {
        for (at, port) in self.ports.iter_mut().enumerate() {
            port.send_frame(self.host.solicitation(ip, at), &mut self.counters);
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
            Err(Unroutable::Resolving(true)) => {
                self.solicit(peer);
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

    /// Periodic work at the end of each call of `receive`.
    #[inline]
    fn end_iteration(&mut self) {
        self.iterations = self.iterations.wrapping_add(1);
        if self.iterations.is_multiple_of(CLOCK_ITERATIONS) || !self.parked.is_empty() {
            self.maintain();
        }
    }

    #[cold]
    fn maintain(&mut self) {
        if !self.parked.is_empty() {
            for (peer, payload) in std::mem::take(&mut self.parked) {
                // Parks the payload again if the neighbour is still unknown.
                self.send(peer, &[IoSlice::new(&payload)]);
            }
            self.flush();
        }
        let now = self.now();
        let every =
            if self.ports.iter().any(Port::is_joining) { JOINING_MAINTENANCE } else { MAINTENANCE };
        if now.since(self.maintained) < every && self.maintained != Nanos(0) {
            return;
        }
        self.maintained = now;
        for (at, port) in self.ports.iter_mut().enumerate() {
            let up = port.maintain(now, &mut self.counters);
            self.host.set_mac(at, port.mac());
            if self.host.set_link(at, up) {
                port.send_frame(self.host.announcement(at), &mut self.counters);
            }
        }
        let Self { host, ports, counters, .. } = self;
        host.watch(now, |port, frame| ports[port].send_frame(frame, counters));
        while let Some(ip) = self.host.take_due(now) {
            self.solicit(ip);
        }
    }
}
