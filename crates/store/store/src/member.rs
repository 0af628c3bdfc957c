//! The service of a cluster's node: a master, and the replicas that the node keeps for other
//! masters, behind one port.

use crate::answers::denied;
use crate::master::{self, KnownServers, Master};
use crate::node::{Caller, Service};
use sprat_disk::Disk;
use sprat_net::{Figure, Nanos, Sources};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Requester, Response};
use sprat_wire::certificate::Certificate;
use sprat_wire::op::BackupRequest;

/// Keeps replicas for other masters. [`crate::replication`] describes the masters' side.
pub trait ReplicaStore: Service<Body = u32> {
    /// Takes a new list of the cluster's servers: frees the replicas that are no longer needed, and
    /// grants leases to members only.
    fn set_servers(&mut self, servers: KnownServers);

    /// Returns the store's counters.
    fn report_figures(&self) -> Vec<Figure>;
}

/// Where a response's body lies.
#[derive(Clone, Copy, Debug)]
pub enum NodeBody {
    /// With the master.
    Master(master::MasterBody),
    /// In a buffer of the replica store.
    Replicas(u32),
}

/// A master and a replica store behind one port, as one [`Service`]. It dispatches backup requests,
/// which only servers may make, to the store, and all other requests to the master. Only the master
/// calls other servers through the node.
pub struct ClusterNode<D: Disk, R> {
    master: Master<D>,
    replicas: R,
}

impl<D: Disk, R: ReplicaStore> ClusterNode<D, R> {
    /// Combines a master and a replica store.
    pub fn new(master: Master<D>, replicas: R) -> Self {
        Self { master, replicas }
    }

    /// Returns the master.
    pub fn master(&self) -> &Master<D> {
        &self.master
    }

    /// Returns the replicas that are kept for others.
    pub fn replicas(&self) -> &R {
        &self.replicas
    }

    /// Takes apart the service of a node that has ended.
    pub fn into_parts(self) -> (Master<D>, R) {
        (self.master, self.replicas)
    }
}

impl<D: Disk, R: ReplicaStore> Handler for ClusterNode<D, R> {
    type Body = NodeBody;

    #[inline]
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<NodeBody> {
        if BackupRequest::begins(payload) {
            if !id.requester().serves() {
                return denied();
            }
            self.replicas.request(now, id, payload).map(NodeBody::Replicas)
        } else {
            self.master.request(now, id, payload).map(NodeBody::Master)
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
    fn gather(&self, body: NodeBody) -> &[u8] {
        match body {
            NodeBody::Master(body) => self.master.gather(body),
            NodeBody::Replicas(body) => self.replicas.gather(body),
        }
    }

    #[inline]
    fn release(&mut self, body: NodeBody) {
        match body {
            NodeBody::Master(body) => self.master.release(body),
            NodeBody::Replicas(body) => self.replicas.release(body),
        }
    }

    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        self.master.completed(now, call, result);
    }
}

impl<D: Disk, R: ReplicaStore> Service for ClusterNode<D, R> {
    fn poll(&mut self, now: Nanos) -> bool {
        let worked = self.master.poll(now);
        if let Some(servers) = self.master.take_known_servers() {
            self.replicas.set_servers(servers);
        }
        self.replicas.poll(now) || worked
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<NodeBody>)> {
        if let Some((id, outcome)) = self.master.take_ready() {
            return Some((id, outcome.map(NodeBody::Master)));
        }
        let (id, outcome) = self.replicas.take_ready()?;
        Some((id, outcome.map(NodeBody::Replicas)))
    }

    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.master.call(now, caller);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        [self.master.next_deadline(), self.replicas.next_deadline()].into_iter().flatten().min()
    }

    fn work_idle(&mut self) -> bool {
        self.master.work_idle() || self.replicas.work_idle()
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.master.is_timed()
    }

    fn request_timed(&mut self, arrived: u64, departed: u64) {
        self.master.request_timed(arrived, departed);
    }

    fn loop_iteration(&mut self, ticks: u64) {
        self.master.loop_iteration(ticks);
    }

    #[inline]
    fn wants_network_figures(&self) -> bool {
        self.master.wants_network_figures()
    }

    fn network_figures(&mut self, mut network: Vec<Figure>) {
        network.extend(self.replicas.report_figures());
        self.master.network_figures(network);
    }

    /// Returns the replica store's descriptor, because a master whose log is on other servers has
    /// no disk.
    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        self.master.sources(sources);
        self.replicas.sources(sources);
    }

    fn drain(&mut self) {
        self.master.drain();
    }

    fn is_idle(&self) -> bool {
        self.master.is_idle()
    }
}
