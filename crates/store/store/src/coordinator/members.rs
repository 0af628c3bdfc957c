//! Tracks which servers are alive, grants their leases, and has other servers recover the tablets
//! of dead ones.
//!
//! A server whose log is kept by other servers holds a lease: it may serve its tables for [`LEASE`]
//! from when it sent its poll, by its own clock. The coordinator declares the server dead when
//! [`LEASE`] has passed since the coordinator replied, by the coordinator's clock. The clocks may
//! run apart by [`DRIFT`]. So the server ends its lease one part in [`DRIFT`] earlier, and the
//! coordinator waits one part longer. A server that the coordinator cannot reach may answer
//! longer, by leases of its backups: its recovery waits for them ([`crate::replication`]).

use super::balance::{Objective, PlannedMove};
use super::catalog::{Catalog, MAX_ALL_TABLETS, Refusal};
use super::entries::TableEntry;
use super::loads::LoadReports;
use super::metadata::Metadata;
use sprat_net::Nanos;
use sprat_wire::op::{Assignment, Load, MoveOrder, RecoveryOrder, ServerRecord, WhenFull};
use sprat_wire::tablet::{MAX_TABLETS, Tablet};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a server may serve after it sent the last poll that the coordinator answered.
pub const LEASE: Duration = Duration::from_millis(400);

/// Interval at which a server renews its lease. It is so short that a server whose poll is lost
/// together with the coordinator has time to notice the loss and to find the next leader.
pub const RENEWAL: Duration = Duration::from_millis(50);

/// Clocks run apart by at most one part in this number. Leases are safe only as long as that holds.
pub const DRIFT: u32 = 1000;

/// How long a server may take for its first poll after it enlisted, or after the coordinator began
/// to lead.
pub const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may be silent before it is given no more tablets.
pub const ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// If the coordinator finds that a lease expired longer ago than this, the coordinator was
/// suspended meanwhile and may have missed polls. So it gives the server time for another poll.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// How long a new leader waits for the polls of live servers before it distributes recovery tasks
/// among them.
const GATHERING: Duration = Duration::from_millis(200);

/// Bits of a task's id below those of the leader's incarnation.
const TASK_BITS: u32 = 24;

/// How long a server must have been in contact with the coordinator before balancing moves tablets
/// to it or from it.
const SETTLED: Duration = Duration::from_secs(5);

/// The shortest time between two searches for the next move. [`Membership::poll`] runs at each
/// request, and a search visits all tablets, so it must not search each time.
const MOVE_INTERVAL: Duration = Duration::from_millis(20);

/// The shortest time from a move for memory or requests to the next balancing move. Within this
/// time the servers report loads that include the effect of the first move.
const BALANCE_INTERVAL: Duration = Duration::from_secs(3);

/// Delay before the next move after one has failed.
const MOVE_RETRY: Duration = Duration::from_secs(30);

/// The largest number of parts into which a tablet is divided for its recovery.
const MAX_PARTS: usize = 64;

/// The fewest positions in a part that recovery makes. Tablets are never merged again, so repeated
/// deaths of servers would otherwise divide a table without end.
const LEAST_PART: u64 = 1 << 55;

/// Contact with a server since this coordinator began to lead.
#[derive(Clone, Copy)]
struct Contact {
    first: Nanos,
    at: Nanos,
    /// Version of the assignments that the server serves.
    applied: u64,
    /// The time at which the server is declared dead, unless it polls before. For a server that may
    /// hold a lease from the previous leader, the time may be later: see [`Membership::gone_at`].
    gone_at: Nanos,
    /// When the last request arrived that is not a poll, until the server has had time to poll
    /// after the answer.
    asked: Option<Nanos>,
}

impl Contact {
    /// A contact that begins now.
    fn begun(now: Nanos, applied: u64) -> Self {
        Self { first: now, at: now, applied, gone_at: now + FIRST_POLL_TIMEOUT, asked: None }
    }
}

/// Tablets of the dead server `gone` that the server `by` recovers.
struct Task {
    /// Unique in the cluster for ever, so that a report on a task of a previous leader is
    /// recognized as outdated.
    id: u64,
    gone: u32,
    by: u32,
    /// Ascending, each with the first segment whose entries count for the tablet.
    tablets: Vec<(Tablet, u64)>,
    failure: Option<String>,
    /// The servers that have no room for the task's only tablet, which cannot be divided.
    full: Vec<u32>,
}

/// The state of all servers: contacts, leases, recovery tasks and loads. It is not durable: a new
/// leader rebuilds it from the polls of servers.
#[derive(Default)]
pub(super) struct Membership {
    contacts: BTreeMap<u32, Contact>,
    tasks: Vec<Task>,
    /// Number of tasks that this coordinator has made since it began to lead.
    ordered: u64,
    /// Tablets that a server got in a version of the catalog that it has not applied yet.
    moved: Vec<(Tablet, u32, u64)>,
    loads: LoadReports,
    /// When the next move is looked for.
    move_from: Nanos,
    /// When the next balancing move may begin. Before that time, loads do not include the last
    /// move.
    balance_from: Nanos,
    /// The catalog version that this leader began; zero if it is the cluster's only coordinator.
    first_version: u64,
    /// The time until which servers that have not applied `first_version` may hold a lease from the
    /// previous leader.
    declare_dead_from: Nanos,
    /// When recovery tasks are distributed for the first time; zero afterwards.
    distribute_from: Nanos,
    /// The inputs with which there was nothing left to distribute.
    distributed: Option<DistributionInputs>,
}

/// Everything on which the distribution of recovery tasks depends: the catalog's version, the
/// number of tasks so far, the number of tasks at present, and the servers that may get tasks.
type DistributionInputs = (u64, u64, usize, Vec<u32>);

impl Membership {
    /// Returns the state of a leader that began to lead at `now` with `first_version`. Leases of
    /// the previous leader last until `declare_dead_from` at most.
    pub(super) fn for_leader(now: Nanos, first_version: u64, declare_dead_from: Nanos) -> Self {
        let distribute_from = now + GATHERING;
        Self { first_version, declare_dead_from, distribute_from, ..Self::default() }
    }

    /// Returns the time at which a server is declared dead, unless it polls before. A server that
    /// has applied a version of this leader accepts no more leases from previous ones.
    fn gone_at(&self, contact: &Contact) -> Nanos {
        if contact.applied >= self.first_version {
            contact.gone_at
        } else {
            contact.gone_at.max(self.declare_dead_from)
        }
    }

    /// Notes that a server has enlisted.
    pub(super) fn enlisted(&mut self, now: Nanos, server: u32) {
        self.contacts.insert(server, Contact::begun(now, 0));
    }

    /// Records a request of a server that is not a poll.
    ///
    /// The server polls when it has the answer. To record what servers report, the coordinator
    /// writes its metadata, several times in a row if several servers report. On a slow disk that
    /// once took as long as a lease, and the coordinator found that the servers had been silent.
    pub(super) fn asked(&mut self, now: Nanos, server: u32) {
        if let Some(contact) = self.contacts.get_mut(&server) {
            contact.asked = Some(now);
        }
    }

    /// Records a poll of a server that serves version `applied`. Returns false if the catalog lacks
    /// the server or has declared it dead. Returns false also for a server without replicas that
    /// has not enlisted since this coordinator began to lead.
    pub(super) fn polled<M: Metadata>(
        &mut self,
        now: Nanos,
        server: u32,
        applied: u64,
        catalog: &Catalog<M>,
    ) -> bool {
        let leased = catalog.server(server).is_some_and(|entry| entry.copies > 0 && !entry.dead);
        match self.contacts.get_mut(&server) {
            Some(contact) => {
                (contact.at, contact.applied) = (now, applied);
                // The poll is answered in the next iteration at the earliest. A coordinator whose
                // disk was slow may find now that the lease is over.
                contact.gone_at = contact.gone_at.max(now + LEASE);
            }
            // The server got its lease from the previous leader, or before this coordinator's
            // restart.
            None if leased => {
                self.contacts.insert(server, Contact::begun(now, applied));
            }
            None => return false,
        }
        leased || catalog.server(server).is_some_and(|entry| entry.copies == 0)
    }

    /// Records a server's report of the load of its tablets.
    pub(super) fn record_loads(&mut self, server: u32, capacity: u64, loads: &[Load]) {
        if self.contacts.contains_key(&server) {
            self.loads.record(server, capacity, loads);
        }
    }

    /// Returns whether a server has applied `version` or a later one.
    pub(super) fn has_applied(&self, server: u32, version: u64) -> bool {
        self.contacts.get(&server).is_some_and(|contact| contact.applied >= version)
    }

    /// Returns whether a server is known to serve a tablet that the catalog assigns to it. This is
    /// false if the server is dead, has applied no version yet, or has not applied the version in
    /// which it got the tablet. A server whose log has no replicas always counts as serving, and so
    /// does a server that the catalog lacks.
    pub(super) fn serves<M: Metadata>(
        &self,
        server: u32,
        tablet: Tablet,
        catalog: &Catalog<M>,
    ) -> bool {
        let meets = |other: &Tablet| {
            other.table == tablet.table && other.range.overlap(tablet.range).is_some()
        };
        let taken = |&(ref moved, by, version): &(Tablet, u32, u64)| {
            (by == server && meets(moved)).then_some(version)
        };
        match catalog.server(server) {
            Some(entry) if entry.copies > 0 => {
                !entry.dead
                    && self
                        .has_applied(server, self.moved.iter().filter_map(taken).max().unwrap_or(1))
            }
            _ => true,
        }
    }

    /// Returns the time since a server last polled or enlisted; `None` if it did neither since this
    /// coordinator began to lead.
    pub(super) fn silence(&self, now: Nanos, server: u32) -> Option<Duration> {
        self.contacts.get(&server).map(|contact| now.since(contact.at))
    }

    /// Returns the servers that may be given tablets.
    pub(super) fn alive<M: Metadata>(&self, now: Nanos, catalog: &Catalog<M>) -> Vec<u32> {
        let alive = |(&id, contact): (&u32, &Contact)| {
            let entry = catalog.server(id).filter(|entry| !entry.dead)?;
            let holds_lease = entry.copies == 0 || self.gone_at(contact) > now;
            (holds_lease && now.since(contact.at) < ALIVE_TIMEOUT).then_some(id)
        };
        self.contacts.iter().filter_map(alive).collect()
    }

    /// Returns the servers that may recover tablets of dead ones.
    fn candidates<M: Metadata>(&self, now: Nanos, catalog: &Catalog<M>) -> Vec<u32> {
        let keeps_replicas = |&id: &u32| catalog.server(id).is_some_and(|entry| entry.copies > 0);
        self.alive(now, catalog).into_iter().filter(keeps_replicas).collect()
    }

    /// Returns whether a server recovers tablets, or a tablet moves from it or to it.
    pub(super) fn is_busy<M: Metadata>(&self, server: u32, catalog: &Catalog<M>) -> bool {
        self.tasks.iter().any(|task| task.by == server)
            || catalog.moves().any(|order| order.concerns(server))
    }

    /// Makes the reply to the poll of a server that has version `known`, and renews the server's
    /// lease. If nothing has changed for the server, the reply has only the lease.
    pub(super) fn assignment<M: Metadata>(
        &mut self,
        now: Nanos,
        (server, known): (u32, u64),
        catalog: &Catalog<M>,
    ) -> Assignment {
        let leased = catalog.server(server).filter(|entry| entry.copies > 0);
        if leased.is_some()
            && let Some(contact) = self.contacts.get_mut(&server)
        {
            contact.gone_at = now + LEASE + LEASE / DRIFT;
        }
        let lease_micros =
            if leased.is_some() { u64::try_from(LEASE.as_micros()).expect("short") } else { 0 };
        let moves = || catalog.moves().filter(|order| order.concerns(server));
        if known == catalog.version() && !self.is_busy(server, catalog) {
            return Assignment { lease_micros, ..Assignment::default() };
        }
        let replicating = || catalog.servers().filter(|(_, entry)| entry.copies > 0);
        let member = |(id, entry): (u32, &super::ServerEntry)| ServerRecord {
            id,
            silent_ms: 0,
            locator: entry.locator.clone(),
            rack: entry.rack.clone(),
        };
        let order = |task: &Task| RecoveryOrder {
            id: task.id,
            master: task.gone,
            min_open: catalog.server(task.gone).map_or(0, |entry| entry.min_open),
            askers: u32::try_from(
                self.tasks.iter().filter(|other| other.gone == task.gone).count(),
            )
            .expect("few"),
            tablets: task.tablets.clone(),
        };
        let recovers = |id: u32| {
            let mut tasks = self.tasks.iter().filter(|task| task.by == server);
            tasks.any(|task| task.tablets.iter().any(|(tablet, _)| tablet.table == id))
        };
        Assignment {
            tablets: catalog.tablets_of(server).iter().map(|owned| owned.tablet).collect(),
            lease_micros,
            min_open: leased.map_or(0, |entry| entry.min_open),
            members: replicating().filter(|(_, entry)| !entry.dead).map(member).collect(),
            masters: replicating().map(|(id, _)| id).collect(),
            next_server: catalog.next_server(),
            orders: self.tasks.iter().filter(|task| task.by == server).map(order).collect(),
            names: catalog.names_of(server),
            moves: moves().copied().collect(),
            evicting: catalog
                .tables_of(server, recovers)
                .filter(|table| table.when_full == WhenFull::Evict)
                .map(|table| table.id)
                .collect(),
            sort_orders: catalog
                .tables_of(server, recovers)
                .flat_map(TableEntry::sort_orders)
                .collect(),
        }
    }

    /// Declares servers dead whose leases have expired, distributes the recovery of their tablets,
    /// and begins moves.
    pub(super) fn poll<M: Metadata>(&mut self, now: Nanos, catalog: &mut Catalog<M>) {
        let leased: Vec<u32> = catalog
            .servers()
            .filter(|(_, entry)| entry.copies > 0 && !entry.dead)
            .map(|(id, _)| id)
            .collect();
        for &id in &leased {
            let fresh = Contact::begun(now, 0);
            if let Some(contact) = self.contacts.get_mut(&id)
                && let Some(asked) = contact.asked
            {
                contact.gone_at = contact.gone_at.max(now + LEASE);
                // In the iteration in which the request arrived the answer has not left yet, and
                // the clock was read before the request was handled.
                contact.asked = Some(asked).filter(|&asked| asked >= now);
            }
            let gone_at = match self.contacts.get(&id) {
                Some(contact) => self.gone_at(contact),
                None => self.contacts.entry(id).or_insert(fresh).gone_at,
            };
            if gone_at > now {
                continue;
            }
            let marked = now.since(gone_at) <= OVERSLEPT && {
                tracing::warn!("server {id} is gone: its lease has expired");
                let marked = catalog.mark_dead(id);
                if let Err(refusal) = &marked {
                    tracing::error!("cannot note that server {id} is gone: {refusal:?}");
                }
                marked.is_ok()
            };
            if !marked && let Some(contact) = self.contacts.get_mut(&id) {
                contact.gone_at = now + LEASE;
            }
            if catalog.lost().is_some() {
                return;
            }
        }
        let is_alive = |id: u32| catalog.server(id).is_some_and(|entry| !entry.dead);
        self.loads.retain(is_alive);
        self.tasks.retain(|task| is_alive(task.by) && catalog.server(task.gone).is_some());
        let contacts = &self.contacts;
        let applied = |server: u32| contacts.get(&server).map_or(0, |contact| contact.applied);
        self.moved.retain(|&(_, server, version)| is_alive(server) && applied(server) < version);
        if now < self.distribute_from {
            return;
        }
        self.distribute_from = Nanos(0);
        let gone: Vec<u32> =
            catalog.servers().filter(|(_, entry)| entry.dead).map(|(id, _)| id).collect();
        let candidates = self.candidates(now, catalog);
        // The distribution visits all tablets of dead servers, and this function runs at each
        // request. So the distribution is skipped unless something has changed.
        let inputs = (catalog.version(), self.ordered, self.tasks.len(), candidates.clone());
        if self.distributed.as_ref() != Some(&inputs) {
            gone.iter().for_each(|&gone| self.distribute(gone, &candidates, catalog));
            self.distributed = Some(inputs);
        }
        if gone.is_empty() {
            self.move_next(now, &candidates, catalog);
        }
    }

    /// Begins the next move, if there is one. Moves off servers that are being drained come first,
    /// then moves for balance.
    fn move_next<M: Metadata>(&mut self, now: Nanos, candidates: &[u32], catalog: &mut Catalog<M>) {
        if now < self.move_from {
            return;
        }
        self.move_from = now + MOVE_INTERVAL;
        let settled =
            |id: &u32| self.contacts.get(id).is_some_and(|contact| contact.first + SETTLED <= now);
        let settled: Vec<u32> = candidates.iter().copied().filter(settled).collect();
        let next = catalog.next_drained(candidates).or_else(|| {
            let is_due = now >= self.balance_from && self.loads.are_known(&settled);
            let PlannedMove { tablet, to, objective } =
                catalog.next_balanced(&settled, &self.loads).filter(|_| is_due)?;
            if objective != Objective::Number {
                tracing::info!("moving {tablet} to server {to}, which has more {objective:?} left");
                self.balance_from = now + BALANCE_INTERVAL;
            }
            Some((tablet, to))
        });
        if let Some((tablet, to)) = next
            && let Err(refusal) = catalog.begin_move(tablet, to)
        {
            tracing::warn!("cannot move {tablet} to server {to}: {refusal:?}");
            self.move_from = now + MOVE_RETRY;
        }
    }

    /// Ends a move: the target reports that it has the tablet, or why it cannot take it.
    fn move_ended<M: Metadata>(
        &mut self,
        now: Nanos,
        (order, since): (MoveOrder, u64),
        failure: &str,
        catalog: &mut Catalog<M>,
    ) -> Result<(), Refusal> {
        if !failure.is_empty() {
            tracing::warn!("{} cannot move to server {}: {failure}", order.tablet, order.to);
            self.move_from = now + MOVE_RETRY;
            return catalog.end_move(order.id);
        }
        catalog.hand_over(order.id, since)?;
        self.moved.push((order.tablet, order.to, catalog.version()));
        Ok(())
    }

    /// Distributes those tablets of a dead server that no recovery task covers yet among
    /// `candidates`, as recovery tasks. If there are fewer tablets than candidates, each tablet is
    /// divided, so that all candidates take part, as far as the limits on tablets allow.
    fn distribute<M: Metadata>(&mut self, gone: u32, candidates: &[u32], catalog: &Catalog<M>) {
        let tasks = || self.tasks.iter().filter(|task| task.gone == gone);
        let candidates = self.without_task(gone, candidates);
        let free = |tablet: Tablet| {
            let taken = tasks()
                .flat_map(|task| &task.tablets)
                .filter(|(other, _)| other.table == tablet.table);
            tablet.range.without(taken.map(|(other, _)| other.range))
        };
        let open = catalog.tablets_of(gone).into_iter().flat_map(|owned| {
            let table = owned.tablet.table;
            free(owned.tablet).into_iter().map(move |range| (Tablet { table, range }, owned.since))
        });
        let open: Vec<_> = open.collect();
        if open.is_empty() || candidates.is_empty() {
            return;
        }
        let parts = candidates.len().div_ceil(open.len()).min(MAX_PARTS);
        let more = open.len() * parts;
        let divided = open.iter().flat_map(|&(tablet, since)| {
            let parts = self.divisible(tablet, parts as u64, more, catalog);
            let ranges = tablet.range.parts(parts);
            ranges.into_iter().map(move |range| (Tablet { range, ..tablet }, since))
        });
        let divided: Vec<_> = divided.collect();
        for (at, &by) in candidates.iter().enumerate().take(divided.len()) {
            let tablets = divided.iter().copied().skip(at).step_by(candidates.len()).collect();
            let id = self.next_task(catalog);
            self.tasks.push(Task { id, gone, by, tablets, failure: None, full: Vec::new() });
        }
    }

    /// Returns those of `candidates` that recover nothing of the dead server `gone`. Each server
    /// has at most one task for each dead server.
    fn without_task(&self, gone: u32, candidates: &[u32]) -> Vec<u32> {
        let has_task = |by: u32| self.tasks.iter().any(|task| (task.gone, task.by) == (gone, by));
        candidates.iter().copied().filter(|&by| !has_task(by)).collect()
    }

    /// Returns the number of parts, `parts` at most, into which recovery may divide a tablet; 1 if
    /// there would be too many tablets when `more` of them are added to those of all tasks.
    fn divisible<M: Metadata>(
        &self,
        tablet: Tablet,
        parts: u64,
        more: usize,
        catalog: &Catalog<M>,
    ) -> u64 {
        // The parts of all tasks may become tablets, so they count towards the limits on the number
        // of tablets.
        let planned = || self.tasks.iter().flat_map(|task| &task.tablets);
        let of_table = planned().filter(|(other, _)| other.table == tablet.table);
        if catalog.tablet_count() + planned().count() + more > MAX_ALL_TABLETS
            || catalog.tablet_count_of(tablet.table) + of_table.count() + more > MAX_TABLETS
        {
            return 1;
        }
        ((tablet.range.last - tablet.range.first) / LEAST_PART).clamp(1, parts)
    }

    fn next_task<M: Metadata>(&mut self, catalog: &Catalog<M>) -> u64 {
        self.ordered += 1;
        catalog.incarnation() << TASK_BITS | self.ordered
    }

    /// Makes a task smaller whose server has no room for its tablets. Otherwise this server would
    /// try for ever, even while servers that enlisted after the task was made stand idle.
    ///
    /// The server tries again with the first half. [`distribute`](Self::distribute) gives the rest
    /// to servers without a task for this dead server; while there are none, the rest waits until
    /// one of them has recovered its part. A tablet that cannot be divided goes to each server
    /// without a task once; the last of them keeps trying, and says so in its status.
    fn shrink<M: Metadata>(&mut self, now: Nanos, at: usize, catalog: &Catalog<M>) {
        let Task { gone, by, ref tablets, .. } = self.tasks[at];
        let kept = match tablets[..] {
            [(tablet, since)] => {
                let parts = tablet.range.parts(self.divisible(tablet, 2, 1, catalog));
                (parts.len() == 2).then(|| vec![(Tablet { range: parts[0], ..tablet }, since)])
            }
            _ => Some(tablets[..tablets.len() / 2].to_vec()),
        };
        if let Some(kept) = kept {
            tracing::warn!(
                "server {by} has no room for all its part of server {gone}'s tablets: it tries \
                 half of them, and other servers get the rest"
            );
            self.tasks[at].tablets = kept;
        } else {
            let tablet = tablets[0].0;
            let others = self.without_task(gone, &self.candidates(now, catalog));
            let task = &mut self.tasks[at];
            if !task.full.contains(&by) {
                task.full.push(by);
            }
            let next = others.into_iter().find(|other| !task.full.contains(other));
            let Some(next) = next else { return };
            tracing::warn!("server {by} has no room for {tablet}: server {next} tries");
            task.by = next;
        }
        self.tasks[at].id = self.next_task(catalog);
    }

    /// Handles the report of the server `by` on its recovery task or move with id `order`. If
    /// `failure` is empty, the tablets are handed over and the task or move ends. Otherwise a task
    /// continues with the failure recorded, or [`shrink`](Self::shrink)s if its server has
    /// `no_room`, and a move ends.
    ///
    /// # Errors
    /// If the server has no such task or move, or if the catalog returns a [`Refusal`].
    pub(super) fn recovered<M: Metadata>(
        &mut self,
        now: Nanos,
        (by, order, since): (u32, u64, u64),
        (failure, no_room): (&str, bool),
        catalog: &mut Catalog<M>,
    ) -> Result<(), Refusal> {
        if let Some(order) = catalog.find_move(order).filter(|order| order.to == by) {
            return self.move_ended(now, (order, since), failure, catalog);
        }
        let at = self.tasks.iter().position(|task| task.id == order && task.by == by);
        let at = at.ok_or(Refusal::Limit("this recovery was not assigned to this server"))?;
        let gone = self.tasks[at].gone;
        if !failure.is_empty() {
            tracing::warn!("server {by} cannot recover tables of server {gone}: {failure}");
            self.tasks[at].failure = Some(failure.to_owned());
            if no_room {
                self.shrink(now, at, catalog);
            }
            return Ok(());
        }
        let tablets: Vec<Tablet> =
            self.tasks[at].tablets.iter().map(|&(tablet, _)| tablet).collect();
        catalog.take_over(gone, &tablets, by, since)?;
        self.tasks.remove(at);
        self.moved.extend(tablets.into_iter().map(|tablet| (tablet, by, catalog.version())));
        Ok(())
    }

    /// Returns the dead server, and the reason of the newest failure, for each recovery task of
    /// which an attempt has failed and none has succeeded.
    pub(super) fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.tasks.iter().filter_map(|task| Some((task.gone, task.failure.as_deref()?)))
    }

    /// Returns the time at which [`poll`](Self::poll) must be called next.
    pub(super) fn next_deadline<M: Metadata>(&self, catalog: &Catalog<M>) -> Option<Nanos> {
        let leased = catalog.servers().filter(|(_, entry)| entry.copies > 0 && !entry.dead);
        let gone_at = leased.map(|(id, _)| {
            self.contacts.get(&id).map_or(Nanos(0), |contact| self.gone_at(contact))
        });
        // Recovery tasks are distributed at `distribute_from`, even if nothing arrives then.
        gone_at.chain((self.distribute_from > Nanos(0)).then_some(self.distribute_from)).min()
    }
}
