//! Random commands to a real Redis and to Sprat: every reply must be the same, errors
//! included. `SPRAT_REDIS_COMMANDS` sets the number of commands.

use super::client::{RedisClient, RedisProcess, Reply};
use super::{Durability, Served, options};
use sprat_chance::Chance;

/// The number of commands of an ordinary run.
const COMMANDS: usize = 20_000;

/// The largest number of commands that are sent at once.
const AT_ONCE: u64 = 16;

/// The number of commands before one that fails, and with it, that are shown.
const SHOWN: usize = 60;

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

/// Keys that commands on sets use.
const SETS: &[&str] = &["set:1", "set:1", "set:2", "set:3", "a"];

const MEMBERS: &[&str] = &["m", "n", "", "member:1", "member:2", "a\0b", "7"];

/// Keys that commands on lists use.
const LISTS: &[&str] = &["list:1", "list:1", "list:2", "list:3", "a"];

const SIDES: &[&str] = &["LEFT", "RIGHT", "left", "right", "LEFT", "RIGHT", "bogus"];

const INDEXES: &[&str] = &["0", "1", "-1", "2", "-2", "5", "-5", "100", "-100", "x"];

const POSITION_OPTIONS: &[&str] =
    &["RANK", "rank", "COUNT", "MAXLEN", "0", "1", "2", "-1", "-2", "x"];

/// Waits that end soon. An element that is there is taken at once.
const TIMEOUTS: &[&str] = &["0.001", "0.002", "0.001", "x", "", "-1"];

/// Keys that commands on sorted sets use.
const SORTED: &[&str] = &["z:1", "z:1", "z:2", "z:3", "a"];

/// Keys of sorted sets whose members have equal scores.
const EQUAL: &[&str] = &["equal:1", "equal:2"];

/// None is minus zero, nor does a weight make one: that is one of the differences.
const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "2",
    "-1.5",
    "1e3",
    "inf",
    "-inf",
    "0.1",
    "x",
    "",
    "nan",
    " 1",
    "3e5",
    "1e-7",
    "3.3333333333333335",
];

const SCORE_BOUNDS: &[&str] =
    &["-inf", "+inf", "-inf", "inf", "0", "(1", "2", "(2", "-1.5", "x", "", "(", "nan", "1e3"];

const MEMBER_BOUNDS: &[&str] = &["-", "+", "-", "+", "[m", "(m", "[", "(n", "m", "", "[a", "[zz"];

const ADD_OPTIONS: &[&str] = &["NX", "XX", "GT", "LT", "CH", "INCR", "ch", "xx"];

const RANGE_OPTIONS: &[&str] = &["WITHSCORES", "withscores", "LIMIT", "0", "1", "2", "-1", "x"];

const COMBINE_OPTIONS: &[&str] = &[
    "WEIGHTS",
    "1",
    "2",
    "0.5",
    "x",
    "AGGREGATE",
    "SUM",
    "min",
    "MAX",
    "WITHSCORES",
    "LIMIT",
    "0",
];

/// Seconds to which nothing else comes near: the year 10889, and as long until then.
const FAR: i64 = 200_000_000_000;

type Texts = &'static [&'static str];

/// What is drawn for an argument.
#[derive(Clone, Copy)]
enum Kind {
    /// One of these.
    One(Texts),
    /// As many of these as one of the numbers up to the second, from the first on.
    Some(u64, u64, Texts),
    /// One to three of these, each with one of the others.
    Pairs(Texts, Texts),
    /// A number of these, and mostly as many of them.
    Numbered(Texts),
    /// One of these keys, which the command before gives a value.
    Written(Texts),
    /// A number of elements, or none, perhaps with one of these options.
    Count(Texts),
}

use Kind::{Count, Numbered, One, Pairs, Some as Several, Written};

const KEY: Kind = One(KEYS);
const SOME_KEYS: Kind = Several(1, 4, KEYS);
const VALUE: Kind = One(VALUES);
const INTEGER: Kind = One(INTEGERS);
const FLOAT: Kind = One(FLOATS);
const EXPIRY: Kind = One(EXPIRIES);
const PATTERN: Kind = One(PATTERNS);
const SOME_OPTIONS: Kind = Several(0, 3, OPTIONS);
const SOME_CONDITIONS: Kind = Several(0, 2, CONDITIONS);
const SCAN: Kind = Several(0, 4, SCAN_OPTIONS);
const HASH: Kind = One(HASHES);
const FIELD: Kind = One(FIELDS);
const SOME_FIELDS: Kind = Several(1, 4, FIELDS);
const FIELD_PAIRS: Kind = Pairs(FIELDS, VALUES);
const SET: Kind = One(SETS);
const SOME_SETS: Kind = Several(1, 3, SETS);
const MEMBER: Kind = One(MEMBERS);
const SOME_MEMBERS: Kind = Several(1, 4, MEMBERS);
const LIST: Kind = One(LISTS);
const SOME_LISTS: Kind = Several(1, 3, LISTS);
const SOME_VALUES: Kind = Several(1, 4, VALUES);
const INDEX: Kind = One(INDEXES);
const SIDE: Kind = One(SIDES);
const TIMEOUT: Kind = One(TIMEOUTS);
const ZSET: Kind = One(SORTED);
const SCORE: Kind = One(SCORES);
const LOW: Kind = One(SCORE_BOUNDS);
const ALIKE: Kind = One(EQUAL);
const LEX: Kind = One(MEMBER_BOUNDS);
const SOME_RANGE: Kind = Several(0, 4, RANGE_OPTIONS);
const COMBINED: Kind = Several(0, 4, COMBINE_OPTIONS);
const SORTABLE: Kind = One(&["list:1", "set:1", "z:1", "list:2", "z:2", "hash:1", "a"]);
const SORT_OPTIONS: Kind = Several(0, 4, &["ASC", "DESC", "alpha", "LIMIT", "0", "2", "-1"]);
const SORT_BY: Kind = One(&["key:*", "hash:*->f", "*", "none", "*->"]);
const SORT_GET: Kind = Several(0, 4, &["GET", "#", "key:*", "hash:*->f", "get", "DESC", "k*"]);
const SOME_ZSETS: Kind = Numbered(&["z:1", "z:2", "z:3", "set:1", "a", "z:1"]);

/// Commands on strings and keys whose replies are compared, with their arguments.
const STRINGS: &[(&str, &[Kind])] = &[
    ("append", &[KEY, VALUE]),
    ("copy", &[KEY, KEY, SOME_OPTIONS]),
    ("decr", &[KEY]),
    ("decrby", &[KEY, INTEGER]),
    ("del", &[SOME_KEYS]),
    ("discard", &[]),
    ("echo", &[VALUE]),
    ("exec", &[]),
    ("exec", &[]),
    ("exec", &[]),
    ("exists", &[SOME_KEYS]),
    ("expire", &[KEY, EXPIRY, SOME_OPTIONS]),
    ("expireat", &[KEY, EXPIRY, SOME_CONDITIONS]),
    ("expiretime", &[KEY]),
    ("get", &[KEY]),
    ("get", &[KEY]),
    ("getdel", &[KEY]),
    ("getex", &[KEY, SOME_OPTIONS]),
    ("getrange", &[KEY, INTEGER, INTEGER]),
    ("getset", &[KEY, VALUE]),
    ("incr", &[KEY]),
    ("incrby", &[KEY, INTEGER]),
    ("incrbyfloat", &[KEY, FLOAT]),
    ("incrbyfloat", &[KEY, FLOAT]),
    ("keys", &[PATTERN]),
    ("mget", &[SOME_KEYS]),
    ("move", &[KEY, INTEGER]),
    ("mset", &[Pairs(KEYS, VALUES)]),
    ("msetnx", &[Pairs(KEYS, VALUES)]),
    ("multi", &[]),
    ("multi", &[]),
    ("nonsense", &[VALUE, VALUE]),
    ("persist", &[KEY]),
    ("pexpire", &[KEY, EXPIRY, SOME_OPTIONS]),
    ("pexpireat", &[KEY, EXPIRY, SOME_CONDITIONS]),
    ("pexpiretime", &[KEY]),
    ("ping", &[SOME_OPTIONS]),
    ("psetex", &[KEY, EXPIRY, VALUE]),
    ("pttl", &[KEY]),
    ("rename", &[KEY, KEY]),
    ("renamenx", &[KEY, KEY]),
    ("select", &[INTEGER]),
    ("set", &[KEY, VALUE]),
    ("set", &[KEY, VALUE]),
    ("set", &[KEY, VALUE, SOME_OPTIONS]),
    ("setex", &[KEY, EXPIRY, VALUE]),
    ("setnx", &[KEY, VALUE]),
    ("setrange", &[KEY, INTEGER, VALUE]),
    ("strlen", &[KEY]),
    ("substr", &[KEY, INTEGER, INTEGER]),
    ("touch", &[SOME_KEYS]),
    ("ttl", &[KEY]),
    ("type", &[KEY]),
    ("unlink", &[SOME_KEYS]),
    ("unwatch", &[]),
    ("watch", &[Written(KEYS)]),
];

/// Commands on hashes.
const HASH_COMMANDS: &[(&str, &[Kind])] = &[
    ("hdel", &[HASH, SOME_FIELDS]),
    ("hdel", &[HASH, SOME_FIELDS]),
    ("hexists", &[HASH, FIELD]),
    ("hget", &[HASH, FIELD]),
    ("hget", &[HASH, FIELD]),
    ("hgetall", &[HASH]),
    ("hgetall", &[HASH]),
    ("hincrby", &[HASH, FIELD, INTEGER]),
    ("hincrby", &[HASH, FIELD, INTEGER]),
    ("hincrbyfloat", &[HASH, FIELD, FLOAT]),
    ("hincrbyfloat", &[HASH, FIELD, FLOAT]),
    ("hkeys", &[HASH]),
    ("hlen", &[HASH]),
    ("hmget", &[HASH, SOME_FIELDS]),
    ("hmset", &[HASH, FIELD_PAIRS]),
    ("hrandfield", &[HASH, Count(&["WITHVALUES", "withvalues", "bogus"])]),
    ("hscan", &[HASH, VALUE, SCAN]),
    ("hset", &[HASH, FIELD_PAIRS]),
    ("hset", &[HASH, FIELD_PAIRS]),
    ("hset", &[HASH, FIELD_PAIRS]),
    ("hset", &[HASH, FIELD_PAIRS]),
    ("hset", &[HASH, FIELD_PAIRS]),
    ("hsetnx", &[HASH, FIELD, VALUE]),
    ("hstrlen", &[HASH, FIELD]),
    ("hvals", &[HASH]),
    ("copy", &[HASH, HASH, SOME_OPTIONS]),
    ("del", &[HASH]),
    ("expire", &[HASH, EXPIRY]),
    ("persist", &[HASH]),
    ("rename", &[HASH, HASH]),
    ("ttl", &[HASH]),
    ("type", &[HASH]),
    ("watch", &[Written(HASHES)]),
    ("exec", &[]),
    ("multi", &[]),
];

/// Commands on sets. `SPOP` takes all members: those that it chooses are different ones.
const SET_COMMANDS: &[(&str, &[Kind])] = &[
    ("sadd", &[SET, SOME_MEMBERS]),
    ("sadd", &[SET, SOME_MEMBERS]),
    ("sadd", &[SET, SOME_MEMBERS]),
    ("scard", &[SET]),
    ("sdiff", &[SOME_SETS]),
    ("sdiffstore", &[SET, SOME_SETS]),
    ("sinter", &[SOME_SETS]),
    ("sintercard", &[Numbered(SETS), Several(0, 2, &["LIMIT", "limit", "0", "1", "-1", "x"])]),
    ("sinterstore", &[SET, SOME_SETS]),
    ("sismember", &[SET, MEMBER]),
    ("smembers", &[SET]),
    ("smembers", &[SET]),
    ("smismember", &[SET, SOME_MEMBERS]),
    ("smove", &[SET, SET, MEMBER]),
    ("spop", &[SET, One(&["100", "0", "-1", "x", "100"])]),
    ("srandmember", &[SET, Count(&["bogus"])]),
    ("srem", &[SET, SOME_MEMBERS]),
    // Redis returns some members of a small set, too, if `COUNT` asks for few.
    ("sscan", &[SET, One(&["0", "0", "x", ""]), Several(0, 3, &["MATCH", "m*", "*", "type"])]),
    ("sunion", &[SOME_SETS]),
    ("sunionstore", &[SET, SOME_SETS]),
    ("copy", &[SET, SET, SOME_OPTIONS]),
    ("rename", &[SET, SET]),
    ("del", &[SET]),
    ("type", &[SET]),
    ("watch", &[Written(SETS)]),
    ("exec", &[]),
    ("multi", &[]),
];

/// Commands on lists.
const LIST_COMMANDS: &[(&str, &[Kind])] = &[
    ("blmove", &[LIST, LIST, SIDE, SIDE, TIMEOUT]),
    (
        "blmpop",
        &[TIMEOUT, Numbered(LISTS), SIDE, Several(0, 2, &["COUNT", "count", "1", "2", "0"])],
    ),
    ("blpop", &[SOME_LISTS, TIMEOUT]),
    ("brpop", &[SOME_LISTS, TIMEOUT]),
    ("brpoplpush", &[LIST, LIST, TIMEOUT]),
    ("lindex", &[LIST, INDEX]),
    ("linsert", &[LIST, One(&["BEFORE", "AFTER", "before", "x"]), VALUE, VALUE]),
    ("linsert", &[LIST, One(&["BEFORE", "AFTER"]), VALUE, VALUE]),
    ("llen", &[LIST]),
    ("lmove", &[LIST, LIST, SIDE, SIDE]),
    ("lmpop", &[Numbered(LISTS), SIDE, Several(0, 2, &["COUNT", "count", "1", "2", "0"])]),
    ("lpop", &[LIST]),
    ("lpop", &[LIST, INDEX]),
    ("lpos", &[LIST, VALUE, Several(0, 4, POSITION_OPTIONS)]),
    ("lpush", &[LIST, SOME_VALUES]),
    ("lpush", &[LIST, SOME_VALUES]),
    ("lpushx", &[LIST, SOME_VALUES]),
    ("lrange", &[LIST, INDEX, INDEX]),
    ("lrange", &[LIST, One(&["0"]), One(&["-1"])]),
    ("lrem", &[LIST, INDEX, VALUE]),
    ("lset", &[LIST, INDEX, VALUE]),
    ("ltrim", &[LIST, INDEX, INDEX]),
    ("rpop", &[LIST]),
    ("rpop", &[LIST, INDEX]),
    ("rpoplpush", &[LIST, LIST]),
    ("rpush", &[LIST, SOME_VALUES]),
    ("rpush", &[LIST, SOME_VALUES]),
    ("rpushx", &[LIST, SOME_VALUES]),
    ("sort", &[SORTABLE, SORT_OPTIONS]),
    ("sort", &[SORTABLE, One(&["ALPHA"]), SORT_OPTIONS]),
    ("sort", &[One(&["list:1", "z:1", "z:2"]), One(&["BY"]), SORT_BY, SORT_GET]),
    ("sort", &[SORTABLE, One(&["ALPHA"]), SORT_GET, One(&["STORE"]), LIST]),
    ("sort_ro", &[SORTABLE, One(&["ALPHA"]), SORT_GET]),
    ("copy", &[LIST, LIST, SOME_OPTIONS]),
    ("rename", &[LIST, LIST]),
    ("del", &[LIST]),
    ("expire", &[LIST, EXPIRY]),
    ("type", &[LIST]),
    ("watch", &[Written(LISTS)]),
    ("exec", &[]),
    ("multi", &[]),
];

/// Commands on sorted sets.
const SORTED_COMMANDS: &[(&str, &[Kind])] = &[
    (
        "bzmpop",
        &[
            TIMEOUT,
            Numbered(SORTED),
            One(&["MIN", "max", "x"]),
            Several(0, 2, &["COUNT", "1", "2"]),
        ],
    ),
    ("bzpopmax", &[Several(1, 3, SORTED), TIMEOUT]),
    ("bzpopmin", &[Several(1, 3, SORTED), TIMEOUT]),
    ("zadd", &[ZSET, Pairs(SCORES, MEMBERS)]),
    ("zadd", &[ZSET, Pairs(SCORES, MEMBERS)]),
    ("zadd", &[ZSET, SCORE, MEMBER]),
    ("zadd", &[ZSET, Several(0, 3, ADD_OPTIONS), Pairs(SCORES, MEMBERS)]),
    ("zadd", &[ALIKE, One(&["0"]), MEMBER]),
    ("zadd", &[ALIKE, One(&["0"]), MEMBER]),
    ("zcard", &[ZSET]),
    ("zcount", &[ZSET, LOW, LOW]),
    ("zdiff", &[SOME_ZSETS, COMBINED]),
    ("zdiffstore", &[ZSET, SOME_ZSETS, COMBINED]),
    ("zincrby", &[ZSET, SCORE, MEMBER]),
    ("zinter", &[SOME_ZSETS, COMBINED]),
    ("zintercard", &[SOME_ZSETS, COMBINED]),
    ("zinterstore", &[ZSET, SOME_ZSETS, COMBINED]),
    ("zlexcount", &[ALIKE, LEX, LEX]),
    ("zmpop", &[Numbered(SORTED), One(&["MIN", "max", "x"]), Several(0, 2, &["COUNT", "1", "2"])]),
    ("zmscore", &[ZSET, SOME_MEMBERS]),
    ("zpopmax", &[ZSET]),
    ("zpopmax", &[ZSET, INDEX]),
    ("zpopmin", &[ZSET]),
    ("zpopmin", &[ZSET, INDEX]),
    ("zrandmember", &[ZSET, Count(&["WITHSCORES", "withscores", "bogus"])]),
    ("zrange", &[ZSET, INDEX, INDEX, SOME_RANGE]),
    ("zrange", &[ZSET, One(&["0"]), One(&["-1"]), One(&["WITHSCORES"])]),
    ("zrange", &[ZSET, INDEX, INDEX, One(&["REV", "rev"]), SOME_RANGE]),
    ("zrange", &[ZSET, LOW, LOW, One(&["BYSCORE"]), SOME_RANGE]),
    ("zrange", &[ZSET, LOW, LOW, One(&["BYSCORE"]), One(&["REV"]), SOME_RANGE]),
    ("zrange", &[ALIKE, LEX, LEX, One(&["BYLEX"]), Several(0, 4, &["REV", "LIMIT", "0", "1"])]),
    ("zrangebylex", &[ALIKE, LEX, LEX, Several(0, 3, &["LIMIT", "0", "1"])]),
    ("zrangebyscore", &[ZSET, LOW, LOW, SOME_RANGE]),
    ("zrangestore", &[ZSET, ZSET, INDEX, INDEX, Several(0, 1, &["REV"])]),
    (
        "zrangestore",
        &[ZSET, ZSET, LOW, LOW, One(&["BYSCORE"]), Several(0, 3, &["LIMIT", "0", "1"])],
    ),
    ("zrank", &[ZSET, MEMBER]),
    ("zrem", &[ZSET, SOME_MEMBERS]),
    ("zremrangebylex", &[ALIKE, LEX, LEX]),
    ("zremrangebyrank", &[ZSET, INDEX, INDEX]),
    ("zremrangebyscore", &[ZSET, LOW, LOW]),
    ("zrevrange", &[ZSET, INDEX, INDEX, SOME_RANGE]),
    ("zrevrangebylex", &[ALIKE, LEX, LEX]),
    ("zrevrangebyscore", &[ZSET, LOW, LOW, SOME_RANGE]),
    ("zrevrank", &[ZSET, MEMBER]),
    // `ZRANGESTORE` makes a large sorted set, of which Redis returns some members, too.
    ("zscan", &[ZSET, One(&["0", "0", "x", ""]), Several(0, 3, &["MATCH", "m*", "*", "type"])]),
    ("zscore", &[ZSET, MEMBER]),
    ("zunion", &[SOME_ZSETS, COMBINED]),
    ("zunionstore", &[ZSET, SOME_ZSETS, COMBINED]),
    ("copy", &[ZSET, ZSET, SOME_OPTIONS]),
    ("rename", &[ZSET, ZSET]),
    ("del", &[ZSET]),
    ("type", &[ZSET]),
    ("watch", &[Written(SORTED)]),
    ("exec", &[]),
    ("multi", &[]),
];

/// All of them.
const COMMAND_KINDS: &[&[(&str, &[Kind])]] =
    &[STRINGS, HASH_COMMANDS, SET_COMMANDS, LIST_COMMANDS, SORTED_COMMANDS];

fn pick<'a>(chance: &mut Chance, from: &[&'a str]) -> &'a str {
    from[chance.index(from.len())]
}

type Command = Vec<Vec<u8>>;

/// Draws a command, and perhaps one that comes before it. One in 30 lacks an argument, or has one
/// too many.
fn draw(chance: &mut Chance, commands: &mut Vec<Command>) {
    let kinds = COMMAND_KINDS[chance.index(COMMAND_KINDS.len())];
    let (name, kinds) = kinds[chance.index(kinds.len())];
    let name = if chance.one_in(3) { name.to_uppercase() } else { name.to_owned() };
    let mut parts = vec![name.into_bytes()];
    let mut push = |text: &str| parts.push(text.as_bytes().to_vec());
    for kind in kinds {
        match kind {
            One(texts) => push(pick(chance, texts)),
            Several(least, most, texts) => {
                (0..least + chance.below(most - least + 1)).for_each(|_| push(pick(chance, texts)));
            }
            Pairs(texts, others) => (0..=chance.below(3)).for_each(|_| {
                push(pick(chance, texts));
                push(pick(chance, others));
            }),
            Numbered(texts) => {
                let count = 1 + chance.below(3);
                match chance.below(20) {
                    0 => push(pick(chance, &["0", "-1", "x", "4", "9223372036854775807"])),
                    _ => push(&count.to_string()),
                }
                (0..count).for_each(|_| push(pick(chance, texts)));
            }
            Count(options) => {
                const COUNTS: Texts = &[
                    "1",
                    "2",
                    "-3",
                    "0",
                    "100",
                    "x",
                    "9223372036854775807",
                    "-9223372036854775808",
                ];
                if !chance.one_in(3) {
                    push(pick(chance, COUNTS));
                    if chance.one_in(2) {
                        push(pick(chance, options));
                    }
                }
            }
            // `WATCH` of a key that is not there is one of the differences.
            Written(texts) => {
                let key = pick(chance, texts);
                let before: &[&str] = match key.as_bytes() {
                    b"h" | [b'h', b'a', ..] => &["HSET", key, "f", "watched"],
                    [b's', ..] => &["SADD", key, "watched"],
                    [b'l', ..] => &["RPUSH", key, "watched"],
                    [b'z', ..] => &["ZADD", key, "1", "watched"],
                    _ => &["SET", key, "watched"],
                };
                commands.push(before.iter().map(|part| part.as_bytes().to_vec()).collect());
                push(key);
            }
        }
    }
    match chance.below(60) {
        // `SPOP` would take any member.
        0 if parts.len() > 1 && !parts[0].eq_ignore_ascii_case(b"spop") => drop(parts.pop()),
        // It would be watched.
        1 if !parts[0].eq_ignore_ascii_case(b"watch") => parts.push(b"more".to_vec()),
        _ => {}
    }
    commands.push(parts);
}

/// A script that executes a command.
const ONE: &str = "return redis.call(unpack(ARGV))";

/// A script that executes several commands, each with the number of its parts before it.
const SEVERAL: &str = "
    local replies, at = {}, 1
    while at <= #ARGV do
        local count, parts = tonumber(ARGV[at]), {}
        for part = 1, count do
            parts[part] = ARGV[at + part]
        end
        replies[#replies + 1] = redis.pcall(unpack(parts))
        at = at + 1 + count
    end
    return replies";

/// Makes a script of each command, or of all of them.
fn in_scripts(chance: &mut Chance, commands: Vec<Command>) -> Vec<Command> {
    let eval = |script: &str| [&b"EVAL"[..], script.as_bytes(), b"0"].map(<[u8]>::to_vec).to_vec();
    if chance.one_in(3) {
        return commands.into_iter().map(|command| [eval(ONE), command].concat()).collect();
    }
    let mut all = eval(SEVERAL);
    for command in commands {
        all.push(command.len().to_string().into_bytes());
        all.extend(command);
    }
    vec![all]
}

/// Returns the commands of such a script.
fn scripted(command: &[Vec<u8>]) -> Vec<Command> {
    let (script, mut rest) = (&command[1], &command[3..]);
    if script == ONE.as_bytes() {
        return vec![rest.to_vec()];
    }
    let mut commands = Vec::new();
    while let Some((count, parts)) = rest.split_first() {
        let count: usize = std::str::from_utf8(count).unwrap().parse().unwrap();
        commands.push(parts[..count].to_vec());
        rest = &parts[count..];
    }
    commands
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
        (b"eval", Reply::Many(..), Reply::Many(..)) if command[1] == SEVERAL.as_bytes() => {
            is_same(&[b"exec".to_vec()], &scripted(command), ours, theirs)
        }
        (b"eval", _, _) if command[1] == ONE.as_bytes() => {
            is_same(&scripted(command)[0], &[], ours, theirs)
        }
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
        (
            b"keys" | b"hkeys" | b"hvals" | b"smembers" | b"sinter" | b"sunion" | b"sdiff"
            | b"spop",
            Reply::Many(our, _),
            Reply::Many(their, _),
        ) => our == their && sorted(ours) == sorted(theirs),
        // Another command may have made the key a set, which has no order that could stay.
        (b"sort", Reply::Many(..), Reply::Many(..)) if command.contains(&b"none".to_vec()) => {
            sorted(ours) == sorted(theirs)
        }
        (b"sscan", Reply::Many(_, our_page), Reply::Many(_, their_page)) => {
            our_page[0] == their_page[0] && sorted(&our_page[1]) == sorted(&their_page[1])
        }
        (b"hgetall", Reply::Many(our, _), Reply::Many(their, _)) => {
            our == their && in_pairs(ours) == in_pairs(theirs)
        }
        (b"hscan" | b"zscan", Reply::Many(_, our_page), Reply::Many(_, their_page)) => {
            our_page[0] == their_page[0] && in_pairs(&our_page[1]) == in_pairs(&their_page[1])
        }
        // Which elements they return is left to chance.
        (
            b"hrandfield" | b"srandmember" | b"zrandmember",
            Reply::Many(_, ours),
            Reply::Many(_, theirs),
        ) => ours.len() == theirs.len(),
        (b"hrandfield" | b"srandmember" | b"zrandmember", Reply::Bulk(_), Reply::Bulk(_)) => true,
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
    // The last commands, for the message.
    let mut last: Vec<Command> = Vec::new();
    while done < count {
        let mut commands = Vec::new();
        (0..=chance.below(AT_ONCE)).for_each(|_| draw(&mut chance, &mut commands));
        done += commands.len();
        if chance.one_in(4) {
            commands = in_scripts(&mut chance, commands);
        }
        last.extend_from_slice(&commands);
        last.drain(..last.len().saturating_sub(SHOWN));
        let (our_replies, their_replies) = (ours.ask_all(&commands), theirs.ask_all(&commands));
        for (command, (our, their)) in commands.iter().zip(our_replies.iter().zip(&their_replies)) {
            let shown = |command: &Command| {
                let parts = command.iter().map(|part| part.escape_ascii().to_string());
                parts.collect::<Vec<_>>().join(" ")
            };
            assert!(
                is_same(command, &queued, our, their),
                "{}, command {done}: {our:?} here, {their:?} from Redis; {:#?}",
                shown(command),
                last.iter().map(shown).collect::<Vec<_>>()
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
