//! Reads all live segments, several at a time, and delivers them newest first.

use super::OpenError;
use super::report::{Cut, ReplayReport, ReplayedSegment};
use super::survey::{FrameReader, SegmentFrame};
use super::walk::{BadLog, End, read_log};
use sprat_disk::{AlignedBuf, ReadAt};
use sprat_host::lock;
use sprat_wire::entry::{Entry, Malformed, Role, SegmentHeader};
use sprat_wire::once::Completion;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// Segments read ahead of the one being delivered, in addition to one for each thread.
const READ_AHEAD: usize = 2;

/// The end of the newest head, when it was not sealed: opening seals it there before anything else
/// is written.
#[derive(Clone, Debug)]
pub(super) struct Unsealed {
    pub(super) found: SegmentFrame,
    /// Offset in the frame at which the seal is written, in bytes.
    pub(super) position: usize,
    /// The frame's bytes before `position` in its block.
    pub(super) tail: Vec<u8>,
    /// The length of the segment's log, in bytes.
    pub(super) log_end: u32,
}

/// A segment that was read, in buffers that are reused for a later one.
struct Loaded {
    segment: ReplayedSegment,
    cut: Option<Cut>,
    unsealed: Option<Unsealed>,
}

impl Loaded {
    fn empty() -> Self {
        let header =
            SegmentHeader { id: 0, safe_version: 0, role: Role::Survivor, digest: Vec::new() };
        let segment = ReplayedSegment { id: 0, header, bytes: Vec::new(), entries: Vec::new() };
        Self { segment, cut: None, unsealed: None }
    }
}

type Outcome = (usize, Result<Loaded, OpenError>);

impl<R: ReadAt> FrameReader<R> {
    /// Reads the segments `live`, newest first, on `threads` threads, and passes them to `sink` in
    /// that order. Returns the end of the newest head, if that head was not sealed.
    pub(super) fn replay(
        &self,
        live: &[SegmentFrame],
        threads: usize,
        hash: &(impl Fn(u32, &[u8]) -> u64 + Sync),
        mut sink: impl FnMut(&ReplayedSegment) -> ControlFlow<()>,
        report: &mut ReplayReport,
    ) -> Result<Option<Unsealed>, OpenError> {
        let threads = threads.min(live.len());
        let next = AtomicUsize::new(0);
        let (empty, empties) = mpsc::channel();
        let empties = Mutex::new(empties);
        let (done, outcomes) = mpsc::sync_channel(threads + READ_AHEAD);
        for _ in 0..threads + READ_AHEAD {
            let _ = empty.send(Loaded::empty());
        }
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (done, empties, next) = (done.clone(), &empties, &next);
                scope.spawn(move || {
                    let mut buffer = AlignedBuf::zeroed(self.frame_bytes());
                    // A thread takes a buffer first and a number second, so that the thread with
                    // the lowest number always has a buffer.
                    while let Some(loaded) = take(empties) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(found) = live.get(index) else { return };
                        let outcome = self.load(*found, index == 0, loaded, &mut buffer, hash);
                        if done.send((index, outcome)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(done);
            deliver(&outcomes, empty, &mut sink, report)
        })
    }

    /// Reads and checks one segment.
    fn load(
        &self,
        found: SegmentFrame,
        newest: bool,
        mut loaded: Loaded,
        buffer: &mut AlignedBuf,
        hash: &impl Fn(u32, &[u8]) -> u64,
    ) -> Result<Loaded, OpenError> {
        let SegmentFrame { frame, segment: id, .. } = found;
        self.read(frame, self.frame_bytes(), buffer)?;
        let frame_bytes = &buffer[..self.frame_bytes()];
        let chunks = self.chunk_reader(found);
        let ReplayedSegment { bytes, entries, .. } = &mut loaded.segment;
        let walked = chunks.walk(frame_bytes, bytes);
        let found_there = match walked.end {
            End::Sealed => None,
            End::Open => Some("nothing".to_owned()),
            End::Torn(bad) => Some(bad.to_string()),
        };
        if let Some(what) = &found_there {
            let expected = match chunks.witness(frame_bytes, walked.position, bytes.len()) {
                Some((_, durable)) => {
                    Some(format!("{durable} B of durable log, going on at byte {}", bytes.len()))
                }
                None if newest => None,
                None => {
                    Some(format!("a sealed segment, going on at byte {} of its log", bytes.len()))
                }
            };
            if let Some(expected) = expected {
                return Err(self.corruption(frame, walked.position, id, expected, what));
            }
        }
        let chunked = bytes.len();
        let (header, whole) = match (read_log(bytes, id, hash, entries), &found_there) {
            (Ok(read), _) => read,
            // An entry that began in the last whole chunk and ended in the torn one.
            (Err((at, BadLog::Entry(Malformed::Truncated { .. }))), Some(_)) if at > 0 => {
                bytes.truncate(at);
                read_log(bytes, id, hash, entries)
                    .map_err(|(at, bad)| self.bad_log(found, frame_bytes, at, &bad))?
            }
            (Err((at, bad)), _) => return Err(self.bad_log(found, frame_bytes, at, &bad)),
        };
        let last =
            entries.last().map(|&(at, _)| Entry::parse(&bytes[at as usize..]).expect("just read"));
        if last.is_some_and(|last| Completion::is_cut(&last, header.role)) {
            entries.pop();
        }
        self.check_clean(found, newest, walked.position, log_position(bytes.len()))?;
        bytes.truncate(whole);
        let log_end = log_position(bytes.len());
        let cut_bytes = (chunked - bytes.len()) as u64 + u64::from(walked.lost);
        loaded.cut = (cut_bytes > 0 || matches!(walked.end, End::Torn(_))).then(|| Cut {
            segment: Some(id),
            offset: self.header.frame_offset(frame) + walked.position as u64,
            log_end,
            bytes: cut_bytes,
            found: found_there.clone().unwrap_or_default(),
        });
        loaded.unsealed = found_there.map(|_| {
            let block = walked.position - walked.position % sprat_disk::BLOCK_BYTES;
            let tail = frame_bytes[block..walked.position].to_vec();
            Unsealed { found, position: walked.position, tail, log_end }
        });
        (loaded.segment.id, loaded.segment.header) = (id, header);
        Ok(loaded)
    }

    /// Checks that a log that was closed cleanly has no unfinished end.
    fn check_clean(
        &self,
        found: SegmentFrame,
        newest: bool,
        position: usize,
        log_end: u32,
    ) -> Result<(), OpenError> {
        let Some(clean) = self.header.clean.filter(|_| newest) else { return Ok(()) };
        if clean == (found.segment, log_end) {
            return Ok(());
        }
        let expected =
            format!("head {} with {} B of log, as it was closed in order", clean.0, clean.1);
        let is = format!("head {} with {log_end} B", found.segment);
        Err(self.corruption(found.frame, position, found.segment, expected, is))
    }
}

fn log_position(at: usize) -> u32 {
    u32::try_from(at).expect("within a segment")
}

/// Returns the next empty buffer; `None` when there will be none.
fn take(empties: &Mutex<Receiver<Loaded>>) -> Option<Loaded> {
    lock(empties).recv().ok()
}

/// Passes segments to `sink` in the order of their numbers as they arrive.
fn deliver(
    outcomes: &Receiver<Outcome>,
    empty: Sender<Loaded>,
    sink: &mut impl FnMut(&ReplayedSegment) -> ControlFlow<()>,
    report: &mut ReplayReport,
) -> Result<Option<Unsealed>, OpenError> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    let mut unsealed = None;
    for (index, outcome) in outcomes {
        early.insert(index, outcome);
        while let Some(outcome) = early.remove(&next) {
            next += 1;
            let mut loaded = outcome?;
            report.segments += 1;
            report.entries += loaded.segment.entries.len() as u64;
            report.bytes += loaded.segment.bytes.len() as u64;
            // A head that never began is newer than this segment, so the cut at that head is
            // reported.
            report.cut = report.cut.take().or(loaded.cut.take());
            unsealed = unsealed.or(loaded.unsealed.take());
            if sink(&loaded.segment).is_break() {
                return Err(OpenError::Stopped);
            }
            // The threads may all have ended.
            let _ = empty.send(loaded);
        }
    }
    Ok(unsealed)
}
