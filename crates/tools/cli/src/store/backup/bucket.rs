//! Backups in a bucket: `s3://BUCKET/FOLDER`.

use crate::signals::signals;
use anyhow::Result;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::emulate_default_handler;
use sprat_archive::Storage;
use sprat_flow::copy::{Error, Options};
use sprat_http::Cancel;
use sprat_objects::{Bucket, Listed, Location};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Folder of the locks, an object each.
const LOCKS: &str = "locks";

/// How long a lock counts after it was last written. Its owner may have ended without removing it.
const LOCK_TIME: Duration = Duration::from_secs(30 * 60);

/// Interval at which the owner writes its lock again.
const LOCK_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The files of backups in a bucket.
pub(super) struct BucketStorage(Arc<Folder>);

struct Folder {
    bucket: Bucket,
    /// The folder, without a slash at its end; empty for the whole bucket.
    root: Location,
    lock: Mutex<Option<Lock>>,
}

/// A lock of this process: an object, since buckets have no locks. Who writes one and then sees no
/// other has locked the folder; of two at the same time none has.
struct Lock {
    /// The object's name.
    name: String,
    /// When it was last written, by a clock that stops while this machine is suspended, and by one
    /// that can be set.
    written: (Instant, SystemTime),
}

impl BucketStorage {
    /// Opens the folder at an `s3://` address.
    pub(super) fn open(address: &str) -> Result<Self> {
        let Location { bucket, key } = Location::parse(address)?;
        let root = Location { key: key.trim_end_matches('/').to_owned(), bucket };
        let bucket = Bucket::open(&root.bucket, &Options::default(), &Cancel::default())?;
        Ok(Self(Arc::new(Folder { bucket, root, lock: Mutex::new(None) })))
    }

    /// Lets Ctrl-C and SIGTERM end the process only after its lock was removed.
    pub(super) fn unlock_on_signals(&self) -> Result<()> {
        let (signals, folder) = (signals()?, Arc::clone(&self.0));
        let watch = move || {
            if signals.recv().is_ok() {
                // While this thread has the mutex, the others write nothing.
                let mut lock = sprat_host::lock(&folder.lock);
                folder.remove_lock(&mut lock);
                let _ = emulate_default_handler(SIGTERM); // it ends the process
            }
        };
        std::thread::Builder::new().name("sprat-stop".into()).spawn(watch)?;
        Ok(())
    }
}

impl Folder {
    fn location(&self, name: &str) -> Location {
        let Location { bucket, key } = &self.root;
        let slash = if key.is_empty() || name.is_empty() { "" } else { "/" };
        Location { bucket: bucket.clone(), key: format!("{key}{slash}{name}") }
    }

    fn write_lock(&self, name: &str) -> io::Result<Lock> {
        let written = (Instant::now(), SystemTime::now());
        let location = self.location(&format!("{LOCKS}/{name}"));
        let text = format!("process {} of {}\n", std::process::id(), sprat_host::name());
        self.bucket.write(&location, text.into_bytes()).map_err(fault)?;
        Ok(Lock { name: name.to_owned(), written })
    }

    /// Writes the lock again, when it is time. The error says that it may not count any more.
    fn keep_lock(&self) -> io::Result<()> {
        let mut lock = sprat_host::lock(&self.lock);
        let Some(Lock { name, written: (ticks, time) }) = &*lock else {
            return Err(io::Error::other("it is not locked"));
        };
        let age = ticks.elapsed().max(time.elapsed().unwrap_or_default());
        if age >= LOCK_TIME - LOCK_INTERVAL {
            let why = "the lock was not written for too long, perhaps because this machine was \
                       suspended; run the command again";
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        if age >= LOCK_INTERVAL {
            *lock = Some(self.write_lock(name)?);
        }
        Ok(())
    }

    /// Takes the lock, unless another process has it. Returns what is known of that process.
    fn take_lock(&self) -> io::Result<Option<String>> {
        let mut lock = sprat_host::lock(&self.lock);
        let own_name = format!("{:016x}", sprat_host::random());
        *lock = Some(self.write_lock(&own_name)?);
        let location = |name: &str| self.location(&format!("{LOCKS}/{name}"));
        let locks = self.bucket.list(&self.location(LOCKS)).map_err(fault)?.objects;
        // Times are compared with that of the own lock, which is by the same clock.
        let (own, others): (Vec<_>, Vec<_>) =
            locks.iter().partition(|object| object.name == own_name);
        let own = own.first().ok_or_else(|| io::Error::other("a list lacks a new object"))?;
        let counts = |other: &&&Listed| other.modified + LOCK_TIME > own.modified;
        if let Some(other) = others.iter().find(counts) {
            self.remove_lock(&mut lock);
            let (other, minutes) = (location(&other.name), LOCK_TIME.as_secs() / 60);
            let who = self.bucket.read(&other).map_err(fault)?.unwrap_or_default();
            let who = String::from_utf8_lossy(&who).trim().to_owned();
            return Ok(Some(format!(
                "{who}, unless it has ended: then remove {other}, or wait {minutes} minutes"
            )));
        }
        for old in others {
            self.bucket.remove(&location(&old.name)).map_err(fault)?;
        }
        Ok(None)
    }

    /// Removes the lock, if there is one. If that fails, it stops counting after [`LOCK_TIME`].
    fn remove_lock(&self, lock: &mut Option<Lock>) {
        if let Some(Lock { name, .. }) = lock.take() {
            let _ = self.bucket.remove(&self.location(&format!("{LOCKS}/{name}")));
        }
    }
}

impl Storage for BucketStorage {
    fn place(&self, name: &str) -> String {
        self.0.location(name).to_string()
    }

    fn is_empty(&self) -> io::Result<bool> {
        let listing = self.0.bucket.list(&self.0.location("")).map_err(fault)?;
        Ok(listing.objects.is_empty() && listing.folders.iter().all(|name| name == LOCKS))
    }

    fn list(&self, part: &str) -> io::Result<Vec<(String, u64)>> {
        let listing = self.0.bucket.list(&self.0.location(part)).map_err(fault)?;
        Ok(listing.objects.into_iter().map(|object| (object.name, object.length)).collect())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.bucket.read(&self.0.location(name)).map_err(fault)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.keep_lock()?;
        self.0.bucket.write(&self.0.location(name), bytes.to_vec()).map_err(fault)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.keep_lock()?;
        self.0.bucket.remove(&self.0.location(name)).map_err(fault)
    }

    fn lock(&mut self) -> io::Result<Option<String>> {
        self.0.take_lock()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

impl Drop for BucketStorage {
    fn drop(&mut self) {
        self.0.remove_lock(&mut sprat_host::lock(&self.0.lock));
    }
}

/// Makes an error of the object store one of the storage, which names the place itself.
fn fault(error: Error) -> io::Error {
    match error {
        Error::Unreachable { why, .. } => io::Error::other(why),
        Error::Denied { status, .. } => io::Error::new(
            ErrorKind::PermissionDenied,
            format!("the store denies access ({status}); check the keys in AWS_..."),
        ),
        error => io::Error::other(error.to_string()),
    }
}
