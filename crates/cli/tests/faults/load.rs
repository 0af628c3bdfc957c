//! Operations of all kinds, many at a time, each answer checked against what it must be.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sprat_client::{Client, Error, Mode, Options, Table, Ticket};
use sprat_wire::op::{Answer, Condition, Request, Status};

use crate::support::Random;

/// Keys of which each has one operation under way.
const LANES: usize = 16;

/// Of so many values one is too long for a frame.
const LONG: u64 = 20;

/// A client of the server at `coordinator`, over a device of its own.
pub(crate) fn client(coordinator: &str, local: &str) -> Client {
    let coordinator = coordinator.to_owned();
    let timeout = Duration::from_secs(30);
    Client::connect(&Options { coordinator, local: Some(local.to_owned()), timeout, waiting: Mode::Adaptive })
        .expect("a client")
}

/// What was done.
pub(crate) struct Load {
    pub(crate) operations: usize,
    pub(crate) elapsed: Duration,
}

/// What one operation must come to.
enum Want {
    Read(Option<(u64, Vec<u8>)>),
    Written(Vec<u8>),
    Conflict(u64),
    Removed(bool),
    Own(i64),
    Shared,
}

/// A key, what it holds, and a number that only grows.
struct Lane {
    key: String,
    counter: String,
    object: Option<(u64, Vec<u8>)>,
    count: i64,
    under_way: Option<(Ticket, Want)>,
}

/// Does `operations` of them in a table that nobody else uses.
pub(crate) fn mixed(client: &mut Client, table: Table, operations: usize, seed: u64) -> Load {
    let mut random = Random(seed);
    let lane = |number| Lane {
        key: format!("key {number}"),
        counter: format!("counter {number}"),
        object: None,
        count: 0,
        under_way: None,
    };
    let mut lanes: Vec<_> = (0..LANES).map(lane).collect();
    let mut shared = BTreeSet::new();
    let (mut increments, start) = (0, Instant::now());
    for turn in 0..operations + LANES {
        let lane = &mut lanes[turn % LANES];
        if let Some((ticket, want)) = lane.under_way.take() {
            let result = client.wait(ticket, own);
            lane.check(want, result, &mut shared);
        }
        if turn < operations {
            let under_way = lane.begin(client, table, &mut random);
            increments += i64::from(matches!(under_way.1, Want::Shared));
            lane.under_way = Some(under_way);
        }
    }
    let elapsed = start.elapsed();
    // Each increment was executed once: every sum from 1 on was told to somebody, and no more than that is there.
    assert!(shared.iter().copied().eq(1..=increments), "{increments} increments told of {shared:?}");
    assert_eq!(client.increment_i64(table, b"shared", 0).expect("it is there").0, increments);
    for lane in &lanes {
        let found = client.get(table, lane.key.as_bytes()).expect("it can be read");
        assert_eq!(found.map(|object| (object.version, object.value)), lane.object, "{}", lane.key);
        assert_eq!(client.increment_i64(table, lane.counter.as_bytes(), 0).expect("it can be read").0, lane.count);
    }
    Load { operations, elapsed }
}

impl Lane {
    fn begin(&mut self, client: &mut Client, table: Table, random: &mut Random) -> (Ticket, Want) {
        let Table(table) = table;
        let (key, counter) = (self.key.as_bytes(), self.counter.as_bytes());
        let value = |random: &mut Random| {
            let len = if random.one_in(LONG) { 1_000 + random.index(40_000) } else { random.index(500) };
            let first = random.draw();
            (0..len as u64).map(|at| (first.wrapping_add(at * 7) >> 3).to_le_bytes()[0]).collect::<Vec<u8>>()
        };
        let version = self.object.as_ref().map_or(0, |(version, _)| *version);
        let (request, want);
        let written;
        match random.below(10) {
            0..=2 => {
                request = Request::Read { table, key };
                want = Want::Read(self.object.clone());
            }
            3..=4 => {
                written = value(random);
                request = Request::Write { table, key, value: &written, condition: Condition::None };
                want = Want::Written(written.clone());
            }
            5 => {
                written = value(random);
                let condition = if version == 0 { Condition::Absent } else { Condition::Version(version) };
                request = Request::Write { table, key, value: &written, condition };
                want = Want::Written(written.clone());
            }
            6 => {
                let condition = if version == 0 { Condition::Exists } else { Condition::Absent };
                request = Request::Write { table, key, value: b"never", condition };
                want = Want::Conflict(version);
            }
            7 => {
                request = Request::Remove { table, key, condition: Condition::None };
                want = Want::Removed(self.object.is_some());
            }
            8 => {
                request = Request::IncrementI64 { table, key: counter, delta: 3 };
                want = Want::Own(self.count + 3);
            }
            _ => {
                request = Request::IncrementI64 { table, key: b"shared", delta: 1 };
                want = Want::Shared;
            }
        }
        (client.submit(&request).expect("it can be submitted"), want)
    }

    fn check(&mut self, want: Want, got: Result<Got, Error>, shared: &mut BTreeSet<i64>) {
        let key = &self.key;
        if let Want::Conflict(current) = want {
            let current = (current > 0).then_some(current);
            assert_eq!(got.map(|_| ()), Err(Error::Conflict { current }), "{key}");
            return;
        }
        let got = got.unwrap_or_else(|error| panic!("{key}: {error}"));
        match want {
            Want::Read(None) => assert_eq!(got.status, Status::NotFound, "{key}"),
            Want::Read(Some((version, value))) => {
                assert_eq!((got.status, got.number), (Status::Ok, version), "{key}");
                assert!(got.body == value, "{key}: {} bytes that are not those written", got.body.len());
            }
            Want::Written(value) => {
                assert_eq!(got.status, Status::Ok, "{key}");
                assert!(self.object.as_ref().is_none_or(|(version, _)| got.number > *version), "versions grow");
                self.object = Some((got.number, value));
            }
            Want::Conflict(_) => unreachable!("judged above"),
            Want::Removed(there) => {
                assert_eq!(got.status, if there { Status::Ok } else { Status::NotFound }, "{key}");
                self.object = None;
            }
            Want::Own(sum) => {
                assert_eq!((got.status, got.sum()), (Status::Ok, sum), "{}", self.counter);
                self.count = sum;
            }
            Want::Shared => assert!(shared.insert(got.sum()), "the sum {} was told twice", got.sum()),
        }
    }
}

struct Got {
    status: Status,
    number: u64,
    body: Vec<u8>,
}

impl Got {
    fn sum(&self) -> i64 {
        i64::from_le_bytes(self.body.as_slice().try_into().expect("a number"))
    }
}

fn own(answer: &Answer<'_>) -> Got {
    Got { status: answer.status, number: answer.number, body: answer.body.to_vec() }
}
