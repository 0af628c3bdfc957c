//! Who lives, for how long each server may answer, and who brings back what the others had.
//!
//! A server whose log is kept by others holds a lease: it may serve its tables for [`LEASE`] from
//! when it asked, by its own clock, and is taken for gone when that is over by the coordinator's,
//! counted from the answer. [`DRIFT`] is what clocks may run apart.

use super::balance::Sake;
use super::catalog::{Catalog, MAX_ALL_TABLETS, Refusal};
use super::loads::Loads;
use super::metadata::Metadata;
use sprat_net::Nanos;
use sprat_wire::op::{Assignment, Load, MoveOrder, RecoveryOrder, ServerRecord};
use sprat_wire::tablet::{MAX_TABLETS, Tablet};
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a server may serve without having heard from the coordinator.
pub const LEASE: Duration = Duration::from_millis(400);

/// How often a server asks, so that its lease goes on: often enough that when its question dies
/// with the coordinator, there is time to notice it and to find the next.
pub const RENEWAL: Duration = Duration::from_millis(50);

/// Clocks run apart by at most one part in this many.
pub const DRIFT: u32 = 1000;

/// How long a server that has just enlisted, or whose coordinator has just started, may take to
/// ask.
pub const FIRST_QUESTION: Duration = Duration::from_secs(5);

/// How long a server without a lease may be silent and still be given tables.
pub const ALIVE: Duration = Duration::from_secs(2);

/// A coordinator that finds a lease over for so long was not there when it ended, and may have
/// missed questions: the server gets time to ask again.
const OVERSLEPT: Duration = Duration::from_millis(100);

/// How long a new leader listens who lives before it has anybody bring tables back.
const GATHERING: Duration = Duration::from_millis(200);

/// Bits of an order's number below those of the version with which its leader began.
const ORDER_BITS: u32 = 24;

/// For how long a server has been there before tablets are moved so that it has as many as others.
const SETTLED: Duration = Duration::from_secs(5);

/// How often it is looked whether a tablet is to move: that goes through all tablets there are, and
/// this room is entered at each request.
const LOOK_FOR_MOVES: Duration = Duration::from_millis(20);

/// From a move to the next for the sake of others, for servers to tell what it has changed.
const TOLD_ANEW: Duration = Duration::from_secs(3);

/// When a tablet is moved again after one could not be.
const NEXT_MOVE: Duration = Duration::from_secs(30);

/// Into how many parts a tablet is divided at most, to be brought back.
const MAX_PARTS: usize = 64;

/// Parts are no smaller: tablets are never joined again, and deaths that go on for long would
/// divide a table for ever.
const LEAST_PART: u64 = 1 << 55;

/// What is known of a server since this coordinator started.
#[derive(Clone, Copy)]
struct Heard {
    first: Nanos,
    at: Nanos,
    /// Version of the assignments it serves.
    applied: u64,
    /// When it is gone, if nothing is heard of it.
    gone_at: Nanos,
}

/// Tablets that somebody brings back.
struct Task {
    /// No other task has ever had the same: what a server says of a task of a leader before this
    /// one is of the past.
    id: u64,
    gone: u32,
    by: u32,
    /// Ascending, each with the segment from which on entries count.
    tablets: Vec<(Tablet, u64)>,
    failure: Option<String>,
}

/// All servers, as far as this coordinator has heard of them.
#[derive(Default)]
pub(super) struct Members {
    heard: BTreeMap<u32, Heard>,
    tasks: Vec<Task>,
    /// Tasks so far.
    ordered: u64,
    /// Tablets that a server took over in a version of the map that it has yet to hear of.
    moved: Vec<(Tablet, u32, u64)>,
    /// What servers tell of their tablets.
    loads: Loads,
    /// When it is looked next whether a tablet is to move.
    move_from: Nanos,
    /// When something is to move next for the sake of memory or requests: what servers tell is of
    /// before the last such move.
    balance_from: Nanos,
    /// The version with which this leader began, and until when another may have granted leases to
    /// who does not know of it; zero of a coordinator that is alone.
    begun: u64,
    bury_from: Nanos,
    /// Nobody is told to bring tables back before; zero when that is over.
    distribute_from: Nanos,
    /// As of when nothing was left to distribute.
    distributed: Option<Standing>,
}

/// All that what is to be distributed depends on: version of the map, tasks so far, tasks there
/// are, and who may be given some.
type Standing = (u64, u64, usize, Vec<u32>);

impl Members {
    /// Those of a leader that began at `now` with version `begun`; the one before may have granted
    /// leases that last until `bury_from`.
    pub(super) fn of_reign(now: Nanos, begun: u64, bury_from: Nanos) -> Self {
        Self { begun, bury_from, distribute_from: now + GATHERING, ..Self::default() }
    }

    /// When a server is gone if nothing more is heard of it. One that has told that it serves a
    /// version of this leader's, or a later one, takes nothing more from those before.
    fn gone_at(&self, heard: &Heard) -> Nanos {
        if heard.applied >= self.begun { heard.gone_at } else { heard.gone_at.max(self.bury_from) }
    }

    /// A server has enlisted.
    pub(super) fn enlisted(&mut self, now: Nanos, server: u32) {
        self.heard.insert(
            server,
            Heard { first: now, at: now, applied: 0, gone_at: now + FIRST_QUESTION },
        );
    }

    /// A server asks, which serves version `applied`; false if it has not enlisted with this
    /// coordinator.
    pub(super) fn asks<M: Metadata>(
        &mut self,
        now: Nanos,
        server: u32,
        applied: u64,
        catalog: &Catalog<M>,
    ) -> bool {
        let leased = catalog.server(server).is_some_and(|known| known.copies > 0 && !known.dead);
        match self.heard.get_mut(&server) {
            Some(heard) => (heard.at, heard.applied) = (now, applied),
            // It had its lease from the coordinator before.
            None if leased => {
                self.heard.insert(
                    server,
                    Heard { first: now, at: now, applied, gone_at: now + FIRST_QUESTION },
                );
            }
            None => return false,
        }
        leased || catalog.server(server).is_some_and(|known| known.copies == 0)
    }

    /// A server tells what its tablets are to it.
    pub(super) fn told(&mut self, server: u32, capacity: u64, loads: &[Load]) {
        if self.heard.contains_key(&server) {
            self.loads.told(server, capacity, loads);
        }
    }

    /// Whether a server serves this version, or a later one.
    pub(super) fn has_applied(&self, server: u32, version: u64) -> bool {
        self.heard.get(&server).is_some_and(|heard| heard.applied >= version)
    }

    /// Whether a server serves a tablet of its, as far as known: not if it is dead, or has yet to
    /// hear of anything, or that it took this one over.
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
            Some(known) if known.copies > 0 => {
                !known.dead
                    && self
                        .has_applied(server, self.moved.iter().filter_map(taken).max().unwrap_or(1))
            }
            _ => true,
        }
    }

    /// Time since a server was heard of.
    pub(super) fn silence(&self, now: Nanos, server: u32) -> Option<Duration> {
        self.heard.get(&server).map(|heard| now.since(heard.at))
    }

    /// Servers that may be given tables.
    pub(super) fn alive<M: Metadata>(&self, now: Nanos, catalog: &Catalog<M>) -> Vec<u32> {
        let lives = |(&id, heard): (&u32, &Heard)| {
            let known = catalog.server(id).filter(|known| !known.dead)?;
            let lives = if known.copies > 0 {
                self.gone_at(heard) > now
            } else {
                now.since(heard.at) < ALIVE
            };
            (lives && now.since(heard.at) < ALIVE).then_some(id)
        };
        self.heard.iter().filter_map(lives).collect()
    }

    /// Whether a server brings something back, or something moves from it or to it.
    pub(super) fn is_busy<M: Metadata>(&self, server: u32, catalog: &Catalog<M>) -> bool {
        self.tasks.iter().any(|task| task.by == server)
            || catalog.moves().any(|order| order.concerns(server))
    }

    /// What a server is told that knows version `known`; its lease goes on. If it knows all, no
    /// more than that is said.
    pub(super) fn assignment<M: Metadata>(
        &mut self,
        now: Nanos,
        (server, known): (u32, u64),
        catalog: &Catalog<M>,
    ) -> Assignment {
        let leased = catalog.server(server).filter(|known| known.copies > 0);
        if leased.is_some()
            && let Some(heard) = self.heard.get_mut(&server)
        {
            heard.gone_at = now + LEASE + LEASE / DRIFT;
        }
        let lease_micros =
            if leased.is_some() { u64::try_from(LEASE.as_micros()).expect("short") } else { 0 };
        let moves = || catalog.moves().filter(|order| order.concerns(server));
        if known == catalog.version() && !self.is_busy(server, catalog) {
            return Assignment { lease_micros, ..Assignment::default() };
        }
        let replicating = || catalog.servers().filter(|(_, known)| known.copies > 0);
        let member = |(id, known): (u32, &super::Known)| ServerRecord {
            id,
            silent_ms: 0,
            locator: known.locator.clone(),
            rack: known.rack.clone(),
        };
        let order = |task: &Task| RecoveryOrder {
            id: task.id,
            master: task.gone,
            min_open: catalog.server(task.gone).map_or(0, |known| known.min_open),
            askers: u32::try_from(
                self.tasks.iter().filter(|other| other.gone == task.gone).count(),
            )
            .expect("few"),
            tablets: task.tablets.clone(),
        };
        Assignment {
            tablets: catalog.tablets_of(server).iter().map(|owned| owned.tablet).collect(),
            lease_micros,
            min_open: leased.map_or(0, |known| known.min_open),
            members: replicating().filter(|(_, known)| !known.dead).map(member).collect(),
            masters: replicating().map(|(id, _)| id).collect(),
            next_server: catalog.next_server(),
            orders: self.tasks.iter().filter(|task| task.by == server).map(order).collect(),
            names: catalog.names_of(server),
            moves: moves().copied().collect(),
        }
    }

    /// Declares dead whose lease is over, and has others bring back what the dead had.
    pub(super) fn poll<M: Metadata>(&mut self, now: Nanos, catalog: &mut Catalog<M>) {
        let leased: Vec<u32> = catalog
            .servers()
            .filter(|(_, known)| known.copies > 0 && !known.dead)
            .map(|(id, _)| id)
            .collect();
        for &id in &leased {
            let fresh = Heard { first: now, at: now, applied: 0, gone_at: now + FIRST_QUESTION };
            let gone_at = match self.heard.get(&id) {
                Some(heard) => self.gone_at(heard),
                None => self.heard.entry(id).or_insert(fresh).gone_at,
            };
            if gone_at > now {
                continue;
            }
            let buried = now.since(gone_at) <= OVERSLEPT && {
                tracing::warn!("server {id} is gone: its lease is over");
                let buried = catalog.bury(id);
                if let Err(refusal) = &buried {
                    tracing::error!("cannot note that server {id} is gone: {refusal:?}");
                }
                buried.is_ok()
            };
            if !buried && let Some(heard) = self.heard.get_mut(&id) {
                heard.gone_at = now + LEASE;
            }
            if catalog.lost().is_some() {
                return;
            }
        }
        let lives = |id: u32| catalog.server(id).is_some_and(|known| !known.dead);
        self.loads.keep(lives);
        self.tasks.retain(|task| lives(task.by) && catalog.server(task.gone).is_some());
        let heard = &self.heard;
        let applied = |server: u32| heard.get(&server).map_or(0, |heard| heard.applied);
        self.moved.retain(|&(_, server, version)| lives(server) && applied(server) < version);
        if now < self.distribute_from {
            return;
        }
        self.distribute_from = Nanos(0);
        let gone: Vec<u32> =
            catalog.servers().filter(|(_, known)| known.dead).map(|(id, _)| id).collect();
        let candidates = self.alive(now, catalog);
        let candidates: Vec<u32> = candidates
            .into_iter()
            .filter(|&id| catalog.server(id).is_some_and(|known| known.copies > 0))
            .collect();
        // To look for what nobody brings back yet goes through all tablets of the dead, and this
        // room is entered at each request.
        let standing = (catalog.version(), self.ordered, self.tasks.len(), candidates.clone());
        if self.distributed.as_ref() != Some(&standing) {
            gone.iter().for_each(|&gone| self.distribute(gone, &candidates, catalog));
            self.distributed = Some(standing);
        }
        if gone.is_empty() {
            self.move_next(now, &candidates, catalog);
        }
    }

    /// Begins the next move, if there is one to begin.
    fn move_next<M: Metadata>(&mut self, now: Nanos, candidates: &[u32], catalog: &mut Catalog<M>) {
        if now < self.move_from {
            return;
        }
        self.move_from = now + LOOK_FOR_MOVES;
        let settled =
            |id: &u32| self.heard.get(id).is_some_and(|heard| heard.first + SETTLED <= now);
        let settled: Vec<u32> = candidates.iter().copied().filter(settled).collect();
        let next = catalog.next_drained(candidates).or_else(|| {
            let is_due = now >= self.balance_from && self.loads.are_known(&settled);
            let (tablet, to, sake) =
                catalog.next_balanced(&settled, &self.loads).filter(|_| is_due)?;
            if sake != Sake::Number {
                tracing::info!(
                    "{tablet} is to move to server {to}, which has more left of {sake:?}"
                );
                self.balance_from = now + TOLD_ANEW;
            }
            Some((tablet, to))
        });
        if let Some((tablet, to)) = next
            && let Err(refusal) = catalog.begin_move(tablet, to)
        {
            tracing::warn!("cannot move {tablet} to server {to}: {refusal:?}");
            self.move_from = now + NEXT_MOVE;
        }
    }

    /// A server has the tablet that was to move to it, or cannot have it.
    fn arrived<M: Metadata>(
        &mut self,
        now: Nanos,
        (order, since): (MoveOrder, u64),
        failure: &str,
        catalog: &mut Catalog<M>,
    ) -> Result<(), Refusal> {
        if !failure.is_empty() {
            tracing::warn!("{} cannot move to server {}: {failure}", order.tablet, order.to);
            self.move_from = now + NEXT_MOVE;
            return catalog.end_move(order.id);
        }
        catalog.hand_over(order.id, since)?;
        self.moved.push((order.tablet, order.to, catalog.version()));
        Ok(())
    }

    /// Gives the tablets of a server that is gone to others to bring back, as far as nobody does
    /// yet. When there are fewer than there are servers to do it, each is divided, so that all
    /// work at it.
    fn distribute<M: Metadata>(&mut self, gone: u32, candidates: &[u32], catalog: &Catalog<M>) {
        let tasks = || self.tasks.iter().filter(|task| task.gone == gone);
        // One task each for a server that is gone: by both of them it is named.
        let candidates: Vec<u32> =
            candidates.iter().copied().filter(|&by| tasks().all(|task| task.by != by)).collect();
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
        // What others bring back counts as if it were to be tablets beside those that there are, as
        // some of it will.
        let planned = |table: Option<u32>| {
            let tablets = self.tasks.iter().flat_map(|task| &task.tablets);
            tablets.filter(|(tablet, _)| table.is_none_or(|table| tablet.table == table)).count()
                + open.len() * parts
        };
        let room = catalog.tablets() + planned(None) <= MAX_ALL_TABLETS;
        let divided = open.iter().flat_map(|&(tablet, since)| {
            let room = room
                && catalog.tablets_in(tablet.table) + planned(Some(tablet.table)) <= MAX_TABLETS;
            let most = ((tablet.range.last - tablet.range.first) / LEAST_PART).max(1);
            let ranges = tablet.range.parts(if room { most.min(parts as u64) } else { 1 });
            ranges.into_iter().map(move |range| (Tablet { range, ..tablet }, since))
        });
        let divided: Vec<_> = divided.collect();
        for (at, &by) in candidates.iter().enumerate().take(divided.len()) {
            let tablets = divided.iter().copied().skip(at).step_by(candidates.len()).collect();
            self.ordered += 1;
            let id = catalog.begun() << ORDER_BITS | self.ordered;
            self.tasks.push(Task { id, gone, by, tablets, failure: None });
        }
    }

    /// A server has brought back what it was told to, or has what was to move to it, or cannot.
    ///
    /// # Errors
    /// When that is, or has become, no task of its, in words; or the [`Refusal`] of the catalog.
    pub(super) fn recovered<M: Metadata>(
        &mut self,
        now: Nanos,
        (by, order, since): (u32, u64, u64),
        failure: &str,
        catalog: &mut Catalog<M>,
    ) -> Result<(), Refusal> {
        if let Some(order) = catalog.find_move(order).filter(|order| order.to == by) {
            return self.arrived(now, (order, since), failure, catalog);
        }
        let at = self.tasks.iter().position(|task| task.id == order && task.by == by);
        let at = at.ok_or(Refusal::Limit("nobody asked this server to bring that back"))?;
        let gone = self.tasks[at].gone;
        if !failure.is_empty() {
            tracing::warn!("server {by} cannot bring back tables of server {gone}: {failure}");
            self.tasks[at].failure = Some(failure.to_owned());
            return Ok(());
        }
        let tablets: Vec<Tablet> =
            self.tasks[at].tablets.iter().map(|&(tablet, _)| tablet).collect();
        catalog.take_over(gone, &tablets, by, since)?;
        self.tasks.remove(at);
        self.moved.extend(tablets.into_iter().map(|tablet| (tablet, by, catalog.version())));
        Ok(())
    }

    /// Why tables of servers that are gone cannot be brought back: the server, and what its last
    /// attempt came to.
    pub(super) fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.tasks.iter().filter_map(|task| Some((task.gone, task.failure.as_deref()?)))
    }

    /// When [`poll`](Self::poll) has something to do.
    pub(super) fn next_deadline<M: Metadata>(&self, catalog: &Catalog<M>) -> Option<Nanos> {
        let leased = catalog.servers().filter(|(_, known)| known.copies > 0 && !known.dead);
        let gone_at =
            leased.map(|(id, _)| self.heard.get(&id).map_or(Nanos(0), |heard| self.gone_at(heard)));
        // Until then nobody looks for whoever is to bring back what the dead had.
        gone_at.chain((self.distribute_from > Nanos(0)).then_some(self.distribute_from)).min()
    }
}
