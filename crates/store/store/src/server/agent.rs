//! The control thread of a node: it drives the node's [`CoordinatorSession`], so that the node
//! enlists, keeps its lease, and has the current assignments.

use super::run::{NodeHandle, pause};
use super::{ServerError, ThreadResult};
use crate::agent::{CatalogCopy, CoordinatorSession, Enlisted, SessionEnd};
use crate::coordinator::{Catalog, MetadataMemory};
use crate::data_dir::{DataDir, Identity};
use crate::master::Outbox;
use sprat_client::{Client, Error, Identity as ClusterIdentity, Options};
use sprat_host::wait_until;
use sprat_net::{Locators, Mode, Nanos};
use sprat_wire::op::{Assignment, Request, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Timeout of a request to the coordinator, which answers within half a second when it runs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server that starts looks for its coordinator.
const ENLIST_PATIENCE: Duration = Duration::from_secs(30);

/// Delay before the coordinator is tried again, and delay before another of several is tried.
const RETRY_DELAY: Duration = Duration::from_millis(100);
const NEXT_COORDINATOR_DELAY: Duration = Duration::from_millis(5);

/// How often a server reports that the coordinator belongs to another cluster.
const WRONG_CLUSTER_WARN_INTERVAL: Duration = Duration::from_secs(5);

/// The largest number of catalog copies that wait to be written. When there is no room, the control
/// thread keeps the newest copy ([`pass_on`]).
const MAX_WAITING_COPIES: usize = 1;

/// How long a server that starts looks, among several coordinators, for one with its cluster's
/// metadata.
const WRONG_CLUSTER_PATIENCE: Duration = Duration::from_secs(5);

/// Silence of all of several coordinators after which a warning is logged. While the silence lasts,
/// the warning is repeated at this interval. If there is only one coordinator, each failed request
/// is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// A connection to the coordinator, and the session that uses it, before the control thread runs.
pub(super) struct Link {
    client: Client,
    /// Number of the cluster's coordinators.
    coordinators: usize,
    session: CoordinatorSession,
    /// The server's identity in the cluster, if members of this cluster have identities.
    cluster_identity: Option<Arc<ClusterIdentity>>,
}

/// A running control thread.
pub(super) struct Handle {
    thread: JoinHandle<()>,
    /// The thread that writes copies of the catalog; it ends after the control thread.
    catalog_writer: Option<JoinHandle<()>>,
}

impl Handle {
    /// Waits until the thread ends. Once `ended` is set, the thread ends within a request's
    /// timeout.
    pub(super) fn join(self) {
        // A thread that panicked has reported the panic on standard error.
        let _ = self.thread.join();
        if let Some(catalog_writer) = self.catalog_writer {
            // If the catalog writer panicked, it has reported that on standard error as well.
            let _ = catalog_writer.join();
        }
    }
}

impl Link {
    /// Makes the session fetch copies of the catalog. `copied` is the version of the copy that the
    /// node has; zero if it has none.
    pub(super) fn keeping_copies(mut self, copied: u64) -> Self {
        self.session = self.session.keeping_copies(copied);
        self
    }

    /// Connects a node to the coordinator. `known` is the identity from the node's data directory,
    /// if there is one; others reach the node at `locator`. The node's log has `copies` replicas on
    /// other servers, which are outside `rack` where possible.
    pub(super) fn connect(
        coordinator: &Locators,
        known: Option<Identity>,
        (copies, rack): (u8, &str),
        locator: String,
        cluster_identity: Option<Arc<ClusterIdentity>>,
    ) -> Result<Self, ServerError> {
        let enlisted = known.map_or_else(Enlisted::default, |identity| Enlisted {
            server: identity.server,
            cluster: identity.cluster,
        });
        Self::with_session(
            coordinator,
            CoordinatorSession::new(enlisted, copies, locator).in_rack(rack),
            cluster_identity,
        )
    }

    /// Makes a client for a session. The client cannot move to another thread, so the thread that
    /// will use it calls this.
    fn with_session(
        coordinator: &Locators,
        session: CoordinatorSession,
        cluster_identity: Option<Arc<ClusterIdentity>>,
    ) -> Result<Self, ServerError> {
        let options = Options {
            coordinator: coordinator.to_string(),
            timeout: TIMEOUT,
            patient: true,
            waiting: Mode::Sleep,
            identity: cluster_identity.clone(),
            ..Options::default()
        };
        let client = Client::connect(&options).map_err(ServerError::Enlist)?;
        Ok(Self { client, coordinators: coordinator.len(), session, cluster_identity })
    }

    /// Enlists the server. If no coordinator answers yet, waits for one.
    pub(super) fn enlist(&mut self) -> Result<Enlisted, ServerError> {
        let until = Instant::now() + ENLIST_PATIENCE;
        let (unused, _inbox) = crate::master::inbox();
        loop {
            match self.request_once(Nanos(0), &unused) {
                Ok(_) => return Ok(self.session.enlisted()),
                Err(ServerError::Enlist(
                    error @ (Error::Timeout { .. } | Error::Indeterminate { .. }),
                )) if Instant::now() < until => {
                    tracing::info!("waiting for the coordinator: {error}");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fetches the coordinator's current catalog: decoded, and as a copy to be kept.
    pub(super) fn catalog(
        &mut self,
    ) -> Result<(CatalogCopy, Catalog<MetadataMemory>), ServerError> {
        let until = Instant::now() + WRONG_CLUSTER_PATIENCE;
        loop {
            let request = Request::CopyCatalog {
                server: self.session.enlisted().server,
                seen: &self.session.seen(),
            };
            let ticket = self.client.submit(&request).map_err(ServerError::Enlist)?;
            let answered = self.client.wait_any_status(ticket, |answer| {
                let copy = CatalogCopy { bytes: answer.body.to_vec() };
                (answer.status, answer.number, copy)
            });
            let (status, version, copy) = answered.map_err(ServerError::Enlist)?;
            match status {
                Status::Ok if version >= self.session.seen().version.get() => {
                    let catalog = Catalog::<MetadataMemory>::from_copy(&copy.bytes);
                    let catalog = catalog.map_err(|what| {
                        ServerError::Catalog(format!("the coordinator's catalog: {what}"))
                    })?;
                    return Ok((copy, catalog));
                }
                // One of several coordinators may have answered although it no longer leads.
                _ if self.coordinators > 1 && Instant::now() < until => {
                    self.client.core_mut().switch_coordinator("");
                    pause(NEXT_COORDINATOR_DELAY);
                }
                Status::Ok => {
                    return Err(ServerError::Catalog(format!(
                        "the coordinator's catalog is of version {version}, and this server has \
                         seen a newer one"
                    )));
                }
                status => {
                    let words = String::from_utf8_lossy(&copy.bytes).into_owned();
                    let reason = if words.is_empty() { status.to_string() } else { words };
                    return Err(ServerError::Gone(SessionEnd::Refused(reason)));
                }
            }
        }
    }

    /// Returns the ids of the tables that the coordinator has assigned to this server at present.
    pub(super) fn tables(&mut self) -> Result<Vec<u32>, ServerError> {
        let request = Request::Assignments {
            server: self.session.enlisted().server,
            known: 0,
            seen: &self.session.seen(),
        };
        let ticket = self.client.submit(&request);
        let wait = |ticket| self.client.wait(ticket, |answer| Assignment::parse(answer.body));
        let assignment = ticket.and_then(wait).map_err(ServerError::Enlist)?;
        let tables = assignment.map(|assignment| {
            let mut tables: Vec<u32> =
                assignment.tablets.iter().map(|tablet| tablet.table).collect();
            tables.dedup();
            tables
        });
        tables.ok_or_else(|| {
            ServerError::Enlist(Error::Protocol { server: "the coordinator".into() })
        })
    }

    /// Sends one request and handles its answer; returns whether a command was left for the master.
    fn request_once(&mut self, now: Nanos, outbox: &Outbox) -> Result<bool, ServerError> {
        let Self { client, session, coordinators, .. } = self;
        // The kind of the next request decides its timeout.
        let _ = session.next_request(now, outbox);
        client.set_timeout(session.patience(*coordinators));
        let submitted = client.submit(&session.next_request(now, outbox));
        let answered = submitted.and_then(|ticket| {
            client.wait_any_status(ticket, |answer| session.answered(Some(answer), outbox))
        });
        let answered = answered.map_err(|error| {
            // Otherwise the session would send the same request again, which may be one that does
            // not renew the lease.
            let _ = session.answered(None, outbox);
            ServerError::Enlist(error)
        });
        if session.take_deposed() {
            client.core_mut().switch_coordinator("");
            pause(NEXT_COORDINATOR_DELAY);
        }
        answered?.map_err(ServerError::Gone)
    }

    /// Runs until `ended` is set, or until the session ends, for example because the coordinator
    /// declared the server dead. In the latter case the server ends as well. Signals `ready` once
    /// the master serves its tables.
    fn run(
        mut self,
        node: &ControlledNode,
        copies: Option<&SyncSender<CatalogCopy>>,
        ended: &AtomicBool,
        ready: &Sender<()>,
    ) {
        let ControlledNode { outbox, handle, end, .. } = node;
        let mut ready = Some(ready);
        let mut heard = Instant::now();
        let mut warned: Option<Instant> = None;
        let mut copy = None;
        while !ended.load(Ordering::Acquire) {
            let now = handle.now();
            let worked = self.request_once(now, outbox);
            copy = self.session.take_copy().or(copy);
            if let Some(copies) = copies {
                copy = pass_on(copy, copies);
            }
            if let Some(reason) = self.session.take_wrong_cluster() {
                if warned.is_none_or(|at| at.elapsed() > WRONG_CLUSTER_WARN_INTERVAL) {
                    tracing::error!("this is another cluster's coordinator: {reason}");
                    warned = Some(Instant::now());
                }
                pause(RETRY_DELAY);
            }
            match worked {
                Ok(true) => {
                    heard = Instant::now();
                    handle.ring();
                    wait_applied(outbox, self.session.assigned_version());
                }
                Ok(false) => heard = Instant::now(),
                Err(gone @ ServerError::Gone(_)) => {
                    let _ = end.send(Err(gone)); // if there is no receiver, the process is ending
                    return;
                }
                Err(_) if ended.load(Ordering::Acquire) => {}
                Err(error) => {
                    let several = self.coordinators > 1;
                    // If one of several coordinators is silent, another takes over.
                    if !several || heard.elapsed() > WARN_INTERVAL {
                        tracing::warn!(
                            "cannot reach the coordinator: {error}; objects are still served"
                        );
                        heard = Instant::now();
                    }
                    pause(if several { NEXT_COORDINATOR_DELAY } else { RETRY_DELAY });
                }
            }
            if outbox.applied() > 0
                && let Some(ready) = ready.take()
            {
                let _ = ready.send(()); // the starting thread may have given up
            }
        }
    }
}

/// The node that a control thread drives.
pub(super) struct ControlledNode {
    /// Where clients reach the master.
    pub(super) locator: String,
    pub(super) outbox: Outbox,
    pub(super) handle: NodeHandle,
    /// Takes the error with which the session ended, and ends the server.
    pub(super) end: Sender<ThreadResult>,
    /// The directory that keeps copies of the catalog, if there is one, and the first copy.
    pub(super) catalog: Option<(DataDir, CatalogCopy)>,
}

/// Passes a copy of the catalog on to the thread that writes copies. Returns the copy if the disk
/// is slow and there is no room: the caller tries again, until there is room or a newer copy. If
/// the copy were dropped, the directory would keep an old one until the catalog changes again, and
/// a coordinator that is rebuilt from the servers' copies would lack tables.
fn pass_on(copy: Option<CatalogCopy>, copies: &SyncSender<CatalogCopy>) -> Option<CatalogCopy> {
    match copies.try_send(copy?) {
        Err(TrySendError::Full(copy)) => Some(copy),
        Ok(()) | Err(TrySendError::Disconnected(_)) => None, // the writer has reported its end
    }
}

/// Records the ages of the files that have been opened. Then writes copies of the catalog until no
/// more can come. If several copies wait, it writes only the newest. This function has its own
/// thread, since a busy disk must not delay the renewal of the lease.
fn keep_copies(dir: &mut DataDir, first: CatalogCopy, copies: &Receiver<CatalogCopy>) {
    dir.note_ages();
    let mut fails = false;
    let mut next = Some(first);
    while let Some(copy) = next.take().or_else(|| copies.recv().ok()) {
        let copy = copies.try_iter().last().unwrap_or(copy);
        match dir.keep_catalog(&copy) {
            Ok(()) => fails = false,
            Err(error) if !fails => {
                tracing::warn!(
                    "{error}; until it can be written, this server may not notice outdated \
                     metadata of the coordinator"
                );
                fails = true;
            }
            Err(_) => {}
        }
    }
}

/// Starts the control thread, which runs until `ended` is set; returns once the master serves its
/// tables.
pub(super) fn start(
    coordinator: &Locators,
    link: Link,
    node: ControlledNode,
    ended: &Arc<AtomicBool>,
) -> Result<Handle, ServerError> {
    let (flag, coordinator) = (Arc::clone(ended), coordinator.clone());
    let (ready, waiting) = channel();
    let Link { mut session, cluster_identity, .. } = link;
    // The locator with which the node enlisted may lack the port that the driver got.
    session.set_locator(&node.locator);
    let mut catalog_writer = None;
    let copies = match node.catalog.clone() {
        Some((mut dir, first)) => {
            let (copies, waiting) = sync_channel(MAX_WAITING_COPIES);
            let keep = move || keep_copies(&mut dir, first, &waiting);
            let thread = thread::Builder::new().name("sprat-catalog".into()).spawn(keep);
            catalog_writer = Some(thread.map_err(ServerError::system("start a thread"))?);
            Some(copies)
        }
        None => None,
    };
    let run = move || match Link::with_session(&coordinator, session, cluster_identity) {
        Ok(link) => link.run(&node, copies.as_ref(), &flag, &ready),
        Err(error) => tracing::error!("{error}"),
    };
    let thread = thread::Builder::new().name("sprat-control".into()).spawn(run);
    let handle =
        Handle { thread: thread.map_err(ServerError::system("start a thread"))?, catalog_writer };
    match waiting.recv_timeout(FIRST_TABLES) {
        Ok(()) => Ok(handle),
        Err(_) => {
            ended.store(true, Ordering::Release);
            handle.join();
            Err(ServerError::Log("the coordinator has not sent this server its tables".into()))
        }
    }
}

/// How long the first assignment may take.
const FIRST_TABLES: Duration = Duration::from_secs(10);

/// Gives the master a moment to apply an assignment, so that the next request reports it to the
/// coordinator at once.
fn wait_applied(outbox: &Outbox, version: u64) {
    wait_until(Duration::from_millis(100), Duration::from_micros(50), || {
        outbox.applied() >= version
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::inbox;
    use sprat_wire::op::{Answer, encode_answer, push_counter};
    use std::net::UdpSocket;
    use zerocopy::IntoBytes as _;

    fn answer(session: &mut CoordinatorSession, outbox: &Outbox, number: u64, body: &[u8]) {
        let _ = session.next_request(Nanos(0), outbox);
        let bytes = [encode_answer(Status::Ok, false, 0, number).as_bytes(), body].concat();
        session.answered(Answer::parse(&bytes).as_ref(), outbox).expect("an expected answer");
    }

    /// A disk that took a second for a copy once left the directory with an old one for good.
    #[test]
    fn the_newest_copy_is_written_however_slow_the_disk_is() {
        let (copies, waiting) = sync_channel(MAX_WAITING_COPIES);
        let mut left = None;
        for version in 0..9 {
            let newer = Some(CatalogCopy { bytes: vec![version] });
            left = pass_on(newer.or(left), &copies);
        }
        let mut written = Vec::new();
        while let Ok(copy) = waiting.try_recv() {
            written.extend(copy.bytes);
            left = pass_on(left, &copies);
        }
        assert_eq!((written, left), (vec![0, 8], None));
    }

    /// A server that repeated the request for a copy until it was answered would lose its lease.
    #[test]
    fn after_a_request_without_an_answer_the_lease_comes_first() {
        let (outbox, _inbox) = inbox();
        let at = "tcp:host=10.0.0.2,port=9".to_owned();
        let mut session = CoordinatorSession::new(Enlisted::default(), 2, at).keeping_copies(0);
        let mut cluster = Vec::new();
        push_counter(&mut cluster, "cluster", 5);
        push_counter(&mut cluster, "version", 7);
        answer(&mut session, &outbox, 3, &cluster);
        let mut tablets = Vec::new();
        Assignment { next_server: 4, ..Assignment::default() }.encode(&mut tablets);
        answer(&mut session, &outbox, 7, &tablets);
        // Two coordinators that never answer.
        let silent = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let ports = silent.each_ref().map(|socket| socket.local_addr().expect("bound").port());
        let coordinators = ports.map(|port| format!("fast+udp:host=127.0.0.1,port={port}"));
        let coordinators = coordinators.join(",").parse().expect("locators");
        let mut link = Link::with_session(&coordinators, session, None).expect("a client");
        let next = link.session.next_request(Nanos(0), &outbox);
        assert!(matches!(next, Request::CopyCatalog { .. }), "{next:?}");
        let answered = link.request_once(Nanos(0), &outbox);
        assert!(matches!(answered, Err(ServerError::Enlist(_))), "{answered:?}");
        let next = link.session.next_request(Nanos(0), &outbox);
        assert!(matches!(next, Request::Assignments { .. }), "{next:?}");
    }
}
