//! Reports on a file of replicas: what was found on opening it, and counters.

use super::fence::FENCE_FRAMES;
use super::{Damage, Replicas, Torn};
use crate::backup::StoredReport;
use sprat_disk::Disk;
use sprat_net::Figure;
use std::time::Duration;

/// What was found on opening a file of replicas, including everything that had to be left out.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Replicas that can be read.
    pub replicas: u64,
    /// Bytes of log in these replicas.
    pub bytes: u64,
    /// Number of these replicas that are not sealed and may lack acknowledged bytes.
    pub unsure: u64,
    /// Replicas, and marks of freed frames, whose bytes are not those that were written.
    pub damaged: Vec<Damage>,
    /// Writes that a crash interrupted: ends that were cut off, and beginnings that were dropped.
    pub torn: Vec<Torn>,
    /// Masters that are fenced.
    pub fenced: Vec<u32>,
    /// Replicas that were freed because a later one of the same segment was found.
    pub outdated: u64,
    /// Whether one of the two copies of the file header was damaged; it has been rewritten then.
    pub header_repaired: bool,
    /// Whether the file was closed cleanly.
    pub clean: bool,
    /// Wall-clock time that reading took.
    pub elapsed: Duration,
}

impl OpenReport {
    pub(super) fn new<D: Disk>(found: StoredReport, replicas: &Replicas<D>) -> Self {
        let whole = || found.stored.iter().filter(|stored| stored.replica.segment != super::FENCE);
        Self {
            replicas: whole().count() as u64,
            bytes: whole().map(|stored| u64::from(stored.len)).sum(),
            unsure: whole().filter(|stored| stored.unsure).count() as u64,
            fenced: replicas.fences.masters().collect(),
            outdated: found.outdated,
            header_repaired: found.header_repaired,
            clean: found.clean,
            elapsed: found.elapsed,
            damaged: found.damaged,
            torn: found.torn,
        }
    }
}

/// Events since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) freed: u64,
    pub(super) damaged: u64,
    pub(super) failed_reads: u64,
    pub(super) fenced_writes: u64,
    pub(super) not_found: u64,
    pub(super) refused: u64,
    pub(super) malformed: u64,
    pub(super) turned_away: u64,
    /// Leases granted to masters whose coordinator is silent.
    pub(super) leases: u64,
    /// Whether a failed write or sync has ended writing.
    pub(super) stopped: bool,
}

impl<D: Disk> Replicas<D> {
    /// Returns the counters and gauges, for metrics.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let frames = self.backup.frame_count();
        let Counts { writes, written_bytes, read_bytes, freed, damaged, failed_reads, .. } =
            self.counts;
        let Counts { fenced_writes, not_found, refused, malformed, turned_away, leases, .. } =
            self.counts;
        let figures = [
            ("replicas", self.kept.len() as u64),
            ("replicas_open", self.backup.unsealed() as u64),
            ("replicas_freed_total", freed),
            ("replicas_damaged_total", damaged),
            ("replica_writes_taken_total", writes),
            ("replica_written_bytes_total", written_bytes),
            ("replica_read_bytes_total", read_bytes),
            ("replica_reads_failed_total", failed_reads),
            ("replica_writes_waiting", self.waiting.len() as u64),
            ("replica_reads_waiting", self.reads.len() as u64),
            ("replica_staged_bytes", self.backup.staged_bytes() as u64),
            ("replica_writes_fenced_total", fenced_writes),
            ("replica_writes_astray_total", not_found),
            ("replica_requests_refused_total", refused),
            ("replica_requests_malformed_total", malformed),
            ("replica_requests_turned_away_total", turned_away),
            ("leases_granted_total", leases),
            ("replica_disk_full", u64::from(self.backup.disk_is_full())),
            ("replica_frames_lacking", u64::from(frames.live + FENCE_FRAMES >= frames.max)),
            ("replica_writes_stopped", u64::from(self.failure().is_some())),
            ("replica_frames_live", u64::from(frames.live)),
            ("replica_frames_max", u64::from(frames.max)),
            ("masters_fenced", self.fences.masters().count() as u64),
        ];
        figures.into_iter().map(|(name, value)| Figure::new(name, value)).collect()
    }
}
