//! Makes a master's log durable: not at all, on the node's own disk, or on the cluster's backups.

use super::pace::Pace;
use crate::backup::{AppendError, Backup, Failed};
use crate::coordinator::{LEASE, RENEWAL};
use crate::node::Caller;
use crate::replication::Replicator;
use sprat_disk::Disk;
use sprat_log::Log;
use sprat_net::Nanos;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// When the coordinator's lease lasts only for this time, it has not answered the last polls, and
/// the master asks backups for leases. It has several tries before the coordinator's lease ends.
const COORDINATOR_IS_SILENT: Duration = Duration::from_millis(250);
const _: () = assert!(
    COORDINATOR_IS_SILENT.as_millis() + 2 * RENEWAL.as_millis() < LEASE.as_millis(),
    "a poll that is answered late must not cause requests"
);

/// Where the log is made durable.
pub(super) enum Durable<D: Disk> {
    /// Nowhere: a write counts as durable once it is in memory.
    Nothing,
    /// On a disk, with the pace of its commits.
    Disk(Box<Backup<D>>, Pace),
    /// On other servers.
    Servers(Box<Replicator>),
}

impl<D: Disk> Durable<D> {
    /// Returns whether nothing has to become durable.
    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Records that a reply waits for a commit.
    #[inline]
    pub(super) fn arrived(&mut self) {
        if let Self::Disk(_, pace) = self {
            pace.arrived();
        }
    }

    /// Returns whether the head's frame on disk, or each of the head's replicas, has room for an
    /// entry of `len` bytes. Many small commits, each padded to blocks, can fill a frame before the
    /// log has filled the segment.
    #[inline]
    pub(super) fn has_room(&self, log: &Log, len: usize) -> bool {
        match self {
            Self::Nothing => true,
            Self::Disk(backup, _) => {
                let (segment, unsubmitted) = log.head_pending();
                backup.room(segment) >= unsubmitted + len
            }
            Self::Servers(replicator) => replicator.room(log) >= len,
        }
    }

    /// With a disk, submits the log's new bytes to the disk, marks in the log what the disk has
    /// completed, and returns whether anything became durable. With backups, only updates the
    /// outlook, and returns false.
    ///
    /// # Errors
    /// Says why nothing more will become durable.
    pub(super) fn poll(&mut self, now: Nanos, log: &mut Log) -> Result<bool, String> {
        match self {
            Self::Nothing => Ok(false),
            Self::Disk(backup, pace) => commit(backup, pace, now, log),
            Self::Servers(replicator) if replicator.is_fenced() => {
                Err("the coordinator declared this server dead; other servers recover its tables"
                    .to_owned())
            }
            Self::Servers(replicator) => {
                replicator.update_outlook(now, log);
                Ok(false)
            }
        }
    }

    /// Makes the calls to backups that are due: see [`Replicator::call`].
    #[inline]
    pub(super) fn call(&mut self, now: Nanos, log: &mut Log, caller: &mut dyn Caller) {
        if let Self::Servers(replicator) = self {
            replicator.call(now, log, caller);
        }
    }

    /// Returns the time until which the master may answer by leases of its backups. Asks them for
    /// leases if the coordinator's `lease` ends soon.
    #[inline]
    pub(super) fn backup_lease(
        &mut self,
        now: Nanos,
        lease: Nanos,
        caller: &mut dyn Caller,
    ) -> Nanos {
        match self {
            Self::Servers(replicator) if now + COORDINATOR_IS_SILENT >= lease => {
                replicator.ask_for_leases(now, caller);
                replicator.leased_until()
            }
            Self::Servers(_) | Self::Disk(..) | Self::Nothing => Nanos(0),
        }
    }

    /// Returns the time at which [`backup_lease`](Self::backup_lease) asks backups.
    pub(super) fn lease_deadline(&self, lease: Nanos) -> Option<Nanos> {
        let Self::Servers(replicator) = self else { return None };
        let silent_at = Nanos(0) + lease.since(Nanos(0) + COORDINATOR_IS_SILENT);
        replicator.ask_at().map(|at| at.max(silent_at))
    }

    /// Returns the time at which [`poll`](Self::poll) has something to do even if no event arrives.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let (backup, pace) = match self {
            Self::Disk(backup, pace) => (backup, pace),
            Self::Servers(replicator) => return replicator.next_deadline(),
            Self::Nothing => return None,
        };
        let deadline = backup.next_deadline();
        Some(pace.deadline().map_or(deadline, |held| held.min(deadline)))
    }

    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        let Self::Disk(backup, _) = self else { return None };
        backup.poll_fd()
    }

    /// Describes the disk and its limit, for a reply that the disk is full; empty without a disk.
    pub(super) fn full_disk(&self) -> String {
        match self {
            Self::Disk(backup, _) => {
                let most = backup.frame_count().max;
                format!("the disk is full: {} stays at {most} segment frames", backup.name())
            }
            Self::Nothing | Self::Servers(_) => String::new(),
        }
    }

    /// Returns the counters by name.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Nothing => vec![("disk_frames_live", 0), ("disk_frames_max", 0)],
            Self::Disk(backup, _) => {
                let frames = backup.frame_count();
                vec![
                    ("disk_frames_live", frames.live.into()),
                    ("disk_frames_max", frames.max.into()),
                    ("disk_full", backup.disk_is_full().into()),
                ]
            }
            Self::Servers(replicator) => {
                let counts = replicator.counts();
                let servers = replicator.servers();
                vec![
                    ("servers_needed", servers.needed as u64),
                    ("servers_here", servers.present as u64),
                    ("servers_refusing", servers.refusing as u64),
                    ("replica_writes_total", counts.writes),
                    ("replicas_replaced_total", counts.replaced),
                    ("segments_short", replicator.under_replicated() as u64),
                    ("segments_in_few_racks", replicator.in_too_few_racks() as u64),
                    ("replicas_healed_total", counts.re_replicated),
                    ("replicas_healed_bytes_total", counts.re_replicated_bytes),
                ]
            }
        }
    }

    /// If the log is on this node's disk: makes the rest of the log durable, as far as the disk has
    /// room, and closes the log cleanly. Blocks.
    pub(super) fn close(self, now: Nanos, log: &mut Log) -> Result<(), Failed> {
        let Self::Disk(mut backup, _) = self else { return Ok(()) };
        match hand_over(&mut backup, log) {
            Err(AppendError::Failed(failed)) => return Err(failed),
            // The bytes that are left were never acknowledged as durable.
            Ok(())
            | Err(AppendError::NoRoom { .. } | AppendError::NoFrame(_) | AppendError::Behind) => {}
        }
        backup.close(now, |_| {})
    }
}

fn commit<D: Disk>(
    backup: &mut Backup<D>,
    pace: &mut Pace,
    now: Nanos,
    log: &mut Log,
) -> Result<bool, String> {
    let mut progressed = false;
    let progress = |progress: crate::backup::Progress| {
        log.mark_durable(progress.segment, progress.up_to as usize, progress.sealed);
        progressed = true;
    };
    backup.poll(now, progress).map_err(|failed| failed.to_string())?;
    log.limit_disk(backup.segments_on_full_disk());
    match hand_over(backup, log) {
        // The bytes that are left follow when the disk has made room.
        Ok(()) | Err(AppendError::NoFrame(_) | AppendError::Behind) => {}
        Err(error) => return Err(error.to_string()),
    }
    for segment in log.take_reclaimable() {
        backup.free(segment);
    }
    if !backup.is_committing() {
        pace.ended(now);
        if pace.may_begin(now) && backup.submit(now).map_err(|failed| failed.to_string())? {
            pace.begun(now);
        }
    }
    Ok(progressed)
}

/// Appends the log's pending bytes to the backup, up to the first bytes that the backup refuses.
fn hand_over<D: Disk>(backup: &mut Backup<D>, log: &mut Log) -> Result<(), AppendError> {
    while let Some(pending) = log.next_pending() {
        let (segment, up_to, sealed) =
            (pending.segment, pending.offset + pending.len, pending.sealed);
        let offset = u32::try_from(pending.offset).expect("segments are 8 MB");
        backup.append(segment, offset, pending.slices().iter().copied(), sealed)?;
        log.mark_submitted(segment, up_to, sealed);
    }
    Ok(())
}
