//! Copies of segments that are closed, for replicas that are lost: what counts of them, from
//! memory.
//!
//! A copy is not what was written once: the cleaner may have slid together what is alive, and
//! forgotten the rest. It says the same all the same, *once the log is durable up to*
//! [`SegmentCopy::position`]. For whatever the cleaner took for dead until the copy began is so by
//! something that was in the log by then: an object by a later version or by a tombstone, a
//! tombstone by a head that no longer lists what it buried (and that was durable before it was
//! forgotten). What comes later cannot change it: from the beginning of a copy to its end the
//! segment is pinned.
//!
//! It begins with a header of its own, a head's without a digest ([`SegmentHeader::is_copy`]): what
//! it has counts, also a completion that is its last entry.

use crate::log::Log;
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::value::ValueType;

/// A copy under way: to be given back by [`Log::end_copy`], for until then the segment is kept from
/// the cleaner.
#[derive(Debug)]
#[must_use = "a copy holds memory until it is given back"]
pub struct SegmentCopy {
    slot: u32,
    position: u64,
    /// Where the next entry is: the extent, and how far in it; `None` before the header.
    next: Option<(usize, usize)>,
}

impl SegmentCopy {
    /// The copy may count when the log is durable up to here.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Log {
    /// Begins to copy a segment; `None` when that is not durable as a whole, or is about to go:
    /// combined with others, it will be freed.
    pub fn begin_copy(&mut self, segment: u64) -> Option<SegmentCopy> {
        let slot = *self.memory.by_id.get(&segment)?;
        let combination = self.cleaner.combination.as_ref();
        let goes = combination.is_some_and(|combination| combination.takes_from(slot));
        let copied = self.memory.segment(slot);
        if !copied.wholly_durable() || copied.cleaned || goes {
            return None;
        }
        self.memory.pin(slot);
        Some(SegmentCopy { slot, position: self.position, next: None })
    }

    /// Appends to `out` the entries that are next, until these are `least` bytes or more; false
    /// when there are no more.
    pub fn go_on_copying(&self, copy: &mut SegmentCopy, least: usize, out: &mut Vec<u8>) -> bool {
        let segment = self.memory.segment(copy.slot);
        let end = out.len() + least;
        let (mut extent, mut offset) = copy.next.unwrap_or_else(|| {
            let (id, role, safe_version) = (segment.id, segment.role, self.safe_version);
            let header = SegmentHeader { id, safe_version, role, digest: Vec::new() };
            push_header(out, &header);
            (0, 0)
        });
        let mut more = false;
        while let Some(&from) = segment.extents.get(extent) {
            if from.start + offset >= from.end {
                (extent, offset) = (extent + 1, 0);
                continue;
            }
            if out.len() >= end {
                more = true;
                break;
            }
            let at = from.start + offset;
            let entry = self.memory.entry(at);
            let len = entry.encoded_len();
            // The header, and gaps that a compaction has left, which have no checksum.
            if entry.kind != Kind::Segment {
                out.extend_from_slice(&self.memory.bytes[at..at + len]);
            }
            offset += len;
        }
        copy.next = Some((extent, offset));
        more
    }

    /// Gives a copy back, whether it was finished or not.
    #[expect(clippy::needless_pass_by_value, reason = "a copy is given back once")]
    pub fn end_copy(&mut self, copy: SegmentCopy) {
        self.memory.unpin(copy.slot);
    }

    /// Opens a head before its time if segments that were combined wait for nothing else to go.
    /// False if there are none.
    pub fn let_go(&mut self) -> bool {
        self.roll_for_batches()
    }
}

fn push_header(out: &mut Vec<u8>, header: &SegmentHeader) {
    debug_assert!(header.role == Role::Survivor || header.is_copy());
    let value = header.encode();
    let (kind, version, value_type) = (Kind::Segment, header.safe_version, ValueType::Bytes);
    let entry =
        Entry { kind, successor: false, table: 0, version, key: &[], value: &value, value_type };
    let at = out.len();
    out.resize(at + entry.encoded_len(), 0);
    entry.encode(&mut out[at..]);
}
