//! Which keys are to be carried home: each once in the queue, however often it is written.

use sprat_host::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Keys that may wait for their way home in one bridge, writes under way included. One more write
/// waits, and then fails.
pub const MAX_DIRTY: usize = 65_536;

/// The keys that wait, and those under way.
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
    /// It is under way, and not in the queue.
    carried: bool,
    /// It was written since that began.
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
    /// Room for one key, to be had before it is written; none if there is none for so long.
    pub async fn room(&self, patience: Duration) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(patience, Arc::clone(&self.room).acquire_owned()).await.ok()?.ok()
    }

    /// Room, if there is some at once.
    #[must_use]
    pub fn room_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// A key is dirty, or may be.
    pub fn push(&self, key: &[u8], room: OwnedSemaphorePermit) {
        let mut keys = self.lock();
        if let Some(known) = keys.known.get_mut(key) {
            known.again |= known.carried;
            return;
        }
        let key: Arc<[u8]> = key.into();
        let waiting = Waiting { since: Instant::now(), carried: false, again: false, _room: room };
        keys.known.insert(Arc::clone(&key), waiting);
        keys.queue.push_back(key);
        drop(keys);
        self.ready.notify_one();
    }

    /// The next key to carry. [`ended`](Self::ended) or [`failed`](Self::failed) must follow.
    pub async fn next(&self) -> Arc<[u8]> {
        loop {
            if let Some(key) = self.take() {
                return key;
            }
            self.ready.notified().await;
        }
    }

    /// The next key, if there is one now.
    #[must_use]
    pub fn take(&self) -> Option<Arc<[u8]>> {
        let mut keys = self.lock();
        let key = keys.queue.pop_front()?;
        if let Some(waiting) = keys.known.get_mut(&key) {
            waiting.carried = true;
        }
        let more = !keys.queue.is_empty();
        drop(keys);
        if more {
            self.ready.notify_one();
        }
        Some(key)
    }

    /// A key's way is over: as it was when that began, it is at home.
    pub fn ended(&self, key: &Arc<[u8]>) {
        let mut keys = self.lock();
        if keys.known.get(key).is_some_and(|known| !known.again) {
            keys.known.remove(key);
            return;
        }
        drop(keys);
        self.failed(key);
    }

    /// A key must go again.
    pub fn failed(&self, key: &Arc<[u8]>) {
        let mut keys = self.lock();
        let Some(known) = keys.known.get_mut(key) else { return };
        (known.carried, known.again) = (false, false);
        keys.queue.push_back(Arc::clone(key));
        drop(keys);
        self.ready.notify_one();
    }

    /// Whether a key waits or is under way.
    #[must_use]
    pub fn knows(&self, key: &[u8]) -> bool {
        self.lock().known.contains_key(key)
    }

    /// How many keys wait or are under way, and how long the oldest has.
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
