//! A transport of a client: a driver, an endpoint on it, and the sessions to servers.

use crate::calls::{AnswerDelivery, Calls, Carried};
use crate::error::Error;
use crate::session::Session;
use sprat_net::{AnyDriver, Driver as _, Nanos, StampedTx, stamp};
use sprat_rpc::{CallError, Config, Counters, Credentials, Endpoint, MAX_SLOTS};
use sprat_wire::op::RequestHeader;
use std::net::{IpAddr, SocketAddr};
use zerocopy::IntoBytes as _;

/// The largest number of sessions to one server. The slots of these sessions limit the operations
/// in progress; further operations wait.
const MAX_SESSIONS_PER_SERVER: usize = 16;

pub(crate) struct Port {
    transport: &'static str,
    driver: AnyDriver,
    endpoint: Endpoint<()>,
    sessions: Vec<Session>,
    /// What waits for a slot.
    waiting: Vec<Carried>,
    /// Whether a ping was sent and is not answered yet.
    pinging: bool,
    request_times: RequestTimes,
}

/// When a request and its answer passed between the client and its driver, as [`stamp`]s; 0 for
/// what has not happened yet. Frames of other requests count too if they are sent or received
/// meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTimes {
    on: bool,
    /// When the driver took over the first frame after recording began.
    pub sent: u64,
    /// When the driver handed over the last frame so far.
    pub received: u64,
}

impl Port {
    pub(crate) fn new(
        transport: &'static str,
        driver: AnyDriver,
        seed: u64,
        credentials: Option<Credentials>,
    ) -> Self {
        let config = Config { slots: MAX_SLOTS, ..Config::default() };
        let mut endpoint = Endpoint::new(&config, seed);
        if let Some(credentials) = credentials {
            endpoint = endpoint.secured(&config, credentials);
        }
        Self {
            transport,
            driver,
            endpoint,
            sessions: Vec::new(),
            waiting: Vec::new(),
            pinging: false,
            request_times: RequestTimes::default(),
        }
    }

    pub(crate) fn serves(&self, transport: &str, peer: SocketAddr) -> bool {
        // A TCP driver that only opens connections reaches IPv4 and IPv6; a UDP socket has one of
        // them.
        let family =
            self.transport == "tcp" || self.driver.local_addr().is_ipv4() == peer.is_ipv4();
        self.transport == transport && family
    }

    pub(crate) fn driver(&self) -> &AnyDriver {
        &self.driver
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.pinging
            && self.waiting.is_empty()
            && self.sessions.iter().all(|session| self.endpoint.outstanding(session.id) == 0)
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.endpoint.next_deadline()
    }

    /// Begins a call, or queues it until a slot is free.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos, carried: Carried, calls: &mut Calls) {
        let peer = calls.target_of(carried).peer;
        match self.session_for(now, peer) {
            Some(at) => self.call(now, at, carried, calls),
            None => self.waiting.push(carried),
        }
    }

    fn call(&mut self, now: Nanos, at: usize, carried: Carried, calls: &mut Calls) {
        let session = &mut self.sessions[at];
        let mut tx =
            StampedTx::new(self.driver.tx(), &mut self.request_times.sent, self.request_times.on);
        let called = match carried {
            Carried::One(index) => {
                let (request, deadline) = calls.request(now, index);
                self.endpoint.call(now, session.id, &[request], deadline, &mut tx)
            }
            Carried::Batch(number) => {
                let header = RequestHeader::batch();
                let (parts, deadline) = calls.batch_request(now, number, header.as_bytes());
                self.endpoint.call(now, session.id, &parts, deadline, &mut tx)
            }
        };
        match called {
            Ok(call) => session.slots[call.slot()] = Some(carried),
            // Retrying ends an operation that has reached its deadline.
            Err(CallError::Late) => calls.retry_carried(now, carried),
            Err(CallError::NoSlot | CallError::Closed) => self.waiting.push(carried),
            Err(CallError::TooLong(bytes)) => {
                unreachable!("operations are within limits, this one has {bytes} bytes")
            }
        }
    }

    fn session_for(&mut self, now: Nanos, peer: SocketAddr) -> Option<usize> {
        let mut open = 0;
        for (at, session) in self.sessions.iter().enumerate() {
            if session.peer == peer {
                if self.endpoint.free_slots(session.id).is_some_and(|free| free > 0) {
                    return Some(at);
                }
                open += 1;
            }
        }
        if open >= MAX_SESSIONS_PER_SERVER {
            return None;
        }
        let id = self.endpoint.connect(now, peer, self.driver.tx()).ok()?;
        self.sessions.push(Session { id, peer, slots: [None; MAX_SLOTS] });
        Some(self.sessions.len() - 1)
    }

    /// Receives frames and does what is due.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        deliver: &mut AnswerDelivery<'_, '_>,
    ) -> Result<bool, Error> {
        let Self { driver, endpoint, sessions, request_times, .. } = self;
        let RequestTimes { on, sent, received } = request_times;
        let mut handler = deliver.handler(sessions);
        let frames = driver
            .receive(&mut |tx, from, frame| {
                if *on {
                    *received = stamp();
                }
                endpoint.receive(
                    now,
                    from,
                    frame,
                    &mut handler,
                    &mut StampedTx::new(tx, sent, *on),
                );
            })
            .map_err(|cause| {
                Error::Endpoint(format!("the {} driver failed: {cause}", self.transport))
            })?;
        endpoint.poll(now, &mut handler, &mut StampedTx::new(driver.tx(), sent, *on));
        if !self.waiting.is_empty() {
            for carried in std::mem::take(&mut self.waiting) {
                self.begin(now, carried, deliver.calls);
            }
        }
        self.flush();
        Ok(frames > 0)
    }

    pub(crate) fn ping(&mut self, peer: IpAddr, number: u32, bytes: usize) -> Result<(), Error> {
        match self.driver.ping(peer, number, bytes) {
            true => self.pinging = true,
            false => {
                return Err(Error::Endpoint(format!(
                    "the {} driver sends no pings to {peer}",
                    self.transport
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn take_pong(&mut self) -> Option<u32> {
        let pong = self.driver.take_pong();
        self.pinging &= pong.is_none();
        pong
    }

    /// Returns, once, a peer whose host refuses connections: see [`AnyDriver::take_refusal`].
    pub(crate) fn take_refusal(&mut self) -> Option<SocketAddr> {
        self.driver.take_refusal()
    }

    pub(crate) fn flush(&mut self) {
        self.endpoint.flush(&mut StampedTx::new(
            self.driver.tx(),
            &mut self.request_times.sent,
            self.request_times.on,
        ));
    }

    /// Records the times of the next request and its answer.
    pub(crate) fn record_request_times(&mut self) {
        self.request_times = RequestTimes { on: true, sent: 0, received: 0 };
    }

    pub(crate) fn request_times(&self) -> RequestTimes {
        self.request_times
    }
}
