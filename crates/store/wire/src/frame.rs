//! How a backup frames a segment's bytes on disk.
//!
//! ```text
//! log.sprat:  | header A | header B | frame 0 | frame 1 | ...
//! frame:      | chunk | chunk | chunk ... | zeros, or bytes of an earlier segment
//! chunk:      | chunk header, 36 B | bytes of the segment's log |
//! ```
//! The log file begins with two copies of the [`FileHeader`], one block each. The copy with the
//! higher incarnation counts: an update torn by a power failure leaves the other copy intact.
//! Behind both copies are the frames, one for each segment replica. A frame is a run of chunks, one
//! for each write of a group commit: a [`ChunkHeader`], then that many bytes of the segment's log.
//!
//! **Why the last block may be written again.** The next chunk follows at once, so the block that
//! contains a chunk's end is written again, with the same bytes as before and more behind them. A
//! device writes each sector (512 B at least) whole or not at all, and a sector with acknowledged
//! bytes holds them before and after the write. So a torn write can only damage the new chunk.
//!
//! **Why stale chunks never count.** Frames are reused without being erased. The checksums of a
//! chunk start from the file's identity, and its header, checksum included, contains the segment
//! and the *incarnation*: a number that grows durably whenever the log is opened. Within one
//! incarnation a segment id is used once. So chunks that a frame held before, or that an earlier
//! incarnation wrote under the same segment id and lost, are never taken for current ones.
//!
//! **How loss is distinguished from an unfinished write.** A chunk header states how much of its
//! segment was durable when it was written ([`ChunkHeader::durable`]). An invalid chunk that a
//! later chunk states as durable is damage. An invalid chunk that no later chunk states as durable
//! was being written when the power failed, and was not acknowledged.
//!
//! # Replicas of other servers' segments
//! `replicas.sprat` has the same parts. Its header's `server` has [`REPLICA_FILE`] set, so that
//! neither file is taken for the other; a chunk's `segment` is the
//! [word](crate::op::ReplicaId::word) of a replica. The differences:
//! - **Every replica has its own incarnation**, higher than any earlier incarnation in the file;
//!   the file header's incarnation is never below one in use. So a backup that receives a segment
//!   for a second time can tell the new chunks from those of the first time.
//! - **Freed frames are marked.** The last block of a frame is a mark: a chunk header of segment
//!   [`FREED`]. The mark frees replicas of its incarnation and of lower ones. The mark is apart
//!   from the chunks that it frees, so a torn mark damages nothing. It still covers old chunks in
//!   the frame after the next replica has begun.
//! - A chunk is [`buffered`](ChunkHeader::buffered) when its bytes may have been acknowledged
//!   before they were on disk.

use crate::SEGMENT_BYTES;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the formats in this module. Version 2 added [types of values](crate::value) to
/// entries. An older program would take these for damage, so opening a file raises it to this
/// version.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest version that this module can read.
const OLDEST_VERSION: u32 = 1;

/// First bytes of a log file, in every version.
pub const FILE_MAGIC: [u8; 8] = *b"SPRATLOG";

/// Bytes of a block, the unit in which the file is written.
pub const BLOCK_BYTES: usize = 4096;

/// Number of copies of the file header, each in a block of its own.
pub const FILE_HEADERS: usize = 2;

/// Where the first frame begins, bytes from the file's beginning.
pub const FRAMES_OFFSET: u64 = (FILE_HEADERS * BLOCK_BYTES) as u64;

/// The bit that is set in [`FileHeader::server`] of a file of replicas.
pub const REPLICA_FILE: u64 = 1 << 63;

/// In a file of replicas, the segment of marks that free frames.
pub const FREED: u64 = 0;

/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 36;

/// Bytes of a frame for a segment of [`SEGMENT_BYTES`]: an eighth more, which is room for 29,127
/// chunk headers. Commits of 288 B or more on average fill the segment before the frame. If each
/// commit is a single entry of 130 B, the frame is full when the segment is 88 % full, and the
/// segment is sealed there.
pub const FRAME_BYTES: usize = SEGMENT_BYTES + SEGMENT_BYTES / 8;

const _: () = assert!(FRAME_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!((FRAME_BYTES - SEGMENT_BYTES) / CHUNK_HEADER_BYTES == 29_127);

/// First bytes of a chunk header after its checksums.
const CHUNK_MAGIC: u16 = 0x53c7;

const FLAG_SEALED: u16 = 1;
const FLAG_HEAD: u16 = 2;
const FLAG_CUT: u16 = 4;
const FLAG_BUFFERED: u16 = 8;

/// The layout of the file header on disk; zeros follow up to the block's end. Magic, version and
/// checksum have the same offsets in every version, and the checksum covers the whole block.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFileHeader {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    cluster: [u8; 16],
    server: U64,
    frame_bytes: U32,
    segment_bytes: U32,
    incarnation: U32,
    clean_length: U32,
    clean_head: U64,
    frames: U32,
}

/// The header of a log file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileHeader {
    /// Random identity of the file's cluster.
    pub cluster: [u8; 16],
    /// The server whose log this is; in a file of replicas, [`REPLICA_FILE`] and the server that
    /// keeps the replicas.
    pub server: u64,
    /// Bytes of a frame, a multiple of [`BLOCK_BYTES`].
    pub frame_bytes: u32,
    /// The largest number of bytes of log in a segment.
    pub segment_bytes: u32,
    /// A number, at least 1, that grows whenever the log is opened for writing, its file has grown,
    /// or it is closed. In a file of replicas: the highest incarnation that a replica may have.
    pub incarnation: u32,
    /// The newest head segment and the number of bytes in it; `None` if the log was not closed
    /// properly. In a file of replicas, in place of both: the first incarnation since the file was
    /// opened, and zero.
    pub clean: Option<(u64, u32)>,
    /// Number of whole frames in the file when this header was written. A file with fewer frames
    /// was truncated.
    pub frames: u32,
}

/// Why a block is not a file header.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BadFileHeader {
    /// The block is all zeros.
    #[error("the block is empty")]
    Empty,
    /// The magic is wrong: this is no log file, or it is damaged.
    #[error("this is not a Sprat log (wrong magic)")]
    Magic,
    /// The checksum does not match: the block is damaged.
    #[error("file header checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// Written by a newer program.
    #[error(
        "the log has format version {0}, this program knows {FORMAT_VERSION}: \
         start it with a newer one"
    )]
    Newer(u32),
    /// The checksum matches, but a field is invalid.
    #[error("file header field {0} is out of range")]
    Field(&'static str),
}

impl FileHeader {
    /// Encodes the header as a block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let (clean_head, clean_length) = self.clean.unwrap_or((0, 0));
        let raw = RawFileHeader {
            magic: FILE_MAGIC,
            version: U32::new(FORMAT_VERSION),
            crc: U32::new(0),
            cluster: self.cluster,
            server: U64::new(self.server),
            frame_bytes: U32::new(self.frame_bytes),
            segment_bytes: U32::new(self.segment_bytes),
            incarnation: U32::new(self.incarnation),
            clean_length: U32::new(clean_length),
            clean_head: U64::new(clean_head),
            frames: U32::new(self.frames),
        };
        let mut block = [0; BLOCK_BYTES];
        block[..size_of::<RawFileHeader>()].copy_from_slice(raw.as_bytes());
        let crc = file_header_crc(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Parses a block.
    ///
    /// # Errors
    /// [`BadFileHeader`] when the block is all zeros, its magic or checksum is wrong, its version
    /// is newer than [`FORMAT_VERSION`], or a field is out of range. `Newer` is returned only when
    /// the checksum matches.
    pub fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Self, BadFileHeader> {
        if block.iter().all(|byte| *byte == 0) {
            return Err(BadFileHeader::Empty);
        }
        let (raw, padding) =
            RawFileHeader::ref_from_prefix(block).expect("a block is longer than a header");
        if raw.magic != FILE_MAGIC {
            return Err(BadFileHeader::Magic);
        }
        let (stored, computed) = (raw.crc.get(), file_header_crc(block));
        if stored != computed {
            return Err(BadFileHeader::Crc { stored, computed });
        }
        match raw.version.get() {
            OLDEST_VERSION..=FORMAT_VERSION => {}
            0 => return Err(BadFileHeader::Field("version")),
            newer => return Err(BadFileHeader::Newer(newer)),
        }
        let (frame_bytes, segment_bytes) = (raw.frame_bytes.get(), raw.segment_bytes.get());
        if segment_bytes == 0 || segment_bytes as usize > SEGMENT_BYTES {
            return Err(BadFileHeader::Field("segment_bytes"));
        }
        let sensible = frame_bytes > segment_bytes && frame_bytes as usize <= 2 * FRAME_BYTES;
        if !sensible || !(frame_bytes as usize).is_multiple_of(BLOCK_BYTES) {
            return Err(BadFileHeader::Field("frame_bytes"));
        }
        if raw.incarnation.get() == 0 {
            return Err(BadFileHeader::Field("incarnation"));
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Err(BadFileHeader::Field("padding"));
        }
        Ok(Self {
            cluster: raw.cluster,
            server: raw.server.get(),
            frame_bytes,
            segment_bytes,
            incarnation: raw.incarnation.get(),
            clean: (raw.clean_head.get() != 0)
                .then(|| (raw.clean_head.get(), raw.clean_length.get())),
            frames: raw.frames.get(),
        })
    }

    /// Returns the offset of frame `index` in the file, in bytes.
    #[must_use]
    pub fn frame_offset(&self, index: u32) -> u64 {
        FRAMES_OFFSET + u64::from(index) * u64::from(self.frame_bytes)
    }

    /// Returns the initial value of the checksums of this file's chunks.
    #[must_use]
    pub fn seed(&self) -> Seed {
        Seed(crc32c::crc32c_append(crc32c::crc32c(&self.cluster), &self.server.to_le_bytes()))
    }
}

fn file_header_crc(block: &[u8; BLOCK_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..])
}

/// The initial value of the checksums of a file's chunks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seed(u32);

/// The layout of a chunk header on disk.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChunkHeader {
    crc: U32,
    payload_crc: U32,
    magic: U16,
    flags: U16,
    segment: U64,
    incarnation: U32,
    offset: U32,
    length: U32,
    durable: U32,
}

const _: () = assert!(size_of::<RawChunkHeader>() == CHUNK_HEADER_BYTES);

/// The header before each run of log bytes in a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChunkHeader {
    /// The segment's id; in a file of replicas, the [word](crate::op::ReplicaId::word) of the
    /// replica.
    pub segment: u64,
    /// The incarnation of the file, or of the replica, when its frame was begun.
    pub incarnation: u32,
    /// Offset of the bytes in the segment's log.
    pub offset: u32,
    /// Number of bytes of the log that follow the header.
    pub length: u32,
    /// Bytes of the segment's log that were durable before this chunk was written.
    pub durable: u32,
    /// Whether the segment is a head (otherwise a survivor).
    pub head: bool,
    /// Whether the segment ends with this chunk.
    pub seal: Seal,
    /// Whether these bytes may have been acknowledged to the master before they were on disk. Only
    /// in replicas.
    pub buffered: bool,
}

/// Whether and how a chunk ends its segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seal {
    /// The segment goes on: more chunks may follow.
    Open,
    /// The segment is complete.
    Sealed,
    /// A restart ended the segment here. Its log ends at [`ChunkHeader::offset`], which may be
    /// before the end of the earlier chunks. No bytes follow this header.
    Cut,
}

/// Why bytes are not a chunk header.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BadChunk {
    /// Fewer bytes than a header.
    #[error("{0} B are too few for a chunk header")]
    Short(usize),
    /// No chunk header begins here.
    #[error("no chunk header (wrong magic)")]
    Magic,
    /// The magic matches, but the header is damaged or of another file.
    #[error("chunk header checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    HeaderCrc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The checksum matches, but a field is invalid.
    #[error("chunk header field {0} is out of range")]
    Field(&'static str),
    /// The bytes behind the header differ from the bytes for which the header was written.
    #[error("chunk checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    PayloadCrc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
}

/// A parsed chunk header, and the checksum that its payload must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chunk {
    /// The header.
    pub header: ChunkHeader,
    start: u32,
    payload_crc: u32,
}

impl ChunkHeader {
    fn raw(&self) -> RawChunkHeader {
        let seal = match self.seal {
            Seal::Open => 0,
            Seal::Sealed => FLAG_SEALED,
            Seal::Cut => FLAG_CUT,
        };
        RawChunkHeader {
            crc: U32::new(0),
            payload_crc: U32::new(0),
            magic: U16::new(CHUNK_MAGIC),
            flags: U16::new(
                seal | if self.head { FLAG_HEAD } else { 0 }
                    | if self.buffered { FLAG_BUFFERED } else { 0 },
            ),
            segment: U64::new(self.segment),
            incarnation: U32::new(self.incarnation),
            offset: U32::new(self.offset),
            length: U32::new(self.length),
            durable: U32::new(self.durable),
        }
    }

    /// Returns the initial value of the payload's checksum, which differs between chunks of
    /// different segments, incarnations and offsets.
    #[must_use]
    pub fn payload_seed(seed: Seed, segment: u64, incarnation: u32, offset: u32) -> u32 {
        let crc = crc32c::crc32c_append(seed.0, &segment.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &incarnation.to_le_bytes());
        crc32c::crc32c_append(crc, &offset.to_le_bytes())
    }

    /// Encodes the header; `payload_crc` is the CRC32C of the payload, started from
    /// [`payload_seed`](Self::payload_seed).
    ///
    /// # Panics
    /// When `durable` is above `offset`: an error of the caller.
    #[must_use]
    pub fn encode(&self, seed: Seed, payload_crc: u32) -> [u8; CHUNK_HEADER_BYTES] {
        assert!(self.durable <= self.offset, "durable before it was written");
        let mut raw = self.raw();
        raw.payload_crc = U32::new(payload_crc);
        raw.crc = U32::new(crc32c::crc32c_append(seed.0, &raw.as_bytes()[4..]));
        raw.as_bytes().try_into().expect("the header's length")
    }

    /// Parses the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`BadChunk`], except `PayloadCrc`, which only [`Chunk::check`] returns.
    #[inline]
    pub fn parse(seed: Seed, bytes: &[u8]) -> Result<Chunk, BadChunk> {
        let Ok((raw, _)) = RawChunkHeader::ref_from_prefix(bytes) else {
            return Err(BadChunk::Short(bytes.len()));
        };
        if raw.magic.get() != CHUNK_MAGIC {
            return Err(BadChunk::Magic);
        }
        let (stored, computed) =
            (raw.crc.get(), crc32c::crc32c_append(seed.0, &raw.as_bytes()[4..]));
        if stored != computed {
            return Err(BadChunk::HeaderCrc { stored, computed });
        }
        let flags = raw.flags.get();
        let seal = match flags & !(FLAG_HEAD | FLAG_BUFFERED) {
            0 => Seal::Open,
            FLAG_SEALED => Seal::Sealed,
            FLAG_CUT if raw.length.get() == 0 => Seal::Cut,
            _ => return Err(BadChunk::Field("flags")),
        };
        let header = Self {
            segment: raw.segment.get(),
            incarnation: raw.incarnation.get(),
            offset: raw.offset.get(),
            length: raw.length.get(),
            durable: raw.durable.get(),
            head: flags & FLAG_HEAD != 0,
            seal,
            buffered: flags & FLAG_BUFFERED != 0,
        };
        if header.durable > header.offset {
            return Err(BadChunk::Field("durable"));
        }
        let start = Self::payload_seed(seed, header.segment, header.incarnation, header.offset);
        Ok(Chunk { header, start, payload_crc: raw.payload_crc.get() })
    }
}

impl Chunk {
    /// Checks the payload against the checksum in the header.
    ///
    /// # Errors
    /// [`BadChunk::PayloadCrc`] when the payload's checksum differs from the stored one.
    ///
    /// # Panics
    /// When the payload does not have exactly [`ChunkHeader::length`] bytes.
    pub fn check(&self, payload: &[u8]) -> Result<(), BadChunk> {
        assert!(payload.len() == self.header.length as usize, "a payload of the header's length");
        let computed = crc32c::crc32c_append(self.start, payload);
        if computed != self.payload_crc {
            return Err(BadChunk::PayloadCrc { stored: self.payload_crc, computed });
        }
        Ok(())
    }
}

/// Extends a payload's checksum, started from [`ChunkHeader::payload_seed`], by `bytes`.
#[must_use]
#[inline]
pub fn extend_crc(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Finds every valid chunk header in `bytes`, at any offset, and returns it with that offset. It
/// finds what remains of a frame whose run of chunks is broken.
pub fn find_chunks(seed: Seed, bytes: &[u8]) -> impl Iterator<Item = (usize, Chunk)> + '_ {
    let magic = CHUNK_MAGIC.to_le_bytes();
    (0..bytes.len().saturating_sub(CHUNK_HEADER_BYTES - 1)).filter_map(move |place| {
        if bytes[place + 8] != magic[0] || bytes[place + 9] != magic[1] {
            return None;
        }
        Some((place, ChunkHeader::parse(seed, &bytes[place..]).ok()?))
    })
}
