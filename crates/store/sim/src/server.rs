//! A server that starts, serves, stops and crashes, over one disk.

use crate::history::clock;
use crate::settings::Settings;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::Config;
use sprat_net::{AnyDriver, Hub, Nanos};
use sprat_store::backup::{Options, ReplayReport};
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::node::{Node, Service as _};
use sprat_store::restart;
use std::net::SocketAddr;
use std::time::Duration;

/// How long an iteration of the server's loop takes when there was something to do.
const TURN: Duration = Duration::from_micros(2);

/// How long a piece of idle work takes.
const IDLE_WORK: Duration = Duration::from_micros(20);

/// How long requests under way may take to finish when the server stops.
const DRAIN: Duration = Duration::from_millis(200);

/// The hash seed of the log, which decides where objects are in scans.
pub const HASH_SEED: u64 = 0x5eed;

type RealNode = Node<AnyDriver, Master<MemDisk>>;

enum Life {
    Down,
    /// The log is open. The server begins to serve at this time, because opening the log takes
    /// time.
    Starting(Box<Master<MemDisk>>, Nanos),
    Up(Box<RealNode>),
    /// The server finishes requests, until this time at the latest.
    Stopping(Box<RealNode>, Nanos),
}

/// The result of a start.
#[derive(Debug)]
pub enum Start {
    /// The log is open.
    Opened(Box<ReplayReport>),
    /// The disk failed because of an injected fault.
    Failed(String),
}

/// A server and its disk.
pub struct Server {
    /// The control of the server's disk.
    pub control: MemControl,
    config: Config,
    options: Options,
    address: SocketAddr,
    hub: Hub,
    life: Life,
    outbox: Option<Outbox>,
    wake: Nanos,
    paused_until: Nanos,
    /// The numbers of the disk operations that are to fail.
    trouble: Vec<u64>,
    /// Whether a fault was injected into the disk, or the disk is full.
    ailing: bool,
    /// Whether the server was last shut down properly.
    clean: bool,
    retransmissions: u64,
}

impl Server {
    /// Creates a server that has never run, with an empty disk.
    ///
    /// # Panics
    /// When the settings do not fit together.
    pub fn new(settings: &Settings, hub: &Hub, address: SocketAddr, disk_seed: u64) -> Self {
        let config = Config {
            seed: HASH_SEED,
            segment_bytes: settings.segment_bytes,
            ..Config::new(settings.memory, sprat_log::Durability::Tracked)
        };
        let configured =
            restart::configure(config, settings.disk_bytes, (1, 1), settings.durability);
        let (config, mut options) = configured.expect("the settings fit");
        options.threads = settings.replay_threads;
        let control = MemControl::new(disk_seed);
        control.set_latency(settings.latency);
        Self {
            control,
            config,
            options,
            address,
            hub: hub.clone(),
            life: Life::Down,
            outbox: None,
            wake: Nanos(0),
            paused_until: Nanos(0),
            trouble: Vec::new(),
            ailing: false,
            clean: false,
            retransmissions: 0,
        }
    }

    /// Returns the address at which clients reach the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the server neither runs nor starts.
    pub fn is_down(&self) -> bool {
        matches!(self.life, Life::Down)
    }

    /// Returns whether the server serves requests.
    pub fn is_up(&self) -> bool {
        matches!(self.life, Life::Up(_))
    }

    /// Returns the log, if it is open.
    pub fn log(&self) -> Option<&sprat_log::Log> {
        match &self.life {
            Life::Down => None,
            Life::Starting(master, _) => Some(master.log()),
            Life::Up(node) | Life::Stopping(node, _) => Some(node.service().log()),
        }
    }

    /// Returns why the server takes no more writes; `None` while it takes them or does not run.
    fn stopped(&self) -> Option<&str> {
        match &self.life {
            Life::Up(node) => node.service().stopped(),
            _ => None,
        }
    }

    /// Returns whether the disk has reached an operation that is to fail.
    fn met_trouble(&self) -> bool {
        self.trouble.iter().any(|&number| self.control.operations() > number)
    }

    /// Injects `how` into the disk operation that is `after` operations away (0: the next one).
    pub fn fail_disk(&mut self, after: u64, how: sprat_disk::Fault) {
        self.control.fail(after, how);
        self.trouble.push(self.control.operations() + after);
        self.ailing = true;
    }

    /// Ends the faults of the disk, and removes the limit of its size.
    pub fn spare_disk(&mut self) {
        self.control.clear_faults();
        self.control.set_capacity(u64::MAX);
        let operations = self.control.operations();
        self.trouble.retain(|&number| number < operations);
    }

    /// Limits the disk's size to its present contents.
    pub fn fill_disk(&mut self) {
        self.control.set_capacity(self.control.contents().len() as u64);
        self.ailing = true;
    }

    /// Returns whether the server must be restarted before it accepts writes again.
    pub fn is_sick(&self) -> bool {
        self.stopped().is_some() || self.met_trouble()
    }

    /// Returns the number of requests and ranges that were requested again.
    pub fn retransmissions(&self) -> u64 {
        let living = match &self.life {
            Life::Up(node) | Life::Stopping(node, _) => node.endpoint().counters().resends,
            _ => 0,
        };
        self.retransmissions + living
    }

    /// Opens the log on the disk. The server begins to serve after the virtual time that opening
    /// the log takes.
    ///
    /// # Errors
    /// A message, when the log cannot be opened although the disk worked, or when a log that was
    /// closed properly is found otherwise.
    ///
    /// # Panics
    /// When the server is not down.
    pub fn start(&mut self, now: Nanos, version: u64, tables: &[u32]) -> Result<Start, String> {
        assert!(self.is_down());
        self.control.set_now(now.0);
        let disk = self.control.open().expect("whoever had it open is gone");
        let opened = restart::open(
            disk,
            &self.config,
            &self.options,
            &restart::LogTables::served(tables),
            0,
        );
        let restart::OpenedLog { log, backup, report } = match opened {
            Ok(opened) => opened,
            Err(error) if self.met_trouble() => return Ok(Start::Failed(error.to_string())),
            Err(error) => return Err(format!("the server cannot start again: {error}")),
        };
        log.check_invariants();
        if self.clean && (!report.clean || report.cut.is_some()) {
            return Err(format!("the log was closed in order and found otherwise: {report:?}"));
        }
        self.clean = false;
        let (outbox, inbox) = inbox();
        let sent = outbox
            .send(Command::Assign(Box::new(MasterAssignment::tables(version, tables.to_vec()))));
        assert!(sent, "an inbox begins empty");
        self.outbox = Some(outbox);
        let until = Nanos(self.control.now()).max(now);
        let master = Master::new(log, Some(backup), inbox).with_time(clock(until.0));
        self.life = Life::Starting(Box::new(master), until);
        self.wake = until;
        Ok(Start::Opened(Box::new(report)))
    }

    /// Assigns tables to the master.
    pub fn assign(&mut self, version: u64, tables: &[u32]) {
        if let Some(outbox) = &self.outbox {
            let sent = outbox.send(Command::Assign(Box::new(MasterAssignment::tables(
                version,
                tables.to_vec(),
            ))));
            assert!(sent, "few tables are made");
            self.wake = Nanos(0);
        }
    }

    /// Ends the server without warning. With `process`, only the process ends, and the kernel still
    /// writes what it has.
    pub fn crash(&mut self, process: bool) {
        if process {
            self.control.kill();
            // Failures of later operations stay.
            let operations = self.control.operations();
            self.trouble.retain(|&number| number >= operations);
        } else {
            self.control.crash();
            self.trouble.clear();
        }
        self.control.set_capacity(u64::MAX);
        self.ailing = !self.trouble.is_empty();
        self.retransmissions = self.retransmissions();
        (self.life, self.outbox) = (Life::Down, None);
        self.clean = false;
    }

    /// Begins a proper shutdown if the server serves requests.
    pub fn stop(&mut self, now: Nanos) {
        self.life = match std::mem::replace(&mut self.life, Life::Down) {
            Life::Up(mut node) => {
                node.drain();
                Life::Stopping(node, now + DRAIN)
            }
            other => other,
        };
        self.wake = now;
    }

    /// Pauses the server until `until`, or until the end of an earlier pause if that is later.
    pub fn pause(&mut self, until: Nanos) {
        self.paused_until = self.paused_until.max(until);
    }

    /// Returns the time at which the server has something to do even if nothing arrives.
    pub fn wake(&self) -> Nanos {
        let wake = match &self.life {
            Life::Down => return Nanos::NEVER,
            Life::Starting(_, until) => *until,
            Life::Up(_) => self.wake.min(self.disk_due()),
            Life::Stopping(_, until) => self.wake.min(self.disk_due()).min(*until),
        };
        wake.max(self.paused_until)
    }

    fn disk_due(&self) -> Nanos {
        self.control.next_due().map_or(Nanos::NEVER, Nanos)
    }

    /// Runs an iteration if there is something to do. Returns the result of a proper shutdown if
    /// one has ended. `token_seed` determines the session tokens of a node that begins.
    pub fn step(&mut self, now: Nanos, token_seed: u64) -> Option<Result<(), String>> {
        if now < self.paused_until {
            return None;
        }
        match std::mem::replace(&mut self.life, Life::Down) {
            Life::Down => {}
            Life::Starting(master, until) if now < until => {
                self.life = Life::Starting(master, until)
            }
            Life::Starting(master, _) => {
                let driver =
                    AnyDriver::from(self.hub.port(self.address).expect("the node before is gone"));
                let node = Node::new(driver, *master, &sprat_rpc::Config::default(), token_seed);
                self.life = Life::Up(Box::new(node));
                self.wake = now;
            }
            Life::Up(mut node) => {
                self.turn(now, &mut node);
                self.life = Life::Up(node);
            }
            Life::Stopping(mut node, until) => {
                self.turn(now, &mut node);
                if node.is_idle() || now >= until {
                    node.close_clients(now);
                    self.life = Life::Stopping(node, until);
                    return Some(self.close(now));
                }
                self.life = Life::Stopping(node, until);
            }
        }
        None
    }

    fn turn(&mut self, now: Nanos, node: &mut RealNode) {
        let due = now >= self.wake || now >= self.disk_due() || self.hub.waiting(self.address) > 0;
        if !due {
            return;
        }
        let worked = node.turn(now).expect("a port in memory does not fail");
        // This server has all tables, so a table that it looks for elsewhere was dropped.
        while let Some((outbox, table)) =
            self.outbox.as_ref().and_then(|outbox| Some((outbox, outbox.take_wanted_table()?)))
        {
            let _ = outbox.send(Command::Located(table, None)); // if full, it is asked for again
        }
        self.wake = if worked {
            now + TURN
        } else if node.service_mut().work_idle() {
            now + IDLE_WORK
        } else {
            node.next_deadline()
        };
    }

    /// Closes the log. The disk's clock runs ahead while this blocks; nothing depends on that, as
    /// the server is gone.
    fn close(&mut self, now: Nanos) -> Result<(), String> {
        self.retransmissions = self.retransmissions();
        let Life::Stopping(node, _) = std::mem::replace(&mut self.life, Life::Down) else {
            unreachable!("only what stops is closed")
        };
        self.outbox = None;
        let closed = node.into_service().close(now);
        self.clean = closed.is_ok();
        match closed {
            Err(failed) if !self.ailing => {
                Err(format!("the server cannot stop in order: {failed}"))
            }
            _ => Ok(()),
        }
    }
}
