//! A network in memory with its own time, for tests and the simulator.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use crate::driver::Sink;
use crate::{Counters, Driver, MAX_FRAME, Nanos, Transmit};

/// Limit on the frames that wait at a port, and on the frames that a sender has staged. Further
/// frames are dropped. A hub also drops frames while as many are in transit as this limit times the
/// number of its ports.
pub const QUEUE_LIMIT: usize = 16_384;

/// The largest number of frames that one call of [`Driver::receive`] passes on.
const RECEIVE_BATCH: usize = 64;

/// The largest number of buffers kept for reuse.
const SPARE_BUFFERS: usize = 1024;

/// Properties of a hub's network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HubOptions {
    /// The largest frame, in bytes; at most [`MAX_FRAME`].
    pub mtu: usize,
    /// What [`Transmit::reliable`] returns. If it is true, the hub's policy must neither lose,
    /// repeat nor reorder frames.
    pub reliable: bool,
}

impl Default for HubOptions {
    /// Returns the properties of UDP over Ethernet.
    fn default() -> Self {
        Self { mtu: 1472, reliable: false }
    }
}

/// A frame that is about to be sent, as the hub's policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Flight<'a> {
    /// The time at which the frame is sent.
    pub now: Nanos,
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// The frame's bytes.
    pub frame: &'a [u8],
}

/// What the network does with a frame. A frame with a shorter delay may overtake an earlier frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    /// The frame is lost.
    Drop,
    /// The frame arrives after this time.
    Deliver(Duration),
    /// The frame arrives twice, after these times.
    Twice(Duration, Duration),
}

type Policy = Box<dyn FnMut(Flight<'_>) -> Delivery>;

/// A network in memory. Each node gets a driver from [`port`](Self::port). Clones are handles of
/// the same network.
///
/// The caller owns time: frames arrive only when the caller calls
/// [`deliver_until`](Self::deliver_until). Equal calls give equal deliveries in the same order. A
/// [policy](Self::set_policy) delays, drops or repeats frames; without a policy each frame arrives
/// once, without delay. A hub and all its ports live on one thread.
#[derive(Clone)]
pub struct Hub {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    options: HubOptions,
    now: Nanos,
    /// The number of frames put in transit so far. It orders frames that are due at the same time.
    sequence: u64,
    policy: Policy,
    under_way: BinaryHeap<Reverse<InTransit>>,
    ports: BTreeMap<SocketAddr, Port>,
    spare: Vec<Vec<u8>>,
    /// Frames that found no port at their address, or a port whose queue was full.
    lost: u64,
}

#[derive(Default)]
struct Port {
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
}

#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct InTransit {
    due: Nanos,
    sequence: u64,
    from: SocketAddr,
    to: SocketAddr,
    frame: Vec<u8>,
}

impl Hub {
    /// Creates an empty network at time zero.
    ///
    /// # Panics
    /// If the MTU is zero or above [`MAX_FRAME`].
    #[must_use]
    pub fn new(options: HubOptions) -> Self {
        assert!((1..=MAX_FRAME).contains(&options.mtu));
        let inner = Inner {
            options,
            now: Nanos(0),
            sequence: 0,
            policy: Box::new(|_| Delivery::Deliver(Duration::ZERO)),
            under_way: BinaryHeap::new(),
            ports: BTreeMap::new(),
            spare: Vec::new(),
            lost: 0,
        };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    /// Sets the policy that decides what happens to each frame from now on. The policy must not
    /// call the hub.
    pub fn set_policy(&self, policy: impl FnMut(Flight<'_>) -> Delivery + 'static) {
        self.inner.borrow_mut().policy = Box::new(policy);
    }

    /// Creates a port at `address`. Dropping the driver removes the port. Frames in transit then go
    /// to the port that has the address when they arrive, for example that of a restarted node.
    ///
    /// # Errors
    /// `AddrInUse` if the address is taken.
    pub fn port(&self, address: SocketAddr) -> io::Result<Mem> {
        let mut inner = self.inner.borrow_mut();
        if inner.ports.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        inner.ports.insert(address, Port::default());
        let tx =
            MemTx { hub: self.clone(), address, staged: Vec::new(), counters: Counters::default() };
        Ok(Mem { tx })
    }

    /// Returns the network's time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.inner.borrow().now
    }

    /// Returns the time at which the next frame in transit is due, if there is one.
    #[must_use]
    pub fn next_delivery(&self) -> Option<Nanos> {
        self.inner.borrow().under_way.peek().map(|Reverse(delivery)| delivery.due)
    }

    /// Advances time to `now`, and moves the frames that are due into their ports, earliest first.
    /// Returns how many it delivered. Time never goes back: a `now` before the hub's time delivers
    /// the frames due until then, and leaves the hub's time unchanged.
    pub fn deliver_until(&self, now: Nanos) -> usize {
        let mut inner = self.inner.borrow_mut();
        inner.now = inner.now.max(now);
        let mut delivered = 0;
        while inner.under_way.peek().is_some_and(|Reverse(delivery)| delivery.due <= now) {
            let Some(Reverse(InTransit { from, to, frame, .. })) = inner.under_way.pop() else {
                break;
            };
            match inner.ports.get_mut(&to) {
                Some(port) if port.waiting.len() < QUEUE_LIMIT => {
                    port.waiting.push_back((from, frame));
                    delivered += 1;
                }
                _ => {
                    inner.lost += 1;
                    inner.recycle(frame);
                }
            }
        }
        delivered
    }

    /// Returns the number of frames that wait to be received at the port of `address`; 0 if there
    /// is no such port.
    #[must_use]
    pub fn waiting(&self, address: SocketAddr) -> usize {
        self.inner.borrow().ports.get(&address).map_or(0, |port| port.waiting.len())
    }

    /// Returns the number of frames that were lost on arrival, because no port had the address or
    /// the port's queue was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.inner.borrow().lost
    }
}

impl Inner {
    /// Sends a frame, or drops it if the policy says so. Returns false if there was no room for the
    /// frame.
    fn launch(&mut self, from: SocketAddr, to: SocketAddr, frame: Vec<u8>) -> bool {
        if self.under_way.len() >= QUEUE_LIMIT * self.ports.len().max(1) {
            self.recycle(frame);
            return false;
        }
        match (self.policy)(Flight { now: self.now, from, to, frame: &frame }) {
            Delivery::Drop => self.recycle(frame),
            Delivery::Deliver(after) => self.enqueue(after, from, to, frame),
            Delivery::Twice(first, second) => {
                let mut copy = self.spare.pop().unwrap_or_default();
                copy.extend_from_slice(&frame);
                self.enqueue(first, from, to, frame);
                self.enqueue(second, from, to, copy);
            }
        }
        true
    }

    fn enqueue(&mut self, after: Duration, from: SocketAddr, to: SocketAddr, frame: Vec<u8>) {
        self.sequence += 1;
        let delivery =
            InTransit { due: self.now + after, sequence: self.sequence, from, to, frame };
        self.under_way.push(Reverse(delivery));
    }

    fn recycle(&mut self, mut frame: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            frame.clear();
            self.spare.push(frame);
        }
    }
}

/// A driver plugged into a [`Hub`].
pub struct Mem {
    tx: MemTx,
}

/// The sending half of [`Mem`]. Every frame, whatever its size, is sent only at the flush, so that
/// tests notice a missing flush.
pub struct MemTx {
    hub: Hub,
    address: SocketAddr,
    staged: Vec<(SocketAddr, Vec<u8>)>,
    counters: Counters,
}

impl Mem {
    /// Returns the port's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.tx.counters
    }

    pub(crate) fn into_tx(self) -> MemTx {
        self.tx
    }
}

impl Driver for Mem {
    type Tx = MemTx;

    fn local_addr(&self) -> SocketAddr {
        self.tx.address
    }

    fn tx(&mut self) -> &mut MemTx {
        &mut self.tx
    }

    fn receive(&mut self, sink: Sink<'_, MemTx>) -> io::Result<usize> {
        receive(&mut self.tx, |tx| tx, sink)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Implements [`Driver::receive`] for any `holder` of the sending half. `of` returns the holder's
/// sending half.
pub(crate) fn receive<T>(
    holder: &mut T,
    of: impl Fn(&mut T) -> &mut MemTx,
    sink: Sink<'_, T>,
) -> io::Result<usize> {
    for taken in 0..RECEIVE_BATCH {
        let tx = of(holder);
        let next = tx
            .hub
            .inner
            .borrow_mut()
            .ports
            .get_mut(&tx.address)
            .and_then(|port| port.waiting.pop_front());
        let Some((peer, frame)) = next else { return Ok(taken) };
        tx.counters.received(frame.len());
        sink(holder, peer, &frame);
        of(holder).hub.inner.borrow_mut().recycle(frame);
    }
    Ok(RECEIVE_BATCH)
}

impl Transmit for MemTx {
    fn mtu(&mut self, _peer: SocketAddr) -> usize {
        self.hub.inner.borrow().options.mtu
    }

    fn reliable(&self) -> bool {
        self.hub.inner.borrow().options.reliable
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut inner = self.hub.inner.borrow_mut();
        if len == 0 || len > inner.options.mtu {
            self.counters.dropped_size += 1;
        } else if self.staged.len() >= QUEUE_LIMIT {
            self.counters.dropped_full += 1;
        } else {
            let mut frame = inner.spare.pop().unwrap_or_default();
            for part in parts {
                frame.extend_from_slice(part);
            }
            self.staged.push((peer, frame));
        }
    }

    fn flush(&mut self) {
        let mut inner = self.hub.inner.borrow_mut();
        for (peer, frame) in self.staged.drain(..) {
            let len = frame.len();
            self.counters.sends += 1;
            if inner.launch(self.address, peer, frame) {
                self.counters.sent(1, len);
            } else {
                self.counters.dropped_full += 1;
            }
        }
    }
}

impl MemTx {
    /// Returns the port's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MemTx {
    fn drop(&mut self) {
        self.hub.inner.borrow_mut().ports.remove(&self.address);
    }
}
