//! State that the streams of one transfer share.

use super::error::{Error, Trouble};
use super::event::{Event, Progress};
use super::options::MAX_STREAMS;
use super::plan::{Assignment, Plan};
use crate::group::Value;
use crate::partial::{Partial, bytes_of};
use sprat_disk::AlignedBuf;
use sprat_host::lock;
use sprat_http::Cancel;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limit on the incomplete groups, of up to 1 MiB, that are kept: two for each stream, because
/// another stream may take over a group. At the limit, the first bytes of a further group are
/// dropped.
const MAX_BEGUN: usize = 2 * MAX_STREAMS;

/// A transfer, as shared by its streams.
pub(crate) struct Shared {
    /// Length of the file in bytes.
    pub(crate) length: u64,
    state: Mutex<Partial>,
    plan: Mutex<Plan>,
    /// The first bytes of groups whose other bytes did not arrive because a connection broke.
    begun: Mutex<BTreeMap<u64, Vec<u8>>>,
    pub(crate) counters: Counters,
    /// Number of streams that have not ended.
    pub(crate) running: AtomicUsize,
    started: Instant,
    limit: Option<Mutex<Limit>>,
    /// Stops all streams.
    pub(crate) stop: Cancel,
    events: SyncSender<Event>,
    failure: Mutex<Option<Trouble>>,
}

/// Counters of all streams together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Bytes of the file that are complete.
    pub(crate) done: AtomicU64,
    /// Bytes of the file received in this run.
    pub(crate) received: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) wrong: AtomicU64,
    /// Round-trip time sampled last, in microseconds.
    pub(crate) rtt: AtomicU64,
}

impl From<Progress> for Counters {
    fn from(before: Progress) -> Self {
        Self {
            done: before.done.into(),
            received: before.received.into(),
            retries: before.retries.into(),
            wrong: before.wrong.into(),
            rtt: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(crate) fn progress(&self, length: Option<u64>) -> Progress {
        Progress {
            done: self.done.load(Relaxed),
            received: self.received.load(Relaxed),
            length,
            rtt: Duration::from_micros(self.rtt.load(Relaxed)),
            retries: self.retries.load(Relaxed),
            wrong: self.wrong.load(Relaxed),
        }
    }
}

impl Shared {
    /// Creates the shared state of a transfer of `length` bytes. `before` has the counters of
    /// earlier attempts.
    pub(crate) fn new(
        length: u64,
        before: Progress,
        state: Partial,
        plan: Plan,
        limit: Option<u64>,
        stop: Cancel,
        events: SyncSender<Event>,
    ) -> Self {
        let done = state.values.keys().map(|group| bytes_of(length, *group)).sum::<u64>();
        let counters = Counters::from(Progress { done, ..before });
        let limit = limit.map(|rate| Mutex::new(Limit::new(rate)));
        let (state, plan, failure) = (Mutex::new(state), Mutex::new(plan), Mutex::new(None));
        let (running, started, begun) = (AtomicUsize::new(0), Instant::now(), Mutex::default());
        Self {
            length,
            state,
            plan,
            begun,
            counters,
            running,
            started,
            limit,
            stop,
            events,
            failure,
        }
    }

    /// Returns a buffer to receive a group into.
    pub(crate) fn buffer(&self) -> Result<AlignedBuf, Trouble> {
        Ok(lock(&self.state).sink.buffer()?.expect("there are more buffers than streams"))
    }

    /// Takes back a buffer that was not used.
    pub(crate) fn recycle(&self, buffer: AlignedBuf) {
        lock(&self.state).sink.recycle(buffer);
    }

    /// Stores a group that has arrived. Returns its length in bytes, or 0 if another stream has
    /// stored the group already.
    pub(crate) fn arrived(
        &self,
        group: u64,
        buffer: AlignedBuf,
        value: Value,
    ) -> Result<u64, Trouble> {
        let bytes = bytes_of(self.length, group);
        let len = usize::try_from(bytes).expect("a group is in memory");
        let mut state = lock(&self.state);
        if state.values.contains_key(&group) {
            state.sink.recycle(buffer);
            return Ok(0);
        }
        lock(&self.begun).remove(&group);
        state.values.insert(group, value);
        state.sink.write(group, buffer, len)?;
        state.journal_durable();
        if let Some(why) = state.journal_failed.take() {
            self.emit(Event::Note(why));
        }
        drop(state);
        self.counters.done.fetch_add(bytes, Relaxed);
        self.counters.received.fetch_add(bytes, Relaxed);
        Ok(bytes)
    }

    /// Keeps the first bytes of an incomplete group. A transfer thus progresses even if the
    /// connection breaks within every megabyte.
    pub(crate) fn keep_begun(&self, group: u64, bytes: &[u8]) {
        let mut begun = lock(&self.begun);
        let is_new = !begun.contains_key(&group);
        if bytes.is_empty() || (is_new && begun.len() >= MAX_BEGUN) {
            return;
        }
        let kept = begun.entry(group).or_default();
        if kept.len() < bytes.len() {
            *kept = bytes.to_vec();
        }
    }

    /// Returns a copy of the kept first bytes of a group; empty if there are none.
    pub(crate) fn begun_bytes(&self, group: u64) -> Vec<u8> {
        lock(&self.begun).get(&group).cloned().unwrap_or_default()
    }

    /// Removes and returns the kept first bytes of a group.
    pub(crate) fn take_begun(&self, group: u64) -> Option<Vec<u8>> {
        lock(&self.begun).remove(&group)
    }

    /// Returns how many bytes are kept of a group.
    pub(crate) fn begun(&self, group: u64) -> usize {
        lock(&self.begun).get(&group).map_or(0, Vec::len)
    }

    /// Assigns work to an idle stream.
    pub(crate) fn take(&self, stream: usize) -> Assignment {
        self.plan().take(stream, self.started.elapsed())
    }

    /// Records that a stream has finished a group. Returns whether the stream continues with the
    /// next group.
    pub(crate) fn done(&self, stream: usize, group: u64) -> bool {
        self.plan().done(stream, group, self.started.elapsed())
    }

    /// Returns whether the file is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.counters.done.load(Relaxed) == self.length
    }

    /// Locks the plan.
    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    /// Waits until the rate limit allows `bytes` more, or the streams are stopped.
    pub(crate) fn throttle(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            let pause = lock(limit).take(bytes);
            self.stop.wait(pause);
        }
    }

    /// Queues an event. If the queue is full, the event is dropped.
    pub(crate) fn emit(&self, event: Event) {
        let _ = self.events.try_send(event);
    }

    /// Records that a stream has ended, and wakes the thread that waits for it.
    pub(crate) fn ended(&self) {
        self.running.fetch_sub(1, Ordering::Release);
        self.emit(Event::Progress(self.counters.progress(Some(self.length))));
    }

    /// Ends all streams, because one stream has failed finally. The transfer fails with the first
    /// such failure.
    pub(crate) fn fail(&self, trouble: Trouble) {
        let mut failure = lock(&self.failure);
        if failure.is_none()
            && !(self.stop.is_cancelled() && matches!(trouble, Trouble::Fatal(Error::Cancelled)))
        {
            *failure = Some(trouble);
        }
        self.stop.cancel();
    }

    /// Returns the groups received, the counters, and the failure if there was one.
    pub(crate) fn into_parts(self) -> (Partial, Counters, Option<Trouble>) {
        let inner =
            |failure: Mutex<_>| failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state, self.counters, inner(self.failure))
    }
}

/// A rate limit, averaged over about a second.
pub(crate) struct Limit {
    rate: f64,
    /// The time at which all bytes granted so far have been transferred at this rate.
    due: Instant,
}

impl Limit {
    pub(crate) fn new(rate: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        Self { rate: rate.max(1) as f64, due: Instant::now() }
    }

    /// Grants `bytes`, and returns how long to wait before transferring them.
    pub(crate) fn take(&mut self, bytes: u64) -> Duration {
        let now = Instant::now();
        let due = self.due.max(now.checked_sub(Duration::from_secs(1)).unwrap_or(now));
        #[expect(clippy::cast_precision_loss, reason = "a group is small")]
        let cost = Duration::from_secs_f64((bytes as f64 / self.rate).min(3600.0));
        self.due = due + cost;
        self.due.saturating_duration_since(now)
    }
}
