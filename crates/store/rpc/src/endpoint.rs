//! The endpoint, which joins the client and the server role.

use std::net::SocketAddr;

use sprat_chance::Chance;
use sprat_net::{Figure, Nanos, Transmit};
use sprat_wire::channel::{ANSWER, CHANNEL_HEADER_BYTES, HELLO, PROOF, SEALED};
use sprat_wire::packet::{self, Malformed};

use crate::channel::{Channels, Credentials, HandshakeEvent};
use crate::client::Client;
use crate::config::Config;
use crate::counters::Counters;
use crate::handler::{CallError, CallId, ConnectError, Handler, Outcome, RequestId, SessionId};
use crate::link::{Io, Outbox, Peer};
use crate::scout::Lookahead;
use crate::server::Server;

/// One end of any number of sessions, in both roles. `B` is the [`Handler::Body`] of the handler
/// that its owner passes.
///
/// In a loop, its owner passes every frame of a batch to [`receive`](Self::receive), begins calls
/// and answers requests, then calls [`poll`](Self::poll) and [`flush`](Self::flush), and waits for
/// a frame or for [`next_deadline`](Self::next_deadline). `now` must never decrease; one reading of
/// the clock a batch is enough. The endpoint starts no threads, and keeps neither the handler nor
/// the driver that methods borrow. Its memory is bounded by the limits in [`Config`].
#[derive(Debug)]
pub struct Endpoint<B> {
    client: Client,
    server: Server<B>,
    outbox: Outbox,
    counters: Counters,
    /// Draws nonces and tokens, which distinguish stray packets from wanted ones. An attacker who
    /// reads nonces and tokens can guess the next ones.
    random: Chance,
    channels: Option<Box<Channels>>,
}

impl<B: Copy> Endpoint<B> {
    /// Makes an endpoint without sessions. `seed` must differ between the runs of a program: it
    /// determines the tokens of sessions.
    ///
    /// # Panics
    /// When a field of the configuration is outside its stated range.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        config.check();
        Self {
            client: Client::new(config),
            server: Server::new(config),
            outbox: Outbox::new(),
            counters: Counters::default(),
            random: Chance::new(seed),
            channels: None,
        }
    }

    /// Makes the endpoint exchange only sealed frames, through channels to members of its cluster.
    /// Call this before any other method.
    ///
    /// # Panics
    /// When the endpoint was used before.
    #[must_use]
    pub fn secured(self, config: &Config, credentials: Credentials) -> Self {
        assert!(self.counters == Counters::default(), "an endpoint that has been used");
        Self { channels: Some(Box::new(Channels::new(config, credentials))), ..self }
    }

    #[inline]
    fn split<'a, T: ?Sized>(
        &'a mut self,
        now: Nanos,
        tx: &'a mut T,
    ) -> (Io<'a, T>, &'a mut Client, &'a mut Server<B>) {
        let Self { client, server, outbox, counters, random, channels } = self;
        let channels = channels.as_deref_mut();
        (Io { now, tx, outbox, counters, random, channels }, client, server)
    }

    /// Takes a frame that came from `from`. Hands requests and results to the handler, and packs
    /// answers for `tx`. `frame` may be any bytes: the endpoint counts and drops invalid packets.
    pub fn receive<H, T>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        frame: &[u8],
        handler: &mut H,
        tx: &mut T,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        self.counters.frames_in += 1;
        match &self.channels {
            None => self.packets(now, Peer::open(from), frame, handler, tx),
            Some(_) => self.receive_sealed(now, from, frame, handler, tx),
        }
    }

    /// Handles a frame at an endpoint with channels: decrypts it, or advances a handshake.
    fn receive_sealed<H, T>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        frame: &[u8],
        handler: &mut H,
        tx: &mut T,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let Self { channels: Some(channels), counters, .. } = self else { return };
        match frame.first() {
            Some(&SEALED) => {
                let Some((channel, buffer)) = channels.open(now, from, frame, counters) else {
                    return;
                };
                self.packets(
                    now,
                    Peer { address: from, channel },
                    &buffer[CHANNEL_HEADER_BYTES..],
                    handler,
                    tx,
                );
                if let Some(channels) = &mut self.channels {
                    channels.give_back(buffer);
                }
            }
            Some(&(HELLO | ANSWER | PROOF)) => match channels.shake(now, from, frame, tx, counters)
            {
                HandshakeEvent::None => {}
                HandshakeEvent::Admitted(requester, certificate) => {
                    handler.admitted(requester, &certificate)
                }
                HandshakeEvent::Opened(channel, old) => {
                    let (mut io, client, _) = self.split(now, tx);
                    if let Some(old) = old {
                        client.channel_closed(&mut io, handler, old);
                    }
                    client.channel_opened(&mut io, channel);
                }
            },
            _ => counters.unsealed += 1,
        }
    }

    /// Handles the packets of a frame.
    fn packets<H, T>(&mut self, now: Nanos, from: Peer, frame: &[u8], handler: &mut H, tx: &mut T)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let (mut io, client, server) = self.split(now, tx);
        let mut rest = frame;
        let mut scout = Lookahead::new(frame);
        while !rest.is_empty() {
            scout.advance(handler);
            let packet = match packet::split(rest) {
                Ok((packet, behind)) => {
                    rest = behind;
                    packet
                }
                Err(malformed) => {
                    match malformed {
                        Malformed::Short(_) => io.counters.malformed_short += 1,
                        Malformed::Truncated { .. } => io.counters.malformed_truncated += 1,
                        Malformed::Kind(_) | Malformed::Refusal(_) => {
                            io.counters.malformed_kind += 1
                        }
                    }
                    return;
                }
            };
            io.counters.packets_in += 1;
            if packet.header.from_server() {
                client.receive(&mut io, handler, from, &packet);
            } else {
                server.receive(&mut io, handler, from, &packet);
            }
        }
    }

    /// Answers a request whose outcome was [`Outcome::Pending`]. If the request's session is gone,
    /// the endpoint drops and counts the answer, and releases its body.
    pub fn respond<H, T>(
        &mut self,
        now: Nanos,
        id: RequestId,
        outcome: Outcome<B>,
        handler: &mut H,
        tx: &mut T,
    ) where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let (mut io, _, server) = self.split(now, tx);
        server.respond(&mut io, handler, id, outcome);
    }

    /// Begins to open a session to `peer`. Calls may be made on the session at once; they wait
    /// until it is open. The session lasts until it is closed: if the server loses it, the next
    /// call opens it again.
    ///
    /// # Errors
    /// [`ConnectError`] when the endpoint has as many client sessions as its configuration allows.
    pub fn connect<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        peer: SocketAddr,
        tx: &mut T,
    ) -> Result<SessionId, ConnectError> {
        let (mut io, client, _) = self.split(now, tx);
        client.connect(&mut io, peer)
    }

    /// Begins a call whose request is the concatenation of `parts`, which the endpoint copies.
    /// [`Handler::completed`] receives its result, at the deadline at the latest.
    ///
    /// # Errors
    /// [`CallError`] when the session was closed, no slot of it is free ([`CallError::NoSlot`]),
    /// the request is longer than `MAX_MESSAGE`, or the deadline has passed. In these cases no call
    /// is begun.
    #[inline]
    pub fn call<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        session: SessionId,
        parts: &[&[u8]],
        deadline: Nanos,
        tx: &mut T,
    ) -> Result<CallId, CallError> {
        let (mut io, client, _) = self.split(now, tx);
        client.call(&mut io, session, parts, deadline)
    }

    /// Returns the number of calls that can be begun on a session now; `None` if the session was
    /// closed.
    #[must_use]
    pub fn free_slots(&self, session: SessionId) -> Option<u32> {
        self.client.ready(session)
    }

    /// Returns the number of calls outstanding on a session.
    #[must_use]
    #[inline]
    pub fn outstanding(&self, session: SessionId) -> u32 {
        self.client.outstanding(session)
    }

    /// Returns whether a session is open at the server, as far as this end knows.
    #[must_use]
    pub fn is_open(&self, session: SessionId) -> bool {
        self.client.is_open(session)
    }

    /// Sets whether pings keep a session open at the server while it has no calls. Without them, a
    /// session that the server forgot costs the next call one more round trip.
    pub fn keep_alive(&mut self, session: SessionId, on: bool) {
        self.client.keep_alive(session, on);
    }

    /// Closes a session: it accepts no more calls, and ends at both ends once its outstanding calls
    /// have ended.
    pub fn close<T: Transmit + ?Sized>(&mut self, now: Nanos, session: SessionId, tx: &mut T) {
        let (mut io, client, _) = self.split(now, tx);
        client.close(&mut io, session);
    }

    /// Refuses new sessions and answers new requests with `Retry` from now on; requests in progress
    /// may end.
    pub fn drain(&mut self) {
        self.server.drain();
    }

    /// Returns whether no call is outstanding, and no request is being received, handled or
    /// answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.client.is_idle() && self.server.is_idle()
    }

    /// Ends every session that clients opened here, and sends each a `Close`.
    pub fn close_clients<H, T>(&mut self, now: Nanos, handler: &mut H, tx: &mut T)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let (mut io, _, server) = self.split(now, tx);
        server.close(&mut io, handler);
    }

    /// Runs due timers, and sends the parts of long messages that grants allow, until it has sent
    /// [`BURST_BYTES`](crate::BURST_BYTES) for each role. Call this after each batch of frames, and
    /// at [`next_deadline`](Self::next_deadline).
    pub fn poll<H, T>(&mut self, now: Nanos, handler: &mut H, tx: &mut T)
    where
        H: Handler<Body = B>,
        T: Transmit + ?Sized,
    {
        let (mut io, client, server) = self.split(now, tx);
        if let Some(channels) = &mut io.channels {
            let gone = channels.poll(now, io.tx, io.counters, |channel| client.uses(channel));
            for channel in gone {
                client.channel_closed(&mut io, handler, channel);
                server.channel_closed(io.counters, handler, channel);
            }
        }
        client.poll(&mut io, handler);
        server.poll(&mut io, handler);
    }

    /// Returns the time at which to call [`poll`](Self::poll) next: a time in the past means at
    /// once, `None` means never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let channels = self.channels.as_ref().and_then(|channels| channels.next_deadline());
        [self.client.next_deadline(), self.server.next_deadline(), channels]
            .into_iter()
            .flatten()
            .min()
    }

    /// Hands all packed frames to the driver, and flushes it.
    pub fn flush<T: Transmit + ?Sized>(&mut self, tx: &mut T) {
        let (mut io, _, _) = self.split(Nanos(0), tx);
        io.flush();
        tx.flush();
    }

    /// Returns the endpoint's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Appends the counters that an operator looks for, and how much of each limit is in use, to
    /// `figures`.
    pub fn figures(&self, figures: &mut Vec<Figure>) {
        self.counters.figures(figures);
        let (sessions, most) = (self.server.sessions(), self.server.most_sessions());
        let (bytes, most_bytes) =
            (self.server.reassembly_bytes(), self.server.most_reassembly_bytes());
        let used = [
            ("rpc_sessions", sessions),
            ("rpc_sessions_max", most),
            ("rpc_reassembly_bytes", bytes),
            ("rpc_reassembly_bytes_max", most_bytes),
        ];
        figures.extend(used.map(|(name, value)| Figure::new(name, value as u64)));
    }

    /// Returns the number of sessions that clients opened here.
    #[must_use]
    pub fn server_sessions(&self) -> usize {
        self.server.sessions()
    }

    /// Returns the number of channels that either end began, open or still in their handshake.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.as_ref().map_or(0, |channels| channels.len())
    }

    /// Returns the number of sessions that this endpoint opened as a client.
    #[must_use]
    pub fn client_sessions(&self) -> usize {
        self.client.sessions()
    }

    /// Returns the number of bytes reserved for long messages in reassembly.
    #[must_use]
    pub fn reassembly_bytes(&self) -> usize {
        self.client.reassembly_bytes() + self.server.reassembly_bytes()
    }
}
