//! Devices that DPDK drives, and the frames queued for them.

mod arguments;
mod interface;
mod netlink;
mod open;
mod sleep;
mod sys;
mod xdp;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use self::arguments::dials;
use self::interface::{Interface, InterfaceState};
use self::sleep::Sleep;
use self::sys::{Bell, Device};
use self::xdp::SharedInterface;
use super::state::DeviceState;
use crate::ether::Route;
use crate::{Counters, Mac, Nanos, Sources};

pub(super) use self::open::AcceptedFrames;
pub(super) use self::sys::{Burst, Draft, Parcel, Pool, SharedDevice, ThreadRegistration, start};

/// Capacity of the list of frames that wait for room in a device's ring. If `MAX_OUTGOING - BATCH`
/// or more frames remain after a flush, the oldest are dropped until `MAX_OUTGOING - 2 * BATCH`
/// remain.
const MAX_OUTGOING: usize = 512;

/// Number of waiting frames at which they are sent without waiting for the flush.
const BATCH: usize = 32;

/// If a frame's last part has at least this many bytes, it is passed in place to a device that
/// copies frames. For a shorter part, a second buffer costs as much as a copy.
const LEAST_TAIL: usize = 1024;

/// Delay between two attempts to start a device.
const RESTART: Duration = Duration::from_millis(100);

/// Time given to a device that was opened or reopened to shake hands with its peer.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// A device of DPDK's, and the frames that wait to be sent over it.
pub(super) struct Dpdk {
    outgoing: Vec<Draft>,
    device: Device,
    sleep: Sleep,
    up: bool,
    changes: u64,
    restart: Nanos,
    trouble: Option<String>,
    /// The kernel's interface below the device, if there is one.
    interface: Option<Interface>,
    /// Whether that interface was removed.
    interface_removed: bool,
    /// Whether the device looks for its peer only when it is opened.
    dials: bool,
    /// Kept because a device that shares an interface with the kernel may need it when it is
    /// reopened.
    _shared_interface: Option<SharedInterface>,
    /// If true, the device is not reopened when another interface has taken the name of the
    /// interface below: the user may not have meant that other interface.
    pinned: bool,
    /// Dropped after all fields that hold its frames.
    pool: Pool,
}

impl Dpdk {
    /// Wraps a device that is set up with the pool, and perhaps started.
    fn new(
        device: Device,
        pool: Pool,
        shared_interface: Option<SharedInterface>,
        trouble: Option<String>,
        pinned: bool,
    ) -> Self {
        Self {
            outgoing: Vec::with_capacity(MAX_OUTGOING),
            up: device.is_up(),
            changes: 0,
            restart: Nanos(0) + if device.is_started() { HANDSHAKE } else { RESTART },
            trouble,
            interface: device.arguments().and_then(Interface::of_device),
            interface_removed: false,
            dials: device.arguments().is_some_and(dials),
            device,
            sleep: Sleep::new(),
            _shared_interface: shared_interface,
            pinned,
            pool,
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
            up: self.device.is_up() && self.interface_is_up(),
            changes: self.changes,
            missed: counted.missed,
            errors: counted.errors_in + counted.errors_out,
            unsent: counted.errors_out,
            no_buffer: counted.no_buffer,
            trouble: self.trouble.clone(),
            steers: self.device.steers(),
        }
    }

    /// Returns whether the interface below carries frames. If it does not, a transmit would block
    /// the device, and the node with it.
    #[inline]
    fn interface_is_up(&self) -> bool {
        self.interface.as_ref().is_none_or(Interface::is_up)
    }

    /// Returns whether there is a kernel's interface below the device.
    pub(super) fn has_interface(&self) -> bool {
        self.interface.is_some()
    }

    /// Returns whether the interface below was removed, as of the last
    /// [`maintain`](Self::maintain).
    pub(super) fn is_interface_removed(&self) -> bool {
        self.interface_removed
    }

    /// Returns whether frames can be sent: the link was up at the last
    /// [`maintain`](Self::maintain).
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.up && self.interface_is_up()
    }

    /// Returns the number of frames that wait for room in the device's ring.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// Drops the waiting frames and returns how many.
    pub(super) fn discard_waiting(&mut self) -> usize {
        self.outgoing.drain(..).count()
    }

    /// Sends a whole frame, given in parts. `len` is the sum of their lengths, in bytes. Returns
    /// false if it is too long or the pool is empty.
    #[inline]
    pub(super) fn send_parts(
        &mut self,
        parts: &[IoSlice<'_>],
        len: usize,
        counters: &mut Counters,
    ) -> bool {
        if len > self.pool.room() {
            return false;
        }
        let Some(mut draft) = self.pool.draft() else { return false };
        gather(draft.bytes(len, &self.pool), parts);
        self.push(draft, counters);
        true
    }

    /// Returns the pool of the device's frames.
    pub(super) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Returns the number of frames in the pool, free and in use.
    pub(super) fn frames(&self) -> usize {
        self.pool.frames()
    }

    /// Returns the number of frames that are queued or at the device.
    pub(super) fn frames_in_use(&self) -> usize {
        self.pool.used()
    }

    /// Joins a multicast group.
    pub(super) fn join_group(&mut self, group: Mac) {
        if let Err(error) = self.device.join_group(group) {
            self.trouble = Some(error.to_string());
        }
    }

    /// Receives the frames that have arrived.
    #[inline]
    pub(super) fn receive(&mut self, burst: &mut Burst) {
        if self.device.is_started() {
            self.sleep.before_poll(&self.device);
            burst.receive(&mut self.device);
            self.sleep.after_poll(!burst.is_empty(), &self.device);
        }
    }

    /// Returns the device's packet socket on the kernel's interface below, if there is one.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.device.bell().filter(|bell| !bell.is_armed()).map(Bell::fd)
    }

    /// Adds the descriptors to sleep on.
    pub(super) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        // The device must be polled while frames wait to be sent, no frame is free to receive into,
        // or the peer is not there.
        let busy = !self.outgoing.is_empty()
            || !self.up
            || !self.interface_is_up()
            || self.pool.is_empty();
        self.sleep.sources(&self.device, busy, sources);
        if let Some(interface) = self.interface.as_ref().filter(|_| sources.room() > 0) {
            sources.push(interface.fd());
        }
    }

    /// Sends a datagram, given its route and its parts. `len` is the sum of the parts' lengths, in
    /// bytes.
    #[inline]
    pub(super) fn send(
        &mut self,
        route: &Route,
        parts: &[IoSlice<'_>],
        len: usize,
        counters: &mut Counters,
    ) {
        let Some(mut draft) = self.pool.draft() else {
            counters.dropped_full += 1;
            return;
        };
        if let [first @ .., tail] = parts
            && tail.len() >= LEAST_TAIL
            && route.is_blind()
            && self.device.copies()
            && self.device.is_started()
            && self.interface_is_up()
        {
            let head = draft.bytes(route.len() + len - tail.len(), &self.pool);
            gather(&mut head[route.len()..], first);
            route.finish_before(head, tail.len());
            let Some(back) = self.push_with(draft, tail, counters) else { return };
            draft = back; // no room: a copy of the tail waits with the head
        }
        let bytes = draft.bytes(route.len() + len, &self.pool);
        gather(&mut bytes[route.len()..], parts);
        route.finish(bytes);
        if route.device_checks() {
            let (before, ip) = route.layers();
            draft.request_checksum(before, ip, route.is_v6());
        }
        self.push(draft, counters);
    }

    /// Sends a whole frame.
    pub(super) fn send_frame(&mut self, frame: &[u8], counters: &mut Counters) {
        let Some(mut draft) = self.pool.draft() else {
            counters.dropped_full += 1;
            return;
        };
        if frame.len() > self.pool.room() {
            counters.dropped_size += 1;
            return;
        }
        draft.bytes(frame.len(), &self.pool).copy_from_slice(frame);
        self.push(draft, counters);
    }

    #[inline]
    fn push(&mut self, frame: Draft, counters: &mut Counters) {
        self.outgoing.push(frame);
        if self.outgoing.len() >= BATCH {
            self.flush(counters);
        }
    }

    /// Sends a frame that begins with `head` and ends with `tail`, after the waiting frames.
    /// Returns `head` if there is no room.
    #[inline]
    fn push_with(&mut self, head: Draft, tail: &[u8], counters: &mut Counters) -> Option<Draft> {
        self.flush(counters);
        if !self.outgoing.is_empty() {
            return Some(head);
        }
        counters.sends += 1;
        self.device.transmit_with(&self.pool, head, tail)
    }

    /// Passes the waiting frames to the device, as many as it has room for.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        if self.outgoing.is_empty() {
            return;
        }
        if self.device.is_started() && self.interface_is_up() {
            counters.sends += 1;
            self.device.transmit(&mut self.outgoing);
        }
        if self.outgoing.len() >= MAX_OUTGOING - BATCH {
            let old = self.outgoing.len() - (MAX_OUTGOING - 2 * BATCH);
            counters.dropped_full += old as u64;
            self.outgoing.drain(..old);
        }
    }

    /// Checks the interface below, starts the device if an earlier start failed, and sends waiting
    /// frames. Returns whether the link is up.
    pub(super) fn maintain(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        counters.no_buffer += u64::from(self.pool.is_empty());
        self.check_interface(now);
        if !self.device.is_started() && now >= self.restart {
            self.restart = now + RESTART;
            let started = self.device.start();
            self.note_error(started);
        }
        self.flush(counters);
        let up = self.device.is_up() && self.interface_is_up();
        if up != self.up {
            (self.up, self.restart) = (up, now + RESTART); // the peer first finishes what it began
            self.changes += 1;
            self.sleep.wake(&self.device);
            self.device.find_interrupt();
        }
        up
    }

    /// Remembers the device's error and logs it if it has changed. Returns whether there is no
    /// error.
    fn note_error(&mut self, ended: io::Result<()>) -> bool {
        let trouble = ended.err().map(|error| error.to_string());
        if trouble != self.trouble {
            let name = self.device.name();
            match &trouble {
                Some(why) => tracing::warn!("device {name}: {why}; trying again"),
                None => tracing::info!("device {name}: works again"),
            }
            self.trouble = trouble;
        }
        self.trouble.is_none()
    }

    /// Updates the state of the interface below. Reopens the device in two cases: the interface was
    /// removed and created again with the same name, or a device that connects only once has lost
    /// its peer.
    fn check_interface(&mut self, now: Nanos) {
        let state = self.interface.as_mut().map(Interface::poll);
        self.interface_removed =
            matches!(state, Some(InterfaceState::Gone | InterfaceState::Replaced));
        let replaced = state == Some(InterfaceState::Replaced) && !self.pinned;
        if (replaced || self.dials && !self.up) && now >= self.restart {
            let reopened = self.device.reopen(&self.pool);
            let opened = self.note_error(reopened);
            self.sleep.wake(&self.device);
            self.restart = now + if opened { HANDSHAKE } else { RESTART };
            if let (true, Some(interface)) = (opened, &mut self.interface) {
                interface.reopened();
            }
        }
    }
}

/// Copies `parts` one after the other.
#[inline]
fn gather(to: &mut [u8], parts: &[IoSlice<'_>]) {
    let mut at = 0;
    for part in parts {
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}
