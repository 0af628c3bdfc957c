//! A server process: which threads there are, how they start, and how they end.
//!
//! ```text
//! coordinator thread   a node: the coordinator, if this process brings its own
//! data thread          a node: the master with its backup
//! control thread       enlists, asks for assignments, leaves them in the master's inbox
//! metrics thread       answers HTTP
//! ```

mod agent;
mod metrics;
mod open;
mod run;

pub use open::{Durability, Restored, ServerOptions};

use crate::coordinator::{Catalog, Coordinator, MetadataError, MetadataFile, MetadataMemory};
use crate::data_dir::{DataDir, DataDirError, Identity};
use crate::node::{Node, Service};
use agent::{Agent, Enlisted};
use run::{Runner, Stop};
use sprat_client::Error as ClientError;
use sprat_net::{AnyDriver, Locator, LocatorError, OpenError, Policy, Role};
use sprat_rpc::Config;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use thiserror::Error;

/// Why a server could not start, or had to end.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A locator that is none.
    #[error(transparent)]
    Locator(#[from] LocatorError),
    /// An endpoint that cannot be opened.
    #[error(transparent)]
    Endpoint(#[from] OpenError),
    /// A data directory that cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The coordinator's metadata cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The coordinator's metadata makes no sense.
    #[error("{0}")]
    Catalog(String),
    /// The coordinator cannot be reached, or refuses.
    #[error("cannot enlist with the coordinator: {0}")]
    Enlist(ClientError),
    /// The log cannot be opened or replayed.
    #[error("{0}")]
    Log(String),
    /// The operating system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// Its answer.
        source: io::Error,
    },
}

impl ServerError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// What a thread of the server came to.
type End = (&'static str, Result<(), ServerError>);

/// A number that others cannot guess.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}

/// Where a node runs.
struct Seat {
    /// Of its thread.
    name: &'static str,
    /// Where it listens.
    locator: Locator,
    policy: Policy,
    /// Core that its thread is pinned to.
    core: Option<usize>,
}

/// A running server, or coordinator.
pub struct Server {
    /// Nodes, in the order in which they must stop.
    stops: Vec<Stop>,
    agent: Option<agent::Handle>,
    threads: Vec<JoinHandle<()>>,
    ends: Receiver<End>,
    /// Where clients find the coordinator.
    pub coordinator: Locator,
    /// Where clients reach the objects; `None` for a coordinator alone.
    pub listen: Option<Locator>,
    /// What was found in the log.
    pub restored: Option<Restored>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// A handle by which another thread, or a signal, stops a server.
#[derive(Clone)]
pub struct Stopper {
    stops: Vec<Stop>,
}

impl Stopper {
    /// Begins to stop: no new requests; those under way end; the log is closed in order.
    pub fn stop(&self) {
        self.stops.iter().for_each(Stop::stop);
    }
}

impl Server {
    /// Starts a coordinator by itself.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start_coordinator(locator: &str, data: &Path) -> Result<Self, ServerError> {
        let locator: Locator = locator.parse()?;
        let dir = DataDir::open(data, random())?;
        let catalog = Catalog::open(MetadataFile::open(&dir.coordinator())?, random()).map_err(ServerError::Catalog)?;
        let (ended, ends) = channel();
        let mut server = Self::empty(locator.clone(), ends);
        server.coordinator = server.spawn_coordinator(&locator, Coordinator::new(catalog), Some(dir), &ended)?;
        Ok(server)
    }

    /// Starts a server: alone with its own coordinator, or with one elsewhere. Returns when objects can be read and
    /// written: the log has been replayed and the tables are known.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(options: &ServerOptions) -> Result<Self, ServerError> {
        let listen: Locator = options.listen.parse()?;
        let coordinator: Locator = options.coordinator.parse()?;
        let dir = match options.durability {
            Durability::None => None,
            Durability::Sync | Durability::Buffered => Some(DataDir::open(&options.data, random())?),
        };
        let (ended, ends) = channel();
        let mut server = Self::empty(coordinator.clone(), ends);
        if options.embedded {
            let started = match &dir {
                Some(dir) => {
                    let metadata = MetadataFile::open(&dir.coordinator())?;
                    let catalog = Catalog::open(metadata, random()).map_err(ServerError::Catalog)?;
                    server.spawn_coordinator(&coordinator, Coordinator::new(catalog), None, &ended)
                }
                None => {
                    let catalog = Catalog::open(MetadataMemory::default(), random()).map_err(ServerError::Catalog)?;
                    server.spawn_coordinator(&coordinator, Coordinator::new(catalog), None, &ended)
                }
            };
            server.coordinator = started?;
        }
        let result = server.start_master(options, &listen, dir, &ended);
        if let Err(error) = result {
            server.stopper().stop();
            server.join();
            return Err(error);
        }
        Ok(server)
    }

    fn empty(coordinator: Locator, ends: Receiver<End>) -> Self {
        Self {
            stops: Vec::new(),
            agent: None,
            threads: Vec::new(),
            ends,
            coordinator,
            listen: None,
            restored: None,
            metrics: None,
        }
    }

    /// By which the server is stopped.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stops: self.stops.clone() }
    }

    /// Waits until the server has stopped: because it was told to, or because a part of it failed.
    ///
    /// # Errors
    /// The failure of the part that ended first.
    pub fn wait(mut self) -> Result<(), ServerError> {
        let (_, result) = self.ends.recv().unwrap_or(("", Ok(())));
        self.stopper().stop();
        self.join();
        // Others end because the first did; what they say then is noise, unless the first said nothing.
        let rest = self.ends.try_iter().map(|(_, result)| result).find(Result::is_err);
        result.and(rest.unwrap_or(Ok(())))
    }

    /// Stops the server and waits.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper().stop();
        self.wait()
    }

    fn join(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on standard error, and `ends` lacks its message.
            let _ = thread.join();
        }
    }

    fn spawn_coordinator<M: crate::coordinator::Metadata + Send + 'static>(
        &mut self,
        locator: &Locator,
        coordinator: Coordinator<M>,
        dir: Option<DataDir>,
        ended: &Sender<End>,
    ) -> Result<Locator, ServerError> {
        // Tables are made seldom: its thread sleeps rather than spins.
        let policy = Policy::of(sprat_net::Mode::Sleep);
        let seat = Seat { name: "coordinator", locator: locator.clone(), policy, core: None };
        self.spawn_node(
            seat,
            ended,
            move || Ok(coordinator),
            move |_, _| {
                drop(dir);
                Ok(())
            },
        )
    }

    /// Starts a thread that opens the driver, makes the service and runs the node of both; returns once it runs.
    /// The service is made on its own thread, for it need not be one that can change threads.
    fn spawn_node<S: Service>(
        &mut self,
        seat: Seat,
        ended: &Sender<End>,
        make: impl FnOnce() -> Result<S, ServerError> + Send + 'static,
        close: impl FnOnce(S, sprat_net::Nanos) -> Result<(), ServerError> + Send + 'static,
    ) -> Result<Locator, ServerError> {
        let Seat { name, locator, policy, core } = seat;
        let (started, starting) = channel();
        let (failed, ended) = (started.clone(), ended.clone());
        let runs = Arc::new(AtomicBool::new(false));
        let runs_by_body = Arc::clone(&runs);
        let body = move || {
            let runner = Runner::new(policy).map_err(ServerError::system("make an eventfd"))?;
            if let Some(core) = core {
                run::pin(core).map_err(ServerError::system(format!("pin the {name} thread to core {core}")))?;
            }
            let service = make()?;
            let driver = AnyDriver::open(&locator, Role::Listen)?;
            let bound = driver.advertised(&locator);
            let node = Node::new(driver, service, &Config::default(), random());
            runs_by_body.store(true, Ordering::Release);
            let _ = started.send(Ok((bound, runner.stop()))); // the starter waits for it
            let (service, now) = runner.run(node).map_err(ServerError::system("receive from the network"))?;
            close(service, now)
        };
        let run = move || {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            let panicked = || Err(ServerError::Log(format!("the {name} thread panicked; its message is above")));
            let result = caught.unwrap_or_else(|_| panicked());
            // Before the node runs the starter waits for an error; afterwards it is the thread's end. Nobody listens
            // to that when the process is ending.
            match result {
                Err(error) if !runs.load(Ordering::Acquire) => drop(failed.send(Err(error))),
                end => drop(ended.send((name, end))),
            }
        };
        let spawned = thread::Builder::new().name(format!("sprat-{name}")).spawn(run);
        self.threads.push(spawned.map_err(ServerError::system("start a thread"))?);
        match starting.recv() {
            Ok(Ok((bound, stop))) => {
                self.stops.push(stop);
                Ok(bound)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ServerError::Log(format!("the {name} thread ended at once"))),
        }
    }

    fn start_master(
        &mut self,
        options: &ServerOptions,
        listen: &Locator,
        dir: Option<DataDir>,
        ended: &Sender<End>,
    ) -> Result<(), ServerError> {
        let mut agent = Agent::connect(&self.coordinator)?;
        let enlisted = agent.enlist(dir.as_ref().map(DataDir::identity), &listen.to_string())?;
        let tables = agent.tables()?;
        let mut dir = dir;
        if let Some(dir) = &mut dir {
            let Enlisted { server, cluster } = enlisted;
            let identity = Identity { cluster, server, ..dir.identity() };
            if identity != dir.identity() {
                dir.set_identity(identity)?;
            }
        }
        let (outbox, inbox) = crate::master::inbox();
        let (report, restored) = channel();
        let (place, opening) = (dir.as_ref().map(|dir| (dir.log(), dir.identity())), options.clone());
        let make = move || {
            let (master, restored) = open::open(&opening, place, &tables, inbox)?;
            // Whoever starts the server waits for this.
            let _ = report.send(restored);
            Ok(master)
        };
        let close = move |master: crate::master::Master<sprat_disk::FileDisk>, now| {
            let closed = master.close(now).map_err(|failed| ServerError::Log(failed.to_string()));
            drop(dir); // the directory is ours until its files are closed
            closed
        };
        let policy = Policy::of(options.idle);
        let seat = Seat { name: "data", locator: listen.clone(), policy, core: options.core };
        let bound = self.spawn_node(seat, ended, make, close)?;
        self.restored = restored.recv().ok();
        let data = self.stops.last().expect("just started").clone();
        if let Some(address) = options.metrics {
            self.metrics = Some(metrics::serve(address, outbox.clone(), data.clone())?);
        }
        let place = agent::Place { locator: bound.to_string(), outbox, data };
        self.agent = Some(agent::start(&self.coordinator, enlisted, place)?);
        self.listen = Some(bound);
        Ok(())
    }
}
