//! A range of a file, read ahead and in order, in blocks that are groups (or parts of some, at the
//! range's ends).
//!
//! What the page cache has is taken from there. What it has not is read past it, several blocks at
//! a time, so that a file larger than memory pushes nobody else's pages out; where the filesystem
//! knows no such reads, pages are given back behind us.

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

/// Blocks that are read at a time. A source holds one more, which is lent: 5 MiB at most.
pub const DEPTH: usize = 4;

/// Up to this many bytes a range is read through the page cache: a ring is not worth its making.
pub const SMALL: u64 = 256 << 10;

/// Bytes between two looks whether the page cache has a block: it reads and evicts by larger parts,
/// mostly.
const LOOK: usize = 128 << 10;

/// What `statfs` calls filesystems that have no other place than memory: tmpfs and ramfs.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// Bytes of a block.
#[expect(clippy::cast_possible_truncation, reason = "1 MiB")]
const BLOCK: usize = GROUP_BYTES as usize;

/// Why a range cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file ends before the range does: it was cut meanwhile.
    #[error("{}: no byte {at} any more: the file was cut while it was read; begin again", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// A byte that was promised, counted from 0: the last of a block.
        at: u64,
    },
    /// The operating system's error.
    #[error("cannot read {} at byte {at}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Where a block begins, counted from 0.
        at: u64,
        /// What it said.
        source: io::Error,
    },
}

/// Reads a range of a file, in order.
pub struct Source {
    path: PathBuf,
    /// Goes through the page cache.
    file: File,
    /// What was not lent yet.
    left: Range<u64>,
    /// What was lent last.
    buffer: AlignedBuf,
    /// Whether the filesystem is in memory: it is all page cache.
    in_memory: bool,
    /// Whether the filesystem can say that the page cache has something.
    tells_cached: bool,
    /// Made when the page cache lacks something.
    ahead: Option<Ahead>,
}

/// What comes next of a range.
#[derive(Debug, Eq, PartialEq)]
pub enum Piece<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// The page cache has these bytes of the file: they can be sent from there.
    Cached(Range<u64>),
}

impl Piece<'_> {
    /// Bytes of it; there is no piece of none.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Cached(range) => range.end - range.start,
        }
    }
}

/// Reads under way.
struct Ahead {
    disk: FileDisk,
    /// Blocks in order; the first is the next to be lent.
    blocks: VecDeque<Block>,
    /// The ticket of the first.
    first: u64,
    /// Where the block after the last begins.
    next: u64,
    spare: Vec<AlignedBuf>,
}

struct Block {
    bytes: Range<u64>,
    done: Option<(io::Result<()>, AlignedBuf)>,
}

impl Source {
    /// Reads `range` of `file`, which is open for reading, without `O_DIRECT`. `path` is for
    /// messages.
    #[must_use]
    pub fn new(file: File, path: &Path, range: Range<u64>) -> Self {
        let buffer = AlignedBuf::zeroed(0);
        let in_memory =
            rustix::fs::fstatfs(&file).is_ok_and(|told| IN_MEMORY.contains(&told.f_type));
        Self {
            path: path.to_owned(),
            file,
            left: range,
            buffer,
            in_memory,
            tells_cached: true,
            ahead: None,
        }
    }

    /// The part of the range that was not lent yet.
    #[must_use]
    pub fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// The next bytes: to the end of their group, or of the range. `None` at its end.
    ///
    /// # Errors
    /// [`SourceError`]; nothing can be read after it.
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

    /// The same for who needs no bytes of what the page cache has.
    ///
    /// # Errors
    /// As of [`next_block`](Self::next_block).
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

    /// Whether the page cache has a block, as far as a look here and there tells: what is missed
    /// costs time, no more.
    fn has_cached(&mut self, bytes: &Range<u64>) -> bool {
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.blocks.is_empty()) {
            return false;
        }
        if self.is_always_cached() {
            return true;
        }
        let mut looks = (bytes.start..bytes.end).step_by(LOOK).chain([bytes.end - 1]);
        self.tells_cached && looks.all(|at| read_cached(&self.file, &mut [0], at) == Ok(1))
    }

    /// Whether the range is read through the page cache in any case.
    fn is_always_cached(&self) -> bool {
        self.in_memory || (self.ahead.is_none() && self.left.end - self.left.start <= SMALL)
    }

    /// Takes a block from the page cache: all of it, or false. Small ranges are always there.
    fn take_cached(&mut self, bytes: &Range<u64>) -> Result<bool, SourceError> {
        let length = length(bytes);
        let always = self.is_always_cached();
        if !always && !self.tells_cached {
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
                self.tells_cached = false;
                Ok(false)
            }
        }
    }

    /// Takes a block from the device, and keeps others coming; gives where in the buffer it begins.
    fn take_read(&mut self, bytes: &Range<u64>) -> Result<usize, SourceError> {
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            none => none.insert(Ahead::new(&self.file, &self.path).map_err(|source| {
                SourceError::Io { path: self.path.clone(), at: bytes.start, source }
            })?),
        };
        // The buffer that was lent last is free again.
        let lent = std::mem::replace(&mut self.buffer, AlignedBuf::zeroed(0));
        if lent.len() >= BLOCK {
            ahead.spare.push(lent);
        }
        match ahead.take(bytes, self.left.end) {
            Ok(buffer) => self.buffer = buffer,
            Err(error) => return Err(self.failed(bytes, error)),
        }
        if ahead.disk.access() == Access::Cached {
            // Advice: a filesystem that cannot follow it has no use for it either.
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
    /// For `file`, opened once more: direct I/O is for a whole open file, and the page cache is
    /// asked through the other.
    fn new(file: &File, path: &Path) -> io::Result<Self> {
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let disk = match rustix::fs::open(again, flags, Mode::empty()) {
            Ok(own) => FileDisk::for_reading(own.into(), path, Access::Direct),
            Err(_) => FileDisk::for_reading(file.try_clone()?, path, Access::Cached),
        };
        Ok(Self { disk, blocks: VecDeque::new(), first: 0, next: 0, spare: Vec::new() })
    }

    /// Waits for the block of `bytes`, which is the next one, in a range that ends at `end`.
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

/// The block that begins at `start`, in a range that ends at `end`.
fn block_at(start: u64, end: u64) -> Range<u64> {
    start..end.min((start / GROUP_BYTES + 1) * GROUP_BYTES)
}

fn length(block: &Range<u64>) -> usize {
    usize::try_from(block.end - block.start).expect("a block fits memory")
}

/// Bytes between the aligned place before `at` and `at`.
fn remainder(at: u64) -> usize {
    usize::try_from(at % BLOCK_BYTES as u64).expect("within a block")
}

/// Reads what the page cache has at once, and never waits for a device.
fn read_cached(file: &File, into: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT)
}
