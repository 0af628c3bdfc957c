//! The control thread of a server: enlists with the coordinator, and keeps the master's assignments current.

use super::run::Stop;
use super::{End, ServerError};
use crate::agent::{Agent, Enlisted};
use crate::data_dir::Identity;
use crate::master::Outbox;
use sprat_client::{Client, Error, Identity as Member, Options};
use sprat_net::{Locators, Mode, Nanos};
use sprat_wire::op::{Assignment, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a question to the coordinator may take; it answers within half a second when it runs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server that starts looks for its coordinator.
const ENLIST_PATIENCE: Duration = Duration::from_secs(30);

/// Wait between two attempts to reach the coordinator, and between two of several coordinators.
const RETRY: Duration = Duration::from_millis(100);
const NEXT: Duration = Duration::from_millis(5);

/// Silence of all coordinators after which that is told, and again each time that it has lasted so long.
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
}

impl Handle {
    /// Waits for the thread to end, which it does, once told, within the coordinator's longest silence.
    pub(super) fn join(self) {
        // A thread that panicked has said so on standard error.
        let _ = self.thread.join();
    }
}

impl Link {
    /// Of a server that was `identity`, whose node others reach at `locator`, and that keeps so many copies of its log
    /// elsewhere than in its rack.
    pub(super) fn connect(
        coordinator: &Locators,
        identity: Option<Identity>,
        (copies, rack): (u8, &str),
        locator: String,
        member: Option<Arc<Member>>,
    ) -> Result<Self, ServerError> {
        let enlisted = identity
            .map_or_else(Enlisted::default, |identity| Enlisted { server: identity.server, cluster: identity.cluster });
        Self::over(coordinator, Agent::new(enlisted, copies, locator).in_rack(rack), member)
    }

    /// A way to the coordinator for an agent: each thread has its own.
    fn over(coordinator: &Locators, agent: Agent, member: Option<Arc<Member>>) -> Result<Self, ServerError> {
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
                Err(ServerError::Enlist(error @ (Error::Timeout { .. } | Error::Indeterminate { .. })))
                    if Instant::now() < until =>
                {
                    tracing::info!("waiting for the coordinator: {error}");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ids of the tables this server is to serve, as the coordinator has it now.
    pub(super) fn tables(&mut self) -> Result<Vec<u32>, ServerError> {
        let server = self.agent.enlisted().server;
        let ticket = self.client.submit(&Request::Assignments { server, known: 0 });
        let wait = |ticket| self.client.wait(ticket, |answer| Assignment::parse(answer.body));
        let assignment = ticket.and_then(wait).map_err(ServerError::Enlist)?;
        let tables = assignment.map(|assignment| {
            let mut tables: Vec<u32> = assignment.tablets.iter().map(|tablet| tablet.table).collect();
            tables.dedup();
            tables
        });
        tables.ok_or_else(|| ServerError::Enlist(Error::Protocol { server: "the coordinator".into() }))
    }

    /// Asks once, and leaves with the master what there is for it; returns whether there was anything.
    fn turn(&mut self, now: Nanos, outbox: &Outbox) -> Result<bool, ServerError> {
        let Self { client, agent, coordinators, .. } = self;
        // What is next decides how long it may take.
        let _ = agent.next(now, outbox);
        client.set_timeout(agent.patience(*coordinators));
        let ticket = client.submit(&agent.next(now, outbox)).map_err(ServerError::Enlist)?;
        let answered = client.wait_whatever(ticket, |answer| agent.answered(Some(answer), outbox));
        if agent.take_strayed() {
            client.core_mut().move_on("");
            pause(NEXT);
        }
        answered.map_err(ServerError::Enlist)?.map_err(ServerError::Gone)
    }

    /// Runs until told to end; says so once the master serves its tables. Ends the server when the coordinator has given it up.
    fn run(mut self, place: &Place, ended: &AtomicBool, ready: &Sender<()>) {
        let Place { outbox, data, end, .. } = place;
        let mut ready = Some(ready);
        let mut heard = Instant::now();
        while !ended.load(Ordering::Acquire) {
            let now = data.now();
            match self.turn(now, outbox) {
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
                        tracing::warn!("cannot reach the coordinator: {error}; objects are still served");
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
}

/// Starts the agent's thread, which ends when `ended` says so; returns once the master serves its tables.
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
    let run = move || match Link::over(&coordinator, agent, member) {
        Ok(link) => link.run(&place, &flag, &ready),
        Err(error) => tracing::error!("{error}"),
    };
    let thread = thread::Builder::new().name("sprat-control".into()).spawn(run);
    let handle = Handle { thread: thread.map_err(ServerError::system("start a thread"))? };
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

#[expect(clippy::disallowed_methods, reason = "the control thread is no node")]
fn pause(duration: Duration) {
    thread::sleep(duration);
}

/// Gives the master a moment to take what was left for it, so that the coordinator hears of it at once.
fn wait_applied(outbox: &Outbox, version: u64) {
    for _ in 0..1000 {
        if outbox.applied() >= version {
            return;
        }
        pause(Duration::from_micros(50));
    }
}
