//! The asynchronous client: futures that a thread completes, which waits for the answers.

use crate::batch::{BATCH_WINDOW, Batch, BatchKind, BatchResult};
use crate::blocking::{Options, StoredAnswer};
use crate::core::{Core, check};
use crate::error::Error;
use crate::keys::{Index, Keys};
use crate::operations::{
    AnswerContext, Operation, Recipient, double_sum, integer_sum, learn, nothing, number, object,
    one_index, one_table, operations, version_if_any,
};
use crate::transaction::{
    AsyncTransaction, BatchResults, Commit, TRANSACTION_ATTEMPTS, Touches, backoff,
};
use crate::types::{
    CopiedPiece, Counter, KeyPage, Object, Page, Table, TableStats, TabletChanges, list,
};
use sprat_host::{lock, random};
use sprat_net::{Idle, Nanos, Policy, Waker as WakeHandle};
use sprat_wire::expiry::Ttl;
use sprat_wire::index::{IndexDefinition, new_index};
use sprat_wire::op::{
    Answer, ClusterSeen, Condition, CopyStep, Records, Request, ServerRecord, Status, TableOptions,
    TableRecord, WatchCursor,
};
use sprat_wire::order::RangeQuery;
use sprat_wire::tablet::Range;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The largest number of operations that are handed over to the thread and not begun yet. A further
/// operation fails with `Error::TooManyPending`.
const MAX_QUEUED: usize = 4096;

/// Completes the operation with this tag with its answer.
type Finish = Box<dyn FnOnce(&mut Core, u64, Result<Answer<'_>, Error>) + Send>;

struct Submission {
    work: Work,
    finish: Finish,
}

/// What the thread is to do.
enum Work {
    /// Submit a request to its recipient.
    Request(Vec<u8>, Recipient),
    /// Commit a transaction.
    Commit(Arc<Touches>),
    /// Wait.
    Wait(Duration),
}

impl Submission {
    fn new(request: &Request<'_>, recipient: Recipient, finish: Finish) -> Self {
        let request = request.to_bytes(None);
        Self { work: Work::Request(request, recipient), finish }
    }
}

/// The results of a batch, as far as they have arrived.
struct BatchEnd<T> {
    results: Vec<Option<Result<BatchResult, Error>>>,
    left: usize,
    /// The lowest and the highest tag of the operations that have ended.
    tags: (u64, u64),
    /// Makes what the caller gets.
    finish: fn(BatchResults) -> T,
    end: Completer<T>,
}

/// A client of a cluster that can be cloned and shared between threads.
///
/// Each method submits an operation and returns a [`Call`], a future for any executor. One thread,
/// shared by all clones, polls the network and wakes the futures; it ends when the last clone is
/// dropped and the operations in progress have ended, or when a driver fails. An operation begins
/// when its method is called, not when the future is first polled.
#[derive(Clone)]
pub struct AsyncClient {
    submissions: SyncSender<Vec<Submission>>,
    wake_handle: WakeHandle,
    /// The coordinator's locator, for errors.
    coordinator: Arc<str>,
}

/// An operation in progress; a future of its result. Dropping it does not cancel the operation.
pub struct Call<T> {
    state: Arc<Mutex<CallState<T>>>,
}

impl<T> Call<T> {
    /// A call that failed before it began.
    fn ended(error: Error) -> Self {
        Self { state: Arc::new(Mutex::new(CallState { result: Some(Err(error)), waker: None })) }
    }

    /// Waits for the result on this thread, for callers that have no executor.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait(self) -> Result<T, Error> {
        let waker = thread_waker();
        let mut context = Context::from_waker(&waker);
        let mut call = pin!(self);
        loop {
            match call.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

/// Returns a waker that unparks this thread, for threads that poll a [`Call`] without an executor.
#[must_use]
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(WaitingThread(thread::current())))
}

/// A thread that waits for a call.
struct WaitingThread(Thread);

impl Wake for WaitingThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct CallState<T> {
    result: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.state);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The thread's end of a call. When dropped without an answer, because the thread ended, it fails
/// the call, so that its waiter is woken.
struct Completer<T> {
    state: Arc<Mutex<CallState<T>>>,
    completed: bool,
}

impl<T> Completer<T> {
    fn complete(&mut self, result: Result<T, Error>) {
        self.completed = true;
        let mut state = lock(&self.state);
        state.result = Some(result);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if !self.completed {
            self.complete(Err(Error::Endpoint("the client's thread has ended".into())));
        }
    }
}

impl<T> BatchEnd<T> {
    /// Notes a result. `ended` is the operation's tag, and the core that has just polled its
    /// answer; `None` if it was not submitted.
    fn set(
        &mut self,
        at: usize,
        result: Result<BatchResult, Error>,
        ended: Option<(u64, &mut Core)>,
    ) {
        self.results[at] = Some(result);
        self.left -= 1;
        let mut at_once = false;
        if let Some((tag, core)) = ended {
            self.tags = (self.tags.0.min(tag), self.tags.1.max(tag));
            let (first, last) = self.tags;
            at_once = self.left == 0 && core.answered_at_once(first, last, self.results.len());
        }
        if self.left == 0 {
            let results = std::mem::take(&mut self.results).into_iter().flatten().collect();
            self.end.complete(Ok((self.finish)((results, at_once))));
        }
    }
}

impl AsyncClient {
    /// Connects to a cluster and starts the thread.
    ///
    /// # Errors
    /// [`Error::Endpoint`] for the causes of [`Core::new`], when a locator is invalid, or when the
    /// thread cannot be started.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let (coordinator, local) = options.locators()?;
        let (submissions, inbox) = sync_channel(MAX_QUEUED);
        let (report, opened) = sync_channel(1);
        let named = options.coordinator.as_str();
        let options = options.clone();
        let run = move || {
            let seed = random();
            let opened = Core::new(&coordinator, local, options.identity.as_ref(), seed).and_then(
                |mut core| {
                    if options.patient {
                        core.wait_for_coordinators();
                    }
                    let idle = Idle::new(Policy::of(options.waiting), Nanos(0));
                    Ok((
                        core,
                        idle.map_err(|cause| {
                            Error::Endpoint(format!("cannot make an eventfd: {cause}"))
                        })?,
                    ))
                },
            );
            match opened {
                Ok((core, idle)) => {
                    let wake_handle = idle.waker();
                    if report.send(Ok(wake_handle)).is_ok() {
                        Runner {
                            core,
                            idle,
                            inbox,
                            timeout: options.timeout,
                            in_progress: HashMap::new(),
                            waits: BTreeSet::new(),
                        }
                        .run();
                    }
                }
                Err(error) => drop(report.send(Err(error))),
            }
        };
        thread::Builder::new().name("sprat-client".into()).spawn(run).map_err(|cause| {
            Error::Endpoint(format!("cannot start the client's thread: {cause}"))
        })?;
        let wake_handle = opened
            .recv()
            .map_err(|_| Error::Endpoint("the client's thread ended at once".into()))??;
        Ok(Self { submissions, wake_handle, coordinator: named.into() })
    }

    /// Hands an operation to the thread. If that is not possible, returns a call that has failed.
    fn execute<A, T: Send + 'static>(
        &self,
        operation: Operation<
            '_,
            impl FnOnce(&Answer<'_>) -> Option<A> + Send + 'static,
            impl FnOnce(&mut Core, A) -> Result<T, Error> + Send + 'static,
        >,
    ) -> Call<T> {
        let Operation { request, recipient, name, any_status, parse, finish } = operation;
        if let Err(error) = check(&request) {
            return Call::ended(error);
        }
        let state = Arc::new(Mutex::new(CallState { result: None, waker: None }));
        let mut end = Completer { state: Arc::clone(&state), completed: false };
        let (server, table) = (Arc::clone(&self.coordinator), request.table().unwrap_or_default());
        let name = name.to_owned();
        let finish: Finish = Box::new(move |core, _, answer| {
            let context = AnswerContext { server: &server, table, name: &name, any_status };
            let parsed = context.parse(answer, parse);
            end.complete(parsed.and_then(|parsed| finish(core, parsed)));
        });
        self.hand_over(vec![Submission::new(&request, recipient, finish)], state)
    }

    fn hand_over<T>(
        &self,
        submissions: Vec<Submission>,
        state: Arc<Mutex<CallState<T>>>,
    ) -> Call<T> {
        match self.submissions.try_send(submissions) {
            Ok(()) => self.wake_handle.ring(),
            Err(TrySendError::Full(_)) => return Call::ended(Error::TooManyPending(MAX_QUEUED)),
            Err(TrySendError::Disconnected(_)) => {} // dropping `finish` completes the call
        }
        Call { state }
    }

    /// Executes the operations of a batch; the results are in the order of the batch.
    ///
    /// Each operation has the result that it would have alone: an error of one operation does not
    /// concern the others. A batch of more than [`BATCH_WINDOW`](crate::BATCH_WINDOW) operations
    /// fails with [`Error::TooManyPending`].
    pub fn batch(&self, batch: &Batch<'_>) -> Call<Vec<Result<BatchResult, Error>>> {
        self.begin_batch(batch, |(results, _)| results)
    }

    /// Executes a batch; returns also whether one server executed all of it at one moment.
    pub(crate) fn batch_at_once(&self, batch: &Batch<'_>) -> Call<BatchResults> {
        self.begin_batch(batch, |results| results)
    }

    fn begin_batch<T: Send + 'static>(
        &self,
        batch: &Batch<'_>,
        finish: fn(BatchResults) -> T,
    ) -> Call<T> {
        if batch.len() > BATCH_WINDOW {
            return Call::ended(Error::TooManyPending(BATCH_WINDOW));
        }
        let state = Arc::new(Mutex::new(CallState { result: None, waker: None }));
        let mut end = Completer { state: Arc::clone(&state), completed: false };
        if batch.is_empty() {
            end.complete(Ok(finish((Vec::new(), true))));
            return Call { state };
        }
        let results = batch.requests.iter().map(|_| None).collect();
        let tags = (u64::MAX, 0);
        let shared = BatchEnd { results, left: batch.len(), tags, finish, end };
        let shared = Arc::new(Mutex::new(shared));
        let submission = |(at, request): (usize, &Request<'_>)| {
            if let Err(error) = check(request) {
                lock(&shared).set(at, Err(error), None);
                return None;
            }
            let (shared, server) = (Arc::clone(&shared), Arc::clone(&self.coordinator));
            let (table, kind) = (request.table().unwrap_or_default(), BatchKind::of(request));
            let finish: Finish = Box::new(move |core, tag, answer| {
                let context = AnswerContext { server: &server, table, name: "", any_status: false };
                let result = context.parse(answer, |answer| kind.result(answer));
                lock(&shared).set(at, result, Some((tag, core)));
            });
            Some(Submission::new(request, Recipient::ByRequest, finish))
        };
        let submissions = batch.requests.iter().enumerate().filter_map(submission).collect();
        self.hand_over(submissions, state)
    }
}

impl AsyncClient {
    /// Executes a transaction, like [`Client::transact`](crate::Client::transact): `body` may be
    /// called several times, and what it changes takes effect together.
    ///
    /// # Errors
    /// As [`Client::transact`](crate::Client::transact).
    pub async fn transact<T, E: From<Error>>(
        &self,
        mut body: impl AsyncFnMut(&mut AsyncTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut failures = 0;
        loop {
            let touches = Touches::default();
            let mut transaction = AsyncTransaction { client: self.clone(), touches };
            let result = body(&mut transaction).await?;
            match self.commit(transaction.touches).await {
                Ok(()) => return Ok(result),
                Err(Error::TransactionConflict) if failures + 1 < TRANSACTION_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
            failures += 1;
            self.begin(Work::Wait(backoff(failures))).await?;
        }
    }

    async fn commit(&self, touches: Touches) -> Result<(), Error> {
        let touches = Arc::new(touches);
        match touches.commit() {
            Commit::Done => Ok(()),
            Commit::Validate(batch) => touches.is_unchanged(self.batch(&batch).await?),
            Commit::Execute(_) => self.begin(Work::Commit(Arc::clone(&touches))).await,
        }
    }

    /// Hands work to the thread whose answer holds nothing.
    fn begin(&self, work: Work) -> Call<()> {
        let state = Arc::new(Mutex::new(CallState { result: None, waker: None }));
        let mut end = Completer { state: Arc::clone(&state), completed: false };
        let server = Arc::clone(&self.coordinator);
        let finish: Finish = Box::new(move |_, _, answer| {
            let context = AnswerContext { server: &server, table: 0, name: "", any_status: false };
            end.complete(context.parse(answer, nothing));
        });
        self.hand_over(vec![Submission { work, finish }], state)
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $output:ty {
        $operation:expr
    })*) => {
        impl AsyncClient {
            $(
                $(#[$doc])*
                pub fn $name(&self, $($argument: $type),*) -> Call<$output> {
                    self.execute($operation)
                }
            )*
        }
    };
}
operations!(methods);

/// The state of the client's thread.
struct Runner {
    core: Core,
    idle: Idle,
    inbox: Receiver<Vec<Submission>>,
    timeout: Duration,
    in_progress: HashMap<u64, Finish>,
    /// Waits, by the times at which they end and their tags.
    waits: BTreeSet<(Nanos, u64)>,
}

/// How long the thread goes on, once all clients were dropped, for the servers to acknowledge the
/// decisions of transactions.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the thread sleeps at most before it checks whether all clients were dropped.
const DISCONNECT_CHECK: Duration = Duration::from_millis(100);

impl Runner {
    fn run(mut self) {
        let start = Instant::now();
        let (mut tag, mut connected) = (0, true);
        let mut settle_by = Nanos(0);
        while connected
            || !self.in_progress.is_empty()
            || self.core.transactions() > 0 && Nanos(0) + start.elapsed() < settle_by
        {
            let now = Nanos(0) + start.elapsed();
            if connected || !self.in_progress.is_empty() {
                settle_by = now + SETTLE_TIMEOUT;
            }
            let mut worked = false;
            loop {
                match self.inbox.try_recv() {
                    Ok(submissions) => {
                        worked = true;
                        let together = submissions.len() > 1;
                        if together {
                            self.core.begin_batch();
                        }
                        for submission in submissions {
                            tag += 1;
                            self.begin(now, tag, submission);
                        }
                        if together {
                            self.core.send_batch(now);
                        }
                    }
                    Err(error) => {
                        connected = error != std::sync::mpsc::TryRecvError::Disconnected;
                        break;
                    }
                }
            }
            let mut ended = Vec::new();
            while let Some(&(at, tag)) = self.waits.first().filter(|(at, _)| *at <= now) {
                self.waits.remove(&(at, tag));
                let done = Answer {
                    status: Status::Ok,
                    more: false,
                    count: 0,
                    ttl_high: 0,
                    number: 0,
                    body: &[],
                };
                ended.push((tag, Ok(StoredAnswer::of(&done))));
            }
            let polled = self.core.poll(now, &mut |tag, answer| {
                ended.push((tag, answer.map(|answer| StoredAnswer::of(&answer))));
            });
            for (tag, answer) in ended {
                worked = true;
                let Some(finish) = self.in_progress.remove(&tag) else { continue };
                let answer = answer.as_ref().map(StoredAnswer::answer);
                finish(&mut self.core, tag, answer.map_err(Error::clone));
            }
            if let Err(error) = polled {
                // Without a working driver no answer can arrive.
                for (tag, finish) in self.in_progress.drain() {
                    finish(&mut self.core, tag, Err(error.clone()));
                }
                return;
            }
            if worked {
                self.idle.worked(now);
                continue;
            }
            let deadline = self.core.next_deadline().min(now + DISCONNECT_CHECK);
            let deadline = self.waits.first().map_or(deadline, |(at, _)| deadline.min(*at));
            if self.idle.rest(now, || (deadline, self.core.sources())).is_err() {
                return;
            }
        }
    }

    fn begin(&mut self, now: Nanos, tag: u64, submission: Submission) {
        let deadline = now + self.timeout;
        let begun = match &submission.work {
            Work::Request(request, recipient) => match Request::parse(request) {
                Ok(request) => self.core.submit_for(now, tag, recipient, &request, deadline),
                Err(malformed) => {
                    let reason = malformed.to_string();
                    Err(Error::Refused { server: "this client".into(), reason })
                }
            },
            Work::Commit(touches) => match touches.commit() {
                Commit::Execute(operations) => {
                    self.core.submit_transaction(now, tag, &operations, deadline)
                }
                Commit::Done | Commit::Validate(_) => unreachable!("handed over to be executed"),
            },
            Work::Wait(time) => {
                self.waits.insert((now + *time, tag));
                Ok(())
            }
        };
        match begun {
            Ok(()) => drop(self.in_progress.insert(tag, submission.finish)),
            Err(error) => (submission.finish)(&mut self.core, tag, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Woken(std::sync::atomic::AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_fails_when_the_thread_ends() {
        let state = Arc::new(Mutex::new(CallState { result: None, waker: None }));
        let end: Completer<u64> = Completer { state: Arc::clone(&state), completed: false };
        let mut call = Call { state };
        let woken = Arc::new(Woken(false.into()));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(end);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        let Poll::Ready(Err(Error::Endpoint(why))) =
            Pin::new(&mut call).poll(&mut Context::from_waker(&waker))
        else {
            panic!("it has ended")
        };
        assert!(why.contains("has ended"), "{why}");
    }
}
