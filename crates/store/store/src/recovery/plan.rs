//! Decides which replicas make up the log of a dead master, or which part of it is lost: a pure
//! function of the records that backups return.
//!
//! The rules are those of [decision 15](../../../../../docs/decisions/0015-replicas-and-leases.md).
//! A log always has an open head. So the newest head that is found must be open, or a newer one is
//! missing. An open replica counts if nothing can have been acknowledged without it. For this its
//! segment must be a head and not below `min_open`. It must be the newest head, or the one before
//! it while the newest has only its header.

use sprat_wire::op::ReplicaRecord;
use std::collections::BTreeMap;
use thiserror::Error;

/// A replica and the backup that keeps it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeldReplica {
    /// The backup.
    pub server: u32,
    /// The backup's record of the replica.
    pub record: ReplicaRecord,
}

/// The replicas of one master's log on all backups that answered.
///
/// Call [`add`](Self::add) for each backup, read the header of the [newest
/// head](Self::newest_head), and pass its digest to [`plan`](Self::plan).
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    segments: BTreeMap<u64, Vec<HeldReplica>>,
}

/// A segment to read, and the backups to read it from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SegmentSource {
    /// The segment.
    pub segment: u64,
    /// Bytes of the segment.
    pub len: u32,
    /// Backups that have all of these bytes.
    pub servers: Vec<u32>,
    /// Backups with a replica of another length, and that length. Such a replica is a copy with the
    /// segment's live entries, which was made when replicas were lost.
    pub copies: Vec<(u32, u32)>,
}

/// The segments of a complete log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoveryPlan {
    /// The log's segments, newest first. The first is the newest head.
    pub sources: Vec<SegmentSource>,
    /// Heads whose only remaining replicas are on backups that once lost their memory. Bytes
    /// written in the last second before that loss may be missing.
    pub unsure: Vec<u64>,
}

/// Why a log is not complete.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Lost {
    /// The log had a head, but no replica of a head was found.
    #[error("no replica of any head was found")]
    Everything,
    /// The newest head that was found is sealed, below `min_open` or not in its own digest, so a
    /// newer one is missing. Or no backup returned a valid header of this head.
    #[error("the newest head found, segment {0}, is not the last: a newer one is missing")]
    Head(u64),
    /// There is no whole replica of a segment that the newest head lists.
    #[error("no complete replica was found of segment {segment}, which head {head} lists")]
    Segment {
        /// The segment.
        segment: u64,
        /// The newest head.
        head: u64,
    },
}

impl Inventory {
    /// Adds the records that a backup returned.
    pub fn add(&mut self, server: u32, records: impl IntoIterator<Item = ReplicaRecord>) {
        for record in records {
            self.segments.entry(record.segment).or_default().push(HeldReplica { server, record });
        }
    }

    /// Returns the newest head and the backups with the longest replicas of it; unsure replicas
    /// count only if there are no others. Returns `None` if no head was found. The head's first
    /// entry has the digest for [`plan`](Self::plan).
    #[must_use]
    pub fn newest_head(&self) -> Option<SegmentSource> {
        let heads = self.segments.iter().rev().filter(|(_, held)| held.iter().any(is_head));
        let (&segment, held) = heads.clone().next()?;
        Some(longest(segment, held.iter().filter(|held| is_head(held))).0)
    }

    /// Determines the segments that make up the log. `digest` are the segments that the newest head
    /// lists, ascending, including the head itself; `header` is the length of its first entry. Open
    /// heads below `min_open` do not count.
    ///
    /// # Errors
    /// [`Lost`] when no head was found; when the newest one found is sealed, below `min_open` or
    /// not in `digest`; or when a segment that it lists has no whole replica.
    pub fn plan(&self, digest: &[u64], header: usize, min_open: u64) -> Result<RecoveryPlan, Lost> {
        let newest = self.newest_head().ok_or(Lost::Everything)?;
        let head = newest.segment;
        let held = &self.segments[&head];
        if held.iter().any(|held| held.record.sealed)
            || head < min_open
            || digest.binary_search(&head).is_err()
        {
            return Err(Lost::Head(head));
        }
        let mut plan = RecoveryPlan::default();
        plan.add(longest(head, held.iter().filter(|held| is_head(held))));
        let is_empty = newest.len as usize <= header;
        let before =
            digest.iter().rev().copied().find(|&segment| segment < head && self.is_head(segment));
        for &segment in digest.iter().rev().filter(|&&segment| segment != head) {
            let lost = Lost::Segment { segment, head };
            let held = self.segments.get(&segment).ok_or_else(|| lost.clone())?;
            let sealed = held.iter().filter(|held| held.record.sealed);
            if sealed.clone().next().is_some() {
                let (mut source, _) = longest(segment, sealed.clone());
                let others = sealed.filter(|held| held.record.len != source.len);
                source.copies = others.map(|held| (held.server, held.record.len)).collect();
                plan.add((source, false));
            } else if Some(segment) == before && is_empty && segment >= min_open {
                plan.add(longest(segment, held.iter().filter(|held| is_head(held))));
            } else {
                return Err(lost);
            }
        }
        Ok(plan)
    }

    fn is_head(&self, segment: u64) -> bool {
        self.segments.get(&segment).is_some_and(|held| held.iter().any(is_head))
    }
}

impl RecoveryPlan {
    fn add(&mut self, (source, unsure): (SegmentSource, bool)) {
        if unsure {
            self.unsure.push(source.segment);
        }
        self.sources.push(source);
    }
}

fn is_head(held: &HeldReplica) -> bool {
    held.record.head && held.record.len > 0
}

/// Makes a source of the longest of some replicas. Unsure replicas, whose backup lost its memory,
/// are used only if there are no others; the second value says whether unsure ones are used.
fn longest<'a>(
    segment: u64,
    held: impl Iterator<Item = &'a HeldReplica> + Clone,
) -> (SegmentSource, bool) {
    let unsure = held.clone().all(|held| held.record.unsure);
    let usable = held.filter(|held| held.record.unsure == unsure);
    let len = usable.clone().map(|held| held.record.len).max().unwrap_or(0);
    let mut servers: Vec<u32> =
        usable.filter(|held| held.record.len == len).map(|held| held.server).collect();
    // All recovering servers read a segment from the same backup, so that it is sorted only once.
    // They read the next segment from another backup.
    servers.sort_unstable();
    let first = usize::try_from(segment % servers.len().max(1) as u64)
        .expect("less than there are servers");
    servers.rotate_left(first);
    (SegmentSource { segment, len, servers, copies: Vec::new() }, unsure)
}
