//! Transactions in progress: the client prepares the operations, reports the result, and then sends
//! the decision to the servers. See [`sprat_wire::transaction`] for the order of steps.

use super::{Core, Destination, OwnAnswer};
use crate::calls::{AnswerSink, Pending};
use crate::error::Error;
use sprat_net::Nanos;
use sprat_wire::once::OPERATION_ID_BYTES;
use sprat_wire::op::{Answer, Condition, Request, Status};
use sprat_wire::tablet::position;
use sprat_wire::transaction::{
    Decision, MAX_TRANSACTION, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEY, OperationState,
    Participant, Plan, Preparation, TransactionAction, Votes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Tag bit of the requests of transactions; the other bits are the transaction's number and the
/// index of the operation.
pub(super) const TRANSACTION_TAG: u64 = 1 << 61;

/// Bits of a tag for the index of an operation.
const INDEX_BITS: u32 = 7;

const _: () = assert!(MAX_TRANSACTION <= 1 << INDEX_BITS);

/// Timeout of a vote or of a decision. After it, the client sends it again.
const DECISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait before votes or decisions are sent again that had no usable answer.
const AGAIN: Duration = Duration::from_millis(20);

/// How long a client keeps decisions for which nothing waits, so that those of several transactions
/// share a request.
const FORMAL_DELAY: Duration = Duration::from_millis(2);

/// Number of operations with such decisions at which the client sends them at once.
const FORMAL_TOGETHER: usize = 64;

/// The result of a transaction that is committed.
const DONE: Answer<'_> =
    Answer { status: Status::Ok, more: false, count: 0, ttl_high: 0, number: 0, body: &[] };

/// An operation of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactionOperation<'a> {
    /// Id of the table.
    pub table: u32,
    /// The object's key.
    pub key: &'a [u8],
    /// The condition of the transaction for the object.
    pub condition: Condition,
    /// What the operation does.
    pub action: TransactionAction<'a>,
}

impl<'a> TransactionOperation<'a> {
    /// Returns the request that does the same without a transaction; `None` if there is none.
    fn alone(&self) -> Option<Request<'a>> {
        let Self { table, key, condition, action } = *self;
        match action {
            TransactionAction::Check => None,
            TransactionAction::Write(value, ttl) => {
                Some(Request::Write { table, key, value, condition, ttl })
            }
            TransactionAction::Remove => Some(Request::Remove { table, key, condition }),
        }
    }
}

/// The step of a transaction; each is a request for some of the operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Operations are being prepared.
    Prepare,
    /// The participants are asked for their votes, or carry out a decision.
    Decide(Decision),
}

/// The transactions in progress.
pub(super) struct Transactions {
    /// By number.
    all: BTreeMap<u64, Transaction>,
    /// Transactions that are a single change, by number: the caller's tag, and the table.
    alone: BTreeMap<u64, (u64, u32)>,
    /// Number of the last transaction.
    last: u64,
    /// When the first of them sends requests again.
    due: Nanos,
    /// Number of operations whose decisions wait for those of others: see [`FORMAL_TOGETHER`].
    formal: usize,
}

impl Default for Transactions {
    fn default() -> Self {
        let (all, alone) = (BTreeMap::new(), BTreeMap::new());
        Self { all, alone, last: 0, due: Nanos::NEVER, formal: 0 }
    }
}

impl Transactions {
    /// Returns the time at which a transaction has something to do although nothing arrives.
    pub(super) fn due(&self) -> Nanos {
        self.due
    }
}

/// A transaction in progress.
struct Transaction {
    number: u64,
    /// The caller's tag, until the caller has the result.
    tag: Option<u64>,
    participants: Vec<Participant>,
    /// The request slots of the operations, which no other operation may use until the transaction
    /// is ended.
    slots: Vec<u32>,
    step: Step,
    /// How far a server has brought the transaction by itself.
    preparation: Preparation,
    /// The operations for which the step still has to be done, by their indices.
    todo: Vec<usize>,
    /// Number of requests of the step without answer.
    missing: usize,
    /// When to send requests again for the operations in `todo`; `NEVER` while answers are missing.
    again_at: Nanos,
    /// The first operation that was refused, and so makes the transaction abort.
    refused: Option<Error>,
    /// The first operation of which the client does not know whether it is prepared.
    unknown: Option<Error>,
    /// Operations that were certainly not prepared.
    absent: Vec<usize>,
    votes: Votes,
    /// Whether a server refused a decision, so that the slots must never be used again.
    stuck: bool,
}

impl Transaction {
    /// Makes a transaction whose operations are being prepared.
    fn new(number: u64, tag: u64, participants: Vec<Participant>, slots: Vec<u32>) -> Self {
        Self {
            number,
            tag: Some(tag),
            slots,
            step: Step::Prepare,
            preparation: Preparation::Prepared,
            todo: Vec::new(),
            missing: participants.len(),
            again_at: Nanos::NEVER,
            refused: None,
            unknown: None,
            absent: Vec::new(),
            votes: Votes::default(),
            stuck: false,
            participants,
        }
    }

    fn request<'a>(&self, at: usize, id: &'a [u8; OPERATION_ID_BYTES]) -> Request<'a> {
        let Step::Decide(decision) = self.step else { unreachable!("prepares are sent once") };
        let Participant { table, position, .. } = self.participants[at];
        Request::Decide { table, position, id, decision }
    }

    /// Returns whether nothing waits for the step: the servers have decided the transaction, or its
    /// only server does so by itself.
    fn is_formal(&self) -> bool {
        self.preparation == Preparation::Decided && self.tag.is_none()
            || self.step == Step::Decide(Decision::End)
    }

    fn tag(&self, at: usize) -> u64 {
        TRANSACTION_TAG | self.number << INDEX_BITS | at as u64
    }

    /// Takes the answer to the request for an operation; returns whether the step is done for that
    /// operation.
    fn take(&mut self, at: usize, answer: Result<OwnAnswer, Error>, server: SocketAddr) -> bool {
        let table = self.participants[at].table;
        let answer = answer.and_then(|answer| match answer.status {
            Status::Ok => Ok(answer.number),
            Status::Conflict => Err(Error::TransactionConflict),
            _ => Err(Error::of_answer(&answer.answer(), &server.to_string(), table, "")),
        });
        match (self.step, answer) {
            (Step::Prepare, Ok(number)) => {
                self.preparation = self.preparation.max(Preparation::of(number));
            }
            (Step::Prepare, Err(error)) if error.is_indeterminate() => {
                self.unknown.get_or_insert(error);
            }
            (Step::Prepare, Err(error)) => {
                self.absent.push(at);
                self.refused.get_or_insert(error);
            }
            (Step::Decide(Decision::Vote), Ok(number)) => {
                self.votes.add(OperationState::of(number).unwrap_or(OperationState::Aborted));
            }
            (Step::Decide(Decision::Abort), Ok(number))
                if OperationState::of(number) == Some(OperationState::Committed) =>
            {
                // Another server has ended the transaction, without the table that was dropped.
                let (server, waited) = (server.to_string(), DECISION_TIMEOUT);
                self.unknown.get_or_insert(Error::Indeterminate { server, waited });
                self.refused = None;
            }
            (Step::Decide(_), Ok(_) | Err(Error::TableDropped(_))) => {}
            (Step::Decide(_), Err(error)) if error.may_pass() => return false,
            (Step::Decide(_), Err(_)) => self.stuck = true,
        }
        true
    }

    /// Returns whether the servers may yet commit the transaction although an operation was
    /// refused. If the table of that operation is dropped, they take the operation for prepared. So
    /// the caller must not learn that the transaction is aborted before the other operations are.
    /// If they are of the same table, they are dropped with it.
    fn may_be_committed(&self) -> bool {
        let table = |at: usize| self.participants[at].table;
        let is_elsewhere = |at: usize| self.absent.iter().any(|&other| table(other) != table(at));
        (0..self.participants.len()).any(|at| !self.absent.contains(&at) && is_elsewhere(at))
    }

    /// Returns the next step, when the present one is done for all operations; `None` at the end.
    fn next_step(&mut self) -> Option<Step> {
        let decision = match self.step {
            Step::Prepare if self.refused.is_some() => Decision::Abort,
            Step::Prepare if self.unknown.is_some() => Decision::Vote,
            Step::Prepare if self.preparation == Preparation::Ended => return None,
            Step::Prepare => Decision::Commit,
            Step::Decide(Decision::Vote) => self.votes.decision(),
            Step::Decide(Decision::Commit | Decision::Abort) => Decision::End,
            Step::Decide(Decision::End) => return None,
        };
        let absent = &self.absent;
        self.todo = (0..self.participants.len()).filter(|at| !absent.contains(at)).collect();
        (!self.todo.is_empty()).then_some(Step::Decide(decision))
    }
}

impl Core {
    /// Submits a transaction. [`poll`](Self::poll) reports with `tag` that it is committed, or why
    /// it is not, by `deadline` at the latest. If operations on some tables may be prepared and one
    /// on another table is not, it first waits until their servers have acknowledged that the
    /// transaction is aborted. [`Error::TransactionConflict`]: a condition did not hold, or another
    /// transaction locks an object; nothing was changed.
    ///
    /// When the result is reported, the client may still have to tell the servers, so the caller
    /// should go on polling: see [`transactions`](Self::transactions). If it does not, the servers
    /// find out among themselves after a second. Until then the objects are locked, unless one
    /// server has all of them.
    ///
    /// # Errors
    /// [`Error::BadTransaction`] when there are no operations, or two on one object, or too many,
    /// or too many bytes; [`Error::TableDropped`] when a table is unknown; [`Error::KeyTooLarge`]
    /// and [`Error::TooManyPending`]. Nothing is submitted then.
    ///
    /// # Panics
    /// When one of the tag's highest bits is set, which mark the client's own requests.
    pub fn submit_transaction(
        &mut self,
        now: Nanos,
        tag: u64,
        operations: &[TransactionOperation<'_>],
        deadline: Nanos,
    ) -> Result<(), Error> {
        assert!(tag & super::OWN_TAGS == 0, "the highest bits of a tag are the client's own");
        check(operations)?;
        if let [operation] = operations
            && let Some(request) = operation.alone()
        {
            return self.change_alone(now, (tag, operation.table), &request, deadline);
        }
        let mut places = Vec::with_capacity(operations.len());
        for TransactionOperation { table, key, .. } in operations {
            let place = self.tables.get(*table).ok_or(Error::TableDropped(*table))?;
            places.push((*table, position(place.seed, *table, key)));
        }
        let slots = self.calls.take_slots(operations.len())?;
        let participant = |((table, position), &slot): ((u32, u64), &u32)| Participant {
            table,
            position,
            id: self.calls.next_id(slot),
        };
        let participants: Vec<_> = places.into_iter().zip(&slots).map(participant).collect();
        self.transactions.last += 1;
        let number = self.transactions.last;
        let transaction = Transaction::new(number, tag, participants, slots);
        let outer = self.gathered.replace(Vec::new());
        for (at, operation) in operations.iter().enumerate() {
            let TransactionOperation { table, key, condition, action } = *operation;
            let plan = Plan::encode(action, &transaction.participants);
            let plan = Plan::parse(&plan).expect("within limits");
            let request = Request::Prepare { table, key, condition, plan };
            let (tag, slot) = (transaction.tag(at), transaction.slots[at]);
            let destination = self.destination(table, &request);
            let pending = self.pending_call(now, tag, destination, &request, deadline);
            self.calls.fill(slot, Pending { held: true, ..pending }, &request);
            self.send_to(now, slot, destination, &request);
        }
        self.send_batch(now);
        self.gathered = outer;
        self.transactions.all.insert(number, transaction);
        Ok(())
    }

    /// Begins a transaction that is a single change of an object of `table`.
    fn change_alone(
        &mut self,
        now: Nanos,
        (tag, table): (u64, u32),
        request: &Request<'_>,
        deadline: Nanos,
    ) -> Result<(), Error> {
        let number = self.transactions.last + 1;
        let own_tag = TRANSACTION_TAG | number << INDEX_BITS;
        let destination = self.route(request)?;
        self.begin(now, own_tag, destination, request, deadline)?;
        self.transactions.last = number;
        self.transactions.alone.insert(number, (tag, table));
        Ok(())
    }

    /// Returns the number of transactions in progress. A transaction ends when all its servers have
    /// acknowledged the decision.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.transactions.all.len() + self.transactions.alone.len()
    }

    /// Takes the answers to requests of transactions, and sends requests again that are due.
    pub(super) fn poll_transactions(
        &mut self,
        now: Nanos,
        answers: Vec<(u64, Result<OwnAnswer, Error>)>,
        sink: AnswerSink<'_>,
    ) {
        if answers.is_empty() && now < self.transactions.due {
            return;
        }
        for (tag, answer) in answers {
            self.transaction_answered(now, tag, answer, sink);
        }
        if now >= self.transactions.due {
            let all = self.transactions.all.values();
            // Formal decisions go together, although some could wait longer.
            let is_due = |one: &&Transaction| {
                one.again_at <= now || one.is_formal() && one.again_at < Nanos::NEVER
            };
            let due: Vec<u64> = all.filter(is_due).map(|one| one.number).collect();
            self.transactions.formal = 0;
            self.send_steps(now, &due);
            let again = self.transactions.all.values().map(|one| one.again_at);
            self.transactions.due = again.min().unwrap_or(Nanos::NEVER);
        }
        self.flush();
    }

    fn transaction_answered(
        &mut self,
        now: Nanos,
        tag: u64,
        answer: Result<OwnAnswer, Error>,
        sink: AnswerSink<'_>,
    ) {
        let number = (tag & !TRANSACTION_TAG) >> INDEX_BITS;
        let at = usize::try_from(tag & ((1 << INDEX_BITS) - 1)).expect("a few bits");
        let server = self.coordinator().peer;
        if let Some((tag, table)) = self.transactions.alone.remove(&number) {
            let done = answer.and_then(|answer| match answer.status {
                // `NotFound`: there is nothing to remove.
                Status::Ok | Status::NotFound => Ok(DONE),
                Status::Conflict => Err(Error::TransactionConflict),
                _ => Err(Error::of_answer(&answer.answer(), &server.to_string(), table, "")),
            });
            return sink(tag, done);
        }
        let transaction = self.transaction(number);
        if !transaction.take(at, answer, server) {
            transaction.todo.push(at);
        }
        transaction.missing -= 1;
        if transaction.missing > 0 {
            return;
        }
        if !transaction.todo.is_empty() {
            if let Some(tag) = transaction.tag.take() {
                // The servers may yet commit it, if a table was dropped.
                let (server, waited) = (server.to_string(), DECISION_TIMEOUT);
                sink(tag, Err(Error::Indeterminate { server, waited }));
            }
            return self.send_again(now, number);
        }
        let step = transaction.step;
        let next = transaction.next_step();
        let waits = step == Step::Prepare && transaction.may_be_committed();
        if let Some(tag) = transaction.tag.take_if(|_| !waits) {
            let error = transaction.refused.take().or(transaction.unknown.take());
            sink(tag, error.map_or(Ok(DONE), Err));
        }
        match next {
            Some(step) => {
                let transaction = self.transaction(number);
                transaction.step = step;
                if transaction.is_formal() {
                    self.send_formally(now, number);
                } else {
                    self.send_steps(now, &[number]);
                }
            }
            None => self.end_transaction(number),
        }
    }

    fn transaction(&mut self, number: u64) -> &mut Transaction {
        self.transactions.all.get_mut(&number).expect("it ends after its last answer")
    }

    fn end_transaction(&mut self, number: u64) {
        let ended = self.transactions.all.remove(&number).expect("it ends once");
        for slot in ended.slots {
            match ended.stuck {
                true => self.calls.retire_slot(),
                false => self.calls.free_slot(slot),
            }
        }
    }

    /// Sends the requests of transactions' steps, for the operations for which they have to be
    /// done.
    fn send_steps(&mut self, now: Nanos, numbers: &[u64]) {
        let outer = self.gathered.replace(Vec::new());
        numbers.iter().for_each(|&number| self.send_step(now, number));
        self.send_batch(now);
        self.gathered = outer;
    }

    fn send_step(&mut self, now: Nanos, number: u64) {
        let todo = std::mem::take(&mut self.transaction(number).todo);
        let mut unsent = Vec::new();
        for &at in &todo {
            let transaction = self.transaction(number);
            let Participant { table, id, .. } = transaction.participants[at];
            let (tag, id) = (transaction.tag(at), id.bytes());
            let request = transaction.request(at, &id);
            let destination = self.destination(table, &request);
            if self.begin(now, tag, destination, &request, now + DECISION_TIMEOUT).is_err() {
                unsent.push(at);
            }
        }
        let transaction = self.transaction(number);
        transaction.missing = todo.len() - unsent.len();
        (transaction.todo, transaction.again_at) = (unsent, Nanos::NEVER);
        if transaction.missing == 0 {
            self.send_again(now, number);
        }
    }

    /// Lets a transaction wait for whose step nothing waits, until there are more of them.
    fn send_formally(&mut self, now: Nanos, number: u64) {
        let transaction = self.transaction(number);
        transaction.again_at = now + FORMAL_DELAY;
        let operations = transaction.todo.len();
        self.transactions.formal += operations;
        let due = if self.transactions.formal < FORMAL_TOGETHER { now + FORMAL_DELAY } else { now };
        self.transactions.due = self.transactions.due.min(due);
    }

    /// Lets a transaction wait before it sends requests again.
    fn send_again(&mut self, now: Nanos, number: u64) {
        self.transaction(number).again_at = now + AGAIN;
        self.transactions.due = self.transactions.due.min(now + AGAIN);
    }

    /// Returns where a request for a table goes that the client may not know.
    fn destination(&mut self, table: u32, request: &Request<'_>) -> Destination {
        match self.tables.get(table).and_then(|place| place.of(request)) {
            Some(target) => Destination::Table(table, target),
            None => Destination::UnservedTable(table),
        }
    }
}

/// Checks a transaction against the limits.
fn check(operations: &[TransactionOperation<'_>]) -> Result<(), Error> {
    let bad = |reason: String| Err(Error::BadTransaction(reason));
    if !(1..=MAX_TRANSACTION).contains(&operations.len()) {
        return bad(format!(
            "{} objects; a transaction has 1 to {MAX_TRANSACTION}",
            operations.len()
        ));
    }
    let mut bytes = 0;
    for TransactionOperation { key, action, .. } in operations {
        if key.len() > MAX_TRANSACTION_KEY {
            return Err(Error::KeyTooLarge(key.len()));
        }
        let value = if let TransactionAction::Write(value, _) = action { value.len() } else { 0 };
        bytes += key.len() + value;
    }
    let object = |operation: &TransactionOperation<'_>| (operation.table, operation.key.to_vec());
    let ascend = |one: &TransactionOperation<'_>, next: &TransactionOperation<'_>| {
        (one.table, one.key) < (next.table, next.key)
    };
    if !operations.is_sorted_by(ascend)
        && operations.iter().map(object).collect::<BTreeSet<_>>().len() < operations.len()
    {
        return bad("two operations on one object".into());
    }
    if bytes > MAX_TRANSACTION_BYTES {
        return bad(format!(
            "{bytes} bytes of keys and values; a transaction has at most {MAX_TRANSACTION_BYTES}"
        ));
    }
    Ok(())
}
