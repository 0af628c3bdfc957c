//! Tests the backlog: each key is in it only once, and none is forgotten.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_bridge::{Backlog, Cell, MAX_DIRTY, Stamps};
use std::collections::BTreeMap;
use std::sync::Arc;

proptest! {
    /// Pushes and takes keys, whose deliveries succeed or fail. A key that was pushed after it was
    /// last taken is returned again.
    #[test]
    fn no_key_is_forgotten(steps in prop::collection::vec((0u8..4, 0u8..5), 0..200)) {
        let backlog = Backlog::default();
        let mut owed: BTreeMap<u8, bool> = BTreeMap::new();
        let mut carried: Vec<Arc<[u8]>> = Vec::new();
        for (what, key) in steps {
            match what {
                0 | 1 => {
                    backlog.push(&[key], backlog.try_reserve().unwrap());
                    owed.insert(key, true);
                }
                2 => {
                    if let Some(taken) = backlog.take() {
                        prop_assert!(
                            owed.insert(taken[0], false).unwrap(),
                            "a key is taken that waits for nothing"
                        );
                        prop_assert!(!carried.contains(&taken), "two workers deliver it at once");
                        carried.push(taken);
                    }
                }
                _ => {
                    if let Some(done) = carried.pop() {
                        if key == 0 {
                            owed.insert(done[0], true);
                            backlog.retry(&done);
                        } else {
                            backlog.delivered(&done);
                            if !owed[&done[0]] {
                                owed.remove(&done[0]);
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(backlog.extent().0, owed.len());
        }
        carried.iter().for_each(|key| backlog.delivered(key));
        while let Some(taken) = backlog.take() {
            prop_assert_eq!(owed.insert(taken[0], false), Some(true));
            backlog.delivered(&taken);
        }
        prop_assert!(owed.values().all(|owed| !owed));
        prop_assert_eq!(backlog.extent().0, 0);
    }

    #[test]
    fn cells_round_trip(
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        version in 0u64..1 << 48,
    ) {
        if let Ok(cell) = Cell::parse(&bytes) {
            prop_assert_eq!(&cell.encode(), &bytes);
            let stamps = Stamps::new(1_700_000_000_000_000).unwrap();
            prop_assert_eq!(cell.delivery(version, stamps).is_none(), cell.may_be_evicted());
            prop_assert!(stamps.of(version) < stamps.of(version + 1));
        }
    }
}

#[test]
fn the_backlog_is_bounded() {
    let backlog = Backlog::default();
    for number in 0..MAX_DIRTY {
        backlog.push(&number.to_le_bytes(), backlog.try_reserve().unwrap());
    }
    assert!(backlog.try_reserve().is_none());
    let key = backlog.take().unwrap();
    backlog.delivered(&key);
    assert!(backlog.try_reserve().is_some());
    assert!(Stamps::new(u64::MAX).is_err());
}
