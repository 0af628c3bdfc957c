//! The tablets of crashed servers that this master recovers.

use super::inbox::{Inbox, RecoveryResult};
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

/// Delay before a failed recovery is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// One ordered recovery.
struct Task {
    order: RecoveryOrder,
    /// `None` between two attempts.
    recovery: Option<Recovery>,
    /// First segment of this log that may hold recovered entries; zero before the first attempt,
    /// and after an attempt that failed and had written entries.
    since: u64,
    /// When the attempt under way began.
    begun: Nanos,
    retry_at: Nanos,
    /// Why the newest of the failed attempts failed; `None` if none has failed.
    failure: Option<RecoveryFailure>,
    /// Whether the recovery's success was reported to the coordinator.
    reported: bool,
    /// Whether the totals include this recovery.
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
            reported: false,
            counted: false,
        }
    }

    fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.order.tablets.iter().map(|&(tablet, _)| tablet)
    }
}

/// All recoveries that the coordinator orders now. They wait, are under way, or have succeeded.
#[derive(Default)]
pub(super) struct Recoveries {
    tasks: Vec<Task>,
    members: Vec<BackupServer>,
    /// The segment that was the head when tablets were last dropped. Entries of a recovered tablet
    /// must lie in later segments.
    dropped_in: u64,
    /// Before this time no attempt begins, because one has found no room. The coordinator orders a
    /// part of that recovery then, or another one, which may not fit either.
    full_until: Nanos,
    /// Completions that failed attempts and aborted recoveries have written. The log forgets them
    /// before any recovery or move continues.
    forget: Vec<WrittenCompletion>,
    /// Sessions of attempts that are over, still to be closed.
    abandoned_sessions: Vec<SessionId>,
    totals: Totals,
}

/// Totals of the recoveries that have succeeded.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) recoveries: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Microseconds from the start of each recovery's successful attempt until this attempt ended.
    pub(super) micros: u64,
    /// CPU time that this thread spent on checking and replaying, failed attempts included.
    pub(super) cpu: Duration,
}

/// Adds to `total` the CPU time that `work` takes on this thread.
fn metered<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = clock_gettime(ClockId::ThreadCPUTime);
    let result = work();
    let took = clock_gettime(ClockId::ThreadCPUTime) - begun;
    *total += Duration::try_from(took).unwrap_or_default();
    result
}

impl Recoveries {
    /// Replaces the recoveries by those in `orders`, and the backups by `members`. A recovery that
    /// is still ordered continues. Returns the tablets of recoveries that have ended: for each of
    /// these tablets that is not served here now, the caller drops the objects that were recovered.
    /// Completions that these recoveries wrote are forgotten where `is_served` is false for their
    /// positions.
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
                // The recovery is still ordered, so if its result was reported, the coordinator has
                // not noted that. A predecessor, which gave the recovery another id, has not noted
                // it either. So the result is reported again. The entries that were written are
                // still here, since nothing else was ordered in between.
                *same = Task { reported: false, order: same.order.clone(), ..task };
            } else {
                self.abandoned_sessions
                    .extend(task.recovery.iter_mut().flat_map(Recovery::take_sessions));
                let completed = task.recovery.iter_mut().flat_map(Recovery::take_completed);
                self.forget.extend(
                    completed
                        .filter(|named| !is_served(named.table & !COMPLETIONS, named.position)),
                );
                ended.extend(task.tablets());
                let mut tasks = self.tasks.iter_mut();
                if let Some(next) = tasks.find(|other| other.order.master == task.order.master) {
                    // The coordinator orders other tablets of that server, usually because these
                    // found no room. The reason is shown until the next attempt has ended.
                    next.failure = task.failure;
                }
            }
        }
        self.members = members.to_vec();
        ended
    }

    /// Returns whether the log has forgotten the completions of failed attempts and of aborted
    /// recoveries.
    pub(super) fn has_forgotten(&self) -> bool {
        self.forget.is_empty()
    }

    /// Records that tablets were dropped while this segment was the head.
    pub(super) fn dropped(&mut self, segment: u64) {
        self.dropped_in = segment;
    }

    /// Returns the totals of the recoveries that have succeeded.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Renders the state of all recoveries for people.
    pub(super) fn describe(&self) -> String {
        let task = |task: &Task| {
            let stands =
                task.recovery.as_ref().map_or("between attempts".to_owned(), Recovery::describe);
            let tablets: Vec<_> = task.tablets().map(|tablet| tablet.to_string()).collect();
            format!("server {}'s {}: {stands}", task.order.master, tablets.join(", "))
        };
        self.tasks.iter().map(task).collect::<Vec<_>>().join("; ")
    }

    /// Adds the state as figures, labelled with the crashed server: there is one recovery for each.
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

    /// Returns the tablets that are being recovered.
    pub(super) fn tablets(&self) -> impl Iterator<Item = Tablet> {
        self.tasks.iter().flat_map(Task::tablets)
    }

    /// Does what is due; returns whether another call at once may do more.
    pub(super) fn poll(&mut self, now: Nanos, log: &mut Log, inbox: &Inbox) -> bool {
        let mut worked = false;
        let Self { tasks, members, dropped_in, full_until, forget, abandoned_sessions, totals } =
            self;
        while let Some(WrittenCompletion { table, key, sequence, .. }) = forget.last() {
            if log.forget_completion((*table, key, *sequence)).is_err() {
                return false;
            }
            forget.pop();
            worked = true;
        }
        for task in tasks {
            let Some(recovery) = &mut task.recovery else {
                // Objects that an earlier assignment left of the tablet here must be gone first.
                let is_free = task.tablets().all(|tablet| !log.is_dropping(tablet));
                if is_free && task.retry_at.max(*full_until) <= now {
                    if task.since == 0 {
                        // The objects that are left must not count either if this log is recovered
                        // later. So the recovered entries must go to a new head.
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
            let Some(outcome) = recovery.outcome().filter(|_| !task.reported) else { continue };
            worked = true;
            let (gone, order, since) = (task.order.master, task.order.id, task.since);
            match outcome {
                Ok(report) => {
                    let took = now.since(task.begun);
                    tracing::info!("recovered tables of server {gone} in {took:?}: {report:?}");
                    if !std::mem::replace(&mut task.counted, true) {
                        totals.recoveries += 1;
                        totals.objects += report.objects;
                        totals.bytes += report.bytes;
                        totals.micros += u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                    }
                    (task.reported, task.failure) = (true, None);
                    // Close the sessions without waiting for the coordinator.
                    abandoned_sessions.extend(recovery.take_sessions());
                    let (failure, no_room) = (String::new(), false);
                    inbox.report_recovery(RecoveryResult { order, since, failure, no_room });
                }
                Err(failure) => {
                    task.failure = Some(failure.clone());
                    let no_room = matches!(failure, RecoveryFailure::Full(_));
                    let failure = failure_text(failure);
                    abandoned_sessions.extend(recovery.take_sessions());
                    if recovery.has_written() {
                        // The next attempt may read the end of that log from another replica, which
                        // has less of it: nothing of this attempt may stay.
                        forget.extend(recovery.take_completed());
                        task.tablets().for_each(|tablet| log.drop_tablet(tablet));
                        (*dropped_in, task.since) = (log.head_pending().0, 0);
                    }
                    task.recovery = None;
                    task.retry_at = now + RETRY;
                    if no_room {
                        *full_until = task.retry_at;
                    }
                    inbox.report_recovery(RecoveryResult { order, since, failure, no_room });
                }
            }
        }
        worked
    }

    pub(super) fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        self.abandoned_sessions.drain(..).for_each(|session| caller.close(session));
        self.tasks
            .iter_mut()
            .filter_map(|task| task.recovery.as_mut())
            .for_each(|recovery| recovery.call(now, caller));
    }

    /// Handles the end of a call; returns whether it is a call of one of the recoveries. A call of
    /// an abandoned attempt is not.
    pub(super) fn completed(&mut self, call: CallId, result: Result<&[u8], CallFailure>) -> bool {
        let Self { tasks, totals, .. } = self;
        let mut recoveries = tasks.iter_mut().filter_map(|task| task.recovery.as_mut());
        recoveries.any(|recovery| metered(&mut totals.cpu, || recovery.completed(call, result)))
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let waiting = self.tasks.iter().filter(|task| task.recovery.is_none());
        waiting.map(|task| task.retry_at.max(self.full_until)).min()
    }
}

/// Renders a failure, cut to fit into a request.
fn failure_text(failure: &RecoveryFailure) -> String {
    let mut words = failure.to_string();
    words.truncate(sprat_wire::MAX_TABLE_NAME);
    words
}
