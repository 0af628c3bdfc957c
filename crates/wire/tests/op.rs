//! Requests and responses survive the wire, and no bytes make the parsers panic.

use proptest::prelude::*;
use sprat_wire::op::{
    Answer, Condition, Item, Items, Malformed, Records, Request, ServerRecord, Status, TableRecord, encode_answer,
    push_counter, push_server, push_table, write_scan_record,
};
use zerocopy::IntoBytes;

fn bytes_of(request: &Request<'_>) -> Vec<u8> {
    let (header, key, value) = request.parts();
    [header.as_bytes(), key, value].concat()
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
        table: u32, number: u64, key: Vec<u8>, value: Vec<u8>, condition in condition(), name in "[a-zé]{1,60}",
    ) {
        let (key, value, name) = (&key[..], &value[..], &name[..]);
        for request in [
            Request::Read { table, key },
            Request::Write { table, key, value, condition },
            Request::Remove { table, key, condition },
            Request::IncrementI64 { table, key, delta: number.cast_signed() },
            Request::IncrementF64 { table, key, delta: f64::from(table) },
            Request::Scan { table, after: None },
            Request::Scan { table, after: Some(number) },
            Request::TableStats { table },
            Request::Echo { table, value },
            Request::ServerStats,
            Request::CreateTable { name },
            Request::DropTable { name },
            Request::FindTable { name },
            Request::ListTables,
            Request::ListServers,
            Request::Enlist { server: table, cluster: number, locator: name },
            Request::Assignments { server: table, known: number },
        ] {
            let bytes = bytes_of(&request);
            prop_assert_eq!(Request::parse(&bytes), Ok(request));
        }
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
        let _ = Request::parse(&bytes);
        let _ = Answer::parse(&bytes);
        let mut records = Records::new(&bytes);
        while records.table().is_some() {}
        let mut records = Records::new(&bytes);
        while records.counter().is_some() {}
        prop_assert!(Items::new(&bytes, u32::MAX).count() <= bytes.len() + 1);
    }

    #[test]
    fn a_request_cut_short_is_never_another(key in prop::collection::vec(any::<u8>(), 1..40), cut in 0usize..40) {
        let whole = bytes_of(&Request::Read { table: 1, key: &key });
        let cut = cut.min(key.len() - 1);
        let error = Request::parse(&whole[..whole.len() - 1 - cut]).unwrap_err();
        prop_assert!(matches!(error, Malformed::Short(_)));
    }

    #[test]
    fn scans_round_trip(items: Vec<(u64, Vec<u8>, Vec<u8>)>) {
        let mut body = Vec::new();
        for (version, key, value) in &items {
            write_scan_record(&mut body, &Item { version: *version, key, value });
        }
        let count = u32::try_from(items.len()).unwrap();
        let read: Vec<_> = Items::new(&body, count)
            .map(|item| item.map(|item| (item.version, item.key.to_vec(), item.value.to_vec())))
            .collect::<Option<_>>()
            .unwrap();
        prop_assert_eq!(read, items);
    }
}

#[test]
fn records_round_trip() {
    let table = TableRecord { id: 7, server: 2, name: "users".into(), locator: "tcp:host=127.0.0.1,port=1".into() };
    let server = ServerRecord { id: 2, silent_ms: 15, locator: "fast+udp:host=::1,port=2".into() };
    let mut body = Vec::new();
    push_table(&mut body, &table);
    push_server(&mut body, &server);
    push_counter(&mut body, "log_bytes", 42);
    let mut records = Records::new(&body);
    assert_eq!(records.table(), Some(table));
    assert_eq!(records.server(), Some(server));
    assert_eq!(records.counter(), Some(("log_bytes", 42)));
    assert!(records.is_done());
}

#[test]
fn answers_round_trip() {
    let header = encode_answer(Status::Conflict, true, 3, 9);
    let bytes = [header.as_bytes(), b"body"].concat();
    let answer = Answer::parse(&bytes).unwrap();
    assert_eq!(answer, Answer { status: Status::Conflict, more: true, count: 3, number: 9, body: b"body" });
}

#[test]
fn a_value_over_the_limit_is_named() {
    let value = vec![0; sprat_wire::MAX_VALUE + 1];
    let request = Request::Write { table: 1, key: b"k", value: &value, condition: Condition::None };
    assert_eq!(Request::parse(&bytes_of(&request)), Err(Malformed::ValueTooLarge(value.len())));
}
