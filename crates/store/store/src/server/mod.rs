//! A server process: its threads, how they start, and how they end.
//!
//! ```text
//! coordinator thread   a node: the coordinator, if this process has its own
//! election thread      finds out which of several coordinators leads, if this process runs one
//! data threads         nodes: a master with its backup, or with replicas of others
//! control threads      one for each data thread: enlists, and passes assignments to the master
//! catalog threads      one for each data thread with a directory: writes copies of the catalog
//! tables thread        makes the tables of Redis clients' databases
//! metrics thread       answers HTTP
//! ```

mod agent;
mod election;
mod error;
mod guard;
mod metrics;
mod nodes;
mod open;
mod redis;
mod run;
mod seed;

pub use error::ServerError;
pub use guard::{Guard, is_exposed};
pub use open::{Durability, Restored, ServerOptions};
pub use redis::RedisPassword;

use crate::coordinator::etcd::EtcdPlace;
use crate::coordinator::{
    Catalog, Coordinator, LeaderMailbox, MetadataFile, MetadataMemory, REMEDY,
};
use crate::data_dir::{DataDir, Identity};
use crate::node::{Node, Service};
use error::ThreadResult;
use redis::RedisListener;
use run::{NodeHandle, Runner};
use seed::random;
use sprat_net::bypass::DeviceShare;
use sprat_net::{AnyDriver, DriverRole, Host, Locator, Locators, Policy};
use sprat_rpc::Config;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The largest number of nodes in one process.
pub const MAX_NODES: usize = 64;

/// Refuses options that are not allowed for a server whose log has replicas on other servers.
fn check_cluster(options: &ServerOptions, listen: &[Locator]) -> Result<(), ServerError> {
    if options.copies == 0 {
        return Ok(());
    }
    let copies = options.copies;
    if usize::from(copies) > crate::replication::MAX_COPIES {
        let most = crate::replication::MAX_COPIES;
        return Err(ServerError::Log(format!("-r {copies}: the limit is {most} replicas")));
    }
    if options.durability == Durability::None {
        return Err(ServerError::Log(format!(
            "-r {copies}: replicas need a disk: give --durability sync or buffered"
        )));
    }
    match listen.iter().find(|locator| is_unreachable(locator)) {
        Some(locator) => Err(ServerError::Log(format!(
            "-L {locator}: other servers connect to it: give an address and a port"
        ))),
        None => Ok(()),
    }
}

/// Returns whether other processes cannot connect to a node at this locator. A host name counts as
/// unreachable, because every peer would have to look it up again and again, and a node cannot wait
/// for a lookup.
fn is_unreachable(locator: &Locator) -> bool {
    if matches!(locator.host, Host::Name(_)) {
        return true;
    }
    let addresses = locator.resolve();
    locator.port == 0
        || addresses.is_ok_and(|all| all.iter().any(|address| address.ip().is_unspecified()))
}

/// Opens the coordinator's metadata in a directory, or creates a cluster there. Records the cluster
/// in the directory's identity. If the metadata are missing from then on, they count as lost.
fn open_catalog(dir: &mut DataDir) -> Result<Catalog<MetadataFile>, ServerError> {
    let path = dir.coordinator();
    let catalog = Catalog::open_standalone(MetadataFile::open(&path)?, random(), random())
        .map_err(ServerError::Catalog)?;
    let (cluster, known) = (catalog.cluster(), dir.identity().coordinator);
    if known != 0 && known != cluster {
        let reason = format!(
            "{}: the metadata of cluster {cluster:016x}, not {known:016x}: {REMEDY}",
            path.display()
        );
        return Err(ServerError::Catalog(reason));
    }
    if known == 0 {
        dir.set_identity(Identity { coordinator: cluster, ..dir.identity() })?;
    }
    Ok(catalog)
}

/// Where and how a node runs.
struct NodeSettings {
    /// The name of the node's thread.
    name: String,
    /// The address at which the node listens.
    locator: Locator,
    policy: Policy,
    /// The core that the thread is pinned to; `None` if it is not pinned.
    core: Option<usize>,
    /// The node's part of a device that several nodes share.
    share: Option<DeviceShare>,
}

/// A data node of a running server.
#[derive(Clone, Debug)]
pub struct DataNode {
    /// Where clients reach the node's objects.
    pub listen: Locator,
    /// The contents that the node's log had at the start.
    pub restored: Restored,
}

/// A running server or coordinator.
///
/// [`start`](Self::start) and the other `start_` functions return once the server serves requests.
/// The server runs on threads of its own until [`stop`](Self::stop), until another thread uses a
/// [`Stopper`], or until a part of the server fails. [`wait`](Self::wait) returns how the server
/// ended. Dropping a `Server` does not stop it.
pub struct Server {
    /// Handles of the server's nodes, in the order in which they were started.
    node_handles: Vec<NodeHandle>,
    control_threads: Vec<agent::Handle>,
    /// The election thread, if this is one of several coordinators.
    election: Option<JoinHandle<()>>,
    /// Which peers the server accepts, and its own identity.
    guard: Guard,
    /// Ends the control threads and the election thread.
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ends: Receiver<ThreadResult>,
    /// Where clients find the coordinator, or the coordinators.
    pub coordinator: Locators,
    /// The nodes that hold objects; none if this is only a coordinator.
    pub nodes: Vec<DataNode>,
    /// Where Redis clients reach the objects; `None` if they do not.
    pub redis: Option<SocketAddr>,
    /// Where metrics are served; `None` if they are not.
    pub metrics: Option<SocketAddr>,
    metrics_server: Option<metrics::Handle>,
}

/// Stops a server from another thread, such as one that waits for signals.
#[derive(Clone)]
pub struct Stopper {
    /// Set before the nodes are stopped, so that no control thread looks for a coordinator that is
    /// about to end.
    ended: Arc<AtomicBool>,
    node_handles: Vec<NodeHandle>,
}

impl Stopper {
    /// Begins to stop the server: it accepts no new requests, finishes those under way, and closes
    /// the log cleanly. Returns at once.
    pub fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.node_handles.iter().for_each(NodeHandle::stop);
    }
}

impl Server {
    /// Starts a process that is only a coordinator.
    ///
    /// # Errors
    /// [`ServerError`] when the locator cannot be parsed, is exposed without an identity, or cannot
    /// be opened; when the data directory or the metadata cannot be used; or when the operating
    /// system refuses a thread.
    pub fn start_coordinator(
        locator: &str,
        data: &Path,
        guard: &Guard,
    ) -> Result<Self, ServerError> {
        let locator: Locator = locator.parse()?;
        guard.check([&locator])?;
        let mut dir = DataDir::open(data, random())?;
        let catalog = open_catalog(&mut dir)?;
        let (ended, ends) = channel();
        let mut server = Self::empty(locator.clone().into(), ends, guard);
        let (at, _) =
            server.spawn_coordinator(&locator, Coordinator::new(catalog), Some(dir), &ended)?;
        server.coordinator = at.into();
        Ok(server)
    }

    /// Starts one of several coordinators, whose metadata are in etcd. Others reach it at
    /// `locator`, which must name an address and a port. Returns once etcd has answered, whether
    /// this coordinator leads or stands by. It waits for etcd for half a minute at most.
    ///
    /// # Errors
    /// [`ServerError`] when the locator cannot be parsed, is exposed without an identity, lacks an
    /// address or a port that others can connect to, or cannot be opened; when etcd cannot be used;
    /// or when the operating system refuses a thread.
    pub fn start_candidate(
        locator: &str,
        place: &EtcdPlace,
        guard: &Guard,
    ) -> Result<Self, ServerError> {
        let locator: Locator = locator.parse()?;
        guard.check([&locator])?;
        if is_unreachable(&locator) {
            let reason = format!(
                "-C {locator}: clients and servers connect to it: give an address and a port"
            );
            return Err(ServerError::Log(reason));
        }
        let etcd = place.open()?;
        election::wait_for(&etcd)?;
        let (ended, ends) = channel();
        let mut server = Self::empty(locator.clone().into(), ends, guard);
        let mailbox = LeaderMailbox::default();
        let coordinator = Coordinator::standby(mailbox.clone(), locator.to_string());
        let (_, node) = server.spawn_coordinator(&locator, coordinator, None, &ended)?;
        let settings = election::ElectionSettings {
            locator: locator.to_string(),
            mailbox,
            node,
            place: place.clone(),
            etcd,
            identity: guard.identity.clone(),
        };
        match election::start(settings, &server.ended) {
            Ok(thread) => server.election = Some(thread),
            Err(error) => {
                server.stopper().stop();
                server.join();
                return Err(error);
            }
        }
        Ok(server)
    }

    /// Starts a server, with its own coordinator or with one elsewhere. Returns when objects can be
    /// read and written: the log has been replayed and the tables are known.
    ///
    /// # Errors
    /// [`ServerError`] when an option is invalid, a locator is exposed without an identity or
    /// cannot be opened, the data directory or its files cannot be used, the log cannot be
    /// replayed, the coordinator cannot be reached or refuses the server, or the operating system
    /// refuses a thread.
    ///
    /// # Panics
    /// When `listen` does not have 1 to [`MAX_NODES`] locators, or `cores` is neither empty nor has
    /// a core for each locator.
    pub fn start(options: &ServerOptions) -> Result<Self, ServerError> {
        let listen =
            options.listen.iter().map(|text| text.parse()).collect::<Result<Vec<Locator>, _>>()?;
        let coordinator: Locators = options.coordinator.parse()?;
        options.guard.check(&listen)?;
        if options.embedded {
            options.guard.check(coordinator.iter())?;
        }
        assert!(
            (1..=MAX_NODES).contains(&listen.len()),
            "1 to {MAX_NODES} nodes, not {}",
            listen.len()
        );
        assert!(
            options.cores.is_empty() || options.cores.len() == listen.len(),
            "a core for each node, or none"
        );
        let mut dirs: Vec<_> = match options.durability {
            Durability::None => listen.iter().map(|_| None).collect(),
            Durability::Sync | Durability::Buffered => {
                let nodes = u32::try_from(listen.len()).expect("few");
                DataDir::open_nodes(&options.data, nodes, random)?.into_iter().map(Some).collect()
            }
        };
        dirs.iter().flatten().try_for_each(|dir| dir.check_kind(options.copies))?;
        check_cluster(options, &listen)?;
        let redis = options.redis.map(|address| RedisListener::open(options, address));
        let redis = redis.transpose()?;
        let (ended, ends) = channel();
        let mut server = Self::empty(coordinator.clone(), ends, &options.guard);
        if options.embedded {
            let [coordinator] = &coordinator[..] else {
                return Err(ServerError::Log(
                    "a server that runs its own coordinator takes one -C, not several".into(),
                ));
            };
            let started = match &mut dirs[0] {
                Some(dir) => {
                    let catalog = open_catalog(dir)?;
                    server.spawn_coordinator(coordinator, Coordinator::new(catalog), None, &ended)
                }
                None => {
                    let catalog =
                        Catalog::open_standalone(MetadataMemory::default(), random(), random())
                            .map_err(ServerError::Catalog)?;
                    server.spawn_coordinator(coordinator, Coordinator::new(catalog), None, &ended)
                }
            };
            server.coordinator = started?.0.into();
        }
        if let Err(error) = server.start_nodes(options, (&listen, redis), &mut dirs, &ended) {
            server.stopper().stop();
            server.join();
            return Err(error);
        }
        Ok(server)
    }

    fn empty(coordinator: Locators, ends: Receiver<ThreadResult>, guard: &Guard) -> Self {
        Self {
            node_handles: Vec::new(),
            control_threads: Vec::new(),
            election: None,
            guard: guard.clone(),
            ended: Arc::default(),
            threads: Vec::new(),
            ends,
            coordinator,
            nodes: Vec::new(),
            redis: None,
            metrics: None,
            metrics_server: None,
        }
    }

    /// Returns a handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { ended: Arc::clone(&self.ended), node_handles: self.node_handles.clone() }
    }

    /// Waits until the server has stopped, on request or because a part of it failed.
    ///
    /// # Errors
    /// The error of the thread that ended first. If that thread ended without an error, the error
    /// of another thread, if any.
    pub fn wait(mut self) -> Result<(), ServerError> {
        let result = self.ends.recv().unwrap_or(Ok(()));
        self.stopper().stop();
        self.join();
        // The other parts end because the first did. Their errors count only if the first had none.
        let rest = self.ends.try_iter().find(Result::is_err);
        result.and(rest.unwrap_or(Ok(())))
    }

    /// Stops the server and waits for its end.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper().stop();
        self.wait()
    }

    fn join(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.control_threads.drain(..).for_each(agent::Handle::join);
        if let Some(election) = self.election.take() {
            // A thread that panicked has reported the panic on standard error.
            let _ = election.join();
        }
        if let Some(metrics_server) = self.metrics_server.take() {
            metrics_server.end();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported the panic on standard error, and has sent no
            // message to `ends`.
            let _ = thread.join();
        }
    }

    fn spawn_coordinator<M: crate::coordinator::Metadata + Send + 'static>(
        &mut self,
        locator: &Locator,
        coordinator: Coordinator<M>,
        dir: Option<DataDir>,
        ended: &Sender<ThreadResult>,
    ) -> Result<(Locator, NodeHandle), ServerError> {
        // Tables are seldom created, so the coordinator's thread sleeps when idle and does not
        // spin.
        let policy = Policy::of(sprat_net::Mode::Sleep);
        let settings = NodeSettings {
            name: "coordinator".into(),
            locator: locator.clone(),
            policy,
            core: None,
            share: None,
        };
        let close = move |_, _| {
            drop(dir);
            Ok(())
        };
        let bound = self.spawn_node(settings, ended, move |_| Ok(coordinator), close)?;
        Ok((bound, self.node_handles.last().expect("just started").clone()))
    }

    /// Starts a thread that opens the driver, makes the service with `make`, and runs a node with
    /// both. Returns once the node runs. The service is made on its own thread, since it need not
    /// be [`Send`]; `make` is given the time at which the node's clock began.
    fn spawn_node<S: Service>(
        &mut self,
        settings: NodeSettings,
        ended: &Sender<ThreadResult>,
        make: impl FnOnce(Instant) -> Result<S, ServerError> + Send + 'static,
        close: impl FnOnce(S, sprat_net::Nanos) -> Result<(), ServerError> + Send + 'static,
    ) -> Result<Locator, ServerError> {
        let NodeSettings { name, locator, policy, core, share } = settings;
        let guard = self.guard.clone();
        let [on_panic, on_end] = [name.clone(), name.clone()];
        let thread_name = format!("sprat-{name}");
        let (started, starting) = channel();
        let (failed, ended) = (started.clone(), ended.clone());
        let runs = Arc::new(AtomicBool::new(false));
        let runs_by_body = Arc::clone(&runs);
        let body = move || {
            let runner = Runner::new(policy).map_err(ServerError::system("make an eventfd"))?;
            if let Some(core) = core {
                run::pin(core).map_err(ServerError::system(format!(
                    "pin the {name} thread to core {core}"
                )))?;
            }
            // Credentials require that the node's clock begins now, and the runner's clock has just
            // begun.
            let credentials = guard.credentials()?;
            let service = make(runner.clock_start())?;
            let driver = match share {
                Some(share) => AnyDriver::open_share(&locator, share)?,
                None => AnyDriver::open(&locator, DriverRole::Listen)?,
            };
            let bound = driver.advertised(&locator);
            let mut node = Node::new(driver, service, &Config::default(), random());
            if let Some(credentials) = credentials {
                node = node.secured(&Config::default(), credentials);
            }
            runs_by_body.store(true, Ordering::Release);
            let _ = started.send(Ok((bound, runner.handle()))); // the starter waits for it
            let (service, now) =
                runner.run(node).map_err(ServerError::system("receive from the network"))?;
            close(service, now)
        };
        let run = move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            let panicked = || {
                Err(ServerError::Log(format!(
                    "the {on_panic} thread panicked; its message is above"
                )))
            };
            let result = caught.unwrap_or_else(|_| panicked());
            // Before the node runs, the thread that started it waits for an error. Afterwards an
            // error is sent as the thread's end. When the process is ending, nothing receives that.
            match result {
                Err(error) if !runs.load(Ordering::Acquire) => drop(failed.send(Err(error))),
                end => drop(ended.send(end)),
            }
        };
        let spawned = thread::Builder::new().name(thread_name).spawn(run);
        self.threads.push(spawned.map_err(ServerError::system("start a thread"))?);
        match starting.recv() {
            Ok(Ok((bound, stop))) => {
                self.node_handles.push(stop);
                Ok(bound)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ServerError::Log(format!("the {on_end} thread ended at once"))),
        }
    }
}
