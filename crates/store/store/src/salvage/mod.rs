//! Salvages what is whole in a log, or a file of replicas, that no server can open. It treats each
//! chunk and each entry separately.
//!
//! [`survey`] finds every chunk of the file, wherever it lies, by its checksummed header; it needs
//! neither the file's header nor its frames. [`Salvage::read`] then reads the segments that count
//! and returns their entries. A damaged chunk still yields its undamaged entries, since each entry
//! has its own checksum. The bytes behind a damaged chunk header are read as well, if the chunks
//! around them show how many bytes there are. Everything that is not whole is reported as a
//! [`SalvageFault`], with its position, except what may be the unfinished last write of a file that
//! was not closed cleanly.
//!
//! The newest head of a log lists the segments that belong to it. If that list is damaged, all
//! segments count, and the result may include objects that were removed long ago. The damaged list
//! is reported as a fault as well.
//!
//! If the header of a segment's last chunk is damaged, no later chunk shows that this chunk is
//! missing. Three things can show it: the length that was recorded when the log was closed, a
//! segment without a sealing chunk, and bytes that are not a chunk where zeroes should be.

mod entries;
mod pieces;

pub use entries::Objects;

use pieces::{Piece, Pieces, Segment};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::frame::{BLOCK_BYTES, FILE_HEADERS, FileHeader, Seed};
use sprat_wire::op::ReplicaId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The largest number of faults that are kept with their positions. Later faults are only counted.
pub const MAX_FAULTS: usize = 1000;

/// Something that is not whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SalvageFault {
    /// Path of the file that is damaged.
    pub file: PathBuf,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// A description of the fault.
    pub what: String,
}

impl fmt::Display for SalvageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// The faults, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct SalvageFaults {
    /// The first [`MAX_FAULTS`] faults.
    pub kept: Vec<SalvageFault>,
    /// The number of all faults.
    pub count: u64,
}

impl SalvageFaults {
    fn add(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.count += 1;
        if self.kept.len() < MAX_FAULTS {
            self.kept.push(SalvageFault { file: file.to_owned(), offset, what: what.into() });
        }
    }
}

/// A file's segments, found and not yet read.
///
/// [`survey`] creates it. [`read`](Salvage::read) may be called several times, and finds the same
/// entries each time. The first call usually fills an [`Objects`] with the newest version of each
/// object. The second call takes the objects themselves, so that memory holds only their keys and
/// versions. Nothing is written to the file.
pub struct Salvage {
    path: PathBuf,
    file: File,
    /// Segments by id, as their chunks name them.
    segments: BTreeMap<u64, Segment>,
    /// The faults found so far.
    pub faults: SalvageFaults,
    /// Tables have ids below this one. Entries with a higher table id are not recognized.
    next_table: u32,
    /// Whether the file was closed cleanly. Otherwise its last write may be unfinished, and the
    /// salvage does not report that as a fault.
    clean: bool,
    /// For a log that was closed cleanly: the id of its head, and the number of bytes of log in
    /// that head.
    closed: Option<(u64, u32)>,
    /// Whether the file is a log. In a log every segment except the newest head must be sealed; a
    /// replica need not be sealed.
    is_log: bool,
    /// The newest head of a log.
    head: Option<u64>,
}

/// Finds the chunks of the file at `path`. `fallback` has the cluster and server of the data
/// directory, for a file whose own headers are damaged; tables have ids below `next_table`.
///
/// # Errors
/// When the file cannot be read.
pub fn survey(path: &Path, fallback: FileHeader, next_table: u32) -> io::Result<Salvage> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut faults = SalvageFaults::default();
    let header = newest_header(path, &file, size, &mut faults)?;
    let is_log = header.unwrap_or(fallback).server & sprat_wire::frame::REPLICA_FILE == 0;
    let closed = header.and_then(|header| header.clean);
    let clean = closed.is_some();
    let seed: Seed = header.unwrap_or(fallback).seed();
    let mut pieces = Pieces::default();
    pieces.find(&file, size, seed)?;
    if let Some(header) = header {
        let frames = size.saturating_sub(header.frame_offset(0)) / u64::from(header.frame_bytes);
        if frames < header.frames.into() {
            faults.add(
                path,
                size,
                format!(
                    "the file was cut short: it has {frames} frames of at least {}",
                    header.frames
                ),
            );
        }
    }
    let segments = pieces.by_segment();
    let closed = closed.filter(|_| is_log);
    let mut salvage = Salvage {
        path: path.to_owned(),
        file,
        segments,
        faults,
        next_table,
        clean,
        closed,
        is_log,
        head: None,
    };
    if is_log {
        salvage.keep_listed()?;
    }
    Ok(salvage)
}

fn newest_header(
    path: &Path,
    file: &File,
    size: u64,
    faults: &mut SalvageFaults,
) -> io::Result<Option<FileHeader>> {
    let mut newest: Option<FileHeader> = None;
    for copy in 0..FILE_HEADERS as u64 {
        let offset = copy * BLOCK_BYTES as u64;
        let mut block = [0; BLOCK_BYTES];
        if size >= offset + BLOCK_BYTES as u64 {
            file.read_exact_at(&mut block, offset)?;
        }
        match FileHeader::parse(&block) {
            Ok(header) if newest.is_none_or(|other| other.incarnation < header.incarnation) => {
                newest = Some(header)
            }
            Ok(_) => {}
            Err(bad) => faults.add(path, offset, format!("the file's header: {bad}")),
        }
    }
    Ok(newest)
}

/// Totals of what was read of a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SalvageTotals {
    /// Segments that count.
    pub segments: u64,
    /// Whole entries in these segments.
    pub entries: u64,
    /// Bytes of log in whole chunks.
    pub bytes: u64,
}

impl Salvage {
    /// Keeps only the segments that the newest head lists.
    fn keep_listed(&mut self) -> io::Result<()> {
        let is_head = |segment: &Segment| segment.pieces.iter().any(|piece| piece.head);
        let found =
            self.segments.iter().rev().find(|(_, segment)| is_head(segment)).map(|(&id, _)| id);
        self.head = self.closed.map(|(head, _)| head).max(found);
        let Some(newest) = self.head else { return Ok(()) };
        let Some(digest) = self.digest(newest)? else {
            let offset =
                self.segments.get(&newest).map_or(0, |segment| segment.pieces[0].file_offset);
            let what = format!(
                "segment {newest}, the newest head, has no list of segments: all segments are \
                 used, so removed objects may reappear"
            );
            self.faults.add(&self.path, offset, what);
            return Ok(());
        };
        let listed: BTreeSet<u64> = digest.into_iter().collect();
        for missing in listed.iter().filter(|id| !self.segments.contains_key(id)) {
            self.faults.add(
                &self.path,
                0,
                format!("segment {missing}, which head {newest} lists, is not in the file"),
            );
        }
        self.segments.retain(|id, _| listed.contains(id));
        Ok(())
    }

    /// Returns the digest of a head, if its first entry is whole.
    fn digest(&self, segment: u64) -> io::Result<Option<Vec<u64>>> {
        let first = self.segments.get(&segment).map(|segment| segment.pieces[0]);
        let Some(first) = first.filter(|piece| piece.log_offset == 0) else { return Ok(None) };
        let bytes = first.read(&self.file)?;
        let entry = Entry::parse_checked(&bytes).ok().filter(|entry| entry.kind == Kind::Segment);
        let header = entry.and_then(|entry| SegmentHeader::parse(entry.value));
        Ok(header
            .filter(|header| header.role == Role::Head && !header.digest.is_empty())
            .map(|header| header.digest))
    }

    /// Reads every segment that counts, by ascending id, and passes its whole entries to `take`. If
    /// `report` is true, adds what is not whole to [`faults`](Self::faults). Pass false at a second
    /// reading, which finds the same faults.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(
        &mut self,
        report: bool,
        mut take: impl FnMut(&Entry<'_>),
    ) -> io::Result<SalvageTotals> {
        let mut totals = SalvageTotals::default();
        let last = self.segments.keys().next_back().copied();
        for (&segment, of) in &self.segments {
            let pieces = &of.pieces;
            totals.segments += 1;
            // A chunk at the very end of a log that was not closed cleanly may be an unfinished
            // write.
            let may_be_torn = !self.clean && (Some(segment) == last || Some(segment) == self.head);
            let mut found = Vec::new();
            let mut log_end = 0;
            for (at, piece) in pieces.iter().enumerate() {
                if piece.log_offset > log_end {
                    let what = format!(
                        "bytes {log_end} to {} of {} are missing",
                        piece.log_offset,
                        name(segment)
                    );
                    found.push((piece.file_offset, what));
                }
                log_end = log_end.max(piece.log_offset + piece.len);
                let is_last = at + 1 == pieces.len();
                if piece.is_whole(&piece.read(&self.file)?) {
                    totals.bytes += piece.len;
                } else if !(may_be_torn && is_last) {
                    found.push((
                        piece.file_offset,
                        format!("a chunk of {} is damaged", name(segment)),
                    ));
                }
            }
            if let Some((offset, what)) = self.missing_end(segment, of, log_end, may_be_torn)? {
                found.push((offset, what));
            }
            let is_whole = found.is_empty();
            for run in pieces.chunk_by(|one, next| one.log_offset + one.len == next.log_offset) {
                let mut bytes = Vec::new();
                for piece in run {
                    bytes.extend_from_slice(&piece.read(&self.file)?);
                }
                let bad = entries::walk(&bytes, self.next_table, |entry| {
                    totals.entries += 1;
                    take(entry);
                });
                if let Some((place, what)) = bad.filter(|_| is_whole && !may_be_torn) {
                    found.push((
                        file_offset(run, place),
                        format!("an entry of {}: {what}", name(segment)),
                    ));
                }
            }
            if report {
                found
                    .into_iter()
                    .for_each(|(offset, what)| self.faults.add(&self.path, offset, what));
            }
        }
        Ok(totals)
    }

    /// Checks whether a segment had more after the last chunk that was found, which ends at byte
    /// `log_end` of the segment's log. Returns the offset in the file, and what shows it.
    fn missing_end(
        &self,
        segment: u64,
        of: &Segment,
        log_end: u64,
        may_be_torn: bool,
    ) -> io::Result<Option<(u64, String)>> {
        let closed =
            self.closed.filter(|(head, _)| *head == segment).map_or(0, |(_, bytes)| bytes.into());
        let least = of.least.max(closed);
        let end = of.pieces.last().map_or(0, |last| last.file_offset + last.len);
        let name = name(segment);
        if least > log_end {
            return Ok(Some((end, format!("bytes {log_end} to {least} of {name} are missing"))));
        }
        if of.ended || may_be_torn {
            return Ok(None);
        }
        if self.is_log && Some(segment) != self.head {
            return Ok(Some((
                end,
                format!("no chunk ends {name}: bytes behind {log_end} may be missing"),
            )));
        }
        // Writes are of whole blocks: after the last chunk there are zeroes up to the block's end.
        let block_end = end.next_multiple_of(BLOCK_BYTES as u64).min(self.file.metadata()?.len());
        let mut rest = vec![0; usize::try_from(block_end - end).expect("less than a block")];
        self.file.read_exact_at(&mut rest, end)?;
        let trace = rest.iter().any(|byte| *byte != 0);
        Ok(trace
            .then(|| (end, format!("the bytes after the last chunk of {name} are not a chunk"))))
    }
}

/// Returns the file offset of a byte in pieces that follow one another in the log.
fn file_offset(run: &[Piece], place: usize) -> u64 {
    let mut left = place as u64;
    for piece in run {
        if left < piece.len {
            return piece.file_offset + left;
        }
        left -= piece.len;
    }
    run.last().map_or(0, |last| last.file_offset + last.len)
}

/// Describes a segment of this server's log, or of another server's log.
fn name(segment: u64) -> String {
    let replica = ReplicaId::of_word(segment);
    match replica.master {
        0 => format!("segment {segment}"),
        _ => format!("the replica of {replica}"),
    }
}
