//! Leases that a backup grants to masters whose coordinator is silent ([decision
//! 41](../../../../../docs/decisions/0041-leases-from-backups.md)).
//!
//! No server can recover a master without an answer to a fence from a backup of the master's newest
//! head. So a master may answer its clients while all these backups keep their answers back. That
//! is what a lease promises.

use super::{Replicas, answer};
use crate::coordinator::DRIFT;
use sprat_disk::Disk;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat};
use sprat_wire::op::Status;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a master may answer its clients after it sent the request that the backup granted.
pub const BACKUP_LEASE: Duration = Duration::from_millis(400);

/// How long the backup keeps its answers to fences back, by its own clock.
const HELD_BACK: Duration =
    BACKUP_LEASE.checked_add(BACKUP_LEASE.checked_div(DRIFT).expect("not zero")).expect("short");

/// The leases of one backup.
#[derive(Default)]
pub(super) struct Leases {
    /// When the node's clock began. `None`: time is the `now` that the loop passes.
    clock: Option<Instant>,
    /// When this backup began to run. An earlier run may have granted leases until then.
    begun: Option<Nanos>,
    /// The servers that may get leases, ascending.
    members: Vec<u32>,
    /// When the leases end, by master. Only members have leases, so there are few.
    ends: BTreeMap<u32, Nanos>,
}

impl Leases {
    pub(super) fn use_clock(&mut self, begun: Instant) {
        self.clock = Some(begun);
    }

    /// Notes that the backup runs at `now`.
    pub(super) fn runs(&mut self, now: Nanos) {
        self.begun.get_or_insert(now);
    }

    pub(super) fn set_members(&mut self, members: Vec<u32>) {
        self.members = members;
    }

    /// Returns the time at which the last lease of a master ends that this run has granted.
    pub(super) fn end(&self, master: u32) -> Nanos {
        self.ends.get(&master).copied().unwrap_or(Nanos(0))
    }

    /// Returns the time at which the last lease ends that an earlier run may have granted.
    pub(super) fn end_of_earlier(&self) -> Nanos {
        self.begun.map_or(Nanos::NEVER, |begun| begun + HELD_BACK)
    }
}

impl<D: Disk> Replicas<D> {
    /// Grants a member a lease, unless it is being recovered.
    pub(super) fn grant_lease(&mut self, now: Nanos, master: u32) -> Outcome<u32> {
        if self.fences.contains(master) {
            return Outcome::Reply(answer(Status::Fenced, false, 0, 0, Repeat::Reexecute));
        }
        let leases = &mut self.leases;
        if leases.members.binary_search(&master).is_err() {
            return self.refuse(&format!("server {master} is no member of the cluster"));
        }
        // `now` was taken before the request arrived, and the thread may have been descheduled
        // since. A lease that is counted from then would end before the master's.
        let now = leases.clock.map_or(now, |begun| Nanos(0) + begun.elapsed());
        leases.ends.retain(|_, end| *end > now);
        leases.ends.insert(master, now + HELD_BACK);
        self.counts.leases += 1;
        let micros = u64::try_from(BACKUP_LEASE.as_micros()).expect("short");
        Outcome::Reply(answer(Status::Ok, false, 0, micros, Repeat::Reexecute))
    }
}
