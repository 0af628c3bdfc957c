//! Counters of a log, and a check of its invariants for tests.

use crate::arena::HUGE_PAGE_BYTES;
use crate::cleaner::CleanerStats;
use crate::log::{Log, hash_at};
use crate::tables::TableStats;
use crate::{Durability, Role};
use sprat_wire::SEGLET_BYTES;
use sprat_wire::elements::ELEMENTS;
use sprat_wire::entry::Kind;
use sprat_wire::expiry::NEVER;
use sprat_wire::once::COMPLETIONS;
use sprat_wire::tablet::table_of;
use sprat_wire::transaction::PREPARED;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The largest number of huge pages that one step of a sweep looks at.
const SWEPT_MAX: usize = 64;

/// A log's counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Objects, including those of dropped tables until they are purged.
    pub objects: u64,
    /// Completions of operations that take effect once.
    pub completions: u64,
    /// Prepared entries of transactions.
    pub prepared: u64,
    /// Elements of collections, and owner records.
    pub elements: u64,
    /// Objects that expire.
    pub expiring: u64,
    /// Clients whose completions are kept.
    pub clients: u64,
    /// Bytes of the entries of objects and completions.
    pub object_bytes: u64,
    /// Bytes of tombstones not known to be dead.
    pub tombstone_bytes: u64,
    /// Bytes of memory for the log, taken or free.
    pub memory_bytes: u64,
    /// Bytes in free seglets.
    pub free_bytes: u64,
    /// Segments that have memory. Other segments have only replicas.
    pub segments: u64,
    /// Segments with a replica on disk, including those that wait to be freed.
    pub segments_on_disk: u64,
    /// Bytes of the hash table's lines that are in use or were in use.
    pub table_bytes: u64,
    /// Bytes ever appended to heads.
    pub appended_bytes: u64,
    /// The cleaner's counters.
    pub cleaner: CleanerStats,
}

impl Stats {
    /// Returns the cost of cleaning: bytes written to memory for each byte that writers appended.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio to look at")]
    pub fn write_cost(&self) -> f64 {
        let moved = self.cleaner.compacted_bytes + self.cleaner.combined_bytes;
        (self.appended_bytes + moved) as f64 / (self.appended_bytes.max(1)) as f64
    }
}

impl Log {
    /// Returns the log's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let with = |bit: u32| -> u64 {
            let tables = self.tables.all().filter(|(id, _)| id & bit != 0);
            tables.map(|(_, stats)| stats.objects).sum()
        };
        let (completions, prepared) = (with(COMPLETIONS), with(PREPARED));
        let elements = with(ELEMENTS);
        Stats {
            objects: self.table.len() as u64 - completions - prepared - elements,
            elements,
            completions,
            prepared,
            expiring: self.expiry.all().len() as u64,
            clients: self.clients.len() as u64,
            object_bytes: self.object_bytes as u64,
            tombstone_bytes: self.tombstone_bytes as u64,
            memory_bytes: self.config.memory as u64,
            free_bytes: (self.memory.seglets.free() * SEGLET_BYTES) as u64,
            segments: self
                .memory
                .segments()
                .filter(|(_, segment)| !segment.extents.is_empty())
                .count() as u64,
            segments_on_disk: match self.config.durability {
                Durability::Tracked => self.memory.by_id.len() as u64,
                Durability::Volatile => 0,
            },
            table_bytes: (self.table.lines() * 64) as u64,
            appended_bytes: self.position,
            cleaner: self.cleaner.stats,
        }
    }

    /// Returns the ids of the tables that have objects here, or that have completions, prepared
    /// entries or elements here.
    pub fn tables(&self) -> impl Iterator<Item = u32> {
        let full = self.tables.all().filter(|(_, stats)| stats.objects > 0);
        full.map(|(id, _)| table_of(id)).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns the number and the bytes of a table's objects; zero if the table was dropped. The
    /// elements of collections are counted in the bytes alone.
    #[must_use]
    pub fn table_stats(&self, table: u32) -> TableStats {
        let TableStats { objects, bytes } = self.tables.stats(table);
        TableStats { objects, bytes: bytes + self.tables.stats(table | ELEMENTS).bytes }
    }

    /// Continues a sweep that gives memory back to the kernel: huge pages of which nothing was used
    /// since the sweep before. Pages that are in use again soon stay, because each costs a write
    /// the time in which the kernel fills it with zeros. Gives one page back at most, in some tens
    /// of microseconds. Returns the bytes given back, and whether the sweep has come to its end.
    pub fn sweep_free_memory(&mut self) -> (usize, bool) {
        let mut given = 0;
        if let Some(page) = self.memory.seglets.sweep(SWEPT_MAX) {
            let end = ((page + 1) * HUGE_PAGE_BYTES).min(self.memory.bytes.len());
            self.memory.bytes.release(page * HUGE_PAGE_BYTES..end);
            given = end - page * HUGE_PAGE_BYTES;
        }
        (given, self.memory.seglets.end_sweep())
    }

    /// Asserts the invariants that the crate documents: every count is exact and every entry is
    /// where it should be. For tests; reads all memory.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let seed = self.config.seed;
        let mut owned = HashMap::new();
        let mut entries = HashSet::new();
        let mut tables = BTreeMap::<u32, TableStats>::new();
        let (mut object_bytes, mut tombstone_bytes) = (0, 0);
        let addresses = self.table.check(|address| hash_at(&self.memory, seed, address));
        let pointed: HashSet<usize> = addresses.iter().copied().collect();
        assert_eq!(pointed.len(), addresses.len(), "two slots for one entry");
        for (slot, segment) in self.memory.segments() {
            let (mut live, mut tombstones, mut used) = (0, 0, 0);
            for extent in &segment.extents {
                assert!(extent.start < extent.end && extent.end <= extent.cap);
                used += extent.used();
                for seglet in extent.run().first..extent.cap / SEGLET_BYTES {
                    assert_eq!(self.memory.seglets.owner(seglet * SEGLET_BYTES), slot);
                    assert!(owned.insert(seglet, slot).is_none(), "a seglet in two extents");
                }
                let mut address = extent.start;
                while address < extent.end {
                    let entry = self.memory.entry(address);
                    let len = entry.encoded_len();
                    if entry.kind == Kind::Tombstone {
                        live += len;
                        tombstones += len;
                    } else if pointed.contains(&address) {
                        assert_eq!(entry.kind, Kind::Object);
                        live += len;
                        object_bytes += len;
                        entries.insert(address);
                        let stats = tables.entry(entry.table).or_default();
                        stats.objects += 1;
                        stats.bytes += len as u64;
                    }
                    address += len;
                }
                assert_eq!(address, extent.end, "an extent is a row of entries");
            }
            assert_eq!(
                (segment.live, segment.tombstones),
                (live, tombstones),
                "segment {}",
                segment.id
            );
            tombstone_bytes += tombstones;
            for run in &segment.limbo {
                assert!(segment.pins > 0);
                for seglet in run.first..run.first + run.count {
                    assert!(owned.insert(seglet, slot).is_none(), "a seglet in two places");
                }
            }
            if !segment.closed && !segment.cleaned {
                assert_eq!(used, segment.appended, "what is not replicated stays as it is");
            }
            assert!(segment.durable <= segment.submitted || segment.closed);
            assert!(segment.role == Role::Survivor || segment.listed || segment.cleaned);
        }
        assert_eq!(entries, pointed, "every object is in a segment");
        let expiring = pointed.iter().map(|&address| {
            (self.memory.entry(address).expires, hash_at(&self.memory, seed, address))
        });
        let expiring: BTreeSet<_> = expiring.filter(|&(expires, _)| expires != NEVER).collect();
        assert_eq!(&expiring, self.expiry.all(), "the index has what expires");
        self.check_orders(&pointed);
        assert_eq!(
            self.memory.seglets.free() + owned.len(),
            self.memory.seglets.total(),
            "no seglet is lost"
        );
        assert!(
            (1..self.memory.seglets.end())
                .all(|seglet| self.memory.seglets.is_free(seglet) != owned.contains_key(&seglet))
        );
        assert_eq!((self.object_bytes, self.tombstone_bytes), (object_bytes, tombstone_bytes));
        let known: BTreeMap<_, _> =
            self.tables.all().filter(|(_, stats)| stats.objects > 0).collect();
        assert_eq!(known, tables);
        let dropped = |id| self.tables.is_dropped(id);
        let prepared = tables.iter().filter(|(id, _)| *id & PREPARED != 0 && !dropped(**id));
        let prepared: u64 = prepared.map(|(_, stats)| stats.objects).sum();
        if !self.tables.has_dropped_tablets() {
            assert_eq!(prepared, self.prepared.len() as u64, "every prepared entry is indexed");
        }
        for (table, id) in self.prepared() {
            assert!(self.plan(table, &id).is_some(), "an indexed entry exists");
        }
    }
}
