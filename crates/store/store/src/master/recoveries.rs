//! What a master brings back of servers that are gone.

use super::inbox::{Inbox, Recovered};
use crate::node::Caller;
use crate::recovery::{Lost, Recovery, RecoveryFailure, RecoveryProgress, WrittenCompletion};
use crate::replication::BackupServer;
use rustix::time::{ClockId, clock_gettime};
use sprat_log::Log;
use sprat_net::{Figure, Nanos};
use sprat_rpc::{CallFailure, CallId, SessionId};
use sprat_wire::once::COMPLETIONS;
use sprat_wire::op::RecoveryOrder;
use sprat_wire::tablet::Tablet;
use std::time::Duration;

/// When to try again what could not be brought back.
const RETRY: Duration = Duration::from_millis(500);

/// One of them.
struct Task {
    order: RecoveryOrder,
    /// `None` between two attempts.
    recovery: Option<Recovery>,
    /// The segment of the log here from which on what it writes lies; zero before it has begun.
    since: u64,
    /// When the attempt under way began.
    begun: Nanos,
    retry_at: Nanos,
    /// Why the last attempt failed.
    failure: Option<RecoveryFailure>,
    /// It is done, and the coordinator was told.
    told: bool,
    /// It is in the totals.
    counted: bool,
}

impl Task {
    fn new(order: RecoveryOrder) -> Self {
        let (begun, retry_at) = (Nanos(0), Nanos(0));
        Self {
            order,
            recovery: None,
            since: 0,
            begun,
            retry_at,
            failure: None,
            told: false,
            counted: false,
        }
    }

    fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.order.tablets.iter().map(|&(tablet, _)| tablet)
    }
}

/// All that are under way.
#[derive(Default)]
pub(super) struct Recoveries {
    tasks: Vec<Task>,
    members: Vec<BackupServer>,
    /// The head in which tablets were dropped last: what counts of one that is brought back begins
    /// behind it.
    dropped_in: u64,
    /// Completions that attempts have written that came to nothing, to be forgotten before
    /// anything else begins.
    forget: Vec<WrittenCompletion>,
    /// Sessions of attempts that are over, to be closed.
    left: Vec<SessionId>,
    totals: Totals,
}

/// What came of those that are done.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) recoveries: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// From the order to the last object's being durable.
    pub(super) micros: u64,
    /// Of this thread's CPU, what checking and replaying took, attempts that failed included.
    pub(super) cpu: Duration,
}

/// Adds to `total` what `work` takes of this thread's CPU.
fn metered<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = clock_gettime(ClockId::ThreadCPUTime);
    let result = work();
    let took = clock_gettime(ClockId::ThreadCPUTime) - begun;
    *total += Duration::try_from(took).unwrap_or_default();
    result
}

impl Recoveries {
    /// These are to be under way, with these backups. Returns the tablets of those that have ended:
    /// of what is not served here now, what came has to go, as do completions of what
    /// `is_served` says is not.
    pub(super) fn assign(
        &mut self,
        orders: Vec<RecoveryOrder>,
        members: &[BackupServer],
        is_served: impl Fn(u32, u64) -> bool,
    ) -> Vec<Tablet> {
        let before = std::mem::take(&mut self.tasks);
        self.tasks.extend(orders.into_iter().map(Task::new));
        let mut ended = Vec::new();
        for mut task in before {
            let unnamed =
                |order: &RecoveryOrder| RecoveryOrder { id: 0, askers: 0, ..order.clone() };
            if let Some(same) =
                self.tasks.iter_mut().find(|other| unnamed(&other.order) == unnamed(&task.order))
            {
                // If it was told, that did not reach this coordinator, or one before it, which gave
                // the order another number: it is told again. What has been written
                // is there, for nothing else was ordered in between.
                *same = Task { told: false, order: same.order.clone(), ..task };
            } else {
                self.left.extend(task.recovery.iter_mut().flat_map(Recovery::take_sessions));
                let completed = task.recovery.iter_mut().flat_map(Recovery::take_completed);
                self.forget.extend(
                    completed
                        .filter(|named| !is_served(named.table & !COMPLETIONS, named.position)),
                );
                ended.extend(task.tablets());
            }
        }
        self.members = members.to_vec();
        ended
    }

    /// Whether what is not here any more is forgotten.
    pub(super) fn has_forgotten(&self) -> bool {
        self.forget.is_empty()
    }

    /// Tablets were dropped when this segment was the head.
    pub(super) fn dropped(&mut self, segment: u64) {
        self.dropped_in = segment;
    }

    /// What came of those that are done.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// How they stand, in words.
    pub(super) fn describe(&self) -> String {
        let task = |task: &Task| {
            let stands =
                task.recovery.as_ref().map_or("between attempts".to_owned(), Recovery::describe);
            let tablets: Vec<_> = task.tablets().map(|tablet| tablet.to_string()).collect();
            format!("server {}'s {}: {stands}", task.order.master, tablets.join(", "))
        };
        self.tasks.iter().map(task).collect::<Vec<_>>().join("; ")
    }

    /// The same as figures, labelled with the server that is gone: there is one task for each.
    pub(super) fn figures(&self, figures: &mut Vec<Figure>) {
        for task in &self.tasks {
            let server = task.order.master.to_string();
            let waiting = RecoveryProgress { stage: "waiting", done: 0, left: 0 };
            let RecoveryProgress { stage, done: read, left } =
                task.recovery.as_ref().map_or(waiting, Recovery::progress);
            let tablets = task.order.tablets.len() as u64;
            figures.push(Figure::labelled(
                "recovery_tablets",
                &[("server", &server), ("stage", stage)],
                tablets,
            ));
            figures.push(Figure::labelled("recovery_segments_read", &[("server", &server)], read));
            figures.push(Figure::labelled("recovery_segments_left", &[("server", &server)], left));
            let Some(failure) = &task.failure else { continue };
            let why = match failure {
                RecoveryFailure::Lost { .. } => "lost",
                RecoveryFailure::Full(_) => "full",
            };
            figures.push(Figure::labelled(
                "recovery_failed",
                &[("server", &server), ("why", why)],
                1,
            ));
            if let RecoveryFailure::Lost { silent, .. } = failure {
                figures.push(Figure::labelled(
                    "recovery_backups_silent",
                    &[("server", &server)],
                    *silent as u64,
                ));
            }
            if let RecoveryFailure::Lost { lost: Lost::Segment { segment, .. }, .. } = failure {
                figures.push(Figure::labelled(
                    "recovery_lost_segment",
                    &[("server", &server)],
                    *segment,
                ));
            }
        }
    }

    /// The tablets that are being brought back.
    pub(super) fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.tasks.iter().flat_map(Task::tablets)
    }

    /// Goes on with what is under way; returns whether there was anything to do.
    pub(super) fn poll(&mut self, now: Nanos, log: &mut Log, inbox: &Inbox) -> bool {
        let mut worked = false;
        let Self { tasks, members, dropped_in, forget, left, totals } = self;
        while let Some(WrittenCompletion { table, key, sequence, .. }) = forget.last() {
            if log.forget_completion((*table, key, *sequence)).is_err() {
                return false;
            }
            forget.pop();
            worked = true;
        }
        for task in tasks {
            let Some(recovery) = &mut task.recovery else {
                // What was here of a tablet long ago has to be gone first.
                let is_free = task.tablets().all(|tablet| !log.is_dropping(tablet));
                if is_free && task.retry_at <= now {
                    if task.since == 0 {
                        // Nor may it count, whoever brings back this log.
                        if log.head_pending().0 <= *dropped_in && !log.roll_head() {
                            continue;
                        }
                        task.since = log.head_pending().0;
                    }
                    task.begun = now;
                    task.recovery =
                        Some(Recovery::new(task.order.clone(), members, log.config().seed));
                    worked = true;
                }
                continue;
            };
            worked |= metered(&mut totals.cpu, || recovery.work(log));
            let Some(outcome) = recovery.outcome().filter(|_| !task.told) else { continue };
            worked = true;
            let (gone, order, since) = (task.order.master, task.order.id, task.since);
            match outcome {
                Ok(report) => {
                    let took = now.since(task.begun);
                    tracing::info!("tables of server {gone} are here after {took:?}: {report:?}");
                    if !std::mem::replace(&mut task.counted, true) {
                        totals.recoveries += 1;
                        totals.objects += report.objects;
                        totals.bytes += report.bytes;
                        totals.micros += u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                    }
                    task.told = true;
                    left.extend(recovery.take_sessions()); // the coordinator may take its time
                    inbox.recovered(Recovered { order, since, failure: String::new() });
                }
                Err(failure) => {
                    task.failure = Some(failure.clone());
                    let failure = tell(failure);
                    left.extend(recovery.take_sessions());
                    if recovery.has_written() {
                        // The next one may read the end of that log from another replica, which has
                        // less: nothing of this one may stay.
                        forget.extend(recovery.take_completed());
                        task.tablets().for_each(|tablet| log.drop_tablet(tablet));
                        (*dropped_in, task.since) = (log.head_pending().0, 0);
                    }
                    task.recovery = None;
                    task.retry_at = now + RETRY;
                    inbox.recovered(Recovered { order, since, failure });
                }
            }
        }
        worked
    }

    pub(super) fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.left.drain(..).for_each(|session| caller.close(session));
        self.tasks
            .iter_mut()
            .filter_map(|task| task.recovery.as_mut())
            .for_each(|recovery| recovery.call(now, caller));
    }

    /// A call has ended; returns whether it was one of these. One of an attempt that was given up
    /// is nobody's.
    pub(super) fn completed(&mut self, call: CallId, result: Result<&[u8], CallFailure>) -> bool {
        let Self { tasks, totals, .. } = self;
        let mut recoveries = tasks.iter_mut().filter_map(|task| task.recovery.as_mut());
        recoveries.any(|recovery| metered(&mut totals.cpu, || recovery.completed(call, result)))
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.tasks.iter().filter(|task| task.recovery.is_none()).map(|task| task.retry_at).min()
    }
}

/// A failure in words that fit into a request.
fn tell(failure: &RecoveryFailure) -> String {
    let mut words = failure.to_string();
    words.truncate(sprat_wire::MAX_TABLE_NAME);
    words
}
