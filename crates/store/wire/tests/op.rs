//! Requests and responses survive the wire, and no bytes make the parsers panic.

use proptest::prelude::*;
use sprat_wire::elements::{CollectionId, CollectionKind, ELEMENTS};
use sprat_wire::entry::{Entry, Kind, Role};
use sprat_wire::expiry::{NEVER, TIME_CLIENT, Ttl};
use sprat_wire::index::{
    FieldSource, IndexDefinition, IndexRecord, MAX_INDEX_KEY, OWN_KEYS, SortOrder, new_index,
};
use sprat_wire::once::{
    COMPLETIONS, Completion, MAX_COMPLETION, MAX_OPERATION_SLOTS, MAX_RESULT, OperationId,
};
use sprat_wire::op::{
    Answer, Assignment, BackupRequest, BatchItems, ClusterSeen, Condition, CopyCursor, CopyStep,
    Item, Items, Load, MAX_BATCH, MAX_RESTORED_VERSION, Malformed, MoveCursor, MoveOrder,
    MoveStage, RangeBytes, Records, RecoveredPart, RecoveryOrder, ReplicaId, ReplicaRecord,
    Request, Selection, ServerRecord, Status, TableOptions, TableRecord, TabletRecord, WatchCursor,
    WhenFull, encode_answer, encode_object, fits_record, push_counter, push_item, push_replica,
    push_server, push_table, write_scan_record,
};
use sprat_wire::order::{KeyRange, RangePage, RangeQuery};
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::{Decision, Participant, Plan, TransactionAction};
use sprat_wire::value::ValueType;
use sprat_wire::{MAX_KEY, MAX_SEGMENT_ID, MAX_SERVER_ID, MAX_VERSION, SEGMENT_BYTES};
use std::ops::Bound;
use zerocopy::IntoBytes;

fn bytes_of(request: &Request<'_>) -> Vec<u8> {
    request.to_bytes(None)
}

fn by_age() -> IndexDefinition {
    let source = FieldSource::Json { path: "age".to_owned() };
    IndexDefinition { source, field_type: ValueType::Integer }
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::None),
        Just(Condition::Absent),
        Just(Condition::Exists),
        (0..=sprat_wire::MAX_VERSION).prop_map(Condition::Version),
    ]
}

proptest! {
    #[test]
    fn requests_round_trip(
        table in 0..ELEMENTS,
        number: u64,
        key: Vec<u8>,
        value: Vec<u8>,
        condition in condition(),
        name in "[a-zé]{1,60}",
        client in 0..TIME_CLIENT,
        slot in 0..MAX_OPERATION_SLOTS,
        sequence in 0..=MAX_VERSION,
        resent: bool,
        ttl in 1..=Ttl::MAX.millis(),
    ) {
        let ttl = Ttl::of_millis(ttl).expect("within the limits");
        let id = OperationId { client, slot, sequence, resent };
        let mut marked = id.bytes();
        OperationId::mark_resent(&mut marked);
        prop_assert_eq!(marked, OperationId { resent: true, ..id }.bytes());
        let (key, value, name) = (&key[..], &value[..], &name[..]);
        let id_of_hash = CollectionId::new(CollectionKind::Hash, number, slot.into());
        let element = id_of_hash.expect("a small number").element(key);
        let keys =
            KeyRange { from: Bound::Included(key), to: Bound::Unbounded, descending: resent };
        let mut query = Vec::new();
        let query = RangeQuery::write(&mut query, slot.into(), &keys, table);
        prop_assert_eq!(
            (query.index(), query.range(), query.limit()),
            (slot.into(), keys, table.max(1))
        );
        let index = new_index(name, &by_age());
        let part = RecoveredPart { order: number.into(), since: client.into() };
        let range = RangeBytes::from(Range { first: number.min(client), last: number.max(client) });
        let load = Load {
            table: table.into(),
            requests: table.into(),
            second_half: 1.into(),
            bytes: client.into(),
            range,
        };
        let seen = ClusterSeen { cluster: client.into(), version: number.into() };
        let copied =
            CopyCursor { cut: number.into(), segment: client.into(), from: table.into() };
        let watched = WatchCursor { feed: number.into(), next: client.into() };
        let version = sequence.min(MAX_RESTORED_VERSION);
        let cursor = MoveCursor { after: client.into(), batch: sequence.into() };
        let unmarked = OperationId { resent: false, ..id };
        let participant = Participant { table, position: number, id: unmarked };
        let actions = [
            TransactionAction::Check,
            TransactionAction::Write(value, None),
            TransactionAction::Write(value, Some(ttl)),
            TransactionAction::Remove,
        ];
        let plans = actions.map(|action| Plan::encode(action, &[participant; 2]));
        let plans = plans.each_ref().map(|plan| Plan::parse(plan).expect("valid"));
        let [check, write, write_for, remove] = plans;
        for (plan, action) in plans.iter().zip(actions) {
            prop_assert_eq!(plan.action(), action);
            prop_assert_eq!(plan.participants().collect::<Vec<_>>(), [participant; 2]);
        }
        let operation = id.bytes();
        let position = number;
        let decide = |decision| Request::Decide { table, position, id: &operation, decision };
        for request in [
            Request::Read { table, key },
            Request::Write { table, key, value, condition, ttl: None },
            Request::Write { table, key, value, condition, ttl: Some(ttl) },
            Request::SetTtl { table, key, condition, ttl: None },
            Request::SetTtl { table, key, condition, ttl: Some(ttl) },
            Request::Remove { table, key, condition },
            Request::IncrementI64 { table, key, delta: number.cast_signed() },
            Request::IncrementF64 { table, key, delta: f64::from(table) },
            Request::Prepare { table, key, condition, plan: check },
            Request::Prepare { table, key, condition, plan: write },
            Request::Prepare { table, key, condition, plan: write_for },
            Request::Prepare { table, key, condition, plan: remove },
            decide(Decision::Vote),
            decide(Decision::Commit),
            decide(Decision::Abort),
            decide(Decision::End),
            Request::Scan { table, after: None },
            Request::Scan { table, after: Some(number) },
            Request::Restore {
                table,
                key,
                value,
                value_type: Some(ValueType::Bytes),
                version,
                ttl: None,
            },
            Request::Restore {
                table,
                key,
                value: &number.to_le_bytes(),
                value_type: Some(ValueType::Double),
                version,
                ttl: Some(ttl),
            },
            Request::Restore { table, key: &element, value, value_type: None, version, ttl: None },
            Request::CopyLog { step: CopyStep::List },
            Request::CopyLog { step: CopyStep::Cut },
            Request::CopyLog { step: CopyStep::Release { cut: number, wanted: &[number.into()] } },
            Request::CopyLog { step: CopyStep::Read(&copied) },
            Request::CopyLog { step: CopyStep::End },
            Request::Watch { table, position: number, from: &watched },
            Request::TableStats { table },
            Request::Echo { table, value },
            Request::ServerStats,
            Request::CreateTable { name, options: TableOptions::of(table % 1025) },
            Request::CreateTable {
                name,
                options: TableOptions { tablets: 1, when_full: WhenFull::Evict, ordered: true },
            },
            Request::ScanRange {
                table,
                position: number,
                query,
            },
            Request::DropTable { name },
            Request::CreateIndex { table: name, index: &index },
            Request::DropIndex { table: name, index: name },
            Request::FindTable { name },
            Request::LocateTable { table },
            Request::ListTables,
            Request::ListServers,
            Request::WhoLeads,
            Request::Enlist { server: table, cluster: number, copies: 3, locator: name, rack: "" },
            Request::Enlist {
                server: table,
                cluster: number,
                copies: 3,
                locator: name,
                rack: "row-1_a",
            },
            Request::Assignments { server: table, known: number, seen: &seen },
            Request::CopyCatalog { server: table, seen: &seen },
            Request::Void { server: table, segment: number },
            Request::Recovered { server: table, part: &part, failure: "", no_room: false },
            Request::Recovered { server: table, part: &part, failure: name, no_room: true },
            Request::Loads { server: table, capacity: number, loads: &[] },
            Request::Loads { server: table, capacity: number, loads: &[load, load] },
            Request::MoveTablet { table, to: slot.into(), range: &range },
            Request::Drain { server: table, drain: resent },
            Request::Collect { order: number, stage: MoveStage::Rest, from: &cursor },
        ] {
            let bytes = bytes_of(&request);
            prop_assert_eq!(Request::parse(&bytes), Ok(request));
            prop_assert_eq!(Request::parse_with_id(&bytes), Ok((request, None)));
            let bytes = request.to_bytes(Some(&id));
            let op = bytes_of(&request)[0];
            let with_id = if request.takes_id() {
                Ok((request, Some(id)))
            } else {
                Err(Malformed::Id(op))
            };
            prop_assert_eq!(Request::parse_with_id(&bytes), with_id);
            prop_assert_eq!(
                Request::parse(&bytes),
                Err(Malformed::Id(op)),
                "where none is awaited"
            );
        }
    }

    #[test]
    fn batches_round_trip(
        parts in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..=MAX_BATCH + 1),
        cut in 1usize..8,
    ) {
        let mut bytes = Vec::new();
        for (first, second) in &parts {
            push_item(&mut bytes, &[first, second]);
        }
        let items = BatchItems::parse(&bytes);
        if !(1..=MAX_BATCH).contains(&parts.len()) {
            prop_assert_eq!(items, Err(Malformed::Batch(parts.len())));
            return Ok(());
        }
        let items = items.expect("valid");
        prop_assert_eq!(items.len(), parts.len());
        for (item, (first, second)) in items.zip(&parts) {
            prop_assert_eq!(item, [&first[..], second].concat());
        }
        let request = Request::Batch { items };
        let written = bytes_of(&request);
        prop_assert_eq!(Request::parse(&written), Ok(request));
        // Cut within the last item or its length, the bytes are refused.
        let last = parts.last().map_or(0, |(first, second)| 4 + first.len() + second.len());
        let cut = cut.min(last - 1);
        prop_assert_eq!(
            BatchItems::parse(&bytes[..bytes.len() - cut]),
            Err(Malformed::Short(bytes.len() - cut))
        );
    }

    #[test]
    fn requests_to_backups_round_trip(
        master in 0..=MAX_SERVER_ID,
        segment in 0..=MAX_SEGMENT_ID,
        offset in 0u32..8_000_000,
        sealed: bool,
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let replica = ReplicaId { master, segment };
        prop_assert_eq!(ReplicaId::of_word(replica.word()), replica);
        let tablets = Range::ALL
            .parts(u64::from(offset) % 5 + 1)
            .into_iter()
            .map(|range| Tablet { table: 7, range });
        let selected = Selection::encode(segment, master, tablets);
        for request in [
            BackupRequest::Write {
                replica,
                offset,
                sealed,
                replacement: false,
                edition: 0,
                bytes: &bytes,
            },
            BackupRequest::Write {
                replica,
                offset,
                sealed,
                replacement: true,
                edition: 63,
                bytes: &bytes,
            },
            BackupRequest::Free { replica },
            BackupRequest::Fence { master },
            BackupRequest::Lease { master },
            BackupRequest::Read { replica, offset },
            BackupRequest::Select {
                replica,
                offset,
                selection: Selection::parse(&selected).unwrap(),
            },
        ] {
            let request = Request::Backup(request);
            let written = bytes_of(&request);
            prop_assert_eq!(Request::parse(&written), Ok(request));
        }
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
        let _ = Request::parse_with_id(&bytes);
        let _ = Completion::parse(&bytes);
        let _ = Answer::parse(&bytes);
        let mut records = Records::new(&bytes);
        while records.table().is_some() {}
        let mut records = Records::new(&bytes);
        while records.counter().is_some() {}
        let mut records = Records::new(&bytes);
        while records.replica().is_some() {}
        let _ = Assignment::parse(&bytes);
        prop_assert!(Items::new(&bytes, u32::MAX).count() <= bytes.len() + 1);
    }

    #[test]
    fn a_request_cut_short_is_never_another(
        key in prop::collection::vec(any::<u8>(), 1..40),
        cut in 0usize..40,
    ) {
        let whole = bytes_of(&Request::Read { table: 1, key: &key });
        let cut = cut.min(key.len() - 1);
        let error = Request::parse(&whole[..whole.len() - 1 - cut]).unwrap_err();
        prop_assert!(matches!(error, Malformed::Short(_)));
    }

    #[test]
    fn scans_round_trip(
        items: Vec<(u64, Vec<u8>, Vec<u8>)>,
        counters: Vec<(Vec<u8>, i64, bool)>,
        ttl in prop::option::of(1..=Ttl::MAX.millis()),
    ) {
        let ttl = ttl.map(|millis| Ttl::of_millis(millis).expect("within the limits"));
        let mut body = Vec::new();
        let value_type = ValueType::Bytes;
        let bytes =
            items.into_iter().map(|(version, key, value)| (version, key, value, value_type));
        let counters = counters.into_iter().map(|(key, number, is_double)| {
            let value_type = if is_double { ValueType::Double } else { ValueType::Integer };
            (number.unsigned_abs(), key, number.to_le_bytes().to_vec(), value_type)
        });
        let items: Vec<_> = bytes.chain(counters).collect();
        for (version, key, value, value_type) in &items {
            write_scan_record(
                &mut body,
                &Item { version: *version, key, value, value_type: *value_type, ttl },
            );
        }
        let count = u32::try_from(items.len()).unwrap();
        let read: Vec<_> = Items::new(&body, count)
            .map(|item| {
                item.filter(|item| item.ttl == ttl).map(|item| {
                    (item.version, item.key.to_vec(), item.value.to_vec(), item.value_type)
                })
            })
            .collect::<Option<_>>()
            .unwrap();
        prop_assert_eq!(read, items);
    }
}

proptest! {
    #[test]
    fn completions_round_trip(
        joined: bool,
        version in 0..=MAX_VERSION,
        position: Option<u64>,
        result in prop::collection::vec(any::<u8>(), 0..=MAX_RESULT),
        client: u64,
        slot in 0..MAX_OPERATION_SLOTS,
    ) {
        let completion =
            Completion { joined, status: Status::Conflict, version, position, result: &result };
        let mut value = [0; MAX_COMPLETION];
        let len = completion.encode(&mut value);
        prop_assert_eq!(Completion::parse(&value[..len]), Some(completion));
        let key = OperationId { client, slot, sequence: 1, resent: joined }.key();
        prop_assert_eq!(OperationId::client_of(&key), client);
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table: COMPLETIONS | 7,
            version: 1,
            key: &key,
            value: &value[..len],
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        prop_assert_eq!(Completion::of(&entry), Some(completion));
        prop_assert_eq!(
            Completion::of(&Entry { table: 7, ..entry }),
            None,
            "an object of the table itself"
        );
        prop_assert_eq!(Completion::is_cut(&entry, Role::Head), joined);
        prop_assert!(!Completion::is_cut(&entry, Role::Survivor));
    }
}

#[test]
fn the_id_of_a_completions_table_is_refused() {
    let bytes = bytes_of(&Request::Read { table: COMPLETIONS | 1, key: b"k" });
    assert_eq!(Request::parse(&bytes), Err(Malformed::Table(COMPLETIONS | 1)));
}

#[test]
fn racks_have_plain_names() {
    let longest = "r".repeat(sprat_wire::MAX_RACK);
    for rack in ["", "a", "Row-2_b", &longest] {
        let request = Request::Enlist { server: 1, cluster: 2, copies: 3, locator: "tcp:x", rack };
        assert_eq!(Request::parse(&bytes_of(&request)), Ok(request), "{rack:?}");
    }
    for rack in ["a b", "\u{fc}", "r/1", &format!("{longest}r")] {
        let request = Request::Enlist { server: 1, cluster: 2, copies: 3, locator: "tcp:x", rack };
        assert_eq!(Request::parse(&bytes_of(&request)), Err(Malformed::Rack), "{rack:?}");
    }
    // A record from before there were racks.
    let mut old = [7, 0, 0, 0, 9, 0, 0, 0, 5].to_vec();
    old.extend_from_slice(b"tcp:x");
    let record = ServerRecord { id: 7, silent_ms: 9, locator: "tcp:x".into(), rack: String::new() };
    let mut body = Vec::new();
    push_server(&mut body, &record);
    assert_eq!((Records::new(&old).server().as_ref(), &body), (Some(&record), &old));
    assert!(fits_record(&"l".repeat(255), "") && fits_record(&"l".repeat(252), "r1"));
    assert!(!fits_record(&"l".repeat(256), "") && !fits_record(&"l".repeat(253), "r1"));
}

#[test]
fn records_round_trip() {
    let locator: String = "tcp:host=127.0.0.1,port=1".into();
    let tablets = vec![
        TabletRecord { first: 0, server: 2, locator: locator.clone() },
        TabletRecord { first: 1 << 63, server: 3, locator: String::new() },
    ];
    let when_full = WhenFull::Evict;
    let indexes = [1, 4].map(|id| IndexRecord { id, name: "by_age".into(), definition: by_age() });
    let table = TableRecord {
        id: 7,
        name: "users".into(),
        seed: 9,
        when_full,
        ordered: true,
        indexes: indexes.into(),
        tablets,
    };
    assert_eq!(
        (table.at(0).server, table.at(u64::MAX >> 1).server, table.at(1 << 63).server),
        (2, 2, 3)
    );
    assert_eq!(
        table.ranges().map(|(range, _)| range.to_string()).collect::<Vec<_>>(),
        ["0000..7fff", "8000..ffff"]
    );
    assert_eq!(table.locators(), ["", &locator]);
    let server = ServerRecord {
        id: 2,
        silent_ms: 15,
        locator: "fast+udp:host=::1,port=2".into(),
        rack: "r1".into(),
    };
    let without = ServerRecord { rack: String::new(), ..server.clone() };
    let mut body = Vec::new();
    push_table(&mut body, &table);
    push_server(&mut body, &server);
    push_server(&mut body, &without);
    push_counter(&mut body, "log_bytes", 42);
    let replica =
        ReplicaRecord { segment: MAX_SEGMENT_ID, len: 9, head: true, sealed: false, unsure: true };
    push_replica(&mut body, &replica);
    let mut records = Records::new(&body);
    assert_eq!(records.table(), Some(table));
    assert_eq!(records.server(), Some(server));
    assert_eq!(records.server(), Some(without));
    assert_eq!(records.counter(), Some(("log_bytes", 42)));
    assert_eq!(records.replica(), Some(replica));
    assert!(records.is_done());
}

#[test]
fn answers_round_trip() {
    let header = encode_answer(Status::Conflict, true, 3, 9);
    let bytes = [header.as_bytes(), b"body"].concat();
    let answer = Answer::parse(&bytes).unwrap();
    assert_eq!(
        answer,
        Answer {
            status: Status::Conflict,
            more: true,
            count: 3,
            ttl_high: 0,
            number: 9,
            body: b"body"
        }
    );
}

#[test]
fn an_answer_says_how_long_an_object_lives_on() {
    for ttl in [None, Some(1), Some(0xFF_FFFF), Some(0x0123_4567_89AB >> 8), Some(u64::MAX >> 24)] {
        let ttl = ttl.map(|millis| Ttl::of_millis(millis).unwrap());
        let header = encode_object(7, ValueType::Double, ttl);
        let bytes = [header.as_bytes(), b"value"].concat();
        let answer = Answer::parse(&bytes).unwrap();
        assert_eq!((answer.ttl(), answer.value_type()), (ttl, ValueType::Double));
        assert_eq!((answer.status, answer.number), (Status::Ok, 7));
    }
}

#[test]
fn an_invalid_time_to_live_is_refused() {
    let ttl = Some(Ttl::MAX);
    let write =
        Request::Write { table: 1, key: b"k", value: b"v", condition: Condition::None, ttl };
    let bytes = bytes_of(&write);
    let with = |millis: u64| {
        let mut bytes = bytes.clone();
        bytes[16..24].copy_from_slice(&millis.to_le_bytes());
        Request::parse(&bytes).map(drop)
    };
    assert_eq!(with(1), Ok(()));
    assert_eq!(with(0), Err(Malformed::Ttl));
    assert_eq!(with(Ttl::MAX.millis() + 1), Err(Malformed::Ttl));
    assert_eq!(Request::parse(&bytes[..20]), Err(Malformed::Short(20)));
    // Only requests that set a time to live may have one.
    let mut read = bytes_of(&Request::Remove { table: 1, key: b"k", condition: Condition::None });
    read[1] |= 0x80;
    assert_eq!(Request::parse(&read), Err(Malformed::Condition(0x80)));
}

#[test]
fn no_client_writes_time_records() {
    let write =
        Request::Write { table: 1, key: b"k", value: b"v", condition: Condition::None, ttl: None };
    let id = OperationId { client: TIME_CLIENT, slot: 0, sequence: 1, resent: false };
    let bytes = write.to_bytes(Some(&id));
    assert_eq!(Request::parse_with_id(&bytes), Err(Malformed::Id(2)));
}

#[test]
fn a_value_over_the_limit_is_named() {
    let value = vec![0; sprat_wire::MAX_VALUE + 1];
    let request = Request::Write {
        table: 1,
        key: b"k",
        value: &value,
        condition: Condition::None,
        ttl: None,
    };
    assert_eq!(Request::parse(&bytes_of(&request)), Err(Malformed::ValueTooLarge(value.len())));
}

#[test]
fn a_write_of_a_replica_ends_within_its_segment() {
    let replica = ReplicaId { master: 1, segment: 2 };
    let offset = u32::try_from(SEGMENT_BYTES - 3).unwrap();
    let write = |bytes| {
        bytes_of(&Request::Backup(BackupRequest::Write {
            replica,
            offset,
            sealed: true,
            replacement: false,
            edition: 0,
            bytes,
        }))
    };
    assert!(Request::parse(&write(b"abc")).is_ok());
    assert_eq!(Request::parse(&write(b"abcd")), Err(Malformed::Offset(offset)));
}

proptest! {
    #[test]
    fn assignments_round_trip(
        tables: Vec<u32>,
        masters: Vec<u32>,
        numbers: (u64, u64, u32),
        locator in "[a-z]{0,60}",
        names: Vec<(u32, String)>,
        orders: Vec<(u32, u64, Vec<u32>)>,
    ) {
        // Each table whole, or all but its middle.
        let tablets = |mut tables: Vec<u32>| {
            tables.sort_unstable();
            tables.dedup();
            let middle = Range { first: 1 << 62, last: 3 << 62 };
            let ranges = |table: u32| match table % 2 {
                0 => vec![Range::ALL],
                _ => Range::ALL.without([middle]),
            };
            let all = tables.into_iter().flat_map(|table| {
                ranges(table).into_iter().map(move |range| Tablet { table, range })
            });
            all.collect::<Vec<_>>()
        };
        let order = |(master, min_open, tables): (u32, u64, Vec<u32>)| {
            let tablets =
                tablets(tables).into_iter().map(|tablet| (tablet, min_open / 2)).collect();
            RecoveryOrder { id: min_open / 3, master, min_open, askers: master, tablets }
        };
        let members = masters
            .iter()
            .map(|&id| ServerRecord {
                id,
                silent_ms: id / 2,
                locator: locator.clone(),
                rack: if id % 2 == 0 { String::new() } else { format!("rack{}", id % 5) },
            })
            .collect();
        let (lease_micros, min_open, next_server) = numbers;
        let orders = orders.into_iter().map(order).collect();
        let tablets = tablets(tables);
        let names =
            names.into_iter().map(|(id, name)| (id, name.chars().take(60).collect())).collect();
        let of_tablet =
            |&tablet| MoveOrder { id: min_open, tablet, from: next_server, to: next_server / 2 };
        let moves = tablets.iter().map(of_tablet).collect();
        let evicting: Vec<u32> = tablets.iter().map(|tablet| tablet.table).collect();
        let order = |table: &u32| SortOrder {
            table: *table,
            index: table % 2,
            definition: (!table.is_multiple_of(2)).then(by_age),
        };
        let sort_orders = evicting.iter().skip(1).map(order).collect();
        let whole = Assignment {
            tablets,
            lease_micros,
            min_open,
            members,
            masters,
            next_server,
            orders,
            names,
            moves,
            evicting,
            sort_orders,
        };
        let mut body = Vec::new();
        whole.encode(&mut body);
        prop_assert_eq!(Assignment::parse(&body), Some(whole.clone()));
        body.pop();
        prop_assert_eq!(Assignment::parse(&body), None);
        if let [first, ..] = whole.tablets[..] {
            let mut body = Vec::new();
            Assignment { tablets: vec![first, first], ..Assignment::default() }.encode(&mut body);
            prop_assert_eq!(Assignment::parse(&body), None, "two tablets that overlap");
        }
    }
}

proptest! {
    #[test]
    fn a_selection_wants_its_tablets_only(
        edges in prop::collection::btree_set(any::<u64>(), 0..8),
        table in 1..5_u32,
        at: u64,
        seed: u64,
        bytes: Vec<u8>,
    ) {
        // Every second run between the edges, of tables 2 and 4.
        let edges: Vec<u64> = edges.into_iter().collect();
        let ranges = edges.chunks_exact(2).map(|pair| Range { first: pair[0], last: pair[1] });
        let tablets: Vec<Tablet> = [2, 4]
            .into_iter()
            .flat_map(|table| ranges.clone().map(move |range| Tablet { table, range }))
            .collect();
        let encoded = Selection::encode(seed, 3, tablets.iter().copied());
        let selection = Selection::parse(&encoded).unwrap();
        prop_assert_eq!((selection.seed(), selection.askers()), (seed, 3));
        prop_assert_eq!(selection.tablets().collect::<Vec<_>>(), tablets.clone());
        for at in edges.iter().copied().chain([at]) {
            let wanted =
                tablets.iter().any(|tablet| tablet.table == table && tablet.range.contains(at));
            prop_assert_eq!(selection.wants(table, at), wanted);
        }
        prop_assert_eq!(
            selection.wants_of(table),
            tablets.iter().any(|tablet| tablet.table == table)
        );
        if let Some(any) = Selection::parse(&bytes) {
            prop_assert_eq!(any.bytes(), &bytes[..]);
        }
    }
}

#[test]
fn pages_of_ranges_round_trip() {
    let item = |key: &'static [u8]| Item {
        version: 3,
        key,
        value: b"value",
        value_type: ValueType::Bytes,
        ttl: None,
    };
    let covered = [Range { first: 0, last: 9 }, Range { first: 20, last: u64::MAX }];
    for index in [OWN_KEYS, 1] {
        let fields = [&b"field"[..], b""].into_iter().filter(|_| index != OWN_KEYS);
        for last in [None, Some(&b"b"[..]), Some(&b""[..])] {
            let mut body = Vec::new();
            [item(b"a"), item(b"b")].iter().for_each(|item| write_scan_record(&mut body, item));
            let objects = body.len() as u64;
            RangePage::write_end(&mut body, last, fields.clone(), &covered);
            let answer = Answer {
                status: Status::Ok,
                more: last.is_some(),
                count: 2,
                ttl_high: 0,
                number: objects,
                body: &body,
            };
            let page = RangePage::parse(&answer, index).unwrap();
            let rows = page.rows().unwrap();
            let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| &key[..]).collect();
            let first = if index == OWN_KEYS { &b"a"[..] } else { b"fielda" };
            assert_eq!(keys, [first, b"b"]);
            assert_eq!([rows[0].1, rows[1].1], [item(b"a"), item(b"b")]);
            assert_eq!((page.last, &page.covered[..]), (last, &covered[..]));
            for len in 0..body.len() {
                let cut = RangePage::parse(&Answer { body: &body[..len], ..answer }, index);
                // It may have lost ranges, but never has others.
                assert!(cut.is_none_or(|page| page.covered.len() < covered.len()));
            }
            let longer = Answer { number: body.len() as u64 + 1, more: false, ..answer };
            assert!(RangePage::parse(&longer, index).is_none());
            let backwards = [Range { first: 9, last: 0 }];
            let mut body = body[..usize::try_from(objects).unwrap()].to_vec();
            RangePage::write_end(&mut body, None, fields.clone(), &backwards);
            let backwards = Answer { more: false, body: &body, ..answer };
            assert!(RangePage::parse(&backwards, index).is_none());
        }
    }
}

#[test]
fn queries_with_bad_keys_or_limits_are_refused() {
    let refused = |index, keys: KeyRange<'_>, change: fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        RangeQuery::write(&mut bytes, index, &keys, 5);
        change(&mut bytes);
        assert_eq!(RangeQuery::parse(&bytes), None, "{bytes:02x?}");
    };
    for (index, longest) in [(OWN_KEYS, MAX_KEY), (1, MAX_INDEX_KEY)] {
        let long = vec![b'k'; longest + 1];
        refused(index, KeyRange { from: Bound::Included(&long), ..KeyRange::ALL }, |_| {});
        refused(index, KeyRange { to: Bound::Excluded(&long), ..KeyRange::ALL }, |_| {});
    }
    let refused = |change| refused(OWN_KEYS, KeyRange::ALL, change);
    refused(|bytes| bytes[5..9].fill(0));
    refused(|bytes| bytes.push(1));
    refused(|bytes| bytes[0] = 3);
    refused(|bytes| bytes[0] = 1 << 5);
    refused(|bytes| bytes[9] = 1);
    refused(|bytes| bytes.truncate(12));
}
