//! Writes a file's groups wherever they belong, past the page cache, and knows which of them are
//! durable.
//!
//! Bytes go from the buffer they were received into to the device: `O_DIRECT` by io_uring, several
//! groups at a time. Where a filesystem takes no `O_DIRECT`, the page cache is emptied behind the
//! writer, for nobody is going to read from it. The space is set aside beforehand, and the length
//! with it: a write that makes a file longer waits in most filesystems.

use super::Attributes;
use crate::group::GROUP_BYTES;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use sprat_disk::{
    Access, AlignedBuf, BLOCK_BYTES, Completion, Disk, FileDisk, MAX_IN_FLIGHT, Op, OpenError,
    ReadAt,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Most groups in memory at a time, 1 MiB each: filled, written, or waiting for either.
pub const MAX_BUFFERS: usize = 48;
const _: () = assert!(MAX_BUFFERS < MAX_IN_FLIGHT, "a sync goes along with the writes");

/// Bytes between two syncs of a file that is written directly.
const SYNC_BYTES: u64 = 128 << 20;

/// The same through the page cache: what it holds at most of the file, twice.
const CACHED_SYNC_BYTES: u64 = 32 << 20;

/// Time between two syncs of a slow transfer.
const SYNC_TIME: Duration = Duration::from_secs(3);

/// The ticket of a sync. Writes have their group's number.
const SYNC: u64 = u64::MAX;

/// How long the writes of a process that was killed may go on, and how often it is looked whether
/// they have ended.
const LAST_WRITES: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);

const BUFFER_BYTES: usize = 1 << 20;
const _: () =
    assert!(BUFFER_BYTES as u64 == GROUP_BYTES && BUFFER_BYTES.is_multiple_of(BLOCK_BYTES));

/// Why a file cannot be written.
#[derive(Debug, Error)]
pub enum SinkError {
    /// Another transfer writes it.
    #[error("{}: another transfer writes this file; wait for it, or stop it", .0.display())]
    Busy(PathBuf),
    /// There is no room for it.
    #[error("{}: no space for {bytes} B; make room, or choose another place: {source}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// How long it would be.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SinkError {
    /// An error of the system with the file at `path`, which is to have so many bytes.
    pub(crate) fn at(path: &Path, bytes: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                Self::NoSpace { path, bytes, source }
            }
            _ => Self::Io { path, source },
        }
    }

    /// What the system said, if it said anything.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Busy(_) => io::ErrorKind::ResourceBusy,
            Self::NoSpace { .. } => io::ErrorKind::StorageFull,
            Self::Io { source, .. } => source.kind(),
        }
    }
}

/// Opens and locks a file. A process that was killed keeps its lock as long as its last writes are
/// under way.
fn open(path: &Path, access: Access) -> Result<FileDisk, OpenError> {
    let passes = |error: &OpenError| matches!(error, OpenError::Locked(_));
    sprat_host::retry(LAST_WRITES, LOOK, passes, || FileDisk::open(path, access))
}

/// A file that is being written, locked against other transfers.
pub struct Sink {
    path: PathBuf,
    /// None: what is written is thrown away.
    disk: Option<FileDisk>,
    /// The length that the file will have, if that is known.
    length: Option<u64>,
    direct: bool,
    /// Bytes between two syncs.
    sync_bytes: u64,
    /// Buffers that nobody uses.
    free: Vec<AlignedBuf>,
    /// Buffers there may still be.
    unmade: usize,
    /// Writes under way.
    writing: usize,
    /// Groups that the kernel has.
    written: Vec<u64>,
    /// Groups that the sync under way makes durable.
    syncing: Option<Vec<u64>>,
    /// Groups that are durable, and nobody was told.
    durable: Vec<u64>,
    last_sync: Instant,
    failed: Option<io::Error>,
}

impl Sink {
    /// Opens or creates the file at `path`, keeping what is in it, and sets space aside for all of
    /// `length` bytes. Gets along with `buffers` groups in memory, at most [`MAX_BUFFERS`].
    /// Direct access is done without where there is none.
    ///
    /// # Errors
    /// [`SinkError`]; a file that was made for nothing is removed.
    pub fn open(
        path: &Path,
        access: Access,
        length: Option<u64>,
        buffers: usize,
    ) -> Result<Self, SinkError> {
        let fresh = path.symlink_metadata().is_err();
        let disk = open(path, access).map_err(|error| match error {
            OpenError::Locked(path) => SinkError::Busy(path),
            OpenError::Io { path, source } => SinkError::at(&path, length.unwrap_or(0), source),
        })?;
        if let Some(bytes) = length
            && let Err(error) = reserve(&disk, bytes)
        {
            if fresh {
                let _ = std::fs::remove_file(path); // the error that matters is told
            }
            return Err(SinkError::at(path, bytes, error));
        }
        let direct = disk.access() == Access::Direct;
        let sync_bytes = if direct { SYNC_BYTES } else { CACHED_SYNC_BYTES };
        Ok(Self { direct, sync_bytes, disk: Some(disk), ..Self::nowhere(path, length, buffers) })
    }

    /// A sink that throws away what it is given: `/dev/null` without the calls.
    #[must_use]
    pub fn discard(path: &Path, length: Option<u64>, buffers: usize) -> Self {
        Self::nowhere(path, length, buffers)
    }

    fn nowhere(path: &Path, length: Option<u64>, buffers: usize) -> Self {
        Self {
            path: path.to_owned(),
            disk: None,
            length,
            direct: false,
            sync_bytes: CACHED_SYNC_BYTES,
            free: Vec::new(),
            unmade: buffers.clamp(1, MAX_BUFFERS),
            writing: 0,
            written: Vec::new(),
            syncing: None,
            durable: Vec::new(),
            last_sync: Instant::now(),
            failed: None,
        }
    }

    /// Begins a sync whenever so many bytes were written since the one before.
    pub fn sync_every(&mut self, bytes: u64) {
        self.sync_bytes = bytes;
    }

    /// How bytes reach the device.
    #[must_use]
    pub fn describe(&self) -> &str {
        self.disk.as_ref().map_or("thrown away", |disk| disk.describe())
    }

    /// A buffer for a group, when one is free; waits for the device if all are on their way to it.
    /// None: all are with other callers.
    ///
    /// # Errors
    /// A write failed, now or before.
    pub fn buffer(&mut self) -> Result<Option<AlignedBuf>, SinkError> {
        self.collect()?;
        loop {
            if let Some(buffer) = self.free.pop() {
                return Ok(Some(buffer));
            }
            if self.unmade > 0 {
                self.unmade -= 1;
                return Ok(Some(AlignedBuf::zeroed(BUFFER_BYTES)));
            }
            if self.writing == 0 {
                return Ok(None);
            }
            self.wait()?;
        }
    }

    /// Takes a buffer back unwritten.
    pub fn recycle(&mut self, buffer: AlignedBuf) {
        self.free.push(buffer);
    }

    /// Begins to write the first `len` bytes of `buffer` as group `group`. The same group is not
    /// written twice at a time.
    ///
    /// # Errors
    /// A write failed, now or before.
    ///
    /// # Panics
    /// When a group that is not the last is not whole.
    pub fn write(
        &mut self,
        group: u64,
        mut buffer: AlignedBuf,
        len: usize,
    ) -> Result<(), SinkError> {
        let offset = group * GROUP_BYTES;
        if let Some(length) = self.length {
            assert!(
                len as u64 == (length - offset).min(GROUP_BYTES),
                "group {group} of {length} B has not {len} B"
            );
        }
        let Some(disk) = &mut self.disk else {
            self.durable.push(group);
            self.free.push(buffer);
            return Ok(());
        };
        let padded = len.next_multiple_of(BLOCK_BYTES);
        buffer[len..padded].fill(0);
        disk.submit(group, Op::Write { buffer, len: padded, offset, durable: false });
        self.writing += 1;
        self.collect()?;
        if self.written.len() as u64 * GROUP_BYTES >= self.sync_bytes
            || self.last_sync.elapsed() >= SYNC_TIME
        {
            self.begin_sync();
        }
        Ok(())
    }

    /// Groups that have become durable since the last call.
    pub fn take_durable(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.durable)
    }

    /// Waits until everything that was written is durable.
    ///
    /// # Errors
    /// A write or a sync failed, now or before.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        loop {
            self.collect()?;
            if self.writing == 0 && self.syncing.is_none() {
                if self.written.is_empty() {
                    return Ok(());
                }
                self.begin_sync();
            }
            self.wait()?;
        }
    }

    /// Gives back the space of everything but these groups; the length stays. Where a filesystem
    /// cannot, it is kept.
    ///
    /// # Errors
    /// A write or a sync failed, now or before.
    pub fn release_all_but(&mut self, groups: impl Iterator<Item = u64>) -> Result<(), SinkError> {
        self.flush()?;
        let (Some(disk), Some(length)) = (&self.disk, self.length) else { return Ok(()) };
        let mut next = 0;
        for group in groups.chain([length.div_ceil(GROUP_BYTES)]) {
            let (from, to) = (next * GROUP_BYTES, (group * GROUP_BYTES).min(length));
            if from < to {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(disk, hole, from, to - from); // as above
            }
            next = group + 1;
        }
        Ok(())
    }

    /// Makes the file `length` bytes long, gives it its attributes, and makes everything durable.
    /// Gives why the attributes could not be had, where a filesystem has none: the file is
    /// right without them.
    ///
    /// # Errors
    /// A write or a sync failed, now or before.
    pub fn finish(
        &mut self,
        length: u64,
        attributes: &Attributes,
    ) -> Result<Option<io::Error>, SinkError> {
        self.flush()?;
        let Some(disk) = &self.disk else { return Ok(None) };
        let failed = |errno: Errno| SinkError::at(&self.path, length, errno.into());
        rustix::fs::ftruncate(disk, length).map_err(failed)?;
        let attributes = attributes.give(disk).err();
        rustix::fs::fsync(disk).map_err(failed)?;
        Ok(attributes)
    }

    /// Reads `len` bytes of a group back from the device.
    ///
    /// # Errors
    /// The device's, or the file is shorter.
    ///
    /// # Panics
    /// When the group is thrown away, or `len` is more than the buffer holds.
    pub fn read(&self, group: u64, buffer: &mut AlignedBuf, len: usize) -> Result<(), SinkError> {
        let disk = self.disk.as_ref().expect("a file that is kept");
        let read =
            disk.reader().read_at(buffer, len.next_multiple_of(BLOCK_BYTES), group * GROUP_BYTES);
        read.map_err(|error| SinkError::at(&self.path, 0, error))
    }

    /// Takes what the device has done.
    fn collect(&mut self) -> Result<(), SinkError> {
        while let Some(completion) = self.disk.as_mut().and_then(FileDisk::poll) {
            self.take(completion);
        }
        match &self.failed {
            // Said again to everyone who asks: the file is not going to be whole.
            Some(error) => Err(SinkError::at(&self.path, self.length.unwrap_or(0), copied(error))),
            None => Ok(()),
        }
    }

    fn take(&mut self, completion: Completion) {
        let group = completion.ticket;
        self.free.extend(completion.buffer);
        if group == SYNC {
            let groups = self.syncing.take().expect("a sync was under way");
            if completion.result.is_ok() {
                self.drop_behind(&groups);
                self.durable.extend(groups);
            }
        } else {
            self.writing -= 1;
            if completion.result.is_ok() {
                self.written.push(group);
            }
        }
        if let Err(error) = completion.result {
            self.failed.get_or_insert(error);
        }
    }

    fn wait(&mut self) -> Result<(), SinkError> {
        if let Some(disk) = &mut self.disk {
            disk.wait().map_err(|error| SinkError::at(&self.path, 0, error))?;
        }
        self.collect()
    }

    /// Begins to make durable what the kernel has, unless that is being done.
    fn begin_sync(&mut self) {
        let Some(disk) =
            self.disk.as_mut().filter(|_| self.syncing.is_none() && !self.written.is_empty())
        else {
            return;
        };
        disk.submit(SYNC, Op::Sync);
        self.syncing = Some(std::mem::take(&mut self.written));
        self.last_sync = Instant::now();
    }

    /// Takes groups that are durable out of the page cache.
    fn drop_behind(&self, groups: &[u64]) {
        let Some(disk) = self.disk.as_ref().filter(|_| !self.direct) else { return };
        for run in runs(groups) {
            let bytes = std::num::NonZeroU64::new((run.end - run.start) * GROUP_BYTES);
            // Advice: the file is right without it.
            let _ = rustix::fs::fadvise(disk, run.start * GROUP_BYTES, bytes, Advice::DontNeed);
        }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sink({}, {})", self.path.display(), self.describe())
    }
}

/// Gives the file its space and its length, in whole blocks.
fn reserve(disk: &FileDisk, length: u64) -> io::Result<()> {
    let padded = length.checked_next_multiple_of(BLOCK_BYTES as u64).ok_or(Errno::FBIG)?;
    let has = rustix::fs::fstat(disk)?.st_size;
    if padded != 0 {
        match rustix::fs::fallocate(disk, FallocateFlags::empty(), 0, padded) {
            Err(Errno::OPNOTSUPP) => {
                let filesystem = rustix::fs::fstatvfs(disk)?;
                let room = filesystem.f_bavail.saturating_mul(filesystem.f_frsize);
                if padded.saturating_sub(u64::try_from(has).unwrap_or(0)) > room {
                    return Err(Errno::NOSPC.into());
                }
            }
            other => other?,
        }
    }
    Ok(rustix::fs::ftruncate(disk, padded)?)
}

/// The same error once more.
fn copied(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(
        || io::Error::new(error.kind(), error.to_string()),
        io::Error::from_raw_os_error,
    )
}

/// Numbers as runs without gaps.
fn runs(numbers: &[u64]) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for number in numbers.iter().copied().collect::<BTreeSet<_>>() {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
