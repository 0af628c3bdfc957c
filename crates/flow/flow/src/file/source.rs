//! Reads a range of a file in order, in blocks. A block is a group, or a part of a group at an end
//! of the range.
//!
//! Blocks in the page cache are copied from it. Other blocks are read past the page cache, several
//! at a time, so that a file larger than memory does not evict the pages of other programs. On a
//! filesystem without direct reads, pages are dropped after use.

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

/// Number of blocks that are read ahead. With the block that the caller uses, a source holds at
/// most 5 MiB.
pub const DEPTH: usize = 4;

/// Ranges of up to this many bytes are read through the page cache, because an io_uring would cost
/// more than it saves.
pub const SMALL: u64 = 256 << 10;

/// Number of bytes between two probes of whether a block is in the page cache. The page cache
/// usually reads and evicts larger units.
const PROBE_BYTES: usize = 128 << 10;

/// Filesystem types without a device: tmpfs and ramfs.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// Length of a block, in bytes.
#[expect(clippy::cast_possible_truncation, reason = "1 MiB")]
const BLOCK: usize = GROUP_BYTES as usize;

/// Why a range cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file ends before the end of the range, because it was truncated meanwhile.
    #[error(
        "{}: byte {at} is missing: the file was truncated while it was read; start again",
        path.display()
    )]
    Short {
        /// The file's path.
        path: PathBuf,
        /// Offset of a missing byte: the last byte of the block that was to be read.
        at: u64,
    },
    /// A block of the file cannot be read.
    #[error("cannot read {} at byte {at}: {source}", path.display())]
    Io {
        /// The file's path.
        path: PathBuf,
        /// Offset of the block that cannot be read, in bytes.
        at: u64,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Reads a range of a file in order.
///
/// [`Source::next_block`] returns the next block, which stays valid until the next call. For a
/// block in the page cache, [`Source::next_piece`] returns only its offsets, for a caller that
/// sends it by `sendfile`. The source does its I/O on the caller's thread, and blocks the thread
/// until the block has been read. The kernel continues to read ahead between calls.
pub struct Source {
    path: PathBuf,
    /// Reads through the page cache.
    file: File,
    /// The part of the range that was not returned yet.
    left: Range<u64>,
    /// The block that was returned last.
    buffer: AlignedBuf,
    /// Whether the filesystem is in memory, so that every block is cached.
    in_memory: bool,
    /// Whether the filesystem supports reads from the page cache only (`RWF_NOWAIT`).
    supports_nowait: bool,
    /// The reads ahead. Created when a block is not in the page cache.
    ahead: Option<Ahead>,
}

/// The next piece of a range.
#[derive(Debug, Eq, PartialEq)]
pub enum Piece<'a> {
    /// The bytes of the piece.
    Bytes(&'a [u8]),
    /// The offsets of bytes that are in the page cache.
    Cached(Range<u64>),
}

impl Piece<'_> {
    /// Returns the length of the piece, in bytes. No piece is empty.
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
    /// The blocks being read, in order. The first block is returned next.
    blocks: VecDeque<Block>,
    /// Ticket of the first block.
    first: u64,
    /// Offset of the next block to begin to read.
    next: u64,
    spare: Vec<AlignedBuf>,
}

struct Block {
    bytes: Range<u64>,
    done: Option<(io::Result<()>, AlignedBuf)>,
}

impl Source {
    /// Creates a source for `range` of `file`, which must be open for reading without `O_DIRECT`.
    /// `path` is for messages.
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

    /// Returns the part of the range that was not returned yet.
    #[must_use]
    pub fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// Returns the next bytes, up to the end of their group or of the range. `None` at the end of
    /// the range.
    /// # Errors
    /// [`SourceError::Short`] if the file was truncated. [`SourceError::Io`] if it cannot be read.
    /// After an error the source cannot be used any more.
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
    /// The errors of [`next_block`](Self::next_block).
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

    /// Returns whether a block is probably in the page cache. Checks only samples, because a wrong
    /// result only costs time.
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

    /// Reads a block from the page cache. Returns false if not all of the block is in the cache, or
    /// if the filesystem cannot tell. A small range is always read through the cache.
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

    /// Reads a block from the device, and begins further reads ahead. Returns the offset of the
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
            // The call is only advice. A filesystem that does not support it has no cache to empty.
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
    /// Opens `file` again to read ahead. `O_DIRECT` applies to all users of an open file, and
    /// `file` itself must still read through the page cache.
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
