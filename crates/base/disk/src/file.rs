//! Disks in real files.

use crate::ring::Ring;
use crate::{AlignedBuf, BLOCK_BYTES, Completion, Disk, MAX_IN_FLIGHT, Op, ReadAt, check_aligned};
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// How a disk transfers the file's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Between our memory and the device (`O_DIRECT`), if the filesystem supports it. This is the
    /// fastest way to a durable write.
    Direct,
    /// Through the kernel's page cache. A write that is not durable completes when the kernel has
    /// the bytes; a durable one completes when the device has them.
    Cached,
}

/// Why a file could not be opened as a disk.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file is already locked, by this process or another, or it was removed or renamed during
    /// each attempt to lock it.
    #[error(
        "{} is in use by another server; stop that one or choose another data directory",
        .0.display()
    )]
    Locked(PathBuf),
    /// The file cannot be opened, checked or locked, or its directory cannot be synced.
    #[error("cannot open {}: {source}", path.display())]
    Io {
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// How often [`open_locked`] tries to open and lock a file. An attempt fails if the file was
/// removed or renamed before it was locked.
const MAX_ATTEMPTS: usize = 16;

/// Opens the file at `path` for reading and writing, creates it if there is none, and locks it
/// until it is closed. `more` are additional flags.
///
/// # Errors
/// `WOULDBLOCK` if the file is already locked, by this process or another, or if it was removed or
/// renamed during all 16 attempts. Otherwise the error of opening, locking or checking it.
pub fn open_locked(path: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more;
    for _ in 0..MAX_ATTEMPTS {
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        if is_named(&file, rustix::fs::CWD, path)? {
            return Ok(File::from(file));
        }
    }
    Err(Errno::WOULDBLOCK)
}

/// Returns whether the open file is the one with that name in `folder`. A file that was opened and
/// then locked may have lost its name: the previous holder of the lock may have removed or renamed
/// the file in between, and data written to a file without a name is lost.
///
/// # Errors
/// The system cannot stat the file or the name. A missing name is no error; then the result is
/// false.
pub fn is_named(
    file: impl AsFd,
    folder: impl AsFd,
    name: impl rustix::path::Arg,
) -> Result<bool, Errno> {
    let open = rustix::fs::fstat(file)?;
    match rustix::fs::statat(folder, name, AtFlags::empty()) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A [`Disk`] in a file. [`open`](Self::open) locks the file until the disk and its readers are
/// dropped; [`for_reading`](Self::for_reading) does not lock it.
///
/// With [`Access::Direct`], `open` picks the fastest way to durable writes that the system offers.
/// [`describe`](Self::describe) says which way that is.
pub struct FileDisk {
    path: PathBuf,
    file: Arc<File>,
    engine: Engine,
    access: Access,
    description: String,
}

enum Engine {
    Ring(Box<Ring>),
    /// Used where the kernel refuses an io_uring, and in tests: every operation blocks its
    /// submitter.
    Blocking(VecDeque<Completion>),
}

impl Engine {
    /// Starts the best engine available, and returns it with its name.
    fn start(file: &File, separate_sync: bool) -> (Self, String) {
        match file.try_clone().and_then(|file| Ring::new(file, separate_sync)) {
            Ok(ring) => (Self::Ring(Box::new(ring)), "io_uring".to_owned()),
            Err(error) => {
                (Self::Blocking(VecDeque::new()), format!("blocking calls (no io_uring: {error})"))
            }
        }
    }
}

impl FileDisk {
    /// Opens `path` and locks it. Creates it empty if there is none, and makes its name durable in
    /// its directory. The disk works without those features of [`Access::Direct`] that are missing;
    /// see [`describe`](Self::describe).
    ///
    /// # Errors
    /// [`OpenError::Locked`] if the file is already locked, by this process or another, or was
    /// removed or renamed during each attempt to lock it. [`OpenError::Io`] if the file cannot be
    /// opened, checked or locked, or its directory cannot be synced.
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        let failed = |errno: Errno| OpenError::Io { path: path.to_owned(), source: errno.into() };
        let file = open_locked(path, OFlags::empty()).map_err(|errno| match errno {
            Errno::WOULDBLOCK => OpenError::Locked(path.to_owned()),
            errno => failed(errno),
        })?;
        sync_directory(path).map_err(failed)?;
        let refusal = match access {
            Access::Direct => go_direct(&file).err(),
            Access::Cached => Some("cached on request".to_owned()),
        };
        let durable = access == Access::Direct;
        let separate_sync = durable && (refusal.is_some() || !has_fua(&file));
        let (engine, engine_name) = Engine::start(&file, separate_sync);
        let description = match (&refusal, separate_sync) {
            (None, false) => format!("{engine_name}, O_DIRECT, RWF_DSYNC"),
            (None, true) => {
                format!("{engine_name}, O_DIRECT, fdatasync (the device has no forced unit access)")
            }
            (Some(why), true) => {
                format!("{engine_name}, page cache and fdatasync (no O_DIRECT: {why})")
            }
            (Some(why), false) => format!("{engine_name}, page cache ({why})"),
        };
        let access = if refusal.is_none() { Access::Direct } else { Access::Cached };
        Ok(Self { path: path.to_owned(), file: Arc::new(file), engine, access, description })
    }

    /// Wraps a file that is open for reading, without a lock: others may change it in the meantime.
    /// `path` is for messages. The disk works without those features of [`Access::Direct`] that are
    /// missing; see [`describe`](Self::describe). If others share the file description, direct I/O
    /// applies to them too.
    #[must_use]
    pub fn for_reading(file: File, path: &Path, access: Access) -> Self {
        let refusal = match access {
            Access::Direct => go_direct(&file).err(),
            Access::Cached => Some("cached on request".to_owned()),
        };
        let (engine, engine_name) = Engine::start(&file, false);
        let (access, description) = match refusal {
            None => (Access::Direct, format!("{engine_name}, O_DIRECT")),
            Some(why) => (Access::Cached, format!("{engine_name}, page cache ({why})")),
        };
        Self { path: path.to_owned(), file: Arc::new(file), engine, access, description }
    }

    /// Returns how the file's bytes are transferred: cached if direct I/O was requested but is
    /// missing.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Describes for the log how bytes reach the device: the engine, the missing features, and why
    /// they are missing.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// Uses blocking calls from now on, as on a system that forbids io_uring. For tests.
    ///
    /// # Panics
    /// If an outcome waits to be polled. No operation may be in flight.
    pub fn without_ring(&mut self) {
        assert!(self.poll().is_none(), "nothing under way");
        self.engine = Engine::Blocking(VecDeque::new());
        "blocking calls (on request)".clone_into(&mut self.description);
    }
}

/// For operations on the file itself: its length, name and attributes. Bytes go through [`Disk`].
impl AsFd for FileDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes the file's name durable in its directory.
fn sync_directory(path: &Path) -> rustix::io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = rustix::fs::open(
        parent,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::fs::fsync(&directory)
}

/// Switches the file to direct I/O; returns the reason if that is impossible.
fn go_direct(file: impl AsFd) -> Result<(), String> {
    if let Ok(stat) = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (memory, offset) =
            (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize);
        if memory == 0 || offset == 0 {
            return Err("the filesystem has none".to_owned());
        }
        if !BLOCK_BYTES.is_multiple_of(memory) || !BLOCK_BYTES.is_multiple_of(offset) {
            return Err(format!("the device requires blocks of {offset} B"));
        }
    }
    let flags = rustix::fs::fcntl_getfl(&file).map_err(|errno| errno.to_string())?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).map_err(|errno| errno.to_string())
}

/// Returns whether the file's device can make a single write durable: it supports forced unit
/// access, or has no volatile cache.
///
/// On any other device the kernel flushes the cache after each write with `RWF_DSYNC`. The flush
/// starts from a work queue bound to the core that the device interrupts. While a thread computes
/// on that core, a commit takes 4 ms instead of 45 us, because the flush waits for the scheduler's
/// next tick. A separate sync can start on any free core, and takes 55 us.
fn has_fua(file: &File) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let device = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev)
    );
    // A partition has no queue of its own; its disk has one.
    let says = |name: &str, word: &str| {
        ["queue", "../queue"]
            .iter()
            .filter_map(|queue| std::fs::read_to_string(format!("{device}/{queue}/{name}")).ok())
            .any(|text| text.trim() == word)
    };
    says("fua", "1") || says("write_cache", "write through")
}

/// Performs `op` with blocking calls.
fn block_on(file: &File, op: &mut Op) -> io::Result<()> {
    match op {
        Op::Write { buffer, len, offset, durable } => {
            let flags = if *durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let mut done = 0;
            while done < *len {
                let slice = [IoSlice::new(&buffer[done..*len])];
                match rustix::io::pwritev2(file, &slice, *offset + done as u64, flags) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(())
        }
        Op::Read { buffer, len, wanted, offset } => {
            let mut done = 0;
            while done < *wanted {
                // Direct I/O transfers whole blocks. If a read ended within a block, the next read
                // starts again at that block.
                let from = done / BLOCK_BYTES * BLOCK_BYTES;
                match rustix::io::pread(file, &mut buffer[from..*len], *offset + from as u64) {
                    Ok(count) if from + count <= done => {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    Ok(count) => done = from + count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(())
        }
        Op::Sync => Ok(rustix::fs::fdatasync(file)?),
        Op::Release { offset } => release(file, *offset),
        Op::Reserve { offset, len } => reserved(
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, *offset, *len)
                .map_err(io::Error::from),
        ),
    }
}

/// Truncates the file to `offset` if it is longer. If it is not longer, this frees the blocks
/// reserved beyond its end, because ext4 and XFS free them when a file is truncated to its present
/// size.
pub(crate) fn release(file: &File, offset: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    file.set_len(size.min(offset))
}

/// Returns the outcome of a reservation. An unsupported call counts as a success, because the
/// zeroes that are written next reserve the space.
fn reserved(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        other => other,
    }
}

impl Disk for FileDisk {
    type Reader = FileReader;

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn submit(&mut self, ticket: u64, mut op: Op) {
        check_aligned(&op);
        match &mut self.engine {
            Engine::Ring(ring) => ring.submit(ticket, op),
            Engine::Blocking(done) => {
                assert!(done.len() < MAX_IN_FLIGHT, "the caller counts");
                let result = block_on(&self.file, &mut op);
                done.push_back(complete(ticket, op, result));
            }
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        match &mut self.engine {
            Engine::Ring(ring) => {
                let (ticket, op, result) = ring.poll()?;
                Some(complete(ticket, op, result))
            }
            Engine::Blocking(done) => done.pop_front(),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        match &mut self.engine {
            Engine::Ring(ring) => ring.wait(),
            Engine::Blocking(_) => Ok(()),
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.engine {
            Engine::Ring(ring) => Some(ring.poll_fd()),
            Engine::Blocking(_) => None,
        }
    }

    fn reader(&self) -> FileReader {
        FileReader { file: self.file.clone() }
    }
}

fn complete(ticket: u64, op: Op, result: io::Result<()>) -> Completion {
    match op {
        Op::Write { buffer, .. } | Op::Read { buffer, .. } => {
            Completion { ticket, result, buffer: Some(buffer) }
        }
        Op::Sync | Op::Release { .. } => Completion { ticket, result, buffer: None },
        Op::Reserve { .. } => Completion { ticket, result: reserved(result), buffer: None },
    }
}

/// Reads a [`FileDisk`].
#[derive(Clone, Debug)]
pub struct FileReader {
    file: Arc<File>,
}

impl ReadAt for FileReader {
    fn read_at(&self, into: &mut AlignedBuf, len: usize, offset: u64) -> io::Result<()> {
        assert!(
            len.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64),
            "{len} B at {offset}"
        );
        self.file.read_exact_at(&mut into[..len], offset)
    }
}
