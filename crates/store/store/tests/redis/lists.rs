//! Lists, sets and sorted sets of Redis clients: what a comparison with Redis does not show. Their
//! elements are removed with their heads, as those of hashes are.

use super::client::{RedisClient, Reply};
use super::transactions::{array, transact};
use super::{Durability, Served, error, options};
use sprat_chance::Chance;
use sprat_testing::until;
use std::collections::BTreeSet;
use std::io::Write as _;

/// Sends a command, given as words, of which the client does not take the reply yet.
fn begin(client: &mut RedisClient, line: &str) {
    client.send(format!("{line}\r\n").as_bytes());
}

/// Waits until so many clients wait for an element.
fn until_waiting(served: &Served, count: usize) {
    let mut client = served.client();
    until("clients wait", || {
        let Reply::Bulk(info) = client.say("INFO clients") else { panic!("no text") };
        String::from_utf8(info).unwrap().contains(&format!("blocked_clients:{count}\r\n"))
    });
}

fn bulks(texts: &[&str]) -> Reply {
    array(&texts.iter().map(|text| Reply::bulk(text)).collect::<Vec<_>>())
}

#[test]
fn collections_are_as_they_were_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    for line in [
        "RPUSH list a b c",
        "LPUSH list z",
        "LINSERT list BEFORE b x",
        "LREM list 1 c",
        "SADD set m n o",
        "SREM set n",
        "ZADD zset 2 two 1 one 3 three",
        "ZINCRBY zset 10 one",
        "RPUSH gone a",
        "RPOP gone",
        "RPOPLPUSH list moved",
        "SUNIONSTORE both set set",
    ] {
        assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
    }
    served.server.stop().unwrap();
    let served = Served::start(&options);
    let mut client = served.client();
    assert_eq!(client.say("LRANGE list 0 -1"), bulks(&["z", "a", "x"]));
    assert_eq!(client.say("LRANGE moved 0 -1"), bulks(&["b"]));
    assert_eq!(client.say("SMISMEMBER set m n o").elements().len(), 3);
    assert_eq!(client.say("SCARD both"), Reply::Integer(2));
    let scored = bulks(&["two", "2", "three", "3", "one", "11"]);
    assert_eq!(client.say("ZRANGE zset 0 -1 WITHSCORES"), scored);
    assert_eq!(client.say("ZREVRANK zset one"), Reply::Integer(0));
    assert_eq!(client.say("DBSIZE"), Reply::Integer(5));
    served.server.stop().unwrap();
}

#[test]
fn clients_that_wait_get_elements_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    let mut pusher = served.client();
    let mut waiters: Vec<_> = (0..3).map(|_| served.client()).collect();
    for (index, waiter) in waiters.iter_mut().enumerate() {
        begin(waiter, "BLPOP other queue 0");
        until_waiting(&served, index + 1);
    }
    // The client that pushes cannot take the element back: the one that waits is served before.
    let commands = ["RPUSH queue 1 2", "LPOP queue"];
    let commands = commands.map(|line| line.split(' ').map(|it| it.as_bytes().to_vec()).collect());
    assert_eq!(pusher.ask_all(&commands), [Reply::Integer(2), Reply::Null]);
    for (waiter, element) in waiters.iter_mut().zip(["1", "2"]) {
        assert_eq!(waiter.reply(), Some(bulks(&["queue", element])));
    }
    until_waiting(&served, 1);
    // A transaction serves them when it has ended; what it has taken back is gone.
    transact(&mut pusher, &["LPUSH queue x", "DEL queue"]);
    transact(&mut pusher, &["LPUSH queue x", "RPUSH queue y"]);
    assert_eq!(waiters[2].reply(), Some(bulks(&["queue", "x"])));
    // A list gets its key by another command, and an element is moved on to the next who waits.
    begin(&mut waiters[0], "BLMOVE first second LEFT RIGHT 0");
    until_waiting(&served, 1);
    begin(&mut waiters[1], "BLMPOP 0 2 none second LEFT COUNT 5");
    until_waiting(&served, 2);
    assert_eq!(pusher.say("RENAME queue first"), Reply::ok());
    assert_eq!(waiters[0].reply(), Some(Reply::bulk("y")));
    let popped = array(&[Reply::bulk("second"), bulks(&["y"])]);
    assert_eq!(waiters[1].reply(), Some(popped));
    // A client that waits for a sorted set is not served by a list.
    begin(&mut waiters[0], "BZPOPMIN scores 0");
    until_waiting(&served, 1);
    assert_eq!(pusher.say("RPUSH scores 1"), Reply::Integer(1));
    assert_eq!(pusher.say("DEL scores"), Reply::Integer(1));
    assert_eq!(pusher.say("ZADD scores 2 b 1 a"), Reply::Integer(2));
    assert_eq!(waiters[0].reply(), Some(bulks(&["scores", "a", "1"])));
    served.server.stop().unwrap();
}

#[test]
fn a_wait_ends_with_its_time_or_its_client() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut client, mut pusher) = (served.client(), served.client());
    assert_eq!(client.say("BLPOP queue 0.05"), Reply::Null);
    assert_eq!(client.say("BRPOPLPUSH queue other 0.01"), Reply::Null);
    // What the client has sent behind the command is executed after it.
    client.stream.write_all(b"BLPOP queue 0.05\r\nPING\r\n").unwrap();
    assert_eq!(client.reply(), Some(Reply::Null));
    assert_eq!(client.reply(), Some(Reply::Simple("PONG".into())));
    // A client that has gone takes no element with it.
    begin(&mut client, "BLPOP queue 0");
    until_waiting(&served, 1);
    drop(client);
    until_waiting(&served, 0);
    assert_eq!(pusher.say("RPUSH queue 1"), Reply::Integer(1));
    assert_eq!(pusher.say("LLEN queue"), Reply::Integer(1));
    let keys: Vec<_> = (0..1025).map(|number| number.to_string()).collect();
    let command: Vec<_> = ["BLPOP"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let refused = pusher.ask(&[&command[..], &["0"]].concat());
    assert_eq!(error(&refused), "ERR a command waits for up to 1024 keys");
    served.server.stop().unwrap();
}

#[test]
fn elements_are_inserted_at_one_place_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    assert_eq!(client.say("RPUSH list begin end"), Reply::Integer(2));
    let mut expected = vec!["begin".to_owned(), "end".to_owned()];
    let (mut chance, mut last) = (Chance::new(27), "end".to_owned());
    // First before the element that was inserted last, so that the labels grow, and then anywhere.
    for number in 0..3000 {
        let element = format!("e{number}");
        let (side, pivot) = match number {
            ..1500 => ("BEFORE", last.clone()),
            1500..2000 => ("AFTER", "begin".to_owned()),
            _ => ("AFTER", expected[chance.index(expected.len())].clone()),
        };
        let at = expected.iter().position(|it| *it == pivot).unwrap();
        expected.insert(at + usize::from(side == "AFTER"), element.clone());
        let len = i64::try_from(expected.len()).unwrap();
        let inserted = client.ask(&["LINSERT", "list", side, &pivot, &element]);
        assert_eq!(inserted, Reply::Integer(len));
        last = element;
    }
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    assert_eq!(client.say("LRANGE list 0 -1"), bulks(&expected));
    assert_eq!(client.say("LINDEX list -2"), Reply::bulk(expected[expected.len() - 2]));
    served.server.stop().unwrap();
}

/// A list, a set and a sorted set are larger than what is removed or copied at once, and small ones
/// have all forms of Redis.
#[test]
fn large_collections_are_cut_and_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    for from in (0..40_000).step_by(1000) {
        let numbers: Vec<_> = (from..from + 1000).map(|number| number.to_string()).collect();
        let numbers = || numbers.iter().map(String::as_str);
        let push: Vec<_> = ["RPUSH", "list"].into_iter().chain(numbers()).collect();
        client.ask(&push);
        client.ask(&["SADD", "set"].into_iter().chain(numbers()).collect::<Vec<_>>());
        let scored = numbers().flat_map(|number| [number, number]);
        client.ask(&["ZADD", "zset"].into_iter().chain(scored).collect::<Vec<_>>());
    }
    assert_eq!(client.say("LINDEX list 30000"), Reply::bulk("30000"));
    assert_eq!(client.say("LPOS list 39999 RANK -1"), Reply::Integer(39_999));
    assert_eq!(client.say("ZRANK zset 12345"), Reply::Integer(12_345));
    assert_eq!(client.say("ZCOUNT zset (100 39000"), Reply::Integer(38_900));
    for (line, what) in [
        ("LTRIM list 20000 39990", "LTRIM of 19991"),
        ("SPOP set 20000", "SPOP of 20000"),
        ("ZREMRANGEBYRANK zset 0 19999", "ZREMRANGEBYRANK of 20000"),
        ("ZREMRANGEBYSCORE zset 10 30000", "ZREMRANGEBYSCORE of 29991"),
        ("SUNIONSTORE other set", "SUNIONSTORE of 40000"),
        ("ZRANGESTORE other zset 0 -1", "ZRANGESTORE of 40000"),
    ] {
        let refused = client.say(line);
        let expected = format!("ERR {what} elements at once; the limit is 16384");
        assert_eq!(error(&refused), expected, "{line}");
    }
    // What is kept becomes another list if that is less.
    assert_eq!(client.say("EXPIRE list 1000"), Reply::Integer(1));
    assert_eq!(client.say("LTRIM list 20000 20099"), Reply::ok());
    assert_eq!(client.say("LLEN list"), Reply::Integer(100));
    assert_eq!(client.say("LINDEX list 0"), Reply::bulk("20000"));
    assert!(matches!(client.say("TTL list"), Reply::Integer(900..=1000)));
    // In transactions as well.
    let replies = transact(
        &mut client,
        &[
            "ZREMRANGEBYSCORE zset 0 9999",
            "ZCARD zset",
            "LPUSH list new",
            "LTRIM list 0 9",
            "LMOVE list other LEFT RIGHT",
            "SPOP set 5",
            "ZPOPMAX zset 3",
            "LPOP list 3",
        ],
    );
    let replies = replies.elements();
    assert_eq!(
        replies[..5],
        [
            Reply::Integer(10_000),
            Reply::Integer(30_000),
            Reply::Integer(101),
            Reply::ok(),
            Reply::bulk("new"),
        ]
    );
    assert_eq!(replies[7], bulks(&["20000", "20001", "20002"]));
    assert_eq!(client.say("SCARD set"), Reply::Integer(39_995));
    // All elements go with the head, however many there are.
    assert_eq!(client.say("ZREMRANGEBYRANK zset 0 -1"), Reply::Integer(29_997));
    assert_eq!(client.say("EXISTS zset"), Reply::Integer(0));
    served.server.stop().unwrap();
}

/// The replies of a transaction have no room for more elements.
#[test]
fn elements_that_do_not_fit_in_the_reply_are_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    for _ in 0..12 {
        let push = [b"RPUSH".to_vec(), b"list".to_vec(), vec![7; 1 << 20]];
        assert!(matches!(client.ask(&push), Reply::Integer(_)));
    }
    for pop in ["LPOP list 12", "LMPOP 1 list LEFT COUNT 12"] {
        let replies = transact(&mut client, &["LRANGE list 0 -1", pop]).elements();
        assert_eq!(replies[0].clone().elements().len(), 12);
        assert!(error(&replies[1]).contains("the reply is longer than"), "{pop}");
        assert_eq!(client.say("LLEN list"), Reply::Integer(12), "{pop}");
    }
    assert_eq!(client.say("LPOP list 12").elements().len(), 12);
    served.server.stop().unwrap();
}

#[test]
fn random_members_are_different_ones_and_are_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    let members: Vec<_> = (0..300).map(|number| format!("m{number}")).collect();
    let add: Vec<_> = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
    assert_eq!(client.ask(&add), Reply::Integer(300));
    let mut seen = BTreeSet::new();
    for count in [1, 10, 100] {
        let some = client.say(&format!("SRANDMEMBER s {count}")).elements();
        let different: BTreeSet<_> = some.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(different.len(), count);
        for one in client.say(&format!("SPOP s {count}")).elements() {
            assert!(seen.insert(format!("{one:?}")), "{one:?} was taken before");
        }
    }
    while let one @ Reply::Bulk(_) = client.say("SPOP s") {
        assert!(seen.insert(format!("{one:?}")), "{one:?} was taken before");
    }
    assert_eq!((seen.len(), client.say("EXISTS s")), (300, Reply::Integer(0)));
    served.server.stop().unwrap();
}
