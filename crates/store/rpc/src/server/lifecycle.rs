//! How sessions begin and end at the server. A client's `Connect` opens a session, in place of
//! another if the table is full. The server ends sessions singly, with their channel, or all at
//! once.

use std::collections::HashMap;
use std::net::IpAddr;

use sprat_net::{Nanos, Transmit};
use sprat_wire::packet::{
    Accept, Connect, FROM_SERVER, HEADER_BYTES, Kind, PROTOCOL_VERSION, Refusal,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Phase, Server, Session, clear};
use crate::config::{IDLE_BEFORE_EVICTION, MAX_SLOTS, MIN_MTU, MIN_SLOTS, UNUSED_TTL};
use crate::handler::Handler;
use crate::link::{Io, Link, Peer, padding};

impl<B: Copy> Server<B> {
    pub(super) fn connect<H, T>(
        &mut self,
        io: &mut Io<'_, T>,
        handler: &mut H,
        from: Peer,
        payload: &[u8],
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let Ok((connect, padding)) = Connect::ref_from_prefix(payload) else {
            io.counters.malformed_meaning += 1;
            return;
        };
        let (client_index, nonce) = (connect.session.get(), connect.nonce.get());
        let opening = (from, client_index, nonce);
        if let Some(&index) = self.openings.get(&opening) {
            return self.accept(io, index, padding.len());
        }
        let mtu = io.mtu(from.address, self.mtu).min(connect.mtu.get());
        let asked = usize::from(connect.slots.get());
        if connect.version.get() != PROTOCOL_VERSION {
            return io.refuse(from, client_index, nonce, Refusal::Version);
        }
        if asked < MIN_SLOTS || (mtu as usize) < MIN_MTU {
            io.counters.malformed_meaning += 1;
            return;
        }
        if self.draining {
            return io.refuse(from, client_index, nonce, Refusal::Draining);
        }
        if self.sessions.len() == self.sessions.limit() {
            match self.choose_victim(io.now, from.address.ip()) {
                Some(index) => {
                    io.counters.sessions_ceded += 1;
                    match self.sessions.get(index).is_some_and(|session| session.used) {
                        true => self.close_one(io, handler, index),
                        // The source address of this session's `Connect` may have been forged.
                        false => self.end(io.counters, handler, index),
                    }
                }
                None => return io.refuse(from, client_index, nonce, Refusal::Full),
            }
        }
        let granted = asked.min(self.slots).min(MAX_SLOTS);
        let session = Session {
            link: Link {
                peer: from,
                session: client_index,
                token: io.random.draw_u32(),
                mtu,
                side: FROM_SERVER,
            },
            nonce,
            last_heard: io.now,
            slots: Vec::new(),
            granted: u8::try_from(granted).expect("slots are bounded"),
            used: false,
        };
        let Some(index) = self.sessions.insert(session) else { return };
        self.openings.insert(opening, index);
        self.timers.set(index, io.now + UNUSED_TTL);
        io.counters.sessions_opened += 1;
        self.accept(io, index, padding.len());
    }

    /// Chooses the session that ends to make room for a new one from `address`, when the table is
    /// full. Of several candidates it is always the one that was silent for longest.
    ///
    /// An unused session ends first: an attacker opens many of them from forged addresses. If there
    /// is none, a session of the address with the most sessions ends. If that address has more
    /// sessions than `address` would then have, a session without a request in progress ends, or
    /// any session if each has a request in progress. Otherwise a session ends only if it has no
    /// request in progress and has been silent for [`IDLE_BEFORE_EVICTION`]. A client that loses
    /// its session this way opens another.
    fn choose_victim(&self, now: Nanos, address: IpAddr) -> Option<u32> {
        let longest_silent = |of: &dyn Fn(&Session<B>) -> bool| {
            let candidates = self.sessions.iter().filter(|(_, session)| of(session));
            candidates.min_by_key(|(_, session)| session.last_heard).map(|(index, _)| index)
        };
        longest_silent(&|session| !session.used).or_else(|| {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            for (_, session) in self.sessions.iter() {
                *counts.entry(session.link.peer.address.ip()).or_default() += 1;
            }
            let own = counts.get(&address).copied().unwrap_or(0) + 1;
            let (&largest, &count) =
                counts.iter().max_by_key(|&(&other, &count)| (count, other))?;
            let is_others = count > own;
            let of_largest = |session: &Session<B>| session.link.peer.address.ip() == largest;
            let idle = |session: &Session<B>| {
                of_largest(session)
                    && session.is_idle()
                    && (is_others || session.last_heard + IDLE_BEFORE_EVICTION <= now)
            };
            longest_silent(&idle).or_else(|| longest_silent(&of_largest).filter(|_| is_others))
        })
    }

    /// Sends `Accept` in a frame as long as the client's padded `Connect`, at most as long as the
    /// session's frames. That also probes the way back, and an attacker with a forged address
    /// cannot make the server send more than the attacker sent, except 4 bytes if there is no
    /// padding.
    fn accept<T: Transmit + ?Sized>(&self, io: &mut Io<'_, T>, index: u32, padded: usize) {
        let Some(session) = self.sessions.get(index) else { return };
        let accept = Accept {
            nonce: session.nonce.into(),
            session: index.into(),
            token: session.link.token.into(),
            slots: u16::from(session.granted).into(),
            ttl: u16::try_from(self.ttl.as_secs()).unwrap_or(u16::MAX).into(),
            mtu: session.link.mtu.into(),
        };
        let frame = if padded == 0 {
            0
        } else {
            (HEADER_BYTES + size_of::<Connect>() + padded).min(session.link.mtu as usize)
        };
        let padding = padding(size_of::<Accept>(), frame);
        io.send(&session.link, session.link.control(Kind::Accept), [accept.as_bytes(), padding]);
    }

    /// Ends a session, and sends its client a `Close`.
    pub(super) fn close_one<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H, index: u32)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        if let Some(session) = self.sessions.get(index) {
            let link = session.link;
            io.send(&link, link.control(Kind::Close), [&[], &[]]);
        }
        self.end(io.counters, handler, index);
    }

    /// Forgets a session and releases what it holds.
    pub(super) fn end<H: Handler<Body = B>>(
        &mut self,
        counters: &mut crate::Counters,
        handler: &mut H,
        index: u32,
    ) {
        let Some(mut session) = self.sessions.remove(index) else { return };
        counters.sessions_ended += 1;
        self.timers.remove(index);
        self.openings.remove(&(session.link.peer, session.link.session, session.nonce));
        for slot in &mut session.slots {
            self.running -= usize::from(slot.phase == Phase::Running);
            clear(slot, &mut self.incoming, &mut self.sender, handler);
        }
    }

    /// Ends the sessions of a channel that is gone.
    pub(crate) fn channel_closed<H: Handler<Body = B>>(
        &mut self,
        counters: &mut crate::Counters,
        handler: &mut H,
        channel: u32,
    ) {
        let by_it =
            self.sessions.iter().filter(|(_, session)| session.link.peer.channel == channel);
        let all: Vec<u32> = by_it.map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.end(counters, handler, index));
    }

    /// Ends every session, and sends each client a `Close`.
    pub(crate) fn close<H, T>(&mut self, io: &mut Io<'_, T>, handler: &mut H)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let all: Vec<(u32, Link)> =
            self.sessions.iter().map(|(index, session)| (index, session.link)).collect();
        for (index, link) in all {
            io.send(&link, link.control(Kind::Close), [&[], &[]]);
            self.end(io.counters, handler, index);
        }
    }
}
