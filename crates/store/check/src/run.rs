//! Runs operations on a cluster, several at a time, and compares each answer with the model.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Instant;

use sprat_client::{Client, Error, Row, Table, Ticket};
use sprat_wire::op::{Answer, Request, Status};
use thiserror::Error as Failure;

use super::model::{Disagreement, Model};
use super::operation::{Action, Operation, Outcome, key_name};
use super::shared::{SHARED_KEY, SharedCounter};
use super::work::Work;

/// One in this many operations is an addition to one number, which all such operations share.
pub const SHARED_EVERY: u64 = 10;

/// A check that could not go on: there was no answer, or an invalid one.
#[derive(Debug, Failure)]
#[error("{place}: {source}")]
pub struct CheckError {
    /// The operation that failed, or the scan at the end.
    pub place: String,
    /// The client's error.
    pub source: Error,
}

/// Counts of a check's operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Gets begun.
    pub gets: u64,
    /// Puts begun.
    pub puts: u64,
    /// Removals begun.
    pub removals: u64,
    /// Increments begun, including those of the shared number.
    pub increments: u64,
    /// Increments of the shared number that were begun; several of them are in progress at a time.
    pub shared: u64,
    /// Answers that a condition does not hold, or that a value is not a number.
    pub refusals: u64,
    /// Bytes of values put.
    pub bytes_sent: u64,
    /// Bytes of values read.
    pub bytes_received: u64,
    /// Objects in the table at the end, including the shared number.
    pub objects: usize,
}

impl Counts {
    /// Returns the number of all operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.gets + self.puts + self.removals + self.increments
    }
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
enum InFlight {
    /// An operation on an object of its own, and when it was sent.
    Alone(Operation, Instant),
    /// An addition to the shared number; this is the operation's number in the sequence.
    Shared(u64),
}

/// An operation to begin.
struct Drawn {
    asked: InFlight,
    key: String,
    value: Vec<u8>,
}

/// A check in progress, in a table that no other client uses.
pub struct Run<'a> {
    client: &'a mut Client,
    table: Table,
    depth: usize,
    work: Work,
    model: Model,
    shared: SharedCounter,
    /// Operations in progress, oldest first; at most `depth`.
    in_flight: VecDeque<(Ticket, InFlight)>,
    counts: Counts,
}

impl<'a> Run<'a> {
    /// Makes a check in `table`, which must be new. `work` draws the operations; up to `depth` of
    /// them run at a time, at least one. In turn, `depth` operations are each sent alone, and the
    /// next `depth` operations as one batch.
    pub fn new(client: &'a mut Client, table: Table, work: Work, depth: usize) -> Self {
        let depth = depth.max(1);
        let (model, shared) = (Model::default(), SharedCounter::new(depth));
        let in_flight = VecDeque::with_capacity(depth);
        Self { client, table, depth, work, model, shared, in_flight, counts: Counts::default() }
    }

    /// Returns the counts of the operations so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs `operations` operations, and scans the whole table at the end. The inner result is the
    /// first disagreement with the model. `progress` receives the number of operations begun.
    ///
    /// # Errors
    /// [`CheckError`] when the client gets no answer, or an invalid one.
    pub fn execute(
        &mut self,
        operations: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<(), Disagreement>, CheckError> {
        let mut verified = Ok(());
        let (mut begun, depth) = (0, self.depth as u64);
        while begun < operations {
            let count = if (begun / depth).is_multiple_of(2) { 1 } else { depth };
            let next = begun + 1..=operations.min(begun + count);
            begun = *next.end();
            while self.in_flight.len() as u64 + count > depth && verified.is_ok() {
                verified = self.take()?;
            }
            if verified.is_err() {
                return Ok(verified);
            }
            self.begin(next)?;
            progress(begun);
        }
        while verified.is_ok() && !self.in_flight.is_empty() {
            verified = self.take()?;
        }
        match verified {
            Ok(()) => self.verify_table(),
            Err(disagreement) => Ok(Err(disagreement)),
        }
    }

    /// Begins the operations with these numbers: one by itself, several as a batch.
    fn begin(&mut self, numbers: RangeInclusive<u64>) -> Result<(), CheckError> {
        let mut drawn = Vec::new();
        for number in numbers {
            let draw = self.draw(number, &drawn);
            drawn.push(draw);
        }
        let requests: Vec<Request<'_>> = drawn.iter().map(|one| one.request(self.table)).collect();
        let tickets = match &requests[..] {
            [alone] => vec![self.client.submit(alone)],
            _ => self.client.submit_together(&requests),
        };
        for (Drawn { asked, value, .. }, ticket) in drawn.iter().zip(tickets) {
            let ticket =
                ticket.map_err(|source| CheckError { place: asked.description(), source })?;
            self.counts.count_request(*asked, value.len());
            self.in_flight.push_back((ticket, *asked));
        }
        Ok(())
    }

    /// Draws the operation with this number, which will be in progress together with `drawn`.
    fn draw(&mut self, number: u64, drawn: &[Drawn]) -> Drawn {
        if number.is_multiple_of(SHARED_EVERY) {
            self.shared.begin();
            return Drawn {
                asked: InFlight::Shared(number),
                key: SHARED_KEY.to_owned(),
                value: Vec::new(),
            };
        }
        let in_flight = &self.in_flight;
        let busy = |key| {
            let mut all = in_flight.iter().map(|(_, other)| other);
            let uses =
                |other: &InFlight| matches!(other, InFlight::Alone(one, _) if one.key == key);
            all.any(uses) || drawn.iter().any(|other| uses(&other.asked))
        };
        let operation = Operation { number, ..self.work.draw(&self.model, busy) };
        let value = match operation.action {
            Action::Put { content, .. } => content.bytes(),
            _ => Vec::new(),
        };
        let asked = InFlight::Alone(operation, Instant::now());
        Drawn { asked, key: key_name(operation.key), value }
    }

    /// Waits for the answer to the oldest operation, and compares it.
    fn take(&mut self) -> Result<Result<(), Disagreement>, CheckError> {
        let Some((ticket, asked)) = self.in_flight.pop_front() else { return Ok(Ok(())) };
        let outcome = match self.client.wait(ticket, |answer| asked.outcome(answer)) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                let source = Error::Protocol { server: "the server".to_owned() };
                return Err(CheckError { place: asked.description(), source });
            }
            Err(Error::Conflict { current }) => Outcome::Conflict { current },
            Err(Error::NotANumber(_)) => Outcome::NotANumber,
            Err(source) => return Err(CheckError { place: asked.description(), source }),
        };
        self.counts.count_outcome(&outcome);
        Ok(match asked {
            InFlight::Alone(operation, begun) => {
                self.model.verify(&operation, &outcome, &(begun..Instant::now()))
            }
            InFlight::Shared(number) => self.shared.verify(number, &outcome),
        })
    }

    fn verify_table(&mut self) -> Result<Result<(), Disagreement>, CheckError> {
        let (mut rows, mut after, begun) = (Vec::new(), None, Instant::now());
        loop {
            let place = || "the scan of the table at the end".to_owned();
            let page = self
                .client
                .scan(self.table, after)
                .map_err(|source| CheckError { place: place(), source })?;
            rows.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.counts.objects = rows.len();
        let (shared, rows): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.key == SHARED_KEY.as_bytes());
        let verified = self.shared.verify_end(shared.first());
        Ok(verified
            .and_then(|()| self.model.verify_all(rows.into_iter(), &(begun..Instant::now()))))
    }
}

impl Drawn {
    fn request(&self, Table(table): Table) -> Request<'_> {
        let (key, value) = (self.key.as_bytes(), &self.value[..]);
        match self.asked {
            InFlight::Shared(_) => Request::IncrementI64 { table, key, delta: 1 },
            InFlight::Alone(operation, _) => match operation.action {
                Action::Get => Request::Read { table, key },
                Action::Remove { condition } => Request::Remove { table, key, condition },
                Action::Increment { delta } => Request::IncrementI64 { table, key, delta },
                Action::Put { condition, ttl, .. } => {
                    Request::Write { table, key, value, condition, ttl }
                }
            },
        }
    }
}

impl InFlight {
    fn description(self) -> String {
        match self {
            Self::Alone(operation, _) => {
                format!(
                    "operation {}, {} of {:?}",
                    operation.number,
                    operation.action,
                    key_name(operation.key)
                )
            }
            Self::Shared(number) => format!("operation {number}, increment by 1 of {SHARED_KEY:?}"),
        }
    }

    /// Returns the outcome of an answer; `None` when an increment's answer is not a number.
    fn outcome(self, answer: &Answer<'_>) -> Option<Outcome> {
        let version = answer.number;
        let summed = || {
            Some(Outcome::Summed { sum: i64::from_le_bytes(answer.body.try_into().ok()?), version })
        };
        Some(match self {
            _ if answer.status == Status::NotFound => Outcome::Missing,
            Self::Shared(_) => summed()?,
            Self::Alone(operation, _) => match operation.action {
                Action::Get => Outcome::Found { version, value: answer.body.to_vec() },
                Action::Put { .. } => Outcome::Stored { version },
                Action::Remove { .. } => Outcome::Removed { version },
                Action::Increment { .. } => summed()?,
            },
        })
    }
}

impl Counts {
    fn count_request(&mut self, asked: InFlight, bytes: usize) {
        let count = match asked {
            InFlight::Shared(_) => {
                self.shared += 1;
                &mut self.increments
            }
            InFlight::Alone(operation, _) => match operation.action {
                Action::Get => &mut self.gets,
                Action::Put { .. } => &mut self.puts,
                Action::Remove { .. } => &mut self.removals,
                Action::Increment { .. } => &mut self.increments,
            },
        };
        *count += 1;
        self.bytes_sent += bytes as u64;
    }

    fn count_outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Found { value, .. } => self.bytes_received += value.len() as u64,
            Outcome::Conflict { .. } | Outcome::NotANumber => self.refusals += 1,
            _ => {}
        }
    }
}
