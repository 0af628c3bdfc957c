//! Tablets that move away: what is given of them, and what has changed since.

use sprat_log::{Log, Ref};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION, OperationId};
use sprat_wire::op::{MoveCursor, MoveOrder, MoveStage, Request};
use sprat_wire::tablet::Tablet;
use sprat_wire::value::ValueType;
use std::collections::BTreeSet;

/// Bytes of entries that are given at once, unless one alone is longer: some 30 us of either
/// server.
const GIVE_BYTES: usize = 8 << 10;

/// Entries that are given at once.
const GIVE_ENTRIES: usize = 128;

/// Most changes of a tablet that wait to be given. Beyond, those who change it wait.
pub(crate) const MAX_CHANGED: usize = 1 << 18;

/// A key of which something has changed: of a completion, or of an object.
type Changed = (bool, Box<[u8]>);

struct Departure {
    order: MoveOrder,
    /// Keys changed since the order came and not given since.
    changed: BTreeSet<Changed>,
    /// The batch of changes given last.
    batch: u64,
    /// What was in it: it may not have arrived.
    given: Vec<Changed>,
    /// The tablet stands still: what is given now is the last of it.
    frozen: bool,
}

/// What of an answer is not entries.
pub(crate) struct Given {
    /// The cursor to go on from, or changes left.
    pub(crate) number: u64,
    pub(crate) more: bool,
}

/// All tablets that move away from here.
#[derive(Default)]
pub(crate) struct Leaving {
    departures: Vec<Departure>,
    /// Used again by each answer.
    found: Vec<Ref>,
}

impl Leaving {
    /// These are to move away now. One that is not among them any more stays, and goes on, or is
    /// another's already.
    pub(crate) fn assign(&mut self, orders: &[MoveOrder]) {
        self.departures.retain(|departure| orders.contains(&departure.order));
        for &order in orders {
            if self.departures.iter().all(|departure| departure.order != order) {
                let (changed, given) = (BTreeSet::new(), Vec::new());
                self.departures.push(Departure { order, changed, batch: 0, given, frozen: false });
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.departures.is_empty()
    }

    /// How they stand, in words.
    pub(crate) fn describe(&self) -> String {
        let departure = |Departure { order, changed, batch, frozen, .. }: &Departure| {
            let (tablet, to) = (order.tablet, order.to);
            format!(
                "{tablet} leaves for server {to}, batch {batch}, {} changes, frozen {frozen}",
                changed.len()
            )
        };
        self.departures.iter().map(departure).collect::<Vec<_>>().join("; ")
    }

    /// Whether a request has to wait, whose object is at `position` of `tablet`: that stands still,
    /// or changes faster than it can be told.
    pub(crate) fn holds_back(&self, request: &Request<'_>, tablet: Tablet, position: u64) -> bool {
        self.departures.iter().filter(|departure| departure.order.tablet.table == tablet.table).any(
            |departure| {
                let range = departure.order.tablet.range;
                let concerns = match request {
                    Request::Scan { .. } => range.overlap(tablet.range).is_some(),
                    _ => range.contains(position),
                };
                let is_behind = request.changes_object() && departure.changed.len() >= MAX_CHANGED;
                concerns && (departure.frozen || is_behind)
            },
        )
    }

    /// An object has changed, by an operation that may have an id.
    ///
    /// # Panics
    /// When its tablet stands still.
    pub(crate) fn note(
        &mut self,
        log: &Log,
        table: u32,
        key: &[u8],
        operation: Option<&OperationId>,
    ) {
        let position = log.hash(table, key).reverse_bits();
        for departure in &mut self.departures {
            let tablet = departure.order.tablet;
            if tablet.table == table && tablet.range.contains(position) {
                assert!(!departure.frozen, "changed while it stood still");
                departure.changed.insert((false, key.into()));
                departure.changed.extend(operation.map(|id| (true, Box::from(&id.key()[..]))));
            }
        }
    }

    /// Gives what is asked for: the least version of new objects, then entries. `None` when there
    /// is no such move, or what is asked for is long past.
    pub(crate) fn give(
        &mut self,
        log: &Log,
        (order, stage, from): (u64, MoveStage, &MoveCursor),
        out: &mut Vec<u8>,
    ) -> Option<Given> {
        let Self { departures, found } = self;
        let departure = departures.iter_mut().find(|departure| departure.order.id == order)?;
        out.extend_from_slice(&log.least_version().to_le_bytes());
        match stage {
            MoveStage::Completions | MoveStage::Objects => {
                Some(departure.copy(log, stage, from.after.get(), found, out))
            }
            MoveStage::Changes | MoveStage::Rest => {
                departure.frozen |= stage == MoveStage::Rest;
                departure.tell(log, from.batch.get(), out)
            }
        }
    }
}

impl Departure {
    /// Objects or completions behind a position.
    fn copy(
        &self,
        log: &Log,
        stage: MoveStage,
        after: u64,
        found: &mut Vec<Ref>,
        out: &mut Vec<u8>,
    ) -> Given {
        let Tablet { table, range } = self.order.tablet;
        let (table, before, last) = match stage {
            MoveStage::Completions => (table | COMPLETIONS, None, u64::MAX),
            _ => (table, range.first.checked_sub(1), range.last),
        };
        let after = if after == MoveCursor::FROM_START { before } else { Some(after) };
        found.clear();
        let next = log.scan(table, (after, last), GIVE_BYTES, GIVE_ENTRIES, found);
        found.iter().for_each(|&found| self.push_known(log, found, out));
        Given { number: next.unwrap_or(0), more: next.is_some() }
    }

    /// An object, or a completion: of one that may yet turn out not to count, if it is of another
    /// tablet, no more than that it was begun.
    fn push_known(&self, log: &Log, found: Ref, out: &mut Vec<u8>) {
        let entry = log.entry(found);
        let position = Completion::of(&entry).and_then(|completion| completion.position);
        if position.is_none_or(|position| self.order.tablet.range.contains(position)) {
            return push(out, &entry);
        }
        let mut value = [0; MAX_COMPLETION];
        let len = Completion::BEGUN.encode(&mut value);
        push(out, &Entry { value: &value[..len], ..entry });
    }

    /// The next changes, or those that may not have arrived again.
    fn tell(&mut self, log: &Log, batch: u64, out: &mut Vec<u8>) -> Option<Given> {
        if batch == self.batch {
            self.changed.extend(self.given.drain(..));
        } else if batch == self.batch + 1 {
            self.given.clear();
            self.batch = batch;
        } else {
            return None;
        }
        let begin = out.len();
        while out.len() - begin < GIVE_BYTES
            && self.given.len() < GIVE_ENTRIES
            && let Some(changed) = self.changed.pop_first()
        {
            let (is_completion, key) = &changed;
            let table = self.order.tablet.table | if *is_completion { COMPLETIONS } else { 0 };
            match log.find(table, key) {
                Some(found) => self.push_known(log, found, out),
                // Of a completion that its log has forgotten nobody will ask any more.
                None if *is_completion => {}
                None => {
                    let version = log.least_version() - 1;
                    let (kind, value_type) = (Kind::Tombstone, ValueType::Bytes);
                    push(
                        out,
                        &Entry {
                            kind,
                            successor: false,
                            table,
                            version,
                            key,
                            value: &[0; 8],
                            value_type,
                        },
                    );
                }
            }
            self.given.push(changed);
        }
        Some(Given { number: self.changed.len() as u64, more: !self.changed.is_empty() })
    }
}

fn push(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let entry = Entry { successor: false, ..*entry };
    let at = out.len();
    out.resize(at + entry.encoded_len(), 0);
    entry.encode(&mut out[at..]);
}
