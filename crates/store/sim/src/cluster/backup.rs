//! Backups of the simulated cluster. To the checks, a backup is a transaction that reads all
//! objects.

use crate::client::{TRANSPORT, accounts};
use crate::history::{Action, History, ObjectName, Response, Value};
use crate::trace::Trace;
use sprat_archive::{
    Copied, Copier, Error, Fault, PointServer, Question, Reply, SegmentFile, Segments,
    last_changes, objects,
};
use sprat_client::{CopiedPiece, Core};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_store::coordinator::{Catalog, MetadataMemory};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::op::{Answer, COPY_IDLE, ClusterSeen, Request, Status, TableRecord};
use sprat_wire::transaction::TransactionAction;
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes a second that a backup reads from each server.
const RATE: u64 = 100_000_000;

/// How long a backup waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The clocks of servers show at least this at the beginning.
const FIRST_TIME: Time = 1_000_000;

/// State of the world that a backup needs.
pub(super) struct BackupContext<'a> {
    /// Records the reads.
    pub(super) history: &'a mut History,
    /// Records events.
    pub(super) trace: &'a mut Trace,
    /// The tables, as clients know them.
    pub(super) tables: &'a [TableRecord],
    /// Number of keys in each table.
    pub(super) keys: u16,
    /// What no backup should have.
    pub(super) nonsense: &'a mut Option<String>,
}

/// Copies of segments, by server and segment.
#[derive(Default)]
struct Copies(BTreeMap<(u32, u64), (SegmentFile, Vec<u8>)>);

/// A client that makes backups, one at a time, each with what the one before has copied.
pub(super) struct BackupClient {
    core: Core,
    /// The number of the client in histories.
    client: usize,
    tag: u64,
    copier: Option<Copier>,
    /// When the client gives up the backup without a word to the servers.
    dies_at: Nanos,
    /// What the copier has asked: its tag, and whether it asked for the catalog.
    asked: BTreeMap<u64, (u64, bool)>,
    copies: Copies,
    reads: Option<Reads>,
    /// Number of backups that follow the one under way.
    left: u32,
    /// How the last backup ended.
    outcome: Result<(), String>,
    /// Until when servers may wait for the rest of a backup that failed.
    awaited_until: Nanos,
    /// Number of backups that were made.
    pub(super) made: u64,
}

/// The calls that stand for a backup.
struct Reads {
    calls: Vec<usize>,
    /// When all logs were cut.
    ended: Option<(u64, Nanos)>,
}

/// What a backup has of an object.
struct Stored {
    version: u64,
    value: Value,
    expires: Time,
}

impl Segments for Copies {
    fn bytes(&self, server: u32, segment: &SegmentFile) -> Result<Vec<u8>, Error> {
        match self.0.get(&(server, segment.id)) {
            Some((file, bytes)) if file == segment => Ok(bytes.clone()),
            _ => Err(Error::Damaged(Fault {
                file: self.place(server, segment),
                what: "not as it was copied".to_owned(),
            })),
        }
    }

    fn place(&self, server: u32, segment: &SegmentFile) -> String {
        segment.name(server)
    }
}

impl BackupClient {
    /// Creates the client at `address`, with this number in histories.
    pub(super) fn new(
        hub: &Hub,
        client: usize,
        address: SocketAddr,
        coordinator: &Locators,
        seed: u64,
    ) -> Self {
        let driver = AnyDriver::from(hub.port(address).expect("a free port"));
        let core = Core::with_drivers(vec![(TRANSPORT, driver)], coordinator, seed);
        Self {
            core: core.expect("the transport is there"),
            client,
            tag: 0,
            copier: None,
            dies_at: Nanos::NEVER,
            asked: BTreeMap::new(),
            copies: Copies::default(),
            reads: None,
            left: 0,
            outcome: Ok(()),
            awaited_until: Nanos(0),
            made: 0,
        }
    }

    /// Begins `count` backups, one after the other, unless one is under way. The client dies at
    /// `dies_at`.
    pub(super) fn begin(&mut self, count: u32, dies_at: Nanos) {
        if self.copier.is_none() {
            (self.left, self.dies_at) = (count, dies_at);
            self.begin_next();
        }
    }

    fn begin_next(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            let known = self.copies.0.iter().map(|(id, (file, _))| (*id, file.clone()));
            self.copier = Some(Copier::new(known.collect(), RATE));
        }
    }

    /// Returns whether no backup is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.copier.is_none()
    }

    /// Returns whether no server waits for the rest of a backup that failed, and so refuses others.
    pub(super) fn may_begin(&self, now: Nanos) -> bool {
        now >= self.awaited_until
    }

    /// Returns why the last backup was not made, if it was not.
    pub(super) fn outcome(&self) -> Result<(), String> {
        self.outcome.clone()
    }

    /// Returns the time at which the client has something to do even if nothing arrives.
    pub(super) fn wake(&self) -> Nanos {
        let Some(copier) = &self.copier else { return Nanos::NEVER };
        let copier = copier.next_deadline().unwrap_or(Nanos::NEVER);
        self.core.next_deadline().min(copier).min(self.dies_at)
    }

    /// Handles what has arrived, and asks what the backup needs.
    pub(super) fn step(&mut self, now: Nanos, shared: &mut BackupContext<'_>) {
        let mut answers = Vec::new();
        let asked = &mut self.asked;
        let polled = self.core.poll(now, &mut |tag, answer| {
            if let Some((tag, is_catalog)) = asked.remove(&tag) {
                answers.push((tag, reply(is_catalog, answer)));
            }
        });
        polled.expect("a port in memory does not fail");
        let Some(mut copier) = self.copier.take() else { return };
        if now >= self.dies_at {
            shared.trace.note(now, format_args!("the backup's client dies"));
            self.end(now, Err("its client died".to_owned()), shared);
            return;
        }
        for (tag, answer) in answers {
            copier.answer(now, tag, answer);
        }
        while let Some((tag, question)) = copier.question(now, true) {
            self.note(now, &question, shared);
            if let Err(error) = self.ask(now, tag, &question) {
                copier.answer(now, tag, Err(error));
            }
        }
        self.core.flush();
        while let Some(segment) = copier.take_segment() {
            let (id, file) = ((segment.server, segment.file.id), segment.file);
            self.copies.0.insert(id, (file, segment.bytes));
        }
        match copier.take_result() {
            None => self.copier = Some(copier),
            Some(Err(error)) => self.end(now, Err(error.to_string()), shared),
            Some(Ok(copied)) => {
                let read = self.read(now, copied, shared);
                if let Err(error) = &read {
                    shared.nonsense.get_or_insert_with(|| format!("a backup: {error}"));
                }
                self.end(now, read, shared);
            }
        }
    }

    /// Ends a backup. Calls without a response have none.
    fn end(&mut self, now: Nanos, outcome: Result<(), String>, shared: &mut BackupContext<'_>) {
        shared.trace.note(now, format_args!("the backup ends: {outcome:?}"));
        self.give_up_reads(now, shared);
        self.asked.clear();
        self.made += u64::from(outcome.is_ok());
        match outcome.is_ok() {
            true => self.begin_next(),
            false => (self.left, self.awaited_until) = (0, now + COPY_IDLE),
        }
        self.outcome = outcome;
    }

    fn give_up_reads(&mut self, now: Nanos, shared: &mut BackupContext<'_>) {
        for call in self.reads.take().into_iter().flat_map(|reads| reads.calls) {
            shared.history.respond(now, call, Response::NotDone);
        }
    }

    /// Records the calls: they begin with the first cut of a log, and end with the last. If the
    /// logs are cut again, the calls of the earlier cuts have no response.
    fn note(&mut self, now: Nanos, question: &Question, shared: &mut BackupContext<'_>) {
        use sprat_archive::LogQuestion::{Cut, Release};
        match (question, &mut self.reads) {
            (Question::Log(_, Cut), Some(Reads { ended: None, .. })) => {}
            (Question::Log(_, Cut), _) => {
                self.give_up_reads(now, shared);
                let keys = 0..shared.keys;
                let names = shared.tables.iter().flat_map(|table| {
                    let table = table.id;
                    let names = keys.clone().map(move |key| ObjectName { table, key });
                    names.chain(accounts(table))
                });
                let history = &mut *shared.history;
                let calls = names.map(|name| history.invoke(now, self.client, name, Action::Read));
                self.reads = Some(Reads { calls: calls.collect(), ended: None });
                shared.trace.note(now, format_args!("the backup cuts the logs"));
            }
            (Question::Log(_, Release(..)), Some(Reads { ended: ended @ None, .. })) => {
                *ended = Some((shared.history.moment(), now));
            }
            _ => {}
        }
    }

    fn ask(
        &mut self,
        now: Nanos,
        tag: u64,
        question: &Question,
    ) -> Result<(), sprat_client::Error> {
        self.tag += 1;
        let is_catalog = matches!(question, Question::Catalog);
        self.asked.insert(self.tag, (tag, is_catalog));
        let deadline = now + PATIENCE;
        match question {
            Question::Catalog => {
                let request = Request::CopyCatalog { server: 0, seen: &ClusterSeen::default() };
                self.core.submit(now, self.tag, &request, deadline)
            }
            Question::Log(locator, question) => {
                let locator = locator.parse().expect("a locator of the simulator");
                let target = self.core.target(&locator)?;
                let request = Request::CopyLog { step: question.step() };
                self.core.submit_to(now, self.tag, target, &request, deadline)
            }
        }
    }

    /// Answers the calls with what a backup has. The error says what is wrong with it.
    fn read(
        &mut self,
        now: Nanos,
        copied: Copied,
        shared: &mut BackupContext<'_>,
    ) -> Result<(), String> {
        let Some(Reads { calls, ended: Some((moment, ended)) }) = self.reads.take() else {
            return match copied.servers.is_empty() {
                true => Ok(()), // there are no tables
                false => Err("it was made without a cut".to_owned()),
            };
        };
        let Some(&first) = calls.first() else { return Ok(()) }; // the clients know no tables
        let catalog = Catalog::<MetadataMemory>::from_copy(&copied.catalog)?;
        let servers = copied.servers.into_iter().map(|(id, segments)| PointServer { id, segments });
        let servers: Vec<_> = servers.collect();
        let needed: BTreeSet<(u32, u64)> = servers
            .iter()
            .flat_map(|server| server.segments.iter().map(|segment| (server.id, segment.id)))
            .collect();
        self.copies.0.retain(|id, _| needed.contains(id));
        let mut stored: BTreeMap<(u32, Vec<u8>), Stored> = BTreeMap::new();
        let is_wanted = |table: u32| catalog.tables().any(|record| record.id == table);
        let read = objects(&self.copies, &servers, &catalog, &is_wanted, &mut |entry| {
            let value = Value::decode(entry.value_type, entry.value).ok_or_else(|| {
                let what = format!("table {} has a value that no client wrote", entry.table);
                Error::Server { server: 0, what }
            })?;
            let object = Stored { version: entry.version, value, expires: entry.expires };
            stored.insert((entry.table, entry.key.to_vec()), object);
            Ok(())
        });
        read.map_err(|error| error.to_string())?;
        let changes =
            last_changes(&self.copies, &servers, &catalog).map_err(|error| error.to_string())?;
        let mut changed = BTreeSet::new();
        for change in changes {
            let name = (change.table, change.key.clone());
            match change.action() {
                TransactionAction::Write(bytes, _) => {
                    let value = Value::decode(ValueType::Bytes, bytes);
                    let value = value.ok_or("a transaction wrote what no client wrote")?;
                    let object = Stored { version: 0, value, expires: NEVER };
                    stored.insert(name.clone(), object);
                }
                TransactionAction::Remove => drop(stored.remove(&name)),
                TransactionAction::Check => continue,
            }
            changed.insert(name);
        }
        for record in catalog.tables() {
            let balance = |name: ObjectName| match stored.get(&(name.table, name.bytes())) {
                Some(Stored { value: Value::Number(balance), .. }) => *balance,
                _ => 0,
            };
            let sum: i64 = accounts(record.id).map(balance).sum();
            if sum != 0 && !shared.history.has_lost() {
                return Err(format!("the sum of all accounts of table {} is {sum}", record.id));
            }
        }
        // When exactly an object expires depends on the servers' clocks.
        let began = shared.history.operations[first].began;
        let expiring: BTreeSet<ObjectName> = shared
            .history
            .expiries()
            .filter(|expiry| expiry.began <= ended && expiry.ended >= began)
            .map(|expiry| expiry.name)
            .collect();
        let time = FIRST_TIME + began.0 / 1_000_000;
        let mut parts = Vec::new();
        for call in calls {
            let name = shared.history.operations[call].name;
            let key = (name.table, name.bytes());
            let response = match stored.get(&key) {
                _ if changed.contains(&key) || expiring.contains(&name) => Response::NotDone,
                _ if !is_wanted(name.table) => Response::NotDone,
                // A restoration leaves it out.
                Some(object) if object.expires <= time => Response::NotDone,
                Some(&Stored { version, value, .. }) => Response::Found { version, value },
                None => Response::Absent,
            };
            if response != Response::NotDone {
                parts.push(call);
            }
            shared.history.respond_at(moment, ended, call, response);
        }
        shared.history.transact(&parts);
        shared.trace.note(
            now,
            format_args!(
                "the backup has {} objects, {} of them by transactions under way; {} are compared",
                stored.len(),
                changed.len(),
                parts.len(),
            ),
        );
        Ok(())
    }
}

/// Turns an answer into a reply.
fn reply(
    is_catalog: bool,
    answer: Result<Answer<'_>, sprat_client::Error>,
) -> Result<Reply, sprat_client::Error> {
    let answer = answer?;
    if !matches!(answer.status, Status::Ok | Status::NotFound) {
        return Err(sprat_client::Error::Refused {
            server: "a server".to_owned(),
            reason: format!("{}: {}", answer.status, String::from_utf8_lossy(answer.body)),
        });
    }
    Ok(match is_catalog {
        true => Reply::Catalog(answer.number, answer.body.to_vec()),
        false => Reply::Piece(CopiedPiece::of(&answer)),
    })
}
