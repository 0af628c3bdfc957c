//! Operations on a cluster, several at a time, each answer held against the model.

use std::collections::VecDeque;

use sprat_client::{Client, Error, Row, Table, Ticket};
use sprat_wire::op::{Answer, Request, Status};
use thiserror::Error as Failure;

use super::model::{Disagreement, Model};
use super::operation::{Action, Operation, Outcome, key_name};
use super::shared::{SHARED_KEY, Shared};
use super::work::Work;

/// Of so many operations one is an addition to the number that all of these share.
pub const SHARED_EVERY: u64 = 10;

/// A check that could not go on: no answer, or one that makes no sense.
#[derive(Debug, Failure)]
#[error("{place}: {source}")]
pub struct Broken {
    /// The operation.
    pub place: String,
    /// What the client says.
    pub source: Error,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Gets asked for.
    pub gets: u64,
    /// Puts.
    pub puts: u64,
    /// Removals.
    pub removals: u64,
    /// Increments, those of the shared number too.
    pub increments: u64,
    /// Increments of the shared number, with others of them under way.
    pub shared: u64,
    /// Answers that told of a condition that does not hold, or of a number that is none.
    pub refusals: u64,
    /// Bytes of values put.
    pub bytes_sent: u64,
    /// Bytes of values got.
    pub bytes_received: u64,
    /// Objects in the table at the end.
    pub objects: usize,
}

impl Counts {
    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.gets + self.puts + self.removals + self.increments
    }
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// An operation on an object that nothing else is under way on.
    Alone(Operation),
    /// An addition to the shared number, by its place in the sequence.
    Shared(u64),
}

/// A check on its way, in a table that nobody else uses.
pub struct Run<'a> {
    client: &'a mut Client,
    table: Table,
    depth: usize,
    work: Work,
    model: Model,
    shared: Shared,
    /// From the oldest on; no more than `depth`.
    under_way: VecDeque<(Ticket, Asked)>,
    counts: Counts,
}

impl<'a> Run<'a> {
    /// A check in `table`, which is new, of what `work` draws; `depth` operations are under way at
    /// a time, at least one.
    pub fn new(client: &'a mut Client, table: Table, work: Work, depth: usize) -> Self {
        let (model, shared) = (Model::default(), Shared::new(depth.max(1)));
        let under_way = VecDeque::with_capacity(depth);
        Self { client, table, depth, work, model, shared, under_way, counts: Counts::default() }
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// `operations` operations, and a look at the whole table at the end: within, what does not
    /// agree. `progress` is told how many have been asked for.
    ///
    /// # Errors
    /// When the client gets no answer, or the store's makes no sense.
    pub fn through(
        &mut self,
        operations: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<(), Disagreement>, Broken> {
        let mut judged = Ok(());
        for number in 1..=operations {
            if self.under_way.len() >= self.depth {
                judged = self.take()?;
            }
            if judged.is_err() {
                return Ok(judged);
            }
            self.begin(number)?;
            progress(number);
        }
        while judged.is_ok() && !self.under_way.is_empty() {
            judged = self.take()?;
        }
        match judged {
            Ok(()) => self.look_at_all(),
            Err(disagreement) => Ok(Err(disagreement)),
        }
    }

    fn begin(&mut self, number: u64) -> Result<(), Broken> {
        let asked = if number.is_multiple_of(SHARED_EVERY) {
            self.shared.ask();
            Asked::Shared(number)
        } else {
            let under_way = &self.under_way;
            let busy = |key| {
                under_way
                    .iter()
                    .any(|(_, other)| matches!(other, Asked::Alone(one) if one.key == key))
            };
            Asked::Alone(Operation { number, ..self.work.draw(&self.model, busy) })
        };
        let Table(table) = self.table;
        let (mut key, mut value) = (SHARED_KEY.to_owned(), Vec::new());
        let request = match asked {
            Asked::Shared(_) => Request::IncrementI64 { table, key: key.as_bytes(), delta: 1 },
            Asked::Alone(operation) => {
                key = key_name(operation.key);
                let key = key.as_bytes();
                match operation.action {
                    Action::Get => Request::Read { table, key },
                    Action::Remove { condition } => Request::Remove { table, key, condition },
                    Action::Increment { delta } => Request::IncrementI64 { table, key, delta },
                    Action::Put { content, condition } => {
                        value = content.bytes();
                        Request::Write { table, key, value: &value, condition }
                    }
                }
            }
        };
        let ticket = self
            .client
            .submit(&request)
            .map_err(|source| Broken { place: asked.place(), source })?;
        self.counts.sent(asked, value.len());
        self.under_way.push_back((ticket, asked));
        Ok(())
    }

    /// Takes the answer to the oldest operation: within, what does not agree.
    fn take(&mut self) -> Result<Result<(), Disagreement>, Broken> {
        let Some((ticket, asked)) = self.under_way.pop_front() else { return Ok(Ok(())) };
        let outcome = match self.client.wait(ticket, |answer| asked.outcome(answer)) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                let source = Error::Protocol { server: "the server".to_owned() };
                return Err(Broken { place: asked.place(), source });
            }
            Err(Error::Conflict { current }) => Outcome::Conflict { current },
            Err(Error::NotANumber(_)) => Outcome::NotANumber,
            Err(source) => return Err(Broken { place: asked.place(), source }),
        };
        self.counts.came(&outcome);
        Ok(match asked {
            Asked::Alone(operation) => self.model.judge(&operation, &outcome),
            Asked::Shared(number) => self.shared.judge(number, &outcome),
        })
    }

    fn look_at_all(&mut self) -> Result<Result<(), Disagreement>, Broken> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let place = || "the scan of the table at the end".to_owned();
            let page = self
                .client
                .scan(self.table, after)
                .map_err(|source| Broken { place: place(), source })?;
            rows.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.counts.objects = rows.len();
        let (shared, rows): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.key == SHARED_KEY.as_bytes());
        let judged = self.shared.judge_end(shared.first());
        Ok(judged.and_then(|()| self.model.judge_all(rows.into_iter())))
    }
}

impl Asked {
    fn place(self) -> String {
        match self {
            Self::Alone(operation) => {
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

    /// `None` when an increment's answer is no number.
    fn outcome(self, answer: &Answer<'_>) -> Option<Outcome> {
        let version = answer.number;
        let summed = || {
            Some(Outcome::Summed { sum: i64::from_le_bytes(answer.body.try_into().ok()?), version })
        };
        Some(match self {
            _ if answer.status == Status::NotFound => Outcome::Missing,
            Self::Shared(_) => summed()?,
            Self::Alone(operation) => match operation.action {
                Action::Get => Outcome::Found { version, value: answer.body.to_vec() },
                Action::Put { .. } => Outcome::Stored { version },
                Action::Remove { .. } => Outcome::Removed { version },
                Action::Increment { .. } => summed()?,
            },
        })
    }
}

impl Counts {
    fn sent(&mut self, asked: Asked, bytes: usize) {
        let count = match asked {
            Asked::Shared(_) => {
                self.shared += 1;
                &mut self.increments
            }
            Asked::Alone(operation) => match operation.action {
                Action::Get => &mut self.gets,
                Action::Put { .. } => &mut self.puts,
                Action::Remove { .. } => &mut self.removals,
                Action::Increment { .. } => &mut self.increments,
            },
        };
        *count += 1;
        self.bytes_sent += bytes as u64;
    }

    fn came(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Found { value, .. } => self.bytes_received += value.len() as u64,
            Outcome::Conflict { .. } | Outcome::NotANumber => self.refusals += 1,
            _ => {}
        }
    }
}
