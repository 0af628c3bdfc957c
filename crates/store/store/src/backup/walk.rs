//! Reads one frame: reassembles a segment's log from its chunks.

use sprat_wire::entry::{Entry, Kind, Malformed, SegmentHeader};
use sprat_wire::frame::{
    BLOCK_BYTES, BadChunk, CHUNK_HEADER_BYTES, ChunkHeader, Seal, Seed, find_chunks,
};
use sprat_wire::group::Group;

/// How a frame's run of chunks ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// With a seal, or with a cut that an earlier start made.
    Sealed,
    /// Without a seal. The bytes after the last chunk are not the remains of another chunk of the
    /// segment.
    Open,
    /// With something that is not a valid chunk.
    Torn(BadChunk),
}

/// The run of chunks in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    /// Where in the frame the run ends.
    pub(super) position: usize,
    /// Number of log bytes in the run.
    pub(super) log_end: usize,
    /// How the run of chunks ends.
    pub(super) end: End,
    /// Log bytes that the invalid chunk would have held, as far as its header can be read.
    pub(super) lost: u32,
}

/// The chunks to look for: those of one segment and incarnation.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkReader {
    pub(super) seed: Seed,
    pub(super) segment: u64,
    pub(super) incarnation: u32,
    pub(super) segment_bytes: usize,
}

impl ChunkReader {
    fn owns(&self, header: &ChunkHeader) -> bool {
        header.segment == self.segment && header.incarnation == self.incarnation
    }

    /// Copies the segment's log into `log` (cleared first), chunk by chunk.
    pub(super) fn walk(&self, frame: &[u8], log: &mut Vec<u8>) -> Walked {
        log.clear();
        self.walk_with(frame, |header, payload| {
            log.truncate(header.offset as usize);
            log.extend_from_slice(payload);
        })
    }

    /// Checks the run of chunks, and passes each to `take`.
    pub(super) fn walk_with(
        &self,
        frame: &[u8],
        mut take: impl FnMut(&ChunkHeader, &[u8]),
    ) -> Walked {
        let (mut position, mut log_end) = (0, 0);
        loop {
            let (end, lost) = match self.step(&frame[position..], log_end) {
                Ok((header, payload)) => {
                    take(&header, payload);
                    position += CHUNK_HEADER_BYTES + payload.len();
                    log_end = header.offset as usize + payload.len();
                    match header.seal {
                        Seal::Open => continue,
                        Seal::Sealed | Seal::Cut => (End::Sealed, 0),
                    }
                }
                Err((bad, lost)) if self.is_remnant(&frame[position..], position, bad) => {
                    (End::Torn(bad), lost)
                }
                Err(_) => (End::Open, 0),
            };
            return Walked { position, log_end, end, lost };
        }
    }

    /// Parses the chunk at the beginning of `bytes`. Its log must begin at `log_end`, except that a
    /// cut may begin before. The error says what is wrong with the chunk, and how many bytes of log
    /// are lost with it: 0 if its header is invalid or does not fit there.
    pub(super) fn step<'a>(
        &self,
        bytes: &'a [u8],
        log_end: usize,
    ) -> Result<(ChunkHeader, &'a [u8]), (BadChunk, u32)> {
        let chunk = ChunkHeader::parse(self.seed, bytes).map_err(|bad| (bad, 0))?;
        let header = chunk.header;
        let length = header.length as usize;
        if !self.owns(&header) {
            return Err((BadChunk::Field("segment"), 0));
        }
        let follows = match header.seal {
            Seal::Cut => header.offset as usize <= log_end,
            Seal::Open | Seal::Sealed => header.offset as usize == log_end,
        };
        if !follows || log_end + length > self.segment_bytes {
            return Err((BadChunk::Field("offset"), 0));
        }
        let Some(payload) = bytes[CHUNK_HEADER_BYTES..].get(..length) else {
            return Err((BadChunk::Field("length"), header.length));
        };
        chunk.check(payload).map_err(|bad| (bad, header.length))?;
        Ok((header, payload))
    }

    /// Returns whether the invalid bytes at `position` can be the remains of one of this segment's
    /// chunks. Bytes of an earlier segment that begin at the edge of a block cannot be. Within a
    /// block there are zeroes behind the last chunk, unless a write was begun.
    fn is_remnant(&self, bytes: &[u8], position: usize, bad: BadChunk) -> bool {
        let in_block = position % BLOCK_BYTES;
        let rest = &bytes[..bytes.len().min(BLOCK_BYTES - in_block)];
        match bad {
            BadChunk::Short(_) => rest.iter().any(|byte| *byte != 0),
            BadChunk::Magic => in_block != 0 && rest.iter().any(|byte| *byte != 0),
            BadChunk::Field("segment") => in_block != 0,
            BadChunk::HeaderCrc { .. } | BadChunk::Field(_) | BadChunk::PayloadCrc { .. } => true,
        }
    }

    /// Searches behind `position` for a chunk header that says that more than `log_end` bytes of
    /// log were durable. If there is such a header, the bytes at `position` were valid once, and
    /// are damaged now. Returns the header's position, and the number of bytes that were durable
    /// when the header was written.
    pub(super) fn witness(
        &self,
        frame: &[u8],
        position: usize,
        log_end: usize,
    ) -> Option<(usize, u32)> {
        find_chunks(self.seed, &frame[position..])
            .find(|(_, chunk)| self.owns(&chunk.header) && chunk.header.durable as usize > log_end)
            .map(|(place, chunk)| (position + place, chunk.header.durable))
    }

    /// Returns whether any chunk of the segment lies behind `position`.
    pub(super) fn has_more(&self, frame: &[u8], position: usize) -> bool {
        find_chunks(self.seed, &frame[position..]).any(|(_, chunk)| self.owns(&chunk.header))
    }

    /// Returns where in the frame the byte at `offset` of the segment's log lies.
    pub(super) fn locate(&self, frame: &[u8], offset: usize) -> usize {
        let (mut position, mut log_end) = (0, 0);
        while let Ok(chunk) = ChunkHeader::parse(self.seed, &frame[position..]) {
            let length = chunk.header.length as usize;
            if !self.owns(&chunk.header) || offset < log_end + length || length == 0 {
                break;
            }
            position += CHUNK_HEADER_BYTES + length;
            log_end += length;
        }
        position + CHUNK_HEADER_BYTES + offset.saturating_sub(log_end)
    }
}

/// Why bytes are not a segment's log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum BadLog {
    /// An entry is malformed.
    Entry(Malformed),
    /// The first entry is not this segment's header.
    Header,
    /// A segment header, or the mark of a group, is in the wrong place.
    Misplaced,
}

/// Checks every entry of a segment's log. Puts the position and hash of each object and tombstone
/// into `entries`, which it clears before. Returns the header, and where the log ends: before a
/// [group](sprat_wire::group) that is not whole. The error has the position at which the log is
/// wrong, and the reason.
pub(super) fn read_log(
    log: &[u8],
    segment: u64,
    hash: impl Fn(u32, &[u8]) -> u64,
    entries: &mut Vec<(u32, u64)>,
) -> Result<(SegmentHeader, usize), (usize, BadLog)> {
    entries.clear();
    let first = Entry::parse_checked(log).map_err(|malformed| (0, BadLog::Entry(malformed)))?;
    let header = if first.kind == Kind::Segment { SegmentHeader::parse(first.value) } else { None };
    let header = header.filter(|header| header.id == segment).ok_or((0, BadLog::Header))?;
    let mut at = first.encoded_len();
    let mut group: Option<(Group, usize)> = None;
    while at < log.len() {
        let entry =
            Entry::parse_checked(&log[at..]).map_err(|malformed| (at, BadLog::Entry(malformed)))?;
        if entry.kind == Kind::Segment {
            let is_within = group.is_some_and(|(group, _)| at < group.end);
            let next = Group::at(at, &entry).filter(|_| !is_within);
            group = Some((next.ok_or((at, BadLog::Misplaced))?, entries.len()));
        } else {
            let at = u32::try_from(at).expect("within a segment");
            entries.push((at, hash(entry.table, entry.key)));
        }
        at += entry.encoded_len();
    }
    match group {
        Some((group, before)) if group.end > log.len() => {
            entries.truncate(before);
            Ok((header, group.begin))
        }
        _ => Ok((header, log.len())),
    }
}
