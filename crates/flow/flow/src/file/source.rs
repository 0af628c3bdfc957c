//! Reads a range of a file in order, in blocks that are groups (or parts of one at the range's
//! ends).
//!
//! Blocks in the page cache are taken from there. Others are read past it, several at a time, so
//! that a file larger than memory does not evict other programs' pages; on a filesystem without
//! direct reads, pages are dropped after use.

use crate::group::GROUP_BYTES;
use rustix::fs::{Advice, FsWord, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use sprat_disk::{Access, AlignedBuf, BLOCK_BYTES, Disk as _, FileDisk, Op};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Blocks that are read ahead. With the one its caller uses, a source holds 5 MiB at most.
pub const DEPTH: usize = 4;

/// Ranges of up to this many bytes are read through the page cache: an io_uring is not worth
/// creating.
pub const SMALL: u64 = 256 << 10;

/// Bytes between two probes of whether a block is in the page cache, which mostly reads and evicts
/// larger units.
const PROBE_BYTES: usize = 128 << 10;

/// Filesystem types without a device: tmpfs and ramfs.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// Bytes of a block.
#[expect(clippy::cast_possible_truncation, reason = "1 MiB")]
const BLOCK: usize = GROUP_BYTES as usize;

/// Why a range cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file ends before the range does: it was truncated meanwhile.
    #[error(
        "{}: byte {at} is missing: the file was truncated while it was read; start again",
        path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Offset of a byte that is missing: the last of a block.
        at: u64,
    },
    /// The operating system's error.
    #[error("cannot read {} at byte {at}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Offset of the block.
        at: u64,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Reads a range of a file in order.
///
/// [`Source::next_block`] returns the next block, which it keeps until the next call.
/// [`Source::next_piece`] instead names a block that is in the page cache, for a caller that sends
/// it from there by `sendfile`. The source does its I/O on the caller's thread, which it blocks
/// until the block is there; reads ahead go on in the kernel meanwhile.
pub struct Source {
    path: PathBuf,
    /// Reads through the page cache.
    file: File,
    /// The range that was not returned yet.
    left: Range<u64>,
    /// The block that was returned last.
    buffer: AlignedBuf,
    /// Whether the filesystem is in memory, and so always cached.
    in_memory: bool,
    /// Whether the filesystem supports reads from the page cache only (`RWF_NOWAIT`).
    supports_nowait: bool,
    /// Made when a block is not in the page cache.
    ahead: Option<Ahead>,
}

/// The next piece of a range.
#[derive(Debug, Eq, PartialEq)]
pub enum Piece<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// The offsets of bytes that are in the page cache.
    Cached(Range<u64>),
}

impl Piece<'_> {
    /// Returns its length in bytes; no piece is empty.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Cached(range) => range.end - range.start,
        }
    }
}

/// Reads in progress.
struct Ahead {
    disk: FileDisk,
    /// Blocks in order; the first is the next to be returned.
    blocks: VecDeque<Block>,
    /// Ticket of the first block.
    first: u64,
    /// Offset of the block after the last.
    next: u64,
    spare: Vec<AlignedBuf>,
}

struct Block {
    bytes: Range<u64>,
    done: Option<(io::Result<()>, AlignedBuf)>,
}

impl Source {
    /// Reads `range` of `file`, which is open for reading without `O_DIRECT`. `path` is for
    /// messages.
    #[must_use]
    pub fn new(file: File, path: &Path, range: Range<u64>) -> Self {
        let buffer = AlignedBuf::zeroed(0);
        let in_memory =
            rustix::fs::fstatfs(&file).is_ok_and(|stat| IN_MEMORY.contains(&stat.f_type));
        Self {
            path: path.to_owned(),
            file,
            left: range,
            buffer,
            in_memory,
            supports_nowait: true,
            ahead: None,
        }
    }

    /// Returns the range that was not returned yet.
    #[must_use]
    pub fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// Returns the bytes up to the end of their group, or of the range; `None` at the end of the
    /// range.
    /// # Errors
    /// [`SourceError::Short`] if the file was truncated; [`SourceError::Io`] if it cannot be read.
    /// Nothing more can be read after an error.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, SourceError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let bytes = block_at(self.left.start, self.left.end);
        let idle = self.ahead.as_ref().is_none_or(|ahead| ahead.blocks.is_empty());
        let start = match idle && self.take_cached(&bytes)? {
            true => 0,
            false => self.take_read(&bytes)?,
        };
        let end = start + length(&bytes);
        self.left.start = bytes.end;
        Ok(Some(&self.buffer[start..end]))
    }

    /// Returns the next block as [`Source::next_block`] does, or only its offsets if it is in the
    /// page cache.
    /// # Errors
    /// As for [`next_block`](Self::next_block).
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, SourceError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let bytes = block_at(self.left.start, self.left.end);
        if self.has_cached(&bytes) {
            self.left.start = bytes.end;
            return Ok(Some(Piece::Cached(bytes)));
        }
        Ok(self.next_block()?.map(Piece::Bytes))
    }

    /// Returns whether a block is in the page cache, judged by samples: a wrong guess only costs
    /// time.
    fn has_cached(&mut self, bytes: &Range<u64>) -> bool {
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.blocks.is_empty()) {
            return false;
        }
        if self.is_always_cached() {
            return true;
        }
        let mut looks = (bytes.start..bytes.end).step_by(PROBE_BYTES).chain([bytes.end - 1]);
        self.supports_nowait && looks.all(|at| read_cached(&self.file, &mut [0], at) == Ok(1))
    }

    /// Returns whether the range is always read through the page cache.
    fn is_always_cached(&self) -> bool {
        self.in_memory || (self.ahead.is_none() && self.left.end - self.left.start <= SMALL)
    }

    /// Reads a whole block from the page cache, or returns false. Small ranges are always read.
    fn take_cached(&mut self, bytes: &Range<u64>) -> Result<bool, SourceError> {
        let length = length(bytes);
        let always = self.is_always_cached();
        if !always && !self.supports_nowait {
            return Ok(false);
        }
        self.buffer.grow(length);
        if always {
            return match self.file.read_exact_at(&mut self.buffer[..length], bytes.start) {
                Ok(()) => Ok(true),
                Err(error) => Err(self.failed(bytes, error)),
            };
        }
        match read_cached(&self.file, &mut self.buffer[..length], bytes.start) {
            Ok(count) => Ok(count == length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => {
                self.supports_nowait = false;
                Ok(false)
            }
        }
    }

    /// Reads a block from the device, and keeps reads ahead in progress. Returns the offset of the
    /// block in the buffer.
    fn take_read(&mut self, bytes: &Range<u64>) -> Result<usize, SourceError> {
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            none => none.insert(Ahead::new(&self.file, &self.path).map_err(|source| {
                SourceError::Io { path: self.path.clone(), at: bytes.start, source }
            })?),
        };
        // The caller no longer uses the last block's buffer.
        let lent = std::mem::replace(&mut self.buffer, AlignedBuf::zeroed(0));
        if lent.len() >= BLOCK {
            ahead.spare.push(lent);
        }
        match ahead.take(bytes, self.left.end) {
            Ok(buffer) => self.buffer = buffer,
            Err(error) => return Err(self.failed(bytes, error)),
        }
        if ahead.disk.access() == Access::Cached {
            // Only advice: a filesystem that does not support it has no cache to empty.
            let _ = rustix::fs::fadvise(
                &self.file,
                bytes.start,
                NonZeroU64::new(bytes.end - bytes.start),
                Advice::DontNeed,
            );
        }
        Ok(remainder(bytes.start))
    }

    fn failed(&self, bytes: &Range<u64>, source: io::Error) -> SourceError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => SourceError::Short { path, at: bytes.end - 1 },
            _ => SourceError::Io { path, at: bytes.start, source },
        }
    }
}

impl Ahead {
    /// Reads `file`, opened again: `O_DIRECT` applies to an open file, and the page cache is probed
    /// through the other.
    fn new(file: &File, path: &Path) -> io::Result<Self> {
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let disk = match rustix::fs::open(again, flags, Mode::empty()) {
            Ok(own) => FileDisk::for_reading(own.into(), path, Access::Direct),
            Err(_) => FileDisk::for_reading(file.try_clone()?, path, Access::Cached),
        };
        Ok(Self { disk, blocks: VecDeque::new(), first: 0, next: 0, spare: Vec::new() })
    }

    /// Waits for the next block, `bytes`, of a range that ends at `end`.
    fn take(&mut self, bytes: &Range<u64>, end: u64) -> io::Result<AlignedBuf> {
        if self.blocks.is_empty() {
            self.next = bytes.start;
        }
        while self.blocks.len() < DEPTH && self.next < end {
            self.begin(block_at(self.next, end));
        }
        loop {
            while let Some(completion) = self.disk.poll() {
                let index =
                    usize::try_from(completion.ticket - self.first).expect("within the depth");
                let buffer = completion.buffer.expect("reads bring theirs back");
                self.blocks[index].done = Some((completion.result, buffer));
            }
            let front = self.blocks.front_mut().expect("just begun");
            debug_assert_eq!(front.bytes, *bytes, "blocks are lent in order");
            if let Some((result, buffer)) = front.done.take() {
                self.blocks.pop_front();
                self.first += 1;
                return result.map(|()| buffer);
            }
            self.disk.wait()?;
        }
    }

    fn begin(&mut self, bytes: Range<u64>) {
        let start = remainder(bytes.start);
        let wanted = start + length(&bytes);
        let len = wanted.next_multiple_of(BLOCK_BYTES);
        let buffer = self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(BLOCK));
        let ticket = self.first + self.blocks.len() as u64;
        self.disk
            .submit(ticket, Op::Read { buffer, len, wanted, offset: bytes.start - start as u64 });
        self.next = bytes.end;
        self.blocks.push_back(Block { bytes, done: None });
    }
}

/// Returns the block that begins at `start`, in a range that ends at `end`.
fn block_at(start: u64, end: u64) -> Range<u64> {
    start..end.min((start / GROUP_BYTES + 1) * GROUP_BYTES)
}

fn length(block: &Range<u64>) -> usize {
    usize::try_from(block.end - block.start).expect("a block fits memory")
}

/// Returns the distance of `at` from the aligned offset before it.
fn remainder(at: u64) -> usize {
    usize::try_from(at % BLOCK_BYTES as u64).expect("within a block")
}

/// Reads from the page cache only, without waiting for a device.
fn read_cached(file: &File, into: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT)
}
