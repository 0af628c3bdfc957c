//! The master: keeps objects in its log, answers for them, and makes every change durable before it
//! is told.

mod body;
mod durable;
mod inbox;
mod loads;
mod operations;
mod pace;
mod recoveries;
mod stats;
mod timing;
mod waiting;
mod watchers;

pub use body::{Body, MAX_PINS};
pub use inbox::{Assigned, Command, Inbox, Outbox, Recovered, inbox};
pub use waiting::MAX_WAITING;

use crate::answers::answer_text;
use crate::backup::{Backup, Failed};
use crate::expected::Expected;
use crate::guests::Guests;
use crate::moving::{Arrivals, Leaving};
use crate::node::{Caller, Service};
use crate::replication::{Outlook, Replicator};
use body::Held;
use durable::Durable;
use loads::{Asks, Loads};
use pace::Pace;
use recoveries::Recoveries;
use sprat_disk::Disk;
use sprat_log::{Full, Log, Ref};
use sprat_net::{Count, Figure, Nanos};
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Requester, Response};
use sprat_wire::certificate::Certificate;
use sprat_wire::once::COMPLETION_RETENTION;
use sprat_wire::op::{Request, Status};
use sprat_wire::tablet::{Range, Tablet};
use stats::Counts;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use timing::{Mark, Timing};
use waiting::Waiting;
use watchers::Watchers;

/// Slices of cleaning in one piece of idle work.
const IDLE_SLICES: usize = 4;

/// What a server's coordinator has told it.
#[derive(Default)]
struct Serves {
    /// The tablets it serves, ascending; `None` until the coordinator has been heard.
    tablets: Option<Vec<Tablet>>,
    /// Requests to each of them since that was last told.
    asked: Vec<Asks>,
    /// All tablets of which there may be objects in the log: those it serves, and those that it
    /// brings back.
    held: Option<Vec<Tablet>>,
    version: u64,
}

impl Serves {
    /// Returns the index of the tablet that covers `position`, and that position. `position` is
    /// computed, from the first tablet of the table that is here, only when the table has more than
    /// one tablet; it is zero otherwise.
    #[inline]
    fn find(
        tablets: &[Tablet],
        table: u32,
        position: impl FnOnce(Tablet) -> u64,
    ) -> Option<(usize, u64)> {
        let from = tablets.partition_point(|tablet| tablet.table < table);
        let first = tablets.get(from).filter(|first| first.table == table)?;
        if first.range.is_all() {
            return Some((from, 0));
        }
        let position = position(*first);
        let at =
            tablets.partition_point(|tablet| (tablet.table, tablet.range.last) < (table, position));
        let found = tablets
            .get(at)
            .filter(|tablet| tablet.table == table && tablet.range.contains(position));
        found.map(|_| (at, position))
    }
}

/// Servers whose replicas are needed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Needed {
    /// Their ids, ascending.
    pub masters: Vec<u32>,
    /// Of ids from here on nothing is known.
    pub below: u32,
}

/// Requests between the look at a key's line in the hash table and the look at its entry.
const NEARER: usize = 4;

/// The master of the tables assigned to it.
pub struct Master<D: Disk> {
    log: Log,
    durable: Durable<D>,
    serves: Serves,
    recoveries: Recoveries,
    arrivals: Arrivals,
    leaving: Leaving,
    loads: Loads,
    needed: Option<Needed>,
    inbox: Inbox,
    waiting: Waiting,
    watchers: Watchers,
    held: Held,
    expected: Expected<NEARER>,
    guests: Guests,
    /// Used again by each scan.
    found: Vec<Ref>,
    counts: Counts,
    /// When clients that are not heard of are forgotten next, with their completions.
    age_at: Nanos,
    /// Log position behind the last removal: an object that is not found may have been removed up
    /// to there.
    removed_at: u64,
    /// Why no more writes are taken.
    stopped: Option<String>,
    /// How long requests and rounds took, if that is to be known.
    timing: Option<Timing>,
    /// When the node's clock began; without, time is what the node's loop says.
    clock: Option<Instant>,
    /// How often this process was declared dead before.
    deaths: u64,
}

impl<D: Disk> Master<D> {
    /// A master of what is in `log`, which `backup` makes durable; without one, nothing is.
    /// It serves no table until [`Command::Assign`] comes through `inbox`.
    pub fn new(log: Log, backup: Option<Backup<D>>, inbox: Inbox) -> Self {
        let durable = backup
            .map_or(Durable::Nothing, |backup| Durable::Disk(Box::new(backup), Pace::default()));
        Self::over(log, durable, inbox)
    }

    /// A master of what is in `log`, which the backups of a cluster keep.
    pub fn replicated(log: Log, replicator: Replicator, inbox: Inbox) -> Self {
        Self::over(log, Durable::Servers(Box::new(replicator)), inbox)
    }

    fn over(log: Log, durable: Durable<D>, inbox: Inbox) -> Self {
        Self {
            log,
            durable,
            serves: Serves::default(),
            recoveries: Recoveries::default(),
            arrivals: Arrivals::default(),
            leaving: Leaving::default(),
            loads: Loads::default(),
            needed: None,
            inbox,
            waiting: Waiting::default(),
            watchers: Watchers::default(),
            held: Held::default(),
            expected: Expected::default(),
            guests: Guests::default(),
            found: Vec::new(),
            counts: Counts::default(),
            age_at: Nanos(0),
            removed_at: 0,
            stopped: None,
            timing: None,
            clock: None,
            deaths: 0,
        }
    }

    /// The same; its requests and rounds are timed, and its counters tell (`request_p50_ns`,
    /// `longest_round_ns`, of those since they were last asked for; `thread_..`, how its thread
    /// fared). Takes 20 ms.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timing: Some(Timing::new(None)), ..self }
    }

    /// The same; leases are held against a clock that began then, as the node's did.
    #[must_use]
    pub fn clocked(self, begun: Instant) -> Self {
        Self { clock: Some(begun), ..self }
    }

    /// The same; the process was declared dead so often before it began anew.
    #[must_use]
    pub fn after_deaths(self, deaths: u64) -> Self {
        Self { deaths, ..self }
    }

    /// The same; its requests are counted, by the event that `count` counts on the calling thread,
    /// which is to be the node's. Its counters then tell means in thousandths
    /// (`request_events_milli`), the counting itself taken off, in place of times.
    #[must_use]
    pub fn counted(self, count: Count) -> Self {
        Self { timing: Some(Timing::new(Some(count))), ..self }
    }

    /// The log, for a look at it.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// How it stands, in words for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let Serves { tablets, version, .. } = &self.serves;
        let tablets: Vec<_> = tablets.iter().flatten().map(Tablet::to_string).collect();
        let (tablets, replicator) =
            (tablets.join(", "), self.replicator().map(Replicator::describe).unwrap_or_default());
        let moves = [self.arrivals.describe(), self.leaving.describe()].join("; ");
        format!(
            "serves {tablets} of version {version}; {replicator}; {}; {moves}",
            self.recoveries.describe()
        )
    }

    /// What keeps the log on other servers, if that is where it is kept.
    pub fn replicator(&self) -> Option<&Replicator> {
        if let Durable::Servers(replicator) = &self.durable { Some(replicator) } else { None }
    }

    /// Why no more writes are taken; `None` while they are.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Makes durable what is not yet, and closes the log in order. Blocks.
    ///
    /// # Errors
    /// [`Failed`]: then the next start finds a log that was not closed in order, and replays it as after a crash.
    pub fn close(mut self, now: Nanos) -> Result<(), Failed> {
        self.durable.close(now, &mut self.log)
    }

    /// A request has come so far.
    #[inline]
    fn mark(&mut self, mark: Mark) {
        if let Some(timing) = &mut self.timing {
            timing.mark(mark);
        }
    }

    /// Whether tables may be served: not when others may do so already. The clock is read anew, for
    /// `now` is from before the request came, and the thread may have stood still since.
    #[inline]
    fn is_leased(&self, now: Nanos) -> bool {
        let lease = self.inbox.lease();
        lease == Nanos::NEVER || self.clock.map_or(now, |begun| Nanos(0) + begun.elapsed()) < lease
    }

    /// Whether the log is durable up to `position`.
    #[inline]
    fn is_durable(&self, position: u64) -> bool {
        self.durable.is_nothing() || position <= self.log.durable_position()
    }

    /// Whether what waits to become durable waits for servers that are not there, or that refuse.
    #[inline]
    fn is_bleak(&self) -> bool {
        self.replicator().is_some_and(|replicator| replicator.outlook() == Outlook::Bleak)
    }

    /// Seals the head when its replicas would not hold an entry of `len` bytes more. What `removes`
    /// may go on where a full disk keeps others from doing so.
    ///
    /// # Errors
    /// When no other head can be opened before the disk has made room: [`Full::Disk`] if it is
    /// full, else [`Full::Replication`].
    #[inline]
    fn seal_if_short(&mut self, len: usize, removes: bool) -> Result<(), Full> {
        if self.durable.has_room(&self.log, len) {
            return Ok(());
        }
        match if removes { self.log.roll_head_to_remove() } else { self.log.roll_head() } {
            true => Ok(()),
            false if self.log.lacks_disk() => Err(Full::Disk),
            false => Err(Full::Replication),
        }
    }

    /// From here on no write is taken, and none that waits is acknowledged.
    fn stop_writes(&mut self, reason: String) {
        tracing::error!("no more writes are taken: {reason}");
        self.stopped = Some(reason);
    }

    fn writes_stopped(&mut self) -> Outcome<Body> {
        let reason = self.stopped.clone().unwrap_or_default();
        answer_text(&mut self.held.made, Status::WritesStopped, &reason)
    }

    fn assign(&mut self, assigned: Assigned) {
        let Assigned {
            version,
            mut tablets,
            members,
            mut masters,
            next_server,
            orders,
            names,
            leaving,
            arriving,
        } = assigned;
        self.guests.name_tables(names);
        tablets.sort_unstable();
        masters.sort_unstable();
        let is_served = |table, position| Serves::find(&tablets, table, |_| position).is_some();
        let mut ended = self.recoveries.assign(orders, &members, is_served);
        self.leaving.assign(&leaving);
        ended.extend(self.arrivals.assign(&arriving, &members));
        let held: Vec<Tablet> = tablets
            .iter()
            .copied()
            .chain(self.recoveries.tablets())
            .chain(self.arrivals.tablets())
            .collect();
        let of = |tablets: &[Tablet], table: u32| -> Vec<Range> {
            tablets
                .iter()
                .filter(|tablet| tablet.table == table)
                .map(|tablet| tablet.range)
                .collect()
        };
        let held_before = self
            .serves
            .held
            .take()
            .unwrap_or_else(|| self.log.tables().map(Tablet::whole).collect());
        let served_before = self.serves.tablets.take().unwrap_or_default();
        let mut dropped = 0;
        let gone: Vec<u32> = self.log.tables().filter(|&id| of(&held, id).is_empty()).collect();
        for id in gone {
            dropped += 1;
            self.log.drop_table(id);
        }
        // What is not here any more goes. So does what was served here, or did not come here after
        // all, though it is to come here again: what is left of it has too much, and lies
        // where it will not count.
        let left =
            |before: Vec<Tablet>, now| before.into_iter().map(move |tablet: Tablet| (tablet, now));
        let left = left(held_before, &held)
            .chain(left(served_before.clone(), &tablets))
            .chain(left(ended, &tablets));
        for (Tablet { table, range }, now) in
            left.filter(|(tablet, _)| !of(&held, tablet.table).is_empty())
        {
            for range in range.without(of(now, table)) {
                dropped += 1;
                self.log.drop_tablet(Tablet { table, range });
            }
        }
        if dropped > 0 {
            self.recoveries.dropped(self.log.head_pending().0);
        }
        if let Durable::Servers(replicator) = &mut self.durable {
            replicator.set_members(&members);
        }
        let before =
            |tablet| served_before.binary_search(tablet).ok().map(|at| self.serves.asked[at]);
        let asked =
            tablets.iter().map(|tablet| before(tablet).unwrap_or_else(|| Asks::to(*tablet)));
        self.serves =
            Serves { asked: asked.collect(), tablets: Some(tablets), held: Some(held), version };
        self.needed = Some(Needed { masters, below: next_server });
        self.inbox.applied(version);
    }

    /// Whose replicas are needed, if that has been told since this was last asked.
    pub fn take_needed(&mut self) -> Option<Needed> {
        self.needed.take()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Assign(assigned) => self.assign(*assigned),
            Command::Voided(segment) => {
                if let Durable::Servers(replicator) = &mut self.durable {
                    replicator.confirm(segment, &mut self.log);
                }
            }
            Command::Stats(reply) => self.watchers.command(reply),
        }
    }
}

impl<D: Disk> Handler for Master<D> {
    type Body = Body;

    #[inline]
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<Body> {
        self.mark(Mark::Entered);
        let parsed = Request::parse_with_id(payload);
        self.mark(Mark::Parsed);
        let outcome = match parsed {
            Ok((request, operation)) => self.dispatch(now, id, &request, operation.as_ref()),
            Err(malformed) => {
                self.counts.malformed += 1;
                answer_text(&mut self.held.made, Status::Malformed, &malformed.to_string())
            }
        };
        self.mark(Mark::Done);
        outcome
    }

    #[inline]
    fn prefetch(&mut self, payload: &[u8]) {
        if let Ok((request, operation)) = Request::parse_with_id(payload)
            && let Some((table, key)) = request.object()
        {
            if let Some(operation) = operation {
                self.log.prefetch_completion(table, &operation);
            }
            self.expected.expect(&self.log, table, key);
        }
    }

    fn admitted(&mut self, who: Requester, certificate: &Certificate) {
        self.guests.admit(who, certificate);
    }

    #[inline]
    fn gather(&self, body: Body) -> &[u8] {
        self.held.bytes(&self.log, body)
    }

    #[inline]
    fn release(&mut self, body: Body) {
        self.held.release(&mut self.log, body);
    }

    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let answer = result.as_deref().map_err(|failure| *failure);
        let replicates = match &mut self.durable {
            Durable::Servers(replicator) => replicator.completed(now, call, answer, &mut self.log),
            Durable::Nothing | Durable::Disk(..) => false,
        };
        if !replicates && !self.recoveries.completed(call, answer) {
            self.arrivals.completed(now, call, answer);
        }
    }
}

impl<D: Disk> Service for Master<D> {
    fn poll(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        while let Some(command) = self.inbox.take() {
            self.obey(command);
            worked = true;
        }
        if now >= self.age_at {
            self.age_at = now + COMPLETION_RETENTION;
            self.log.age_clients();
        }
        if let Some(segment) = self.replicator().and_then(Replicator::min_open) {
            self.inbox.wants_min_open(segment);
        }
        if self.stopped.is_none() {
            match self.durable.poll(now, &mut self.log) {
                Ok(progressed) => worked |= progressed,
                Err(reason) => self.stop_writes(reason),
            }
        }
        // Nobody is told by one who has no coordinator, or none now.
        if now >= self.loads.due() && self.inbox.lease() != Nanos::NEVER {
            let Serves { tablets, asked, .. } = &mut self.serves;
            let loads =
                self.loads.tell(now, &self.log, tablets.as_deref().unwrap_or_default(), asked);
            self.inbox.loads(self.log.capacity() as u64, loads);
        }
        worked |= self.recoveries.poll(now, &mut self.log, &self.inbox);
        worked | (self.recoveries.has_forgotten() && self.arrivals.poll(&mut self.log, &self.inbox))
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<Body>)> {
        if let Some(told) = self.watchers.take() {
            return Some(told);
        }
        if let Some(waiter) = self.waiting.pop(self.log.durable_position()) {
            return Some((waiter.id, Outcome::Reply(waiter.reply)));
        }
        if self.stopped.is_some() {
            let waiter = self.waiting.abandon()?;
            if let Some(body) = waiter.reply.body() {
                self.release(body);
            }
            return Some((waiter.id, self.writes_stopped()));
        }
        if self.is_bleak() {
            let waiter = self.waiting.abandon()?;
            if let Some(body) = waiter.reply.body() {
                self.release(body);
            }
            return Some((waiter.id, self.too_few(true)));
        }
        None
    }

    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if self.stopped.is_none() {
            self.durable.call(now, &mut self.log, caller);
            self.recoveries.call(now, caller);
            self.arrivals.call(now, caller);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let loads = Some(self.loads.due()).filter(|_| self.inbox.lease() != Nanos::NEVER);
        let deadlines = [
            self.durable.deadline(),
            self.recoveries.next_deadline(),
            self.arrivals.next_deadline(),
            loads,
        ];
        deadlines.into_iter().flatten().min()
    }

    fn work_idle(&mut self) -> bool {
        !self.log.clean(IDLE_SLICES).idle
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.timing.is_some()
    }

    fn lap(&mut self, came: u64, left: u64) {
        if let Some(timing) = &mut self.timing {
            timing.request(came, left);
        }
    }

    fn went_round(&mut self, ticks: u64) {
        if let Some(timing) = &mut self.timing {
            timing.round(ticks);
        }
    }

    #[inline]
    fn asks_for_network(&self) -> bool {
        self.watchers.are_waiting()
    }

    fn network(&mut self, network: Vec<Figure>) {
        let mut figures: Vec<_> =
            self.counters().into_iter().map(|(name, value)| Figure::new(name, value)).collect();
        self.recoveries.figures(&mut figures);
        figures.extend(network);
        self.watchers.tell(&figures, self.serves.version, &mut self.held, operations::BUSY_MICROS);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.durable.poll_fd()
    }
}
