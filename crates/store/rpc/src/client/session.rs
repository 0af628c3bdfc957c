//! A session at its client: state, slots and timeouts.

use std::time::Duration;

use sprat_net::{Nanos, Transmit};
use sprat_wire::channel::{NO_CHANNEL, SEAL_BYTES};
use sprat_wire::packet::{Connect, Kind, PROTOCOL_VERSION};
use zerocopy::IntoBytes;

use crate::config::{MIN_SLOTS, NARROW_MTUS, PROBE_BYTES, UNUSED_TTL, WIDE_TRIES};
use crate::link::{Io, Link, padding, word};
use crate::message::Owner;
use crate::message::outgoing::Sender;
use crate::rtt::Rtt;

/// The state of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// This end has no session at the server. The next call opens one.
    Idle,
    /// The client sent `Connect`. Calls wait.
    Connecting,
    /// The session is open.
    Open,
    /// The client sent `Ping`, because the server was silent for so long that it may have forgotten
    /// the session. New calls wait.
    Verifying,
}

/// The state of a slot's call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// There is no call.
    Free,
    /// The request waits for the session to open.
    Waiting,
    /// The request was sent.
    Sent,
    /// Fragments of the response have arrived; `assembly` collects them.
    Receiving,
    /// The server answered `Retry`: the client waits before it sends the request again.
    Pausing,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    /// Whether the request was ever sent, and so may have been executed.
    pub(crate) sent: bool,
    pub(crate) sequence: u32,
    /// Retransmissions since the request was last sent from its beginning.
    pub(crate) tries: u32,
    /// `Retry` answers to the call so far.
    pub(crate) retries: u32,
    pub(crate) assembly: u32,
    /// The request in the sender's table, if it is a long message.
    pub(crate) outgoing: Option<u32>,
    pub(crate) sent_at: Nanos,
    pub(crate) deadline: Nanos,
    /// When there is something to do for the call: its deadline or an earlier time.
    pub(crate) due: Nanos,
    pub(crate) request: Vec<u8>,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Free,
            sent: false,
            sequence: 0,
            tries: 0,
            retries: 0,
            assembly: 0,
            outgoing: None,
            sent_at: Nanos(0),
            deadline: Nanos(0),
            due: Nanos::NEVER,
            request: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: u32,
    pub(crate) state: State,
    /// Whether the session is to end once its calls have ended.
    pub(crate) closing: bool,
    /// Whether the client sends pings that keep the session open.
    pub(crate) keep_alive: bool,
    /// Nonce of the widest offer; each narrower offer has the next nonce.
    pub(crate) nonce: u32,
    pub(crate) link: Link,
    /// Number of slots that may be used.
    pub(crate) granted: usize,
    /// A bit for each slot with a call.
    pub(crate) live: u64,
    /// A bit for each slot whose last call failed after its request was sent. The server may still
    /// be executing that request, so these slots are used last.
    pub(crate) suspect: u64,
    pub(crate) slots: Vec<Slot>,
    pub(crate) rtt: Rtt,
    /// When the timers look at this session next.
    pub(crate) wake: Nanos,
    pub(crate) last_heard: Nanos,
    /// Since when the client awaits an answer of any kind.
    pub(crate) waiting_since: Nanos,
    /// When to repeat `Connect` or `Ping`.
    pub(crate) shake_at: Nanos,
    pub(crate) shakes: u32,
    /// Whether the server has seen that this end knows the session's token.
    pub(crate) confirmed: bool,
    /// Silence of the server after which a confirmed session is verified before it is used.
    pub(crate) verify_after: Duration,
}

/// Iterates over the numbers of the bits that are set, lowest first.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

impl Session {
    /// Returns the free slots, as a set of bits.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        // While a session is being opened, at most `MIN_SLOTS` calls may wait, because every server
        // grants at least this many slots.
        let usable = if matches!(self.state, State::Open | State::Verifying) {
            self.granted
        } else {
            MIN_SLOTS
        };
        (u64::MAX >> (64 - usable)) & !self.live
    }

    /// Returns the silence after which the server may have forgotten the session, less a margin.
    #[inline]
    pub(crate) fn trusted_for(&self) -> Duration {
        if self.confirmed { self.verify_after } else { UNUSED_TTL / 3 }
    }

    /// Notes that the server has sent something.
    #[inline]
    pub(crate) fn note_heard(&mut self, now: Nanos) {
        self.last_heard = now;
        self.waiting_since = now;
    }

    /// Sends the request of a slot from its beginning, not as a retransmission.
    #[inline]
    pub(crate) fn send_first<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        sender: &mut Sender,
        index: u32,
        number: usize,
    ) {
        let fragment = self.link.fragment();
        let slot = &mut self.slots[number];
        slot.phase = Phase::Sent;
        slot.tries = 0;
        slot.sent = true;
        slot.sent_at = io.now;
        slot.due = (io.now + self.rtt.timeout(0)).min(slot.deadline);
        let total = slot.request.len();
        if total <= fragment {
            let header = self.link.header(Kind::Request, number, slot.sequence, 0, total);
            io.send(&self.link, header, [&slot.request, &[]]);
        } else {
            let owner = Owner { session: index, slot: number, sequence: slot.sequence };
            slot.outgoing = Some(sender.begin(owner, total, fragment));
        }
    }

    /// Sends the packet of a request that begins at `offset`; returns the number of payload bytes
    /// sent.
    pub(crate) fn send_request<T: Transmit + ?Sized>(
        &self,
        io: &mut Io<'_, T>,
        number: usize,
        offset: usize,
    ) -> usize {
        let slot = &self.slots[number];
        let total = slot.request.len();
        let end = total.min(offset + self.link.fragment());
        let header = self.link.header(Kind::Request, number, slot.sequence, offset, total);
        io.send(&self.link, header, [&slot.request[offset..end], &[]]);
        end - offset
    }

    /// Retransmits the request of a slot. Of a long request it sends only the first packet; the
    /// server asks for the rest.
    pub(crate) fn retransmit_request<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        number: usize,
    ) {
        io.counters.retransmissions += 1;
        let slot = &mut self.slots[number];
        slot.tries += 1;
        slot.due = (io.now + self.rtt.timeout(slot.tries)).min(slot.deadline);
        io.suspect(self.link.peer);
        self.send_request(io, number, 0);
    }

    /// Begins to open the session at the server, with a new nonce.
    pub(crate) fn connect<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        index: u32,
        slots: usize,
        cap: usize,
    ) {
        self.state = State::Connecting;
        self.nonce = io.random.draw_u32();
        self.link.mtu = io.mtu(self.link.peer.address, cap);
        self.link.session = 0;
        self.link.token = 0;
        self.confirmed = false;
        self.granted = slots;
        self.shakes = 0;
        self.waiting_since = io.now;
        self.shake(io, index);
    }

    /// Asks the server whether the session still exists.
    pub(crate) fn verify<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, index: u32) {
        self.state = State::Verifying;
        self.shakes = 0;
        self.waiting_since = io.now;
        self.shake(io, index);
    }

    /// Sends `Connect` or `Ping` and sets the time at which to repeat it.
    pub(crate) fn shake<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, index: u32) {
        if self.shakes > 0 {
            io.suspect(self.link.peer);
        }
        if self.state == State::Connecting {
            self.link.peer = io.route_to(self.link.peer.address);
            if io.is_reachable(self.link.peer) {
                self.offer_all(io, index);
            }
        } else {
            io.send(&self.link, self.link.control(Kind::Ping), [&[], &[]]);
        }
        self.shake_at = io.now + self.rtt.timeout(self.shakes);
        self.shakes += 1;
    }

    /// Sends `Connect` padded to the frame length that it offers, up to [`PROBE_BYTES`], so that an
    /// offer too wide for the path gets no answer. A reliable transport needs no padding. After
    /// [`WIDE_TRIES`] attempts, narrower offers follow the widest one each time. Offers arrive
    /// widest first, and the session uses the first offer that the server accepts.
    fn offer_all<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, index: u32) {
        let mtu = io.mtu(self.link.peer.address, self.link.mtu as usize);
        if mtu < self.link.mtu {
            // A router has reported a narrower link. If the server accepted an earlier offer, the
            // frames of that offer are too wide.
            self.link.mtu = mtu;
            self.nonce = io.random.draw_u32();
        }
        let tried =
            if io.tx.reliable() || self.shakes < WIDE_TRIES { 1 } else { 1 + NARROW_MTUS.len() };
        for number in 0..tried {
            let Some(mtu) = self.offer(number) else { continue };
            let connect = Connect {
                version: PROTOCOL_VERSION.into(),
                slots: u16::try_from(self.granted).expect("slots are bounded").into(),
                session: index.into(),
                nonce: self.nonce.wrapping_add(u32::try_from(number).expect("few")).into(),
                mtu: mtu.into(),
            };
            let frame = if io.tx.reliable() { 0 } else { PROBE_BYTES.min(mtu as usize) };
            let padding = padding(size_of::<Connect>(), frame);
            io.send(&self.link, self.link.control(Kind::Connect), [connect.as_bytes(), padding]);
        }
    }

    /// Returns the frame length of an offer, in bytes: number 0 is this end's largest, higher
    /// numbers are narrower.
    fn offer(&self, number: usize) -> Option<u32> {
        match number {
            0 => Some(self.link.mtu),
            number => {
                let narrow = NARROW_MTUS.get(number - 1)?;
                let mtu = if self.link.peer.channel == NO_CHANNEL {
                    *narrow
                } else {
                    narrow - word(SEAL_BYTES)
                };
                Some(mtu).filter(|&mtu| mtu < self.link.mtu)
            }
        }
    }

    /// Returns the frame length that was offered with `nonce`.
    pub(crate) fn offered(&self, nonce: u32) -> Option<u32> {
        self.offer(usize::try_from(nonce.wrapping_sub(self.nonce)).ok()?)
    }

    /// Returns the time at which the session has something to do next.
    pub(crate) fn next_wake(&self, unreachable_after: Duration) -> Nanos {
        let mut wake = Nanos::NEVER;
        for number in bits(self.live) {
            wake = wake.min(self.slots[number].due);
        }
        match self.state {
            State::Idle => {}
            State::Connecting | State::Verifying => wake = wake.min(self.shake_at),
            State::Open if self.live != 0 => {
                wake = wake.min(self.waiting_since + unreachable_after)
            }
            State::Open if self.keep_alive => {
                wake = wake.min(self.last_heard.max(self.shake_at) + self.trusted_for())
            }
            State::Open => {}
        }
        wake
    }
}
