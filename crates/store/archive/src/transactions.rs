//! Ends the transactions that were under way at a point, as servers would have done.
//!
//! A transaction is committed if all its operations are prepared, or one of them is committed; in
//! the logs of all servers together, as they were at the point.

use crate::contents::{Newest, Owned, Segments, key_hash, read};
use crate::error::Error;
use crate::point::PointServer;
use sprat_store::coordinator::{Catalog, MetadataMemory};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::once::{COMPLETIONS, Completion, OperationId};
use sprat_wire::op::Status;
use sprat_wire::tablet::table_of;
use sprat_wire::transaction::{
    Decision, OperationState, PREPARED, Participant, Plan, TransactionAction, Votes,
    parse_prepared_key,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a committed operation still has to do to its object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LastChange {
    /// The object's table.
    pub table: u32,
    /// The object's key.
    pub key: Vec<u8>,
    /// The bytes of the operation's plan.
    plan: Vec<u8>,
}

impl LastChange {
    /// Returns what the operation does.
    ///
    /// # Panics
    /// Never: the plan was checked when it was found.
    #[must_use]
    pub fn action(&self) -> TransactionAction<'_> {
        Plan::parse(&self.plan).expect("checked when it was found").action()
    }
}

/// What the logs have of transactions.
#[derive(Default)]
struct Found {
    /// The prepared entries that were not removed: by table and operation, the object's key and the
    /// plan.
    prepared: BTreeMap<(u32, OperationId), (Vec<u8>, Vec<u8>)>,
    /// The newest completion of each request slot, by table and key: the sequence number, and how
    /// the operation ended; `None`: its result is unknown.
    completions: BTreeMap<(u32, Vec<u8>), (u64, Option<OperationState>)>,
}

impl Found {
    fn add_completion(&mut self, entry: &Entry<'_>) {
        let Some(completion) = Completion::of(entry) else { return };
        let state = (!completion.is_begun()).then_some(match completion.status {
            Status::Ok => OperationState::Committed,
            _ => OperationState::Aborted,
        });
        let slot = (table_of(entry.table), entry.key.to_vec());
        let known = self.completions.entry(slot).or_insert((entry.version, state));
        if entry.version > known.0 || (entry.version == known.0 && known.1.is_none()) {
            *known = (entry.version, state);
        }
    }

    /// Returns the state of an operation, as a server that has its table's log would.
    fn state(&self, table: u32, id: &OperationId) -> OperationState {
        let prepared = || match self.prepared.contains_key(&(table, id.unmarked())) {
            true => OperationState::Prepared,
            false => OperationState::Ended,
        };
        match self.completions.get(&(table, id.key().to_vec())) {
            Some((sequence, _)) if *sequence > id.sequence => OperationState::Ended,
            Some((sequence, Some(state))) if *sequence == id.sequence => *state,
            _ => prepared(),
        }
    }
}

/// Returns the changes of committed transactions that were not made yet when the logs of these
/// servers were cut. `catalog` is that of the cut.
///
/// # Errors
/// Those of `segments`.
pub fn last_changes(
    segments: &dyn Segments,
    servers: &[PointServer],
    catalog: &Catalog<MetadataMemory>,
) -> Result<Vec<LastChange>, Error> {
    let mut found = Found::default();
    for server in servers {
        let owned = Owned::new(catalog, server.id);
        let mut newest = Newest::default();
        let mut entries = BTreeMap::new();
        read(segments, server, |segment, entry| {
            if entry.kind == Kind::Object && entry.table & COMPLETIONS != 0 {
                found.add_completion(entry);
            }
            if entry.table & PREPARED != 0
                && entry.kind != Kind::Segment
                && owned.has(segment.id, entry)
            {
                let hash = key_hash(entry);
                newest.add(hash, entry);
                if entry.kind == Kind::Object {
                    let content = (entry.table, entry.key.to_vec(), entry.value.to_vec());
                    entries.insert((hash, entry.version), content);
                }
            }
            Ok(())
        })?;
        for ((hash, version), (table, key, plan)) in entries {
            let id = parse_prepared_key(&key).filter(|_| Plan::parse(&plan).is_some());
            if let Some((key, id)) = id
                && newest.is(&hash, version)
            {
                found.prepared.insert((table_of(table), id.unmarked()), (key.to_vec(), plan));
            }
        }
    }
    // Servers count an operation on a table that was dropped as prepared.
    let tables: BTreeSet<u32> = catalog.tables().map(|table| table.id).collect();
    let state = |participant: Participant| match tables.contains(&participant.table) {
        true => found.state(participant.table, &participant.id),
        false => OperationState::Prepared,
    };
    let mut changes = Vec::new();
    for ((table, id), (key, plan)) in &found.prepared {
        if found.state(*table, id) != OperationState::Prepared {
            continue;
        }
        let mut votes = Votes::default();
        let participants = Plan::parse(plan).expect("checked above").participants();
        participants.for_each(|participant| votes.add(state(participant)));
        if votes.decision() == Decision::Commit {
            changes.push(LastChange { table: *table, key: key.clone(), plan: plan.clone() });
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::count;
    use crate::folder::Folder;
    use crate::point::SegmentFile;
    use sprat_client::TableOptions;
    use sprat_wire::expiry::NEVER;
    use sprat_wire::tablet::position;
    use sprat_wire::transaction::prepared_key;
    use sprat_wire::value::ValueType;
    use std::slice::from_ref;

    /// The table of all objects; at server 1 up to the middle of all positions, then at server 2.
    const TABLE: u32 = 1;

    /// The operations of a transaction, one at each server.
    const IDS: [OperationId; 2] = [
        OperationId { client: 7, slot: 0, sequence: 5, resent: false },
        OperationId { client: 7, slot: 1, sequence: 9, resent: false },
    ];

    fn entry(kind: Kind, table: u32, key: &[u8], version: u64, value: &[u8]) -> Vec<u8> {
        let (successor, value_type, expires) = (false, ValueType::Bytes, NEVER);
        let entry = Entry { kind, successor, table, version, key, value, value_type, expires };
        let mut bytes = vec![0; entry.encoded_len()];
        entry.encode(&mut bytes);
        bytes
    }

    /// The cluster's id, the seed of positions.
    const CLUSTER: u64 = 1;

    /// Returns a key that a server has.
    fn key(server: usize) -> Vec<u8> {
        let is_its = |key: &Vec<u8>| position(CLUSTER, TABLE, key) >> 63 == server as u64;
        let mut keys = (0..).map(|number: u32| number.to_le_bytes().to_vec());
        keys.find(is_its).expect("half of all keys")
    }

    fn prepared(kind: Kind, server: usize) -> Vec<u8> {
        let participant = |id| Participant { table: TABLE, position: 0, id };
        let plan = Plan::encode(TransactionAction::Write(b"new", None), &IDS.map(participant));
        let key = prepared_key(&key(server), &IDS[server]);
        let value = if kind == Kind::Object { &plan[..] } else { &[0; 8] };
        entry(kind, TABLE | PREPARED, &key, 3, value)
    }

    fn completion(server: usize, sequence: u64, status: Status) -> Vec<u8> {
        let completion =
            Completion { joined: false, status, version: 4, position: Some(0), result: &[] };
        let mut value = [0; sprat_wire::once::MAX_COMPLETION];
        let len = completion.encode(&mut value);
        let key = IDS[server].key();
        entry(Kind::Object, TABLE | COMPLETIONS, &key, sequence, &value[..len])
    }

    /// Returns the keys that are still to be changed when the logs of two servers end with these
    /// entries.
    fn changed(logs: [&[Vec<u8>]; 2]) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().expect("a folder");
        let mut folder = Folder::lock(&dir.path().join("backups"), true).expect("a new one");
        let mut catalog = Catalog::open(MetadataMemory::default(), CLUSTER).expect("an empty one");
        let servers = ["a", "b"].map(|locator| catalog.enlist(0, (locator, ""), 2).expect("room"));
        let table = catalog.create("t", TableOptions::of(2), &servers).expect("room");
        assert_eq!((table.id, table.tablets.len()), (TABLE, 2));
        folder.claim(catalog.cluster()).expect("a new one");
        let log = |(id, entries): (u32, &[Vec<u8>])| {
            let bytes = entries.concat();
            let segment = SegmentFile {
                id: 1,
                bytes: bytes.len() as u64,
                entries: count(&bytes).expect("entries"),
                blake3: blake3::hash(&bytes).to_hex().to_string(),
            };
            folder.add_segment(id, &segment, &bytes).expect("written");
            PointServer { id, segments: vec![segment] }
        };
        let servers: Vec<_> = servers.into_iter().zip(logs).map(log).collect();
        let catalog = Catalog::<MetadataMemory>::from_copy(&catalog.copy()).expect("a copy");
        let changes = last_changes(&folder, &servers, &catalog);
        changes.expect("whole").into_iter().map(|change| change.key).collect()
    }

    #[test]
    fn a_transaction_is_committed_if_all_logs_together_say_so() {
        let [here, there] = [0, 1].map(|server| prepared(Kind::Object, server));
        let gone = prepared(Kind::Tombstone, 1);
        let ended = |server, status| completion(server, IDS[server].sequence, status);
        let both = [key(0), key(1)];
        assert_eq!(changed([from_ref(&here), from_ref(&there)]), both);
        // The other server has not prepared its operation, and now never will.
        assert_eq!(changed([from_ref(&here), &[]]), [[0_u8; 0]; 0]);
        // One operation is committed already, and only its change is made.
        let committed = [there.clone(), ended(1, Status::Ok)];
        assert_eq!(changed([from_ref(&here), &committed]), both[..1]);
        let aborted = [there.clone(), ended(1, Status::Aborted)];
        assert_eq!(changed([from_ref(&here), &aborted]), [[0_u8; 0]; 0]);
        // An earlier operation of the same slot says nothing.
        let earlier = [there.clone(), completion(1, IDS[1].sequence - 1, Status::Aborted)];
        assert_eq!(changed([from_ref(&here), &earlier]), both);
        // Both are decided: the changes are in the logs.
        let here_committed = [here, ended(0, Status::Ok)];
        assert_eq!(changed([&here_committed, &committed]), [[0_u8; 0]; 0]);
        let removed = [there, ended(1, Status::Ok), gone];
        assert_eq!(changed([&here_committed, &removed]), [[0_u8; 0]; 0]);
    }
}
