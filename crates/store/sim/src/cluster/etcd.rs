//! A model of etcd in memory, which several coordinators share: a register, which names the leader,
//! and rows, with the semantics of etcd's transactions. A coordinator's connection may fail before
//! or after a transaction, or deliver the transaction much later.

use crate::random::Random;
use sprat_net::Nanos;
use sprat_store::coordinator::election::LeaderRecord;
use sprat_store::coordinator::{Metadata, MetadataError, MetadataMemory};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type Changes = Vec<(String, Option<Vec<u8>>)>;

/// The register, the rows, and transactions that are still in flight.
pub(super) struct Etcd {
    pub(super) now: Nanos,
    revision: u64,
    holder: Option<LeaderRecord>,
    rows: MetadataMemory,
    late: Vec<(Nanos, u64, Changes)>,
    random: Random,
}

/// Shared by all coordinators of a history.
pub(super) type Shared = Rc<RefCell<Etcd>>;

impl Etcd {
    pub(super) fn shared(seed: u64) -> Shared {
        Rc::new(RefCell::new(Self {
            now: Nanos(0),
            revision: 0,
            holder: None,
            rows: MetadataMemory::default(),
            late: Vec::new(),
            random: Random::new(seed),
        }))
    }

    /// Advances time, and applies the transactions that have arrived by then.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.now = now;
        let (due, late) =
            std::mem::take(&mut self.late).into_iter().partition(|&(at, ..)| at <= now);
        self.late = late;
        let due: Vec<(Nanos, u64, Changes)> = due;
        for (_, term, changes) in due {
            let _ = self.transact(Some(term), &changes); // no coordinator waits for the result
        }
    }

    /// Returns the current leader.
    pub(super) fn holder(&self) -> Option<LeaderRecord> {
        self.holder.clone()
    }

    /// Makes a coordinator the leader, if `over` is still the current term.
    pub(super) fn claim(&mut self, over: u64, life: u64, locator: &str) -> Option<u64> {
        (self.holder.as_ref().map_or(0, |holder| holder.term) == over).then(|| {
            self.revision += 1;
            self.holder =
                Some(LeaderRecord { term: self.revision, life, locator: locator.to_owned() });
            self.revision
        })
    }

    /// Returns a number below `bound`, drawn from etcd's own random sequence.
    pub(super) fn chance(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn transact(
        &mut self,
        term: Option<u64>,
        changes: &[(String, Option<Vec<u8>>)],
    ) -> Result<(), MetadataError> {
        if term.is_some_and(|term| self.holder.as_ref().is_none_or(|holder| holder.term != term)) {
            return Err(MetadataError::Fenced { place: "etcd".into() });
        }
        self.revision += 1;
        self.rows.apply(changes)
    }
}

/// A coordinator's metadata in etcd.
#[derive(Clone)]
pub(super) struct Rows {
    etcd: Shared,
    /// The coordinator's term. `None` for a single coordinator: no other one writes, and its
    /// metadata are on its own disk.
    term: Option<u64>,
    /// Whether etcd can be reached.
    open: Rc<Cell<bool>>,
}

impl Rows {
    pub(super) fn new(etcd: &Shared, term: Option<u64>, open: &Rc<Cell<bool>>) -> Self {
        Self { etcd: Rc::clone(etcd), term, open: Rc::clone(open) }
    }
}

impl Metadata for Rows {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        match self.open.get() {
            true => self.etcd.borrow().rows.load(),
            false => {
                Err(MetadataError::Unavailable { place: "etcd".into(), cause: "cut off".into() })
            }
        }
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        let etcd = &mut *self.etcd.borrow_mut();
        let Some(term) = self.term else { return etcd.transact(None, changes) };
        let fate = etcd.chance(100);
        let unknown =
            || Err(MetadataError::Unknown { place: "etcd".into(), cause: "no answer".into() });
        match (self.open.get(), fate) {
            (false, 0..50) => {
                Err(MetadataError::Unavailable { place: "etcd".into(), cause: "cut off".into() })
            }
            // The changes are not applied, or applied later; this sometimes happens over an open
            // connection too.
            (false, 50..75) | (true, 0) => unknown(),
            (false, _) | (true, 1) => {
                let at = etcd.now + std::time::Duration::from_micros(etcd.chance(2_000_000));
                etcd.late.push((at, term, changes.to_vec()));
                unknown()
            }
            (true, 2) => {
                let _ = etcd.transact(Some(term), changes); // applied, but the answer is lost
                unknown()
            }
            (true, _) => etcd.transact(Some(term), changes),
        }
    }

    /// Returns a small number, so that changes are split into portions.
    fn most_changes(&self) -> usize {
        3
    }
}
