//! Finds the chunks of a file by their headers.

use sprat_wire::frame::{CHUNK_HEADER_BYTES, Chunk, FRAMES_OFFSET, FREED, Seal, Seed, find_chunks};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes of the file that are searched at once.
const WINDOW: usize = 16 << 20;

/// Bytes of a segment's log that lie together in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    incarnation: u32,
    /// Position of these bytes in the segment's log.
    pub(super) log_offset: u64,
    pub(super) len: u64,
    /// Offset of these bytes in the file.
    pub(super) file_offset: u64,
    /// Whether the segment is a head, not a survivor of the cleaner.
    pub(super) head: bool,
    /// The chunk whose checksum the bytes must match; `None` if its header is damaged.
    chunk: Option<Chunk>,
}

impl Piece {
    pub(super) fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a chunk's length")];
        file.read_exact_at(&mut bytes, self.file_offset)?;
        Ok(bytes)
    }

    /// Returns whether `bytes` match the checksum of the piece's chunk.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        self.chunk.is_some_and(|chunk| chunk.check(bytes).is_ok())
    }
}

/// The pieces of a segment that were found.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// The pieces in the order of the log: at least one.
    pub(super) pieces: Vec<Piece>,
    /// The least number of bytes of log that the segment had. Each chunk header states how many
    /// bytes were durable when it was written.
    pub(super) least: u64,
    /// Whether a chunk with a seal or a cut was found, which ends the segment.
    pub(super) ended: bool,
}

/// All chunks that were found, by segment and incarnation.
#[derive(Default)]
pub(super) struct Pieces {
    found: BTreeMap<(u64, u32), Segment>,
    /// Offsets in the logs of segments at which an earlier start cut these logs.
    cuts: BTreeMap<(u64, u32), u64>,
}

impl Pieces {
    /// Searches the file for chunks, and adds them.
    pub(super) fn find(&mut self, file: &File, size: u64, seed: Seed) -> io::Result<()> {
        // The end of a window may divide the last header, so the next window begins that much
        // earlier.
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

    /// Returns the pieces of each segment in the order of its log. If a segment has several
    /// incarnations, the latest one counts.
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

/// Adds the bytes between two chunks if the gap in the file has exactly room for the missing log
/// bytes and one header. Then that header is damaged, but the log bytes may be whole.
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
