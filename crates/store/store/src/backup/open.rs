//! Opens a file of a log or of replicas: a new one, or an existing one.

use super::config::{Durability, MAX_REPLAY_THREADS, Options, SPARE_FRAMES};
use super::current::{Current, next_incarnation, read_headers};
use super::frames::{FrameSlot, Frames};
use super::growth::{DiskFull, GROW_FRAMES};
use super::incarnation::{AHEAD, Incarnations};
use super::owner::Owner;
use super::reading::Reading;
use super::replay::Unsealed;
use super::replica::{Geometry, Pool};
use super::report::{ReplayReport, ReplayedSegment};
use super::retire::Retiring;
use super::stored::StoredReport;
use super::survey::FrameReader;
use super::{Backup, DiskOperation, Failed, OpenError};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Disk, Op};
use sprat_net::Nanos;
use sprat_wire::frame::{
    CHUNK_HEADER_BYTES, ChunkHeader, FILE_HEADERS, FRAMES_OFFSET, FileHeader, Seal,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Instant;

impl<D: Disk> Backup<D> {
    /// Opens the log on `disk`: creates it when the file is empty, otherwise replays it. Segments
    /// are passed to `sink` newest first, in buffers that are reused when `sink` returns; `hash` is
    /// called for the table and key of every object and tombstone, on the replaying threads. `sink`
    /// may stop the replay, which leaves the file unchanged.
    ///
    /// Reads everything before it writes anything. Then it raises the file's incarnation, and seals
    /// the newest head where its log now ends, if it was not sealed. Both are durable before the
    /// first append. So the next restart finds the same log, and what was cut off cannot come back.
    /// New segments take ids above [`ReplayReport::highest_segment`]. Blocks.
    ///
    /// If the log is intact but spare frames cannot be added, the log opens nevertheless, and can
    /// be read. On a full disk [`disk_is_full`](Self::disk_is_full) returns true then; after any
    /// other error [`failure`](Self::failure) is set, and the log cannot be written.
    ///
    /// # Errors
    /// [`OpenError`] when the file is damaged, cut short, of a newer format, or of another cluster
    /// or server; when it lacks a segment of the log, or has segments of another size; when it
    /// cannot be read or written; or when `sink` stops the replay.
    ///
    /// # Panics
    /// When `options` are out of range.
    pub fn open(
        disk: D,
        options: &Options,
        hash: impl Fn(u32, &[u8]) -> u64 + Sync,
        sink: impl FnMut(&ReplayedSegment) -> ControlFlow<()>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let started = Instant::now();
        let Some((current, source)) = read_existing(&disk, Owner::Log, options)? else {
            return Ok((Self::create(disk, Owner::Log, options)?, ReplayReport::default()));
        };
        let header = current.header;
        let mut report = ReplayReport {
            clean: header.clean.is_some(),
            header_repaired: current.alone,
            ..Default::default()
        };
        let survey = source.survey(&mut report)?;
        if let (Some((segment, _)), None) = (header.clean, survey.live.first()) {
            return Err(source.corruption(
                0,
                0,
                segment,
                "the head that was closed in order",
                "no head",
            ));
        }
        let unsealed = source.replay(&survey.live, options.threads, &hash, sink, &mut report)?;
        report.elapsed = started.elapsed();

        let newest = survey.live.first().map(|found| found.segment);
        let live: BTreeMap<u64, FrameSlot> = survey
            .live
            .iter()
            .map(|found| {
                (found.segment, FrameSlot { frame: found.frame, incarnation: found.incarnation })
            })
            .collect();
        let frames = Frames::new(live, VecDeque::from(survey.free));
        let mut backup = Self::assemble(disk, Owner::Log, header, options, frames);
        backup.newest = newest.map(|segment| (segment, 0));
        backup.prepare_existing(&current)?;
        if let Some(unsealed) = unsealed {
            backup.seal(&unsealed)?;
        }
        // A disk without room to grow can still be read. After another error the failure is kept,
        // and the first append returns it.
        let _ = backup.grow_initially();
        Ok((backup, report))
    }

    /// Opens the file of replicas on `disk`: creates it when it is empty, otherwise examines all of
    /// it. Damage does not prevent opening: it is reported, and other servers have other replicas.
    /// Before the first append, frames that hold no valid replica are marked as free, and what was
    /// read is made durable. Blocks.
    ///
    /// If spare frames cannot be added, the file opens as with [`open`](Self::open).
    ///
    /// # Errors
    /// [`OpenError`] as for [`open`](Self::open), except that `Missing` and `Stopped` do not occur,
    /// and `Corrupt` concerns only the file's header.
    ///
    /// # Panics
    /// When `options` are out of range.
    pub fn open_replicas(disk: D, options: &Options) -> Result<(Self, StoredReport), OpenError> {
        let started = Instant::now();
        let Some((current, source)) = read_existing(&disk, Owner::Replicas, options)? else {
            return Ok((Self::create(disk, Owner::Replicas, options)?, StoredReport::default()));
        };
        let (clean, header_repaired) = (current.header.clean.is_some(), current.alone);
        let mut report = StoredReport { clean, header_repaired, ..StoredReport::default() };
        let places = source.survey_replicas(&current, options.threads, &mut report)?;
        report.elapsed = started.elapsed();

        let mut frames = Frames::new(places.live, VecDeque::from(places.free));
        frames.total = source.frames;
        let mut backup = Self::assemble(disk, Owner::Replicas, current.header, options, frames);
        backup.prepare_existing(&current)?;
        for frame in places.unmarked {
            let mark = backup.mark(frame, backup.incarnations.last_of_previous());
            backup.block_on(mark)?;
            // The remains of a torn beginning may lack an incarnation to compare with the mark, so
            // the frame's first block is erased as well.
            let erase = backup.erase(frame);
            backup.block_on(erase)?;
            backup.frames.give(frame, true);
        }
        backup.block_on(Op::Sync)?;
        let _ = backup.grow_initially();
        Ok((backup, report))
    }

    /// Creates a new file.
    fn create(disk: D, owner: Owner, options: &Options) -> Result<Self, OpenError> {
        let header = FileHeader {
            cluster: options.cluster,
            server: owner.server(options),
            frame_bytes: options.frame_bytes,
            segment_bytes: options.segment_bytes,
            incarnation: 1,
            clean: None,
            frames: 0,
        };
        let mut backup = Self::assemble(disk, owner, header, options, Frames::default());
        let mut buffer = AlignedBuf::zeroed(FILE_HEADERS * BLOCK_BYTES);
        for copy in buffer.chunks_exact_mut(BLOCK_BYTES) {
            copy.copy_from_slice(&header.encode());
        }
        let len = buffer.len();
        backup.block_on(Op::Write { buffer, len, offset: 0, durable: true })?;
        if owner == Owner::Replicas {
            backup.reserve_incarnations()?;
        }
        backup.grow_initially()?;
        if backup.frames.total == 0
            && let Some(DiskFull { offset, source, .. }) = backup.disk_full.take()
        {
            return Err(backup.fail(DiskOperation::Grow, offset, source).into());
        }
        Ok(backup)
    }

    fn assemble(
        disk: D,
        owner: Owner,
        header: FileHeader,
        options: &Options,
        frames: Frames,
    ) -> Self {
        let geometry = Geometry {
            seed: header.seed(),
            frame_bytes: owner.chunk_bytes(header.frame_bytes),
            segment_bytes: header.segment_bytes as usize,
            buffered: owner == Owner::Replicas && options.durability == Durability::Buffered,
        };
        Self {
            disk,
            owner,
            header,
            incarnations: Incarnations::new(header.incarnation, header.incarnation),
            geometry,
            durability: options.durability,
            max_frames: options.max_frames,
            frames,
            open: Vec::new(),
            pool: Pool::default(),
            staged: 0,
            queue: VecDeque::new(),
            writing: 0,
            growth: None,
            grow_by: GROW_FRAMES,
            disk_full: None,
            growth_next: None,
            written_since_growth: false,
            dirty: false,
            syncing: false,
            synced_at: Nanos(0),
            newest: None,
            retiring: Retiring::default(),
            reading: Reading::default(),
            failure: None,
        }
    }

    /// Prepares an existing file that was read for writing.
    fn prepare_existing(&mut self, current: &Current) -> Result<(), OpenError> {
        // The bytes that were read may be in the kernel's cache and not on the medium. Sync them
        // before anything is written that depends on them: the header, which counts the frames, and
        // above all a log's seal, which is durable at once and states that all of the log is valid.
        self.block_on(Op::Sync)?;
        self.header.clean = None;
        self.header.frames = self.frames.total;
        let first = next_incarnation(current, if self.owner == Owner::Log { 1 } else { AHEAD });
        // A damaged copy is rewritten first, and after it the copy that was valid.
        for incarnation in first..=first + u32::from(current.alone) {
            self.header.incarnation = incarnation;
            self.write_header()?;
        }
        match self.owner {
            Owner::Log => {
                self.incarnations =
                    Incarnations::new(self.header.incarnation, self.header.incarnation)
            }
            Owner::Replicas => self.reserve_incarnations()?,
        }
        Ok(())
    }

    /// Reserves incarnations for the replicas of this process.
    fn reserve_incarnations(&mut self) -> Result<(), Failed> {
        let first = self.header.incarnation + 1;
        self.header.incarnation += AHEAD;
        self.write_header()?;
        self.incarnations = Incarnations::new(first, self.header.incarnation);
        Ok(())
    }

    /// Seals the newest head where its log ends, under its own incarnation, within its frame. If
    /// this write is torn, the frame still has an end without a valid chunk, as before, and the
    /// next start writes the seal again.
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
            buffered: false,
        };
        let crc = ChunkHeader::payload_seed(
            self.geometry.seed,
            found.segment,
            found.incarnation,
            *log_end,
        );
        let filled = tail.len() + CHUNK_HEADER_BYTES;
        let mut buffer = AlignedBuf::zeroed(filled);
        buffer[..tail.len()].copy_from_slice(tail);
        buffer[tail.len()..filled].copy_from_slice(&header.encode(self.geometry.seed, crc));
        let len = buffer.len();
        let offset = self.header.frame_offset(found.frame) + (position - tail.len()) as u64;
        Ok(self.block_on(Op::Write { buffer, len, offset, durable: true })?)
    }

    /// Waits until frames are ready for the first segments.
    fn grow_initially(&mut self) -> Result<(), Failed> {
        self.grow();
        while self.growth.is_some() {
            self.wait()?;
            self.poll(Nanos(0), |_| unreachable!("nothing was appended"))?;
        }
        Ok(())
    }
}

/// An existing file: its header, and the reader of its frames.
type ExistingFile<R> = (Current, FrameReader<R>);

/// Reads the file's header; `None` when the file is new.
fn read_existing<D: Disk>(
    disk: &D,
    owner: Owner,
    options: &Options,
) -> Result<Option<ExistingFile<D::Reader>>, OpenError> {
    assert!(
        (1..=MAX_REPLAY_THREADS).contains(&options.threads)
            && options.max_frames as usize >= SPARE_FRAMES
    );
    assert!(options.frame_bytes > options.segment_bytes);
    let name = disk.name();
    let reader = disk.reader();
    let size =
        disk.size().map_err(|source| OpenError::Read { file: name.clone(), offset: 0, source })?;
    let Some(current) = read_headers(&reader, &name, size)? else { return Ok(None) };
    let header = current.header;
    check_identity(&header, owner, options, &name)?;
    let frames = size.saturating_sub(FRAMES_OFFSET) / u64::from(header.frame_bytes);
    let frames = u32::try_from(frames).expect("a file of fewer than 2^32 frames");
    if frames < header.frames {
        return Err(OpenError::Short { file: name, has: frames, had: header.frames });
    }
    Ok(Some((current, FrameReader { reader, name, header, frames })))
}

fn check_identity(
    header: &FileHeader,
    owner: Owner,
    options: &Options,
    name: &str,
) -> Result<(), OpenError> {
    let field = if header.cluster != options.cluster {
        "cluster"
    } else if header.server != owner.server(options) {
        "server"
    } else if header.segment_bytes != options.segment_bytes {
        "segment size"
    } else {
        return Ok(());
    };
    let what = if owner == Owner::Log { "log" } else { "file of replicas" };
    Err(OpenError::Foreign { file: name.to_owned(), what, field })
}
