//! Counts and limits the disk space of unfinished uploads, and frees it when an upload is
//! abandoned.
//!
//! An upload in progress has reserved space for its whole file. When its last connection ends, the
//! space of missing groups is freed ([`Upload`](super::uploads::Upload)), and the part stays for a
//! limited time. A sweep of the whole directory, at the start and at intervals, also finds parts
//! that other processes left.

use super::super::root::Root;
use crate::file::Destination;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use sprat_disk::is_named;
use sprat_host::lock;
use sprat_http::server::refused::Refused;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Default time for which the part of an interrupted upload is kept: a week.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Limit on the nesting of directories that are swept. Deeper directories are not swept.
const MAX_DEPTH: usize = 128;

/// Length in bytes of the blocks in which the kernel counts a file's disk usage.
const COUNTED: u64 = 512;

/// Identifies a part by the device and inode of its directory, and its name in the directory.
pub(super) type Key = (u64, u64, OsString);

/// All parts, and the space that uploads in progress have reserved.
#[derive(Debug)]
pub(in crate::share) struct Parts {
    /// Limit on the bytes of all unfinished uploads together; `None` stands for half of the
    /// filesystem.
    most: Option<u64>,
    kept: Mutex<Kept>,
    reserved: AtomicU64,
}

/// The parts without an upload in progress.
#[derive(Debug, Default)]
struct Kept {
    /// For each part, its bytes on the disk.
    bytes: HashMap<Key, u64>,
    /// While a sweep is under way: what has changed since it began, `None` for parts that are no
    /// longer kept. The sweep may have seen them before the change.
    changed: Option<HashMap<Key, Option<u64>>>,
}

impl Kept {
    fn set(&mut self, key: Key, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.bytes.insert(key.clone(), bytes),
            None => self.bytes.remove(&key),
        };
        if let Some(changed) = &mut self.changed {
            changed.insert(key, bytes);
        }
    }
}

/// Space reserved for an upload in progress. Dropping it ends the reservation.
pub(super) struct Reserved {
    parts: Arc<Parts>,
    bytes: u64,
}

impl Parts {
    pub(in crate::share) fn new(most: Option<u64>) -> Self {
        Self { most, kept: Mutex::default(), reserved: AtomicU64::new(0) }
    }

    /// Reserves space for an upload of `length` bytes into a directory.
    /// # Errors
    /// [`Refused`] with 507 if unfinished uploads would exceed the limit.
    pub(super) fn reserve(
        self: &Arc<Self>,
        key: Option<&Key>,
        folder: &OwnedFd,
        length: u64,
    ) -> Result<Reserved, Refused> {
        let most = self.most.unwrap_or_else(|| {
            rustix::fs::fstatvfs(folder)
                .map_or(u64::MAX, |stat| stat.f_blocks.saturating_mul(stat.f_frsize) / 2)
        });
        let kept = self.lock();
        let others: u64 = kept
            .bytes
            .iter()
            .filter(|(other, _)| Some(*other) != key)
            .map(|(_, bytes)| bytes)
            .sum();
        let held = others.saturating_add(self.reserved.load(Ordering::Acquire));
        if held.saturating_add(length) > most {
            let reason = format!(
                "unfinished uploads occupy {held} B of at most {most} B; sprat share \
                 --max-unfinished allows more"
            );
            return Err(Refused { status: 507, reason });
        }
        self.reserved.fetch_add(length, Ordering::AcqRel);
        Ok(Reserved { parts: self.clone(), bytes: length })
    }

    /// Records that the upload of a part has begun: from now on only its reservation counts.
    pub(super) fn begin(&self, key: Key) {
        self.lock().set(key, None);
    }

    /// Records an interrupted part that occupies `bytes` bytes.
    pub(super) fn keep(&self, key: Key, bytes: u64) {
        self.lock().set(key, Some(bytes));
    }

    /// Searches the whole shared directory for parts. Counts them, and removes those that were last
    /// written longer than `kept_for` ago.
    pub(in crate::share) fn sweep(
        &self,
        root: &Root,
        kept_for: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) {
        self.lock().changed = Some(HashMap::new());
        let mut found = HashMap::new();
        sweep_folder(root, &mut Vec::new(), (kept_for, is_stopped), &mut found, MAX_DEPTH);
        let mut kept = self.lock();
        let changed = kept.changed.take().expect("set above; one thread sweeps");
        if is_stopped() {
            return;
        }
        kept.bytes = found;
        changed.into_iter().for_each(|(key, bytes)| kept.set(key, bytes));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.parts.reserved.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Searches the directory at `names`. Skips it if it cannot be read now: its parts do not count,
/// and stay, until a sweep that can read it.
fn sweep_folder(
    root: &Root,
    names: &mut Vec<OsString>,
    (kept_for, is_stopped): (Duration, &dyn Fn() -> bool),
    found: &mut HashMap<Key, u64>,
    depth: usize,
) {
    if is_stopped() {
        return;
    }
    let Ok(folder) = root.folder(names) else { return };
    let Ok(entries) = Dir::read_from(&folder) else { return };
    let mut folders = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name.as_bytes().starts_with(b".") {
            if let Some(destination) = Destination::from_part_name(name) {
                found.extend(part(&folder, name, &destination, kept_for));
            }
        } else if depth > 0 && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            folders.push(name.to_owned());
        }
    }
    for name in folders {
        names.push(name);
        sweep_folder(root, names, (kept_for, is_stopped), found, depth - 1);
        names.pop();
    }
}

/// Examines a part in a directory. Removes the part and its journal if the part is too old.
fn part(
    folder: &OwnedFd,
    name: &OsStr,
    destination: &Destination,
    kept_for: Duration,
) -> Option<(Key, u64)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // If an upload of the part is in progress, it holds the lock.
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    if !is_named(&file, folder, name).ok()? {
        return None; // another file has the name now; the next sweep examines it
    }
    let age = SystemTime::now().duration_since(meta.modified().ok()?).unwrap_or_default();
    if age > kept_for {
        for path in [destination.journal(), destination.part()] {
            // If this fails, the next sweep tries again.
            let _ = rustix::fs::unlinkat(folder, path, AtFlags::empty());
        }
        return None;
    }
    let at = rustix::fs::fstat(folder).ok()?;
    let bytes = meta.blocks().saturating_mul(COUNTED);
    Some(((at.st_dev, at.st_ino, name.to_owned()), bytes))
}
