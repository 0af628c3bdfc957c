//! The control thread of a server: enlists with the coordinator, and keeps the master's assignments current.

use super::ServerError;
use super::run::Stop;
use crate::data_dir::Identity;
use crate::master::{Command, Outbox};
use sprat_client::{Client, Error, Options};
use sprat_net::{Locator, Mode};
use sprat_wire::op::{Answer, Records, Request, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a question to the coordinator may take; it answers within half a second when it runs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server that starts looks for its coordinator.
const ENLIST_PATIENCE: Duration = Duration::from_secs(30);

/// Wait between two attempts to reach the coordinator.
const RETRY: Duration = Duration::from_millis(100);

/// What a server is in its cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Enlisted {
    pub(super) server: u32,
    pub(super) cluster: u64,
}

/// The agent, before its thread runs.
pub(super) struct Agent {
    client: Client,
    enlisted: Enlisted,
    known: u64,
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

impl Agent {
    pub(super) fn connect(coordinator: &Locator) -> Result<Self, ServerError> {
        let options =
            Options { coordinator: coordinator.to_string(), local: None, timeout: TIMEOUT, waiting: Mode::Sleep };
        let client = Client::connect(&options).map_err(ServerError::Enlist)?;
        Ok(Self { client, enlisted: Enlisted { server: 0, cluster: 0 }, known: 0 })
    }

    /// Tells the coordinator where clients reach this server; waits for one that is not there yet.
    pub(super) fn enlist(&mut self, identity: Option<Identity>, locator: &str) -> Result<Enlisted, ServerError> {
        if let Some(identity) = identity {
            self.enlisted = Enlisted { server: identity.server, cluster: identity.cluster };
        }
        let until = Instant::now() + ENLIST_PATIENCE;
        loop {
            match self.try_enlist(locator) {
                Ok(()) => return Ok(self.enlisted),
                Err(error @ (Error::Timeout { .. } | Error::Indeterminate { .. })) if Instant::now() < until => {
                    tracing::info!("waiting for the coordinator: {error}");
                }
                Err(error) => return Err(ServerError::Enlist(error)),
            }
        }
    }

    fn try_enlist(&mut self, locator: &str) -> Result<(), Error> {
        let Enlisted { server, cluster } = self.enlisted;
        let ticket = self.client.submit(&Request::Enlist { server, cluster, locator })?;
        let protocol = || Error::Protocol { server: "the coordinator".into() };
        let answer = self.client.wait(ticket, |answer| {
            let cluster = Records::new(answer.body).counter()?.1;
            Some(Enlisted { server: u32::try_from(answer.number).ok()?, cluster })
        })?;
        self.enlisted = answer.ok_or_else(protocol)?;
        self.known = 0;
        Ok(())
    }

    /// Ids of the tables this server is to serve, as the coordinator has it now.
    pub(super) fn tables(&mut self) -> Result<Vec<u32>, ServerError> {
        let ticket = self.client.submit(&Request::Assignments { server: self.enlisted.server, known: 0 });
        let wait = |ticket| self.client.wait(ticket, table_ids);
        let tables = ticket.and_then(wait).map_err(ServerError::Enlist)?;
        tables.ok_or_else(|| ServerError::Enlist(Error::Protocol { server: "the coordinator".into() }))
    }

    /// Runs until told to end; says so once the master serves its tables.
    fn run(mut self, place: &Place, ended: &AtomicBool, ready: &Sender<()>) {
        let mut ready = Some(ready);
        while !ended.load(Ordering::Acquire) {
            if let Err(error) = self.turn(place)
                && !ended.load(Ordering::Acquire)
            {
                tracing::warn!("cannot reach the coordinator: {error}; objects are still served");
                pause(RETRY);
            }
            if place.outbox.applied() > 0
                && let Some(ready) = ready.take()
            {
                let _ = ready.send(()); // whoever started us may have given up
            }
        }
    }

    /// Asks once for newer assignments and leaves them with the master.
    fn turn(&mut self, place: &Place) -> Result<(), Error> {
        let Place { locator, outbox, data } = place;
        // What the master has not taken yet is not known to be served.
        let known = outbox.applied().min(self.known);
        let ticket = self.client.submit(&Request::Assignments { server: self.enlisted.server, known })?;
        match self.client.wait(ticket, |answer| (answer.status, answer.number, table_ids(answer)))? {
            (Status::NotFound, ..) => self.try_enlist(locator), // a coordinator that has started again
            (_, version, Some(tables)) if version != known => {
                self.known = version;
                if outbox.send(Command::Serve { version, tables }) {
                    data.ring();
                    wait_applied(outbox, version);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What the agent's thread speaks for.
pub(super) struct Place {
    /// Where clients reach the master.
    pub(super) locator: String,
    pub(super) outbox: Outbox,
    pub(super) data: Stop,
}

/// Starts the agent's thread, which ends when `ended` says so; returns once the master serves its tables.
pub(super) fn start(
    coordinator: &Locator,
    enlisted: Enlisted,
    place: Place,
    ended: &Arc<AtomicBool>,
) -> Result<Handle, ServerError> {
    let (flag, coordinator) = (Arc::clone(ended), coordinator.clone());
    let (ready, waiting) = channel();
    let run = move || {
        // The locator that it enlisted with may lack the port that the driver got.
        let begun = Agent::connect(&coordinator).and_then(|mut agent| {
            agent.enlisted = enlisted;
            agent.try_enlist(&place.locator).map_err(ServerError::Enlist)?;
            Ok(agent)
        });
        match begun {
            Ok(agent) => agent.run(&place, &flag, &ready),
            Err(error) => tracing::error!("{error}"),
        }
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

fn table_ids(answer: &Answer<'_>) -> Option<Vec<u32>> {
    let mut records = Records::new(answer.body);
    let mut ids = Vec::new();
    while !records.is_done() {
        ids.push(records.table()?.id);
    }
    Some(ids)
}
