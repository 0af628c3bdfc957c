//! The head is the segment to which writers append. The log takes room for entries in it, cleans if
//! memory is short, and opens the next head when one is full.

use super::{Full, Log, NO_SLOT, REMOVALS};
use crate::config::{CLEANER_SEGMENTS, Durability, REMOVAL_SEGMENTS};
use crate::segment::{NoRoom, wanted_run};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::value::ValueType;

/// Limit on the slices of cleaning that one write runs before it is refused. For each seglet of
/// memory, [`FORCED_SLICES_PER_SEGLET`] slices are added to the limit. Together they are enough to
/// clean all memory twice.
const FORCED_SLICES: usize = 256;

/// Slices in addition for each seglet of memory, see [`FORCED_SLICES`].
const FORCED_SLICES_PER_SEGLET: usize = 8;

impl Log {
    /// Takes room for an entry in the head, and cleans as needed: the writer pays for the cleaning.
    pub(crate) fn make_room(&mut self, len: usize, appender: Appender) -> Result<usize, Full> {
        if self.group.is_some() {
            return self.room_in_group(len);
        }
        if !self.fits_segment(len) {
            return Err(Full::Memory);
        }
        if self.memory.seglets.free() < self.low_water {
            self.clean_for_write(len);
        }
        let mut lacks_disk = false;
        let slices = FORCED_SLICES + FORCED_SLICES_PER_SEGLET * self.config.seglets();
        let mut wanted = wanted_run(len);
        for _ in 0..slices {
            let no_room = match self.append_to_head(len, wanted, appender) {
                Ok(address) => return Ok(address),
                Err(no_room) => no_room,
            };
            lacks_disk = matches!(no_room, NoRoom::Disk) && self.is_disk_limited();
            if let NoRoom::Fragmented { run } = no_room
                && self.make_run(run)
            {
                continue;
            }
            if !matches!(no_room, NoRoom::Disk) && std::mem::replace(&mut wanted, 1) > 1 {
                continue;
            }
            if !self.forced_slice() {
                break;
            }
        }
        let replicating =
            self.heads.len() > 1 || !self.survivors.is_empty() || self.cleaner.waits();
        // Whether some segments will be freed once a head that no longer lists them is durable.
        let leaving =
            self.heads.iter().any(|&slot| !self.memory.segment(slot).freed_segments.is_empty());
        let waiting = replicating || leaving || self.memory.pins > 0;
        Err(match (waiting, lacks_disk) {
            (true, _) => Full::Replication,
            (false, true) => Full::Disk,
            (false, false) => Full::Memory,
        })
    }

    /// Returns whether entries of this length fit into a segment after its header.
    pub(crate) fn fits_segment(&self, len: usize) -> bool {
        len + self.config.header_bytes_max() <= self.config.segment_bytes
    }

    /// Limits the number of segments on disk, existing segments included; `None` means the limit in
    /// the configuration. Writers leave the last segments to removals and to the cleaner, so that a
    /// log on a full disk can be emptied.
    pub fn limit_disk(&mut self, segments: Option<usize>) {
        self.disk_limit = segments.unwrap_or(usize::MAX);
    }

    /// Limits the length of the head, in bytes: the log seals the head rather than append beyond
    /// `len`, because some replica has no room for more. The limit of one head is never raised: the
    /// owner may need a backup again that has a full replica. The next head has no limit yet.
    pub fn limit_head(&mut self, len: usize) {
        self.head_limit = self.head_limit.min(len);
    }

    pub(crate) fn is_disk_limited(&self) -> bool {
        self.disk_limit < self.config.max_segments_on_disk
    }

    /// Returns whether writers cannot open another segment because the disk is full.
    #[must_use]
    pub fn lacks_disk(&self) -> bool {
        self.is_disk_limited() && self.disk_room() <= self.segments_left(Appender::Writer)
    }

    /// Segments on disk that `appender` must leave to other appenders when it opens a head.
    fn segments_left(&self, appender: Appender) -> usize {
        match appender {
            Appender::Cleaner => 0,
            // If the configuration is the limit, there are always dead entries to be cleaned. On a
            // full disk all entries may be alive.
            Appender::Writer if self.is_disk_limited() => CLEANER_SEGMENTS + REMOVAL_SEGMENTS,
            Appender::Writer | Appender::Remover | Appender::Decision => CLEANER_SEGMENTS,
        }
    }

    /// Free seglets that `appender` must leave to others.
    fn floor(&self, appender: Appender) -> usize {
        match appender {
            Appender::Writer | Appender::Decision => self.reserve,
            Appender::Remover | Appender::Cleaner => 0,
        }
    }

    fn append_to_head(
        &mut self,
        len: usize,
        run: usize,
        appender: Appender,
    ) -> Result<usize, NoRoom> {
        if appender == Appender::Writer && self.memory.seglets.free() < REMOVALS {
            // The rest of the head's memory is for removals.
            return Err(NoRoom::Memory);
        }
        let (limit, floor) = (self.config.segment_bytes, self.floor(appender));
        let head_limit = limit.min(self.head_limit);
        let address = match self.memory.append(self.head, len, run, head_limit, floor) {
            Err(NoRoom::Segment) => {
                self.open_head(appender)?;
                self.memory.append(self.head, len, run, limit, floor)
            }
            other => other,
        }?;
        self.position += len as u64;
        Ok(address)
    }

    /// Seals the head, if there is one, and opens the next. The new head's digest lists the
    /// survivors that became durable, and no longer the segments cleaned into them. For the new
    /// head the cleaner may take its reserves; a writer must leave them.
    pub(crate) fn open_head(&mut self, appender: Appender) -> Result<(), NoRoom> {
        let tracked = self.config.durability == Durability::Tracked;
        let segments = self.segments_left(appender);
        let floor = self.floor(appender);
        assert!(self.group.is_none(), "a group lies in one head");
        if self.disk_room() <= segments {
            return Err(NoRoom::Disk);
        }
        let id = self.memory.next_id;
        let slot = self.memory.add(id, Role::Head, self.position);
        self.memory.segment_mut(slot).listed = true;
        let batches = self.durable_batches();
        let digest = if tracked { self.digest(batches) } else { Vec::new() };
        let header =
            SegmentHeader { id, safe_version: self.safe_version, role: Role::Head, digest };
        match self.append_header(slot, &header, floor) {
            Ok(len) => {
                // Survivors count as listed only now that the head has room. Otherwise a tombstone
                // in the present head could name a survivor that no digest lists after a crash, and
                // the object that the tombstone deletes would return.
                let freed_segments = self.list(batches);
                let segment = self.memory.segment_mut(slot);
                (segment.header_len, segment.freed_segments) = (len, freed_segments);
                self.position += len as u64;
                self.head_version = header.safe_version;
            }
            Err(no_room) => {
                self.memory.abandon(slot);
                return Err(no_room);
            }
        }
        if self.head != NO_SLOT {
            self.memory.seal(self.head);
            if tracked {
                self.close_durable_heads();
            } else {
                self.memory.segment_mut(self.head).closed = true;
            }
        }
        (self.head, self.head_limit) = (slot, usize::MAX);
        if tracked {
            self.heads.push_back(slot);
        }
        Ok(())
    }

    /// Writes the header of a new segment; returns its length.
    pub(crate) fn append_header(
        &mut self,
        slot: u32,
        header: &SegmentHeader,
        floor: usize,
    ) -> Result<usize, NoRoom> {
        let value = header.encode();
        let (kind, version, value_type) = (Kind::Segment, header.safe_version, ValueType::Bytes);
        let entry = Entry {
            kind,
            successor: false,
            table: 0,
            version,
            key: &[],
            value: &value,
            value_type,
            expires: NEVER,
        };
        let len = entry.encoded_len();
        let address = self.memory.append(slot, len, 1, self.config.segment_bytes, floor)?;
        entry.encode(&mut self.memory.bytes[address..address + len]);
        Ok(len)
    }
}

/// Who appends to the head. The memory that the append may take depends on this: see
/// [`Log::floor`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Appender {
    /// A write, of an object or a completion.
    Writer,
    /// The decision of an operation of a transaction. It must be written even if the disk is full:
    /// the transaction is over, and its objects are locked until then.
    Decision,
    /// A removal: a tombstone, and the completion of the removal.
    Remover,
    /// The cleaner, or a log that begins: the header of a new head.
    Cleaner,
}
