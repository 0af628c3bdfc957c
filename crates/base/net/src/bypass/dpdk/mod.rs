//! Devices that DPDK drives, and the frames on their way to them.

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
use self::interface::{Interface, Standing};
use self::sleep::Sleep;
use self::sys::{Bell, Device};
use self::xdp::Shared;
use super::state::DeviceState;
use crate::ether::Route;
use crate::{Counters, Mac, Nanos, Sources};

pub(super) use self::open::Whose;
pub(super) use self::sys::{Burst, Draft, Joint, Parcel, Pool, Seat, start};

/// Frames that wait for room in a device's ring; the oldest are dropped beyond that.
const MAX_OUTGOING: usize = 512;

/// Frames that leave unasked.
const BATCH: usize = 32;

/// A last part of at least this many bytes goes to a device that copies from where it lies. Below
/// it a second buffer costs as much as a copy.
const LEAST_TAIL: usize = 1024;

/// Wait between two attempts to start a device that could not be.
const RESTART: Duration = Duration::from_millis(100);

/// Time that a device which has been opened again is given to come to terms with its peer.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// A device of DPDK's, one queue each way.
pub(super) struct Dpdk {
    outgoing: Vec<Draft>,
    device: Device,
    sleep: Sleep,
    up: bool,
    changes: u64,
    restart: Nanos,
    trouble: Option<String>,
    /// What the device stands on, if that is an interface of the kernel's.
    below: Option<Interface>,
    /// That interface was removed.
    gone: bool,
    /// Whether the device looks for its peer only when it is opened.
    dials: bool,
    /// What a device that shares an interface with the kernel may need when it is opened again.
    _shared: Option<Shared>,
    /// Left alone when the interface below is another all of a sudden: it may not be the one that
    /// was meant.
    anchored: bool,
    /// Given up behind whoever has frames of it.
    pool: Pool,
}

impl Dpdk {
    /// A device that is set up with the pool, and perhaps started.
    fn new(
        device: Device,
        pool: Pool,
        shared: Option<Shared>,
        trouble: Option<String>,
        anchored: bool,
    ) -> Self {
        Self {
            outgoing: Vec::with_capacity(MAX_OUTGOING),
            up: device.is_up(),
            changes: 0,
            restart: Nanos(0) + if device.is_started() { HANDSHAKE } else { RESTART },
            trouble,
            below: device.arguments().and_then(Interface::below),
            gone: false,
            dials: device.arguments().is_some_and(dials),
            device,
            sleep: Sleep::new(),
            _shared: shared,
            anchored,
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
            up: self.device.is_up() && self.stands(),
            changes: self.changes,
            missed: counted.missed,
            errors: counted.errors_in + counted.errors_out,
            unsent: counted.errors_out,
            no_buffer: counted.no_buffer,
            trouble: self.trouble.clone(),
            steers: self.device.steers(),
        }
    }

    /// Whether what is below the device carries frames. If not, the device would wait for it, and
    /// the node with it.
    #[inline]
    fn stands(&self) -> bool {
        self.below.as_ref().is_none_or(Interface::is_up)
    }

    /// Whether it stands on an interface of the kernel's.
    pub(super) fn has_interface(&self) -> bool {
        self.below.is_some()
    }

    /// Whether the interface below was removed, as of when this was last tended.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether frames can be sent: the other end was there when this was last tended.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.up && self.stands()
    }

    /// Frames that wait for room in the device's ring.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// Drops what waits; how many those were.
    pub(super) fn forget(&mut self) -> usize {
        self.outgoing.drain(..).count()
    }

    /// Takes a whole frame in parts, `len` bytes together; whether there was a frame of ours for
    /// it.
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

    /// Where its frames come from.
    pub(super) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Frames in the pool when none is out.
    pub(super) fn frames(&self) -> usize {
        self.pool.frames()
    }

    /// Frames that are not in the pool: queued, or at the device.
    pub(super) fn frames_in_use(&self) -> usize {
        self.pool.used()
    }

    /// Has it take in frames to a group.
    pub(super) fn hear(&mut self, group: Mac) {
        if let Err(error) = self.device.hear(group) {
            self.trouble = Some(error.to_string());
        }
    }

    /// Takes what has arrived.
    #[inline]
    pub(super) fn receive(&mut self, burst: &mut Burst) {
        if self.device.is_started() {
            self.sleep.before_look(&self.device);
            burst.receive(&mut self.device);
            self.sleep.after_look(!burst.is_empty(), &self.device);
        }
    }

    /// The socket by which it has an interface of the kernel's, if it stands on one.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.device.bell().filter(|bell| !bell.is_armed()).map(Bell::fd)
    }

    /// What to sleep on.
    pub(super) fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        // Nothing to sleep on as long as frames wait to be sent or have nowhere to arrive, or the
        // peer is not there.
        let busy = !self.outgoing.is_empty() || !self.up || !self.stands() || self.pool.is_empty();
        self.sleep.sources(&self.device, busy, sources);
        if let Some(below) = self.below.as_ref().filter(|_| sources.room() > 0) {
            sources.push(below.fd());
        }
    }

    /// Takes a datagram to send: its route, and its parts, `len` bytes together.
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
            && self.stands()
        {
            let head = draft.bytes(route.len() + len - tail.len(), &self.pool);
            gather(&mut head[route.len()..], first);
            route.finish_before(head, tail.len());
            let Some(back) = self.push_with(draft, tail, counters) else { return };
            draft = back; // no room: it waits its turn, as a copy
        }
        let bytes = draft.bytes(route.len() + len, &self.pool);
        gather(&mut bytes[route.len()..], parts);
        route.finish(bytes);
        if route.device_checks() {
            let (before, ip) = route.layers();
            draft.have_checked(before, ip, route.is_v6());
        }
        self.push(draft, counters);
    }

    /// Takes a whole frame to send.
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

    /// Sends a frame that begins with `head` and ends with `tail`, behind those that wait; gives
    /// `head` back if there is no room.
    #[inline]
    fn push_with(&mut self, head: Draft, tail: &[u8], counters: &mut Counters) -> Option<Draft> {
        self.flush(counters);
        if !self.outgoing.is_empty() {
            return Some(head);
        }
        counters.sends += 1;
        self.device.transmit_with(&self.pool, head, tail)
    }

    /// Hands what waits to the device, as far as it has room.
    #[inline]
    pub(super) fn flush(&mut self, counters: &mut Counters) {
        if self.outgoing.is_empty() {
            return;
        }
        if self.device.is_started() && self.stands() {
            counters.sends += 1;
            self.device.transmit(&mut self.outgoing);
        }
        if self.outgoing.len() >= MAX_OUTGOING - BATCH {
            let old = self.outgoing.len() - (MAX_OUTGOING - 2 * BATCH);
            counters.dropped_full += old as u64;
            self.outgoing.drain(..old);
        }
    }

    /// Starts a device that could not be, sends what waits, and sees whether the other end is
    /// there: returns that.
    pub(super) fn tend(&mut self, now: Nanos, counters: &mut Counters) -> bool {
        counters.no_buffer += u64::from(self.pool.is_empty());
        self.look_below(now);
        if !self.device.is_started() && now >= self.restart {
            self.restart = now + RESTART;
            let started = self.device.start();
            self.note(started);
        }
        self.flush(counters);
        let up = self.device.is_up() && self.stands();
        if up != self.up {
            (self.up, self.restart) = (up, now + RESTART); // the peer ends first what it began
            self.changes += 1;
            self.sleep.wake(&self.device);
            self.device.look_for_interrupt();
        }
        up
    }

    /// Keeps what is wrong with the device, and says so when it is something else than before;
    /// whether nothing is.
    fn note(&mut self, ended: io::Result<()>) -> bool {
        let trouble = ended.err().map(|error| error.to_string());
        if trouble != self.trouble {
            let name = self.device.name();
            match &trouble {
                Some(why) => tracing::warn!("device {name}: {why}; trying again"),
                None => tracing::info!("device {name}: taken up again"),
            }
            self.trouble = trouble;
        }
        self.trouble.is_none()
    }

    /// Notes how the interface below fares, and opens the device anew when that is another (one
    /// that was removed and made again, by its name), or when a peer that it can only meet by
    /// that has gone.
    fn look_below(&mut self, now: Nanos) {
        let standing = self.below.as_mut().map(Interface::look);
        self.gone = matches!(standing, Some(Standing::Gone | Standing::Another));
        let replaced = standing == Some(Standing::Another) && !self.anchored;
        if (replaced || self.dials && !self.up) && now >= self.restart {
            let reopened = self.device.reopen(&self.pool);
            let opened = self.note(reopened);
            self.sleep.wake(&self.device);
            self.restart = now + if opened { HANDSHAKE } else { RESTART };
            if let (true, Some(below)) = (opened, &mut self.below) {
                below.opened_again();
            }
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
