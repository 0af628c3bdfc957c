//! A segment while it is being written.

use sprat_disk::{AlignedBuf, BLOCK_BYTES};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::frame::{CHUNK_HEADER_BYTES, ChunkHeader, Seal, Seed, extend_crc};

/// Frame bytes reserved for chunk headers: one for the seal, and the others for chunks that may
/// begin between a call of [`Replica::room`] and the append.
const RESERVED_BYTES: usize = 4 * CHUNK_HEADER_BYTES;

/// Size of a new buffer, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// The largest number of buffers kept for the next commits.
const POOL_BUFFERS: usize = 8;

/// The largest buffer kept in the pool, in bytes; larger ones, of bulk writes, are returned to the
/// allocator.
const POOL_BUFFER_BYTES: usize = 1 << 20;

/// Buffers between commits.
#[derive(Default)]
pub(super) struct Pool(Vec<AlignedBuf>);

impl Pool {
    fn take(&mut self) -> AlignedBuf {
        self.0.pop().unwrap_or_else(|| AlignedBuf::zeroed(BUFFER_BYTES))
    }

    pub(super) fn give(&mut self, buffer: AlignedBuf) {
        if self.0.len() < POOL_BUFFERS && buffer.len() <= POOL_BUFFER_BYTES {
            self.0.push(buffer);
        }
    }
}

/// Properties that all segments in a file share.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub(super) seed: Seed,
    /// Bytes of a frame that chunks may take.
    pub(super) frame_bytes: usize,
    pub(super) segment_bytes: usize,
    /// Whether bytes are acknowledged to masters before they are on the medium.
    pub(super) buffered: bool,
}

/// The chunk that the next commit will carry, in a buffer laid out as its blocks will be.
struct Staged {
    buffer: AlignedBuf,
    filled: usize,
    log_start: u32,
    crc: u32,
}

/// A segment that is open on disk.
pub(super) struct Replica {
    pub(super) segment: u64,
    /// The incarnation of the segment's chunks, by which they differ from chunks of an earlier use
    /// of the frame.
    pub(super) incarnation: u32,
    /// Whether the segment is a head of this node's own log. False for survivors, and for other
    /// masters' segments.
    pub(super) head: bool,
    /// Whether the chunks that are written next are marked as a head's. Unlike `head`, this can
    /// also be true for a segment of another master.
    pub(super) marked_head: bool,
    /// The segment's frame, once the first chunk is being written.
    pub(super) frame: Option<u32>,
    /// Bytes of log taken.
    pub(super) log_end: u32,
    /// Whether the owner has sealed the segment.
    pub(super) sealed: bool,
    /// Bytes of log that survive a power failure.
    pub(super) durable: u32,
    /// Bytes of log reported durable.
    pub(super) reported: u32,
    /// Bytes of log with the kernel when the current sync was begun.
    pub(super) syncing: u32,
    /// The end of the log, in bytes, and whether it is sealed, once the current write is done.
    pub(super) in_flight: Option<(u32, bool)>,
    /// Whether the replica was freed during a write: its frame is released when the write is done.
    pub(super) freed: bool,
    /// Frame bytes written or being written: where the next chunk begins.
    position: usize,
    /// The bytes before `position` in its block, which the next chunk's write repeats.
    tail: Vec<u8>,
    staged: Option<Staged>,
}

/// A chunk ready to be written.
pub(super) struct Outgoing {
    pub(super) buffer: AlignedBuf,
    pub(super) len: usize,
    /// Offset in the frame.
    pub(super) offset: usize,
}

impl Replica {
    /// Begins a segment, with the incarnation that it will most likely have.
    pub(super) fn new(segment: u64, incarnation: u32, head: bool, marked_head: bool) -> Self {
        Self {
            segment,
            incarnation,
            head,
            marked_head,
            frame: None,
            log_end: 0,
            sealed: false,
            durable: 0,
            reported: 0,
            syncing: 0,
            in_flight: None,
            freed: false,
            position: 0,
            tail: Vec::with_capacity(BLOCK_BYTES),
            staged: None,
        }
    }

    /// Returns whether the replica has bytes, or its seal, for the next commit.
    pub(super) fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// Returns the number of bytes of log that the next commit will carry.
    pub(super) fn staged_bytes(&self) -> usize {
        self.staged.as_ref().map_or(0, |staged| (self.log_end - staged.log_start) as usize)
    }

    /// Returns the number of bytes of the replica's frame that are written or being written.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes of log that can still be taken.
    pub(super) fn room(&self, geometry: &Geometry) -> usize {
        if self.sealed {
            return 0;
        }
        let begun = self.staged.as_ref().map_or(0, |staged| staged.filled - self.tail.len());
        room(geometry, self.position + begun, self.log_end as usize)
    }

    /// Returns whether `len` bytes can be taken now. They may also use the bytes of the frame that
    /// are reserved for chunk headers.
    pub(super) fn fits(&self, geometry: &Geometry, len: usize) -> bool {
        let (begun, header) = match &self.staged {
            Some(staged) => (staged.filled - self.tail.len(), 0),
            None => (0, CHUNK_HEADER_BYTES),
        };
        let seal = CHUNK_HEADER_BYTES;
        let frame = self.position + begun + header + len + seal;
        !self.sealed
            && frame <= geometry.frame_bytes
            && self.log_end as usize + len <= geometry.segment_bytes
    }

    /// Takes bytes that follow those taken before.
    pub(super) fn append<'a>(
        &mut self,
        geometry: &Geometry,
        pool: &mut Pool,
        slices: impl Iterator<Item = &'a [u8]>,
        sealed: bool,
    ) {
        let staged = self.staged.get_or_insert_with(|| {
            let mut buffer = pool.take();
            let filled = self.tail.len() + CHUNK_HEADER_BYTES;
            buffer[..self.tail.len()].copy_from_slice(&self.tail);
            let log_start = self.log_end;
            let crc =
                ChunkHeader::payload_seed(geometry.seed, self.segment, self.incarnation, log_start);
            Staged { buffer, filled, log_start, crc }
        });
        for slice in slices {
            let end = staged.filled + slice.len();
            if end > staged.buffer.len() {
                staged.buffer.grow(end.next_power_of_two().min(geometry.frame_bytes + BLOCK_BYTES));
            }
            staged.buffer[staged.filled..end].copy_from_slice(slice);
            staged.crc = extend_crc(staged.crc, slice);
            staged.filled = end;
            self.log_end += u32::try_from(slice.len()).expect("within a segment");
        }
        self.sealed |= sealed;
    }

    /// Assigns the segment's frame. Its first chunk is staged.
    pub(super) fn settle(&mut self, geometry: &Geometry, frame: u32, incarnation: u32) {
        assert!(self.frame.is_none() && self.position == 0, "a segment has one place");
        self.frame = Some(frame);
        if self.incarnation != incarnation {
            self.incarnation = incarnation;
            let staged = self.staged.as_mut().expect("its first chunk");
            let start = ChunkHeader::payload_seed(
                geometry.seed,
                self.segment,
                incarnation,
                staged.log_start,
            );
            staged.crc = extend_crc(start, &staged.buffer[CHUNK_HEADER_BYTES..staged.filled]);
        }
    }

    /// Completes the staged chunk and returns it for writing.
    pub(super) fn dispatch(&mut self, geometry: &Geometry) -> Outgoing {
        assert!(self.in_flight.is_none(), "one write of a segment at a time");
        let Staged { mut buffer, filled, log_start, crc } =
            self.staged.take().expect("something staged");
        let header = ChunkHeader {
            segment: self.segment,
            incarnation: self.incarnation,
            offset: log_start,
            length: self.log_end - log_start,
            durable: self.durable,
            head: self.marked_head,
            seal: if self.sealed { Seal::Sealed } else { Seal::Open },
            buffered: geometry.buffered,
        };
        let header_at = self.tail.len();
        buffer[header_at..][..CHUNK_HEADER_BYTES]
            .copy_from_slice(&header.encode(geometry.seed, crc));
        let len = filled.next_multiple_of(BLOCK_BYTES);
        buffer[filled..len].fill(0);
        let offset = self.position - header_at;
        self.position += filled - header_at;
        assert!(offset.is_multiple_of(BLOCK_BYTES) && self.position <= geometry.frame_bytes);
        let last_block = filled - filled % BLOCK_BYTES;
        self.tail.clear();
        self.tail.extend_from_slice(&buffer[last_block..filled]);
        self.in_flight = Some((self.log_end, self.sealed));
        Outgoing { buffer, len, offset }
    }
}

/// Returns the number of bytes of log that fit behind `position` in a frame and `log_end` in a
/// segment.
pub(super) fn room(geometry: &Geometry, position: usize, log_end: usize) -> usize {
    let frame = geometry.frame_bytes.saturating_sub(position + RESERVED_BYTES);
    frame.min(geometry.segment_bytes - log_end)
}

/// Returns whether a segment is a head, by its first bytes. Bytes that cannot be parsed, or no
/// bytes, count as a head, which only means that the segment waits for earlier segments.
pub(crate) fn is_head(first: &[u8]) -> bool {
    match Entry::parse(first) {
        Ok(Entry { kind: Kind::Segment, value, .. }) => {
            SegmentHeader::parse(value).is_none_or(|header| header.role == Role::Head)
        }
        _ => true,
    }
}
