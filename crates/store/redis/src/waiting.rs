//! Clients that wait for an element, as `BLPOP` does.
//!
//! A connection waits for keys that have no list or no sorted set. When a command has made one of a
//! key, the connections that wait for the key execute their commands again, the first one first.
//! Those that get nothing keep their places.

use crate::call::Deadline;
use sprat_net::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A database and a key of it.
type Place = (usize, Vec<u8>);

/// A connection that waits.
#[derive(Debug)]
struct Waiter {
    places: Vec<Place>,
    until: Deadline,
    /// Its number among all, in the order in which they began to wait.
    number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The connections by their slots.
    waiters: HashMap<usize, Waiter>,
    /// The slots of those that wait for a key, by their numbers.
    by_place: HashMap<Place, BTreeMap<u64, usize>>,
    deadlines: BTreeSet<(Nanos, usize)>,
    /// The numbers and slots of those whose keys have got a list or a sorted set, or whose time is
    /// over.
    woken: BTreeSet<(u64, usize)>,
    next: u64,
}

impl Waiting {
    /// Returns the number of connections that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Lets a connection wait for keys, unless it does already.
    pub(crate) fn add(
        &mut self,
        slot: usize,
        database: usize,
        keys: Vec<Vec<u8>>,
        until: Deadline,
    ) {
        if self.waiters.contains_key(&slot) {
            return;
        }
        let number = self.next;
        self.next += 1;
        let places: Vec<Place> = keys.into_iter().map(|key| (database, key)).collect();
        for place in &places {
            self.by_place.entry(place.clone()).or_default().insert(number, slot);
        }
        self.deadlines.extend(until.map(|until| (until, slot)));
        self.waiters.insert(slot, Waiter { places, until, number });
    }

    /// Ends the wait of a connection, if it waits.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Some(Waiter { places, until, number }) = self.waiters.remove(&slot) else { return };
        for place in &places {
            let Some(slots) = self.by_place.get_mut(place) else { continue };
            slots.remove(&number);
            if slots.is_empty() {
                self.by_place.remove(place);
            }
        }
        self.woken.remove(&(number, slot));
        if let Some(until) = until {
            self.deadlines.remove(&(until, slot));
        }
    }

    /// Records that a key has got a list or a sorted set.
    pub(crate) fn note(&mut self, database: usize, key: &[u8]) {
        if self.waiters.is_empty() {
            return;
        }
        if let Some(slots) = self.by_place.get(&(database, key.to_vec())) {
            self.woken.extend(slots.iter().map(|(number, slot)| (*number, *slot)));
        }
    }

    /// Returns a connection whose command is to be executed again.
    pub(crate) fn take_woken(&mut self) -> Option<usize> {
        self.woken.pop_first().map(|(_, slot)| slot)
    }

    /// Returns when the first wait ends.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Wakes the connections that do not wait any longer.
    pub(crate) fn end(&mut self, now: Nanos) {
        while let Some(&(until, slot)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            let number = self.waiters.get(&slot).expect("it waits").number;
            self.woken.insert((number, slot));
        }
    }
}
