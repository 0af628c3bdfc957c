//! Values of groups that were computed: a file that is sent again is not hashed again.

use super::version::Version;
use crate::group::{self, Value};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Groups whose values are kept, and forgotten, together: 1 GiB of a file, 32 KiB of values.
const STRETCH: u64 = 1024;

/// Most values that are kept: 64 MiB, for 2 TiB of files.
const MAX_VALUES: usize = 2 << 20;

/// What is known. Values of one version of a file are of no use for another: versions are part of
/// what they are found by.
#[derive(Debug, Default)]
pub(super) struct Values(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stretches: HashMap<(Version, u64), Stretch>,
    /// Room for values, in all stretches together.
    room: usize,
    /// Counts what is looked up: who was used last.
    time: u64,
}

#[derive(Debug)]
struct Stretch {
    values: Box<[Option<Value>]>,
    used: u64,
}

impl Values {
    /// The value of group `index`.
    pub(super) fn get(&self, version: &Version, index: u64) -> Option<Value> {
        let mut known = self.lock();
        known.time += 1;
        let time = known.time;
        let stretch = known.stretches.get_mut(&(*version, index / STRETCH))?;
        stretch.used = time;
        stretch.values[within(index)]
    }

    /// Keeps the value of group `index`, unless the file was changed so lately that a later change
    /// might not show.
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
    /// Forgets what was not used for longest until there is room for so many values more, and takes
    /// it.
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
