//! The service of a cluster's node: a master, and what it keeps for other masters, behind one port.

use crate::answers::denied;
use crate::master::{self, Master, Needed};
use crate::node::{Caller, Service};
use sprat_disk::Disk;
use sprat_net::{Figure, Nanos};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Requester, Response};
use sprat_wire::certificate::Certificate;
use sprat_wire::op::BackupRequest;
use std::os::fd::BorrowedFd;

/// Keeps replicas for masters: see [`crate::replication`] for who asks it what.
pub trait Keeper: Service<Body = u32> {
    /// Frees the replicas of servers that are not needed any more.
    fn keep(&mut self, needed: &Needed);

    /// Its counters.
    fn counted(&self) -> Vec<Figure>;
}

/// Memory that an answer is gathered from.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// The master's.
    Master(master::Body),
    /// Of what is kept for others.
    Kept(u32),
}

/// A master and a keeper of replicas.
pub struct Member<D: Disk, K> {
    master: Master<D>,
    keeper: K,
}

impl<D: Disk, K: Keeper> Member<D, K> {
    /// Both, behind one port.
    pub fn new(master: Master<D>, keeper: K) -> Self {
        Self { master, keeper }
    }

    /// The master.
    pub fn master(&self) -> &Master<D> {
        &self.master
    }

    /// What is kept for others.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// Both, of a node that has ended.
    pub fn into_parts(self) -> (Master<D>, K) {
        (self.master, self.keeper)
    }
}

impl<D: Disk, K: Keeper> Handler for Member<D, K> {
    type Body = Body;

    #[inline]
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<Body> {
        if BackupRequest::begins(payload) {
            if !id.requester().serves() {
                return denied();
            }
            self.keeper.request(now, id, payload).map(Body::Kept)
        } else {
            self.master.request(now, id, payload).map(Body::Master)
        }
    }

    #[inline]
    fn prefetch(&mut self, payload: &[u8]) {
        if !BackupRequest::begins(payload) {
            self.master.prefetch(payload);
        }
    }

    fn admitted(&mut self, who: Requester, certificate: &Certificate) {
        self.master.admitted(who, certificate);
    }

    #[inline]
    fn gather(&self, body: Body) -> &[u8] {
        match body {
            Body::Master(body) => self.master.gather(body),
            Body::Kept(body) => self.keeper.gather(body),
        }
    }

    #[inline]
    fn release(&mut self, body: Body) {
        match body {
            Body::Master(body) => self.master.release(body),
            Body::Kept(body) => self.keeper.release(body),
        }
    }

    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        self.master.completed(now, call, result);
    }
}

impl<D: Disk, K: Keeper> Service for Member<D, K> {
    fn poll(&mut self, now: Nanos) -> bool {
        let worked = self.master.poll(now);
        if let Some(needed) = self.master.take_needed() {
            self.keeper.keep(&needed);
        }
        self.keeper.poll(now) || worked
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<Body>)> {
        if let Some((id, outcome)) = self.master.take_ready() {
            return Some((id, outcome.map(Body::Master)));
        }
        let (id, outcome) = self.keeper.take_ready()?;
        Some((id, outcome.map(Body::Kept)))
    }

    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.master.call(now, caller);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        [self.master.next_deadline(), self.keeper.next_deadline()].into_iter().flatten().min()
    }

    fn work_idle(&mut self) -> bool {
        self.master.work_idle() || self.keeper.work_idle()
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.master.is_timed()
    }

    fn lap(&mut self, came: u64, left: u64) {
        self.master.lap(came, left);
    }

    fn went_round(&mut self, ticks: u64) {
        self.master.went_round(ticks);
    }

    #[inline]
    fn asks_for_network(&self) -> bool {
        self.master.asks_for_network()
    }

    fn network(&mut self, mut network: Vec<Figure>) {
        network.extend(self.keeper.counted());
        self.master.network(network);
    }

    /// The keeper's disk: a master whose log others keep has none.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.keeper.poll_fd()
    }
}
