//! The source of a migration: returns a tablet's entries on request, and tracks the changes since
//! the migration began.

use sprat_log::{Log, Ref};
use sprat_wire::elements::{self, ELEMENTS};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::expiry::NEVER;
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION, OperationId};
use sprat_wire::op::{MoveCursor, MoveOrder, MoveStage, Request};
use sprat_wire::tablet::Tablet;
use sprat_wire::transaction::PREPARED;
use sprat_wire::value::ValueType;
use std::collections::BTreeSet;

/// Bytes of entries at which a reply ends: about 30 us of work for either server. The entry that
/// reaches this limit is sent whole.
const BATCH_BYTES: usize = 8 << 10;

/// Number of entries at which a reply ends. Only entries whose keys have the same hash can exceed
/// it.
const BATCH_ENTRIES: usize = 128;

/// While this number of changed keys of a tablet, or more, wait to be sent, clients that change the
/// tablet must retry.
pub(crate) const MAX_CHANGED: usize = 1 << 18;

/// A changed object, completion or prepared entry: the id of the table that has it, and its key.
pub(crate) type ChangedKey = (u32, Box<[u8]>);

struct MigrationSource {
    order: MoveOrder,
    /// Keys that were changed after the order to move arrived, and whose latest change was not sent
    /// yet.
    changed: BTreeSet<ChangedKey>,
    /// Number of the last batch of changes that was sent.
    batch: u64,
    /// The keys in that batch, which may not have arrived.
    sent: Vec<ChangedKey>,
    /// Whether the tablet is frozen. Then the entries that are sent now are the tablet's last.
    frozen: bool,
}

/// The header fields of a reply with entries.
pub(crate) struct CollectedBatch {
    /// The position after which the scan continues (zero at its end), or the number of changes that
    /// are left.
    pub(crate) number: u64,
    pub(crate) more: bool,
}

/// All tablets that move away from here.
#[derive(Default)]
pub(crate) struct MigrationSources {
    sources: Vec<MigrationSource>,
    /// Reused by each reply.
    found: Vec<Ref>,
}

impl MigrationSources {
    /// Replaces the migrations by those that the coordinator orders now. A tablet whose migration
    /// is no longer ordered stays here and is served again, or has its new owner already.
    pub(crate) fn assign(&mut self, log: &Log, orders: &[MoveOrder]) {
        self.sources.retain(|source| orders.contains(&source.order));
        for &order in orders {
            if self.sources.iter().all(|source| source.order != order) {
                // There are few prepared entries, so they travel with the changes.
                let prepared = log.prepared_keys(order.tablet);
                let changed = prepared.map(|key| (order.tablet.table | PREPARED, key.into()));
                let (changed, sent) = (changed.collect(), Vec::new());
                self.sources.push(MigrationSource {
                    order,
                    changed,
                    batch: 0,
                    sent,
                    frozen: false,
                });
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Renders the state of all migrations for people.
    pub(crate) fn describe(&self) -> String {
        let source = |MigrationSource { order, changed, batch, frozen, .. }: &MigrationSource| {
            let (tablet, to) = (order.tablet, order.to);
            format!(
                "{tablet} leaves for server {to}, batch {batch}, {} changes, frozen {frozen}",
                changed.len()
            )
        };
        self.sources.iter().map(source).collect::<Vec<_>>().join("; ")
    }

    /// Returns whether a request must be retried later, because the tablet is frozen or changes
    /// faster than its changes can be sent. `position` is the position of the request's object in
    /// `tablet`.
    pub(crate) fn holds_back(&self, request: &Request<'_>, tablet: Tablet, position: u64) -> bool {
        self.sources.iter().filter(|source| source.order.tablet.table == tablet.table).any(
            |source| {
                let range = source.order.tablet.range;
                let concerns = match request {
                    Request::Scan { .. } | Request::ScanRange { .. } => {
                        range.overlap(tablet.range).is_some()
                    }
                    _ => range.contains(position),
                };
                let is_behind = request.changes_object() && source.changed.len() >= MAX_CHANGED;
                concerns && (source.frozen || is_behind)
            },
        )
    }

    /// Returns whether a part of a tablet is frozen, so that nothing may be read there.
    pub(crate) fn is_frozen(&self, tablet: Tablet) -> bool {
        let is_part =
            |of: &Tablet| of.table == tablet.table && of.range.overlap(tablet.range).is_some();
        self.sources.iter().any(|source| source.frozen && is_part(&source.order.tablet))
    }

    /// Records that an object has changed, by an operation that may have an id.
    ///
    /// # Panics
    /// When its tablet is frozen.
    pub(crate) fn note(
        &mut self,
        log: &Log,
        table: u32,
        key: &[u8],
        operation: Option<&OperationId>,
    ) {
        let position = log.position_of(table, key);
        let completion = operation.map(|id| (table | COMPLETIONS, Box::from(&id.key()[..])));
        self.note_at((table, position), [Some((table, key.into())), completion]);
    }

    /// Records that entries have changed which move with the object at a position of a table.
    ///
    /// # Panics
    /// When its tablet is frozen.
    pub(crate) fn note_at<const COUNT: usize>(
        &mut self,
        (table, position): (u32, u64),
        changed: [Option<ChangedKey>; COUNT],
    ) {
        for source in &mut self.sources {
            let tablet = source.order.tablet;
            if tablet.table == table && tablet.range.contains(position) {
                assert!(!source.frozen, "changed while it stood still");
                source.changed.extend(changed.iter().flatten().cloned());
            }
        }
    }

    /// Records that an object was evicted. If its tablet is frozen, the target may keep the object:
    /// no client can have found it missing here.
    pub(crate) fn note_evicted(&mut self, log: &Log, table: u32, key: &[u8]) {
        let position = log.position_of(table, key);
        for source in &mut self.sources {
            let tablet = source.order.tablet;
            if tablet.table == table && tablet.range.contains(position) && !source.frozen {
                source.changed.insert((table, key.into()));
            }
        }
    }

    /// Records that a table has a new time record, which all its tablets need that are not frozen.
    pub(crate) fn note_record(&mut self, table: u32, record: ChangedKey) {
        for source in &mut self.sources {
            if source.order.tablet.table == table && !source.frozen {
                source.changed.insert(record.clone());
            }
        }
    }

    /// Writes to `out` what the target requests: the lowest version of new objects, then entries.
    /// Returns `None` when there is no such migration, or when the request is outdated.
    pub(crate) fn collect(
        &mut self,
        log: &Log,
        (order, stage, from): (u64, MoveStage, &MoveCursor),
        out: &mut Vec<u8>,
    ) -> Option<CollectedBatch> {
        let Self { sources, found } = self;
        let source = sources.iter_mut().find(|source| source.order.id == order)?;
        out.extend_from_slice(&log.least_version().to_le_bytes());
        match stage {
            MoveStage::Completions | MoveStage::Objects | MoveStage::Elements => {
                Some(source.scan_batch(log, stage, from.after.get(), found, out))
            }
            MoveStage::Changes | MoveStage::Rest => {
                source.frozen |= stage == MoveStage::Rest;
                source.next_changes(log, from.batch.get(), out)
            }
        }
    }
}

impl MigrationSource {
    /// Writes objects, elements or completions that lie behind a position of the tablet.
    fn scan_batch(
        &self,
        log: &Log,
        stage: MoveStage,
        after: u64,
        found: &mut Vec<Ref>,
        out: &mut Vec<u8>,
    ) -> CollectedBatch {
        let Tablet { table, range } = self.order.tablet;
        let (table, before, last) = match stage {
            MoveStage::Completions => (table | COMPLETIONS, None, u64::MAX),
            // The log has elements in the order of their hashes, those of all tablets.
            MoveStage::Elements => (table | ELEMENTS, None, u64::MAX),
            _ => (table, range.first.checked_sub(1), range.last),
        };
        let after = if after == MoveCursor::FROM_START { before } else { Some(after) };
        found.clear();
        let next = log.scan(table, (after, last), BATCH_BYTES, BATCH_ENTRIES, found);
        if stage == MoveStage::Elements {
            found.retain(|&at| range.contains(elements::position(log.entry(at).key)));
        }
        found.iter().for_each(|&found| self.push_known(log, found, out));
        CollectedBatch { number: next.unwrap_or(0), more: next.is_some() }
    }

    /// Writes an object or a completion. A completion whose operation belongs to another tablet may
    /// later turn out not to count. In its place the source sends only that the operation was
    /// begun.
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

    /// Writes the next changes. If the last batch may not have arrived, writes its changes again.
    fn next_changes(&mut self, log: &Log, batch: u64, out: &mut Vec<u8>) -> Option<CollectedBatch> {
        if batch == self.batch {
            self.changed.extend(self.sent.drain(..));
        } else if batch == self.batch + 1 {
            self.sent.clear();
            self.batch = batch;
        } else {
            return None;
        }
        let begin = out.len();
        while out.len() - begin < BATCH_BYTES
            && self.sent.len() < BATCH_ENTRIES
            && let Some(changed) = self.changed.pop_first()
        {
            let (table, key) = &changed;
            match log.find(*table, key) {
                Some(found) => self.push_known(log, found, out),
                // The log has forgotten the completion, so no client waits for it any more.
                None if table & COMPLETIONS != 0 => {}
                None => {
                    let version = log.least_version() - 1;
                    let (kind, value_type) = (Kind::Tombstone, ValueType::Bytes);
                    push(
                        out,
                        &Entry {
                            kind,
                            successor: false,
                            table: *table,
                            version,
                            key,
                            value: &[0; 8],
                            value_type,
                            expires: NEVER,
                        },
                    );
                }
            }
            self.sent.push(changed);
        }
        Some(CollectedBatch { number: self.changed.len() as u64, more: !self.changed.is_empty() })
    }
}

fn push(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let entry = Entry { successor: false, ..*entry };
    let at = out.len();
    out.resize(at + entry.encoded_len(), 0);
    entry.encode(&mut out[at..]);
}
