//! Sprat's client as a load target: [`Core`]s driven by the generator's thread.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use sprat_client::{
    Client, Condition, Core, Error, MAX_PENDING, Mode, Options, TableOptions, TransactionAction,
    TransactionOperation,
};
use sprat_net::{Idle, Nanos, Policy, Sources};
use sprat_wire::op::{Answer, Request, Status};

use super::{Sockets, TABLE, set_stopped};
use sprat_measure::target::{Completion, LoadTarget, Op, Outcome};

/// Time after which an operation fails.
const DEADLINE: Duration = Duration::from_secs(10);

/// Payload bytes of a ping: more than the request of a 100 B read, fewer than its answer.
pub(crate) const PING_BYTES: usize = 100;

/// Time after which an unanswered ping counts as lost; pings are not retransmitted.
const PING_LOST_AFTER: Duration = Duration::from_secs(1);

/// Interval at which clients that have received nothing are polled, for their timers.
const SWEEP: Duration = Duration::from_millis(1);

/// Number of tables that are made to find one on another server.
const MAX_TABLES: usize = 16;

/// Limit on the events that one `epoll_wait` returns.
const EVENT_BATCH: usize = 64;

/// One or several clients of one cluster, as a [`LoadTarget`] for the load generator.
pub struct Connection {
    name: String,
    transport: String,
    connections: usize,
    table: u32,
    /// The table of all keys of a transaction but the first.
    second_table: u32,
    cores: Vec<Core>,
    /// Indices of the cores that have frames to send.
    dirty: Vec<usize>,
    is_dirty: Vec<bool>,
    /// Reports which of several cores have received frames; `None` for a single core.
    ready: Option<Ready>,
    idle: Idle,
    start: Instant,
    /// The time at the end of the last poll. It also serves as the start time of the operations
    /// that are submitted before the next poll.
    now: Nanos,
    swept: Nanos,
    /// The ping in flight: its number, the tag by which the load generator recognises it, and the
    /// time of sending.
    pinged: Option<(u32, u64, Nanos)>,
    next_ping: u32,
    /// The server process to stop while other targets are measured; `None` if no process is to be
    /// stopped.
    parked: Option<u32>,
    /// Reads of several keys in flight, by their tags.
    batches: HashMap<u64, BatchProgress>,
    /// The error of the latest failed operation.
    failure: Option<String>,
}

/// A read of several keys, each of which the core answers by itself.
struct BatchProgress {
    /// Number of keys.
    operations: usize,
    /// Number of answers that are missing.
    left: usize,
    /// Whether all must have been read at one moment.
    is_transaction: bool,
    /// The outcome so far.
    outcome: Outcome,
}

struct Ready {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// Opens `connections` connections to the cluster that `options` name, and makes the table that
/// loads use if the table does not exist. `waiting` determines what a client does if the load lets
/// it sleep: sleep at once, or spin briefly first.
///
/// # Errors
/// When no cluster answers, the table cannot be made, or epoll fails.
///
/// # Panics
/// If `connections` is 0 or more than 4,096.
pub fn connect(
    options: &Options,
    connections: usize,
    sockets: Sockets,
    waiting: Mode,
) -> Result<Connection> {
    assert!((1..=4096).contains(&connections), "1 to 4,096 connections, not {connections}");
    // This clock starts before the clients' own clocks, so that their time does not go backwards
    // when this clock replaces theirs.
    let start = Instant::now();
    let count = if sockets == Sockets::Each { connections } else { 1 };
    let mut cores = Vec::with_capacity(count);
    let (mut table, mut transport) = (0, String::new());
    for index in 0..count {
        let mut client = Client::connect(options)?;
        table = client.create_table(TABLE)?.0;
        if index == 0 {
            transport = transport_of(&mut client)?;
        }
        cores.push(client.into_core());
    }
    let now = Nanos(0) + start.elapsed();
    let ready = if count > 1 {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, core) in cores.iter_mut().enumerate() {
            watch(core, table, &epoll, index, start)?;
        }
        Some(Ready { epoll, events: Vec::with_capacity(EVENT_BATCH) })
    } else {
        None
    };
    let shared = if connections > count { ", one socket" } else { "" };
    Ok(Connection {
        name: "sprat".to_owned(),
        transport: format!("{transport}{shared}"),
        connections,
        table,
        second_table: table,
        dirty: Vec::with_capacity(count),
        is_dirty: vec![false; count],
        cores,
        ready,
        idle: Idle::new(Policy::of(waiting), now)?,
        start,
        now,
        swept: now,
        pinged: None,
        next_ping: 0,
        parked: None,
        batches: HashMap::new(),
        failure: None,
    })
}

/// Returns the transport in the locator of the table's server.
fn transport_of(client: &mut Client) -> Result<String> {
    let tables = client.list_tables()?;
    let table =
        tables.into_iter().find(|table| table.name == TABLE).context("the table just made")?;
    Ok(table.tablets[0].locator.split(':').next().unwrap_or_default().to_owned())
}

/// Opens a core's session by a read, then registers the core's sockets with `epoll` under `index`.
/// The sockets are final only after the read's answer.
fn watch(core: &mut Core, table: u32, epoll: &OwnedFd, index: usize, start: Instant) -> Result<()> {
    let now = || Nanos(0) + start.elapsed();
    for watched in [false, true] {
        core.submit(now(), 0, &Request::Read { table, key: b"" }, now() + DEADLINE)?;
        if watched {
            let data = epoll::EventData::new_u64(index as u64);
            for fd in core.sources().iter() {
                epoll::add(epoll, fd, data, epoll::EventFlags::IN)?;
            }
        }
        let mut answered = None;
        while answered.is_none() {
            core.poll(now(), &mut |_, answer| answered = Some(answer.map(drop)))?;
        }
        answered.unwrap_or(Ok(()))?;
    }
    Ok(())
}

impl Connection {
    /// Makes [`set_active`](LoadTarget::set_active) stop the server process `pid` while other
    /// targets are measured: a server that spins must not take a core from them.
    #[must_use]
    pub fn parking(mut self, pid: u32) -> Self {
        self.parked = Some(pid);
        self
    }

    /// Makes transactions write all their keys but the first to another table, on another server,
    /// which `client` makes. The table that loads use must have one tablet.
    ///
    /// # Errors
    /// When the cluster has only one server with tables.
    pub fn across_servers(mut self, client: &mut Client) -> Result<Self> {
        for number in 0..MAX_TABLES {
            let (first, second) = (
                self.table,
                client.create_table_with(&format!("second-{number}"), TableOptions::of(1))?.0,
            );
            let tables = client.list_tables()?;
            let record = |id: u32| tables.iter().find(|table| table.id == id).context("a table");
            let (first, second) = (record(first)?, record(second)?);
            if first.tablets[0].locator != second.tablets[0].locator {
                self.second_table = second.id;
                for core in &mut self.cores {
                    core.learn(second)?;
                }
                return Ok(self);
            }
        }
        bail!("all of {MAX_TABLES} tables are on one server");
    }

    /// Notes that a core has frames to send.
    fn mark_dirty(&mut self, index: usize) {
        if !self.is_dirty[index] {
            self.is_dirty[index] = true;
            self.dirty.push(index);
        }
    }

    /// Submits a transaction that writes.
    fn transact(&mut self, index: usize, op: &Op<'_>, value: &[u8], tag: u64) -> Result<bool> {
        let tables = std::iter::once(self.table).chain(std::iter::repeat(self.second_table));
        let operation = |(table, key)| TransactionOperation {
            table,
            key,
            condition: Condition::None,
            action: TransactionAction::Write(value, None),
        };
        let operations: Vec<_> = tables.zip(op.keys()).map(operation).collect();
        let deadline = self.now + DEADLINE;
        match self.cores[index].submit_transaction(self.now, tag, &operations, deadline) {
            Ok(()) => {}
            Err(Error::TooManyPending(_)) => return Ok(false),
            Err(error) => bail!(error),
        }
        self.mark_dirty(index);
        Ok(true)
    }

    /// Submits the reads of several keys as a batch.
    fn read_together(&mut self, index: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        let (now, table, keys) = (self.now, self.table, op.keys());
        let core = &mut self.cores[index];
        if core.pending() + keys.len() > MAX_PENDING {
            return Ok(false);
        }
        let is_transaction = matches!(op, Op::Transact { .. });
        let (left, outcome) = (keys.len(), Outcome::Ok { bytes: 0 });
        let progress = BatchProgress { operations: left, left, outcome, is_transaction };
        self.batches.insert(tag, progress);
        core.begin_batch();
        for key in keys {
            core.submit(now, tag, &Request::Read { table, key }, now + DEADLINE)?;
        }
        core.send_batch(now);
        self.mark_dirty(index);
        Ok(true)
    }

    /// Sends a ping. The driver of the table's server answers it, without the server itself.
    fn ping(&mut self, tag: u64) -> Result<bool> {
        if self.pinged.is_some() {
            return Ok(false);
        }
        let number = self.next_ping;
        self.next_ping = number.wrapping_add(1);
        self.cores[0].ping(self.table, number, PING_BYTES)?;
        self.pinged = Some((number, tag, self.now));
        Ok(true)
    }

    fn take_pongs(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(number) = self.cores[0].take_pong() {
            if let Some((_, tag, _)) = self.pinged.take_if(|(pinged, ..)| *pinged == number) {
                done.push(Completion { tag, outcome: Outcome::Ok { bytes: 0 } });
            }
        }
        if let Some((_, tag, _)) =
            self.pinged.take_if(|(_, _, sent)| now.since(*sent) > PING_LOST_AFTER)
        {
            done.push(Completion { tag, outcome: Outcome::Error });
        }
    }

    fn read_clock(&mut self) -> Nanos {
        self.now = Nanos(0) + self.start.elapsed();
        self.now
    }

    fn take(&mut self, now: Nanos, index: usize, done: &mut Vec<Completion>) -> Result<()> {
        let Self { cores, batches, failure, .. } = self;
        let core = &mut cores[index];
        let mut read = Vec::new();
        core.poll(now, &mut |tag, answer| {
            let mut outcome = outcome(answer, failure);
            if let Some(batch) = batches.get_mut(&tag) {
                batch.left -= 1;
                batch.outcome = batch.outcome.and(outcome);
                if batch.left > 0 {
                    return;
                }
                outcome = batch.outcome;
                let BatchProgress { operations, is_transaction, .. } = *batch;
                batches.remove(&tag);
                if is_transaction {
                    return read.push((tag, operations, outcome));
                }
            }
            done.push(Completion { tag, outcome });
        })?;
        for (tag, operations, mut outcome) in read {
            if !core.answered_at_once(tag, tag, operations) {
                *failure = Some("the keys were not read at one moment".to_owned());
                outcome = Outcome::Error;
            }
            done.push(Completion { tag, outcome });
        }
        Ok(())
    }

    /// Polls once for answers that have arrived.
    fn poll_arrived(&mut self, now: Nanos, done: &mut Vec<Completion>) -> Result<()> {
        let Some(mut ready) = self.ready.take() else { return self.take(now, 0, done) };
        ready.events.clear();
        match epoll::wait(
            &ready.epoll,
            spare_capacity(&mut ready.events),
            Some(&Timespec { tv_sec: 0, tv_nsec: 0 }),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll_wait"),
        }
        for event in &ready.events {
            let index = usize::try_from(event.data.u64()).context("event of an unknown client")?;
            self.take(now, index, done)?;
        }
        self.ready = Some(ready);
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            for index in 0..self.cores.len() {
                if self.cores[index].next_deadline() <= now {
                    self.take(now, index, done)?;
                }
            }
        }
        Ok(())
    }

    fn rest(&mut self, now: Nanos, patience: Duration) -> Result<()> {
        let Self { idle, ready, cores, swept, .. } = self;
        idle.rest(now, || {
            let Some(ready) = ready else {
                return (cores[0].next_deadline().min(now + patience), cores[0].sources());
            };
            let mut sources = Sources::default();
            sources.push(ready.epoll.as_fd());
            // Computing the next deadline of many cores would take longer than it saves.
            ((*swept + SWEEP).min(now + patience), sources)
        })?;
        Ok(())
    }
}

impl Drop for Connection {
    /// The server must run: closing may need its answer, as with para-virtual devices.
    fn drop(&mut self) {
        self.set_active(true);
    }
}

fn outcome(answer: Result<Answer<'_>, Error>, failure: &mut Option<String>) -> Outcome {
    match answer {
        Ok(Answer { status: Status::Ok, body, .. }) => return Outcome::Ok { bytes: body.len() },
        Ok(Answer { status: Status::NotFound, .. }) => return Outcome::Miss,
        Ok(Answer { status, .. }) => {
            *failure = Some(status.to_string());
            if status == Status::MemoryFull {
                return Outcome::Full;
            }
        }
        Err(error) => *failure = Some(error.to_string()),
    }
    Outcome::Error
}

impl LoadTarget for Connection {
    fn name(&self) -> &str {
        &self.name
    }

    fn transport(&self) -> &str {
        &self.transport
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn submit(&mut self, connection: usize, op: &Op<'_>, tag: u64) -> Result<bool> {
        let (now, table) = (self.now, self.table);
        let index = connection % self.cores.len();
        let request = match *op {
            Op::Get { key } => Request::Read { table, key },
            Op::GetMany { .. } | Op::Transact { value: None, .. } => {
                return self.read_together(index, op, tag);
            }
            Op::Transact { value: Some(value), .. } => {
                return self.transact(index, op, value, tag);
            }
            Op::Put { key, value } => {
                Request::Write { table, key, value, condition: Condition::None, ttl: None }
            }
            Op::Ping => return self.ping(tag),
        };
        match self.cores[index].submit(now, tag, &request, now + DEADLINE) {
            Ok(()) => {}
            Err(Error::TooManyPending(_)) => return Ok(false),
            Err(error) => bail!(error),
        }
        self.mark_dirty(index);
        Ok(true)
    }

    fn poll(&mut self, patience: Duration, done: &mut Vec<Completion>) -> Result<()> {
        for index in self.dirty.drain(..) {
            self.cores[index].flush();
            self.is_dirty[index] = false;
        }
        let (mut now, before) = (self.read_clock(), done.len());
        let rest_first = !patience.is_zero() && self.idle.sleeps_at_once(now);
        if rest_first {
            self.rest(now, patience)?;
            now = self.read_clock();
        }
        self.poll_arrived(now, done)?;
        if self.pinged.is_some() {
            self.take_pongs(now, done);
        }
        if done.len() > before {
            self.idle.worked(now);
        } else if !patience.is_zero() && !rest_first {
            self.rest(now, patience)?;
            self.read_clock();
        }
        Ok(())
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn set_active(&mut self, active: bool) {
        if let Some(pid) = self.parked {
            set_stopped(pid, !active);
        }
        self.read_clock();
    }
}
