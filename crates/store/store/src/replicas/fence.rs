//! Fences: they mark masters that are being recovered, whose writes are refused.

use super::{BUSY_MICROS, FENCE, Replica, Replicas};
use crate::answers::answer;
use crate::backup::AppendError;
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::MAX_SEGMENT_ID;
use sprat_wire::op::{ReplicaId, ReplicaRecord, Status, push_replica};
use std::collections::{BTreeMap, VecDeque};

/// Frames reserved for fences: this number of masters can be fenced even when replicas have taken
/// all other frames. Further fences are kept in memory only.
pub const FENCE_FRAMES: u32 = 2;

/// The largest number of fenced masters remembered. At the limit, a new fence replaces the fence of
/// a master that has no replicas here; the id of such a master is never used again. If there is no
/// such master, the new fence is refused.
const MAX_FENCES: usize = 65_536;

/// The largest number of fence requests that wait for the disk at a time. Further ones are answered
/// with `Retry`.
const MAX_WAITING: usize = 1024;

/// How durable a fence is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fence {
    /// In memory, to be written as soon as possible.
    Unwritten,
    /// The fence was handed to the backup, and is not durable yet.
    Written,
    /// On disk.
    Durable,
    /// In memory only: there are no replicas to guard, or the fence cannot be written.
    Memory,
}

/// Fenced masters.
#[derive(Default)]
pub(super) struct Fences {
    masters: BTreeMap<u32, Fence>,
    /// Requests that wait for their fence to be durable.
    waiting: VecDeque<(RequestId, u32)>,
    /// The number of fences that are [`Fence::Unwritten`].
    unwritten: usize,
}

impl Fences {
    pub(super) fn contains(&self, master: u32) -> bool {
        self.masters.contains_key(&master)
    }

    pub(super) fn masters(&self) -> impl Iterator<Item = u32> + '_ {
        self.masters.keys().copied()
    }

    /// Adds a fence that was found on disk.
    pub(super) fn found(&mut self, master: u32) {
        self.masters.insert(master, Fence::Durable);
    }

    /// Notes that a fence is on disk.
    pub(super) fn written(&mut self, master: u32) {
        if let Some(fence) = self.masters.get_mut(&master) {
            *fence = Fence::Durable;
        }
    }
}

fn word(master: u32) -> u64 {
    ReplicaId { master, segment: FENCE }.word()
}

impl<D: Disk> Replicas<D> {
    /// Returns the replicas of a master by segment, including damaged ones.
    pub(super) fn of_master(&self, master: u32) -> impl Iterator<Item = (u64, &Replica)> {
        let last = ReplicaId { master, segment: MAX_SEGMENT_ID }.word();
        self.kept
            .range(word(master)..=last)
            .map(|(word, kept)| (ReplicaId::of_word(*word).segment, kept))
    }

    /// Describes in words the replicas that this server keeps of a master's segments, for the
    /// simulator's trace.
    pub fn describe(&self, master: u32) -> String {
        let kept =
            self.of_master(master).map(|(segment, kept)| format!("{segment}: {}", kept.describe()));
        kept.collect::<Vec<_>>().join("; ")
    }

    /// Returns the records of a master's replicas, as in the reply to a fence.
    pub fn records(&self, master: u32) -> Vec<ReplicaRecord> {
        self.of_master(master).filter_map(|(segment, kept)| kept.record(segment)).collect()
    }

    /// Fences a master. The reply lists the master's replicas. If the fence must be durable, the
    /// reply waits until it is. The reply also waits until the master's leases have ended.
    pub(super) fn fence(&mut self, now: Nanos, id: RequestId, master: u32) -> Outcome<u32> {
        self.leases.runs(now);
        if self.fences.waiting.len() >= MAX_WAITING {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        if !self.fences.contains(master) {
            self.make_room_for_fence();
            if self.fences.masters.len() >= MAX_FENCES {
                return self.refuse("too many masters are being recovered at once");
            }
            let guards = self.of_master(master).next().is_some();
            let fence =
                if guards && self.failure().is_none() { Fence::Unwritten } else { Fence::Memory };
            self.fences.masters.insert(master, fence);
            self.fences.unwritten += usize::from(fence == Fence::Unwritten);
        }
        if !self.is_kept(master) || self.lease_end(master) > now {
            self.fences.waiting.push_back((id, master));
            self.write_fences(now);
            return Outcome::Pending;
        }
        self.list_replicas(id.session(), master)
    }

    /// Returns whether a fence is durable, or will not become durable.
    fn is_kept(&self, master: u32) -> bool {
        let fence = self.fences.masters.get(&master).copied().unwrap_or(Fence::Memory);
        matches!(fence, Fence::Durable | Fence::Memory) || self.failure().is_some()
    }

    /// Returns the time until which a master may answer clients by leases of this backup. Those of
    /// an earlier run count if the backup has a replica that a recovery could use.
    fn lease_end(&self, master: u32) -> Nanos {
        let keeps_some = self.of_master(master).next().is_some();
        let earlier = if keeps_some { self.leases.end_of_earlier() } else { Nanos(0) };
        self.leases.end(master).max(earlier)
    }

    /// Returns the time at which the next fence can be answered that waits only for a lease.
    pub(super) fn fences_deadline(&self) -> Option<Nanos> {
        let kept = self.fences.waiting.iter().filter(|&&(_, master)| self.is_kept(master));
        kept.map(|&(_, master)| self.lease_end(master)).min()
    }

    /// Replies with the records of all replicas of a master.
    fn list_replicas(&mut self, session: u32, master: u32) -> Outcome<u32> {
        let records = self.records(master);
        let count = u32::try_from(records.len()).expect("fewer than MAX_FRAMES");
        let body = self
            .bodies
            .make(session, |out| records.iter().for_each(|record| push_replica(out, record)));
        match body {
            Some(body) => Outcome::Reply(
                answer(Status::Ok, false, count, 0, Repeat::Reexecute).with_body(body),
            ),
            None => Outcome::Retry(BUSY_MICROS),
        }
    }

    /// Hands fences that are not written yet to the backup.
    pub(super) fn write_fences(&mut self, now: Nanos) {
        if self.fences.unwritten == 0 {
            return;
        }
        for (&master, fence) in &mut self.fences.masters {
            if *fence != Fence::Unwritten {
                continue;
            }
            *fence = match self.backup.append(word(master), 0, [], true) {
                Ok(()) => Fence::Written,
                Err(AppendError::Behind) => continue, // retried when an open replica has ended
                Err(error) => {
                    tracing::warn!("the fence of server {master} is kept in memory only: {error}");
                    Fence::Memory
                }
            };
            self.fences.unwritten -= 1;
        }
        self.flush_by(now);
    }

    /// Replies to the requests whose fence is durable, or will not become durable, once the leases
    /// of the master have ended. Returns whether there were such requests.
    pub(super) fn answer_fences(&mut self, now: Nanos) -> bool {
        self.leases.runs(now);
        if self.fences.waiting.is_empty() {
            return false;
        }
        let before = self.fences.waiting.len();
        for (id, master) in std::mem::take(&mut self.fences.waiting) {
            if !self.is_kept(master) || self.lease_end(master) > now {
                self.fences.waiting.push_back((id, master));
            } else {
                let outcome = self.list_replicas(id.session(), master);
                self.ready.push_back((id, outcome));
            }
        }
        self.fences.waiting.len() < before
    }

    /// Keeps a fence in memory only from now on: the last replica of its master was freed.
    pub(super) fn end_fence(&mut self, master: u32) {
        let Some(fence) = self.fences.masters.get_mut(&master) else { return };
        self.fences.unwritten -= usize::from(*fence == Fence::Unwritten);
        *fence = Fence::Memory;
        self.backup.free(word(master));
    }

    /// Removes fences that were found on disk for masters without replicas here.
    pub(super) fn drop_idle_fences(&mut self) {
        let idle: Vec<u32> = self
            .fences
            .masters()
            .filter(|master| self.of_master(*master).next().is_none())
            .collect();
        for master in idle {
            self.end_fence(master);
            self.fences.masters.remove(&master);
        }
    }

    /// Forgets a fence whose master has no replicas here, if [`MAX_FENCES`] fences are remembered.
    fn make_room_for_fence(&mut self) {
        if self.fences.masters.len() < MAX_FENCES {
            return;
        }
        let idle = self.fences.masters.iter().find(|(master, fence)| {
            **fence == Fence::Memory && self.of_master(**master).next().is_none()
        });
        if let Some(master) = idle.map(|(master, _)| *master) {
            self.fences.masters.remove(&master);
        }
    }
}
