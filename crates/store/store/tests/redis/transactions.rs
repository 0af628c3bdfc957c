//! Transactions of Redis clients, and other commands that change several keys at once.

use super::client::{RedisClient, Reply};
use super::{Durability, Served, error, options};
use sprat_wire::op::{TableOptions, WhenFull};

fn queued() -> Reply {
    Reply::Simple("QUEUED".into())
}

pub(super) fn array(replies: &[Reply]) -> Reply {
    Reply::Many(b'*', replies.to_vec())
}

/// Sends a transaction, and returns the reply to `EXEC`.
pub(super) fn transact(client: &mut RedisClient, commands: &[&str]) -> Reply {
    assert_eq!(client.say("MULTI"), Reply::ok());
    for command in commands {
        assert_eq!(client.say(command), queued(), "{command}");
    }
    client.say("EXEC")
}

#[test]
fn a_transaction_is_executed_unless_a_watched_key_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    let (mut client, mut other, mut native) = (served.client(), served.client(), served.native());
    let replies = transact(&mut client, &["SET a 1", "INCR a", "GET a", "SELECT 1", "SET b x"]);
    let expected = [Reply::ok(), Reply::Integer(2), Reply::bulk("2"), Reply::ok(), Reply::ok()];
    assert_eq!(replies, array(&expected));
    assert_eq!(client.say("GET b"), Reply::bulk("x"), "the database stays selected");
    assert_eq!(client.say("SELECT 0"), Reply::ok());
    let table = native.table("redis-0").unwrap();
    // If any client changes a watched key, the transaction does nothing.
    for change in 0..4 {
        assert_eq!(client.say("WATCH a b"), Reply::ok());
        match change {
            0 => assert_eq!(other.say("SET a 2"), Reply::ok(), "the same value, written again"),
            1 => drop(native.put(table, b"a", b"by the store's own client").unwrap()),
            2 => drop(native.remove(table, b"a").unwrap()),
            _ => drop(native.put(table, b"a", b"it was gone").unwrap()),
        }
        assert_eq!(transact(&mut client, &["SET b never"]), Reply::Null);
    }
    assert_eq!(client.say("EXISTS b"), Reply::Integer(0));
    assert_eq!(client.say("WATCH a"), Reply::ok());
    assert_eq!(client.say("UNWATCH"), Reply::ok());
    assert_eq!(other.say("SET a 3"), Reply::ok());
    assert_eq!(transact(&mut client, &["GET a"]), array(&[Reply::bulk("3")]));
    assert_eq!(transact(&mut client, &[]), array(&[]));
    served.server.stop().unwrap();
}

#[test]
fn a_command_that_fails_does_not_undo_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    let replies = transact(&mut client, &["SET a x", "INCR a", "SET b 1"]).elements();
    assert_eq!((&replies[0], &replies[2]), (&Reply::ok(), &Reply::ok()));
    assert_eq!(error(&replies[1]), "ERR value is not an integer or out of range");
    assert_eq!(client.say("MGET a b"), array(&[Reply::bulk("x"), Reply::bulk("1")]));
    // A command that is refused before `EXEC` ends the transaction.
    for wrong in ["NONSENSE a", "SET a", "FLUSHDB", "FLUSHALL"] {
        assert_eq!(client.say("MULTI"), Reply::ok());
        assert_eq!(client.say("SET a never"), queued());
        error(&client.say(wrong));
        assert!(error(&client.say("EXEC")).starts_with("EXECABORT"), "{wrong}");
    }
    assert_eq!(client.say("GET a"), Reply::bulk("x"));
    for (command, why) in [
        ("EXEC", "ERR EXEC without MULTI"),
        ("DISCARD", "ERR DISCARD without MULTI"),
        ("MSET a 1 b", "ERR wrong number of arguments for 'mset' command"),
        ("RENAME none a", "ERR no such key"),
    ] {
        assert_eq!(error(&client.say(command)), why);
    }
    served.server.stop().unwrap();
}

#[test]
fn what_is_too_much_for_a_transaction_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    // With this memory a segment has 2 MiB.
    let big = vec![7; 1 << 20];
    let set = |key: &str| [b"SET".to_vec(), key.as_bytes().to_vec(), big.clone()];
    // Each value is within its limit; both together are not within that of a group.
    let mset = [b"MSET".to_vec(), b"k0".to_vec(), big.clone(), b"k1".to_vec(), big.clone()];
    let refused = client.ask(&mset);
    assert!(error(&refused).contains("bytes of keys and values at once; the limit is"));
    assert_eq!(client.ask(&mset[..3]), Reply::ok());
    assert_eq!(client.say("MULTI"), Reply::ok());
    for number in 0..2 {
        assert_eq!(client.ask(&set(&format!("t{number}"))), queued());
    }
    assert!(error(&client.say("EXEC")).contains("at once; the limit is"));
    assert_eq!(client.say("DBSIZE"), Reply::Integer(1));
    // Its replies would be too long, also those with what it writes itself.
    let reads = ["GET k0"; 20];
    assert!(error(&transact(&mut client, &reads)).contains("EXECABORT"), "replies");
    assert_eq!(client.say("MULTI"), Reply::ok());
    assert_eq!(client.ask(&set("t")), queued());
    (0..20).for_each(|_| assert_eq!(client.say("GETRANGE t 0 -1"), queued()));
    assert!(error(&client.say("EXEC")).contains("its replies have more"));
    assert_eq!(client.say("EXISTS t"), Reply::Integer(0));
    // Removals need little room, whatever they remove.
    assert_eq!(client.ask(&set("k1")), Reply::ok());
    let replies = transact(&mut client, &["DEL k0", "DEL k1", "UNLINK none"]);
    assert_eq!(replies, array(&[Reply::Integer(1), Reply::Integer(1), Reply::Integer(0)]));
    // The commands have more bytes than a connection keeps.
    assert_eq!(client.say("MULTI"), Reply::ok());
    let mut refused = None;
    for _ in 0..40 {
        match client.ask(&set("t")) {
            Reply::Error(text) => refused = Some(text),
            reply => assert_eq!(reply, queued()),
        }
    }
    assert!(refused.expect("a limit").contains("more than 16777216 bytes"));
    assert!(error(&client.say("EXEC")).starts_with("EXECABORT"));
    // More keys than a connection watches.
    let keys: Vec<_> = (0..16_385).map(|number| number.to_string()).collect();
    let watch: Vec<_> = ["WATCH"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert!(error(&client.ask(&watch)).contains("watches"), "a limit");
    // Values that grow within the transaction.
    assert_eq!(client.say("SET grows 1"), Reply::ok());
    let replies = transact(&mut client, &["SETRANGE grows 300000 x"; 3]);
    assert_eq!(replies, array(&[const { Reply::Integer(300_001) }; 3]));
    let replies =
        transact(&mut client, &["RENAME grows grown", "COPY grown grows", "APPEND grows x"]);
    assert_eq!(replies, array(&[Reply::ok(), Reply::Integer(1), Reply::Integer(300_002)]));
    let replies = transact(&mut client, &["APPEND many 0123456789"; 400]).elements();
    assert_eq!(replies[399], Reply::Integer(4000));
    served.server.stop().unwrap();
}

#[test]
fn several_keys_change_at_once_and_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    assert_eq!(client.say("MSET a 1 b 2 a 3"), Reply::ok());
    assert_eq!(client.say("MSETNX c 1 b 9"), Reply::Integer(0));
    assert_eq!(client.say("MSETNX c 1 d 2"), Reply::Integer(1));
    assert_eq!(client.say("EXPIRE c 1000"), Reply::Integer(1));
    assert_eq!(client.say("RENAME c d"), Reply::ok());
    assert_eq!(client.say("RENAMENX d a"), Reply::Integer(0));
    assert_eq!(client.say("MOVE b 2"), Reply::Integer(1));
    assert_eq!(transact(&mut client, &["DEL none", "SET e 5"]).elements().len(), 2);
    served.server.stop().unwrap();
    let served = Served::start(&options);
    let mut client = served.client();
    let expected = [Reply::bulk("3"), Reply::Null, Reply::Null, Reply::bulk("1"), Reply::bulk("5")];
    assert_eq!(client.say("MGET a b c d e"), array(&expected));
    assert!(matches!(client.say("TTL d"), Reply::Integer(900..=1000)));
    assert_eq!(client.say("SELECT 2"), Reply::ok());
    assert_eq!(client.say("GET b"), Reply::bulk("2"));
    served.server.stop().unwrap();
}

#[test]
fn a_database_is_emptied_and_keeps_the_options_of_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let (mut client, mut other, mut native) = (served.client(), served.client(), served.native());
    let cache =
        TableOptions { when_full: WhenFull::Evict, ordered: true, ..TableOptions::default() };
    let before = native.create_table_with("redis-0", cache).unwrap();
    assert_eq!(client.say("MSET a 1 b 2"), Reply::ok());
    assert_eq!(other.say("SELECT 1"), Reply::ok());
    assert_eq!(other.say("SET a 1"), Reply::ok());
    // What is sent after it is executed after it.
    let commands = [&["FLUSHDB"][..], &["SET", "a", "new"], &["DBSIZE"]];
    let commands = commands.map(|words| words.iter().map(|it| it.as_bytes().to_vec()).collect());
    assert_eq!(client.ask_all(&commands), [Reply::ok(), Reply::ok(), Reply::Integer(1)]);
    assert_eq!(client.say("GET b"), Reply::Null);
    let table = native.list_tables().unwrap().into_iter().find(|table| table.name == "redis-0");
    let table = table.expect("the new table");
    assert!(table.id != before.0 && table.ordered && table.when_full == WhenFull::Evict);
    assert_eq!(other.say("GET a"), Reply::bulk("1"), "another database");
    assert_eq!(other.say("FLUSHALL SYNC"), Reply::ok());
    assert_eq!((client.say("DBSIZE"), other.say("DBSIZE")), (Reply::Integer(0), Reply::Integer(0)));
    let tables = native.list_tables().unwrap().len();
    assert_eq!(tables, 2, "no tables of databases that were not used");
    served.server.stop().unwrap();
    let served = Served::start(&options);
    assert_eq!(served.client().say("EXISTS a b"), Reply::Integer(0));
    served.server.stop().unwrap();
}
