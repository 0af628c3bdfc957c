//! A node: one thread, one network port, one service, and the loop that drives them.
//!
//! The node owns time and the network; the service sees only what it is handed. So the same service
//! runs on a kernel driver with the real clock, and in the simulator with a virtual one.

use sprat_net::{Driver, Figure, Nanos, Sources, StampedTx, Transmit, stamp};
use sprat_rpc::{
    CallError, CallId, Config, ConnectError, Credentials, Endpoint, Handler, Outcome, RequestId,
    SessionId,
};
use std::io;
use std::net::SocketAddr;

/// The service of a node: a [`Handler`] of requests that also has work of its own.
///
/// In each loop iteration the node delivers the requests that have arrived, then calls
/// [`poll`](Self::poll), [`take_ready`](Self::take_ready) until it returns `None`, and
/// [`call`](Self::call). When nothing was done, the node's owner may call
/// [`work_idle`](Self::work_idle). When that does nothing either, the owner sleeps until a packet
/// arrives, one of its [`sources`](Self::sources) becomes readable, or
/// [`next_deadline`](Self::next_deadline) has passed. No method may block, except that a
/// coordinator waits, for a bounded time, for its metadata.
pub trait Service: Handler {
    /// Does the work that is due apart from requests; returns whether there was such work.
    fn poll(&mut self, now: Nanos) -> bool;

    /// Returns the next reply to a request that was left pending.
    fn take_ready(&mut self) -> Option<(RequestId, Outcome<Self::Body>)>;

    /// Makes the calls to other nodes that are due. Their results arrive at
    /// [`completed`](Handler::completed).
    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        let _ = (now, caller);
    }

    /// Returns the time at which [`poll`](Self::poll) has something to do even if no frame arrives;
    /// `None` or [`Nanos::NEVER`] if there is no such time.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Does a bounded piece of work that can wait until nothing else is due; returns whether there
    /// was such work.
    fn work_idle(&mut self) -> bool {
        false
    }

    /// Returns whether to time requests, from the reception of each by the driver to the moment
    /// when the driver sends its reply. Each time goes to [`request_timed`](Self::request_timed).
    /// Of several frames that arrive in one iteration, only the last is timed.
    fn is_timed(&self) -> bool {
        false
    }

    /// Reports that a frame, usually a request, arrived at the [`stamp`] `arrived`, and that its
    /// reply departed at the stamp `departed`.
    fn request_timed(&mut self, arrived: u64, departed: u64) {
        let _ = (arrived, departed);
    }

    /// Reports the [`ticks`](sprat_net::ticks) between the starts of two loop iterations. They are
    /// more than the work of one iteration if the thread was held up. Called only while requests
    /// are timed.
    fn loop_iteration(&mut self, ticks: u64) {
        let _ = ticks;
    }

    /// Returns whether the service wants the network's counters in this iteration. The node then
    /// passes them to [`network_figures`](Self::network_figures).
    fn wants_network_figures(&self) -> bool {
        false
    }

    /// Receives the counters of the driver and the endpoint.
    fn network_figures(&mut self, figures: Vec<Figure>) {
        let _ = figures;
    }

    /// Adds the descriptors that become readable when [`poll`](Self::poll) has something to do.
    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        let _ = sources;
    }

    /// Makes the service take nothing new from peers that it serves apart from the node's endpoint.
    fn drain(&mut self) {}

    /// Returns whether nothing has still to be sent to such peers.
    fn is_idle(&self) -> bool {
        true
    }
}

/// Lets a service call other nodes through its node's endpoint during one loop iteration.
pub trait Caller {
    /// Opens a session with `peer`: see [`Endpoint::connect`].
    ///
    /// # Errors
    /// [`ConnectError`] when the endpoint has as many client sessions as its configuration allows.
    fn connect(&mut self, peer: SocketAddr) -> Result<SessionId, ConnectError>;

    /// Begins a call: see [`Endpoint::call`].
    ///
    /// # Errors
    /// [`CallError`] when the session was closed, every slot of it has a call outstanding, the
    /// request is too long, or the deadline has passed. No call is begun then.
    fn call(
        &mut self,
        session: SessionId,
        parts: &[&[u8]],
        deadline: Nanos,
    ) -> Result<CallId, CallError>;

    /// Closes a session: see [`Endpoint::close`].
    fn close(&mut self, session: SessionId);
}

/// The endpoint, and the driver's transmitter for this iteration.
struct EndpointCaller<'a, B, T: ?Sized> {
    endpoint: &'a mut Endpoint<B>,
    tx: &'a mut T,
    now: Nanos,
}

impl<B: Copy, T: Transmit + ?Sized> Caller for EndpointCaller<'_, B, T> {
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
///
/// The owner of a node also owns time: it calls [`turn`](Self::turn) again and again with a clock
/// that never goes back, and between two calls waits no longer than
/// [`next_deadline`](Self::next_deadline). To stop the node, the owner calls
/// [`drain`](Self::drain), continues with `turn` until [`is_idle`](Self::is_idle), then calls
/// [`close_clients`](Self::close_clients) and [`into_service`](Self::into_service).
pub struct Node<D, S: Handler> {
    driver: D,
    endpoint: Endpoint<S::Body>,
    service: S,
}

impl<D: Driver, S: Service> Node<D, S> {
    /// Creates a node. `seed` generates session tokens: it must be hard to guess if strangers can
    /// reach the node.
    pub fn new(driver: D, service: S, config: &Config, seed: u64) -> Self {
        Self { driver, endpoint: Endpoint::new(config, seed), service }
    }

    /// Makes the node communicate only with members of its cluster.
    #[must_use]
    pub fn secured(self, config: &Config, credentials: Credentials) -> Self {
        Self { endpoint: self.endpoint.secured(config, credentials), ..self }
    }

    /// Runs one iteration of the loop: takes the frames that have arrived, does the work that is
    /// due, and sends the frames that are ready. Returns whether frames arrived, or the service had
    /// work or replies.
    ///
    /// # Errors
    /// When the driver can no longer receive.
    #[inline]
    pub fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Self { driver, endpoint, service } = self;
        let timed = service.is_timed();
        let (mut arrived, mut departed) = (0, 0);
        let frames = driver.receive(&mut |tx, from, frame| {
            if timed {
                (arrived, departed) = (stamp(), 0);
            }
            endpoint.receive(
                now,
                from,
                frame,
                service,
                &mut StampedTx::new(tx, &mut departed, timed),
            );
        })?;
        if frames > 0 {
            // Replies that are ready at once do not wait for the rest of the iteration.
            endpoint.flush(&mut StampedTx::new(driver.tx(), &mut departed, timed));
        }
        let answered = departed != 0;
        if answered {
            service.request_timed(arrived, departed);
        }
        // The first part of a long reply leaves only at the end of this function.
        let waits = timed && frames > 0 && !answered;
        let mut worked = service.poll(now) || frames > 0;
        if service.wants_network_figures() {
            let mut figures = Vec::new();
            driver.figures(&mut figures);
            endpoint.figures(&mut figures);
            service.network_figures(figures);
        }
        let tx = &mut StampedTx::new(driver.tx(), &mut departed, waits);
        while let Some((id, outcome)) = service.take_ready() {
            endpoint.respond(now, id, outcome, service, tx);
            worked = true;
        }
        service.call(now, &mut EndpointCaller { endpoint, tx, now });
        endpoint.poll(now, service, tx);
        endpoint.flush(tx);
        if waits && departed != 0 {
            service.request_timed(arrived, departed);
        }
        Ok(worked)
    }

    /// Returns the time at which the node has something to do even if no frame arrives;
    /// [`Nanos::NEVER`] if there is no such time.
    pub fn next_deadline(&self) -> Nanos {
        let service = self.service.next_deadline().unwrap_or(Nanos::NEVER);
        service.min(self.endpoint.next_deadline().unwrap_or(Nanos::NEVER))
    }

    /// Returns the service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Returns the service, to change it.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Returns the driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint<S::Body> {
        &self.endpoint
    }

    /// Makes the node refuse new sessions and requests; requests under way are still answered.
    pub fn drain(&mut self) {
        self.endpoint.drain();
        self.service.drain();
    }

    /// Returns whether no request from a client, and no call of the service, is under way.
    pub fn is_idle(&self) -> bool {
        self.endpoint.is_idle() && self.service.is_idle()
    }

    /// Ends every session of a client with this node, and notifies the clients.
    pub fn close_clients(&mut self, now: Nanos) {
        self.endpoint.close_clients(now, &mut self.service, self.driver.tx());
        self.endpoint.flush(self.driver.tx());
    }

    /// Returns the service of a node that has ended.
    pub fn into_service(self) -> S {
        self.service
    }
}
