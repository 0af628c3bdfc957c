//! Durable writes, and reads ahead: aligned buffers, io_uring, and a trait for real and simulated
//! disks.
//!
//! A [`Disk`] is one file, owned by one thread. It accepts a bounded number of operations, and
//! returns their outcomes through [`Disk::poll`]. With io_uring it blocks only in [`Disk::wait`],
//! in the submission of an [`Op::Release`], and when it is dropped.
//! - [`FileDisk`]: a real file, with io_uring, `O_DIRECT` and `RWF_DSYNC` where the filesystem
//!   supports them.
//! - [`MemDisk`]: a file in memory, in the caller's virtual time. Its seed and the test decide
//!   which writes it keeps, loses, tears or fails.
//!
//! Buffers are owned: an [`AlignedBuf`] goes in with the operation and comes back with the
//! [`Completion`]. The caller must not have operations on overlapping ranges in flight at the same
//! time.

mod buffer;
mod file;
mod mem;
mod pages;
mod ring;

pub use buffer::{AlignedBuf, BLOCK_BYTES};
pub use file::{Access, FileDisk, FileReader, OpenError, is_named, open_locked};
pub use mem::{Fault, Latency, MemControl, MemDisk, MemReader};

use std::io;
use std::os::fd::BorrowedFd;

/// The largest number of operations in flight on one disk. The caller must not submit more.
pub const MAX_IN_FLIGHT: usize = 64;

/// An operation on a disk. Offsets and lengths are multiples of [`BLOCK_BYTES`].
#[derive(Debug)]
pub enum Op {
    /// Writes the first `len` bytes of `buffer` at `offset`. Extends the file if they end beyond
    /// its end.
    Write {
        /// The bytes. The completion returns the buffer.
        buffer: AlignedBuf,
        /// Bytes of `buffer` to write, more than zero.
        len: usize,
        /// The offset in the file, in bytes.
        offset: u64,
        /// If true, the bytes survive a power failure once the operation completes (`O_DSYNC`). If
        /// false, the kernel has them: they survive this process, but perhaps not a power failure.
        durable: bool,
    },
    /// Reads from `offset` into the first `len` bytes of `buffer`. The first `wanted` bytes must
    /// exist: if the file ends earlier, the outcome is `UnexpectedEof`. The file may end between
    /// `wanted` and `len`; the buffer's bytes after the file's end are then undefined.
    Read {
        /// The destination. The completion returns the buffer.
        buffer: AlignedBuf,
        /// Bytes of `buffer` to read, more than zero.
        len: usize,
        /// Bytes that must be read: at most `len`, more than zero, of any alignment.
        wanted: usize,
        /// The offset in the file, in bytes.
        offset: u64,
    },
    /// Makes durable all writes that completed before this operation was submitted, and the file's
    /// size (`fdatasync`).
    Sync,
    /// Reserves disk space without changing the file's size, so that a lack of space shows early.
    /// If the filesystem does not support reservations, succeeds without effect.
    Reserve {
        /// The start of the range in the file, in bytes.
        offset: u64,
        /// The length of the range, in bytes.
        len: u64,
    },
    /// Truncates the file to `offset` if it is longer. Frees all space reserved beyond the file's
    /// end.
    Release {
        /// The largest size that the file keeps, in bytes.
        offset: u64,
    },
}

/// The outcome of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The ticket passed to [`Disk::submit`].
    pub ticket: u64,
    /// `Ok` if the operation succeeded. After an error any part of a write or read may have
    /// happened.
    pub result: io::Result<()>,
    /// The buffer of a write or read.
    pub buffer: Option<AlignedBuf>,
}

/// One file of blocks, owned by one thread.
///
/// A node submits operations with tickets of its choice. The node's loop calls [`poll`](Self::poll)
/// for the outcomes, which arrive in any order, and sleeps on [`poll_fd`](Self::poll_fd) when it is
/// idle. The disk owns each buffer until it returns the buffer in a [`Completion`].
pub trait Disk {
    /// A handle that reads the file, also from other threads.
    type Reader: ReadAt;

    /// Returns the file's path, or `memory` for a [`MemDisk`], for messages.
    fn name(&self) -> String;

    /// Returns the size of the file, in bytes.
    ///
    /// # Errors
    /// If the size cannot be read.
    fn size(&self) -> io::Result<u64>;

    /// Starts `op`. Outcomes may arrive in any order.
    ///
    /// # Panics
    /// If [`MAX_IN_FLIGHT`] operations are in flight, or `op` is not aligned.
    fn submit(&mut self, ticket: u64, op: Op);

    /// Returns the next outcome, if there is one. If there is none, makes a system call only to
    /// submit operations that the kernel refused earlier.
    fn poll(&mut self) -> Option<Completion>;

    /// Blocks until an outcome may have arrived, or a signal interrupts the wait; returns at once
    /// if nothing is in flight. For start and stop, not for the loop of a node.
    ///
    /// # Errors
    /// If waiting fails; the operations remain in flight.
    fn wait(&mut self) -> io::Result<()>;

    /// Returns a descriptor that polls readable when an outcome may have arrived. `None` if the
    /// disk has no descriptor: then outcomes arrive within `submit`, or when virtual time passes.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns a handle that reads the file, with the writes of all completed operations.
    fn reader(&self) -> Self::Reader;
}

/// Blocking reads from a disk, by any thread.
pub trait ReadAt: Clone + Send + Sync {
    /// Fills the first `len` bytes of `into` from `offset`; both are multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// Errors of the device, or `UnexpectedEof` if the file ends before the bytes do.
    ///
    /// # Panics
    /// If `len` or `offset` is not aligned, or `into` is shorter than `len`.
    fn read_at(&self, into: &mut AlignedBuf, len: usize, offset: u64) -> io::Result<()>;
}

/// Asserts that an operation is aligned and fits its buffer.
fn check_aligned(op: &Op) {
    let block = BLOCK_BYTES as u64;
    match op {
        Op::Write { buffer, len, offset, .. } => {
            assert!(
                *len > 0 && *len <= buffer.len(),
                "write of {len} B from a buffer of {}",
                buffer.len()
            );
            assert!(
                len.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(block),
                "write of {len} B at {offset}"
            );
        }
        Op::Read { buffer, len, wanted, offset } => {
            assert!(
                *len > 0 && *len <= buffer.len(),
                "read of {len} B into a buffer of {}",
                buffer.len()
            );
            assert!((1..=*len).contains(wanted), "read of {len} B, of which {wanted} are wanted");
            assert!(
                len.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(block),
                "read of {len} B at {offset}"
            );
        }
        Op::Sync => {}
        Op::Release { offset } => assert!(offset.is_multiple_of(block), "release from {offset}"),
        Op::Reserve { offset, len } => {
            assert!(
                *len > 0 && offset.is_multiple_of(block) && len.is_multiple_of(block),
                "reserve {len} B at {offset}"
            );
        }
    }
}
