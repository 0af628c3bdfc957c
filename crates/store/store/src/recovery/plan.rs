//! Which replicas make up the log of a master that is gone, or what of it is lost: a pure function
//! of what backups say.
//!
//! The rules are those of [decision 15](../../../../../docs/decisions/0015-replicas-and-leases.md).
//! A log has always an open head: so the newest head that is found must be open, or a newer one is
//! missing. An open replica counts if nothing can have been acknowledged without it: if its segment
//! is a head, not below `min_open`, and either the newest, or the one before while the newest has
//! nothing but its header.

use sprat_wire::op::ReplicaRecord;
use std::collections::BTreeMap;
use thiserror::Error;

/// A replica, and who keeps it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Held {
    /// The backup.
    pub server: u32,
    /// What it has.
    pub record: ReplicaRecord,
}

/// What all backups that answered have of one master.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    segments: BTreeMap<u64, Vec<Held>>,
}

/// Where to read a segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// The segment.
    pub segment: u64,
    /// Bytes of its log.
    pub len: u32,
    /// Who has all of them.
    pub servers: Vec<u32>,
    /// Who has the same told in another number of bytes, and that number: copies, made when
    /// replicas were lost.
    pub copies: Vec<(u32, u32)>,
}

/// A log that is all there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// Its segments, newest first; the first is the newest head.
    pub sources: Vec<Source>,
    /// Of these heads all that is left lost its backup's memory once: what was written in the last
    /// second before that may be missing.
    pub unsure: Vec<u64>,
}

/// Why a log is not all there.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Lost {
    /// No head was found, though there was one.
    #[error("no replica of any head was found")]
    Everything,
    /// The newest head that was found is closed, or void: a newer one is missing.
    #[error("the newest head found, segment {0}, is not the last: a newer one is missing")]
    Head(u64),
    /// A segment that the newest head lists is nowhere whole.
    #[error("segment {segment}, which head {head} lists, is nowhere whole")]
    Segment {
        /// The segment.
        segment: u64,
        /// The newest head.
        head: u64,
    },
}

impl Inventory {
    /// A backup has answered.
    pub fn add(&mut self, server: u32, records: impl IntoIterator<Item = ReplicaRecord>) {
        for record in records {
            self.segments.entry(record.segment).or_default().push(Held { server, record });
        }
    }

    /// The newest head and who has most of it: its first entry is the digest that
    /// [`plan`](Self::plan) wants.
    #[must_use]
    pub fn newest_head(&self) -> Option<Source> {
        let heads = self.segments.iter().rev().filter(|(_, held)| held.iter().any(is_head));
        let (&segment, held) = heads.clone().next()?;
        Some(longest(segment, held.iter().filter(|held| is_head(held))).0)
    }

    /// What makes up the log: `digest` are the segments that the newest head lists, itself among
    /// them, and `header` the bytes of its first entry. Open heads below `min_open` are void.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn plan(&self, digest: &[u64], header: usize, min_open: u64) -> Result<Plan, Lost> {
        let newest = self.newest_head().ok_or(Lost::Everything)?;
        let head = newest.segment;
        let held = &self.segments[&head];
        if held.iter().any(|held| held.record.sealed)
            || head < min_open
            || digest.binary_search(&head).is_err()
        {
            return Err(Lost::Head(head));
        }
        let mut plan = Plan::default();
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

impl Plan {
    fn add(&mut self, (source, unsure): (Source, bool)) {
        if unsure {
            self.unsure.push(source.segment);
        }
        self.sources.push(source);
    }
}

fn is_head(held: &Held) -> bool {
    held.record.head && held.record.len > 0
}

/// The longest of some replicas and all that are as long; those whose backup lost its memory only
/// if there are no others, and then that is said.
fn longest<'a>(segment: u64, held: impl Iterator<Item = &'a Held> + Clone) -> (Source, bool) {
    let unsure = held.clone().all(|held| held.record.unsure);
    let counted = held.filter(|held| held.record.unsure == unsure);
    let len = counted.clone().map(|held| held.record.len).max().unwrap_or(0);
    let mut servers: Vec<u32> =
        counted.filter(|held| held.record.len == len).map(|held| held.server).collect();
    // All who recover ask the same one for a segment, which reads and sorts it once, and another
    // for the next.
    servers.sort_unstable();
    let first = usize::try_from(segment % servers.len().max(1) as u64)
        .expect("less than there are servers");
    servers.rotate_left(first);
    (Source { segment, len, servers, copies: Vec::new() }, unsure)
}
