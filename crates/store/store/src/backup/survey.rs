//! Examines all frames of a log file: finds the frames that hold segments of the log, and the
//! frames that are free. Writes nothing.

use super::report::{Corruption, Garbage, ReplayReport};
use super::walk::{BadLog, ChunkReader, End, read_log};
use super::{OpenError, report::Cut};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, ReadAt};
use sprat_wire::entry::Role;
use sprat_wire::frame::{Chunk, ChunkHeader, FileHeader, find_chunks};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A file that is being read.
pub(super) struct FrameReader<R> {
    pub(super) reader: R,
    pub(super) name: String,
    pub(super) header: FileHeader,
    /// Number of whole frames in the file.
    pub(super) frames: u32,
}

/// A frame that begins with a valid chunk header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SegmentFrame {
    pub(super) frame: u32,
    pub(super) segment: u64,
    pub(super) incarnation: u32,
    head: bool,
}

/// The contents of the frames of a log.
#[derive(Default)]
pub(super) struct Survey {
    /// The log's segments, newest first; the first is the newest head. Empty for an empty log.
    pub(super) live: Vec<SegmentFrame>,
    /// Frames that hold no segment of the log.
    pub(super) free: Vec<u32>,
}

impl<R: ReadAt> FrameReader<R> {
    /// Reads the first `len` bytes of a frame.
    pub(super) fn read(
        &self,
        frame: u32,
        len: usize,
        into: &mut AlignedBuf,
    ) -> Result<(), OpenError> {
        self.read_at(frame, 0, len, into)
    }

    /// Reads `len` bytes of a frame from `position` on.
    pub(super) fn read_at(
        &self,
        frame: u32,
        position: usize,
        len: usize,
        into: &mut AlignedBuf,
    ) -> Result<(), OpenError> {
        let offset = self.header.frame_offset(frame) + position as u64;
        let read = self.reader.read_at(into, len, offset);
        read.map_err(|source| OpenError::Read { file: self.name.clone(), offset, source })
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.header.frame_bytes as usize
    }

    pub(super) fn chunk_reader(&self, found: SegmentFrame) -> ChunkReader {
        ChunkReader {
            seed: self.header.seed(),
            segment: found.segment,
            incarnation: found.incarnation,
            segment_bytes: self.header.segment_bytes as usize,
        }
    }

    /// Builds an error about `position` in a frame.
    pub(super) fn corruption(
        &self,
        frame: u32,
        position: usize,
        segment: u64,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> OpenError {
        let offset = self.header.frame_offset(frame) + position as u64;
        let (expected, found) = (expected.into(), found.to_string());
        Corruption { file: self.name.clone(), offset, segment: Some(segment), expected, found }
            .into()
    }

    /// Examines all frames. What is left out is added to `report`.
    pub(super) fn survey(&self, report: &mut ReplayReport) -> Result<Survey, OpenError> {
        let mut buffer = AlignedBuf::zeroed(self.frame_bytes());
        let (mut named, mut unnamed) = (Vec::new(), Vec::new());
        for frame in 0..self.frames {
            self.read(frame, BLOCK_BYTES, &mut buffer)?;
            match ChunkHeader::parse(self.header.seed(), &buffer[..BLOCK_BYTES]) {
                Ok(Chunk { header, .. }) if header.offset == 0 => {
                    let ChunkHeader { segment, incarnation, head, .. } = header;
                    report.highest_segment = report.highest_segment.max(segment);
                    named.push(SegmentFrame { frame, segment, incarnation, head });
                }
                _ => unnamed.push(frame),
            }
        }
        named.sort_unstable_by_key(|found| Reverse((found.segment, found.incarnation)));
        let newest = self.newest_head(&named, &mut buffer, report)?;
        let digest = newest.as_ref().map_or(&[][..], |(_, digest)| digest);
        let newest_id = newest.as_ref().map_or(0, |(found, _)| found.segment);

        let mut live: BTreeMap<u64, SegmentFrame> = BTreeMap::new();
        for found in &named {
            // Of two frames with the same segment, the one with the later incarnation counts,
            // because in the earlier one only a torn beginning was written.
            if digest.binary_search(&found.segment).is_ok() {
                live.entry(found.segment).or_insert(*found);
            }
        }
        let mut survey = Survey::default();
        for &frame in &unnamed {
            self.read(frame, self.frame_bytes(), &mut buffer)?;
            self.examine_unnamed(frame, &buffer, newest_id, digest, &live, report)?;
            survey.free.push(frame);
        }
        if let Some(missing) = digest.iter().find(|id| !live.contains_key(id)) {
            return Err(OpenError::Missing {
                file: self.name.clone(),
                segment: *missing,
                head: newest_id,
            });
        }
        for found in named {
            if live.get(&found.segment) != Some(&found) {
                let offset = self.header.frame_offset(found.frame);
                report.garbage.push(Garbage {
                    frame: found.frame,
                    offset,
                    segment: Some(found.segment),
                });
                survey.free.push(found.frame);
            }
        }
        survey.free.sort_unstable();
        survey.live = live.into_values().rev().collect();
        if let Some(first) = survey.live.first()
            && first.segment != newest_id
        {
            let what = format!("no segment newer than head {newest_id} in its digest");
            return Err(self.corruption(
                first.frame,
                0,
                newest_id,
                what,
                format!("segment {}", first.segment),
            ));
        }
        Ok(survey)
    }

    /// Finds the newest head whose beginning is intact, and its digest.
    fn newest_head(
        &self,
        named: &[SegmentFrame],
        buffer: &mut AlignedBuf,
        report: &mut ReplayReport,
    ) -> Result<Option<(SegmentFrame, Vec<u64>)>, OpenError> {
        let mut log = Vec::new();
        for &found in named.iter().filter(|found| found.head) {
            self.read(found.frame, self.frame_bytes(), buffer)?;
            let chunks = self.chunk_reader(found);
            let walked = chunks.walk(buffer, &mut log);
            if log.is_empty() {
                // The head's first commit was torn, or was damaged later.
                let bad = match walked.end {
                    End::Torn(bad) => bad.to_string(),
                    End::Open | End::Sealed => "a head without a beginning".to_owned(),
                };
                if let Some((_, durable)) = chunks.witness(buffer, 0, 0) {
                    let expected = format!("the first of {durable} B of log that were durable");
                    return Err(self.corruption(found.frame, 0, found.segment, expected, bad));
                }
                report.cut.get_or_insert(Cut {
                    segment: Some(found.segment),
                    offset: self.header.frame_offset(found.frame),
                    log_end: 0,
                    bytes: walked.lost.into(),
                    found: bad,
                });
                continue;
            }
            let header = match read_log(&log, found.segment, |_, _| 0, &mut Vec::new()) {
                Ok((header, _)) => header,
                // Replay reports what is wrong behind the header entry.
                Err((at, _)) if at > 0 => {
                    read_log(&log[..at], found.segment, |_, _| 0, &mut Vec::new())
                        .map_err(|(at, bad)| self.bad_log(found, buffer, at, &bad))?
                        .0
                }
                Err((at, bad)) => return Err(self.bad_log(found, buffer, at, &bad)),
            };
            if header.role != Role::Head || header.digest.binary_search(&found.segment).is_err() {
                let expected = "a head whose digest lists itself";
                return Err(self.corruption(
                    found.frame,
                    0,
                    found.segment,
                    expected,
                    format!("{header:?}"),
                ));
            }
            return Ok(Some((found, header.digest)));
        }
        Ok(None)
    }

    /// Builds an error about a segment's log.
    pub(super) fn bad_log(
        &self,
        found: SegmentFrame,
        frame: &[u8],
        at: usize,
        bad: &BadLog,
    ) -> OpenError {
        let position = self.chunk_reader(found).locate(frame, at);
        let (expected, what) = match bad {
            BadLog::Entry(malformed) => {
                (format!("a valid entry at byte {at} of the log"), malformed.to_string())
            }
            BadLog::Header => ("the segment's header entry".to_owned(), "another entry".to_owned()),
            BadLog::Misplaced => {
                ("an object or tombstone".to_owned(), "a segment header entry".to_owned())
            }
        };
        self.corruption(found.frame, position, found.segment, expected, what)
    }

    /// Examines a frame that does not begin with a chunk header. The frame was never used, or it
    /// was reused and its new segment's first write was torn, or it is damaged. Chunks further back
    /// in the frame show whether it is damaged.
    fn examine_unnamed(
        &self,
        frame: u32,
        bytes: &[u8],
        newest: u64,
        digest: &[u64],
        live: &BTreeMap<u64, SegmentFrame>,
        report: &mut ReplayReport,
    ) -> Result<(), OpenError> {
        if bytes[..self.frame_bytes()].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        for (_, Chunk { header, .. }) in
            find_chunks(self.header.seed(), &bytes[..self.frame_bytes()])
        {
            report.highest_segment = report.highest_segment.max(header.segment);
            let lost = digest.binary_search(&header.segment).is_ok()
                && !live.contains_key(&header.segment);
            let newer = header.head && header.segment > newest && header.durable > 0;
            if lost || newer {
                let expected = "the segment's first chunk";
                return Err(self.corruption(
                    frame,
                    0,
                    header.segment,
                    expected,
                    "no valid chunk header",
                ));
            }
        }
        let offset = self.header.frame_offset(frame);
        report.garbage.push(Garbage { frame, offset, segment: None });
        Ok(())
    }
}
