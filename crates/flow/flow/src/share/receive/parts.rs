//! What unfinished uploads hold of the disk: counted, bounded, and given back when nobody goes on
//! with them.
//!
//! An upload that is under way has set space aside for its whole file. When its last connection
//! ends, what has not come is given back ([`Upload`](super::uploads::Upload)), and the part stays
//! for as long as parts are kept. A look at the whole directory at the start, and now and then,
//! finds parts that other processes left.

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

/// How long a part is kept that nobody goes on with, unless told: a weekend and some days.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Most directories within directories that are looked through for parts.
const MAX_DEPTH: usize = 128;

/// Bytes of a block as the kernel counts what a file holds.
const COUNTED: u64 = 512;

/// A part: device and inode of its directory, and its own name there.
pub(super) type Key = (u64, u64, OsString);

/// All of them, and what uploads under way hold.
#[derive(Debug)]
pub(in crate::share) struct Parts {
    /// Bytes that all may hold together; none: half of the filesystem.
    most: Option<u64>,
    /// Bytes that each part holds which nobody is at.
    kept: Mutex<HashMap<Key, u64>>,
    reserved: AtomicU64,
}

/// Space that an upload under way holds, until it is dropped.
pub(super) struct Reserved {
    parts: Arc<Parts>,
    bytes: u64,
}

impl Parts {
    pub(in crate::share) fn new(most: Option<u64>) -> Self {
        Self { most, kept: Mutex::default(), reserved: AtomicU64::new(0) }
    }

    /// Sets space aside for an upload of `length` bytes into a directory.
    ///
    /// # Errors
    /// [`Refused`] with 507: unfinished uploads would hold more than they may.
    pub(super) fn reserve(
        self: &Arc<Self>,
        key: Option<&Key>,
        folder: &OwnedFd,
        length: u64,
    ) -> Result<Reserved, Refused> {
        let most = self.most.unwrap_or_else(|| {
            rustix::fs::fstatvfs(folder)
                .map_or(u64::MAX, |told| told.f_blocks.saturating_mul(told.f_frsize) / 2)
        });
        let mut kept = self.lock();
        let others: u64 =
            kept.iter().filter(|(other, _)| Some(*other) != key).map(|(_, bytes)| bytes).sum();
        let held = others.saturating_add(self.reserved.load(Ordering::Acquire));
        if held.saturating_add(length) > most {
            let reason = format!(
                "unfinished uploads hold {held} B and may hold {most} B together; sprat share --max-unfinished allows more"
            );
            return Err(Refused { status: 507, reason });
        }
        self.reserved.fetch_add(length, Ordering::AcqRel);
        if let Some(key) = key {
            kept.remove(key);
        }
        Ok(Reserved { parts: self.clone(), bytes: length })
    }

    /// A part is left, and holds so many bytes.
    pub(super) fn keep(&self, key: Key, bytes: u64) {
        self.lock().insert(key, bytes);
    }

    /// Looks through all of the shared directory: counts parts, and removes those that nobody has
    /// gone on with for longer than they are kept.
    pub(in crate::share) fn sweep(
        &self,
        root: &Root,
        kept_for: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) {
        let mut found = HashMap::new();
        look_through(root, &mut Vec::new(), (kept_for, is_stopped), &mut found, MAX_DEPTH);
        if is_stopped() {
            return;
        }
        *self.lock() = found;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        lock(&self.kept)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.parts.reserved.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Looks through the directory at `names`. What cannot be read is passed over: nothing was put
/// there either.
fn look_through(
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
        look_through(root, names, (kept_for, is_stopped), found, depth - 1);
        names.pop();
    }
}

/// Looks at a part, by its name in a directory; removes it, with its journal, if nobody has been at
/// it for too long.
fn part(
    folder: &OwnedFd,
    name: &OsStr,
    destination: &Destination,
    kept_for: Duration,
) -> Option<(Key, u64)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // Who writes it holds it locked.
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    if !is_named(&file, folder, name).ok()? {
        return None; // it went meanwhile, and what has its name now is looked at the next time
    }
    let age = SystemTime::now().duration_since(meta.modified().ok()?).unwrap_or_default();
    if age > kept_for {
        for path in [destination.journal(), destination.part()] {
            let _ = rustix::fs::unlinkat(folder, path, AtFlags::empty()); // or the next time
        }
        return None;
    }
    let at = rustix::fs::fstat(folder).ok()?;
    let bytes = meta.blocks().saturating_mul(COUNTED);
    Some(((at.st_dev, at.st_ino, name.to_owned()), bytes))
}
