//! The blocking client.

use crate::batch::{BATCH_WINDOW, Batch, BatchKind, BatchResult};
use crate::core::Core;
use crate::error::Error;
use crate::keys::{Index, Keys};
use crate::operations::{
    AnswerContext, Operation, Recipient, double_sum, integer_sum, learn, nothing, number, object,
    one_index, one_table, operations, version_if_any,
};
use crate::transaction::{
    BatchResults, Commit, TRANSACTION_ATTEMPTS, Touches, Transaction, backoff,
};
use crate::types::{
    CopiedPiece, Counter, KeyPage, Object, Page, Table, TableStats, TabletChanges, list,
};
use sprat_host::random;
use sprat_key::Identity;
use sprat_net::{Idle, Locator, Locators, Mode, Nanos, Policy};
use sprat_wire::expiry::Ttl;
use sprat_wire::index::{IndexDefinition, new_index};
use sprat_wire::op::{
    Answer, ClusterSeen, Condition, CopyStep, Records, Request, ServerRecord, Status, TableOptions,
    TableRecord, WatchCursor,
};
use sprat_wire::order::RangeQuery;
use sprat_wire::tablet::Range;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The cluster to connect to, and how to wait for its answers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Locator of the coordinator; if there are several, the locators of all, separated by commas.
    pub coordinator: String,
    /// The client's own locator, for transports that bypass the kernel (`fast+dpdk`): it names the
    /// device.
    pub local: Option<String>,
    /// How long an operation may take in all, including retries.
    pub timeout: Duration,
    /// Whether an operation waits until its timeout for coordinators that refuse connections,
    /// instead of failing at once: [`Core::wait_for_coordinators`].
    pub patient: bool,
    /// How the thread that waits for answers waits: the caller's own thread in a [`Client`], the
    /// client's thread in an `AsyncClient`.
    pub waiting: Mode,
    /// The client's identity. Without an identity the client can use only a cluster that admits
    /// anyone.
    pub identity: Option<Arc<Identity>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            coordinator: "tcp:host=127.0.0.1,port=11100".into(),
            local: None,
            timeout: Duration::from_secs(10),
            patient: false,
            waiting: Mode::Adaptive,
            identity: None,
        }
    }
}

impl Options {
    /// Parses the coordinators' locators and the client's own.
    pub(crate) fn locators(&self) -> Result<(Locators, Option<Locator>), Error> {
        let endpoint = |error: sprat_net::LocatorError| Error::Endpoint(error.to_string());
        let local = self
            .local
            .as_deref()
            .map(|text| text.parse::<Locator>().map_err(endpoint))
            .transpose()?;
        Ok((self.coordinator.parse().map_err(endpoint)?, local))
    }
}

/// Names an operation submitted with [`Client::submit`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ticket(u64);

/// A copy of an answer, kept until its operation takes it.
pub(crate) struct StoredAnswer {
    status: Status,
    more: bool,
    count: u32,
    ttl_high: u16,
    number: u64,
    body: Vec<u8>,
}

impl StoredAnswer {
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        let Answer { status, more, count, ttl_high, number, body } = *answer;
        Self { status, more, count, ttl_high, number, body: body.to_vec() }
    }

    pub(crate) fn answer(&self) -> Answer<'_> {
        Answer {
            status: self.status,
            more: self.more,
            count: self.count,
            ttl_high: self.ttl_high,
            number: self.number,
            body: &self.body,
        }
    }
}

/// A client of a cluster, for one thread: each call waits on that thread for its answer.
///
/// [`connect`](Self::connect) sends nothing yet. Find a table with [`table`](Self::table) or
/// [`create_table`](Self::create_table), then read and write its objects. A call ends within the
/// [timeout](Options::timeout); until then the client sends the operation again where that is safe,
/// also to the servers that recover the tablets of a failed server. For many operations at once use
/// [`submit`](Self::submit) and [`wait`](Self::wait). The client starts no thread.
pub struct Client {
    core: Core,
    idle: Idle,
    start: Instant,
    timeout: Duration,
    tag: u64,
    /// Answers to submitted operations that the caller has not waited for yet.
    stored: BTreeMap<u64, Result<StoredAnswer, Error>>,
    coordinator: Rc<str>,
}

impl Client {
    /// Makes a client of a cluster. Sends nothing yet: if the coordinator cannot be reached, the
    /// first operation reports it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] for the causes of [`Core::new`], when a locator is invalid, or when the
    /// system provides nothing to wait on.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let (coordinator, local) = options.locators()?;
        let seed = random();
        let mut core = Core::new(&coordinator, local, options.identity.as_ref(), seed)?;
        if options.patient {
            core.wait_for_coordinators();
        }
        let idle = Idle::new(Policy::of(options.waiting), Nanos(0)).map_err(|cause| {
            Error::Endpoint(format!("cannot make an eventfd to wait on: {cause}"))
        })?;
        Ok(Self {
            core,
            idle,
            start: Instant::now(),
            timeout: options.timeout,
            tag: 0,
            stored: BTreeMap::new(),
            coordinator: options.coordinator.as_str().into(),
        })
    }

    /// Returns the time by the client's clock, in which the methods of [`core_mut`](Self::core_mut)
    /// expect `now`.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Sets how long an operation may take in all, from the next one on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Submits an operation without waiting for it; see [`wait`](Self::wait). It is sent at once.
    ///
    /// # Errors
    /// Errors that are found before anything is sent, such as [`Error::TooManyPending`], and
    /// [`Error::Endpoint`] when a driver fails.
    pub fn submit(&mut self, request: &Request<'_>) -> Result<Ticket, Error> {
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit(now, tag, request, now + self.timeout)?;
        self.poll(now, None)?;
        Ok(Ticket(tag))
    }

    /// Submits operations without waiting for them, as [`submit`](Self::submit) does each; those on
    /// single objects share a request to each server. [`Batch`] is more convenient.
    ///
    /// # Errors
    /// Each result has the errors of [`submit`](Self::submit).
    pub fn submit_together(&mut self, requests: &[Request<'_>]) -> Vec<Result<Ticket, Error>> {
        let now = self.now();
        self.core.begin_batch();
        let submitted = requests.iter().map(|request| {
            let tag = self.next_tag();
            self.core.submit(now, tag, request, now + self.timeout).map(|()| Ticket(tag))
        });
        let submitted = submitted.collect();
        self.core.send_batch(now);
        self.core.flush();
        submitted
    }

    /// Waits for the answer to a submitted operation and passes it to `take`. A status other than
    /// `Ok` and `NotFound` is an error.
    ///
    /// # Errors
    /// [`Error`] when the operation failed, or no answer to it arrives in time.
    ///
    /// # Panics
    /// When the ticket was waited for before.
    pub fn wait<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        let server = Rc::clone(&self.coordinator);
        let context = AnswerContext { server: &server, table: 0, name: "", any_status: false };
        self.wait_any_status(ticket, |answer| {
            context.parse(Ok(*answer), |answer| Some(take(answer)))
        })?
    }

    /// Like [`wait`](Self::wait), but passes an answer of any status to `take`.
    ///
    /// # Errors
    /// [`Error`] when no answer to the operation arrives in time, or none can.
    ///
    /// # Panics
    /// When the ticket was waited for before.
    pub fn wait_any_status<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        loop {
            if let Some(stored) = self.stored.remove(&ticket.0) {
                return Ok(take(&stored?.answer()));
            }
            assert!(self.core.pending() > 0, "a ticket is waited for once");
            self.iterate(None)?;
        }
    }

    /// Executes the operations of a batch, and returns their results in the order of the batch.
    ///
    /// Each operation has the result that it would have alone: an error of one operation does not
    /// concern the others. The operations are sent [`BATCH_WINDOW`] at a time.
    pub fn batch(&mut self, batch: &Batch<'_>) -> Vec<Result<BatchResult, Error>> {
        let mut results = Vec::with_capacity(batch.len());
        for requests in batch.requests.chunks(BATCH_WINDOW) {
            let submitted = self.submit_together(requests);
            let server = Rc::clone(&self.coordinator);
            results.extend(requests.iter().zip(submitted).map(|(request, submitted)| {
                let table = request.table().unwrap_or_default();
                let context = AnswerContext { server: &server, table, name: "", any_status: false };
                self.wait_any_status(submitted?, |answer| {
                    context.parse(Ok(*answer), |answer| BatchKind::of(request).result(answer))
                })?
            }));
        }
        results
    }

    /// Executes a batch; returns also whether one server executed all of it at one moment.
    pub(crate) fn batch_at_once(&mut self, batch: &Batch<'_>) -> BatchResults {
        let before = self.tag;
        let results = self.batch(batch);
        let at_once = self.core.answered_at_once(before + 1, self.tag, batch.len());
        (results, at_once)
    }

    /// Executes a transaction: `body` reads and changes objects of any tables through the
    /// [`Transaction`] that it is given, and then all changes take effect together, or none.
    /// Returns what `body` returns.
    ///
    /// Transactions are strictly serializable: each takes effect at one moment between the call and
    /// its return, and what it has read was so at that moment. If another client has changed an
    /// object that `body` has read, or its transaction locks an object of this one, `body` is
    /// called again: at most [`TRANSACTION_ATTEMPTS`] times, and not after the client's timeout. So
    /// `body` must have no effects besides. If `body` fails, nothing is changed. It may then have
    /// seen objects that were not so at one moment.
    ///
    /// A transaction has at most [`MAX_TRANSACTION`](sprat_wire::transaction::MAX_TRANSACTION)
    /// objects and [`MAX_TRANSACTION_BYTES`](sprat_wire::transaction::MAX_TRANSACTION_BYTES) of
    /// keys and values. One that only reads, and finds all objects, locks nothing.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), sprat_client::Error> {
    /// # use sprat_client::{Client, Error, Options};
    /// # let mut client = Client::connect(&Options::default())?;
    /// let seats = client.table("seats")?;
    /// let booked = client.transact(|transaction| {
    ///     if transaction.get(seats, b"12A")?.is_some() {
    ///         return Ok(false);
    ///     }
    ///     transaction.put(seats, b"12A", b"alice");
    ///     transaction.put(seats, b"12B", b"bob");
    ///     Ok::<_, Error>(true)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` fails with; [`Error::TransactionConflict`] when other clients changed the
    /// objects during every attempt; [`Error::BadTransaction`] when a limit is exceeded; other
    /// [`Error`]s as for [`put`](Self::put). The transaction may have been executed if
    /// [`Error::is_indeterminate`] says so.
    pub fn transact<T, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let deadline = self.now() + self.timeout;
        let mut failures = 0;
        loop {
            let mut transaction = Transaction { client: self, touches: Touches::default() };
            let result = body(&mut transaction)?;
            let touches = transaction.touches;
            match self.commit(&touches, deadline) {
                Ok(()) => return Ok(result),
                Err(Error::TransactionConflict) if failures + 1 < TRANSACTION_ATTEMPTS => {}
                // The last of several attempts had no time left.
                Err(Error::Timeout { .. }) if failures > 0 => {
                    return Err(Error::TransactionConflict.into());
                }
                Err(error) => return Err(error.into()),
            }
            failures += 1;
            let again_at = self.now() + backoff(failures);
            if again_at >= deadline {
                return Err(Error::TransactionConflict.into());
            }
            self.poll_until(again_at, |_| false)?;
        }
    }

    fn commit(&mut self, touches: &Touches, deadline: Nanos) -> Result<(), Error> {
        match touches.commit() {
            Commit::Done => Ok(()),
            Commit::Validate(batch) => touches.is_unchanged(self.batch(&batch)),
            Commit::Execute(operations) => {
                let (now, tag) = (self.now(), self.next_tag());
                self.core.submit_transaction(now, tag, &operations, deadline)?;
                self.core.flush();
                self.wait(Ticket(tag), |_| ())
            }
        }
    }

    /// Waits until the servers have acknowledged the decisions of this client's transactions, or
    /// until the client's timeout. Call it before the client is dropped: otherwise the servers find
    /// out among themselves after a second, and until then the objects are locked, unless one
    /// server has all of them.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a driver fails.
    pub fn settle(&mut self) -> Result<(), Error> {
        let deadline = self.now() + self.timeout;
        self.poll_until(deadline, |core| core.transactions() == 0)
    }

    /// Polls until a time, or until something is done.
    fn poll_until(&mut self, until: Nanos, done: impl Fn(&Core) -> bool) -> Result<(), Error> {
        while !done(&self.core) {
            let now = self.now();
            if now >= until {
                break;
            }
            if !self.poll(now, None)? {
                let due = || (self.core.next_deadline().min(until), self.core.sources());
                let rested = self.idle.rest(now, due);
                rested.map_err(|cause| Error::Endpoint(format!("cannot wait: {cause}")))?;
            }
        }
        Ok(())
    }

    /// Turns the client into its [`Core`], for load generators. The caller must have waited for all
    /// submitted operations.
    #[must_use]
    pub fn into_core(self) -> Core {
        self.core
    }

    /// Returns the client's [`Core`]. If the caller submits operations to the core, the caller must
    /// also take their answers from the core's own [`poll`](Core::poll).
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Executes an operation on the caller's thread; the answer is parsed in the receive buffer.
    fn execute<A, T>(
        &mut self,
        operation: Operation<
            '_,
            impl FnOnce(&Answer<'_>) -> Option<A>,
            impl FnOnce(&mut Core, A) -> Result<T, Error>,
        >,
    ) -> Result<T, Error> {
        let Operation { request, recipient, name, any_status, parse, finish } = operation;
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit_for(now, tag, &recipient, &request, now + self.timeout)?;
        self.core.flush();
        let (server, table) = (Rc::clone(&self.coordinator), request.table().unwrap_or_default());
        let context = AnswerContext { server: &server, table, name, any_status };
        let (mut parse, mut result) = (Some(parse), None);
        while parse.is_some() {
            self.iterate(Some((tag, &mut |answer: Result<Answer<'_>, Error>| {
                let parse = parse.take().expect("an operation has one answer");
                result = Some(context.parse(answer, parse));
            })))?;
        }
        finish(&mut self.core, result.expect("the loop ended")?)
    }

    /// Polls once, and rests if there was nothing to do; in the mode that sleeps at once it rests
    /// first.
    fn iterate(&mut self, one: Option<Awaited<'_>>) -> Result<(), Error> {
        let mut now = self.now();
        let rest_first = self.idle.sleeps_at_once(now);
        if rest_first {
            self.rest(now)?;
            now = self.now();
        }
        if self.poll(now, one)? {
            self.idle.worked(now);
        } else if !rest_first {
            self.rest(now)?;
        }
        Ok(())
    }

    /// Waits for a frame or for something to become due.
    fn rest(&mut self, now: Nanos) -> Result<(), Error> {
        // Without a source to sleep on, the thread sleeps until an operation is to be sent again.
        let rested = self.idle.rest(now, || (self.core.next_deadline(), self.core.sources()));
        rested.map(drop).map_err(|cause| Error::Endpoint(format!("cannot wait: {cause}")))
    }

    /// Polls once: passes the answer to `one` to its closure, and stores the others.
    fn poll(&mut self, now: Nanos, mut one: Option<Awaited<'_>>) -> Result<bool, Error> {
        let stored = &mut self.stored;
        self.core.poll(now, &mut |tag, answer| match &mut one {
            Some((wanted, take)) if *wanted == tag => take(answer),
            _ => {
                stored.insert(tag, answer.map(|answer| StoredAnswer::of(&answer)));
            }
        })
    }
}

/// The tag of the answer being waited for, and the closure that takes it.
type Awaited<'a> = (u64, &'a mut dyn FnMut(Result<Answer<'_>, Error>));

macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $output:ty {
        $operation:expr
    })*) => {
        impl Client {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $($argument: $type),*) -> Result<$output, Error> {
                    self.execute($operation)
                }
            )*
        }
    };
}
operations!(methods);
