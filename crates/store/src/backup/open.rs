//! Opening a log: a new one, or what an earlier life left.

use super::config::{MAX_REPLAY_THREADS, Options, SPARE_FRAMES};
use super::frames::Frames;
use super::replay::Unsealed;
use super::replica::{Geometry, Pool};
use super::report::{Corruption, ReplayReport, ReplayedSegment};
use super::survey::Source;
use super::{Backup, Failed};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Disk, Op, ReadAt};
use sprat_net::Nanos;
use sprat_wire::frame::{
    BadFileHeader, CHUNK_HEADER_BYTES, ChunkHeader, FILE_HEADERS, FRAMES_OFFSET, FileHeader, Seal,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::time::Instant;
use thiserror::Error;

/// Why a log could not be opened. Nothing in the file was changed, but for [`OpenError::Failed`].
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// A segment that belongs to the log is nowhere in the file.
    #[error("{file} lacks segment {segment}, which its newest head, segment {head}, lists; nothing was changed")]
    Missing {
        /// The file.
        file: String,
        /// The segment.
        segment: u64,
        /// The head that lists it.
        head: u64,
    },
    /// The file was written by a newer program.
    #[error(
        "{file} has format version {version}, newer than this program's: start it with a newer one; nothing was changed"
    )]
    Newer {
        /// The file.
        file: String,
        /// Its format version.
        version: u32,
    },
    /// The file is another cluster's or server's, or was made for segments of another size.
    #[error("{file} is not this server's log: its {field} differs; nothing was changed")]
    Foreign {
        /// The file.
        file: String,
        /// What differs.
        field: &'static str,
    },
    /// The file was cut short.
    #[error("{file} was cut short: it has {has} segment frames of at least {had}; nothing was changed")]
    Short {
        /// The file.
        file: String,
        /// Whole frames it has.
        has: u32,
        /// Whole frames it had when it was last opened or closed.
        had: u32,
    },
    /// The file could not be read.
    #[error("cannot read {file} at offset {offset}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Where, bytes.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file could be read but not be written to.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The receiver of segments wanted no more.
    #[error("replay was stopped by its receiver")]
    Stopped,
}

/// The file header that counts.
struct Current {
    header: FileHeader,
    /// Which copy it is.
    copy: usize,
    /// The other copy is damaged or was never written.
    alone: bool,
}

impl<D: Disk> Backup<D> {
    /// Opens the log on `disk`: makes it when the file is empty, replays it else. Segments are handed to
    /// `sink` newest first, in buffers that are used again when it returns; `hash` is called for the table and key
    /// of every object and tombstone, on the replaying threads. `sink` may stop it all, without a trace in the file.
    ///
    /// Reads everything before it writes anything. Then the file's incarnation is moved on, the newest head, if it
    /// was not sealed, is sealed where its log ends now, and both are made durable before the first append: the next
    /// restart meets the same log, and what was cut cannot come back. New segments take ids
    /// above [`ReplayReport::highest_segment`]. Blocks.
    ///
    /// A log that is intact on a disk too full for spare frames opens, with [`failure`](Self::failure) set: it can be
    /// read from and not be written to.
    ///
    /// # Errors
    /// [`OpenError`].
    ///
    /// # Panics
    /// When `options` are out of range.
    pub fn open(
        disk: D,
        options: &Options,
        hash: impl Fn(u32, &[u8]) -> u64 + Sync,
        sink: impl FnMut(&ReplayedSegment) -> ControlFlow<()>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        assert!((1..=MAX_REPLAY_THREADS).contains(&options.threads) && options.max_frames as usize >= SPARE_FRAMES);
        assert!(options.frame_bytes > options.segment_bytes);
        let started = Instant::now();
        let name = disk.name();
        let reader = disk.reader();
        let size = disk.size().map_err(|source| OpenError::Read { file: name.clone(), offset: 0, source })?;
        let Some(current) = read_headers(&reader, &name, size)? else {
            return Self::create(disk, options);
        };
        let header = current.header;
        check_identity(&header, options, &name)?;
        let frames = size.saturating_sub(FRAMES_OFFSET) / u64::from(header.frame_bytes);
        let frames = u32::try_from(frames).expect("a file of fewer than 2^32 frames");
        if frames < header.frames {
            return Err(OpenError::Short { file: name, has: frames, had: header.frames });
        }
        let source = Source { reader, name, header, frames };

        let mut report =
            ReplayReport { clean: header.clean.is_some(), header_repaired: current.alone, ..Default::default() };
        let survey = source.survey(&mut report)?;
        if let (Some((segment, _)), None) = (header.clean, survey.live.first()) {
            return Err(source.corruption(0, 0, segment, "the head that was closed in order", "no head"));
        }
        let unsealed = source.replay(&survey.live, options.threads, &hash, sink, &mut report)?;
        report.elapsed = started.elapsed();

        let newest = survey.live.first().map(|found| found.segment);
        let live: BTreeMap<u64, u32> = survey.live.iter().map(|found| (found.segment, found.frame)).collect();
        let mut backup = Self::assemble(disk, header, options, Frames::new(live, VecDeque::from(survey.free)));
        backup.newest = newest.map(|segment| (segment, 0));
        backup.recover(&current, unsealed)?;
        Ok((backup, report))
    }

    /// Makes a new log.
    fn create(disk: D, options: &Options) -> Result<(Self, ReplayReport), OpenError> {
        let header = FileHeader {
            cluster: options.cluster,
            server: options.server,
            frame_bytes: options.frame_bytes,
            segment_bytes: options.segment_bytes,
            incarnation: 1,
            clean: None,
            frames: 0,
        };
        let mut backup = Self::assemble(disk, header, options, Frames::default());
        let mut buffer = AlignedBuf::zeroed(FILE_HEADERS * BLOCK_BYTES);
        for copy in buffer.chunks_exact_mut(BLOCK_BYTES) {
            copy.copy_from_slice(&header.encode());
        }
        let len = buffer.len();
        backup.block_on(Op::Write { buffer, len, offset: 0, durable: true })?;
        backup.prepare()?;
        Ok((backup, ReplayReport::default()))
    }

    fn assemble(disk: D, header: FileHeader, options: &Options, frames: Frames) -> Self {
        let geometry = Geometry {
            seed: header.seed(),
            incarnation: header.incarnation,
            frame_bytes: header.frame_bytes as usize,
            segment_bytes: header.segment_bytes as usize,
        };
        Self {
            disk,
            header,
            geometry,
            durability: options.durability,
            max_frames: options.max_frames,
            frames,
            open: Vec::new(),
            pool: Pool::default(),
            queue: VecDeque::new(),
            writing: 0,
            growth: None,
            growth_next: None,
            written_since_growth: false,
            dirty: false,
            syncing: false,
            synced_at: Nanos(0),
            newest: None,
            failure: None,
        }
    }

    /// Makes the file that was read fit for writing.
    fn recover(&mut self, current: &Current, unsealed: Option<Unsealed>) -> Result<(), OpenError> {
        // What was read may have come from the kernel's cache: nothing is built on it before it is on the medium. Not the
        // header, which tells of the frames, and least of all the seal, which is durable by itself and vouches for all of
        // the log before it.
        self.block_on(Op::Sync)?;
        self.header.clean = None;
        self.header.frames = self.frames.total;
        let first = next_incarnation(current);
        // A damaged copy is written anew, and then the one that counted until now.
        for incarnation in first..=first + u32::from(current.alone) {
            self.header.incarnation = incarnation;
            self.write_header()?;
        }
        self.geometry.incarnation = self.header.incarnation;
        if let Some(unsealed) = unsealed {
            self.seal(&unsealed)?;
        }
        // No room to grow is no reason not to read: the failure is kept, and meets the first append.
        let _ = self.prepare();
        Ok(())
    }

    /// Seals the newest head where its log ends, in the name of its own incarnation, as a part of its frame. Torn,
    /// it leaves what was there, an end without a valid chunk, and is written again by the next start.
    fn seal(&mut self, unsealed: &Unsealed) -> Result<(), OpenError> {
        let Unsealed { found, position, tail, log_end } = unsealed;
        let header = ChunkHeader {
            segment: found.segment,
            incarnation: found.incarnation,
            offset: *log_end,
            length: 0,
            durable: *log_end,
            head: true,
            seal: Seal::Cut,
        };
        let crc = ChunkHeader::payload_seed(self.geometry.seed, found.segment, found.incarnation, *log_end);
        let filled = tail.len() + CHUNK_HEADER_BYTES;
        let mut buffer = AlignedBuf::zeroed(filled);
        buffer[..tail.len()].copy_from_slice(tail);
        buffer[tail.len()..filled].copy_from_slice(&header.encode(self.geometry.seed, crc));
        let len = buffer.len();
        let offset = self.header.frame_offset(found.frame) + (position - tail.len()) as u64;
        Ok(self.block_on(Op::Write { buffer, len, offset, durable: true })?)
    }

    /// Waits until frames are ready for the first segments.
    fn prepare(&mut self) -> Result<(), Failed> {
        self.grow();
        while self.growth.is_some() {
            self.wait()?;
            self.poll(Nanos(0), |_| unreachable!("nothing was appended"))?;
        }
        Ok(())
    }
}

/// Reads both copies of the file header; `None` when the file is new: empty, or its creation was torn.
fn read_headers(reader: &impl ReadAt, name: &str, size: u64) -> Result<Option<Current>, OpenError> {
    let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
    let mut copies = Vec::with_capacity(FILE_HEADERS);
    for copy in 0..FILE_HEADERS as u64 {
        let offset = copy * BLOCK_BYTES as u64;
        if size < offset + BLOCK_BYTES as u64 {
            copies.push(Err(BadFileHeader::Empty));
            continue;
        }
        let read = reader.read_at(&mut buffer, BLOCK_BYTES, offset);
        read.map_err(|source| OpenError::Read { file: name.to_owned(), offset, source })?;
        copies.push(FileHeader::parse(buffer[..].try_into().expect("a block")));
    }
    for copy in &copies {
        if let Err(BadFileHeader::Newer(version)) = copy {
            return Err(OpenError::Newer { file: name.to_owned(), version: *version });
        }
    }
    let alone = copies.iter().any(Result::is_err);
    let valid = copies.iter().enumerate().filter_map(|(copy, header)| Some((copy, *header.as_ref().ok()?)));
    if let Some((copy, header)) = valid.max_by_key(|(_, header)| header.incarnation) {
        return Ok(Some(Current { header, copy, alone }));
    }
    let bad = copies[0].expect_err("no valid copy");
    // Nothing is written behind the headers before they are durable.
    if size <= FRAMES_OFFSET && matches!(bad, BadFileHeader::Empty) {
        return Ok(None);
    }
    let expected = "the header of a Sprat log".to_owned();
    Err(Corruption { file: name.to_owned(), offset: 0, segment: None, expected, found: bad.to_string() }.into())
}

/// The incarnation that begins. When one copy is damaged it may have been the newer one, so its incarnation
/// is skipped; and the copy that is written first is never the only valid one.
fn next_incarnation(current: &Current) -> u32 {
    let now = current.header.incarnation;
    if !current.alone {
        return now + 1;
    }
    let overwrites = (now as usize + 2) % FILE_HEADERS == current.copy;
    now + 2 + u32::from(overwrites)
}

fn check_identity(header: &FileHeader, options: &Options, name: &str) -> Result<(), OpenError> {
    let field = if header.cluster != options.cluster {
        "cluster"
    } else if header.server != options.server {
        "server"
    } else if header.segment_bytes != options.segment_bytes {
        "segment size"
    } else {
        return Ok(());
    };
    Err(OpenError::Foreign { file: name.to_owned(), field })
}
