//! Counters of a master.

use super::Master;
use sprat_disk::Disk;

/// Requests by kind and by result, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) removes: u64,
    pub(super) increments: u64,
    pub(super) ttls: u64,
    pub(super) scans: u64,
    pub(super) watches: u64,
    pub(super) batches: u64,
    pub(super) prepares: u64,
    pub(super) commits: u64,
    pub(super) aborts: u64,
    pub(super) locked: u64,
    pub(super) expired: u64,
    pub(super) evicted: u64,
    pub(super) conflicts: u64,
    pub(super) repeated: u64,
    pub(super) malformed: u64,
    pub(super) turned_away: u64,
    pub(super) memory_full: u64,
}

impl<D: Disk> Master<D> {
    /// Returns every counter by name; counters whose names end in `_total` only grow. If requests
    /// are timed, their times are counted afresh after this call.
    pub fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let Counts { reads, writes, removes, increments, scans, conflicts, .. } = self.counts;
        let Counts { batches, watches, repeated, malformed, turned_away, memory_full, .. } =
            self.counts;
        let Counts { ttls, prepares, commits, aborts, locked, expired, evicted, .. } = self.counts;
        let log = self.log.stats();
        let shares = [
            self.waiting.shares(),
            self.held.pinned(),
            self.held.made.shares(),
            self.feeds.shares(),
        ];
        let (recovered, moved) = (self.recoveries.totals(), self.migration_targets.totals());
        let mut counters = vec![
            ("reads_total", reads),
            ("writes_total", writes),
            ("removes_total", removes),
            ("increments_total", increments),
            ("ttls_set_total", ttls),
            ("scans_total", scans),
            ("watches_total", watches),
            ("batches_total", batches),
            ("prepares_total", prepares),
            ("commits_total", commits),
            ("aborts_total", aborts),
            ("resolved_transactions_total", self.resolver.resolved),
            ("locked_objects_total", locked),
            ("expired_objects_total", expired),
            ("evicted_objects_total", evicted),
            ("conflicts_total", conflicts),
            ("repeated_operations_total", repeated),
            ("malformed_requests_total", malformed),
            ("turned_away_total", turned_away),
            ("memory_full_total", memory_full),
            ("writes_stopped", u64::from(self.stopped.is_some())),
            ("answers_waiting", self.waiting.shares().taken() as u64),
            ("values_pinned", self.held.pinned().taken() as u64),
            ("watches_waiting", self.feeds.shares().taken() as u64),
            ("answers_made", self.held.made.shares().taken() as u64),
            ("shares_refused_total", shares.iter().map(|shares| shares.refused()).sum()),
            ("shares_scarce", shares.iter().any(|shares| shares.are_scarce()).into()),
            ("assignments_version", self.served.version),
            ("objects", log.objects),
            ("expiring_objects", log.expiring),
            ("completions", log.completions),
            ("completion_clients", log.clients),
            ("prepared_operations", log.prepared),
            ("collection_elements", log.elements),
            ("object_bytes", log.object_bytes),
            ("tombstone_bytes", log.tombstone_bytes),
            ("memory_bytes", log.memory_bytes),
            ("memory_free_bytes", log.free_bytes),
            ("hash_table_bytes", log.table_bytes),
            ("segments", log.segments),
            ("segments_on_disk", log.segments_on_disk),
            ("log_bytes_total", log.appended_bytes),
            ("log_durable_bytes_total", self.log.durable_position()),
            ("cleaner_slices_total", log.cleaner.slices),
            ("cleaner_scanned_bytes_total", log.cleaner.scanned_bytes),
            ("cleaner_compacted_bytes_total", log.cleaner.compacted_bytes),
            ("cleaner_combined_bytes_total", log.cleaner.combined_bytes),
            ("cleaner_combined_segments_total", log.cleaner.combined_segments),
            ("declared_dead_total", self.deaths),
            ("recoveries_total", recovered.recoveries),
            ("recovered_objects_total", recovered.objects),
            ("recovered_bytes_total", recovered.bytes),
            ("recovery_micros_total", recovered.micros),
            (
                "recovery_cpu_micros_total",
                u64::try_from(recovered.cpu.as_micros()).unwrap_or(u64::MAX),
            ),
            ("moved_tablets_total", moved.moves),
            ("moved_objects_total", moved.objects),
            ("moved_bytes_total", moved.bytes),
        ];
        counters.extend(self.durable.counters());
        if let Some(timing) = &mut self.timing {
            counters.extend(timing.counters());
        }
        counters
    }
}
