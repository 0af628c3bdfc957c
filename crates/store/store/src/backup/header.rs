//! Writes the file's header, and closes a file cleanly.

use super::incarnation::AHEAD;
use super::owner::Owner;
use super::tickets::{TICKET_HEADER, TICKET_RAISE};
use super::{Backup, DiskOperation, Failed, Progress};
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Disk, Op};
use sprat_net::Nanos;
use sprat_wire::frame::FILE_HEADERS;
use std::io;

impl<D: Disk> Backup<D> {
    /// Commits what was appended, waits for the disk, and records in the file that it was closed
    /// cleanly. The next start then treats every invalid chunk as damage, because the last commit
    /// cannot be unfinished. Segments that have no frame yet are dropped if the disk is full; their
    /// bytes were never reported as durable. Blocks.
    ///
    /// # Errors
    /// [`Failed`] when a request to the disk fails or has failed before.
    pub fn close(mut self, now: Nanos, mut report: impl FnMut(Progress)) -> Result<(), Failed> {
        // The disk may have room again: growth is tried once more.
        if let Some(full) = &mut self.disk_full {
            full.retry_at = Some(now);
        }
        loop {
            self.submit(now)?;
            self.poll(now, &mut report)?;
            if self.dirty {
                self.sync(now);
            }
            if self.is_idle() {
                break;
            }
            if self.lacks_only_room() {
                tracing::warn!(
                    "the disk is full: the last {} B, which were never durable, are not in {}",
                    self.staged,
                    self.disk.name()
                );
                break;
            }
            self.wait()?;
        }
        self.header.clean = match self.owner {
            Owner::Log => self.newest,
            Owner::Replicas => Some((u64::from(self.incarnations.first()), 0)),
        };
        self.header.frames = self.frames.total;
        self.header.incarnation += 1;
        self.write_header()
    }

    pub(super) fn wait(&mut self) -> Result<(), Failed> {
        self.disk.wait().map_err(|error| self.fail(DiskOperation::Wait, 0, error))
    }

    /// Writes the file header, durably. Blocks; nothing else may be under way.
    pub(super) fn write_header(&mut self) -> Result<(), Failed> {
        let write = self.header_write();
        self.block_on(write)
    }

    /// Returns a durable write of the file header over its older copy.
    pub(super) fn header_write(&self) -> Op {
        let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
        buffer.copy_from_slice(&self.header.encode());
        let copy = u64::from(self.header.incarnation) % FILE_HEADERS as u64;
        let (len, offset) = (buffer.len(), copy * BLOCK_BYTES as u64);
        Op::Write { buffer, len, offset, durable: true }
    }

    /// In a file of replicas: writes the file's header with a higher limit of incarnations when few
    /// of those that it allows are left. Records a failure when there are no more numbers.
    pub(super) fn raise(&mut self) {
        if self.owner == Owner::Log || !self.incarnations.are_few() || self.growth.is_some() {
            return;
        }
        let Some(raised) =
            self.header.incarnation.checked_add(AHEAD).filter(|raised| *raised < u32::MAX)
        else {
            let error = io::Error::other(
                "the file's counter of replicas is at its limit: move the file away",
            );
            self.fail(DiskOperation::Header, 0, error);
            return;
        };
        self.header.incarnation = raised;
        self.incarnations.raise(raised);
        let write = self.header_write();
        self.disk.submit(TICKET_RAISE, write);
    }

    /// Executes one operation of opening or closing; nothing else may be under way.
    pub(super) fn block_on(&mut self, op: Op) -> Result<(), Failed> {
        self.disk.submit(TICKET_HEADER, op);
        loop {
            self.wait()?;
            if let Some(completion) = self.disk.poll() {
                assert!(completion.ticket == TICKET_HEADER, "nothing else is under way");
                self.complete(completion)?;
                return Ok(());
            }
        }
    }
}
