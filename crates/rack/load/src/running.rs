//! A load while it runs, and when it has finished.

use crate::acknowledged::{AcknowledgedWrites, Verification};
use crate::cassandra::Cassandra;
use crate::dispatch::dispatch;
use crate::failures::Failures;
use crate::load::{Load, LoadError};
use crate::operations::Operations;
use crate::report::{LoadReport, missed};
use crate::schedule::Schedule;
use crate::target::{Answer, Failure, LoadTarget};
use crate::verify;
use crate::windows::{Completion, Window, Windows};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};

/// Limit on the time for which a stopped load waits for outstanding operations.
pub const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How much longer than the timeout [`RunningLoad::finish`] waits for outstanding operations.
const GRACE: Duration = Duration::from_secs(1);

/// Time from the setup to the first operation, in which threads start.
const LEAD: Duration = Duration::from_millis(20);

/// Number of threads that send and receive.
const WORKERS: usize = 2;

/// Interval between checks for the end.
const LOOK: Duration = Duration::from_millis(2);

/// How long the runtime may take to shut down.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// A load that runs. [`RunningLoad::start`] connects and starts it, [`RunningLoad::progress`]
/// reports on it meanwhile, and [`RunningLoad::finish`] waits for the end and gives the report. One
/// thread starts operations when they are due; two more send and receive. Dropping a `RunningLoad`
/// stops the load without a report.
#[derive(Debug)]
pub struct RunningLoad<T: LoadTarget = Cassandra> {
    shared: Arc<Shared<T>>,
    dispatcher: Option<JoinHandle<()>>,
    threads: Option<Threads>,
    timeout: Duration,
}

/// The state of a running load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since the start of the load.
    pub elapsed: Duration,
    /// Duration of the schedule.
    pub length: Duration,
    /// Operations scheduled so far.
    pub scheduled: u64,
    /// Operations that were not sent, because too many were outstanding.
    pub not_sent: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Outstanding operations.
    pub outstanding: usize,
    /// The last window that is over, with the results that it has so far. `None` while the first
    /// window runs.
    pub last: Option<Window>,
}

/// A load that has ended: its report, and the acknowledged writes that [`FinishedLoad::verify`]
/// looks up.
#[derive(Debug)]
pub struct FinishedLoad<T: LoadTarget = Cassandra> {
    /// The result.
    pub report: LoadReport,
    shared: Arc<Shared<T>>,
    threads: Threads,
}

/// The state that the threads of a load share.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    pub(crate) target: T,
    pub(crate) begin: Instant,
    pub(crate) length: Duration,
    pub(crate) most: usize,
    pub(crate) outstanding: AtomicUsize,
    pub(crate) sent: AtomicU64,
    pub(crate) not_sent: AtomicU64,
    pub(crate) stop: AtomicBool,
    pub(crate) acknowledged: Option<AcknowledgedWrites>,
    window: u64,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    windows: Windows,
    failures: Failures,
    found_nothing: u64,
    /// When the schedule ended, in ns; `u64::MAX` until that is known.
    scheduled_until: u64,
    /// Whether the load has ended, so that further results are ignored.
    over: bool,
}

#[derive(Debug)]
struct Threads(Option<Runtime>);

impl RunningLoad<Cassandra> {
    /// Connects to the cluster, creates missing tables, and starts the load.
    ///
    /// # Errors
    /// A value of the load is invalid, threads cannot be started, or no contact can be reached; the
    /// cluster lacks the datacenter or enough nodes; the keyspace exists with another replication;
    /// or the cluster refuses a statement or does not answer in 90 seconds.
    pub fn start(load: Load) -> Result<Self, LoadError> {
        load.check()?;
        let threads = Threads::start()?;
        let target = threads.get().block_on(Cassandra::connect(&load))?;
        Self::begin(load, target, threads)
    }
}

impl<T: LoadTarget> RunningLoad<T> {
    /// Starts a load on a target that takes Cassandra's place.
    ///
    /// # Errors
    /// [`LoadError::Value`] if a value of the load is invalid, and [`LoadError::Threads`] if
    /// threads cannot be started.
    pub fn start_on(load: Load, target: T) -> Result<Self, LoadError> {
        load.check()?;
        Self::begin(load, target, Threads::start()?)
    }

    fn begin(load: Load, target: T, threads: Threads) -> Result<Self, LoadError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = u64::try_from(since.as_micros()).unwrap_or(0);
        let keys = match load.workload {
            crate::Workload::KeyValue { keys } if load.remember => Some(keys),
            _ => None,
        };
        let (schedule, operations) =
            (Schedule::new(&load), Operations::new(&load, base, target.rows()));
        let windows = Windows::new(load.window, load.duration());
        let failures = Failures::default();
        let shared = Arc::new(Shared {
            target,
            begin: Instant::now() + LEAD,
            length: load.duration(),
            most: load.outstanding,
            outstanding: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            not_sent: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            acknowledged: keys.map(|keys| AcknowledgedWrites::new(base, keys)),
            window: u64::try_from(load.window.as_nanos()).expect("an hour at most"),
            record: Mutex::new(Record {
                windows,
                failures,
                found_nothing: 0,
                scheduled_until: u64::MAX,
                over: false,
            }),
        });
        let (its, handle) = (Arc::clone(&shared), threads.get().handle().clone());
        let dispatcher = std::thread::Builder::new().name("sprat-load".to_owned());
        let dispatcher = dispatcher.spawn(move || dispatch(&its, schedule, operations, &handle))?;
        Ok(Self {
            shared,
            dispatcher: Some(dispatcher),
            threads: Some(threads),
            timeout: load.timeout,
        })
    }

    /// Returns the present state of the load.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let shared = &*self.shared;
        let elapsed = Instant::now().saturating_duration_since(shared.begin);
        let record = shared.lock();
        let (done, failed) = record.windows.ended();
        let over = shared.now().min(u64::try_from(shared.length.as_nanos()).unwrap_or(u64::MAX))
            / shared.window;
        let last = usize::try_from(over).ok().and_then(|over| over.checked_sub(1));
        let last = last.map(|window| record.windows.window(window, record.scheduled_until));
        drop(record);
        let not_sent = shared.not_sent.load(Ordering::Relaxed);
        Progress {
            elapsed,
            length: shared.length,
            scheduled: shared.sent.load(Ordering::Relaxed) + not_sent,
            not_sent,
            done,
            failed,
            outstanding: shared.outstanding.load(Ordering::Relaxed),
            last,
        }
    }

    /// Stops the schedule. [`finish`](Self::finish) then waits for outstanding operations at most
    /// for [`STOP_PATIENCE`].
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether all operations have been sent and answered, so that [`finish`](Self::finish)
    /// does not wait.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let dispatched = self.dispatcher.as_ref().is_none_or(JoinHandle::is_finished);
        dispatched && self.shared.outstanding.load(Ordering::Acquire) == 0
    }

    /// Waits for the end of the schedule and then for outstanding operations: for the load's
    /// timeout and a second, but at most [`STOP_PATIENCE`] after [`stop`](Self::stop). Operations
    /// that have no answer by then count as failed.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller's thread, which waits here and does nothing else"
    )]
    pub fn finish(mut self) -> FinishedLoad<T> {
        let dispatcher = self.dispatcher.take().expect("it is taken here and when it is dropped");
        while !dispatcher.is_finished() {
            std::thread::sleep(LOOK);
        }
        dispatcher.join().expect("it does not panic");
        let patience = self.timeout + GRACE;
        let dispatched = Instant::now();
        let patient = |shared: &Shared<T>| match shared.stop.load(Ordering::Relaxed) {
            true => patience.min(STOP_PATIENCE),
            false => patience,
        };
        while self.shared.outstanding.load(Ordering::Acquire) > 0
            && dispatched.elapsed() < patient(&self.shared)
        {
            std::thread::sleep(LOOK);
        }
        let report = self.shared.report();
        let threads = self.threads.take().expect("they are taken here only");
        FinishedLoad { report, shared: Arc::clone(&self.shared), threads }
    }
}

impl<T: LoadTarget> Drop for RunningLoad<T> {
    fn drop(&mut self) {
        self.stop();
        if let Some(dispatcher) = self.dispatcher.take() {
            let _ = dispatcher.join();
        }
    }
}

impl<T: LoadTarget> FinishedLoad<T> {
    /// Reads every key, and reports which acknowledged writes are lost. May be called repeatedly.
    ///
    /// # Errors
    /// [`LoadError::NotRemembered`] unless the load had `remember`; [`LoadError::Unread`] if more
    /// than 1,000 keys, or all keys, cannot be read in three tries each.
    pub fn verify(&self) -> Result<Verification, LoadError> {
        self.threads.get().block_on(verify::verify(&self.shared))
    }
}

impl<T> Shared<T> {
    /// Returns the present time, in ns since the start of the load.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(Instant::now().saturating_duration_since(self.begin).as_nanos())
            .unwrap_or(u64::MAX)
    }

    pub(crate) fn window_of(&self, offset: u64) -> usize {
        usize::try_from(offset / self.window).unwrap_or(usize::MAX)
    }

    pub(crate) fn dispatched(&self, window: usize, sent: u64, not_sent: u64, next: usize) {
        self.lock().windows.dispatched(window, sent, not_sent, next);
    }

    pub(crate) fn end_schedule(&self, until: u64) {
        self.lock().scheduled_until = until;
    }

    pub(crate) fn record(
        &self,
        intended: u64,
        sent: u64,
        ended: u64,
        result: Result<Answer, Failure>,
    ) {
        let mut record = self.lock();
        if record.over {
            return;
        }
        record.windows.complete(Completion { intended, sent, ended, done: result.is_ok() });
        match result {
            Ok(Answer::Done) => {}
            Ok(Answer::Nothing) => record.found_nothing += 1,
            Err(failure) => record.failures.count(failure.kind, 1, &failure.text),
        }
    }

    fn report(&self) -> LoadReport {
        let mut record = self.lock();
        record.over = true;
        let scheduled_until = record.scheduled_until;
        let (windows, unanswered) = record.windows.end(scheduled_until);
        record.failures.count("no answer", unanswered, "no answer within the time limit");
        let (done, failed) = record.windows.ended();
        let [response, service, lateness] = record.windows.times();
        let (sent, not_sent) =
            (self.sent.load(Ordering::Relaxed), self.not_sent.load(Ordering::Relaxed));
        assert_eq!(sent, done + failed, "what was sent was done, or has failed");
        assert_eq!(record.failures.total(), failed, "failures are all of a kind or another");
        LoadReport {
            seconds: self.length.min(Duration::from_nanos(scheduled_until)).as_secs_f64(),
            stopped: scheduled_until != u64::MAX,
            scheduled: sent + not_sent,
            sent,
            not_sent,
            done,
            failed,
            unanswered,
            found_nothing: record.found_nothing,
            late: record.windows.late(),
            response,
            service,
            lateness,
            failures: record.failures.clone(),
            missed: missed(&windows),
            windows,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("whoever has it does not panic")
    }
}

impl Threads {
    fn start() -> Result<Self, LoadError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("sprat-load-io")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("they are ended when dropped")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(SHUTDOWN); // otherwise a pending name lookup would block it
        }
    }
}
