//! A cache of group values, so that a file that is sent again is not hashed again.

use super::version::Version;
use crate::group::{self, Value};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Number of groups whose values are cached and evicted together: 1 GiB of a file, with 32 KiB of
/// values.
const STRETCH: u64 = 1024;

/// Limit on the number of values in the cache: 64 MiB of values, for 2 TiB of files. To stay within
/// it, the cache evicts the least recently used stretches.
const MAX_VALUES: usize = 2 << 20;

/// The cache of group values. Its keys contain the file's version, so that values of another
/// version are never found.
#[derive(Debug, Default)]
pub(super) struct Values(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stretches: HashMap<(Version, u64), Stretch>,
    /// Number of values for which all stretches together have room.
    room: usize,
    /// Counts lookups and additions, to order stretches by their last use.
    time: u64,
}

#[derive(Debug)]
struct Stretch {
    values: Box<[Option<Value>]>,
    used: u64,
}

impl Values {
    /// Returns the value of group `index`, if it is cached.
    pub(super) fn get(&self, version: &Version, index: u64) -> Option<Value> {
        let mut known = self.lock();
        known.time += 1;
        let time = known.time;
        let stretch = known.stretches.get_mut(&(*version, index / STRETCH))?;
        stretch.used = time;
        stretch.values[within(index)]
    }

    /// Caches the value of group `index`, unless the file was changed so recently that a later
    /// change might not alter its version.
    pub(super) fn keep(&self, version: &Version, index: u64, value: Value) {
        if !version.is_settled() {
            return;
        }
        let mut known = self.lock();
        known.time += 1;
        let (time, key) = (known.time, (*version, index / STRETCH));
        if !known.stretches.contains_key(&key) {
            let groups = group::count(version.size) - key.1 * STRETCH;
            let groups = usize::try_from(groups.min(STRETCH)).expect("a stretch is in memory");
            known.make_room(groups);
            known.stretches.insert(key, Stretch { values: vec![None; groups].into(), used: time });
        }
        let stretch = known.stretches.get_mut(&key).expect("just made");
        stretch.used = time;
        stretch.values[within(index)] = Some(value);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no holder panics")
    }
}

impl Known {
    /// Evicts the least recently used stretches until `values` more values fit, and reserves room
    /// for these.
    fn make_room(&mut self, values: usize) {
        while self.room + values > MAX_VALUES {
            let oldest =
                self.stretches.iter().min_by_key(|(_, stretch)| stretch.used).map(|(key, _)| *key);
            let Some(gone) = oldest.and_then(|key| self.stretches.remove(&key)) else { break };
            self.room -= gone.values.len();
        }
        self.room += values;
        debug_assert!(self.room <= MAX_VALUES);
    }
}

fn within(index: u64) -> usize {
    usize::try_from(index % STRETCH).expect("a stretch is in memory")
}
