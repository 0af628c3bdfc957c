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
    Participant, Plan, TransactionAction, Votes,
};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Number of the last transaction.
    last: u64,
    /// When the first of them sends requests again.
    due: Nanos,
}

impl Default for Transactions {
    fn default() -> Self {
        Self { all: BTreeMap::new(), last: 0, due: Nanos::NEVER }
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
    /// Whether a table was dropped, so that an operation on it could not be prepared.
    dropped: bool,
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
            todo: Vec::new(),
            missing: participants.len(),
            again_at: Nanos::NEVER,
            refused: None,
            unknown: None,
            absent: Vec::new(),
            votes: Votes::default(),
            dropped: false,
            stuck: false,
            participants,
        }
    }

    fn request<'a>(&self, at: usize, id: &'a [u8; OPERATION_ID_BYTES]) -> Request<'a> {
        let Step::Decide(decision) = self.step else { unreachable!("prepares are sent once") };
        let Participant { table, position, .. } = self.participants[at];
        Request::Decide { table, position, id, decision }
    }

    fn tag(&self, at: usize) -> u64 {
        TRANSACTION_TAG | self.number << INDEX_BITS | at as u64
    }

    /// Takes the answer to the request for an operation; returns whether the step is done for that
    /// operation.
    fn take(&mut self, at: usize, answer: Result<OwnAnswer, Error>, server: &str) -> bool {
        let table = self.participants[at].table;
        let answer = answer.and_then(|answer| match answer.status {
            Status::Ok => Ok(answer.number),
            Status::Conflict => Err(Error::TransactionConflict),
            _ => Err(Error::of_answer(&answer.answer(), server, table, "")),
        });
        match (self.step, answer) {
            (Step::Prepare, Ok(_)) => {}
            (Step::Prepare, Err(error)) if error.is_indeterminate() => {
                self.unknown.get_or_insert(error);
            }
            (Step::Prepare, Err(error)) => {
                self.dropped |= matches!(error, Error::TableDropped(_));
                self.absent.push(at);
                self.refused.get_or_insert(error);
            }
            (Step::Decide(Decision::Vote), Ok(number)) => {
                self.votes.add(OperationState::of(number).unwrap_or(OperationState::Aborted));
            }
            (Step::Decide(_), Ok(_) | Err(Error::TableDropped(_))) => {}
            (Step::Decide(_), Err(error)) if error.may_pass() => return false,
            (Step::Decide(_), Err(_)) => self.stuck = true,
        }
        true
    }

    /// Returns the next step, when the present one is done for all operations; `None` at the end.
    fn next_step(&mut self) -> Option<Step> {
        let decision = match self.step {
            Step::Prepare if self.refused.is_some() => Decision::Abort,
            Step::Prepare if self.unknown.is_some() => Decision::Vote,
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
    /// it is not, by `deadline` at the latest. [`Error::TransactionConflict`]: a condition did not
    /// hold, or another transaction locks an object; nothing was changed.
    ///
    /// When the result is reported, the client still has to tell the servers, so the caller should
    /// go on polling: see [`transactions`](Self::transactions). If it does not, the servers find
    /// out among themselves after a second, and until then the objects are locked.
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

    /// Returns the number of transactions in progress. A transaction ends when all its servers have
    /// acknowledged the decision.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.transactions.all.len()
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
            let waiting = self.transactions.all.values().filter(|one| one.again_at <= now);
            let due: Vec<u64> = waiting.map(|one| one.number).collect();
            due.into_iter().for_each(|number| self.send_step(now, number));
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
        let server = self.coordinator().peer.to_string();
        let transaction = self.transaction(number);
        if !transaction.take(at, answer, &server) {
            transaction.todo.push(at);
        }
        transaction.missing -= 1;
        if transaction.missing > 0 {
            return;
        }
        if !transaction.todo.is_empty() {
            if let Some(tag) = transaction.tag.take() {
                // Of a transaction on a dropped table, which the servers may yet commit.
                let waited = DECISION_TIMEOUT;
                sink(tag, Err(Error::Indeterminate { server, waited }));
            }
            return self.send_again(now, number);
        }
        let step = transaction.step;
        let next = transaction.next_step();
        // If a table was dropped, the servers take the operation on it for prepared. So the caller
        // must not learn that the transaction is aborted before all servers have learned it.
        let waits = transaction.dropped && step == Step::Prepare && next.is_some();
        if let Some(tag) = transaction.tag.take_if(|_| !waits) {
            let error = transaction.refused.take().or(transaction.unknown.take());
            let done = Answer { status: Status::Ok, more: false, count: 0, number: 0, body: &[] };
            sink(tag, error.map_or(Ok(done), Err));
        }
        match next {
            Some(step) => {
                self.transaction(number).step = step;
                self.send_step(now, number);
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

    /// Sends the requests of a transaction's step for the operations for which it has to be done.
    fn send_step(&mut self, now: Nanos, number: u64) {
        let todo = std::mem::take(&mut self.transaction(number).todo);
        let outer = self.gathered.replace(Vec::new());
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
        self.send_batch(now);
        self.gathered = outer;
        let transaction = self.transaction(number);
        transaction.missing = todo.len() - unsent.len();
        (transaction.todo, transaction.again_at) = (unsent, Nanos::NEVER);
        if transaction.missing == 0 {
            self.send_again(now, number);
        }
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
    let (mut bytes, mut objects) = (0, BTreeSet::new());
    for TransactionOperation { table, key, action, .. } in operations {
        if key.len() > MAX_TRANSACTION_KEY {
            return Err(Error::KeyTooLarge(key.len()));
        }
        let value = if let TransactionAction::Write(value) = action { value.len() } else { 0 };
        bytes += key.len() + value;
        if !objects.insert((table, key)) {
            return bad("two operations on one object".into());
        }
    }
    if bytes > MAX_TRANSACTION_BYTES {
        return bad(format!(
            "{bytes} bytes of keys and values; a transaction has at most {MAX_TRANSACTION_BYTES}"
        ));
    }
    Ok(())
}
