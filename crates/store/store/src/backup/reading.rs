//! Reads replicas while the file is open.

use super::contents::Contents;
use super::owner::Owner;
use super::tickets::TICKET_READ;
use super::walk::ChunkReader;
use super::{Backup, Replica, Stored};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Completion, Disk, Op};
use std::collections::VecDeque;
use std::io;

/// The largest number of replicas being read at a time, including those that were read but not yet
/// taken.
pub const MAX_READS: usize = 8;

/// The result of reading a replica.
#[derive(Debug)]
pub struct FrameRead {
    /// The replica's id, packed into [one number](sprat_wire::op::ReplicaId::word).
    pub segment: u64,
    /// The replica's incarnation.
    pub incarnation: u32,
    /// The replica's contents, not yet checked, or the system's error.
    pub result: io::Result<Contents>,
}

/// A read under way.
struct Read {
    frame: u32,
    stored: Stored,
}

/// Reads under way, and those that are done.
#[derive(Default)]
pub(super) struct Reading {
    /// Reads in progress; at most [`MAX_READS`] together with those in `done`.
    under_way: Vec<Read>,
    done: VecDeque<FrameRead>,
    /// Buffers for the next reads, at most [`MAX_READS`].
    spare: Vec<AlignedBuf>,
}

impl Reading {
    /// Returns whether a frame is being read.
    pub(super) fn reads(&self, frame: u32) -> bool {
        self.under_way.iter().any(|read| read.frame == frame)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl<D: Disk> Backup<D> {
    /// Begins to read a replica that is no longer being written. The result comes from
    /// [`take_read`](Self::take_read). Returns false when [`MAX_READS`] replicas are being read or
    /// were read and not yet taken, or when this one is being read already.
    ///
    /// # Panics
    /// When the replica has no frame or is being written, or the file is a log: faults of the
    /// owner.
    pub fn read(&mut self, stored: &Stored) -> bool {
        let frame = self.frames.of(stored.replica.word()).expect("the replica has a frame").frame;
        // After a failure the disk never completes its writes.
        let pending = |open: &Replica| {
            open.frame == Some(frame) && (open.in_flight.is_some() || open.is_staged())
        };
        let writing = self.failure.is_none() && self.open.iter().any(pending);
        assert!(self.owner == Owner::Replicas && !writing, "{} is being written", stored.replica);
        if self.reading.under_way.len() + self.reading.done.len() >= MAX_READS
            || self.reading.reads(frame)
        {
            return false;
        }
        let len = (stored.framed as usize).next_multiple_of(BLOCK_BYTES);
        let mut buffer = self
            .reading
            .spare
            .pop()
            .unwrap_or_else(|| AlignedBuf::zeroed(self.geometry.frame_bytes));
        buffer.grow(len);
        self.reading.under_way.push(Read { frame, stored: stored.clone() });
        let offset = self.header.frame_offset(frame);
        self.disk
            .submit(TICKET_READ + u64::from(frame), Op::Read { buffer, len, wanted: len, offset });
        true
    }

    /// Handles a completed read.
    pub(super) fn read_completed(&mut self, frame: u32, completion: Completion) {
        let at = self
            .reading
            .under_way
            .iter()
            .position(|read| read.frame == frame)
            .expect("it was being read");
        let Read { stored, .. } = self.reading.under_way.swap_remove(at);
        let buffer = completion.buffer.expect("a read returns its buffer");
        let (segment, incarnation) = (stored.replica.word(), stored.incarnation);
        let chunks = ChunkReader {
            seed: self.geometry.seed,
            segment,
            incarnation,
            segment_bytes: self.geometry.segment_bytes,
        };
        let offset = self.header.frame_offset(frame);
        let result = completion
            .result
            .map(|()| Contents::new(buffer, chunks, &stored, self.disk.name(), offset));
        self.reading.done.push_back(FrameRead { segment, incarnation, result });
    }

    /// Takes the next replica that has been read.
    pub fn take_read(&mut self) -> Option<FrameRead> {
        self.reading.done.pop_front()
    }

    /// Takes a replica's buffer back, for the next read.
    pub fn give_back(&mut self, contents: Contents) {
        if self.reading.spare.len() < MAX_READS {
            self.reading.spare.push(contents.into_buffer());
        }
    }

    /// Releases the buffers kept for reads, when no reads are expected for a while.
    pub fn forget_buffers(&mut self) {
        self.reading.spare = Vec::new();
    }
}
