//! Which frame holds which segment, and which are free.

use std::collections::{BTreeMap, VecDeque};

/// Where a segment is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) frame: u32,
    /// By what its chunks there are told from others'.
    pub(super) incarnation: u32,
}

/// The frames of a log file.
#[derive(Default)]
pub(super) struct Frames {
    /// Segments that have a frame.
    live: BTreeMap<u64, Place>,
    /// Frames that may be written at once.
    ready: VecDeque<u32>,
    /// Freed since the last sync was begun: a power failure may still bring back the log that
    /// needs them.
    freed: Vec<u32>,
    /// Freed before the sync now under way was begun.
    settling: Vec<u32>,
    /// Frames in the file, ready for use.
    pub(super) total: u32,
}

/// How a log's frames are used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FrameCount {
    /// Hold a segment, or will hold one that waits for its first commit.
    pub live: u32,
    /// Can take one, now or after the next sync.
    pub free: u32,
    /// The most there may be; those neither live nor free are yet to be made.
    pub max: u32,
}

impl Frames {
    pub(super) fn new(live: BTreeMap<u64, Place>, ready: VecDeque<u32>) -> Self {
        let total =
            u32::try_from(live.len() + ready.len()).expect("frames are numbered in 32 bits");
        Self { live, ready, freed: Vec::new(), settling: Vec::new(), total }
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = u64> + '_ {
        self.live.keys().copied()
    }

    pub(super) fn count(&self, max: u32, waiting: usize) -> FrameCount {
        let live =
            u32::try_from(self.live.len() + waiting).expect("frames are numbered in 32 bits");
        FrameCount { live, free: self.total.saturating_sub(live), max: max.max(self.total) }
    }

    /// Adds frames that the file has grown by.
    pub(super) fn add(&mut self, frames: std::ops::Range<u32>) {
        self.total = frames.end;
        self.ready.extend(frames);
    }

    /// Gives `segment` a frame, if one is ready.
    pub(super) fn assign(&mut self, segment: u64, incarnation: u32) -> Option<u32> {
        let frame = self.ready.pop_front()?;
        let before = self.live.insert(segment, Place { frame, incarnation });
        assert!(before.is_none(), "segment {segment} had a frame");
        Some(frame)
    }

    /// Where a segment is.
    pub(super) fn of(&self, segment: u64) -> Option<Place> {
        self.live.get(&segment).copied()
    }

    /// Takes a segment's frame from it; it is nobody's then until it is [given](Self::give) back.
    pub(super) fn take(&mut self, segment: u64) -> Option<Place> {
        self.live.remove(&segment)
    }

    /// Takes back a frame that is nobody's; when it may be written again depends on whether what
    /// made its segment dispensable is on the medium yet.
    pub(super) fn give(&mut self, frame: u32, settled: bool) {
        if settled {
            self.ready.push_back(frame);
        } else {
            self.freed.push(frame);
        }
    }

    pub(super) fn sync_begun(&mut self) {
        self.settling.append(&mut self.freed);
    }

    pub(super) fn sync_done(&mut self) {
        self.ready.extend(self.settling.drain(..));
    }
}
