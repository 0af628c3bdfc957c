//! Level 2: moves the live entries of several segments to survivors, so that the segments' replicas
//! can be freed.

use super::choose::{LEAST_ROOM, SURVIVORS_MAX};
use super::{Budget, NO_VISITS};
use crate::config::{CLEANER_SEGMENTS, Durability};
use crate::log::{Appender, Log, NO_SLOT, REMOVALS};
use crate::segment::NoRoom;
use sprat_wire::entry::{Role, SegmentHeader};
use std::collections::VecDeque;

/// The largest number of finished combinations whose survivors no head lists yet. At the limit, no
/// further combination begins until one of these is durable and a new head lists its survivors.
const BATCHES_MAX: usize = 4;

/// A combination in progress.
#[derive(Debug)]
pub(crate) struct Combination {
    /// Segments to take entries from; the next entry is the first of the first segment's first
    /// extent.
    sources: VecDeque<u32>,
    /// Ids of the former sources, which have no entries left.
    cleaned: Vec<u64>,
    /// Survivor that is being filled, or `NO_SLOT`, and all survivors of this combination.
    survivor: u32,
    survivors: Vec<u32>,
    written_at: u64,
}

impl Combination {
    /// Returns whether the segment in `slot` is still a source.
    pub(crate) fn takes_from(&self, slot: u32) -> bool {
        self.sources.contains(&slot)
    }
}

/// A finished combination. The cleaned segments may be freed once the survivors are durable and a
/// durable digest lists the survivors and no longer the cleaned segments.
#[derive(Debug)]
pub(crate) struct FinishedCombination {
    cleaned: Vec<u64>,
    survivors: Vec<u32>,
    /// Position of the log when the combination finished. Entries that the combination did not move
    /// had been overwritten or removed before that position. They would be missing if the log lost
    /// its end up to this position, so the log must be durable up to there first.
    position: u64,
}

impl Log {
    /// Continues the combination in progress, or begins one if that is worthwhile. Returns whether
    /// it did something; returns false also when memory or the disk has no room for a survivor, or
    /// when a compaction of the next source is in progress.
    pub(super) fn combine_step(&mut self, budget: &mut Budget, forced: bool) -> bool {
        let mut job = match self.cleaner.combination.take() {
            Some(job) => job,
            None => match self.begin_combination(forced) {
                Some(job) => job,
                None => return false,
            },
        };
        let mut worked = false;
        while !budget.is_spent() {
            let Some(&source) = job.sources.front() else {
                self.finish_combination(job);
                return true;
            };
            if self.cleaner.compaction.as_ref().is_some_and(|compaction| compaction.slot == source)
            {
                break;
            }
            let Some(&extent) = self.memory.segment(source).extents.first() else {
                job.cleaned.push(self.finish_source(source));
                job.sources.pop_front();
                worked = true;
                continue;
            };
            let mut visits = NO_VISITS;
            let count = self.gather(extent.start, extent.end, *budget, &mut visits);
            for visit in &visits[..count] {
                if let Some(live) = self.check_live(visit, source) {
                    let to = match self.survivor_room(&mut job, visit.len) {
                        Ok(to) => to,
                        Err(no_room) => {
                            // Continues with this entry when there is room for it.
                            self.memory.advance(source, visit.address);
                            worked |= visit.address > extent.start;
                            if let NoRoom::Fragmented { run } = no_room {
                                worked |= self.make_run(run);
                            }
                            self.cleaner.combination = Some(job);
                            return worked;
                        }
                    };
                    self.relocate(visit, live, to);
                    self.cleaner.stats.combined_bytes += visit.len as u64;
                    let tombstone =
                        if matches!(live, super::Live::Tombstone) { visit.len } else { 0 };
                    for (slot, gains) in [(source, false), (job.survivor, true)] {
                        let segment = self.memory.segment_mut(slot);
                        if gains {
                            segment.live += visit.len;
                            segment.tombstones += tombstone;
                        } else {
                            segment.live -= visit.len;
                            segment.tombstones -= tombstone;
                        }
                    }
                }
                budget.take(visit.len);
            }
            let last = visits[count - 1];
            self.memory.advance(source, last.address + last.len);
            worked = true;
        }
        self.cleaner.combination = Some(job);
        worked
    }

    fn begin_combination(&mut self, forced: bool) -> Option<Combination> {
        // While a log is restored there is no head yet that could list survivors.
        let is_held = self.cleaner.holds_combinations;
        if self.head == NO_SLOT || is_held || self.cleaner.batches.len() >= BATCHES_MAX {
            return None;
        }
        let sources = self.choose_combination(forced, self.most_combined()?);
        if sources.is_empty() {
            return None;
        }
        let mut weight = 1;
        let mut sum = 0;
        for &slot in &sources {
            let segment = self.memory.segment(slot);
            weight += segment.live as u128;
            sum += u128::from(segment.written_at) * segment.live as u128;
        }
        let written_at = u64::try_from(sum / weight).expect("a mean is no more than the greatest");
        let (cleaned, survivors) = (Vec::new(), Vec::new());
        Some(Combination {
            sources: sources.into(),
            cleaned,
            survivor: NO_SLOT,
            survivors,
            written_at,
        })
    }

    /// Returns the largest number of bytes that a combination may move. If the disk has room for
    /// fewer than [`CLEANER_SEGMENTS`] segments, for example after a crash, the limit is half a
    /// segment, which is certain to fit into one survivor. `None` if other combinations wait for
    /// the disk then, or if the disk does not even have room for one survivor and the head that
    /// lists it.
    fn most_combined(&self) -> Option<usize> {
        let segment_bytes = self.config.segment_bytes;
        match self.disk_room() {
            CLEANER_SEGMENTS.. => Some(SURVIVORS_MAX * segment_bytes),
            LEAST_ROOM.. if self.cleaner.batches.is_empty() => Some(segment_bytes / 2),
            _ => None,
        }
    }

    /// Takes room for an entry in a survivor.
    fn survivor_room(&mut self, job: &mut Combination, len: usize) -> Result<usize, NoRoom> {
        let limit = self.config.segment_bytes;
        if job.survivor == NO_SLOT {
            self.open_survivor(job)?;
        }
        match self.memory.append(job.survivor, len, 1, limit, REMOVALS) {
            Err(NoRoom::Segment) => {
                self.seal_survivor(job);
                self.open_survivor(job)?;
                self.memory.append(job.survivor, len, 1, limit, REMOVALS)
            }
            other => other,
        }
    }

    fn open_survivor(&mut self, job: &mut Combination) -> Result<(), NoRoom> {
        let tracked = self.config.durability == Durability::Tracked;
        if self.disk_room() == 0 {
            return Err(NoRoom::Disk);
        }
        let id = self.memory.next_id;
        let slot = self.memory.add(id, Role::Survivor, job.written_at);
        let header = SegmentHeader {
            id,
            safe_version: self.safe_version,
            role: Role::Survivor,
            digest: Vec::new(),
        };
        if let Err(no_room) = self.append_header(slot, &header, REMOVALS) {
            self.memory.abandon(slot);
            return Err(no_room);
        }
        job.survivor = slot;
        job.survivors.push(slot);
        if tracked {
            self.survivors.push(slot);
        }
        Ok(())
    }

    fn seal_survivor(&mut self, job: &mut Combination) {
        self.memory.seal(job.survivor);
        if self.config.durability == Durability::Volatile {
            let segment = self.memory.segment_mut(job.survivor);
            segment.listed = true;
            segment.closed = true;
        } else {
            let memory = &self.memory;
            self.survivors.retain(|&slot| !memory.segment(slot).wholly_durable());
        }
        job.survivor = NO_SLOT;
    }

    fn finish_source(&mut self, slot: u32) -> u64 {
        self.cleaner.stats.combined_segments += 1;
        let segment = self.memory.segment_mut(slot);
        assert_eq!(segment.live, 0);
        assert!(segment.extents.is_empty());
        segment.cleaned = true;
        segment.id
    }

    fn finish_combination(&mut self, mut job: Combination) {
        if job.survivor != NO_SLOT {
            self.seal_survivor(&mut job);
        }
        let Combination { cleaned, survivors, .. } = job;
        match self.config.durability {
            Durability::Tracked => self.cleaner.batches.push_back(FinishedCombination {
                cleaned,
                survivors,
                position: self.position,
            }),
            Durability::Volatile => cleaned.into_iter().for_each(|id| self.memory.forget(id)),
        }
    }

    /// Returns the number of finished combinations, from the oldest on, that are durable. A
    /// combination is durable when all its survivors are, and when the log is durable up to the
    /// combination's position.
    pub(crate) fn durable_batches(&self) -> usize {
        let position = self.durable_position();
        let is_durable = |&slot: &u32| self.memory.segment(slot).wholly_durable();
        let durable = |batch: &&FinishedCombination| {
            batch.position <= position && batch.survivors.iter().all(is_durable)
        };
        self.cleaner.batches.iter().take_while(durable).count()
    }

    /// Returns the ids of the segments that a head lists if it is opened now. They include the
    /// survivors of the first `batches` finished combinations, but not the segments cleaned into
    /// these survivors.
    pub(crate) fn digest(&self, batches: usize) -> Vec<u64> {
        let ready = self.cleaner.batches.iter().take(batches);
        let (mut cleaned_ids, mut listed_survivors) = (Vec::new(), Vec::new());
        for batch in ready {
            cleaned_ids.extend(&batch.cleaned);
            listed_survivors
                .extend(batch.survivors.iter().map(|&slot| self.memory.segment(slot).id));
        }
        cleaned_ids.sort_unstable();
        listed_survivors.sort_unstable();
        let listed = |id: u64, slot: u32| {
            (self.memory.segment(slot).listed && cleaned_ids.binary_search(&id).is_err())
                || listed_survivors.binary_search(&id).is_ok()
        };
        self.memory
            .by_id
            .iter()
            .filter(|&(&id, &slot)| listed(id, slot))
            .map(|(&id, _)| id)
            .collect()
    }

    /// Marks the survivors of the first `batches` finished combinations as listed by a head;
    /// returns the ids of the segments whose replicas may be freed once the head's header is
    /// durable.
    pub(crate) fn list(&mut self, batches: usize) -> Vec<u64> {
        let mut freed_segments = Vec::new();
        for batch in self.cleaner.batches.drain(..batches) {
            for slot in batch.survivors {
                let segment = self.memory.segment_mut(slot);
                segment.listed = true;
                segment.closed = true;
            }
            for id in batch.cleaned {
                let slot = self.memory.by_id[&id];
                self.memory.segment_mut(slot).listed = false;
                freed_segments.push(id);
            }
        }
        freed_segments
    }

    /// Opens a new head early if a finished combination waits for nothing else. Returns whether it
    /// did.
    pub(crate) fn roll_for_batches(&mut self) -> bool {
        self.durable_batches() > 0
            && self.head != NO_SLOT
            && self.open_head(Appender::Cleaner).is_ok()
    }
}
