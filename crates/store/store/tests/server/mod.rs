//! A whole server over real sockets and a real disk, through the client.

mod files;

use crate::common::clients::client_of;
use sprat_client::{
    Client, Condition, Error, IncrementError, Number, Table, TableOptions, WhenFull,
};
use sprat_store::server::{Durability, Server, ServerOptions};
use std::path::Path;

const MEMORY: u64 = 64 << 20;

fn options(data: &Path, transport: &str, durability: Durability) -> ServerOptions {
    let listen = vec![format!("{transport}:host=127.0.0.1,port=0")];
    ServerOptions { listen, memory: MEMORY, durability, ..ServerOptions::alone(data) }
}

fn exercise(client: &mut Client) {
    let table = client.create_table("users").unwrap();
    assert_eq!(client.create_table("users").unwrap(), table);
    assert_eq!(client.get(table, b"alice").unwrap(), None);
    let first = client.put(table, b"alice", b"tea").unwrap();
    let second = client.put_if(table, b"alice", b"coffee", Condition::Version(first)).unwrap();
    assert!(second > first);
    let stale = client.put_if(table, b"alice", b"water", Condition::Version(first)).unwrap_err();
    assert_eq!(stale, Error::Conflict { current: Some(second) });
    assert_eq!(client.get(table, b"alice").unwrap().unwrap().value, b"coffee");
    assert_eq!(
        client.put_if(table, b"alice", b"", Condition::Absent),
        Err(Error::Conflict { current: Some(second) })
    );
    assert_eq!(client.remove(table, b"alice").unwrap(), Some(second));
    assert_eq!(client.remove(table, b"alice").unwrap(), None);
    assert!(client.put(table, b"alice", b"tea again").unwrap() > second, "versions never go back");

    assert_eq!(client.increment_i64(table, b"visits", 5).unwrap().0, 5);
    assert_eq!(client.increment_i64(table, b"visits", -7).unwrap().0, -2);
    assert_eq!(
        client.increment_i64(table, b"alice", 1),
        Err(Error::NotANumber(IncrementError::Length))
    );
    assert!((client.increment_f64(table, b"heat", 0.5).unwrap().0 - 0.5).abs() < f64::EPSILON);
    refuse_wrong_sums(client, table);

    for size in [0, 1, 100, 1472, 65_507, 100_000, 1 << 20] {
        let value: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
        client.put(table, format!("size {size}").as_bytes(), &value).unwrap();
        assert_eq!(
            client.get(table, format!("size {size}").as_bytes()).unwrap().unwrap().value,
            value
        );
    }
    assert_eq!(
        client.put(table, b"big", &vec![0; (1 << 20) + 1]),
        Err(Error::ValueTooLarge((1 << 20) + 1))
    );
    assert_eq!(client.put(table, &vec![0; 65_536], b""), Err(Error::KeyTooLarge(65_536)));
    assert_eq!(client.table("nobody"), Err(Error::NoSuchTable("nobody".into())));

    let keys = scan(client, table);
    assert_eq!(keys.len(), 10);
    assert_eq!(client.table_stats(table).unwrap().objects, 10);
}

/// Tries increments whose sum is impossible, of the counters `visits` (-2) and `heat` (0.5).
fn refuse_wrong_sums(client: &mut Client, table: Table) {
    let objects = |client: &mut Client| {
        ["visits", "heat"].map(|key| client.get(table, key.as_bytes()).unwrap())
    };
    let before = objects(client);
    let refused = |why| Some(Error::NotANumber(why));
    assert_eq!(
        client.increment_f64(table, b"visits", 1.0).err(),
        refused(IncrementError::IsInteger)
    );
    assert_eq!(client.increment_i64(table, b"heat", 1).err(), refused(IncrementError::IsDouble));
    assert_eq!(
        client.increment_i64(table, b"visits", i64::MIN).err(),
        refused(IncrementError::Overflow)
    );
    for delta in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(
            client.increment_f64(table, b"heat", delta).err(),
            refused(IncrementError::NotFinite)
        );
        assert_eq!(
            client.increment_f64(table, b"nothing", delta).err(),
            refused(IncrementError::NotFinite)
        );
    }
    assert_eq!(objects(client), before, "nothing was changed");
    assert_eq!(client.get(table, b"nothing").unwrap(), None);
    let numbers = before.map(|object| object.expect("a counter").number());
    assert_eq!(numbers, [Some(Number::Integer(-2)), Some(Number::Double(0.5))]);
}

fn scan(client: &mut Client, table: sprat_client::Table) -> Vec<Vec<u8>> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = client.scan(table, after).unwrap();
        keys.extend(page.rows.into_iter().map(|row| row.key));
        after = page.next;
        if after.is_none() {
            return keys;
        }
    }
}

#[test]
fn everything_works_and_survives_a_restart() {
    for (transport, durability) in [
        ("fast+udp", Durability::Sync),
        ("tcp", Durability::Sync),
        ("fast+udp", Durability::Buffered),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), transport, durability);
        let server = Server::start(&options).unwrap();
        let mut client_before = client_of(&server);
        exercise(&mut client_before);
        let table = client_before.table("users").unwrap();
        let (before, alice) =
            (scan(&mut client_before, table), client_before.get(table, b"alice").unwrap());
        server.stop().unwrap();

        let server = Server::start(&options).unwrap();
        let report = &server.nodes[0].restored.report;
        assert!(report.clean && report.cut.is_none(), "{report:?}");
        let mut client = client_of(&server);
        let table = client.table("users").unwrap();
        assert_eq!(scan(&mut client, table), before, "the same objects in the same order");
        assert_eq!(client.get(table, b"alice").unwrap(), alice);
        refuse_wrong_sums(&mut client, table);
        assert_eq!(client.increment_i64(table, b"visits", 0).unwrap().0, -2);
        let five = 5i64.to_le_bytes();
        client.put(table, b"visits", &five).unwrap();
        assert_eq!(
            client.get(table, b"visits").unwrap().unwrap().number(),
            None,
            "a client's bytes have no type"
        );
        assert_eq!(
            client.increment_f64(table, b"visits", 1.0),
            Err(Error::NotANumber(IncrementError::NoDouble))
        );
        assert_eq!(client.increment_i64(table, b"visits", 1).unwrap().0, 6, "and take one");
        client.drop_table("users").unwrap();
        assert_eq!(client.get(table, b"alice"), Err(Error::TableDropped(table.0)));
        let fresh = client.create_table("users").unwrap();
        assert_ne!(fresh, table);
        assert!(scan(&mut client, fresh).is_empty());
        server.stop().unwrap();
    }
}

#[test]
fn a_server_without_a_disk_works() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&options(dir.path(), "fast+udp", Durability::None)).unwrap();
    exercise(&mut client_of(&server));
    server.stop().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
}

/// A cache gives way to its own objects and to those of other tables; what has given way does not
/// come back after a restart.
#[test]
fn objects_of_a_cache_give_way_when_memory_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), "fast+udp", Durability::Buffered);
    let server = Server::start(&options).unwrap();
    let mut client = client_of(&server);
    let evict = TableOptions { when_full: WhenFull::Evict, ..TableOptions::default() };
    let cache = client.create_table_with("cache", evict).unwrap();
    assert_eq!(client.create_table_with("cache", evict).unwrap(), cache);
    let refused = client.create_table("cache").unwrap_err().to_string();
    assert!(refused.contains("loses objects when memory is full"), "{refused}");
    let kept = client.create_table("kept").unwrap();
    let refused = client.create_table_with("kept", evict).unwrap_err().to_string();
    assert!(refused.contains("keeps its objects when memory is full"), "{refused}");
    let listed = client.list_tables().unwrap().into_iter();
    let listed: Vec<_> = listed.map(|table| (table.name, table.when_full)).collect();
    let expected = [("cache", WhenFull::Evict), ("kept", WhenFull::Refuse)];
    assert_eq!(listed, expected.map(|(name, when_full)| (name.to_owned(), when_full)));

    // Twice as much as the memory holds, a fifth of it in the table whose objects stay.
    let value = vec![7; 100_000];
    let objects = 1000;
    for number in 0u32..objects {
        client.put(cache, &number.to_le_bytes(), &value).unwrap();
        if number < objects / 4 {
            client.put(kept, &number.to_le_bytes(), &value).unwrap();
        }
    }
    let there = |client: &mut Client, table, number: u32| {
        client.get(table, &number.to_le_bytes()).unwrap().is_some()
    };
    assert!((0..objects / 4).all(|number| there(&mut client, kept, number)));
    let cached: Vec<bool> = (0..objects).map(|number| there(&mut client, cache, number)).collect();
    let count = cached.iter().filter(|&&is_there| is_there).count();
    assert!((100..400).contains(&count), "{count} objects are cached");
    let locator = server.nodes[0].listen.to_string();
    let counters = client.server_stats(&locator).unwrap();
    let evicted = counters.iter().find(|counter| counter.name == "evicted_objects_total").unwrap();
    assert_eq!(evicted.value + count as u64, u64::from(objects));
    server.stop().unwrap();

    let server = Server::start(&options).unwrap();
    let mut client = client_of(&server);
    let [cache, kept] = ["cache", "kept"].map(|name| client.table(name).unwrap());
    for (number, was_there) in (0..).zip(cached) {
        assert_eq!(there(&mut client, cache, number), was_there, "{number}");
    }
    // Objects give way after the restart, too, until none is left.
    let mut number = objects;
    let full = loop {
        match client.put(kept, &number.to_le_bytes(), &value) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::MemoryFull);
    assert_eq!(client.table_stats(cache).unwrap().objects, 0);
    server.stop().unwrap();
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), "fast+udp", Durability::Sync);
    let server = Server::start(&options).unwrap();
    let error = Server::start(&options).err().expect("refused").to_string();
    assert!(error.contains("another sprat server is running with this data directory"), "{error}");
    exercise(&mut client_of(&server));
    server.stop().unwrap();
}

#[test]
fn a_directory_of_a_newer_format_is_refused_and_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let identity = dir.path().join("identity.toml");
    let text = "format = 3\nsomething_new = \"yes\"\n";
    std::fs::write(&identity, text).unwrap();
    let error = Server::start(&options(dir.path(), "fast+udp", Durability::Sync))
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("format 3") && error.contains("newer sprat"), "{error}");
    assert_eq!(std::fs::read_to_string(&identity).unwrap(), text);
}

#[test]
fn pipelined_operations_all_end() {
    use sprat_wire::op::Request;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&options(dir.path(), "fast+udp", Durability::Sync)).unwrap();
    let mut client = client_of(&server);
    let table = client.create_table("pipe").unwrap();
    let keys: Vec<String> = (0..3000).map(|i| format!("key {i}")).collect();
    let tickets: Vec<_> = keys
        .iter()
        .map(|key| {
            let request = Request::Write {
                table: table.0,
                key: key.as_bytes(),
                value: key.as_bytes(),
                condition: Condition::None,
                ttl: None,
            };
            client.submit(&request).unwrap()
        })
        .collect();
    for ticket in tickets {
        client.wait(ticket, |_| ()).unwrap();
    }
    for key in &keys {
        assert_eq!(client.get(table, key.as_bytes()).unwrap().unwrap().value, key.as_bytes());
    }
    server.stop().unwrap();
}
