//! How sessions begin and end at the client. The client opens a session, and the server accepts or
//! refuses it. The client gives it up when the server or the channel ends it, the server forgets it
//! or is silent for too long, its path becomes narrower, or its owner closes it.

use std::net::SocketAddr;
use std::time::Duration;

use sprat_net::{Nanos, Transmit};
use sprat_wire::packet::{Accept, HEADER_BYTES, Kind, Packet, Refusal};
use zerocopy::FromBytes;

use super::Client;
use super::session::{Phase, Session, State, bits};
use crate::config::{MIN_MTU, MIN_SLOTS};
use crate::handler::{CallFailure, ConnectError, Handler, SessionId};
use crate::link::{Io, Link, Peer};
use crate::rtt::Rtt;

impl Client {
    pub(crate) fn connect<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        peer: SocketAddr,
    ) -> Result<SessionId, ConnectError> {
        self.generations = self.generations.wrapping_add(1);
        let generation = self.generations;
        let session = Session {
            generation,
            state: State::Idle,
            closing: false,
            keep_alive: false,
            nonce: 0,
            link: Link { peer: Peer::open(peer), session: 0, token: 0, mtu: 0, side: 0 },
            granted: self.slots,
            live: 0,
            suspect: 0,
            slots: Vec::new(),
            rtt: Rtt::new(io.tx.reliable()),
            wake: Nanos::NEVER,
            last_heard: io.now,
            waiting_since: io.now,
            shake_at: io.now,
            shakes: 0,
            confirmed: false,
            verify_after: Duration::MAX,
        };
        let index =
            self.sessions.insert(session).ok_or(ConnectError::TooMany(self.sessions.limit()))?;
        let session = self.sessions.get_mut(index).expect("just inserted");
        session.connect(io, index, self.slots, self.mtu);
        let wake = session.shake_at;
        self.wake_at(index, wake);
        Ok(SessionId { index, generation })
    }

    pub(super) fn accepted<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        from: Peer,
        index: u32,
        payload: &[u8],
    ) {
        let Ok((accept, _)) = Accept::ref_from_prefix(payload) else {
            io.counters.malformed_meaning += 1;
            return;
        };
        let session = self
            .sessions
            .get_mut(index)
            .filter(|session| session.state == State::Connecting && session.link.peer == from);
        let Some(session) = session else { return };
        let Some(offered) = session.offered(accept.nonce.get()) else { return };
        let slots = usize::from(accept.slots.get());
        let mtu = accept.mtu.get();
        if !(MIN_SLOTS..=session.granted).contains(&slots)
            || !(MIN_MTU..=offered as usize).contains(&(mtu as usize))
        {
            io.counters.malformed_meaning += 1;
            return;
        }
        session.granted = slots;
        session.link.mtu = mtu;
        session.link.session = accept.session.get();
        session.link.token = accept.token.get();
        session.verify_after = Duration::from_secs(u64::from(accept.ttl.get())) / 3;
        session.state = State::Open;
        session.suspect = 0;
        session.note_heard(io.now);
        if session.live == 0 {
            // No other packet would soon show the server that its `Accept` arrived, and the server
            // forgets unused sessions early.
            io.send(&session.link, session.link.control(Kind::Ping), [&[], &[]]);
        }
        self.send_waiting(io, index);
    }

    /// Sends the requests that waited for the session to open.
    pub(super) fn send_waiting<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, index: u32) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        for number in bits(session.live) {
            if session.slots[number].phase == Phase::Waiting {
                session.send_first(io, &mut self.sender, index, number);
            }
        }
        let wake = session.next_wake(self.unreachable_after);
        self.wake_at(index, wake);
    }

    pub(super) fn refused<H, T>(
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
        let (refused, token) = (header.session.get(), header.token.get());
        let Ok(why) = Refusal::try_from(header.offset.get()) else {
            io.counters.malformed_meaning += 1;
            return;
        };
        if why == Refusal::UnknownSession {
            // The refusal carries the session's index at the server. Refusals are rare enough to
            // search for it.
            let lost = self.sessions.iter().find(|(_, session)| {
                let link = &session.link;
                matches!(session.state, State::Open | State::Verifying)
                    && (link.token, link.session, link.peer) == (token, refused, from)
            });
            if let Some((index, _)) = lost {
                self.lost(io, handler, index);
            }
            return;
        }
        let session = self.sessions.get_mut(refused).filter(|session| {
            session.state == State::Connecting
                && session.offered(token).is_some()
                && session.link.peer == from
        });
        let Some(session) = session else { return };
        session.state = State::Idle;
        let live = session.live;
        for number in bits(live) {
            self.end(io, handler, refused, number, Err(CallFailure::Refused(why)));
        }
        self.finish_closing(io, refused);
    }

    /// Handles the loss of a session at the server: fails the calls that were sent, and opens a new
    /// session for those that were not.
    pub(super) fn lost<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, index: u32)
    where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.state = State::Idle;
        let live = session.live;
        for number in bits(live) {
            if self.sessions.get(index).is_some_and(|session| session.slots[number].sent) {
                self.end(
                    io,
                    handler,
                    index,
                    number,
                    Err(CallFailure::Lost { maybe_executed: true }),
                );
            }
        }
        let (slots, cap) = (self.slots, self.mtu);
        let Some(session) = self.sessions.get_mut(index) else { return };
        if session.live != 0 {
            session.connect(io, index, slots, cap);
            let wake = session.shake_at;
            self.wake_at(index, wake);
        }
        self.finish_closing(io, index);
    }

    /// Fails every call because the server was silent for too long; the next call opens the session
    /// again.
    pub(super) fn unreachable<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, index: u32)
    where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.state = State::Idle;
        let live = session.live;
        for number in bits(live) {
            let sent = self.sessions.get(index).is_some_and(|session| session.slots[number].sent);
            self.end(
                io,
                handler,
                index,
                number,
                Err(CallFailure::Unreachable { maybe_executed: sent }),
            );
        }
        self.finish_closing(io, index);
    }

    pub(crate) fn close<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, id: SessionId) {
        if let Some(session) = self.find(id) {
            session.closing = true;
            self.finish_closing(io, id.index);
        }
    }

    /// Forgets a closing session once it has no call left, and sends the server a `Close`.
    pub(super) fn finish_closing<T: Transmit + ?Sized>(&mut self, io: &mut Io<'_, T>, index: u32) {
        let Some(session) = self.sessions.get(index) else { return };
        if !session.closing || session.live != 0 {
            return;
        }
        if matches!(session.state, State::Open | State::Verifying) {
            io.send(&session.link, session.link.control(Kind::Close), [&[], &[]]);
        }
        self.timers.remove(index);
        self.sessions.remove(index);
    }

    /// Sends `Connect` at once in the sessions that waited for this channel to open.
    pub(crate) fn channel_opened<T: Transmit + ?Sized>(
        &mut self,
        io: &mut Io<'_, T>,
        channel: u32,
    ) {
        let waits = |session: &Session| {
            session.link.peer.channel == channel && session.state == State::Connecting
        };
        for index in self.of_channel(waits) {
            let Some(session) = self.sessions.get_mut(index) else { continue };
            session.shakes = 0;
            session.shake(io, index);
            let wake = session.shake_at;
            self.wake_at(index, wake);
        }
    }

    /// Handles the end of a channel: its open sessions are lost.
    pub(crate) fn channel_closed<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, channel: u32)
    where
        H: Handler,
        T: Transmit + ?Sized,
    {
        let open = |session: &Session| matches!(session.state, State::Open | State::Verifying);
        for index in
            self.of_channel(|session| session.link.peer.channel == channel && open(session))
        {
            self.lost(io, handler, index);
        }
    }

    fn of_channel(&self, concerns: impl Fn(&Session) -> bool) -> Vec<u32> {
        self.sessions
            .iter()
            .filter(|(_, session)| concerns(session))
            .map(|(index, _)| index)
            .collect()
    }
}

const _: () = assert!(MIN_MTU > HEADER_BYTES + size_of::<Accept>());
