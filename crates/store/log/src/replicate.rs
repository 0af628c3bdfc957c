//! Replication: the bytes that the disk still has to write, and the segments that it may free.
//!
//! The order of replication makes a crash harmless at any moment. Two rules hold for a node's own
//! disk (decision 15 has the rules for replicas on other servers). A head's bytes are handed out
//! only once its predecessor is sealed and wholly durable. A head's digest leaves out a cleaned
//! segment only if the survivors that it lists instead were wholly durable when the head was
//! opened. So all segments that are listed by the digest of the newest head on disk are on the
//! disk.

use crate::log::{Appender, Log};
use crate::{Durability, Ref};
use sprat_wire::entry::Role;
use std::ops::Range;

/// The largest number of memory slices handed out by one call; further slices follow in later
/// calls.
pub const PENDING_SLICES: usize = 16;

/// Bytes of a segment that are to be replicated. They are borrowed from the log's memory.
#[derive(Clone, Debug)]
pub struct Pending<'a> {
    /// Id of the segment.
    pub segment: u64,
    /// Offset of the bytes in the segment's byte stream.
    pub offset: usize,
    /// Bytes in all slices together.
    pub len: usize,
    /// Whether the segment is sealed and these are its last bytes. `len` is 0 when the segment was
    /// sealed after all its bytes were handed out.
    pub sealed: bool,
    slices: [&'a [u8]; PENDING_SLICES],
    count: usize,
}

impl<'a> Pending<'a> {
    /// Returns the bytes, in order; no slice is empty.
    ///
    /// The bytes do not move or change until they are marked durable.
    #[must_use]
    pub fn slices(&self) -> &[&'a [u8]] {
        &self.slices[..self.count]
    }
}

/// A segment that is not yet sealed and wholly durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OpenSegment {
    /// Id of the segment.
    pub segment: u64,
    /// Whether the segment is a head or a survivor.
    pub role: Role,
    /// Bytes of a head's header entry; 0 for a survivor.
    pub header: usize,
    /// Bytes appended to the segment, including the header's.
    pub appended: usize,
    /// Whether nothing will be appended any more.
    pub sealed: bool,
}

impl Log {
    /// Returns the number of bytes ever appended to heads. Entries written before the call are
    /// durable when [`Log::durable_position`] has reached this number.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position up to which the log is durable.
    /// A group is durable only as a whole.
    #[must_use]
    pub fn durable_position(&self) -> u64 {
        self.whole_groups(self.durable_bytes())
    }

    /// Returns the position up to which the bytes of the log are durable.
    pub(crate) fn durable_bytes(&self) -> u64 {
        match self.heads.front() {
            Some(&slot) => {
                let head = self.memory.segment(slot);
                head.base + head.durable as u64
            }
            None => self.position,
        }
    }

    /// Returns whether an entry would be found after a crash at this moment. Always true if there
    /// is no disk.
    #[must_use]
    pub fn is_durable(&self, reference: Ref) -> bool {
        let segment = self.memory.segment(self.memory.seglets.owner(reference.address));
        if self.config.durability == Durability::Volatile
            || segment.closed
            || segment.role == Role::Survivor
        {
            // Until a survivor is durable, its entries are also in the segments from which they
            // were moved.
            return true;
        }
        let mut offset = 0;
        for extent in &segment.extents {
            if (extent.start..extent.end).contains(&reference.address) {
                let end = offset + (reference.address - extent.start) + reference.len;
                return end <= segment.durable && self.is_in_whole_group(segment.base + end as u64);
            }
            offset += extent.used();
        }
        unreachable!("the owner of a seglet has an extent there")
    }

    /// Returns the next bytes to replicate: those of the oldest head that is not yet sealed and
    /// wholly durable, or, if that head has none, those of a survivor. Returns `None` if there are
    /// none for now.
    ///
    /// After handing the bytes to the disk, report them with [`Log::mark_submitted`].
    #[must_use]
    pub fn next_pending(&self) -> Option<Pending<'_>> {
        assert!(self.group.is_none(), "a group has not ended");
        self.heads.iter().take(1).chain(&self.survivors).find_map(|&slot| self.pending_of(slot))
    }

    fn pending_of(&self, slot: u32) -> Option<Pending<'_>> {
        let segment = self.memory.segment(slot);
        if segment.submitted == segment.appended && segment.sealed == segment.seal_submitted {
            return None;
        }
        Some(self.pending_from(slot, segment.submitted..segment.appended, usize::MAX))
    }

    /// Returns the beginning of a range of a segment's bytes, at most [`PENDING_SLICES`] slices. If
    /// these slices have more than `most` bytes, returns only the whole entries that fit into
    /// `most` bytes.
    fn pending_from(&self, slot: u32, range: Range<usize>, most: usize) -> Pending<'_> {
        let segment = self.memory.segment(slot);
        let mut slices = [&[][..]; PENDING_SLICES];
        let (mut count, mut len) = (0, 0);
        let mut skip = range.start;
        for extent in &segment.extents {
            if skip >= extent.used() {
                skip -= extent.used();
                continue;
            }
            if count == PENDING_SLICES || len == range.len() {
                break;
            }
            let from = extent.start + skip;
            let end = extent.end.min(from + range.len() - len);
            let whole = if end - from <= most - len {
                end - from
            } else {
                self.whole_entries(from..end, most - len)
            };
            if whole == 0 {
                break;
            }
            slices[count] = &self.memory.bytes[from..from + whole];
            len += whole;
            count += 1;
            skip = 0;
            if from + whole < end {
                break;
            }
        }
        let sealed = segment.sealed && range.start + len == segment.appended;
        Pending { segment: segment.id, offset: range.start, len, sealed, slices, count }
    }

    /// Returns the length of the whole entries from an address on that have at most `most` bytes
    /// together.
    fn whole_entries(&self, addresses: Range<usize>, most: usize) -> usize {
        let mut len = 0;
        while addresses.start + len < addresses.end {
            let next = self.memory.entry(addresses.start + len).encoded_len();
            if len + next > most {
                break;
            }
            len += next;
        }
        len
    }

    /// Returns the segments that are not yet sealed and wholly durable: heads, oldest first, then
    /// survivors. An owner that keeps several replicas of a segment calls this, since each replica
    /// has its own progress. An owner with one replica calls [`next_pending`](Self::next_pending).
    pub fn open_segments(&self) -> impl Iterator<Item = OpenSegment> + '_ {
        self.heads.iter().chain(&self.survivors).map(|&slot| {
            let segment = self.memory.segment(slot);
            OpenSegment {
                segment: segment.id,
                role: segment.role,
                header: segment.header_len,
                appended: segment.appended,
                sealed: segment.sealed,
            }
        })
    }

    /// Returns the bytes of an open segment: the whole entries at the beginning of `range`, as many
    /// as fit into `most` bytes and [`PENDING_SLICES`] slices. Both ends of the range must be ends
    /// of entries.
    ///
    /// # Panics
    /// When the segment is not open or has fewer bytes: an error of the caller.
    #[must_use]
    pub fn bytes_of(&self, segment: u64, range: Range<usize>, most: usize) -> Pending<'_> {
        let slot = self.memory.by_id[&segment];
        let open = self.memory.segment(slot);
        assert!(!open.closed && range.start <= range.end && range.end <= open.appended);
        self.pending_from(slot, range, most)
    }

    /// Reports that a segment's byte stream was handed to the disk up to `up_to`, and, if `sealed`,
    /// that its seal was too.
    ///
    /// # Panics
    /// When the segment is unknown, or has fewer bytes, or more bytes were reported before, or
    /// `sealed` is true before the segment is sealed or without its last byte: an error of the
    /// caller.
    pub fn mark_submitted(&mut self, segment: u64, up_to: usize, sealed: bool) {
        let slot = self.memory.by_id[&segment];
        let segment = self.memory.segment_mut(slot);
        assert!(segment.submitted <= up_to && up_to <= segment.appended);
        assert!(!sealed || segment.sealed && up_to == segment.appended);
        segment.submitted = up_to;
        segment.seal_submitted |= sealed;
    }

    /// Reports that a segment's byte stream is durable up to `up_to`, and, if `sealed`, that its
    /// seal is too.
    ///
    /// # Panics
    /// When those bytes, or the seal, were never reported as submitted: an error of the caller.
    pub fn mark_durable(&mut self, segment: u64, up_to: usize, sealed: bool) {
        // A segment that is no longer known was wholly durable, and has been cleaned since.
        let Some(&slot) = self.memory.by_id.get(&segment) else { return };
        let segment = self.memory.segment_mut(slot);
        assert!(up_to <= segment.submitted || segment.closed || segment.cleaned);
        assert!(!sealed || segment.seal_submitted && up_to == segment.appended);
        segment.durable = segment.durable.max(up_to);
        segment.seal_durable |= sealed;
        if segment.durable >= segment.header_len {
            for id in std::mem::take(&mut segment.freed_segments) {
                self.memory.forget(id);
                self.reclaimable.push(id);
                self.reclaimed += 1;
            }
        }
        self.close_durable_heads();
        self.forget_groups();
        let memory = &self.memory;
        self.survivors.retain(|&slot| !memory.segment(slot).wholly_durable());
    }

    /// Closes the oldest heads that are wholly durable.
    pub(crate) fn close_durable_heads(&mut self) {
        while let Some(&slot) = self.heads.front()
            && self.memory.segment(slot).wholly_durable()
        {
            self.memory.segment_mut(slot).closed = true;
            self.heads.pop_front();
        }
    }

    /// Returns the id of the head, and the number of its bytes that were not reported as submitted
    /// yet.
    #[must_use]
    pub fn head_pending(&self) -> (u64, usize) {
        let head = self.memory.segment(self.head);
        (head.id, head.appended - head.submitted)
    }

    /// Seals the head and opens the next, for an owner whose replica of the head is full before the
    /// head is. Returns false, and leaves the head open, when there is no room for another segment
    /// now.
    pub fn roll_head(&mut self) -> bool {
        self.open_head(Appender::Writer).is_ok()
    }

    /// Does what [`roll_head`](Self::roll_head) does, for a removal, which may continue when a full
    /// disk stops writers.
    pub fn roll_head_to_remove(&mut self) -> bool {
        self.open_head(Appender::Remover).is_ok()
    }

    /// Returns, once, the ids of segments whose replicas on disk may be freed because the newest
    /// durable head does not list them.
    pub fn take_reclaimable(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.reclaimable)
    }
}
