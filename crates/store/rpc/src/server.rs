//! The serving role: sessions that clients opened, and the requests in their slots.

mod lifecycle;

use std::collections::HashMap;
use std::time::Duration;

use sprat_net::{Nanos, Transmit};
use sprat_wire::MAX_MESSAGE;
use sprat_wire::packet::{Kind, Packet, Refusal};

use crate::config::{
    BURST_BYTES, Config, DRAIN_RETRY_MICROS, HOLDING_TTL, INITIAL_RTO, INLINE_BYTES,
    MAX_RESEND_TRIES, MAX_SLOTS, RELIABLE_RTO, UNUSED_TTL,
};
use crate::handler::{Handler, Inline, Outcome, Repeat, Reply, RequestId};
use crate::link::{Io, Link, Peer, held};
use crate::message::Owner;
use crate::message::incoming::{Arrival, Incoming, Overdue, plausible};
use crate::message::outgoing::Sender;
use crate::slab::Slab;
use crate::timer::Timers;

/// The state of a slot's newest request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// The slot has had no request.
    Fresh,
    /// The request was not executed, and the server keeps nothing of it.
    Open,
    /// Fragments of the request have arrived; assembly `message` collects them.
    Receiving,
    /// The handler is executing the request.
    Running,
    /// The request was executed; `head` and `body` keep its response, which fits one packet.
    Retained,
    /// The request was executed; `head` and `body` keep its response, which is long and being sent
    /// as `message`.
    Sending,
    /// The request was executed; nothing is kept, and it may be executed again.
    Repeatable,
    /// The request was executed, and the client has acknowledged the response.
    Acknowledged,
    /// The request was executed; the response was dropped, because the client was silent for long.
    Dropped,
}

#[derive(Debug)]
struct Slot<B> {
    body: Option<B>,
    sequence: u32,
    message: u32,
    phase: Phase,
    head: Inline,
}

// These are the sizes with bodies of 8 bytes; the crate's documentation gives them.
const _: () = assert!(size_of::<Slot<u64>>() <= 96);
const _: () = assert!(size_of::<Session<u64>>() <= 112);

impl<B> Slot<B> {
    const FRESH: Self =
        Self { body: None, sequence: 0, message: 0, phase: Phase::Fresh, head: Inline::EMPTY };
}

#[derive(Debug)]
struct Session<B> {
    link: Link,
    nonce: u32,
    last_heard: Nanos,
    /// The slots up to the highest one ever used.
    slots: Vec<Slot<B>>,
    granted: u8,
    /// Whether a packet with the session's token has arrived.
    used: bool,
}

impl<B> Session<B> {
    /// Returns whether no request is being received, executed or answered.
    fn is_idle(&self) -> bool {
        !self
            .slots
            .iter()
            .any(|slot| matches!(slot.phase, Phase::Receiving | Phase::Running | Phase::Sending))
    }

    /// Returns whether the session keeps a body of the handler.
    fn holds(&self) -> bool {
        self.slots.iter().any(|slot| slot.body.is_some())
    }

    /// Returns the time at which the session ends, or drops the bodies that it holds, if its client
    /// stays silent.
    fn expiry(&self, ttl: Duration) -> Nanos {
        self.last_heard
            + match self.used {
                false => UNUSED_TTL,
                true if self.holds() => ttl.min(HOLDING_TTL),
                true => ttl,
            }
    }
}

/// The serving role of an endpoint.
#[derive(Debug)]
pub(crate) struct Server<B> {
    sessions: Slab<Session<B>>,
    /// Sessions by the fields of their `Connect`: peer, index at the client, nonce.
    openings: HashMap<(Peer, u32, u32), u32>,
    timers: Timers,
    incoming: Incoming,
    sender: Sender,
    /// Number of requests that the handler is executing.
    running: usize,
    draining: bool,
    slots: usize,
    mtu: usize,
    ttl: Duration,
}

impl<B: Copy> Server<B> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            sessions: Slab::new(config.max_sessions),
            openings: HashMap::new(),
            timers: Timers::default(),
            incoming: Incoming::new(config.max_reassembly),
            sender: Sender::new(config.max_sessions * MAX_SLOTS),
            running: 0,
            draining: false,
            slots: config.slots,
            mtu: config.mtu,
            ttl: config.session_ttl,
        }
    }

    /// Takes a packet from a client.
    #[inline]
    pub(crate) fn receive<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        from: Peer,
        packet: &Packet<'_>,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let header = packet.header;
        if packet.kind == Kind::Connect {
            return self.connect(io, handler, from, packet.payload);
        }
        let (index, token) = (header.session.get(), header.token.get());
        let session = match self.sessions.get_mut(index) {
            Some(session) if session.link.token == token && session.link.peer == from => session,
            _ => {
                io.counters.unknown_session += 1;
                if packet.kind != Kind::Close && packet.kind != Kind::Ack {
                    io.refuse(from, index, token, Refusal::UnknownSession);
                }
                return;
            }
        };
        session.last_heard = io.now;
        session.used = true;
        let slot = header.slot_index();
        if slot >= usize::from(session.granted) {
            io.counters.malformed_slot += 1;
            return;
        }
        let sequence = header.sequence.get();
        let (offset, total) = (header.offset.get() as usize, header.total.get() as usize);
        match packet.kind {
            Kind::Request => {
                self.request(io, handler, Owner { session: index, slot, sequence }, packet)
            }
            Kind::Ping => {
                let header = session.link.control(Kind::Pong);
                io.send(&session.link, header, [&[], &[]]);
            }
            Kind::Close => self.end(io.counters, handler, index),
            Kind::Grant | Kind::Resend | Kind::Busy | Kind::Ack => {
                let Some(state) =
                    session.slots.get_mut(slot).filter(|state| state.sequence == sequence)
                else {
                    return;
                };
                match (packet.kind, state.phase) {
                    (Kind::Grant | Kind::Resend, Phase::Dropped) => {
                        self.close_one(io, handler, index)
                    }
                    (Kind::Grant, Phase::Sending) => self.sender.grant(state.message, offset),
                    (Kind::Resend, Phase::Sending) => {
                        let again = self.sender.resend(state.message, offset, total);
                        if !again {
                            let header = session.link.header(Kind::Busy, slot, sequence, 0, 0);
                            io.send(&session.link, header, [&[], &[]]);
                        }
                    }
                    (Kind::Busy, Phase::Receiving) => {
                        self.incoming.note_heard(io.now, state.message)
                    }
                    (Kind::Ack, phase) if phase != Phase::Running => {
                        clear(state, &mut self.incoming, &mut self.sender, handler);
                        state.phase = Phase::Acknowledged;
                    }
                    _ => {}
                }
            }
            _ => io.counters.malformed_meaning += 1,
        }
    }

    #[inline]
    fn request<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        owner: Owner,
        packet: &Packet<'_>,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let (offset, total) =
            (packet.header.offset.get() as usize, packet.header.total.get() as usize);
        let Some(session) = self.sessions.get_mut(owner.session) else { return };
        let link = session.link;
        if !plausible(offset, total, packet.payload.len(), link.fragment()) {
            io.counters.malformed_fragment += 1;
            return;
        }
        while session.slots.len() <= owner.slot {
            session.slots.push(Slot::FRESH);
        }
        let slot = &mut session.slots[owner.slot];
        let ahead = owner.sequence.wrapping_sub(slot.sequence);
        let newer = slot.phase == Phase::Fresh || (1..1 << 31).contains(&ahead);
        if newer {
            if slot.phase == Phase::Running {
                // The client has given up the previous request; the new request waits until that
                // one ends.
                return busy(io, &link, owner);
            }
            clear(slot, &mut self.incoming, &mut self.sender, handler);
            slot.sequence = owner.sequence;
            slot.phase = Phase::Open;
        } else if ahead != 0 {
            io.counters.old_requests += 1;
            return;
        }
        match slot.phase {
            Phase::Receiving => {}
            Phase::Running => return busy(io, &link, owner),
            Phase::Retained | Phase::Sending => {
                if offset == 0 && io.mtu(link.peer.address, self.mtu) < link.mtu {
                    // The path has become narrower than the session's frames: the client must open
                    // another session.
                    self.close_one(io, handler, owner.session);
                } else if offset == 0 {
                    self.repeat(io, handler, owner);
                }
                return;
            }
            Phase::Acknowledged => {
                io.counters.old_requests += 1;
                return;
            }
            // The client waits for a response that was dropped. Without a Close it would wait for
            // ever.
            Phase::Dropped => return self.close_one(io, handler, owner.session),
            // Only a first fragment begins such a request again. Any other fragment that arrives
            // late would start an assembly that never completes.
            Phase::Repeatable if offset > 0 => return,
            Phase::Fresh | Phase::Open | Phase::Repeatable => {
                if self.draining {
                    slot.phase = Phase::Open;
                    return retry(io, &link, owner, DRAIN_RETRY_MICROS);
                }
                if total <= link.fragment() {
                    return self.execute(io, handler, owner, packet.payload);
                }
                let patience = if io.tx.reliable() { RELIABLE_RTO } else { INITIAL_RTO / 2 };
                let Some(message) = self.begin(io, owner, total, &link, patience) else {
                    io.counters.reassembly_full += 1;
                    self.sessions.get_mut(owner.session).expect("it asks").slots[owner.slot]
                        .phase = Phase::Open;
                    return retry(io, &link, owner, DRAIN_RETRY_MICROS);
                };
                let session = self.sessions.get_mut(owner.session).expect("it asks");
                let slot = &mut session.slots[owner.slot];
                slot.phase = Phase::Receiving;
                slot.message = message;
            }
        }
        let message = self.sessions.get(owner.session).expect("it asks").slots[owner.slot].message;
        match self.incoming.add(io.now, message, offset, total, packet.payload) {
            Arrival::Partial => {}
            Arrival::Duplicate => {
                io.counters.duplicate_fragments += 1;
                if offset == 0 {
                    busy(io, &link, owner);
                }
            }
            Arrival::Whole => {
                let buffer = self.incoming.take(message);
                self.execute(io, handler, owner, &buffer);
                self.incoming.give_back(buffer);
            }
        }
    }

    /// Begins a long request. If no memory is left, takes the memory of the requests that
    /// [`Incoming::choose_victim`] names, one after another.
    fn begin<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        owner: Owner,
        total: usize,
        link: &Link,
        patience: Duration,
    ) -> Option<u32> {
        loop {
            if let Some(message) =
                self.incoming.begin(io.now, owner, total, link.fragment(), patience)
            {
                return Some(message);
            }
            let (message, loser) = self.incoming.choose_victim(owner.session, total)?;
            self.incoming.drop(message);
            io.counters.reassembly_ceded += 1;
            let session =
                self.sessions.get_mut(loser.session).expect("assemblies end with their session");
            session.slots[loser.slot].phase = Phase::Open;
            let link = session.link;
            retry(io, &link, loser, DRAIN_RETRY_MICROS);
        }
    }

    #[inline]
    fn execute<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, owner: Owner, payload: &[u8])
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(owner.session) else { return };
        session.slots[owner.slot].phase = Phase::Running;
        self.running += 1;
        io.counters.requests += 1;
        let id = RequestId {
            session: owner.session,
            token: session.link.token,
            sequence: owner.sequence,
            slot: u8::try_from(owner.slot).expect("slots are bounded"),
            requester: io.requester(session.link.peer),
        };
        let outcome = handler.request(io.now, id, payload);
        self.apply_outcome(io, handler, owner, outcome);
    }

    /// Answers a request that was pending.
    pub(crate) fn respond<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        id: RequestId,
        outcome: Outcome<B>,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let owner =
            Owner { session: id.session, slot: usize::from(id.slot), sequence: id.sequence };
        let session =
            self.sessions.get(id.session).filter(|session| session.link.token == id.token);
        let slot = session.and_then(|session| session.slots.get(owner.slot));
        if slot.is_none_or(|slot| slot.sequence != id.sequence || slot.phase != Phase::Running) {
            io.counters.stale_answers += 1;
            if let Outcome::Reply(Reply { body: Some(body), .. }) = outcome {
                handler.release(body);
            }
            return;
        }
        self.apply_outcome(io, handler, owner, outcome);
    }

    /// Applies the handler's outcome to a running request.
    #[inline]
    fn apply_outcome<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        owner: Owner,
        outcome: Outcome<B>,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(owner.session) else { return };
        let link = session.link;
        let slot = &mut session.slots[owner.slot];
        debug_assert!(slot.phase == Phase::Running && slot.sequence == owner.sequence);
        let reply = match outcome {
            Outcome::Pending => return,
            Outcome::Retry(micros) => {
                self.running -= 1;
                slot.phase = Phase::Open;
                return retry(io, &link, owner, micros);
            }
            Outcome::Reply(reply) => reply,
        };
        self.running -= 1;
        let body = reply.body.map_or(&[][..], |body| handler.gather(body));
        let total = reply.head.len() + body.len();
        assert!(total <= MAX_MESSAGE, "a response of {total} bytes");
        if total > link.fragment() || (reply.repeat == Repeat::Retain && total > INLINE_BYTES) {
            // The response may have to be dropped before the session expires.
            self.timers.set(owner.session, io.now + HOLDING_TTL.min(self.ttl));
        }
        if total > link.fragment() {
            slot.head = reply.head;
            slot.body = reply.body;
            slot.phase = Phase::Sending;
            slot.message = self.sender.begin(owner, total, link.fragment());
            return;
        }
        let retain = reply.repeat == Repeat::Retain;
        let holds = retain && total > INLINE_BYTES;
        let header = held(link.header(Kind::Response, owner.slot, owner.sequence, 0, total), holds);
        io.send(&link, header, [&reply.head, body]);
        if retain {
            slot.head = reply.head;
            if holds {
                slot.body = reply.body;
            } else {
                slot.head.append(body);
            }
            slot.phase = Phase::Retained;
        } else {
            slot.phase = Phase::Repeatable;
        }
        if let Some(body) = reply.body
            && !holds
        {
            handler.release(body);
        }
    }

    /// Sends the kept response of a request again. Of a long response it sends only the first
    /// packet; the client asks for the rest.
    fn repeat<H, T>(&self, io: &mut Io<'_, T>, handler: &H, owner: Owner)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        io.counters.repeats += 1;
        self.send_response(io, handler, owner, 0);
    }

    /// Sends the packet of a kept response that begins at `offset`; returns the number of payload
    /// bytes sent.
    fn send_response<H, T>(
        &self,
        io: &mut Io<'_, T>,
        handler: &H,
        owner: Owner,
        offset: usize,
    ) -> usize
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get(owner.session) else { return 0 };
        let slot = &session.slots[owner.slot];
        let head: &[u8] = &slot.head;
        let body = slot.body.map_or(&[][..], |body| handler.gather(body));
        let total = head.len() + body.len();
        let end = total.min(offset + session.link.fragment());
        let first = &head[offset.min(head.len())..end.min(head.len())];
        let second = &body[offset.max(head.len()) - head.len()..end.max(head.len()) - head.len()];
        let header = session.link.header(Kind::Response, owner.slot, owner.sequence, offset, total);
        let header = held(header, slot.phase == Phase::Sending || slot.body.is_some());
        io.send(&session.link, header, [first, second]);
        end - offset
    }

    /// Runs due timers, asks for missing ranges, sends grants, and continues long responses.
    pub(crate) fn poll<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        while let Some(index) = self.timers.pop_due(io.now) {
            let Some(session) = self.sessions.get_mut(index) else { continue };
            if session.last_heard + HOLDING_TTL <= io.now {
                for slot in session.slots.iter_mut().filter(|slot| slot.body.is_some()) {
                    clear(slot, &mut self.incoming, &mut self.sender, handler);
                    slot.phase = Phase::Dropped;
                    io.counters.answers_dropped += 1;
                }
            }
            let expiry = session.expiry(self.ttl);
            if expiry <= io.now {
                self.end(io.counters, handler, index);
            } else {
                self.timers.set(index, expiry);
            }
        }
        while let Some(Overdue { message, owner, tries, missing }) = self.incoming.overdue(io.now) {
            let session =
                self.sessions.get_mut(owner.session).expect("assemblies end with their session");
            if tries > MAX_RESEND_TRIES {
                io.counters.abandoned += 1;
                session.slots[owner.slot].phase = Phase::Open;
                self.incoming.drop(message);
                continue;
            }
            for &(offset, len) in missing {
                io.counters.resends += 1;
                let header =
                    session.link.header(Kind::Resend, owner.slot, owner.sequence, offset, len);
                io.send(&session.link, header, [&[], &[]]);
            }
        }
        let sessions = &self.sessions;
        self.incoming.grant(|owner, offset, total| {
            let link =
                &sessions.get(owner.session).expect("assemblies end with their session").link;
            io.counters.grants += 1;
            io.send(
                link,
                link.header(Kind::Grant, owner.slot, owner.sequence, offset, total),
                [&[], &[]],
            );
        });
        let mut budget = BURST_BYTES;
        while budget > 0
            && let Some((message, owner)) = self.sender.shortest()
        {
            while budget > 0
                && let Some((offset, _)) = self.sender.next(message)
            {
                budget = budget.saturating_sub(self.send_response(io, handler, owner, offset));
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        if self.sender.is_ready() {
            return Some(Nanos(0));
        }
        [self.timers.earliest(), self.incoming.next_deadline()].into_iter().flatten().min()
    }

    /// Refuses new sessions and requests from now on.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns whether no request is being received, executed or answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.incoming.held().0 == 0 && self.sender.len() == 0
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn most_sessions(&self) -> usize {
        self.sessions.limit()
    }

    pub(crate) fn most_reassembly_bytes(&self) -> usize {
        self.incoming.limit()
    }

    pub(crate) fn reassembly_bytes(&self) -> usize {
        self.incoming.held().1
    }
}

/// Drops all that a slot keeps of its newest request.
#[inline]
fn clear<H: Handler>(
    slot: &mut Slot<H::Body>,
    incoming: &mut Incoming,
    sender: &mut Sender,
    handler: &mut H,
) {
    match slot.phase {
        Phase::Receiving => incoming.drop(slot.message),
        Phase::Sending => sender.end(slot.message),
        _ => {}
    }
    if let Some(body) = slot.body.take() {
        handler.release(body);
    }
}

fn busy<T: Transmit + ?Sized>(io: &mut Io<'_, T>, link: &Link, owner: Owner) {
    io.counters.busy += 1;
    io.send(link, link.header(Kind::Busy, owner.slot, owner.sequence, 0, 0), [&[], &[]]);
}

fn retry<T: Transmit + ?Sized>(io: &mut Io<'_, T>, link: &Link, owner: Owner, micros: u32) {
    io.counters.turned_away += 1;
    let mut header = link.header(Kind::Retry, owner.slot, owner.sequence, 0, 0);
    header.offset = micros.into();
    io.send(link, header, [&[], &[]]);
}
