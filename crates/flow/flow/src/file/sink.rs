//! Writes the groups of a file in any order, past the page cache, and tracks which of them are
//! durable.
//!
//! The sink writes each group from the buffer into which it was received to the device, with
//! `O_DIRECT` and io_uring, several groups at a time. On a filesystem without `O_DIRECT` written
//! pages are dropped from the page cache, because nothing is about to read them. If the length is
//! known, space and length are allocated in advance, because on most filesystems a write that
//! extends a file blocks.

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

/// Limit on the groups of 1 MiB in memory: those being filled, those being written, and free
/// buffers. [`Sink::open`] reduces a larger number to this limit.
pub const MAX_BUFFERS: usize = 48;
const _: () = assert!(MAX_BUFFERS < MAX_IN_FLIGHT, "a sync goes along with the writes");

/// Default number of bytes between two syncs of a file that is written past the page cache.
const SYNC_BYTES: u64 = 128 << 20;

/// Default number of bytes between two syncs of a file that is written through the page cache. The
/// page cache holds at most about twice as many bytes of the file.
const CACHED_SYNC_BYTES: u64 = 32 << 20;

/// Time since the last sync after which the next write begins a sync, however few bytes were
/// written.
const SYNC_TIME: Duration = Duration::from_secs(3);

/// The ticket of a sync. The ticket of a write is the number of its group.
const SYNC: u64 = u64::MAX;

/// How long to wait for the lock of a process that was killed and whose last writes are still in
/// progress, and the interval between two attempts to lock.
const LAST_WRITES: Duration = Duration::from_millis(500);
const LOCK_RETRY: Duration = Duration::from_millis(20);

const BUFFER_BYTES: usize = 1 << 20;
const _: () =
    assert!(BUFFER_BYTES as u64 == GROUP_BYTES && BUFFER_BYTES.is_multiple_of(BLOCK_BYTES));

/// Why a file cannot be written.
#[derive(Debug, Error)]
pub enum SinkError {
    /// Another transfer writes the file.
    #[error("{}: another transfer writes this file; wait for it, or stop it", .0.display())]
    Busy(PathBuf),
    /// The filesystem has no space for the file, a quota is exhausted, or the file is longer than
    /// the filesystem supports.
    #[error("{}: no space for {bytes} B; make room, or choose another place: \
        {source}", path.display())]
    NoSpace {
        /// The file's path.
        path: PathBuf,
        /// The length that the file would have, in bytes.
        bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another operation on the file failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file's path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl SinkError {
    /// Creates the error for a file at `path` that is to have `bytes` bytes.
    pub(crate) fn at(path: &Path, bytes: u64, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                Self::NoSpace { path, bytes, source }
            }
            _ => Self::Io { path, source },
        }
    }

    /// Returns the kind of the operating system's error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Busy(_) => io::ErrorKind::ResourceBusy,
            Self::NoSpace { .. } => io::ErrorKind::StorageFull,
            Self::Io { source, .. } => source.kind(),
        }
    }
}

/// Opens and locks a file. Waits up to [`LAST_WRITES`] for the lock, because the lock of a process
/// that was killed lasts until its last writes are done.
fn open(path: &Path, access: Access) -> Result<FileDisk, OpenError> {
    let passes = |error: &OpenError| matches!(error, OpenError::Locked(_));
    sprat_host::retry(LAST_WRITES, LOCK_RETRY, passes, || FileDisk::open(path, access))
}

/// A file that is being written group by group, and is locked against other transfers.
///
/// Take a buffer with [`Sink::buffer`], fill it with a group, and pass it to [`Sink::write`], which
/// does not wait for the device. [`Sink::take_durable`] returns the groups that a sync has covered;
/// only these groups may be journaled. Once all groups are written, [`Sink::finish`] sets length
/// and attributes, and makes everything durable. After a failed write or sync all these calls
/// except [`Sink::take_durable`] fail, because the file cannot become complete.
pub struct Sink {
    path: PathBuf,
    /// `None` discards everything that is written.
    disk: Option<FileDisk>,
    /// The final length, if known.
    length: Option<u64>,
    direct: bool,
    /// Bytes between two syncs.
    sync_bytes: u64,
    /// Unused buffers.
    free: Vec<AlignedBuf>,
    /// How many more buffers may be allocated.
    unallocated: usize,
    /// Number of writes in progress.
    writing: usize,
    /// Groups written since the last sync began.
    written: Vec<u64>,
    /// Groups that the sync in progress makes durable.
    syncing: Option<Vec<u64>>,
    /// Groups that are durable and were not returned by [`Sink::take_durable`] yet.
    durable: Vec<u64>,
    last_sync: Instant,
    failed: Option<io::Error>,
}

impl Sink {
    /// Opens the file at `path` and keeps its content, or creates the file. Allocates space for
    /// `length` bytes. Uses `buffers` groups of memory, at most [`MAX_BUFFERS`]. If the filesystem
    /// does not support direct access, uses the page cache.
    /// # Errors
    /// [`SinkError::Busy`] if another transfer keeps the file locked. Another variant if the file
    /// cannot be opened, or space for it cannot be allocated. If this call has created the file, it
    /// is removed when space cannot be allocated.
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
                let _ = std::fs::remove_file(path); // the caller gets the first error
            }
            return Err(SinkError::at(path, bytes, error));
        }
        let direct = disk.access() == Access::Direct;
        let sync_bytes = if direct { SYNC_BYTES } else { CACHED_SYNC_BYTES };
        Ok(Self { direct, sync_bytes, disk: Some(disk), ..Self::discarding(path, length, buffers) })
    }

    /// Creates a sink that discards everything that is written.
    #[must_use]
    pub fn discard(path: &Path, length: Option<u64>, buffers: usize) -> Self {
        Self::discarding(path, length, buffers)
    }

    fn discarding(path: &Path, length: Option<u64>, buffers: usize) -> Self {
        Self {
            path: path.to_owned(),
            disk: None,
            length,
            direct: false,
            sync_bytes: CACHED_SYNC_BYTES,
            free: Vec::new(),
            unallocated: buffers.clamp(1, MAX_BUFFERS),
            writing: 0,
            written: Vec::new(),
            syncing: None,
            durable: Vec::new(),
            last_sync: Instant::now(),
            failed: None,
        }
    }

    /// Sets after how many bytes written since the last sync the next sync begins. It begins later
    /// if a sync is in progress then.
    pub fn sync_every(&mut self, bytes: u64) {
        self.sync_bytes = bytes;
    }

    /// Describes how bytes reach the device.
    #[must_use]
    pub fn describe(&self) -> &str {
        self.disk.as_ref().map_or("thrown away", |disk| disk.describe())
    }

    /// Returns a buffer for a group. If no buffer is free, waits until a write has completed.
    /// Returns `None` if callers have all buffers.
    /// # Errors
    /// An earlier write or sync failed.
    pub fn buffer(&mut self) -> Result<Option<AlignedBuf>, SinkError> {
        self.collect()?;
        loop {
            if let Some(buffer) = self.free.pop() {
                return Ok(Some(buffer));
            }
            if self.unallocated > 0 {
                self.unallocated -= 1;
                return Ok(Some(AlignedBuf::zeroed(BUFFER_BYTES)));
            }
            if self.writing == 0 {
                return Ok(None);
            }
            self.wait()?;
        }
    }

    /// Takes back a buffer without writing it.
    pub fn recycle(&mut self, buffer: AlignedBuf) {
        self.free.push(buffer);
    }

    /// Begins to write the first `len` bytes of `buffer` as group `group`. A group must not be
    /// written twice at the same time.
    /// # Errors
    /// This write or an earlier write or sync failed.
    ///
    /// # Panics
    /// If the file's length is known, and `len` is not the length of this group.
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

    /// Returns the groups that have become durable since the last call.
    pub fn take_durable(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.durable)
    }

    /// Syncs, and waits until everything written is durable.
    /// # Errors
    /// An earlier write or sync failed, or a write or sync for which this call waits fails.
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

    /// Frees the space of all groups except `groups`, which must ascend, and leaves the length of
    /// the file unchanged. A filesystem that cannot punch holes keeps the space. Frees nothing if
    /// the length is unknown.
    /// # Errors
    /// A write or a sync failed. If a hole cannot be punched, that is not an error.
    pub fn release_all_but(&mut self, groups: impl Iterator<Item = u64>) -> Result<(), SinkError> {
        self.flush()?;
        let (Some(disk), Some(length)) = (&self.disk, self.length) else { return Ok(()) };
        let mut next = 0;
        for group in groups.chain([length.div_ceil(GROUP_BYTES)]) {
            let (from, to) = (next * GROUP_BYTES, (group * GROUP_BYTES).min(length));
            if from < to {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(disk, hole, from, to - from); // may fail
            }
            next = group + 1;
        }
        Ok(())
    }

    /// Sets the length and the attributes of the file, and makes everything durable. If the
    /// filesystem rejects attributes, returns its error in `Ok`, because the content is correct
    /// without attributes.
    /// # Errors
    /// A write or a sync failed, or the length cannot be set.
    pub fn finish(
        &mut self,
        length: u64,
        attributes: &Attributes,
    ) -> Result<Option<io::Error>, SinkError> {
        self.flush()?;
        let Some(disk) = &self.disk else { return Ok(None) };
        let failed = |errno: Errno| SinkError::at(&self.path, length, errno.into());
        rustix::fs::ftruncate(disk, length).map_err(failed)?;
        let attributes = attributes.apply_to(disk).err();
        rustix::fs::fsync(disk).map_err(failed)?;
        Ok(attributes)
    }

    /// Reads `len` bytes of a group back from the device.
    /// # Errors
    /// The device cannot be read, or the file ends before these bytes.
    ///
    /// # Panics
    /// If the sink discards everything, or `len` is more than the buffer holds.
    pub fn read(&self, group: u64, buffer: &mut AlignedBuf, len: usize) -> Result<(), SinkError> {
        let disk = self.disk.as_ref().expect("a file that is kept");
        let read =
            disk.reader().read_at(buffer, len.next_multiple_of(BLOCK_BYTES), group * GROUP_BYTES);
        read.map_err(|error| SinkError::at(&self.path, 0, error))
    }

    /// Collects completed writes and syncs.
    fn collect(&mut self) -> Result<(), SinkError> {
        while let Some(completion) = self.disk.as_mut().and_then(FileDisk::poll) {
            self.take(completion);
        }
        match &self.failed {
            // Every further call returns the error, because the file cannot become complete.
            Some(error) => {
                Err(SinkError::at(&self.path, self.length.unwrap_or(0), clone_error(error)))
            }
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

    /// Begins a sync of the written groups, unless there are none or a sync is in progress.
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

    /// Drops durable groups from the page cache.
    fn drop_behind(&self, groups: &[u64]) {
        let Some(disk) = self.disk.as_ref().filter(|_| !self.direct) else { return };
        for run in runs(groups) {
            let bytes = std::num::NonZeroU64::new((run.end - run.start) * GROUP_BYTES);
            // The call is only advice; the file is correct without it.
            let _ = rustix::fs::fadvise(disk, run.start * GROUP_BYTES, bytes, Advice::DontNeed);
        }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sink({}, {})", self.path.display(), self.describe())
    }
}

/// Allocates the file's space and sets its length, in whole blocks.
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

/// Copies an I/O error, which is not `Clone`.
fn clone_error(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(
        || io::Error::new(error.kind(), error.to_string()),
        io::Error::from_raw_os_error,
    )
}

/// Joins numbers to runs without gaps.
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
