//! Hashes of Redis clients: their elements are entries of the log, and go with their head.

use super::client::{RedisClient, Reply};
use super::transactions::transact;
use super::{Durability, Served, error, options};
use sprat_client::{Error, ValueType};
use sprat_testing::until;
use std::collections::BTreeSet;

/// Returns the number of elements of collections, and of their owner records, that a server has.
fn elements(served: &Served) -> u64 {
    let mut native = served.native();
    let table = native.list_tables().unwrap().into_iter().next().expect("a table");
    let counters = native.server_stats(&table.tablets[0].locator).unwrap();
    let found = counters.into_iter().find(|one| one.name == "collection_elements");
    found.expect("a counter").value
}

/// Fills a hash with `count` fields.
fn fill(client: &mut RedisClient, key: &str, count: usize) {
    for from in (0..count).step_by(1000) {
        let mut parts = vec!["HSET".to_owned(), key.to_owned()];
        for number in from..count.min(from + 1000) {
            parts.extend([format!("field:{number}"), format!("value {number}")]);
        }
        let added = i64::try_from((parts.len() - 2) / 2).unwrap();
        assert_eq!(client.ask(&parts), Reply::Integer(added));
    }
}

#[test]
fn a_hash_is_as_it_was_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    fill(&mut client, "h", 3000);
    assert_eq!(client.say("HDEL h field:7 field:8 nothing"), Reply::Integer(2));
    assert_eq!(client.say("HINCRBY h count 5"), Reply::Integer(5));
    assert_eq!(client.say("RENAME h renamed"), Reply::ok());
    assert_eq!(client.say("EXPIRE renamed 1000"), Reply::Integer(1));
    assert_eq!(client.say("HSET gone a 1"), Reply::Integer(1));
    assert_eq!(client.say("HDEL gone a"), Reply::Integer(1));
    served.server.stop().unwrap();
    let served = Served::start(&options);
    let mut client = served.client();
    assert_eq!(client.say("TYPE renamed"), Reply::Simple("hash".into()));
    assert_eq!(client.say("HLEN renamed"), Reply::Integer(2999));
    assert_eq!(client.say("HGET renamed field:2999"), Reply::bulk("value 2999"));
    assert_eq!(client.say("HEXISTS renamed field:7"), Reply::Integer(0));
    assert_eq!(client.say("HINCRBY renamed count 1"), Reply::Integer(6));
    assert_eq!(client.say("HGETALL renamed").elements().len(), 2 * 2999);
    let Reply::Integer(ttl) = client.say("TTL renamed") else { panic!("no number") };
    assert!((900..=1000).contains(&ttl), "{ttl}");
    assert_eq!(client.say("EXISTS h gone"), Reply::Integer(0));
    assert_eq!(client.say("DBSIZE"), Reply::Integer(1));
    served.server.stop().unwrap();
}

#[test]
fn the_elements_of_a_hash_that_is_gone_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    for key in ["removed", "replaced", "expired", "renamed", "overwritten", "kept"] {
        fill(&mut client, key, 500);
    }
    assert_eq!(elements(&served), 6 * 501);
    assert_eq!(client.say("DEL removed"), Reply::Integer(1));
    assert_eq!(client.say("SET replaced text"), Reply::ok());
    assert_eq!(client.say("PEXPIRE expired 1"), Reply::Integer(1));
    assert_eq!(client.say("RENAME renamed overwritten"), Reply::ok());
    until("the elements are removed", || elements(&served) == 2 * 501);
    assert_eq!(client.say("HLEN overwritten"), Reply::Integer(500));
    // What a server has not removed when it ends, it removes after the restart.
    fill(&mut client, "last", 20_000);
    assert_eq!(client.say("DEL last"), Reply::Integer(1));
    served.server.stop().unwrap();
    let served = Served::start(&options);
    assert_eq!(served.client().say("HLEN kept"), Reply::Integer(500));
    until("the rest is removed", || elements(&served) == 2 * 501);
    // A hash that is made again has nothing of the one before.
    let mut client = served.client();
    assert_eq!(client.say("HSET last only 1"), Reply::Integer(1));
    assert_eq!(client.say("HGETALL last").elements().len(), 2);
    assert_eq!(client.say("FLUSHDB"), Reply::ok());
    until("a database is emptied", || elements(&served) == 0);
    served.server.stop().unwrap();
}

#[test]
fn a_transaction_leaves_no_elements_of_hashes_that_it_removes() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    let mut client = served.client();
    let commands = [
        "HSET made a 1 b 2",
        "DEL made",
        // It has another number than the one before, and nothing of it.
        "HSET made c 3",
        "HGETALL made",
        "HSET moved a 1",
        "RENAME moved made",
        "HSET present new 1",
        "HLEN present",
        "HSET replaced a 1",
        "SET replaced text",
        "DEL present",
        "HLEN present",
    ];
    // At first the server visits all collections, so that nothing can be left.
    for _ in 0..2 {
        fill(&mut client, "present", 500);
        let replies = transact(&mut client, &commands).elements();
        let fields = [Reply::bulk("c"), Reply::bulk("3")];
        assert_eq!(replies[3], Reply::Many(b'*', fields.to_vec()));
        let lengths = [replies[7].clone(), replies[11].clone()];
        assert_eq!(lengths, [Reply::Integer(501), Reply::Integer(0)]);
        let fields = [Reply::bulk("a"), Reply::bulk("1")];
        assert_eq!(client.say("HGETALL made"), Reply::Many(b'*', fields.to_vec()));
        until("the elements of the others are removed", || elements(&served) == 2);
        assert_eq!(client.say("DEL made"), Reply::Integer(1));
    }
    served.server.stop().unwrap();
}

#[test]
fn a_scan_misses_no_field_while_others_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    fill(&mut client, "h", 1000);
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
    loop {
        let page = client.say(&format!("HSCAN h {cursor} COUNT 7 MATCH field:*"));
        let [Reply::Bulk(next), fields] = &page.elements()[..] else { panic!("no page") };
        for pair in fields.clone().elements().chunks(2) {
            let Reply::Bulk(field) = &pair[0] else { panic!("no field") };
            let field = String::from_utf8(field.clone()).unwrap();
            if !field.ends_with('0') {
                assert_eq!(client.say(&format!("HDEL h {field}")), Reply::Integer(1));
            }
            seen.insert(field);
        }
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    assert_eq!(client.say("HLEN h"), Reply::Integer(100));
    fill(&mut client, "large", 129);
    let page = client.say("HSCAN large 0 COUNT 128").elements();
    assert!(page[0] != Reply::bulk("0") && page[1].clone().elements().len() == 2 * 128);
    // A cursor that the server does not know begins again.
    let page = client.say("HSCAN h 987654321 COUNT 1").elements();
    assert_eq!(page[1].clone().elements().len(), 200, "a small hash is returned at once");
    served.server.stop().unwrap();
}

#[test]
fn random_fields_are_different_ones_if_they_have_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    fill(&mut client, "h", 300);
    for count in [1, 10, 299, 300, 1000] {
        let fields = client.say(&format!("HRANDFIELD h {count}")).elements();
        let different: BTreeSet<_> = fields.iter().map(|field| format!("{field:?}")).collect();
        assert_eq!((fields.len(), different.len()), (count.min(300), count.min(300)));
    }
    assert_eq!(client.say("HRANDFIELD h -1000").elements().len(), 1000);
    assert_eq!(client.say("HELLO 3").elements().len(), 14);
    let pairs = client.say("HRANDFIELD h 5 WITHVALUES").elements();
    assert!(pairs.len() == 5 && pairs.into_iter().all(|pair| pair.elements().len() == 2));
    assert!(matches!(client.say("HGETALL h"), Reply::Many(b'%', all) if all.len() == 600));
    let refused = client.say("HRANDFIELD h -4611686018427387000");
    assert!(error(&refused).contains("the reply is longer than"), "{refused:?}");
    served.server.stop().unwrap();
}

#[test]
fn what_no_hash_can_have_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut client, mut native) = (served.client(), served.native());
    assert_eq!(client.say("HSET h f v"), Reply::Integer(1));
    let refused = client.ask(&[b"HSET".to_vec(), b"h".to_vec(), vec![b'f'; 65_528], vec![]]);
    assert_eq!(error(&refused), "ERR a field or member has 65528 bytes; the limit is 65527");
    let longest = [b"HSET".to_vec(), b"h".to_vec(), vec![b'f'; 65_527], b"x".to_vec()];
    assert_eq!(client.ask(&longest), Reply::Integer(1));
    assert_eq!(client.ask(&[b"HGET".to_vec(), b"h".to_vec(), vec![b'f'; 65_528]]), Reply::Null);
    // All fields of a command are written, or none.
    let mut large = vec![b"HSET".to_vec(), b"h".to_vec()];
    (0..10).for_each(|field| large.extend([vec![b'0' + field], vec![0; 1 << 20]]));
    let refused = client.ask(&large);
    assert!(error(&refused).contains("bytes of keys and values at once; the limit is"));
    assert_eq!(client.say("HLEN h"), Reply::Integer(2));
    fill(&mut client, "large", 17_000);
    let refused = client.say("COPY large other");
    assert_eq!(error(&refused), "ERR COPY of 17000 elements at once; the limit is 16384");
    assert_eq!(client.say("RENAME large other"), Reply::ok(), "which copies nothing");
    // The store's own clients see that it is a collection, and may remove it.
    let table = native.table("redis-0").unwrap();
    let head = native.get(table, b"h").unwrap().expect("the head");
    assert_eq!(head.value_type, ValueType::Collection);
    let refused = native.increment_i64(table, b"h", 1).expect_err("no number");
    assert!(matches!(refused, Error::NotANumber(..)), "{refused}");
    assert!(refused.to_string().contains("collection"), "{refused}");
    assert!(native.remove(table, b"h").unwrap().is_some());
    assert_eq!(client.say("EXISTS h"), Reply::Integer(0));
    until("its elements are removed", || elements(&served) == 17_001);
    served.server.stop().unwrap();
}
