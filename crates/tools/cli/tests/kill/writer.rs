//! A client that writes with many operations in flight, and records every answer.

use crate::kill::model::{Counter, Intent, Owned, Register, Value};
use sprat_chance::Chance;
use sprat_client::{Client, Condition, Core, Error, Options, Table};
use sprat_net::Nanos;
use sprat_wire::op::{Request, Status};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of operations in flight.
const DEPTH: usize = 24;

/// Number of a writer's keys that change all the time, and number of all its keys.
const HOT_KEYS: usize = 20;
const KEYS: usize = 1500;

/// Objects that all writers change.
pub(crate) const SHARED: usize = 4;

/// Limit on the length of values, in bytes.
const MAX_LEN: u64 = 100_000;

/// Timeout that no operation reaches: each operation ends with its answer or with the server.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Time for which answers may remain in sockets after the server has ended.
const DRAIN: Duration = Duration::from_millis(5);

enum Flight {
    Change(usize),
    Read { key: usize, changes: u64 },
    Increment(usize),
    Replace { register: usize, value: Vec<u8> },
}

/// A copy of an answer.
struct CopiedAnswer {
    status: Status,
    number: u64,
    body: Vec<u8>,
}

pub(crate) struct Writer {
    number: usize,
    random: Chance,
    pub(crate) keys: Vec<Owned>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) registers: Vec<Register>,
    believed: Vec<Condition>,
    flights: HashMap<u64, Flight>,
    tag: u64,
    pub(crate) acknowledged: u64,
    pub(crate) bytes: u64,
}

/// Signals between the thread that kills and the writers.
pub(crate) struct Signals {
    /// All writers are connected: writing begins.
    pub(crate) connected: Barrier,
    /// The server is about to be killed.
    pub(crate) killing: AtomicBool,
    /// The server has ended.
    pub(crate) gone: AtomicBool,
}

impl Signals {
    pub(crate) fn new(writers: usize) -> Self {
        Self {
            connected: Barrier::new(writers + 1),
            killing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }
}

pub(crate) fn key_name(writer: usize, key: usize) -> String {
    // Some keys are long.
    let width = if key.is_multiple_of(50) { 300 } else { 6 };
    format!("writer {writer} key {key:0width$}")
}

impl Writer {
    pub(crate) fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            random: Chance::new(seed),
            keys: vec![Owned::default(); KEYS],
            counters: vec![Counter::default(); SHARED],
            registers: vec![Register::default(); SHARED],
            believed: vec![Condition::Absent; SHARED],
            flights: HashMap::new(),
            tag: 0,
            acknowledged: 0,
            bytes: 0,
        }
    }

    /// Writes until the server has ended. Changes without an answer stay pending.
    pub(crate) fn run(&mut self, coordinator: &str, table: Table, signals: &Signals) {
        let start = Instant::now();
        let options = Options { coordinator: coordinator.to_owned(), ..Options::default() };
        let mut client = Client::connect(&options).expect("a client");
        let found = client.table(crate::kill::TABLE);
        signals.connected.wait();
        assert_eq!(found, Ok(table));
        let mut core = client.into_core();
        let mut answers = Vec::new();
        let mut quiet_since = None;
        loop {
            let now = Nanos(0) + start.elapsed();
            let gone = signals.gone.load(Ordering::Acquire);
            while !gone && self.flights.len() < DEPTH {
                self.submit(&mut core, now, table);
            }
            core.poll(now, &mut |tag, answer| {
                let copy = answer.map(|a| CopiedAnswer {
                    status: a.status,
                    number: a.number,
                    body: a.body.to_vec(),
                });
                answers.push((tag, copy));
            })
            .expect("a loopback socket works");
            if answers.is_empty() {
                let since = *quiet_since.get_or_insert_with(Instant::now);
                if gone && since.elapsed() > DRAIN {
                    break;
                }
                thread::park_timeout(Duration::from_micros(50));
                continue;
            }
            quiet_since = None;
            for (tag, answer) in answers.drain(..) {
                let flight = self.flights.remove(&tag).expect("each ends once");
                match answer {
                    Ok(answer) => self.answered(flight, &answer),
                    Err(error) => {
                        // Errors are allowed only after the kill has begun.
                        assert!(
                            signals.killing.load(Ordering::Acquire),
                            "while the server lived: {error}"
                        );
                        let unknown = error.is_indeterminate()
                            || matches!(error, Error::Timeout { .. } | Error::Recovering { .. });
                        assert!(unknown, "{error}");
                        self.unknown(flight);
                    }
                }
            }
        }
        for (_, flight) in std::mem::take(&mut self.flights) {
            self.unknown(flight);
        }
    }

    fn submit(&mut self, core: &mut Core, now: Nanos, table: Table) {
        let table = table.0;
        let (name, value);
        let (flight, request) = match self.random.modulo(100) {
            0..4 => {
                let counter = self.random.index(SHARED);
                name = format!("counter {counter}");
                (
                    Flight::Increment(counter),
                    Request::IncrementI64 { table, key: name.as_bytes(), delta: 1 },
                )
            }
            4..8 => {
                let register = self.random.index(SHARED);
                name = format!("register {register}");
                value = format!("writer {} {}", self.number, self.random.draw()).into_bytes();
                let condition = self.believed[register];
                let flight = Flight::Replace { register, value: value.clone() };
                (
                    flight,
                    Request::Write {
                        table,
                        key: name.as_bytes(),
                        value: &value,
                        condition,
                        ttl: None,
                    },
                )
            }
            8..30 => {
                let key = self.any_key();
                name = key_name(self.number, key);
                let flight = Flight::Read { key, changes: self.keys[key].changes };
                (flight, Request::Read { table, key: name.as_bytes() })
            }
            choice => {
                let key = self.any_key();
                let owned = &mut self.keys[key];
                if owned.pending.is_some() {
                    return; // has a pending change; the next call draws another key
                }
                name = key_name(self.number, key);
                owned.changes += 1;
                let condition = match owned.certain {
                    Some((version, _)) if choice < 45 => Condition::Version(version),
                    None if choice < 45 => Condition::Absent,
                    _ => Condition::None,
                };
                let request = if choice >= 85 {
                    owned.pending = Some(Intent::Remove);
                    Request::Remove { table, key: name.as_bytes(), condition: Condition::None }
                } else {
                    let fresh = Value { seed: self.random.draw(), len: draw_len(&mut self.random) };
                    owned.pending = Some(Intent::Put(fresh));
                    value = fresh.bytes();
                    self.bytes += value.len() as u64;
                    Request::Write {
                        table,
                        key: name.as_bytes(),
                        value: &value,
                        condition,
                        ttl: None,
                    }
                };
                (Flight::Change(key), request)
            }
        };
        self.tag += 1;
        core.submit(now, self.tag, &request, now + FOR_EVER).expect("within limits");
        self.flights.insert(self.tag, flight);
    }

    fn any_key(&mut self) -> usize {
        if self.random.one_in(2) { self.random.index(HOT_KEYS) } else { self.random.index(KEYS) }
    }

    fn answered(&mut self, flight: Flight, answer: &CopiedAnswer) {
        let CopiedAnswer { status, number, ref body } = *answer;
        self.acknowledged += 1;
        match flight {
            Flight::Change(key) => {
                let name = key_name(self.number, key);
                assert!(matches!(status, Status::Ok | Status::NotFound), "{name}: {status:?}");
                self.keys[key]
                    .record_acknowledgement(&name, (status == Status::Ok).then_some(number));
            }
            Flight::Read { key, changes } => {
                assert!(matches!(status, Status::Ok | Status::NotFound), "read: {status:?}");
                let owned = &mut self.keys[key];
                if owned.changes == changes {
                    let seen = (status == Status::Ok).then_some((number, &body[..]));
                    // A change that was in flight when the read began may have ended since.
                    if owned.pending.is_some()
                        || owned.certain.map(|(version, _)| version) == seen.map(|(v, _)| v)
                    {
                        owned.record_read(&key_name(self.number, key), seen);
                    }
                }
            }
            Flight::Increment(counter) => {
                assert_eq!(status, Status::Ok);
                let counter = &mut self.counters[counter];
                counter.acknowledged += 1;
                counter.sum =
                    counter.sum.max(i64::from_le_bytes(body[..].try_into().expect("a number")));
                counter.version = counter.version.max(number);
            }
            Flight::Replace { register, value } => {
                assert!(matches!(status, Status::Ok | Status::Conflict), "replace: {status:?}");
                self.believed[register] =
                    if number == 0 { Condition::Absent } else { Condition::Version(number) };
                let register = &mut self.registers[register];
                if status == Status::Ok {
                    register.versions.push(number);
                    if register.certain.as_ref().is_none_or(|(version, _)| *version < number) {
                        register.certain = Some((number, value));
                    }
                }
            }
        }
    }

    fn unknown(&mut self, flight: Flight) {
        match flight {
            Flight::Increment(counter) => self.counters[counter].unknown += 1,
            Flight::Replace { register, value } => self.registers[register].unknown.push(value),
            Flight::Change(_) | Flight::Read { .. } => {} // changes stay pending
        }
    }
}

/// Draws a length: most are small, some take many packets, and a few are up to 100 KB.
fn draw_len(random: &mut Chance) -> usize {
    let bound = match random.modulo(100) {
        0..70 => 200,
        70..95 => 5_000,
        95..98 => 30_000,
        _ => MAX_LEN + 1,
    };
    usize::try_from(random.modulo(bound)).expect("small")
}
