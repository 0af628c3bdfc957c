//! Random commands to a real Redis and to Sprat: every reply must be the same, errors
//! included. `SPRAT_REDIS_COMMANDS` sets the number of commands.

use super::client::{RedisClient, RedisProcess, Reply};
use super::{Durability, Served, options};
use sprat_chance::Chance;

/// The number of commands of an ordinary run.
const COMMANDS: usize = 20_000;

/// The largest number of commands that are sent at once.
const AT_ONCE: u64 = 16;

const KEYS: &[&str] = &["a", "b", "c", "key:1", "key:2", "k[x]", "a*", "", "h"];

/// Keys that commands on hashes use.
const HASHES: &[&str] = &["h", "hash:1", "hash:1", "hash:2", "a"];

const FIELDS: &[&str] = &["f", "g", "", "field:1", "field:2", "a\0b", "7"];

const SCAN_OPTIONS: &[&str] = &["MATCH", "count", "f*", "*", "10", "1", "0", "type", "hash"];

const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "10",
    "007",
    "+5",
    " 5",
    "5 ",
    "3.0",
    "abc",
    "hello world",
    "a\0b",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "-5",
    "100",
    "x",
    "",
    "1.5",
    "+1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "2147483648",
    "-100",
];

const FLOATS: &[&str] = &[
    "1.5",
    "-0.1",
    "3e5",
    "0.00000000000000001",
    "1e-30",
    "7",
    "-7.25",
    "inf",
    "-inf",
    "nan",
    "x",
    "",
    " 1",
    "1e18",
    ".5",
];

/// Numbers of an expiry. None is reached while the test runs.
const EXPIRIES: &[&str] = &[
    "100000000",
    "200000000",
    "0",
    "-1",
    "-100",
    "x",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
];

const PATTERNS: &[&str] = &[
    "*", "a*", "key:?", "[a-c]", "[^a]", "k\\[x\\]", "a\\*", "", "?", "*:*", "key:[12]", "nothing",
    "[", "\\",
];

const OPTIONS: &[&str] = &[
    "NX",
    "XX",
    "nx",
    "xx",
    "GET",
    "KEEPTTL",
    "PERSIST",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "100000000",
    "4000000000",
    "0",
    "bogus",
    "REPLACE",
    "DB",
];

/// Conditions on an expiry. Two relative ones are equal if they are set in the same millisecond, so
/// these are drawn for absolute ones.
const CONDITIONS: &[&str] = &["NX", "XX", "GT", "LT", "gt", "lt", "bogus"];

/// Seconds to which nothing else comes near: the year 10889, and as long until then.
const FAR: i64 = 200_000_000_000;

/// What is drawn for an argument.
#[derive(Clone, Copy)]
enum Kind {
    Key,
    Value,
    Integer,
    Float,
    Expiry,
    Pattern,
    /// None to three options.
    Options,
    /// None to two conditions on an expiry.
    Conditions,
    /// One to four keys.
    Keys,
    /// One to three keys, each with a value.
    Pairs,
    /// A key that a command before writes.
    Written,
    /// The key of a hash, or of another value.
    Hash,
    Field,
    /// One to four fields.
    Fields,
    /// One to three fields, each with a value.
    FieldPairs,
    /// None to four options of a scan.
    ScanOptions,
    /// A number of fields, or none, perhaps with an option.
    FieldCount,
    /// The key of a hash, in which a command before writes.
    WrittenHash,
}

use Kind::{
    Conditions, Expiry, Field, FieldCount, FieldPairs, Fields, Float, Hash, Integer, Key, Keys,
    Options, Pairs, Pattern, ScanOptions, Value, Written, WrittenHash,
};

/// The commands whose replies are compared, with their arguments.
const COMMAND_KINDS: &[(&str, &[Kind])] = &[
    ("append", &[Key, Value]),
    ("copy", &[Key, Key, Options]),
    ("decr", &[Key]),
    ("decrby", &[Key, Integer]),
    ("del", &[Keys]),
    ("discard", &[]),
    ("echo", &[Value]),
    ("exec", &[]),
    ("exec", &[]),
    ("exec", &[]),
    ("exists", &[Keys]),
    ("expire", &[Key, Expiry, Options]),
    ("expireat", &[Key, Expiry, Conditions]),
    ("expiretime", &[Key]),
    ("get", &[Key]),
    ("get", &[Key]),
    ("getdel", &[Key]),
    ("getex", &[Key, Options]),
    ("getrange", &[Key, Integer, Integer]),
    ("getset", &[Key, Value]),
    ("hdel", &[Hash, Fields]),
    ("hdel", &[Hash, Fields]),
    ("hexists", &[Hash, Field]),
    ("hget", &[Hash, Field]),
    ("hget", &[Hash, Field]),
    ("hgetall", &[Hash]),
    ("hgetall", &[Hash]),
    ("hincrby", &[Hash, Field, Integer]),
    ("hincrby", &[Hash, Field, Integer]),
    ("hincrbyfloat", &[Hash, Field, Float]),
    ("hincrbyfloat", &[Hash, Field, Float]),
    ("hkeys", &[Hash]),
    ("hlen", &[Hash]),
    ("hmget", &[Hash, Fields]),
    ("hmset", &[Hash, FieldPairs]),
    ("hrandfield", &[Hash, FieldCount]),
    ("hscan", &[Hash, Value, ScanOptions]),
    ("hset", &[Hash, FieldPairs]),
    ("hset", &[Hash, FieldPairs]),
    ("hset", &[Hash, FieldPairs]),
    ("hset", &[Hash, FieldPairs]),
    ("hset", &[Hash, FieldPairs]),
    ("hsetnx", &[Hash, Field, Value]),
    ("hstrlen", &[Hash, Field]),
    ("hvals", &[Hash]),
    ("copy", &[Hash, Hash, Options]),
    ("del", &[Hash]),
    ("expire", &[Hash, Expiry]),
    ("persist", &[Hash]),
    ("rename", &[Hash, Hash]),
    ("ttl", &[Hash]),
    ("type", &[Hash]),
    ("incr", &[Key]),
    ("incrby", &[Key, Integer]),
    ("incrbyfloat", &[Key, Float]),
    ("incrbyfloat", &[Key, Float]),
    ("keys", &[Pattern]),
    ("mget", &[Keys]),
    ("move", &[Key, Integer]),
    ("mset", &[Pairs]),
    ("msetnx", &[Pairs]),
    ("multi", &[]),
    ("multi", &[]),
    ("nonsense", &[Value, Value]),
    ("persist", &[Key]),
    ("pexpire", &[Key, Expiry, Options]),
    ("pexpireat", &[Key, Expiry, Conditions]),
    ("pexpiretime", &[Key]),
    ("ping", &[Options]),
    ("psetex", &[Key, Expiry, Value]),
    ("pttl", &[Key]),
    ("rename", &[Key, Key]),
    ("renamenx", &[Key, Key]),
    ("select", &[Integer]),
    ("set", &[Key, Value]),
    ("set", &[Key, Value]),
    ("set", &[Key, Value, Options]),
    ("setex", &[Key, Expiry, Value]),
    ("setnx", &[Key, Value]),
    ("setrange", &[Key, Integer, Value]),
    ("strlen", &[Key]),
    ("substr", &[Key, Integer, Integer]),
    ("touch", &[Keys]),
    ("ttl", &[Key]),
    ("type", &[Key]),
    ("unlink", &[Keys]),
    ("unwatch", &[]),
    ("watch", &[Written]),
    ("watch", &[WrittenHash]),
];

fn pick<'a>(chance: &mut Chance, from: &[&'a str]) -> &'a str {
    from[chance.index(from.len())]
}

type Command = Vec<Vec<u8>>;

/// Draws a command, and perhaps one that comes before it. One in 30 lacks an argument, or has one
/// too many.
fn draw(chance: &mut Chance, commands: &mut Vec<Command>) {
    let (name, kinds) = COMMAND_KINDS[chance.index(COMMAND_KINDS.len())];
    let name = if chance.one_in(3) { name.to_uppercase() } else { name.to_owned() };
    let mut parts = vec![name.into_bytes()];
    let mut push = |text: &str| parts.push(text.as_bytes().to_vec());
    for kind in kinds {
        match kind {
            Key => push(pick(chance, KEYS)),
            Value => push(pick(chance, VALUES)),
            Integer => push(pick(chance, INTEGERS)),
            Float => push(pick(chance, FLOATS)),
            Expiry => push(pick(chance, EXPIRIES)),
            Pattern => push(pick(chance, PATTERNS)),
            Options => (0..chance.below(4)).for_each(|_| push(pick(chance, OPTIONS))),
            Conditions => (0..chance.below(3)).for_each(|_| push(pick(chance, CONDITIONS))),
            Keys => (0..=chance.below(4)).for_each(|_| push(pick(chance, KEYS))),
            Pairs => (0..=chance.below(3)).for_each(|_| {
                push(pick(chance, KEYS));
                push(pick(chance, VALUES));
            }),
            Hash => push(pick(chance, HASHES)),
            Field => push(pick(chance, FIELDS)),
            Fields => (0..=chance.below(4)).for_each(|_| push(pick(chance, FIELDS))),
            FieldPairs => (0..=chance.below(3)).for_each(|_| {
                push(pick(chance, FIELDS));
                push(pick(chance, VALUES));
            }),
            ScanOptions => (0..chance.below(5)).for_each(|_| push(pick(chance, SCAN_OPTIONS))),
            FieldCount => {
                if !chance.one_in(3) {
                    push(pick(
                        chance,
                        &[
                            "1",
                            "2",
                            "-3",
                            "0",
                            "100",
                            "x",
                            "9223372036854775807",
                            "-9223372036854775808",
                        ],
                    ));
                    if chance.one_in(2) {
                        push(pick(chance, &["WITHVALUES", "withvalues", "bogus"]));
                    }
                }
            }
            WrittenHash => {
                let key = pick(chance, HASHES);
                let before = ["HSET", key, "f", "watched"];
                commands.push(before.map(|part| part.as_bytes().to_vec()).into());
                push(key);
            }
            // `WATCH` of a key that is not there is one of the differences.
            Written => {
                let key = pick(chance, KEYS);
                commands.push(["SET", key, "watched"].map(|part| part.as_bytes().to_vec()).into());
                push(key);
            }
        }
    }
    match chance.below(60) {
        0 if parts.len() > 1 => drop(parts.pop()),
        // It would be watched.
        1 if !parts[0].eq_ignore_ascii_case(b"watch") => parts.push(b"more".to_vec()),
        _ => {}
    }
    commands.push(parts);
}

/// Returns whether two replies are the same, as far as they have to be. `queued` are the commands
/// after the last `MULTI`.
fn is_same(command: &[Vec<u8>], queued: &[Command], ours: &Reply, theirs: &Reply) -> bool {
    let sorted = |reply: &Reply| {
        let mut all: Vec<String> =
            reply.clone().elements().iter().map(|one| format!("{one:?}")).collect();
        all.sort_unstable();
        all
    };
    match (&command[0].to_ascii_lowercase()[..], ours, theirs) {
        (b"exec", Reply::Many(_, ours), Reply::Many(_, theirs)) => {
            let mut replies = queued.iter().zip(ours.iter().zip(theirs));
            ours.len() == theirs.len()
                && ours.len() == queued.len()
                && replies.all(|(command, (ours, theirs))| is_same(command, &[], ours, theirs))
        }
        // The commands are executed at slightly different times.
        (b"ttl" | b"expiretime", Reply::Integer(ours), Reply::Integer(theirs)) => {
            *ours > FAR && *theirs > FAR
                || (*ours < 0) == (*theirs < 0) && ours.abs_diff(*theirs) <= 10
        }
        (b"pttl" | b"pexpiretime", Reply::Integer(ours), Reply::Integer(theirs)) => {
            *ours > 1000 * FAR && *theirs > 1000 * FAR
                || (*ours < 0) == (*theirs < 0) && ours.abs_diff(*theirs) <= 10_000
        }
        // Here nothing expires later than in the year 10889.
        (b"ttl" | b"expiretime" | b"pttl" | b"pexpiretime", _, _) => ours == theirs,
        (b"keys" | b"hkeys" | b"hvals", Reply::Many(..), Reply::Many(..)) => {
            sorted(ours) == sorted(theirs)
        }
        (b"hgetall", Reply::Many(our, _), Reply::Many(their, _)) => {
            our == their && in_pairs(ours) == in_pairs(theirs)
        }
        (b"hscan", Reply::Many(_, our_page), Reply::Many(_, their_page)) => {
            our_page[0] == their_page[0] && in_pairs(&our_page[1]) == in_pairs(&their_page[1])
        }
        // Which fields it returns is left to chance.
        (b"hrandfield", Reply::Many(_, ours), Reply::Many(_, theirs)) => ours.len() == theirs.len(),
        (b"hrandfield", Reply::Bulk(_), Reply::Bulk(_)) => true,
        _ => ours == theirs,
    }
}

/// Returns the fields of a hash with their values, in the order of the fields.
fn in_pairs(reply: &Reply) -> Vec<String> {
    let all = reply.clone().elements();
    let mut pairs: Vec<String> = all.chunks(2).map(|pair| format!("{pair:?}")).collect();
    pairs.sort_unstable();
    pairs
}

/// Returns all keys that match a pattern, by `SCAN`.
fn scan(client: &mut RedisClient, pattern: &str, count: &str) -> Vec<Vec<u8>> {
    let mut cursor = "0".to_owned();
    let mut found = Vec::new();
    loop {
        let page = client.ask(&["SCAN", &cursor, "MATCH", pattern, "COUNT", count]);
        let [Reply::Bulk(next), keys] = &page.elements()[..] else { panic!("no page") };
        for key in keys.clone().elements() {
            let Reply::Bulk(key) = key else { panic!("no key") };
            found.push(key);
        }
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            found.sort_unstable();
            found.dedup();
            return found;
        }
    }
}

#[test]
fn random_commands_get_the_replies_of_redis() {
    let Some(redis) = RedisProcess::start() else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let count = std::env::var("SPRAT_REDIS_COMMANDS");
    let count = count.map_or(COMMANDS, |count| count.parse().expect("a number of commands"));
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut ours, mut theirs) = (served.client(), RedisClient::connect(redis.address));
    let mut chance = Chance::new(27);
    let mut queued: Vec<Command> = Vec::new();
    let (mut done, mut executed, mut aborted) = (0, 0, 0);
    while done < count {
        let mut commands = Vec::new();
        (0..=chance.below(AT_ONCE)).for_each(|_| draw(&mut chance, &mut commands));
        done += commands.len();
        let (our_replies, their_replies) = (ours.ask_all(&commands), theirs.ask_all(&commands));
        for (command, (our, their)) in commands.iter().zip(our_replies.iter().zip(&their_replies)) {
            let shown = |command: &Command| {
                let parts = command.iter().map(|part| part.escape_ascii().to_string());
                parts.collect::<Vec<_>>().join(" ")
            };
            assert!(
                is_same(command, &queued, our, their),
                "{}, command {done}: {our:?} here, {their:?} from Redis; {:?}",
                shown(command),
                queued.iter().map(shown).collect::<Vec<_>>()
            );
            match our {
                Reply::Simple(text) if text == "QUEUED" => queued.push(command.clone()),
                Reply::Simple(_) if command[0].eq_ignore_ascii_case(b"multi") => queued.clear(),
                Reply::Many(..) if command[0].eq_ignore_ascii_case(b"exec") => executed += 1,
                Reply::Null if command[0].eq_ignore_ascii_case(b"exec") => aborted += 1,
                _ => {}
            }
        }
        if chance.one_in(100) {
            // Whether there was a `MULTI` is the same.
            assert_eq!(ours.say("DISCARD"), theirs.say("DISCARD"));
            let (pattern, count) =
                (pick(&mut chance, PATTERNS), pick(&mut chance, &["1", "3", "100"]));
            assert_eq!(
                scan(&mut ours, pattern, count),
                scan(&mut theirs, pattern, count),
                "{pattern}"
            );
            // Redis counts keys that have expired until it removes them.
            let keys = theirs.say("KEYS *").elements().len();
            assert_eq!(ours.say("DBSIZE"), Reply::Integer(i64::try_from(keys).unwrap()));
            let key = ours.say("RANDOMKEY");
            assert_eq!(key == Reply::Null, keys == 0);
        }
        if chance.one_in(400) {
            assert_eq!(ours.say("DISCARD"), theirs.say("DISCARD"));
            let flush = pick(&mut chance, &["FLUSHDB", "FLUSHALL", "FLUSHDB ASYNC", "FLUSHDB x"]);
            assert_eq!(ours.say(flush), theirs.say(flush));
            let version = pick(&mut chance, &["2", "3"]);
            for client in [&mut ours, &mut theirs] {
                let hello = client.ask(&["HELLO", version]);
                assert_eq!(hello.elements().len(), 14);
            }
        }
    }
    assert!(executed > done / 400 && aborted > done / 4000, "{executed} and {aborted} of {done}");
    served.server.stop().unwrap();
}
