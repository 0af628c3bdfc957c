//! Transactions of a simulated client. Some change objects of any tables, some only read them, and
//! some move amounts between the accounts of a bank, of which the sum never changes.

use super::{Client, ClientContext, Pending};
use crate::history::{Action, ObjectName, Response, Value};
use crate::settings::Settings;
use sprat_client::{Error, TransactionAction, TransactionOperation};
use sprat_net::Nanos;
use sprat_wire::op::{Condition, Request};
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of accounts of the bank, in the table of ballast. Transactions move amounts between them,
/// so their sum never changes.
const ACCOUNTS: u16 = 4;

/// The key of the first account, above those of ballast.
const FIRST_ACCOUNT: u16 = 60_000;

/// The largest number of objects of a transaction outside of the bank.
const MAX_OBJECTS: u64 = 4;

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TransactionKind {
    /// Changes some objects.
    Change,
    /// Reads all objects together. If one response has all of them, they were so at one moment;
    /// otherwise the transaction reads them again: if all exist and their versions are the same, it
    /// has read them as they were at one moment.
    Read,
    /// Moves an amount from one account to another.
    Transfer,
    /// Reads all accounts.
    Audit,
}

/// An object of a transaction: what was read, if it was read already; no object is `None`.
pub(super) type Touched = (ObjectName, Option<Option<(u64, Value)>>);

/// A transaction under way.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    kind: TransactionKind,
    pub(super) objects: Vec<Touched>,
    /// What the first of two rounds of reads has found.
    first: Option<Vec<Touched>>,
    /// Number of reads without response.
    pub(super) missing: usize,
    /// Whether a read had no usable response, so that the transaction is given up.
    pub(super) failed: bool,
    /// The tags of the latest reads, the first and the last.
    tags: (u64, u64),
    /// The numbers of the calls in the history.
    parts: Vec<usize>,
    patience: Duration,
}

impl TransactionKind {
    fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::Audit)
    }
}

impl Transaction {
    /// Ends the calls that would count, without a result.
    fn drop_parts(&mut self, now: Nanos, shared: &mut ClientContext<'_>) {
        for call in std::mem::take(&mut self.parts) {
            shared.history.respond(now, call, Response::NotDone);
        }
    }
}

/// Returns the names of the accounts in a table.
pub(crate) fn accounts(table: u32) -> impl Iterator<Item = ObjectName> {
    (0..ACCOUNTS).map(move |number| ObjectName { table, key: FIRST_ACCOUNT + number })
}

/// Returns whether a key is that of an account.
pub(super) fn is_account(table: u32, key: &[u8]) -> bool {
    accounts(table).any(|account| account.bytes() == key)
}

impl Client {
    /// Begins a transaction: reads its objects.
    pub(super) fn begin_transaction(
        &mut self,
        now: Nanos,
        patience: Duration,
        shared: &mut ClientContext<'_>,
    ) {
        let kind = match self.random.below(8) {
            0..4 => TransactionKind::Change,
            4 => TransactionKind::Read,
            5 => TransactionKind::Audit,
            _ => TransactionKind::Transfer,
        };
        let names: Vec<ObjectName> = match kind {
            TransactionKind::Audit => accounts(shared.ballast.id).collect(),
            TransactionKind::Transfer => {
                let from = self.random.below(u64::from(ACCOUNTS));
                let to = from + 1 + self.random.below(u64::from(ACCOUNTS) - 1);
                let account = |number: u64| {
                    let number = u16::try_from(number % u64::from(ACCOUNTS)).expect("few accounts");
                    ObjectName { table: shared.ballast.id, key: FIRST_ACCOUNT + number }
                };
                [from, to].map(account).to_vec()
            }
            TransactionKind::Change | TransactionKind::Read => {
                let mut names = BTreeSet::new();
                for _ in 0..self.random.between(2, MAX_OBJECTS) {
                    let table = self.random.pick(shared.tables).id;
                    let key = self.random.below(u64::from(shared.settings.keys));
                    names.insert(ObjectName { table, key: u16::try_from(key).expect("few keys") });
                }
                names.into_iter().collect()
            }
        };
        self.last_number += 1;
        let number = self.last_number;
        self.trace_transaction(now, number, format_args!("begins, {kind:?}"), shared);
        let transaction = Transaction {
            kind,
            objects: names.into_iter().map(|name| (name, None)).collect(),
            first: None,
            missing: 0,
            failed: false,
            tags: (0, 0),
            parts: Vec::new(),
            patience,
        };
        self.transactions.insert(number, transaction);
        if kind.only_reads() {
            self.invoke_parts(now, number, shared);
        }
        self.read_objects(now, number, shared);
    }

    fn trace_transaction(
        &self,
        now: Nanos,
        number: u64,
        what: std::fmt::Arguments<'_>,
        shared: &mut ClientContext<'_>,
    ) {
        shared.trace.note(now, format_args!("client {}: transaction {number} {what}", self.index));
    }

    /// Invokes the calls that count of a transaction that only reads.
    fn invoke_parts(&mut self, now: Nanos, number: u64, shared: &mut ClientContext<'_>) {
        let transaction = self.transactions.get_mut(&number).expect("it is under way");
        let names = transaction.objects.iter().map(|(name, _)| *name);
        transaction.parts =
            names.map(|name| shared.history.invoke(now, self.index, name, Action::Read)).collect();
    }

    /// Reads the objects of a transaction; of one that changes objects, not all of them.
    fn read_objects(&mut self, now: Nanos, number: u64, shared: &mut ClientContext<'_>) {
        self.learn(shared);
        let mut transaction = self.transactions.remove(&number).expect("it is under way");
        let mut requests = Vec::new();
        for (at, (name, _)) in transaction.objects.iter().enumerate() {
            if transaction.kind == TransactionKind::Change && self.random.chance(1, 6) {
                continue;
            }
            let call = shared.history.invoke(now, self.index, *name, Action::Read);
            requests.push((at, *name, call));
        }
        transaction.missing = requests.len();
        transaction.tags = (self.tag + 1, self.tag + requests.len() as u64);
        // In a batch of other calls, these reads join that batch.
        let together = transaction.kind.only_reads() && !self.in_batch;
        let patience = transaction.patience;
        self.transactions.insert(number, transaction);
        if requests.is_empty() {
            self.ready.push(number);
        }
        if together {
            self.core.begin_batch();
        }
        for (at, name, call) in requests {
            let tag = self.next_tag();
            let (table, key) = (name.table, name.bytes());
            let request = Request::Read { table, key: &key };
            if self.core.submit(now, tag, &request, now + patience).is_ok() {
                self.pending.insert(tag, Pending::Read(number, at, call));
                continue;
            }
            // The table was dropped meanwhile.
            shared.history.respond(now, call, Response::NotDone);
            let transaction = self.transactions.get_mut(&number).expect("inserted above");
            transaction.failed = true;
            transaction.missing -= 1;
            if transaction.missing == 0 {
                self.ready.push(number);
            }
        }
        if together {
            self.core.send_batch(now);
        }
    }

    /// Goes on with a transaction whose reads have a response.
    pub(super) fn go_on(&mut self, now: Nanos, number: u64, shared: &mut ClientContext<'_>) {
        let mut transaction = self.transactions.remove(&number).expect("it is under way");
        if transaction.failed {
            transaction.drop_parts(now, shared);
            return;
        }
        let (first, last) = transaction.tags;
        match &transaction.first {
            None if !transaction.kind.only_reads() => {
                self.commit(now, number, transaction, shared);
            }
            None if self.core.answered_at_once(first, last, transaction.objects.len()) => {
                shared.history.transact(&transaction.parts);
                handle_commit(now, &transaction, None, shared);
            }
            None => {
                // The calls that count begin with the first round, and end with the second.
                transaction.drop_parts(now, shared);
                transaction.first = Some(transaction.objects.clone());
                self.transactions.insert(number, transaction);
                self.invoke_parts(now, number, shared);
                self.read_objects(now, number, shared);
            }
            Some(first) => {
                // An absent object has no version: it may have been there between the rounds.
                let version = |(_, read): &Touched| read.flatten().map(|(version, _)| version);
                let is_same = |(one, other): (&Touched, &Touched)| {
                    version(one).is_some() && version(one) == version(other)
                };
                let same = first.iter().zip(&transaction.objects).all(is_same);
                let error = (!same).then_some(Error::TransactionConflict);
                shared.history.transact(&transaction.parts);
                handle_commit(now, &transaction, error, shared);
            }
        }
    }

    fn commit(
        &mut self,
        now: Nanos,
        number: u64,
        mut transaction: Transaction,
        shared: &mut ClientContext<'_>,
    ) {
        let tangled =
            transaction.objects.iter().any(|(name, _)| shared.history.is_tangled(now, *name));
        if tangled {
            return;
        }
        let actions = match transaction.kind {
            TransactionKind::Transfer => self.transfer(&transaction.objects),
            _ => transaction
                .objects
                .iter()
                .map(|touched| self.change(touched, shared.settings))
                .collect(),
        };
        let mut contents = Vec::new();
        for ((name, _), action) in transaction.objects.iter().zip(&actions) {
            let part = shared.history.invoke(now, self.index, *name, *action);
            transaction.parts.push(part);
            let (value, ttl) = match action {
                Action::Write { value, .. } => {
                    (value.encode(), self.ttl(*value, *name, shared.ballast.id))
                }
                _ => (Vec::new(), None),
            };
            if let Some(ttl) = ttl {
                shared.history.set_ttl(part, ttl.duration());
            }
            contents.push((name.bytes(), value, ttl));
        }
        shared.history.transact(&transaction.parts);
        let operations = transaction.objects.iter().zip(&actions).zip(&contents);
        let operations: Vec<_> = operations
            .map(|((touched, action), (key, value, ttl))| TransactionOperation {
                table: touched.0.table,
                key,
                condition: condition_of(touched),
                action: match action {
                    Action::Write { .. } => TransactionAction::Write(value, *ttl),
                    Action::Remove { .. } => TransactionAction::Remove,
                    _ => TransactionAction::Check,
                },
            })
            .collect();
        let parts = &transaction.parts;
        shared.trace.note(
            now,
            format_args!(
                "client {}: transaction {number} commits {parts:?}: {actions:?}",
                self.index
            ),
        );
        self.learn(shared);
        let tag = self.next_tag();
        let deadline = now + transaction.patience;
        match self.core.submit_transaction(now, tag, &operations, deadline) {
            Ok(()) => {
                self.transactions.insert(number, transaction);
                self.pending.insert(tag, Pending::Commit(number));
            }
            Err(error) => handle_commit(now, &transaction, Some(error), shared),
        }
    }

    /// Returns what a transaction does to an object.
    fn change(&mut self, touched: &Touched, settings: &Settings) -> Action {
        let (name, read) = touched;
        let condition = condition_of(touched);
        match self.random.below(6) {
            0 | 1 if read.is_some() => Action::Read,
            2 if *read != Some(None) => Action::Remove { condition },
            _ => {
                Action::Write { value: self.value(name.key.is_multiple_of(4), settings), condition }
            }
        }
    }

    /// Returns the actions that move an amount from the first account to the second.
    fn transfer(&mut self, accounts: &[Touched]) -> Vec<Action> {
        let amount = i64::try_from(self.random.below(100)).expect("small") - 50;
        let moved = |((_, read), amount): (&Touched, i64)| {
            let (balance, condition) = match read.flatten() {
                Some((version, Value::Number(balance))) => (balance, Condition::Version(version)),
                _ => (0, Condition::Absent),
            };
            Action::Write { value: Value::Number(balance + amount), condition }
        };
        accounts.iter().zip([-amount, amount]).map(moved).collect()
    }
}

/// Returns the condition that a transaction has for an object: it must be as it was read.
fn condition_of((_, read): &Touched) -> Condition {
    match read {
        None => Condition::None,
        Some(None) => Condition::Absent,
        Some(Some((version, _))) => Condition::Version(*version),
    }
}

/// Handles the end of a transaction: `error` says why it was not committed.
pub(super) fn handle_commit(
    now: Nanos,
    transaction: &Transaction,
    error: Option<Error>,
    shared: &mut ClientContext<'_>,
) {
    // A transaction may have read what was lost later, and the version again that it has read.
    if transaction.kind == TransactionKind::Audit && error.is_none() && !shared.history.has_lost() {
        let balance = |(_, read): &Touched| match read.flatten() {
            Some((_, Value::Number(balance))) => balance,
            _ => 0,
        };
        let sum: i64 = transaction.objects.iter().map(balance).sum();
        if sum != 0 {
            shared.nonsense.get_or_insert_with(|| {
                format!("the sum of all accounts is {sum}: {:?}", transaction.objects)
            });
        }
    }
    let failed = match &error {
        None => None,
        Some(error) if error.is_indeterminate() => Some(Response::Unknown),
        Some(
            Error::TransactionConflict
            | Error::Timeout { .. }
            | Error::Recovering { .. }
            | Error::TableDropped(_)
            | Error::MemoryFull
            | Error::DiskFull(_)
            | Error::TooFewServers { .. }
            | Error::TooManyPending(_)
            | Error::BadTransaction(_),
        ) => Some(Response::NotDone),
        Some(error) => {
            shared.nonsense.get_or_insert_with(|| format!("a transaction ended: {error}"));
            Some(Response::NotDone)
        }
    };
    for ((_, read), &number) in transaction.objects.iter().zip(&transaction.parts) {
        let done = match (shared.history.operations[number].action, read) {
            (Action::Read, Some(Some((version, value)))) => {
                Response::Found { version: *version, value: *value }
            }
            (Action::Read, _) => Response::Absent,
            _ => Response::Committed,
        };
        shared.history.respond(now, number, failed.unwrap_or(done));
    }
    shared.trace.note(
        now,
        format_args!(
            "calls {:?} receive: {:?}",
            transaction.parts,
            failed.unwrap_or(Response::Committed)
        ),
    );
}
