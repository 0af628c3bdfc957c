//! One device of the driver, and the frames on their way to it.

use std::time::Duration;

use super::interface::{Interface, Standing};
use super::sys::{Device, Draft, Pool};
use crate::{Counters, Mac, Nanos};

/// Frames that wait for room in a device's ring; the oldest are dropped beyond that.
const MAX_OUTGOING: usize = 512;

/// Frames that leave unasked.
const BATCH: usize = 32;

/// Wait between two attempts to start a device whose peer is not there.
const RESTART: Duration = Duration::from_millis(100);

/// Time that a device which has found its peer is given to come to terms with it. On a machine with more to do than it
/// has cores that takes a while, and whoever begins anew each time never ends.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Longest time for which a link is left alone whose peer has said that it goes.
const PARTING: Duration = Duration::from_millis(200);

/// How a device fares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceState {
    /// As DPDK names it.
    pub name: String,
    /// Its driver in DPDK.
    pub driver: String,
    /// Its hardware address.
    pub mac: Mac,
    /// Whether the other end is there.
    pub up: bool,
    /// How often that has changed.
    pub changes: u64,
    /// Frames lost because nobody took those before in time.
    pub missed: u64,
    /// Frames that came broken or could not be sent.
    pub errors: u64,
    /// Frames lost because the pool was empty.
    pub no_buffer: u64,
}

pub(super) struct Link {
    outgoing: Vec<Draft>,
    device: Device,
    /// Whether the device looks for its peer only when it is started.
    calls: bool,
    up: bool,
    changes: u64,
    restart: Nanos,
    /// Whether it is memory that the peer's process shares.
    shares: bool,
    /// The device is left alone, for its peer is about to go; until when, once that has been settled.
    parting: bool,
    parting_until: Nanos,
    /// What the device stands on, if that is an interface of the kernel's.
    below: Option<Interface>,
    /// Whether the device looks for its peer only when it is opened.
    dials: bool,
}

impl Link {
    /// A link over a device that is set up and perhaps started. `calls`: it looks for its peer only when it is started.
    /// `shares`: it is memory that the peer's process shares.
    pub(super) fn new(device: Device, calls: bool, shares: bool) -> Self {
        let (up, started) = (device.is_up(), device.is_started());
        let below = device.arguments().and_then(Interface::below);
        Self {
            outgoing: Vec::with_capacity(MAX_OUTGOING),
            dials: device.arguments().is_some_and(dials),
            device,
            below,
            calls,
            up,
            changes: 0,
            restart: Nanos(0) + if started { HANDSHAKE } else { RESTART },
            shares,
            parting: false,
            parting_until: Nanos::NEVER,
        }
    }

    pub(super) fn mac(&self) -> Mac {
        self.device.mac()
    }

    pub(super) fn state(&self) -> DeviceState {
        let counted = self.device.counters();
        DeviceState {
            name: self.device.name().to_owned(),
            driver: self.device.driver(),
            mac: self.device.mac(),
            up: self.device.is_up() && self.stands(),
            changes: self.changes,
            missed: counted.missed,
            errors: counted.errors_in + counted.errors_out,
            no_buffer: counted.no_buffer,
        }
    }

    /// Whether what is below the device carries frames. If not, the device would wait for it, and the node with it.
    #[inline]
    fn stands(&self) -> bool {
        self.below.as_ref().is_none_or(Interface::is_up)
    }

    /// The device, if there can be anything to receive.
    #[inline]
    pub(super) fn device_to_receive(&mut self) -> Option<&mut Device> {
        (self.device.is_started() && !self.parting).then_some(&mut self.device)
    }

    /// The peer is about to go. A device that shares memory with it takes that away on a thread of its own, without asking
    /// who is using it: from here on nobody is, until the link is down.
    pub(super) fn part(&mut self) {
        if self.shares && !self.parting {
            (self.parting, self.parting_until) = (true, Nanos::NEVER);
        }
    }

    /// Whether the other end is to be told when we go.
    pub(super) fn says_farewell(&self) -> bool {
        self.shares && self.up
    }

    /// Takes a frame to send.
    #[inline]
    pub(super) fn push(&mut self, frame: Draft, counters: &mut Counters) {
        self.outgoing.push(frame);
        if self.outgoing.len() >= BATCH {
            self.flush(counters);
        }
    }

    /// Whether the device copies frames at once, so that [`push_with`](Self::push_with) is of use.
    #[inline]
    pub(super) fn copies(&self) -> bool {
        self.device.copies() && self.device.is_started() && !self.parting && self.stands()
    }

    /// Sends a frame that begins with `head` and ends with `tail`, behind those that wait; gives `head` back if there is
    /// no room.
    #[inline]
    pub(super) fn push_with(
        &mut self,
        pool: &Pool,
        head: Draft,
        tail: &[u8],
        counters: &mut Counters,
    ) -> Option<Draft> {
        self.flush(counters);
        if !self.outgoing.is_empty() {
            return Some(head);
        }
        counters.sends += 1;
        self.device.transmit_with(pool, head, tail)
    }

    /// Hands what waits to the device, as far as it has room.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        if self.outgoing.is_empty() {
            return;
        }
        if self.device.is_started() && !self.parting && self.stands() {
            counters.sends += 1;
            self.device.transmit(&mut self.outgoing);
        }
        if self.outgoing.len() >= MAX_OUTGOING - BATCH {
            let old = self.outgoing.len() - (MAX_OUTGOING - 2 * BATCH);
            counters.dropped_full += old as u64;
            self.outgoing.drain(..old);
        }
    }

    /// Starts a device that could not be, sends what waits, and sees whether the other end is there: returns that.
    pub(super) fn tend(&mut self, now: Nanos, pool: &Pool, counters: &mut Counters) -> bool {
        self.look_below(now, pool);
        if self.calls && self.device.is_started() && !self.up && now >= self.restart {
            self.device.stop();
        }
        if !self.device.is_started() && now >= self.restart {
            // Its peer is not there yet, most likely; if it is something else that shows as a link that is down.
            self.restart = now + if self.device.start().is_ok() { HANDSHAKE } else { RESTART };
        }
        self.flush(counters);
        let up = self.device.is_up() && self.stands();
        if self.parting && self.parting_until == Nanos::NEVER {
            self.parting_until = now + PARTING;
        }
        self.parting &= now < self.parting_until;
        if up != self.up {
            self.changes += 1;
            self.up = up;
            self.parting = false;
            self.restart = now + RESTART; // the peer ends first what it began
        }
        up
    }

    /// Notes how the interface below fares, and opens the device anew when that is another (one that was removed and
    /// made again, by its name), or when a peer that it can only meet by that has gone.
    fn look_below(&mut self, now: Nanos, pool: &Pool) {
        let replaced = self.below.as_mut().is_some_and(|below| below.look() == Standing::Another);
        if (replaced || self.dials && !self.up) && now >= self.restart {
            let opened = self.device.reopen(pool).is_ok();
            self.restart = now + if opened { HANDSHAKE } else { RESTART };
            if let (true, Some(below)) = (opened, &mut self.below) {
                below.opened_again();
            }
        }
    }
}

/// Whether a device connects to a peer that listens, once: then it has to be opened anew for another peer.
fn dials(arguments: &str) -> bool {
    arguments.starts_with("net_virtio_user") && !arguments.contains("server=1") && !arguments.contains("/dev/vhost-net")
}
