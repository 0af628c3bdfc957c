//! Tracks which frame holds which segment, and which frames are free.

use std::collections::{BTreeMap, VecDeque};

/// The frame of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FrameSlot {
    pub(super) frame: u32,
    /// The incarnation of the segment's chunks in this frame.
    pub(super) incarnation: u32,
}

/// The frames of a file.
#[derive(Default)]
pub(super) struct Frames {
    /// Segments that have a frame.
    live: BTreeMap<u64, FrameSlot>,
    /// Frames that may be written at once.
    ready: VecDeque<u32>,
    /// Frames freed since the last sync began. A power failure may still bring back a state of the
    /// log that needs them.
    freed: Vec<u32>,
    /// Frames freed before the current sync began.
    settling: Vec<u32>,
    /// Number of frames in the file, in use or not, without those that are still being added.
    pub(super) total: u32,
}

/// How a file's frames are used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FrameCount {
    /// Frames that hold a segment, or will hold one that waits for its first commit.
    pub live: u32,
    /// Frames that can take a segment now, after the next sync, or once they are marked as free.
    pub free: u32,
    /// The largest number of frames. Frames up to this number that are neither live nor free do not
    /// exist yet.
    pub max: u32,
}

impl Frames {
    pub(super) fn new(live: BTreeMap<u64, FrameSlot>, ready: VecDeque<u32>) -> Self {
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

    /// Adds the frames that the file has grown by.
    pub(super) fn add(&mut self, frames: std::ops::Range<u32>) {
        self.total = frames.end;
        self.ready.extend(frames);
    }

    /// Assigns a ready frame to `segment`, if there is one.
    pub(super) fn assign(&mut self, segment: u64, incarnation: u32) -> Option<u32> {
        let frame = self.ready.pop_front()?;
        let previous = self.live.insert(segment, FrameSlot { frame, incarnation });
        assert!(previous.is_none(), "segment {segment} had a frame");
        Some(frame)
    }

    /// Returns the frame of a segment.
    pub(super) fn of(&self, segment: u64) -> Option<FrameSlot> {
        self.live.get(&segment).copied()
    }

    /// Removes a segment's frame; it belongs to no segment until it is [given](Self::give) back.
    pub(super) fn take(&mut self, segment: u64) -> Option<FrameSlot> {
        self.live.remove(&segment)
    }

    /// Takes back a frame. `settled` says whether the change that made its segment unnecessary is
    /// on the medium already. If it is not, the frame must not be written before the next sync.
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
