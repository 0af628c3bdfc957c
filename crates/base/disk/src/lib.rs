//! Durable writes, and reads ahead: aligned buffers, io_uring, and the trait the simulator stands
//! in for.
//!
//! A [`Disk`] is one file, owned by one thread, which takes a bounded number of operations, never
//! blocks on them but in [`Disk::wait`], and tells their outcome through [`Disk::poll`].
//! - [`FileDisk`]: a real file: io_uring, `O_DIRECT` and `RWF_DSYNC` where the filesystem takes
//!   them.
//! - [`MemDisk`]: a file in memory that keeps, loses, tears and refuses writes as its seed and its
//!   test say, in the caller's virtual time.
//!
//! Buffers are owned: [`AlignedBuf`] goes in with the operation and comes back with the
//! [`Completion`]. Whoever submits keeps operations on overlapping ranges from being under way
//! together.

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

/// Most operations under way on one disk.
pub const MAX_IN_FLIGHT: usize = 64;

/// An operation on a disk. Offsets and lengths are multiples of [`BLOCK_BYTES`].
#[derive(Debug)]
pub enum Op {
    /// Writes the first `len` bytes of `buffer` at `offset`, growing the file when they end behind
    /// it.
    Write {
        /// The bytes; comes back with the completion.
        buffer: AlignedBuf,
        /// Bytes of `buffer` to write, more than zero.
        len: usize,
        /// Where in the file, bytes.
        offset: u64,
        /// Whether completion means that the bytes survive a power failure (`O_DSYNC`), or only
        /// that the kernel has them and they survive this process.
        durable: bool,
    },
    /// Reads from `offset` into the first `len` bytes of `buffer`, of which `wanted` must be there.
    /// The file may end behind those, in the middle of a block, and what follows in the buffer
    /// then means nothing. A file that ends before them is `UnexpectedEof`.
    Read {
        /// Where the bytes go; comes back with the completion.
        buffer: AlignedBuf,
        /// Bytes of `buffer` to read, more than zero.
        len: usize,
        /// Bytes without which the read has failed: at most `len`, more than zero, of any
        /// alignment.
        wanted: usize,
        /// Where in the file, bytes.
        offset: u64,
    },
    /// Makes every write that completed before this was submitted durable, with the file's size
    /// (`fdatasync`).
    Sync,
    /// Sets disk space aside without changing the file's size, so that lack of it shows early.
    /// What has no such call takes it for done.
    Reserve {
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        len: u64,
    },
    /// Gives back all disk space behind `offset`, reserved or written: the file ends there at most.
    Release {
        /// Where the file ends, bytes.
        offset: u64,
    },
}

/// The outcome of an operation.
#[derive(Debug)]
pub struct Completion {
    /// What was passed to [`Disk::submit`].
    pub ticket: u64,
    /// Whether it was done. After an error any part of a write, or of a read, may have happened.
    pub result: io::Result<()>,
    /// The buffer of a write or a read.
    pub buffer: Option<AlignedBuf>,
}

/// One file of blocks, owned by one thread.
pub trait Disk {
    /// What reads the file, also from other threads.
    type Reader: ReadAt;

    /// The file's name, for messages.
    fn name(&self) -> String;

    /// Size of the file, bytes.
    ///
    /// # Errors
    /// When the file cannot be asked.
    fn size(&self) -> io::Result<u64>;

    /// Begins `op`. Outcomes may come in any order.
    ///
    /// # Panics
    /// When [`MAX_IN_FLIGHT`] operations are under way, or `op` is not aligned: the caller counts
    /// and aligns.
    fn submit(&mut self, ticket: u64, op: Op);

    /// The next outcome, if there is one. No system call when there is none.
    fn poll(&mut self) -> Option<Completion>;

    /// Blocks until [`poll`](Self::poll) has something to tell; returns at once when nothing is
    /// under way. For start and stop, not for the loop of a node.
    ///
    /// # Errors
    /// When waiting fails; the operations remain under way.
    fn wait(&mut self) -> io::Result<()>;

    /// A descriptor that polls readable when an outcome may have come; `None` if there is none, and
    /// then either outcomes come within `submit` or only time passes.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// A handle for reading. It sees what was written by completed operations.
    fn reader(&self) -> Self::Reader;
}

/// Reads from a disk, blocking, from any thread.
pub trait ReadAt: Clone + Send + Sync {
    /// Fills the first `len` bytes of `into` from `offset`, both multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// The device's, or `UnexpectedEof` when the file ends before the bytes do.
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
