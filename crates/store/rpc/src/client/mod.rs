//! The calling role: sessions opened to servers, and the calls in their slots.

mod lifecycle;
mod session;

use std::time::Duration;

use sprat_net::{Nanos, Transmit};
use sprat_wire::MAX_MESSAGE;
use sprat_wire::packet::{Kind, Packet};

use crate::config::{BURST_BYTES, Config, KEEP_BUFFER_BYTES, MAX_RETRY_WAIT, MAX_SLOTS};
use crate::handler::{CallError, CallFailure, CallId, Handler, Response, SessionId};
use crate::link::{Io, Peer};
use crate::message::Owner;
use crate::message::incoming::{Arrival, Incoming, Overdue, plausible};
use crate::message::outgoing::Sender;
use crate::slab::Slab;
use crate::timer::Timers;
use session::{Phase, Session, Slot, State, bits};

/// The calling role of an endpoint.
#[derive(Debug)]
pub(crate) struct Client {
    sessions: Slab<Session>,
    generations: u32,
    timers: Timers,
    incoming: Incoming,
    sender: Sender,
    slots: usize,
    mtu: usize,
    unreachable_after: Duration,
    max_retries: u32,
}

impl Client {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            sessions: Slab::new(config.max_client_sessions),
            generations: 0,
            timers: Timers::default(),
            incoming: Incoming::new(config.max_reassembly),
            sender: Sender::new(config.max_client_sessions * MAX_SLOTS),
            slots: config.slots,
            mtu: config.mtu,
            unreachable_after: config.unreachable_after,
            max_retries: config.max_retries,
        }
    }

    fn find(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index).filter(|session| session.generation == id.generation)
    }

    /// Makes the timers look at a session at `at`, if they would not look earlier.
    #[inline]
    fn wake_at(&mut self, index: u32, at: Nanos) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if at < session.wake {
            session.wake = at;
            self.timers.set(index, at);
        }
    }

    #[inline]
    pub(crate) fn call<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        id: SessionId,
        parts: &[&[u8]],
        deadline: Nanos,
    ) -> Result<CallId, CallError> {
        let (slots, cap) = (self.slots, self.mtu);
        let session =
            self.sessions.get_mut(id.index).filter(|session| session.generation == id.generation);
        let session = session.filter(|session| !session.closing).ok_or(CallError::Closed)?;
        let total = parts.iter().map(|part| part.len()).sum::<usize>();
        if total > MAX_MESSAGE {
            return Err(CallError::TooLong(total));
        }
        if deadline <= io.now {
            return Err(CallError::Late);
        }
        let free = session.free();
        if free == 0 {
            return Err(CallError::NoSlot);
        }
        let best = if free & !session.suspect == 0 { free } else { free & !session.suspect };
        let number = best.trailing_zeros() as usize;
        while session.slots.len() <= number {
            session.slots.push(Slot::new());
        }
        if session.live == 0 {
            session.waiting_since = io.now;
        }
        match session.state {
            State::Open
                if session.live == 0
                    && io.now.since(session.last_heard) > session.trusted_for() =>
            {
                session.verify(io, id.index);
            }
            State::Idle => session.connect(io, id.index, slots, cap),
            _ => {}
        }
        session.live |= 1 << number;
        session.suspect &= !(1 << number);
        let slot = &mut session.slots[number];
        slot.phase = Phase::Waiting;
        slot.sent = false;
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.retries = 0;
        slot.deadline = deadline;
        slot.due = deadline;
        slot.request.clear();
        if total > KEEP_BUFFER_BYTES {
            // Writing to fresh pages costs more than filling a buffer that was used before.
            slot.request = self.incoming.take_buffer();
            slot.request.reserve_exact(total);
        }
        for part in parts {
            slot.request.extend_from_slice(part);
        }
        let sequence = slot.sequence;
        let mut wake = deadline;
        if session.state == State::Open {
            session.send_first(io, &mut self.sender, id.index, number);
            wake = session.slots[number].due;
        } else {
            wake = wake.min(session.shake_at);
        }
        io.counters.calls += 1;
        self.wake_at(id.index, wake);
        Ok(CallId { session: id, sequence, slot: u8::try_from(number).expect("slots are bounded") })
    }

    /// Returns the number of calls that can be begun on a session now; `None` if the session was
    /// closed.
    #[inline]
    pub(crate) fn ready(&self, id: SessionId) -> Option<u32> {
        let session =
            self.sessions.get(id.index).filter(|session| session.generation == id.generation)?;
        (!session.closing).then(|| session.free().count_ones())
    }

    /// Returns the number of outstanding calls on a session.
    #[inline]
    pub(crate) fn outstanding(&self, id: SessionId) -> u32 {
        let session =
            self.sessions.get(id.index).filter(|session| session.generation == id.generation);
        session.map_or(0, |session| session.live.count_ones())
    }

    pub(crate) fn is_open(&self, id: SessionId) -> bool {
        let session =
            self.sessions.get(id.index).filter(|session| session.generation == id.generation);
        session.is_some_and(|session| session.state == State::Open)
    }

    pub(crate) fn keep_alive(&mut self, id: SessionId, on: bool) {
        let unreachable_after = self.unreachable_after;
        let Some(session) = self.find(id) else { return };
        session.keep_alive = on;
        let wake = session.next_wake(unreachable_after);
        self.wake_at(id.index, wake);
    }

    /// Takes a packet from a server.
    #[inline]
    pub(crate) fn receive<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        from: Peer,
        packet: &Packet<'_>,
    ) where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let header = packet.header;
        let (index, token) = (header.session.get(), header.token.get());
        match packet.kind {
            Kind::Accept => return self.accepted(io, from, index, packet.payload),
            Kind::Refuse => return self.refused(io, handler, from, packet),
            _ => {}
        }
        let session = match self.sessions.get_mut(index) {
            Some(session)
                if session.link.token == token
                    && session.link.peer == from
                    && matches!(session.state, State::Open | State::Verifying) =>
            {
                session
            }
            _ => {
                io.counters.unknown_session += 1;
                return;
            }
        };
        session.note_heard(io.now);
        session.confirmed = true;
        let number = header.slot_index();
        let sequence = header.sequence.get();
        let (offset, total) = (header.offset.get() as usize, header.total.get() as usize);
        let live = session.live >> number & 1 == 1 && session.slots[number].sequence == sequence;
        match packet.kind {
            Kind::Response if live => {
                self.response(io, handler, Owner { session: index, slot: number, sequence }, packet)
            }
            Kind::Response | Kind::Resend => {
                if packet.kind == Kind::Response {
                    io.counters.stale_responses += 1;
                }
                let outgoing = if live { session.slots[number].outgoing } else { None };
                if let Some(outgoing) = outgoing {
                    let header = session.link.header(Kind::Busy, number, sequence, 0, 0);
                    if !self.sender.resend(outgoing, offset, total) {
                        io.send(&session.link, header, [&[], &[]]);
                    }
                    postpone(session, io.now, number);
                } else if !live && (header.held() || packet.kind == Kind::Resend) {
                    // The call has ended here, so the server need not hold or await anything for
                    // it.
                    io.send(
                        &session.link,
                        session.link.header(Kind::Ack, number, sequence, 0, 0),
                        [&[], &[]],
                    );
                }
            }
            Kind::Grant if live => {
                if let Some(outgoing) = session.slots[number].outgoing {
                    self.sender.grant(outgoing, offset);
                }
                postpone(session, io.now, number);
            }
            Kind::Busy if live => {
                if session.slots[number].phase == Phase::Receiving {
                    self.incoming.note_heard(io.now, session.slots[number].assembly);
                }
                postpone(session, io.now, number);
            }
            Kind::Retry if live => {
                self.retry_later(io, handler, index, number, header.offset.get())
            }
            Kind::Grant | Kind::Busy | Kind::Retry => {}
            Kind::Pong => {
                if session.state == State::Verifying {
                    session.state = State::Open;
                    self.send_waiting(io, index);
                }
            }
            Kind::Close => self.lost(io, handler, index),
            _ => io.counters.malformed_meaning += 1,
        }
    }

    #[inline]
    fn response<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        owner: Owner,
        packet: &Packet<'_>,
    ) where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let header = packet.header;
        let (offset, total) = (header.offset.get() as usize, header.total.get() as usize);
        let Some(session) = self.sessions.get_mut(owner.session) else { return };
        let link = session.link;
        if !plausible(offset, total, packet.payload.len(), link.fragment()) {
            io.counters.malformed_fragment += 1;
            return;
        }
        let slot = &mut session.slots[owner.slot];
        if !slot.sent {
            io.counters.malformed_meaning += 1;
            return;
        }
        if slot.phase != Phase::Receiving
            && slot.tries == 0
            && slot.outgoing.is_none()
            && slot.phase == Phase::Sent
        {
            session.rtt.sample(io.now.since(slot.sent_at));
        }
        if total <= link.fragment() {
            if header.held() {
                io.send(
                    &link,
                    link.header(Kind::Ack, owner.slot, owner.sequence, 0, 0),
                    [&[], &[]],
                );
            }
            return self.end(
                io,
                handler,
                owner.session,
                owner.slot,
                Ok(Response::in_place(packet.payload)),
            );
        }
        if slot.phase != Phase::Receiving {
            let patience = session.rtt.timeout(0);
            let Some(assembly) =
                self.incoming.begin(io.now, owner, total, link.fragment(), patience)
            else {
                io.counters.reassembly_full += 1;
                return;
            };
            slot.assembly = assembly;
            slot.phase = Phase::Receiving;
            slot.due = slot.deadline;
            if let Some(outgoing) = slot.outgoing.take() {
                self.sender.end(outgoing);
            }
        }
        let assembly = slot.assembly;
        match self.incoming.add(io.now, assembly, offset, total, packet.payload) {
            Arrival::Partial => {}
            Arrival::Duplicate => io.counters.duplicate_fragments += 1,
            Arrival::Whole => {
                let mut buffer = self.incoming.take(assembly);
                session.slots[owner.slot].phase = Phase::Sent;
                io.send(
                    &link,
                    link.header(Kind::Ack, owner.slot, owner.sequence, 0, 0),
                    [&[], &[]],
                );
                self.end(
                    io,
                    handler,
                    owner.session,
                    owner.slot,
                    Ok(Response::assembled(&mut buffer)),
                );
                self.incoming.give_back(buffer);
            }
        }
    }

    /// Ends a call and frees its slot.
    #[inline]
    fn end<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        index: u32,
        number: usize,
        result: Result<Response<'_>, CallFailure>,
    ) where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let slot = &mut session.slots[number];
        debug_assert!(session.live >> number & 1 == 1 && slot.phase != Phase::Free);
        if slot.phase == Phase::Receiving {
            self.incoming.drop(slot.assembly);
        }
        if let Some(outgoing) = slot.outgoing.take() {
            self.sender.end(outgoing);
        }
        slot.phase = Phase::Free;
        slot.due = Nanos::NEVER;
        if slot.request.capacity() > KEEP_BUFFER_BYTES {
            self.incoming.give_back(std::mem::take(&mut slot.request));
        }
        session.live &= !(1 << number);
        match result {
            Ok(_) => io.counters.answered += 1,
            Err(_) => {
                io.counters.failed += 1;
                session.suspect |= u64::from(slot.sent) << number;
            }
        }
        let id = SessionId { index, generation: session.generation };
        let call = CallId {
            session: id,
            sequence: slot.sequence,
            slot: u8::try_from(number).expect("slots are bounded"),
        };
        let closing = session.closing;
        handler.completed(io.now, call, result);
        if closing {
            self.finish_closing(io, index);
        }
    }

    /// Handles `Retry`: the server was busy and did not execute the request.
    fn retry_later<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        index: u32,
        number: usize,
        micros: u32,
    ) where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let slot = &mut session.slots[number];
        if slot.phase != Phase::Sent {
            return;
        }
        io.counters.retries += 1;
        slot.retries += 1;
        let wait = Duration::from_micros(u64::from(micros))
            .clamp(Duration::from_micros(1), MAX_RETRY_WAIT);
        let again = io.now + wait;
        if slot.retries > self.max_retries || again >= slot.deadline {
            return self.end(
                io,
                handler,
                index,
                number,
                Err(CallFailure::Overloaded { retry_micros: micros }),
            );
        }
        if let Some(outgoing) = slot.outgoing.take() {
            self.sender.end(outgoing);
        }
        slot.phase = Phase::Pausing;
        slot.due = again;
        self.wake_at(index, again);
    }

    /// Runs due timers, asks for missing ranges, sends grants, and continues long requests.
    pub(crate) fn poll<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H)
    where
        H: Handler,
        T: Transmit + ?Sized,
    {
        while let Some(index) = self.timers.pop_due(io.now) {
            if let Some(session) = self.sessions.get_mut(index) {
                session.wake = Nanos::NEVER;
                self.run_timers(io, handler, index);
            }
        }
        while let Some(Overdue { owner, missing, .. }) = self.incoming.overdue(io.now) {
            let link =
                self.sessions.get(owner.session).expect("assemblies end with their call").link;
            for &(offset, len) in missing {
                io.counters.resends += 1;
                io.send(
                    &link,
                    link.header(Kind::Resend, owner.slot, owner.sequence, offset, len),
                    [&[], &[]],
                );
            }
        }
        let sessions = &self.sessions;
        self.incoming.grant(|owner, offset, total| {
            let link = &sessions.get(owner.session).expect("assemblies end with their call").link;
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
            let session =
                self.sessions.get(owner.session).expect("long requests end with their call");
            while budget > 0
                && let Some((offset, _)) = self.sender.next(message)
            {
                budget = budget.saturating_sub(session.send_request(io, owner.slot, offset));
            }
        }
    }

    /// Does what is due for one session.
    fn run_timers<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, index: u32)
    where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let (unreachable_after, cap) = (self.unreachable_after, self.mtu);
        let Some(session) = self.sessions.get_mut(index) else { return };
        let silent = io.now.since(session.waiting_since) >= unreachable_after;
        match session.state {
            State::Connecting | State::Verifying if silent => self.unreachable(io, handler, index),
            State::Open if silent && session.live != 0 => self.unreachable(io, handler, index),
            State::Connecting | State::Verifying if io.now >= session.shake_at => {
                session.shake(io, index)
            }
            State::Open
                if session.keep_alive
                    && session.live == 0
                    && io.now
                        >= session.last_heard.max(session.shake_at) + session.trusted_for() =>
            {
                session.shakes = 0;
                session.shake(io, index);
            }
            _ => {}
        }
        let live = self.sessions.get(index).map_or(0, |session| session.live);
        for number in bits(live) {
            let Some(session) = self.sessions.get_mut(index) else { return };
            let slot = &session.slots[number];
            if slot.phase == Phase::Free || slot.due > io.now {
                continue;
            }
            if slot.deadline <= io.now {
                let failure = CallFailure::Deadline { maybe_executed: slot.sent };
                self.end(io, handler, index, number, Err(failure));
                continue;
            }
            if io.mtu(session.link.peer.address, cap) < session.link.mtu {
                // The path has become narrower than the session's frames: open another session.
                return self.lost(io, handler, index);
            }
            match slot.phase {
                Phase::Sent => session.retransmit_request(io, number),
                Phase::Pausing => session.send_first(io, &mut self.sender, index, number),
                Phase::Free | Phase::Waiting | Phase::Receiving => {
                    session.slots[number].due = session.slots[number].deadline
                }
            }
        }
        let Some(session) = self.sessions.get(index) else { return };
        let wake = session.next_wake(unreachable_after);
        if wake < Nanos::NEVER {
            self.wake_at(index, wake);
        }
    }

    /// Returns whether a session uses the channel.
    pub(crate) fn uses(&self, channel: u32) -> bool {
        self.sessions.iter().any(|(_, session)| session.link.peer.channel == channel)
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        if self.sender.is_ready() {
            return Some(Nanos(0));
        }
        [self.timers.earliest(), self.incoming.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sessions.iter().all(|(_, session)| session.live == 0)
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn reassembly_bytes(&self) -> usize {
        self.incoming.held().1
    }
}

/// Postpones the next retransmission, because the server has shown that it has the request.
fn postpone(session: &mut Session, now: Nanos, number: usize) {
    let slot = &mut session.slots[number];
    if slot.phase == Phase::Sent {
        slot.due = (now + session.rtt.timeout(slot.tries)).min(slot.deadline);
    }
}
