//! The control thread of a server: enlists with the coordinator, and keeps the master's assignments
//! current.

use super::run::{Stop, pause};
use super::{End, ServerError};
use crate::agent::{Agent, CatalogCopy, Enlisted, Gone};
use crate::coordinator::{Catalog, MetadataMemory};
use crate::data_dir::{DataDir, Identity};
use crate::master::Outbox;
use sprat_client::{Client, Error, Identity as Member, Options};
use sprat_host::wait_until;
use sprat_net::{Locators, Mode, Nanos};
use sprat_wire::op::{Assignment, Request, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a question to the coordinator may take; it answers within half a second when it runs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server that starts looks for its coordinator.
const ENLIST_PATIENCE: Duration = Duration::from_secs(30);

/// Wait between two attempts to reach the coordinator, and between two of several coordinators.
const RETRY: Duration = Duration::from_millis(100);
const NEXT: Duration = Duration::from_millis(5);

/// How often a server reports that the coordinator is not its own.
const FOREIGN_PAUSE: Duration = Duration::from_secs(5);

/// Copies of the catalog that wait to be written; a newer one is asked for again when there is no
/// room.
const COPIES_WAITING: usize = 4;

/// How long a server that starts looks for a coordinator among several whose metadata are its
/// cluster's.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(5);

/// Silence of all coordinators after which that is told, and again each time that it has lasted so
/// long.
const TELL: Duration = Duration::from_secs(1);

/// The agent and its way to the coordinator, before its thread runs.
pub(super) struct Link {
    client: Client,
    /// How many coordinators there are.
    coordinators: usize,
    agent: Agent,
    /// Who the server is to its coordinator.
    member: Option<Arc<Member>>,
}

/// The agent's thread.
pub(super) struct Handle {
    thread: JoinHandle<()>,
    /// What writes copies of the catalog; it ends when the agent has.
    keeper: Option<JoinHandle<()>>,
}

impl Handle {
    /// Waits for the thread to end, which it does, once told, within the coordinator's longest
    /// silence.
    pub(super) fn join(self) {
        // A thread that panicked has said so on standard error.
        let _ = self.thread.join();
        if let Some(keeper) = self.keeper {
            let _ = keeper.join(); // as above
        }
    }
}

impl Link {
    /// The node keeps copies of the catalog; it has one of version `copied`, or, with zero, none.
    pub(super) fn keeping_copies(mut self, copied: u64) -> Self {
        self.agent = self.agent.keeping_copies(copied);
        self
    }

    /// Of a server that was `identity`, whose node others reach at `locator`, and that keeps so
    /// many copies of its log elsewhere than in its rack.
    pub(super) fn connect(
        coordinator: &Locators,
        identity: Option<Identity>,
        (copies, rack): (u8, &str),
        locator: String,
        member: Option<Arc<Member>>,
    ) -> Result<Self, ServerError> {
        let enlisted = identity.map_or_else(Enlisted::default, |identity| Enlisted {
            server: identity.server,
            cluster: identity.cluster,
        });
        Self::over(coordinator, Agent::new(enlisted, copies, locator).in_rack(rack), member)
    }

    /// A way to the coordinator for an agent: each thread has its own.
    fn over(
        coordinator: &Locators,
        agent: Agent,
        member: Option<Arc<Member>>,
    ) -> Result<Self, ServerError> {
        let options = Options {
            coordinator: coordinator.to_string(),
            timeout: TIMEOUT,
            patient: true,
            waiting: Mode::Sleep,
            identity: member.clone(),
            ..Options::default()
        };
        let client = Client::connect(&options).map_err(ServerError::Enlist)?;
        Ok(Self { client, coordinators: coordinator.len(), agent, member })
    }

    /// Tells the coordinator where clients reach this server; waits for one that is not there yet.
    pub(super) fn enlist(&mut self) -> Result<Enlisted, ServerError> {
        let until = Instant::now() + ENLIST_PATIENCE;
        let (unused, _inbox) = crate::master::inbox();
        loop {
            match self.turn(Nanos(0), &unused) {
                Ok(_) => return Ok(self.agent.enlisted()),
                Err(ServerError::Enlist(
                    error @ (Error::Timeout { .. } | Error::Indeterminate { .. }),
                )) if Instant::now() < until => {
                    tracing::info!("waiting for the coordinator: {error}");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The catalog as the coordinator has it now: from then on nothing older is taken.
    pub(super) fn catalog(
        &mut self,
    ) -> Result<(CatalogCopy, Catalog<MetadataMemory>), ServerError> {
        let until = Instant::now() + FOREIGN_PATIENCE;
        loop {
            let request = Request::CopyCatalog {
                server: self.agent.enlisted().server,
                seen: &self.agent.seen(),
            };
            let ticket = self.client.submit(&request).map_err(ServerError::Enlist)?;
            let answered = self.client.wait_any_status(ticket, |answer| {
                let copy = CatalogCopy { bytes: answer.body.to_vec() };
                (answer.status, copy)
            });
            let (status, copy) = answered.map_err(ServerError::Enlist)?;
            match status {
                Status::Ok => {
                    let catalog = Catalog::<MetadataMemory>::of_copy(&copy.bytes);
                    let catalog = catalog.map_err(|what| {
                        ServerError::Catalog(format!("the coordinator's catalog: {what}"))
                    })?;
                    return Ok((copy, catalog));
                }
                // Of several, one that does not lead any more may have answered.
                _ if self.coordinators > 1 && Instant::now() < until => {
                    self.client.core_mut().switch_coordinator("");
                    pause(NEXT);
                }
                status => {
                    let words = String::from_utf8_lossy(&copy.bytes).into_owned();
                    let reason = if words.is_empty() { status.to_string() } else { words };
                    return Err(ServerError::Gone(Gone::Refused(reason)));
                }
            }
        }
    }

    /// Ids of the tables this server is to serve, as the coordinator has it now.
    pub(super) fn tables(&mut self) -> Result<Vec<u32>, ServerError> {
        let request = Request::Assignments {
            server: self.agent.enlisted().server,
            known: 0,
            seen: &self.agent.seen(),
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

    /// Asks once, and leaves with the master what there is for it; returns whether there was
    /// anything.
    fn turn(&mut self, now: Nanos, outbox: &Outbox) -> Result<bool, ServerError> {
        let Self { client, agent, coordinators, .. } = self;
        // What is next decides how long it may take.
        let _ = agent.next(now, outbox);
        client.set_timeout(agent.patience(*coordinators));
        let ticket = client.submit(&agent.next(now, outbox)).map_err(ServerError::Enlist)?;
        let answered =
            client.wait_any_status(ticket, |answer| agent.answered(Some(answer), outbox));
        if agent.take_strayed() {
            client.core_mut().switch_coordinator("");
            pause(NEXT);
        }
        answered.map_err(ServerError::Enlist)?.map_err(ServerError::Gone)
    }

    /// Runs until told to end; says so once the master serves its tables. Ends the server when the
    /// coordinator has given it up.
    fn run(
        mut self,
        place: &Place,
        copies: Option<&SyncSender<CatalogCopy>>,
        ended: &AtomicBool,
        ready: &Sender<()>,
    ) {
        let Place { outbox, data, end, .. } = place;
        let mut ready = Some(ready);
        let mut heard = Instant::now();
        let mut warned: Option<Instant> = None;
        while !ended.load(Ordering::Acquire) {
            let now = data.now();
            let turned = self.turn(now, outbox);
            if let (Some(copy), Some(copies)) = (self.agent.take_copy(), copies) {
                // When there is no room the disk is slow, and the next change brings another.
                let _ = copies.try_send(copy);
            }
            if let Some(reason) = self.agent.take_foreign() {
                if warned.is_none_or(|at| at.elapsed() > FOREIGN_PAUSE) {
                    tracing::error!("the coordinator is not this server's: {reason}");
                    warned = Some(Instant::now());
                }
                pause(RETRY);
            }
            match turned {
                Ok(true) => {
                    heard = Instant::now();
                    data.ring();
                    wait_applied(outbox, self.agent.given());
                }
                Ok(false) => heard = Instant::now(),
                Err(gone @ ServerError::Gone(_)) => {
                    let _ = end.send(Err(gone)); // nobody listens when the process is ending
                    return;
                }
                Err(_) if ended.load(Ordering::Acquire) => {}
                Err(error) => {
                    let several = self.coordinators > 1;
                    // One of several may be silent: that is what the others are for.
                    if !several || heard.elapsed() > TELL {
                        tracing::warn!(
                            "cannot reach the coordinator: {error}; objects are still served"
                        );
                        heard = Instant::now();
                    }
                    pause(if several { NEXT } else { RETRY });
                }
            }
            if outbox.applied() > 0
                && let Some(ready) = ready.take()
            {
                let _ = ready.send(()); // whoever started us may have given up
            }
        }
    }
}

/// What the agent's thread speaks for.
pub(super) struct Place {
    /// Where clients reach the master.
    pub(super) locator: String,
    pub(super) outbox: Outbox,
    pub(super) data: Stop,
    /// What ends the server.
    pub(super) end: Sender<End>,
    /// Where copies of the catalog are kept, if they are, and the first.
    pub(super) kept: Option<(DataDir, CatalogCopy)>,
}

/// Notes how old the files are that have been opened, and writes copies of the catalog, the newest
/// of those that wait, until there are no more to come. A thread of its own: a disk that is busy
/// must not keep the agent from its lease.
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
                    "{error}; an older coordinator may go unnoticed until it can be written"
                );
                fails = true;
            }
            Err(_) => {}
        }
    }
}

/// Starts the agent's thread, which ends when `ended` says so; returns once the master serves its
/// tables.
pub(super) fn start(
    coordinator: &Locators,
    link: Link,
    place: Place,
    ended: &Arc<AtomicBool>,
) -> Result<Handle, ServerError> {
    let (flag, coordinator) = (Arc::clone(ended), coordinator.clone());
    let (ready, waiting) = channel();
    let Link { mut agent, member, .. } = link;
    // The locator that it enlisted with may lack the port that the driver got.
    agent.moved(&place.locator);
    let mut keeper = None;
    let copies = match place.kept.clone() {
        Some((mut dir, first)) => {
            let (copies, waiting) = sync_channel(COPIES_WAITING);
            let keep = move || keep_copies(&mut dir, first, &waiting);
            let thread = thread::Builder::new().name("sprat-catalog".into()).spawn(keep);
            keeper = Some(thread.map_err(ServerError::system("start a thread"))?);
            Some(copies)
        }
        None => None,
    };
    let run = move || match Link::over(&coordinator, agent, member) {
        Ok(link) => link.run(&place, copies.as_ref(), &flag, &ready),
        Err(error) => tracing::error!("{error}"),
    };
    let thread = thread::Builder::new().name("sprat-control".into()).spawn(run);
    let handle = Handle { thread: thread.map_err(ServerError::system("start a thread"))?, keeper };
    match waiting.recv_timeout(FIRST_TABLES) {
        Ok(()) => Ok(handle),
        Err(_) => {
            ended.store(true, Ordering::Release);
            handle.join();
            Err(ServerError::Log("the coordinator has not told this server its tables".into()))
        }
    }
}

/// How long the first assignments may take.
const FIRST_TABLES: Duration = Duration::from_secs(10);

/// Gives the master a moment to take what was left for it, so that the coordinator hears of it at
/// once.
fn wait_applied(outbox: &Outbox, version: u64) {
    wait_until(Duration::from_millis(100), Duration::from_micros(50), || {
        outbox.applied() >= version
    });
}
