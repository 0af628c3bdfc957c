//! The queue of keys to write to the home table. A key is in the queue at most once, even if it is
//! written often.

use sprat_host::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Limit on the keys of a bridge that wait for delivery, including writes in progress. A write
/// beyond the limit waits for room, and fails if there is none within ten seconds.
pub const MAX_DIRTY: usize = 65_536;

/// The queue of keys whose last write has perhaps not reached the home table yet. A writer calls
/// [`reserve`](Self::reserve) before it writes a key, and [`push`](Self::push) afterwards. A
/// delivery worker takes the [`next`](Self::next) key, and then calls
/// [`delivered`](Self::delivered) or [`retry`](Self::retry). The methods may be called from any
/// task.
#[derive(Debug)]
pub struct Backlog {
    keys: Mutex<Keys>,
    ready: Notify,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Keys {
    queue: VecDeque<Arc<[u8]>>,
    known: HashMap<Arc<[u8]>, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// Whether a worker delivers the key at present; the key is then not in the queue.
    delivering: bool,
    /// Whether the key was written after its present delivery began.
    again: bool,
    _room: OwnedSemaphorePermit,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            ready: Notify::new(),
            room: Arc::new(Semaphore::new(MAX_DIRTY)),
        }
    }
}

impl Backlog {
    /// Reserves room for one key, before it is written. Waits for room for at most `patience`, and
    /// returns `None` if there is still no room.
    pub async fn reserve(&self, patience: Duration) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(patience, Arc::clone(&self.room).acquire_owned()).await.ok()?.ok()
    }

    /// Reserves room for one key without waiting. Returns `None` if there is no room.
    #[must_use]
    pub fn try_reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Queues a key that is dirty or perhaps dirty. If the key waits already, it keeps its place in
    /// the queue, and `room` is given back. If the key is being delivered, it will be delivered
    /// again.
    pub fn push(&self, key: &[u8], room: OwnedSemaphorePermit) {
        let mut keys = self.lock();
        if let Some(known) = keys.known.get_mut(key) {
            known.again |= known.delivering;
            return;
        }
        let key: Arc<[u8]> = key.into();
        let waiting =
            Waiting { since: Instant::now(), delivering: false, again: false, _room: room };
        keys.known.insert(Arc::clone(&key), waiting);
        keys.queue.push_back(key);
        drop(keys);
        self.ready.notify_one();
    }

    /// Waits for the next key to deliver. The caller must then call [`delivered`](Self::delivered)
    /// or [`retry`](Self::retry).
    pub async fn next(&self) -> Arc<[u8]> {
        loop {
            if let Some(key) = self.take() {
                return key;
            }
            self.ready.notified().await;
        }
    }

    /// Returns the next key to deliver, or `None` if no key waits.
    #[must_use]
    pub fn take(&self) -> Option<Arc<[u8]>> {
        let mut keys = self.lock();
        let key = keys.queue.pop_front()?;
        if let Some(waiting) = keys.known.get_mut(&key) {
            waiting.delivering = true;
        }
        let more = !keys.queue.is_empty();
        drop(keys);
        if more {
            self.ready.notify_one();
        }
        Some(key)
    }

    /// Ends a delivery that succeeded. If the key was written since the delivery began, it is
    /// queued again.
    pub fn delivered(&self, key: &Arc<[u8]>) {
        let mut keys = self.lock();
        if keys.known.get(key).is_some_and(|known| !known.again) {
            keys.known.remove(key);
            return;
        }
        drop(keys);
        self.retry(key);
    }

    /// Queues a key again whose delivery failed or was outdated.
    pub fn retry(&self, key: &Arc<[u8]>) {
        let mut keys = self.lock();
        let Some(known) = keys.known.get_mut(key) else { return };
        (known.delivering, known.again) = (false, false);
        keys.queue.push_back(Arc::clone(key));
        drop(keys);
        self.ready.notify_one();
    }

    /// Returns whether a key waits or is being delivered.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lock().known.contains_key(key)
    }

    /// Returns the number of keys that wait or are being delivered, and the time since the one that
    /// was queued first.
    #[must_use]
    pub fn extent(&self) -> (usize, Duration) {
        let keys = self.lock();
        let oldest = keys.known.values().map(|known| known.since).min();
        (keys.known.len(), oldest.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        lock(&self.keys)
    }
}
