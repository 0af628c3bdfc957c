//! A node: one thread, one network port, one service, and the loop that feeds it.
//!
//! The node owns time and the network; the service below it sees only what it is handed. So the
//! same service runs on a kernel driver with the real clock, and in the simulator with a virtual
//! one.

use sprat_net::{Driver, Figure, Nanos, StampedTx, Transmit, stamp};
use sprat_rpc::{
    CallError, CallId, Config, ConnectError, Credentials, Endpoint, Handler, Outcome, RequestId,
    SessionId,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// What lives on a node.
pub trait Service: Handler {
    /// Does what is due and no packet asked for; returns whether there was anything.
    fn poll(&mut self, now: Nanos) -> bool;

    /// The next answer to a request that was left pending.
    fn take_ready(&mut self) -> Option<(RequestId, Outcome<Self::Body>)>;

    /// Begins what calls to other nodes there are to make. How they end comes to
    /// [`completed`](Handler::completed).
    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        let _ = (now, caller);
    }

    /// When [`poll`](Self::poll) has something to do although nothing arrives; [`Nanos::NEVER`] or
    /// `None` for not.
    fn next_deadline(&self) -> Option<Nanos>;

    /// A bounded piece of work that can wait until nothing else is to be done; returns whether
    /// there was any.
    fn work_idle(&mut self) -> bool {
        false
    }

    /// Whether requests are to be timed: how long each was the server's, from the driver that
    /// brought it to the driver that takes its answer. Each time goes to [`lap`](Self::lap).
    fn is_timed(&self) -> bool {
        false
    }

    /// A frame, most often a request, was the server's between these two [`stamp`]s.
    fn lap(&mut self, came: u64, left: u64) {
        let _ = (came, left);
    }

    /// A round of the node's loop took so many [`ticks`](sprat_net::ticks), from one to the next:
    /// more than its work when the thread was held up. Told while requests are timed.
    fn went_round(&mut self, ticks: u64) {
        let _ = ticks;
    }

    /// Whether somebody has asked what the network has carried and lost. Then the node
    /// [tells](Self::network) in this turn.
    fn asks_for_network(&self) -> bool {
        false
    }

    /// What driver and endpoint have counted.
    fn network(&mut self, figures: Vec<Figure>) {
        let _ = figures;
    }

    /// A descriptor that polls readable when [`poll`](Self::poll) has something to do.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// By what a service calls other nodes: the calling role of its node's endpoint, lent for a moment.
pub trait Caller {
    /// See [`Endpoint::connect`].
    ///
    /// # Errors
    /// [`ConnectError`].
    fn connect(&mut self, peer: SocketAddr) -> Result<SessionId, ConnectError>;

    /// See [`Endpoint::call`].
    ///
    /// # Errors
    /// [`CallError`]; nothing was begun then.
    fn call(
        &mut self,
        session: SessionId,
        parts: &[&[u8]],
        deadline: Nanos,
    ) -> Result<CallId, CallError>;

    /// See [`Endpoint::close`].
    fn close(&mut self, session: SessionId);
}

/// An endpoint and what it sends by, now.
struct Calls<'a, B, T: ?Sized> {
    endpoint: &'a mut Endpoint<B>,
    tx: &'a mut T,
    now: Nanos,
}

impl<B: Copy, T: Transmit + ?Sized> Caller for Calls<'_, B, T> {
    fn connect(&mut self, peer: SocketAddr) -> Result<SessionId, ConnectError> {
        self.endpoint.connect(self.now, peer, self.tx)
    }

    fn call(
        &mut self,
        session: SessionId,
        parts: &[&[u8]],
        deadline: Nanos,
    ) -> Result<CallId, CallError> {
        self.endpoint.call(self.now, session, parts, deadline, self.tx)
    }

    fn close(&mut self, session: SessionId) {
        self.endpoint.close(self.now, session, self.tx);
    }
}

/// A service on a driver.
pub struct Node<D, S: Handler> {
    driver: D,
    endpoint: Endpoint<S::Body>,
    service: S,
}

impl<D: Driver, S: Service> Node<D, S> {
    /// A node; `seed` is for session tokens and must be hard to guess where strangers can reach the
    /// node.
    pub fn new(driver: D, service: S, config: &Config, seed: u64) -> Self {
        Self { driver, endpoint: Endpoint::new(config, seed), service }
    }

    /// The same, that speaks only to members of its cluster.
    #[must_use]
    pub fn secured(self, config: &Config, credentials: Credentials) -> Self {
        Self { endpoint: self.endpoint.secured(config, credentials), ..self }
    }

    /// One turn of the loop: takes what has arrived, does what is due, sends what is ready.
    /// Returns whether there was anything to do.
    ///
    /// # Errors
    /// When the driver can no longer receive.
    #[inline]
    pub fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Self { driver, endpoint, service } = self;
        let timed = service.is_timed();
        let (mut came, mut left) = (0, 0);
        let frames = driver.receive(&mut |tx, from, frame| {
            if timed {
                (came, left) = (stamp(), 0);
            }
            endpoint.receive(now, from, frame, service, &mut StampedTx::new(tx, &mut left, timed));
        })?;
        if frames > 0 {
            // What could be answered at once does not wait for the rest of the turn.
            endpoint.flush(&mut StampedTx::new(driver.tx(), &mut left, timed));
        }
        let answered = left != 0;
        if answered {
            service.lap(came, left);
        }
        // Long answers begin to leave only below.
        let waits = timed && frames > 0 && !answered;
        let mut worked = service.poll(now) || frames > 0;
        if service.asks_for_network() {
            let mut figures = Vec::new();
            driver.figures(&mut figures);
            endpoint.figures(&mut figures);
            service.network(figures);
        }
        let tx = &mut StampedTx::new(driver.tx(), &mut left, waits);
        while let Some((id, outcome)) = service.take_ready() {
            endpoint.respond(now, id, outcome, service, tx);
            worked = true;
        }
        service.call(now, &mut Calls { endpoint, tx, now });
        endpoint.poll(now, service, tx);
        endpoint.flush(tx);
        if waits && left != 0 {
            service.lap(came, left);
        }
        Ok(worked)
    }

    /// When the node has something to do although nothing arrives.
    pub fn next_deadline(&self) -> Nanos {
        let service = self.service.next_deadline().unwrap_or(Nanos::NEVER);
        service.min(self.endpoint.next_deadline().unwrap_or(Nanos::NEVER))
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The service.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint<S::Body> {
        &self.endpoint
    }

    /// Takes no new requests from here on; those under way are still answered.
    pub fn drain(&mut self) {
        self.endpoint.drain();
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.endpoint.is_idle()
    }

    /// Ends every session that clients have here, and tells them.
    pub fn close_clients(&mut self, now: Nanos) {
        self.endpoint.close_clients(now, &mut self.service, self.driver.tx());
        self.endpoint.flush(self.driver.tx());
    }

    /// The service, of a node that has ended.
    pub fn into_service(self) -> S {
        self.service
    }
}
