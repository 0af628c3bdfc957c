//! Selections: the entries of a segment for a server that recovers some tablets.

use crate::replicas::support::{Reply, World, id, open_with};
use sprat_disk::{MemControl, MemDisk};
use sprat_store::replicas::Options;
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::group::{MARK_BYTES, encode_mark};
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION, OperationId};
use sprat_wire::op::{BackupRequest, REPLICA_BYTES, ReplicaId, Selection, Status};
use sprat_wire::tablet::{Range, Tablet, position};
use sprat_wire::value::ValueType;
use std::collections::BTreeSet;

const SEED: u64 = 77;

/// Number of objects of table 1. Table 2 has as many.
const OBJECTS: u32 = 4000;

fn push(bytes: &mut Vec<u8>, entry: &Entry<'_>) {
    let at = bytes.len();
    bytes.resize(at + entry.encoded_len(), 0);
    entry.encode(&mut bytes[at..]);
}

fn header(role: Role, digest: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = SegmentHeader { id: 7, safe_version: 1, role, digest: digest.to_vec() }.encode();
    push(
        &mut bytes,
        &Entry {
            kind: Kind::Segment,
            successor: false,
            table: 0,
            version: 0,
            key: &[],
            value: &header,
            value_type: ValueType::Bytes,
            expires: NEVER,
        },
    );
    bytes
}

fn push_completion(bytes: &mut Vec<u8>, table: u32, slot: u16, joined: bool) {
    push_completion_of(bytes, table, slot, 3, joined);
}

fn push_completion_of(bytes: &mut Vec<u8>, table: u32, slot: u16, sequence: u64, joined: bool) {
    push_this(
        bytes,
        (table, slot, sequence),
        &Completion { joined, status: Status::Ok, version: 1, position: None, result: &[] },
    );
}

fn push_this(
    bytes: &mut Vec<u8>,
    (table, slot, sequence): (u32, u16, u64),
    completion: &Completion<'_>,
) {
    let mut value = [0; MAX_COMPLETION];
    let len = completion.encode(&mut value);
    let key = OperationId { client: 1, slot, sequence, resent: false }.key();
    let (table, value) = (table | COMPLETIONS, &value[..len]);
    push(
        bytes,
        &Entry {
            kind: Kind::Object,
            successor: false,
            table,
            version: sequence,
            key: &key,
            value,
            value_type: ValueType::Bytes,
            expires: NEVER,
        },
    );
}

/// A segment of objects, tombstones and completions, some MB long.
fn segment() -> Vec<u8> {
    let mut bytes = header(Role::Head, &[7]);
    for number in 0..OBJECTS {
        for table in [1, 2] {
            let (key, value) = (number.to_le_bytes(), vec![9; number as usize % 1000]);
            let kind = if number % 10 == 0 { Kind::Tombstone } else { Kind::Object };
            let value = if kind == Kind::Tombstone { &7_u64.to_le_bytes()[..] } else { &value[..] };
            push(
                &mut bytes,
                &Entry {
                    kind,
                    successor: false,
                    table,
                    version: 5,
                    key: &key,
                    value,
                    value_type: ValueType::Bytes,
                    expires: NEVER,
                },
            );
        }
    }
    push_completion(&mut bytes, 1, 1, false);
    push_completion(&mut bytes, 2, 2, false);
    bytes
}

/// Makes a world with a sealed replica of these bytes.
fn with_replica(bytes: &[u8]) -> (World<MemDisk>, ReplicaId) {
    let options = Options { max_frames: 4, ..Options::new(*b"the test cluster", 5, 4) };
    let (mut world, _) = open_with(&MemControl::new(1), &options);
    let replica = id(3, 7);
    for (at, piece) in (0..).step_by(REPLICA_BYTES).zip(bytes.chunks(REPLICA_BYTES)) {
        let sealed = at as usize + piece.len() == bytes.len();
        let reply = world.ask(BackupRequest::Write {
            replica,
            offset: at,
            sealed,
            replacement: false,
            edition: 0,
            bytes: piece,
        });
        assert_eq!(reply.status, Status::Ok, "{}", reply.text());
    }
    (world, replica)
}

/// Reads all of a selection, and checks its length.
fn select(
    world: &mut World<MemDisk>,
    replica: ReplicaId,
    tablets: &[Tablet],
) -> Result<Vec<u8>, Reply> {
    let selection = Selection::encode(SEED, 3, tablets.iter().copied());
    let mut all = Vec::new();
    loop {
        let (offset, selection) =
            (u32::try_from(all.len()).unwrap(), Selection::parse(&selection).unwrap());
        let reply = world.ask(BackupRequest::Select { replica, offset, selection });
        if reply.status != Status::Ok {
            return Err(reply);
        }
        assert!(reply.body.len() <= REPLICA_BYTES);
        all.extend_from_slice(&reply.body);
        if !reply.more {
            assert_eq!(all.len() as u64, reply.number);
            return Ok(all);
        }
    }
}

/// Splits a segment into its header and the entries after it.
fn entries(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let len = Entry::parse_checked(&bytes[at..]).expect("an entry").encoded_len();
        all.push(&bytes[at..at + len]);
        at += len;
    }
    (all[0], all[1..].to_vec())
}

#[test]
fn selections_are_disjoint_and_cover_everything() {
    let bytes = segment();
    assert!(bytes.len() > REPLICA_BYTES, "several pieces");
    let (mut world, replica) = with_replica(&bytes);
    let (head, whole) = entries(&bytes);
    let mut given = BTreeSet::new();
    for (number, range) in Range::ALL.parts(5).into_iter().enumerate() {
        let part = select(&mut world, replica, &[Tablet { table: 1, range }]).unwrap();
        let (first, part) = entries(&part);
        assert_eq!(first, head);
        for bytes in part {
            let entry = Entry::parse(bytes).unwrap();
            let is_ours = entry.table == 1 && range.contains(position(SEED, 1, entry.key));
            assert!(is_ours || entry.table == 1 | COMPLETIONS, "{entry:?}");
            assert!(given.insert(bytes.to_vec()) || entry.table != 1, "once");
        }
        assert!(
            given.iter().any(|bytes| Entry::parse(bytes).unwrap().table == 1 | COMPLETIONS),
            "part {number}"
        );
    }
    let wanted = |bytes: &&&[u8]| Entry::parse(bytes).unwrap().table & !COMPLETIONS == 1;
    let of_table: BTreeSet<Vec<u8>> =
        whole.iter().filter(wanted).map(|bytes| bytes.to_vec()).collect();
    assert!(given == of_table, "{} of {}", given.len(), of_table.len());
    let both = select(&mut world, replica, &[Tablet::whole(1), Tablet::whole(2)]).unwrap();
    assert_eq!(entries(&both).1.into_iter().collect::<BTreeSet<_>>(), whole.into_iter().collect());
    assert_eq!(
        select(&mut world, replica, &[Tablet::whole(3)]).unwrap(),
        head,
        "the segment has nothing of table 3"
    );
    assert_eq!(world.read(replica).unwrap(), bytes, "a read returns the bytes as they are");
}

/// A joined completion counts only with the entry that follows it. At the end of a head that entry
/// is missing.
#[test]
fn a_cut_off_completion_is_not_served() {
    let cases = [
        (Role::Head, &[7][..], true, false),
        (Role::Head, &[7], false, true),
        (Role::Survivor, &[], true, true),
        // A copy of a head has only completions that count.
        (Role::Head, &[], true, true),
    ];
    for (role, digest, joined, counts) in cases {
        let mut bytes = header(role, digest);
        push_completion(&mut bytes, 1, 1, true);
        push(
            &mut bytes,
            &Entry {
                kind: Kind::Object,
                successor: false,
                table: 1,
                version: 1,
                key: b"key",
                value: b"value",
                value_type: ValueType::Bytes,
                expires: NEVER,
            },
        );
        push_completion(&mut bytes, 1, 2, joined);
        let (mut world, replica) = with_replica(&bytes);
        let given = select(&mut world, replica, &[Tablet::whole(1)]).unwrap();
        assert_eq!(
            entries(&given).1.len(),
            if counts { 3 } else { 2 },
            "{role:?} {digest:?} {joined}"
        );
    }
}

/// A group counts only as a whole.
#[test]
fn a_cut_off_group_is_not_served() {
    let object = |key: &'static [u8]| Entry {
        kind: Kind::Object,
        successor: false,
        table: 1,
        version: 1,
        key,
        value: b"value",
        value_type: ValueType::Bytes,
        expires: NEVER,
    };
    let len = object(b"a").encoded_len();
    for (has, counts) in [(0, 1), (1, 1), (2, 3), (3, 4)] {
        let mut bytes = header(Role::Head, &[7]);
        push(&mut bytes, &object(b"a"));
        let at = bytes.len();
        bytes.resize(at + MARK_BYTES, 0);
        encode_mark(2 * len, &mut bytes[at..]);
        for key in [&b"b"[..], b"c", b"d"].into_iter().take(has) {
            push(&mut bytes, &object(key));
        }
        let (mut world, replica) = with_replica(&bytes);
        let given = select(&mut world, replica, &[Tablet::whole(1)]).unwrap();
        assert_eq!(entries(&given).1.len(), counts, "{has} entries behind the mark");
    }
}

/// Each write leaves a completion. A server that recovers a part of a table gets the last
/// completion of each of the table's request slots.
#[test]
fn only_the_last_completion_of_a_slot_is_served() {
    let mut bytes = header(Role::Survivor, &[]);
    for (slot, sequence) in [(1, 3), (1, 5), (2, 1), (1, 4)] {
        push_completion_of(&mut bytes, 1, slot, sequence, false);
        push_completion_of(&mut bytes, 2, slot, sequence + 10, false);
    }
    let (mut world, replica) = with_replica(&bytes);
    let given = select(&mut world, replica, &[Tablet::whole(1)]).unwrap();
    let sequences = entries(&given).1.into_iter().map(|bytes| Entry::parse(bytes).unwrap().version);
    assert_eq!(sequences.collect::<Vec<_>>(), [5, 1]);
}

/// The end of a head may be in one replica and absent from another. A server that does not recover
/// the object's part of the table must learn only that the operation was begun. If the object's
/// part is recovered from the other replica, the operation was not executed.
#[test]
fn a_completion_in_a_head_is_served_with_its_object_only() {
    let (key, refused) = (&b"key"[..], &b"another"[..]);
    let halves = Range::ALL.parts(2);
    let half_of = |key| usize::from(!halves[0].contains(position(SEED, 1, key)));
    assert_ne!(half_of(key), half_of(refused), "the keys are in different halves");
    for (role, digest, is_end) in
        [(Role::Head, &[7][..], true), (Role::Head, &[], false), (Role::Survivor, &[], false)]
    {
        let mut bytes = header(role, digest);
        push_completion_of(&mut bytes, 1, 1, 3, true);
        push(
            &mut bytes,
            &Entry {
                kind: Kind::Tombstone,
                successor: false,
                table: 1,
                version: 1,
                key,
                value: &[0; 8],
                value_type: ValueType::Bytes,
                expires: NEVER,
            },
        );
        // The segment also has a refused operation on a key of the other half, and a completion
        // from another log.
        let refusal = |position| Completion {
            joined: false,
            status: Status::Conflict,
            version: 1,
            position,
            result: &[],
        };
        let at = position(SEED, 1, refused);
        push_this(&mut bytes, (1, 2, 5), &refusal(Some(at)));
        push_completion_of(&mut bytes, 1, 3, 7, false);
        // This is the first operation in its slot.
        push_completion_of(&mut bytes, 1, 4, 1, true);
        push(
            &mut bytes,
            &Entry {
                kind: Kind::Tombstone,
                successor: false,
                table: 1,
                version: 1,
                key,
                value: &[0; 8],
                value_type: ValueType::Bytes,
                expires: NEVER,
            },
        );
        let (mut world, replica) = with_replica(&bytes);
        for (half, &range) in halves.iter().enumerate() {
            let given = select(&mut world, replica, &[Tablet { table: 1, range }]).unwrap();
            let given =
                entries(&given).1.into_iter().map(|bytes| Entry::parse_checked(bytes).unwrap());
            let completions = given.filter_map(|entry| {
                let completion = Completion::of(&entry)?;
                Some((entry.version, completion.is_begun(), completion.position))
            });
            let (begun, known) = (|number| (number, true, None), |number| (number, false, None));
            let is_keys = half == half_of(key);
            let (removed, first) = match (is_end, is_keys) {
                (true, true) => {
                    [3, 1].map(|number| (number, false, Some(position(SEED, 1, key)))).into()
                }
                (true, false) => (begun(3), begun(1)),
                (false, _) => (known(3), known(1)),
            };
            let refused = if is_keys { begun(5) } else { (5, false, Some(at)) };
            let wanted = [removed, refused, known(7), first];
            assert_eq!(completions.collect::<Vec<_>>(), wanted, "{role:?} {digest:?} half {half}");
        }
    }
}

/// If the last completion of a slot was cut off, the completion before it is served.
#[test]
fn the_completion_before_a_cut_off_one_is_served() {
    let mut bytes = header(Role::Head, &[7]);
    push_completion_of(&mut bytes, 1, 1, 3, false);
    push_completion_of(&mut bytes, 1, 1, 4, true);
    let (mut world, replica) = with_replica(&bytes);
    let given = select(&mut world, replica, &[Tablet::whole(1)]).unwrap();
    let sequences = entries(&given).1.into_iter().map(|bytes| Entry::parse(bytes).unwrap().version);
    assert_eq!(sequences.collect::<Vec<_>>(), [3]);
}

#[test]
fn an_invalid_segment_is_refused() {
    let mut bytes = segment();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let (mut world, replica) = with_replica(&bytes);
    let refused = select(&mut world, replica, &[Tablet::whole(1)]).unwrap_err();
    assert_eq!(refused.status, Status::Refused);
    assert!(refused.text().contains("of the segment"), "{}", refused.text());
    let (mut world, replica) = with_replica(&bytes[header(Role::Head, &[7]).len()..middle / 2]);
    let refused = select(&mut world, replica, &[Tablet::whole(1)]).unwrap_err();
    assert_eq!(refused.status, Status::Refused, "no header, and an entry that is cut");
}
