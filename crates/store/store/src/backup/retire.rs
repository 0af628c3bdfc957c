//! Frames that are being released.
//!
//! A frame of the log is free as soon as a durable head no longer lists its segment, since no start
//! looks for that segment. In a file of replicas everything on disk counts at a start, so the
//! frame's last block is written first, as a mark: it says up to which incarnation the frame's
//! chunks are free. Only when the mark is on the medium may the frame be written again.

use super::frames::FrameSlot;
use super::mark::MARK_BYTES;
use super::owner::Owner;
use super::tickets::TICKET_RETIRE;
use super::{Backup, Durability};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Disk, Op};
use sprat_wire::frame::{CHUNK_HEADER_BYTES, ChunkHeader, FREED, Seal};
use std::collections::VecDeque;

/// The largest number of marks being written at a time.
pub(super) const MAX_RETIRING_WRITES: usize = 4;

/// Frames that are becoming free: see the module.
#[derive(Default)]
pub(super) struct Retiring {
    /// Frames that wait to be marked, with the incarnation for the mark.
    queue: VecDeque<FrameSlot>,
    /// Number of marks being written.
    writing: usize,
    /// Buffers of earlier marks, at most [`MAX_RETIRING_WRITES`].
    buffers: Vec<AlignedBuf>,
}

impl Retiring {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.writing == 0
    }
}

impl<D: Disk> Backup<D> {
    /// Releases a frame that no segment uses any more, and that is not being written.
    pub(super) fn release_frame(&mut self, slot: FrameSlot) {
        match self.owner {
            Owner::Log => self.free_frame(slot.frame),
            Owner::Replicas => {
                self.retiring.queue.push_back(slot);
                self.retire();
            }
        }
    }

    fn free_frame(&mut self, frame: u32) {
        let settled = self.durability == Durability::Sync;
        self.dirty |= !settled;
        self.frames.give(frame, settled);
    }

    /// Begins to mark frames, except those that are being read.
    pub(super) fn retire(&mut self) {
        while self.retiring.writing < MAX_RETIRING_WRITES && self.failure.is_none() {
            let Some(at) =
                self.retiring.queue.iter().position(|slot| !self.reading.reads(slot.frame))
            else {
                return;
            };
            let FrameSlot { frame, incarnation } =
                self.retiring.queue.remove(at).expect("just found");
            let write = self.mark(frame, incarnation);
            self.retiring.writing += 1;
            self.disk.submit(TICKET_RETIRE + u64::from(frame), write);
        }
    }

    /// Handles a written mark.
    pub(super) fn mark_completed(&mut self, frame: u32, buffer: AlignedBuf) {
        self.retiring.writing -= 1;
        self.retiring.buffers.push(buffer);
        self.free_frame(frame);
    }

    /// Returns the write that marks everything in a frame up to `incarnation` as free.
    pub(super) fn mark(&mut self, frame: u32, incarnation: u32) -> Op {
        let mut buffer =
            self.retiring.buffers.pop().unwrap_or_else(|| AlignedBuf::zeroed(BLOCK_BYTES));
        let header = ChunkHeader {
            segment: FREED,
            incarnation,
            offset: 0,
            length: 0,
            durable: 0,
            head: false,
            seal: Seal::Sealed,
            buffered: false,
        };
        let crc = ChunkHeader::payload_seed(
            self.geometry.seed,
            header.segment,
            header.incarnation,
            header.offset,
        );
        for copy in buffer.chunks_exact_mut(MARK_BYTES) {
            copy[..CHUNK_HEADER_BYTES].copy_from_slice(&header.encode(self.geometry.seed, crc));
        }
        let durable = self.durability == Durability::Sync;
        let offset = self.header.frame_offset(frame) + self.geometry.frame_bytes as u64;
        Op::Write { buffer, len: BLOCK_BYTES, offset, durable }
    }
    /// Returns the write that clears a frame's first block.
    pub(super) fn erase(&self, frame: u32) -> Op {
        let durable = self.durability == Durability::Sync;
        let buffer = AlignedBuf::zeroed(BLOCK_BYTES);
        Op::Write { buffer, len: BLOCK_BYTES, offset: self.header.frame_offset(frame), durable }
    }
}
