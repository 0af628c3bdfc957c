//! The master: the service that keeps tablets in its log, in DRAM, and answers requests for their
//! objects. It replies to a change only once the change is durable.

mod batch;
mod body;
mod copying;
mod counter_requests;
mod deciding;
mod durable;
mod expiry;
mod feeds;
mod inbox;
mod loads;
mod operations;
mod pace;
mod ranges;
mod recoveries;
mod redis;
mod resolving;
mod stats;
mod timing;
mod transactions;
mod waiting;

pub use body::{MAX_PINS, MasterBody};
pub use inbox::{Command, Inbox, MasterAssignment, Outbox, RecoveryResult, inbox};
pub use waiting::MAX_WAITING;

use crate::answers::{answer, answer_text};
use crate::backup::{Backup, Failed};
use crate::expected::PrefetchQueue;
use crate::guests::AccessRules;
use crate::moving::{MigrationSources, MigrationTargets};
use crate::node::{Caller, Service};
use crate::replication::{Outlook, Replicator};
use body::HeldBodies;
use copying::LogCopies;
use counter_requests::CounterRequests;
use deciding::OwnDecisions;
use durable::Durable;
use expiry::ExpiryClock;
use feeds::Feeds;
use loads::{Loads, RequestCounts};
use pace::Pace;
use recoveries::Recoveries;
use resolving::Resolver;
pub use resolving::{SILENCE, TabletAddresses};
use sprat_disk::Disk;
use sprat_log::{Full, Log, Ref};
use sprat_net::{EventCounter, Figure, Nanos, Sources};
use sprat_redis::Front;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, RequestId, Requester, Response};
use sprat_wire::certificate::Certificate;
use sprat_wire::expiry::Time;
use sprat_wire::once::COMPLETION_RETENTION;
use sprat_wire::op::{Request, Status};
use sprat_wire::tablet::{Range, Tablet};
use stats::Counts;
use std::time::{Duration, Instant};
use timing::{Mark, Timing};
use waiting::Waiting;

/// Interval between two sweeps that give free memory back to the kernel. Memory that is free at two
/// of them, and was not used between them, is given back.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The tablets that the coordinator has assigned to this server.
#[derive(Default)]
struct ServedTablets {
    /// The tablets that this server serves, ascending; `None` until the first assignment.
    tablets: Option<Vec<Tablet>>,
    /// Requests to each tablet of `tablets` since the last load report.
    requests: Vec<RequestCounts>,
    /// All tablets that may have objects in the log: those that are served, and those that are
    /// being recovered or are moving here. `None` until the first assignment.
    held: Option<Vec<Tablet>>,
    version: u64,
}

impl ServedTablets {
    /// Returns the index of the tablet that covers the request's position, and that position. If
    /// the table's first tablet on this server is the whole table, the position is zero. Otherwise
    /// `position` computes it, given that first tablet.
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

/// What a backup must know of servers: which masters may get leases, and whose replicas it must
/// keep. It may free the replicas of a master with an id below `below` that is not in `masters`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KnownServers {
    /// Ids of the servers that the coordinator counts as alive, ascending.
    pub members: Vec<u32>,
    /// Ids of the masters whose replicas are needed, ascending: the members, and dead servers that
    /// are not recovered yet.
    pub masters: Vec<u32>,
    /// A backup knows nothing of masters with this id or a higher one, so it keeps their replicas.
    pub below: u32,
}

/// Number of keys between the two prefetches of a key. The key's line of the hash table is
/// prefetched as soon as the key is known, and its entry after this many more keys are known.
const PREFETCH_DISTANCE: usize = 4;

/// The master: serves the tablets that the coordinator assigns to it, from a [`Log`] in memory.
///
/// It is a [`Service`] without thread, clock or network of its own: a [`crate::node::Node`] calls
/// it with the current time. Build it with [`new`](Self::new) (durable on a local disk, or not at
/// all) or [`replicated`](Self::replicated) (durable on backups). Then a control thread sends
/// [`Command`]s through the [`Outbox`] that belongs to the master's [`Inbox`]. Until the first
/// [`Command::Assign`] the master asks clients to retry.
///
/// A reply to a read, a scan or a change leaves when everything that it reveals is durable. Until
/// then it waits in a bounded queue, and each session has a share of that queue. After its lease
/// ends, a master asks clients to retry. When nothing can become durable any more, the master
/// refuses writes ([`stopped`](Self::stopped)), but still answers reads of what is durable.
pub struct Master<D: Disk> {
    log: Log,
    durable: Durable<D>,
    served: ServedTablets,
    recoveries: Recoveries,
    resolver: Resolver,
    own_decisions: OwnDecisions,
    migration_targets: MigrationTargets,
    migration_sources: MigrationSources,
    loads: Loads,
    known_servers: Option<KnownServers>,
    /// The time until which this server may answer requests by leases of backups.
    backup_lease: Nanos,
    inbox: Inbox,
    waiting: Waiting,
    counter_requests: CounterRequests,
    feeds: Feeds,
    held: HeldBodies,
    prefetch_queue: PrefetchQueue<PREFETCH_DISTANCE>,
    access_rules: AccessRules,
    /// The server's Redis clients, if it serves any.
    redis: Option<Box<Front>>,
    copies: LogCopies,
    /// While a batch is executed: the log position for which its answers must wait, as far as it is
    /// known.
    batch_position: Option<u64>,
    /// While the last operation of a transaction is executed, which has all others prepared in this
    /// log: whether it is committed instead of prepared.
    commits_last: bool,
    /// The answers to the operations of a batch; reused by each batch.
    batch_answers: Vec<u8>,
    /// References that a scan finds; reused by each scan.
    found: Vec<Ref>,
    counts: Counts,
    /// When the log next forgets the completions of clients that have been silent.
    age_at: Nanos,
    /// When to go on with giving free memory back to the kernel.
    sweep_at: Nanos,
    expiry_clock: ExpiryClock,
    /// Log position behind the last removal. A reply "not found" waits until the log is durable up
    /// to this position, since the object may have been removed.
    removed_at: u64,
    /// The log position behind the last change of an element of a collection: until everything
    /// before it is durable, no client may learn how many elements there are, or which.
    elements_changed_at: u64,
    /// Why the master takes no more writes; `None` while it takes them.
    stopped: Option<String>,
    /// Times of requests and loop iterations, if they are measured.
    timing: Option<Timing>,
    /// When the node's clock began. `None`: leases are compared with the `now` that the loop
    /// passes.
    clock: Option<Instant>,
    /// How often the coordinator had declared this process dead before this master was created.
    deaths: u64,
}

impl<D: Disk> Master<D> {
    /// Creates a master of the objects in `log`, which `backup` makes durable; without a backup,
    /// nothing is durable. It serves no table until [`Command::Assign`] arrives through `inbox`.
    pub fn new(log: Log, backup: Option<Backup<D>>, inbox: Inbox) -> Self {
        let durable = backup
            .map_or(Durable::Nothing, |backup| Durable::Disk(Box::new(backup), Pace::default()));
        Self::with_durability(log, durable, inbox)
    }

    /// Creates a master of the objects in `log`, whose segments `replicator` keeps on the cluster's
    /// backups.
    pub fn replicated(log: Log, replicator: Replicator, inbox: Inbox) -> Self {
        Self::with_durability(log, Durable::Servers(Box::new(replicator)), inbox)
    }

    fn with_durability(log: Log, durable: Durable<D>, inbox: Inbox) -> Self {
        // What the restored log left out because it has expired is missing once this is recorded.
        let removed_at = if matches!(durable, Durable::Disk(..)) { log.position() } else { 0 };
        Self {
            log,
            durable,
            served: ServedTablets::default(),
            recoveries: Recoveries::default(),
            resolver: Resolver::default(),
            own_decisions: OwnDecisions::default(),
            migration_targets: MigrationTargets::default(),
            migration_sources: MigrationSources::default(),
            loads: Loads::default(),
            known_servers: None,
            backup_lease: Nanos(0),
            inbox,
            waiting: Waiting::default(),
            counter_requests: CounterRequests::default(),
            feeds: Feeds::default(),
            held: HeldBodies::default(),
            prefetch_queue: PrefetchQueue::default(),
            access_rules: AccessRules::default(),
            redis: None,
            copies: LogCopies::default(),
            batch_position: None,
            commits_last: false,
            batch_answers: Vec::new(),
            found: Vec::new(),
            counts: Counts::default(),
            age_at: Nanos(0),
            sweep_at: Nanos(0),
            expiry_clock: ExpiryClock::default(),
            removed_at,
            elements_changed_at: removed_at,
            stopped: None,
            timing: None,
            clock: None,
            deaths: 0,
        }
    }

    /// Measures requests and loop iterations. The counters then include `request_p50_ns` and
    /// `longest_round_ns`, both for the time since the counters were last read, and counters of the
    /// thread (`thread_..`). Takes 20 ms to calibrate the clock.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timing: Some(Timing::new(None)), ..self }
    }

    /// Compares leases with a clock that started at `begun`, when the node's clock started.
    #[must_use]
    pub fn clocked(self, begun: Instant) -> Self {
        Self { clock: Some(begun), ..self }
    }

    /// Sets the time by which objects expire, when the node's clock started. Without this call it
    /// is the beginning of 1970.
    #[must_use]
    pub fn with_time(self, time: Time) -> Self {
        Self { expiry_clock: ExpiryClock::new(time), ..self }
    }

    /// Sets how often this process was declared dead before it started again, for the counters.
    #[must_use]
    pub fn after_deaths(self, deaths: u64) -> Self {
        Self { deaths, ..self }
    }

    /// Counts an event (instructions, cycles) for each request with `count`, in place of time.
    /// `count` counts on the calling thread, which must be the node's thread. The counters of
    /// requests are then means in thousandths of an event (`request_events_milli`), without the
    /// events of the counting itself. Takes 20 ms to calibrate the clock.
    #[must_use]
    pub fn counted(self, count: EventCounter) -> Self {
        Self { timing: Some(Timing::new(Some(count))), ..self }
    }

    /// Returns the log, to inspect.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Renders the master's state for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let ServedTablets { tablets, version, .. } = &self.served;
        let tablets: Vec<_> = tablets.iter().flatten().map(Tablet::to_string).collect();
        let (tablets, replicator) =
            (tablets.join(", "), self.replicator().map(Replicator::describe).unwrap_or_default());
        let moves =
            [self.migration_targets.describe(), self.migration_sources.describe()].join("; ");
        format!(
            "serves {tablets} of version {version}; {replicator}; {}; {moves}",
            self.recoveries.describe()
        )
    }

    /// Returns the replicator, if the log is kept on other servers.
    pub fn replicator(&self) -> Option<&Replicator> {
        if let Durable::Servers(replicator) = &self.durable { Some(replicator) } else { None }
    }

    /// Returns why the master takes no more writes; `None` while it takes them.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// If the log is on this node's disk: makes the rest of the log durable, as far as the disk has
    /// room, and closes the log cleanly. Bytes without room were never acknowledged. Blocks.
    ///
    /// # Errors
    /// [`Failed`] when a request to the disk fails or has failed before. The next start then finds
    /// a log that was not closed cleanly, and replays it as after a crash.
    pub fn close(mut self, now: Nanos) -> Result<(), Failed> {
        self.durable.close(now, &mut self.log)
    }

    /// Records that the request at hand has reached a stage.
    #[inline]
    fn mark(&mut self, mark: Mark) {
        if let Some(timing) = &mut self.timing {
            timing.mark(mark);
        }
    }

    /// Returns whether this server may still answer requests for its tables: after its lease ends,
    /// another server may answer them. Reads the clock again, if the master has one
    /// ([`clocked`](Self::clocked)), since `now` was taken before the request arrived and the
    /// thread may have been descheduled since.
    #[inline]
    fn is_leased(&self, now: Nanos) -> bool {
        let lease = self.inbox.lease().max(self.backup_lease);
        lease == Nanos::NEVER || self.clock.map_or(now, |begun| Nanos(0) + begun.elapsed()) < lease
    }

    /// Returns whether clients may learn of what is in the log up to `position`: it is durable, and
    /// no backup that is being made [holds it back](sprat_wire::op::CopyStep).
    #[inline]
    fn is_durable(&self, position: u64) -> bool {
        self.durable.is_nothing()
            || position <= self.log.durable_position().min(self.copies.revealed())
    }

    /// Returns whether clients may learn of an object: it is durable, and no backup that is being
    /// made may hold it back.
    #[inline]
    fn is_revealed(&self, found: Ref) -> bool {
        !self.copies.holds() && self.log.is_durable(found)
    }

    /// Returns whether replies wait for backups that are missing or refuse replicas.
    #[inline]
    fn is_bleak(&self) -> bool {
        self.replicator().is_some_and(|replicator| replicator.outlook() == Outlook::Bleak)
    }

    /// Seals the head and opens another when the head's frame on disk, or one of its replicas, has
    /// no room for an entry of `len` bytes; a group has its room from the beginning. If `removes`,
    /// the new head may be a segment that is reserved for removals on a full disk.
    ///
    /// # Errors
    /// When no new head can be opened now: [`Full::Disk`] if the disk is full,
    /// [`Full::Replication`] otherwise.
    #[inline]
    fn seal_if_short(&mut self, len: usize, removes: bool) -> Result<(), Full> {
        if self.log.is_in_group() || self.durable.has_room(&self.log, len) {
            return Ok(());
        }
        match if removes { self.log.roll_head_to_remove() } else { self.log.roll_head() } {
            true => Ok(()),
            false if self.log.lacks_disk() => Err(Full::Disk),
            false => Err(Full::Replication),
        }
    }

    /// Stops accepting writes. From now on [`take_ready`](Service::take_ready) fails all replies
    /// that wait for something to become durable.
    fn stop_writes(&mut self, reason: String) {
        tracing::error!("no longer accepts writes: {reason}");
        self.backup_lease = Nanos(0);
        self.stopped = Some(reason);
    }

    /// Replies that an operation was executed and will not become durable here. If this server is
    /// being recovered, the operation may have been recovered with it, so the client is to try
    /// again at the server that takes over. It must not take the operation for one that was not
    /// executed: this server may have sent replicas of it.
    fn lost(&mut self) -> Outcome<MasterBody> {
        if self.replicator().is_some_and(Replicator::is_fenced) {
            self.counts.turned_away += 1;
            let micros = operations::BUSY_MICROS.into();
            return Outcome::Reply(answer(Status::Busy, true, 0, micros, Repeat::Retain));
        }
        self.writes_stopped()
    }

    /// Replies that this server takes no writes, and has not executed this one. If it is being
    /// recovered, the client is to try again at the server that takes over.
    fn writes_stopped(&mut self) -> Outcome<MasterBody> {
        if self.replicator().is_some_and(Replicator::is_fenced) {
            self.counts.turned_away += 1;
            return Outcome::Retry(operations::BUSY_MICROS);
        }
        let reason = self.stopped.clone().unwrap_or_default();
        answer_text(&mut self.held.made, Status::WritesStopped, &reason)
    }

    fn assign(&mut self, assigned: MasterAssignment) {
        let MasterAssignment {
            version,
            mut tablets,
            members,
            mut masters,
            next_server,
            orders,
            names,
            leaving,
            arriving,
            evicting,
            sort_orders,
        } = assigned;
        self.access_rules.set_table_names(names);
        tablets.sort_unstable();
        masters.sort_unstable();
        let is_served =
            |table, position| ServedTablets::find(&tablets, table, |_| position).is_some();
        let mut ended = self.recoveries.assign(orders, &members, is_served);
        self.migration_sources.assign(&self.log, &leaving);
        ended.extend(self.migration_targets.assign(&arriving, &members));
        let held: Vec<Tablet> = tablets
            .iter()
            .copied()
            .chain(self.recoveries.tablets())
            .chain(self.migration_targets.tablets())
            .collect();
        let of = |tablets: &[Tablet], table: u32| -> Vec<Range> {
            tablets
                .iter()
                .filter(|tablet| tablet.table == table)
                .map(|tablet| tablet.range)
                .collect()
        };
        let held_before = self
            .served
            .held
            .take()
            .unwrap_or_else(|| self.log.tables().map(Tablet::whole).collect());
        let served_before = self.served.tablets.take().unwrap_or_default();
        let mut dropped = 0;
        let gone: Vec<u32> = self.log.tables().filter(|&id| of(&held, id).is_empty()).collect();
        for id in gone {
            dropped += 1;
            self.log.drop_table(id);
        }
        // Drop objects of tablets that are not here any more. Drop also a tablet that was served
        // here before, or whose recovery or move to this server was aborted, when it is ordered to
        // come here again. Objects that are left of it may have been removed elsewhere since, and
        // they lie in segments that will not count.
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
            replicator.set_backups(&members);
        }
        // Of a tablet that arrives, each object comes in its present version, and again when it
        // changes. So objects may be evicted before the tablet is whole. Of a tablet that is
        // recovered, an older version may come after a newer one.
        let arriving = arriving.iter().map(|order| order.tablet);
        let here = tablets.iter().copied().chain(arriving);
        let evictable = here.filter(|tablet| evicting.contains(&tablet.table));
        self.log.set_evictable(evictable.collect());
        self.feeds.assign(&tablets);
        self.log.set_orders(&sort_orders);
        let before =
            |tablet| served_before.binary_search(tablet).ok().map(|at| self.served.requests[at]);
        let requests = tablets
            .iter()
            .map(|tablet| before(tablet).unwrap_or_else(|| RequestCounts::of(*tablet)));
        self.served = ServedTablets {
            requests: requests.collect(),
            tablets: Some(tablets),
            held: Some(held),
            version,
        };
        let mut members: Vec<u32> = members.iter().map(|member| member.server).collect();
        members.sort_unstable();
        self.known_servers = Some(KnownServers { members, masters, below: next_server });
        self.inbox.applied(version);
    }

    /// Returns what an assignment since the last call says of the cluster's servers.
    pub fn take_known_servers(&mut self) -> Option<KnownServers> {
        self.known_servers.take()
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Assign(assigned) => self.assign(*assigned),
            Command::Voided(segment) => {
                if let Durable::Servers(replicator) = &mut self.durable {
                    replicator.confirm(segment, &mut self.log);
                }
            }
            Command::Located(table, addresses) => self.resolver.located(table, addresses),
            Command::Stats(reply) => self.counter_requests.add_command(reply),
            Command::RedisTable(request, table) => {
                if let Some(front) = &mut self.redis {
                    front.set_table(request, table);
                }
            }
        }
    }
}

impl<D: Disk> Handler for Master<D> {
    type Body = MasterBody;

    #[inline]
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<MasterBody> {
        self.mark(Mark::Entered);
        let parsed = Request::parse_with_id(payload);
        self.mark(Mark::Parsed);
        let outcome = match parsed {
            Ok((request, operation)) => {
                self.decide_before(now, &request);
                self.dispatch(now, id, &request, operation.as_ref())
            }
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
            self.prefetch_queue.expect(&self.log, table, key);
        }
    }

    fn admitted(&mut self, who: Requester, certificate: &Certificate) {
        self.access_rules.admit(who, certificate);
    }

    #[inline]
    fn gather(&self, body: MasterBody) -> &[u8] {
        self.held.bytes(&self.log, body)
    }

    #[inline]
    fn release(&mut self, body: MasterBody) {
        self.held.release(&mut self.log, body);
    }

    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let answer = result.as_deref().map_err(|failure| *failure);
        let replicates = match &mut self.durable {
            Durable::Servers(replicator) => replicator.completed(now, call, answer, &mut self.log),
            Durable::Nothing | Durable::Disk(..) => false,
        };
        if !replicates
            && !self.recoveries.completed(call, answer)
            && !self.resolver.completed(now, call, answer)
        {
            self.migration_targets.completed(now, call, answer);
        }
    }
}

impl<D: Disk> Service for Master<D> {
    fn poll(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        while let Some(command) = self.inbox.take() {
            self.apply(command);
            worked = true;
        }
        if now >= self.age_at {
            self.age_at = now + COMPLETION_RETENTION;
            self.log.age_clients();
        }
        if let Some(segment) = self.replicator().and_then(Replicator::min_open) {
            self.inbox.wants_min_open(segment);
        }
        // Before the log is written, so that what clients change now is written now.
        worked |= self.turn_redis(now);
        if self.stopped.is_none() {
            match self.durable.poll(now, &mut self.log) {
                Ok(progressed) => worked |= progressed,
                Err(reason) => self.stop_writes(reason),
            }
        }
        // Loads are reported only to a coordinator, so a server without a coordinator reports none.
        if now >= self.loads.due() && self.inbox.lease() != Nanos::NEVER {
            let ServedTablets { tablets, requests, .. } = &mut self.served;
            let loads =
                self.loads.report(now, &self.log, tablets.as_deref().unwrap_or_default(), requests);
            self.inbox.loads(self.log.capacity() as u64, loads);
        }
        if now >= self.sweep_at {
            let (_, is_over) = self.log.sweep_free_memory();
            if is_over {
                self.sweep_at = now + SWEEP_INTERVAL;
            }
            worked |= !is_over;
        }
        worked |= self.copies.poll(now, &mut self.log);
        worked |= self.poll_feeds(now);
        worked |= self.log.order_step();
        worked |= self.recoveries.poll(now, &mut self.log, &self.inbox);
        if self.stopped.is_none() {
            self.note_evicted();
            worked |= self.poll_decisions(now) | self.poll_resolver(now) | self.poll_expiry(now);
        }
        worked |= self.reply_to_redis(now);
        worked
            | (self.recoveries.has_forgotten()
                && self.migration_targets.poll(&mut self.log, &self.inbox))
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<MasterBody>)> {
        if let Some(answered) = self.counter_requests.take().or_else(|| self.feeds.take()) {
            return Some(answered);
        }
        if let Some(waiter) =
            self.waiting.pop(self.log.durable_position().min(self.copies.revealed()))
        {
            return Some((waiter.id, Outcome::Reply(waiter.reply)));
        }
        if self.stopped.is_some() {
            let waiter = self.waiting.abandon()?;
            if let Some(body) = waiter.reply.body() {
                self.release(body);
            }
            return Some((waiter.id, self.lost()));
        }
        if self.is_bleak() {
            let waiter = self.waiting.abandon()?;
            if let Some(body) = waiter.reply.body() {
                self.release(body);
            }
            return Some((waiter.id, self.too_few_servers(true)));
        }
        None
    }

    #[inline]
    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if self.stopped.is_none() {
            self.durable.call(now, &mut self.log, caller);
            self.backup_lease = self.durable.backup_lease(now, self.inbox.lease(), caller);
            self.recoveries.call(now, caller);
            self.migration_targets.call(now, caller);
            self.call_resolver(now, caller);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let loads = Some(self.loads.due()).filter(|_| self.inbox.lease() != Nanos::NEVER);
        let deadlines = [
            self.durable.deadline(),
            self.durable.lease_deadline(self.inbox.lease()),
            self.recoveries.next_deadline(),
            self.migration_targets.next_deadline(),
            self.resolver_deadline(),
            self.decisions_deadline(),
            self.expiry_deadline().filter(|_| self.stopped.is_none()),
            self.copies.next_deadline(),
            self.feeds.next_deadline(),
            self.redis.as_ref().and_then(|front| front.next_deadline()),
            Some(self.sweep_at),
            loads,
        ];
        deadlines.into_iter().flatten().min()
    }

    fn work_idle(&mut self) -> bool {
        // A request that arrives now waits for one slice only.
        !self.log.clean(1).idle
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.timing.is_some()
    }

    fn request_timed(&mut self, arrived: u64, departed: u64) {
        if let Some(timing) = &mut self.timing {
            timing.request(arrived, departed);
        }
    }

    fn loop_iteration(&mut self, ticks: u64) {
        if let Some(timing) = &mut self.timing {
            timing.iteration(ticks);
        }
    }

    #[inline]
    fn wants_network_figures(&self) -> bool {
        self.counter_requests.are_waiting()
    }

    fn network_figures(&mut self, network: Vec<Figure>) {
        let mut figures: Vec<_> =
            self.counters().into_iter().map(|(name, value)| Figure::new(name, value)).collect();
        self.recoveries.figures(&mut figures);
        figures.extend(network);
        self.counter_requests.answer_all(
            &figures,
            self.served.version,
            &mut self.held,
            operations::BUSY_MICROS,
        );
    }

    fn sources<'a>(&'a self, sources: &mut Sources<'a>) {
        sources.extend(self.durable.poll_fd());
        sources.extend(self.redis.as_ref().map(|front| front.fd()));
    }

    fn drain(&mut self) {
        if let Some(front) = &mut self.redis {
            front.drain();
        }
    }

    fn is_idle(&self) -> bool {
        self.redis.as_ref().is_none_or(|front| front.is_idle())
    }
}
