//! The chunks of a file, found by their headers.

use sprat_wire::frame::{CHUNK_HEADER_BYTES, Chunk, FRAMES_OFFSET, FREED, Seal, Seed, find_chunks};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes of the file that are looked through at once.
const WINDOW: usize = 16 << 20;

/// Bytes of a segment's log that lie together in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    incarnation: u32,
    /// Where in the segment's log they belong.
    pub(super) log_offset: u64,
    pub(super) len: u64,
    /// Where in the file they lie.
    pub(super) file_offset: u64,
    /// Whether the segment was written by writers, not by the cleaner.
    pub(super) head: bool,
    /// What they must check to; `None` of bytes whose chunk header is damaged.
    chunk: Option<Chunk>,
}

impl Piece {
    pub(super) fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a chunk's length")];
        file.read_exact_at(&mut bytes, self.file_offset)?;
        Ok(bytes)
    }

    /// Whether `bytes` are what was written.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        self.chunk.is_some_and(|chunk| chunk.check(bytes).is_ok())
    }
}

/// What was found of a segment.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// In the order of its log. At least one.
    pub(super) pieces: Vec<Piece>,
    /// Bytes of log that it had at least, as its chunks say of one another.
    pub(super) least: u64,
    /// Whether a chunk says that the segment ends there.
    pub(super) ended: bool,
}

/// Every chunk that was found, by segment and incarnation.
#[derive(Default)]
pub(super) struct Pieces {
    found: BTreeMap<(u64, u32), Segment>,
    /// Where the logs of segments were cut by an earlier start.
    cuts: BTreeMap<(u64, u32), u64>,
}

impl Pieces {
    /// Looks through the file.
    pub(super) fn find(&mut self, file: &File, size: u64, seed: Seed) -> io::Result<()> {
        // A window's last header may be cut by its end: the next begins so much before that.
        let overlap = CHUNK_HEADER_BYTES as u64 - 1;
        let mut buffer = vec![0; WINDOW];
        let mut begin = FRAMES_OFFSET;
        while begin < size {
            let len = usize::try_from((size - begin).min(WINDOW as u64)).expect("a window");
            file.read_exact_at(&mut buffer[..len], begin)?;
            for (place, chunk) in find_chunks(seed, &buffer[..len]) {
                self.add(chunk, begin + place as u64, size);
            }
            begin += len as u64;
            if begin < size {
                begin -= overlap;
            }
        }
        Ok(())
    }

    fn add(&mut self, chunk: Chunk, at: u64, size: u64) {
        let header = chunk.header;
        let file_offset = at + CHUNK_HEADER_BYTES as u64;
        if header.segment == FREED || file_offset + u64::from(header.length) > size {
            return;
        }
        let id = (header.segment, header.incarnation);
        if header.seal == Seal::Cut {
            self.cuts.insert(id, header.offset.into());
        }
        let piece = Piece {
            incarnation: header.incarnation,
            log_offset: header.offset.into(),
            len: header.length.into(),
            file_offset,
            head: header.head,
            chunk: Some(chunk),
        };
        let segment = self.found.entry(id).or_default();
        segment.pieces.push(piece);
        segment.least = segment.least.max(header.durable.into());
        segment.ended |= header.seal != Seal::Open;
    }

    /// The pieces of each segment in the order of its log, of its latest incarnation that has a
    /// beginning, or else any.
    pub(super) fn by_segment(self) -> BTreeMap<u64, Segment> {
        let mut segments = BTreeMap::new();
        for (id, mut segment) in self.found {
            let cut = self.cuts.get(&id).copied().unwrap_or(u64::MAX);
            segment.least = segment.least.min(cut);
            segment.pieces.sort_by_key(|piece| (piece.log_offset, piece.file_offset));
            segment.pieces.retain(|piece| piece.log_offset < cut && piece.len > 0);
            segment.pieces = with_lost_headers(segment.pieces);
            if !segment.pieces.is_empty() {
                segments.insert(id.0, segment); // incarnations ascend: the later one counts
            }
        }
        segments
    }
}

/// Adds what lies between two chunks of which the second follows in the file just as far behind as
/// in the log: the header between is damaged, and its bytes may be whole.
fn with_lost_headers(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(pieces.len());
    for next in pieces {
        if let Some(last) = all.last().copied() {
            let (log_end, file_end) = (last.log_offset + last.len, last.file_offset + last.len);
            let header = CHUNK_HEADER_BYTES as u64;
            let lost = next.log_offset.saturating_sub(log_end);
            if lost > 0 && next.file_offset == file_end + header + lost + header {
                all.push(Piece {
                    log_offset: log_end,
                    len: lost,
                    file_offset: file_end + header,
                    chunk: None,
                    ..last
                });
            }
        }
        all.push(next);
    }
    debug_assert!(all.iter().all(|piece| piece.incarnation == all[0].incarnation));
    all
}
