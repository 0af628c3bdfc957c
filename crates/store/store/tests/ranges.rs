//! Scans of ranges of keys, and of indexes, at a real server, by both clients.

use crate::common::clients::{client_of, options_for};
use sprat_client::{
    AsyncClient, Client, Condition, Error, FieldSource, IndexDefinition, Keys, OrderStats, Table,
    TableOptions, Ttl, ValueType, with_index_keys,
};
use sprat_store::server::{Server, ServerOptions};
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

fn serve(data: &Path) -> Server {
    let listen = vec!["fast+udp:host=127.0.0.1,port=0".to_owned()];
    Server::start(&ServerOptions { listen, ..ServerOptions::alone(data) }).expect("a server")
}

fn ordered(client: &mut Client, name: &str) -> Table {
    let options = TableOptions { ordered: true, ..TableOptions::default() };
    client.create_table_with(name, options).expect("a new table")
}

/// Returns the keys of a range, in pages of `limit` objects.
fn keys(client: &mut Client, table: Table, keys: Keys, limit: u32) -> Vec<Vec<u8>> {
    let (mut found, mut next) = (Vec::new(), Some(keys));
    while let Some(keys) = next {
        let page = client.scan_keys(table, keys, limit).expect("the server answers");
        assert!(page.rows.len() <= limit as usize);
        found.extend(page.rows.into_iter().map(|row| row.key));
        next = page.next;
    }
    found
}

#[test]
fn ranges_are_scanned_in_order_and_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let table = ordered(&mut client, "log");
    let plain = client.create_table("plain").expect("a table");
    assert!(client.list_tables().unwrap().iter().any(|table| table.ordered));
    for (name, ordered, what) in [("log", false, "is ordered"), ("plain", true, "is not ordered")] {
        let options = TableOptions { ordered, ..TableOptions::default() };
        let refused = client.create_table_with(name, options).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
    let key = |number: u32| format!("2026-11-{:02}T{:02}", number / 24 + 1, number % 24);
    for number in (0..600).map(|number| number * 7 % 600) {
        client.put(table, key(number).as_bytes(), &number.to_le_bytes()).unwrap();
        client.put(plain, key(number).as_bytes(), b"").unwrap();
    }
    client.remove(table, key(30).as_bytes()).unwrap();
    let check = |client: &mut Client, table| {
        let all: Vec<u32> = (0..600).filter(|&number| number != 30).collect();
        let expected = |numbers: &[u32]| -> Vec<Vec<u8>> {
            numbers.iter().map(|&number| key(number).into_bytes()).collect()
        };
        assert_eq!(keys(client, table, Keys::all(), 1000), expected(&all));
        assert_eq!(keys(client, table, Keys::all(), 7), expected(&all));
        let backwards: Vec<u32> = all.iter().rev().copied().collect();
        assert_eq!(keys(client, table, Keys::all().descending(), 100), expected(&backwards));
        let second = Keys::prefix(b"2026-11-02");
        let day: Vec<u32> = (24..48).filter(|&number| number != 30).collect();
        assert_eq!(keys(client, table, second, 5), expected(&day));
        let (from, to) = (key(40), key(43));
        let within = |keys: Keys| keys.from(from.as_bytes()).to(to.as_bytes());
        assert_eq!(keys(client, table, within(Keys::all()), 2), expected(&[40, 41, 42]));
        let open = Keys::all().after(from.as_bytes()).up_to(to.as_bytes()).descending();
        assert_eq!(keys(client, table, open, 2), expected(&[43, 42, 41]));
        let page = client.scan_keys(table, Keys::all().from(from.as_bytes()), 1).unwrap();
        assert_eq!(
            (page.rows[0].value.as_slice(), page.rows.len()),
            (&40_u32.to_le_bytes()[..], 1)
        );
        let nothing = Keys::all().from(b"3").to(b"1");
        assert_eq!(client.scan_keys(table, nothing, 10).unwrap().next, None);
    };
    check(&mut client, table);
    assert_eq!(client.scan_keys(plain, Keys::all(), 1), Err(Error::NotOrdered(plain.0)));
    let long = vec![0; 70_000];
    let refused = client.scan_keys(table, Keys::all().from(&long), 1);
    assert_eq!(refused, Err(Error::KeyTooLarge(70_000)));
    server.stop().expect("a clean end");

    let server = serve(dir.path());
    let mut client = client_of(&server);
    let table = client.table("log").expect("it is there");
    check(&mut client, table);
    let another = AsyncClient::connect(&options_for(&server)).expect("a thread");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let rows = runtime.block_on(async {
        let table = another.table("log").await.expect("it is there");
        let page = another.scan_keys(table, Keys::prefix(b"2026-11-03"), 2).await;
        page.expect("the server answers").rows
    });
    assert_eq!(
        rows.iter().map(|row| &row.key[..]).collect::<Vec<_>>(),
        [key(48).as_bytes(), key(49).as_bytes()]
    );
    client.drop_table("log").unwrap();
    let dropped = client.scan_keys(table, Keys::all(), 1);
    assert_eq!(dropped, Err(Error::TableDropped(table.0)));
    server.stop().expect("a clean end");
}

#[test]
fn pages_leave_expired_objects_out_and_transactions_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let table = ordered(&mut client, "log");
    let brief = Ttl::of(Duration::from_millis(1)).expect("a time");
    client.put_for(table, b"a", b"", brief, Condition::None).unwrap();
    for key in [b"b", b"c", b"d"] {
        client.put(table, key, b"").unwrap();
    }
    sprat_testing::until("the object has expired", || {
        keys(&mut client, table, Keys::all(), 10) == [b"b", b"c", b"d"]
    });
    client
        .transact(|transaction| {
            transaction.put(table, b"aa", b"new");
            transaction.remove(table, b"c");
            transaction.put(table, b"e", b"new");
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(keys(&mut client, table, Keys::all(), 10), [&b"aa"[..], b"b", b"d", b"e"]);
    server.stop().expect("a clean end");
}

fn json(path: &str, field_type: ValueType) -> IndexDefinition {
    IndexDefinition { source: FieldSource::Json { path: path.to_owned() }, field_type }
}

/// Returns the size of an index once it is complete.
fn complete(client: &mut Client, table: Table, index: u32) -> OrderStats {
    let mut size = OrderStats::default();
    sprat_testing::until("the index is complete", || {
        let stats = client.table_stats(table).expect("the server answers");
        size = *stats.orders.iter().find(|order| order.index == index).expect("it is there");
        size.left == 0
    });
    size
}

#[test]
fn an_index_has_what_matches_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let table = client.create_table("users").expect("a table");
    let user = |age: u32, city: &str| format!(r#"{{"age": {age}, "home": {{"city": "{city}"}}}}"#);
    for number in 0..500_u32 {
        let city = ["Lagos", "Lima", "London"][number as usize % 3];
        client.put(table, &number.to_be_bytes(), user(number % 90, city).as_bytes()).unwrap();
    }
    client.put(table, b"other", b"no JSON").unwrap();
    // The objects are there already.
    let by_age = client.create_index("users", "by_age", &json("age", ValueType::Integer)).unwrap();
    let by_city = json("home.city", ValueType::Bytes);
    let by_city = client.create_index("users", "by_city", &by_city).unwrap();
    let size = complete(&mut client, table, by_age.id());
    assert_eq!((size.objects, size.without_key), (500, 1));
    complete(&mut client, table, by_city.id());
    assert_eq!(client.index("users", "by_age").unwrap(), by_age);
    assert_eq!(client.indexes("users").unwrap(), [by_age.clone(), by_city.clone()]);
    let numbers = |wanted: &dyn Fn(u32) -> bool| -> Vec<Vec<u8>> {
        let wanted = (0..500).filter(|&number| wanted(number));
        wanted.map(|number| number.to_be_bytes().to_vec()).collect()
    };
    let check = |client: &mut Client| {
        let of_age = |client: &mut Client, age: i64, limit| {
            keys(client, table, by_age.equal(age).unwrap(), limit)
        };
        for (age, limit) in [(0, 100), (36, 2), (89, 1)] {
            let age_of = |number| i64::from(number % 90);
            assert_eq!(of_age(client, age, limit), numbers(&|number| age_of(number) == age));
        }
        assert!(of_age(client, 90, 10).is_empty() && of_age(client, -1, 10).is_empty());
        let mut thirties = keys(client, table, by_age.range(30..40).unwrap(), 7);
        let ages = |keys: &[Vec<u8>]| -> Vec<u32> {
            let age = |key: &Vec<u8>| u32::from_be_bytes(key[..].try_into().unwrap()) % 90;
            keys.iter().map(age).collect()
        };
        assert!(ages(&thirties).is_sorted());
        thirties.sort();
        assert_eq!(thirties, numbers(&|number| (30..40).contains(&(number % 90))));
        let oldest = keys(client, table, by_age.range(87..).unwrap().descending(), 100);
        assert!(ages(&oldest).is_sorted_by(|one, next| one >= next));
        let above = by_age.range((Bound::Excluded(88), Bound::Unbounded)).unwrap();
        assert_eq!(keys(client, table, above, 100), numbers(&|number| number % 90 == 89));
        let highest = by_age.range((Bound::Excluded(i64::MAX), Bound::Unbounded)).unwrap();
        assert!(keys(client, table, highest, 100).is_empty());
        let mut with_l = keys(client, table, by_city.prefix(b"L").unwrap(), 1000);
        with_l.sort();
        assert_eq!(with_l, numbers(&|_| true));
        let lima = keys(client, table, by_city.equal("Lima").unwrap(), 30);
        assert_eq!(lima, numbers(&|number| number % 3 == 1));
        let before = by_city.range(..="Lima").unwrap();
        assert_eq!(keys(client, table, before, 1000).len(), 334);
        assert_eq!(keys(client, table, by_city.all(), 1000).len(), 500);
    };
    check(&mut client);
    let wrong = by_age.equal("36");
    assert!(matches!(wrong, Err(Error::FieldType { .. })), "{wrong:?}");
    // Each change is in the index at once.
    client.put(table, b"new", user(120, "Quito").as_bytes()).unwrap();
    let found = |client: &mut Client, age: i64| keys(client, table, by_age.equal(age).unwrap(), 10);
    assert_eq!(found(&mut client, 120), [b"new"]);
    client.put(table, b"new", user(121, "Quito").as_bytes()).unwrap();
    assert!(found(&mut client, 120).is_empty());
    assert_eq!(found(&mut client, 121), [b"new"]);
    let change = |client: &mut Client, change: &dyn Fn(&mut sprat_client::Transaction<'_>)| {
        let changed = client.transact(|transaction| {
            change(transaction);
            Ok::<_, Error>(())
        });
        changed.unwrap();
    };
    change(&mut client, &|transaction| {
        transaction.put(table, b"new", user(122, "Quito").as_bytes());
        transaction.put(table, b"newer", user(122, "Quito").as_bytes());
        transaction.put(table, b"other", user(123, "Quito").as_bytes());
    });
    assert_eq!(found(&mut client, 122), [&b"new"[..], b"newer"]);
    change(&mut client, &|transaction| {
        transaction.remove(table, b"new");
        transaction.put(table, b"other", b"no JSON");
    });
    assert_eq!(found(&mut client, 122), [b"newer"]);
    let brief = Ttl::of(Duration::from_millis(1)).expect("a time");
    let newer = user(122, "Quito");
    client.put_for(table, b"newer", newer.as_bytes(), brief, Condition::None).unwrap();
    sprat_testing::until("the object has expired", || found(&mut client, 122).is_empty());
    check(&mut client);
    server.stop().expect("a clean end");

    let server = serve(dir.path());
    let mut client = client_of(&server);
    client.table("users").expect("it is there");
    check(&mut client);
    let again = complete(&mut client, table, by_age.id());
    assert_eq!((again.objects, again.without_key), (size.objects, size.without_key));
    client.drop_index("users", "by_age").unwrap();
    let gone = client.scan_keys(table, by_age.all(), 1);
    assert_eq!(gone, Err(Error::NoSuchIndex));
    // An index made again is another one.
    client.create_index("users", "by_age", &json("age", ValueType::Double)).unwrap();
    assert_eq!(client.scan_keys(table, by_age.all(), 1), Err(Error::NoSuchIndex));
    let by_age = client.index("users", "by_age").unwrap();
    assert_eq!(found_in(&mut client, table, by_age.equal(36).unwrap()), 6);
    assert_eq!(found_in(&mut client, table, by_age.range(35.5..36.5).unwrap()), 6);
    assert_eq!(found_in(&mut client, table, by_city.equal("Lima").unwrap()), 167);
    server.stop().expect("a clean end");
}

fn found_in(client: &mut Client, table: Table, range: Keys) -> usize {
    keys(client, table, range, 1000).len()
}

#[test]
fn indexes_of_bytes_and_of_keys_in_front_and_refusals() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let table = client.create_table("files").expect("a table");
    let front = |number| IndexDefinition {
        source: FieldSource::Front { number },
        field_type: ValueType::Bytes,
    };
    let at = |at, length, field_type| IndexDefinition {
        source: FieldSource::Offset { at, length },
        field_type,
    };
    let by_owner = client.create_index("files", "by_owner", &front(1)).unwrap();
    let count = client.create_index("files", "count", &at(0, 8, ValueType::Integer)).unwrap();
    client.put(table, b"a", &with_index_keys(&[b"x", b"ada"], b"picture")).unwrap();
    client.put(table, b"b", &with_index_keys(&[b"ada"], b"picture")).unwrap();
    client.put(table, b"c", &with_index_keys(&[b"x", b"ad\0a"], b"")).unwrap();
    client.put(table, b"d", &with_index_keys(&[b"x", b"ad"], b"")).unwrap();
    let names = |client: &mut Client, range| keys(client, table, range, 2);
    assert_eq!(names(&mut client, by_owner.equal("ada").unwrap()), [b"a"]);
    assert_eq!(names(&mut client, by_owner.prefix(b"ad").unwrap()), [b"d", b"c", b"a"]);
    assert_eq!(names(&mut client, by_owner.prefix(b"ad\0").unwrap()), [b"c"]);
    let after = by_owner.behind(by_owner.all(), "ad", b"d").unwrap();
    assert_eq!(names(&mut client, after), [b"c", b"a"]);
    // Counters are numbers in bytes.
    for (key, number) in [(b"x", -7), (b"y", 3), (b"z", -2)] {
        client.increment_i64(table, key, number).unwrap();
    }
    client.increment_i64(table, b"y", -13).unwrap();
    assert_eq!(names(&mut client, count.range(-10..0).unwrap()), [b"y", b"x", b"z"]);

    let refused = client.create_index("files", "count", &front(0)).unwrap_err().to_string();
    assert!(refused.contains("has an index of that name"), "{refused}");
    assert_eq!(client.create_index("files", "by_owner", &front(1)).unwrap(), by_owner);
    let bad = client.create_index("files", "bad", &at(0, 7, ValueType::Integer));
    assert_eq!(bad, Err(Error::BadIndex));
    assert_eq!(client.create_index("files", "", &front(0)), Err(Error::BadIndex));
    let no_table = Err(Error::NoSuchTable("none".to_owned()));
    assert_eq!(client.create_index("none", "by_owner", &front(0)), no_table);
    assert_eq!(client.index("none", "by_owner"), no_table);
    assert_eq!(client.index("files", "none"), Err(Error::NoSuchIndex));
    assert_eq!(client.drop_index("files", "none"), Err(Error::NoSuchIndex));
    for number in 2..16 {
        client.create_index("files", &format!("index {number}"), &front(number)).unwrap();
    }
    let refused = client.create_index("files", "one more", &front(0)).unwrap_err().to_string();
    assert!(refused.contains("has 16 indexes, the most it can have"), "{refused}");
    client.drop_index("files", "index 9").unwrap();
    client.create_index("files", "one more", &front(0)).unwrap();
    server.stop().expect("a clean end");
}
