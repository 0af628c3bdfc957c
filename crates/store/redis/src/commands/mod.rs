//! The commands: their names, their arguments, and what executes them.

mod channels;
mod connection;
mod elements;
mod hashes;
mod info;
mod keys;
mod lists;
mod sets;
mod sort;
mod sorted;
mod strings;
mod transactions;

pub(crate) use channels::write_message;
pub(crate) use transactions::{is_queued, queue};

use crate::call::{Call, Failure};
use crate::session::Session;
use sprat_resp::{Command, integer};

/// A command.
pub(crate) struct CommandInfo {
    /// The name, in small letters.
    pub(crate) name: &'static str,
    /// The number of parts; if negative, the least number.
    pub(crate) arity: i32,
    /// What tools need to know of it, as `COMMAND INFO` has it.
    pub(crate) flags: &'static [&'static str],
    /// Which parts are keys: the first, the last (from the end if negative), and the step. Zeros if
    /// none is.
    pub(crate) keys: (i32, i32, i32),
    /// Which part is the number of more keys, which follow it; zero if none is.
    pub(crate) numbered_at: usize,
    /// Whether it uses the session's database.
    pub(crate) uses_database: bool,
    /// Whether it is a command on elements of a collection.
    pub(crate) is_collection: bool,
    pub(crate) run: fn(&mut Call<'_>) -> Result<(), Failure>,
}

impl CommandInfo {
    /// Returns which parts of a command are keys.
    pub(crate) fn key_positions(&self, command: &Command<'_>) -> impl Iterator<Item = usize> {
        let (first, last, step) = self.keys;
        let at = |number: i32| usize::try_from(number).unwrap_or_default();
        let end = match last {
            0 => 0,
            1.. => at(last) + 1,
            ..0 => (command.len() + 1).saturating_sub(at(-last)),
        };
        let placed = (at(first)..end.min(command.len())).step_by(at(step).max(1));
        let numbered = match self.numbered_at {
            0 => 0..0,
            at => {
                let count = command.get(at).and_then(integer).unwrap_or_default();
                let count = usize::try_from(count).unwrap_or_default();
                at + 1..command.len().min((at + 1).saturating_add(count))
            }
        };
        let stored = (self.name == "sort").then(|| sort::store_position(command)).flatten();
        placed.chain(numbered).chain(stored)
    }
}

const READ: &[&str] = &["readonly"];
const FAST_READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const FAST_WRITE: &[&str] = &["write", "denyoom", "fast"];
const FREE: &[&str] = &["write", "fast"];
const SERVER: &[&str] = &["loading", "stale", "fast"];

const BLOCKING: &[&str] = &["write", "blocking"];
const NUMBERED_READ: &[&str] = &["readonly", "movablekeys"];
const NUMBERED_WRITE: &[&str] = &["write", "movablekeys"];
const NUMBERED_STORE: &[&str] = &["write", "denyoom", "movablekeys"];
const NUMBERED_BLOCKING: &[&str] = &["write", "blocking", "movablekeys"];

const NO_KEY: (i32, i32, i32) = (0, 0, 0);
const ONE_KEY: (i32, i32, i32) = (1, 1, 1);
const ALL_KEYS: (i32, i32, i32) = (1, -1, 1);
const TWO_KEYS: (i32, i32, i32) = (1, 2, 1);
/// All but the last part, which is a timeout.
const KEYS_BEFORE_TIMEOUT: (i32, i32, i32) = (1, -2, 1);
/// Keys and values in turns.
const PAIRS: (i32, i32, i32) = (1, -1, 2);

/// A command on keys.
const fn keyed(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo {
        name,
        arity,
        flags,
        keys,
        numbered_at: 0,
        uses_database: true,
        is_collection: false,
        run,
    }
}

/// A command on elements of the collection of a key.
const fn on_elements(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    on_several(name, arity, flags, ONE_KEY, run)
}

/// A command on elements of the collections of several keys.
const fn on_several(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo { is_collection: true, ..keyed(name, arity, flags, keys, run) }
}

/// A command that has the number of its keys before them.
const fn numbered(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    numbered_at: usize,
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo { numbered_at, ..on_several(name, arity, flags, NO_KEY, run) }
}

/// A command that gives a key what it makes of others, of which it has the number before them.
const fn storing(name: &'static str, run: fn(&mut Call<'_>) -> Result<(), Failure>) -> CommandInfo {
    CommandInfo { keys: ONE_KEY, ..numbered(name, -4, NUMBERED_STORE, 2, run) }
}

/// A command on the session or the server.
const fn plain(
    name: &'static str,
    arity: i32,
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo {
        name,
        arity,
        flags: SERVER,
        keys: NO_KEY,
        numbered_at: 0,
        uses_database: false,
        is_collection: false,
        run,
    }
}

/// All commands, in the order of their names.
pub(crate) const COMMANDS: &[CommandInfo] = &[
    keyed("append", 3, FAST_WRITE, ONE_KEY, strings::append),
    plain("auth", -2, connection::auth),
    on_several("blmove", 6, &["write", "denyoom", "blocking"], TWO_KEYS, lists::blmove),
    numbered("blmpop", -5, NUMBERED_BLOCKING, 2, lists::blmpop),
    on_several("blpop", -3, BLOCKING, KEYS_BEFORE_TIMEOUT, lists::blpop),
    on_several("brpop", -3, BLOCKING, KEYS_BEFORE_TIMEOUT, lists::brpop),
    on_several("brpoplpush", 4, &["write", "denyoom", "blocking"], TWO_KEYS, lists::brpoplpush),
    numbered("bzmpop", -5, NUMBERED_BLOCKING, 2, sorted::bzmpop),
    on_several(
        "bzpopmax",
        -3,
        &["write", "blocking", "fast"],
        KEYS_BEFORE_TIMEOUT,
        sorted::bzpopmax,
    ),
    on_several(
        "bzpopmin",
        -3,
        &["write", "blocking", "fast"],
        KEYS_BEFORE_TIMEOUT,
        sorted::bzpopmin,
    ),
    plain("client", -2, connection::client),
    plain("command", -1, info::command),
    plain("config", -2, info::config),
    keyed("copy", -3, WRITE, TWO_KEYS, keys::copy),
    keyed("dbsize", 1, FAST_READ, NO_KEY, keys::dbsize),
    keyed("decr", 2, FAST_WRITE, ONE_KEY, strings::decr),
    keyed("decrby", 3, FAST_WRITE, ONE_KEY, strings::decrby),
    keyed("del", -2, &["write"], ALL_KEYS, keys::del),
    plain("discard", 1, transactions::discard),
    plain("echo", 2, connection::echo),
    plain("exec", 1, transactions::exec),
    keyed("exists", -2, FAST_READ, ALL_KEYS, keys::exists),
    keyed("expire", -3, FREE, ONE_KEY, keys::expire),
    keyed("expireat", -3, FREE, ONE_KEY, keys::expireat),
    keyed("expiretime", 2, FAST_READ, ONE_KEY, keys::expiretime),
    plain("flushall", -1, keys::flushall),
    plain("flushdb", -1, keys::flushdb),
    keyed("get", 2, FAST_READ, ONE_KEY, strings::get),
    keyed("getdel", 2, FREE, ONE_KEY, strings::getdel),
    keyed("getex", -2, FREE, ONE_KEY, strings::getex),
    keyed("getrange", 4, READ, ONE_KEY, strings::getrange),
    keyed("getset", 3, FAST_WRITE, ONE_KEY, strings::getset),
    on_elements("hdel", -3, FREE, hashes::hdel),
    plain("hello", -1, connection::hello),
    on_elements("hexists", 3, FAST_READ, hashes::hexists),
    on_elements("hget", 3, FAST_READ, hashes::hget),
    on_elements("hgetall", 2, READ, hashes::hgetall),
    on_elements("hincrby", 4, FAST_WRITE, hashes::hincrby),
    on_elements("hincrbyfloat", 4, FAST_WRITE, hashes::hincrbyfloat),
    on_elements("hkeys", 2, READ, hashes::hkeys),
    on_elements("hlen", 2, FAST_READ, hashes::hlen),
    on_elements("hmget", -3, FAST_READ, hashes::hmget),
    on_elements("hmset", -4, FAST_WRITE, hashes::hmset),
    on_elements("hrandfield", -2, READ, hashes::hrandfield),
    on_elements("hscan", -3, READ, hashes::hscan),
    on_elements("hset", -4, FAST_WRITE, hashes::hset),
    on_elements("hsetnx", 4, FAST_WRITE, hashes::hsetnx),
    on_elements("hstrlen", 3, FAST_READ, hashes::hstrlen),
    on_elements("hvals", 2, READ, hashes::hvals),
    keyed("incr", 2, FAST_WRITE, ONE_KEY, strings::incr),
    keyed("incrby", 3, FAST_WRITE, ONE_KEY, strings::incrby),
    keyed("incrbyfloat", 3, FAST_WRITE, ONE_KEY, strings::incrbyfloat),
    plain("info", -1, info::info),
    keyed("keys", 2, READ, NO_KEY, keys::keys),
    on_elements("lindex", 3, READ, lists::lindex),
    on_elements("linsert", 5, WRITE, lists::linsert),
    on_elements("llen", 2, FAST_READ, lists::llen),
    on_several("lmove", 5, WRITE, TWO_KEYS, lists::lmove),
    numbered("lmpop", -4, NUMBERED_WRITE, 1, lists::lmpop),
    on_elements("lpop", -2, FREE, lists::lpop),
    on_elements("lpos", -3, READ, lists::lpos),
    on_elements("lpush", -3, FAST_WRITE, lists::lpush),
    on_elements("lpushx", -3, FAST_WRITE, lists::lpushx),
    on_elements("lrange", 4, READ, lists::lrange),
    on_elements("lrem", 4, &["write"], lists::lrem),
    on_elements("lset", 4, WRITE, lists::lset),
    on_elements("ltrim", 4, &["write"], lists::ltrim),
    keyed("mget", -2, FAST_READ, ALL_KEYS, strings::mget),
    keyed("move", 3, FREE, ONE_KEY, keys::move_key),
    keyed("mset", -3, WRITE, PAIRS, strings::mset),
    keyed("msetnx", -3, WRITE, PAIRS, strings::msetnx),
    plain("multi", 1, transactions::multi),
    keyed("persist", 2, FREE, ONE_KEY, keys::persist),
    keyed("pexpire", -3, FREE, ONE_KEY, keys::pexpire),
    keyed("pexpireat", -3, FREE, ONE_KEY, keys::pexpireat),
    keyed("pexpiretime", 2, FAST_READ, ONE_KEY, keys::pexpiretime),
    plain("ping", -1, connection::ping),
    keyed("psetex", 4, WRITE, ONE_KEY, strings::psetex),
    plain("psubscribe", -2, channels::psubscribe),
    keyed("pttl", 2, FAST_READ, ONE_KEY, keys::pttl),
    plain("publish", 3, channels::publish),
    plain("pubsub", -2, channels::pubsub),
    plain("punsubscribe", -1, channels::punsubscribe),
    plain("quit", -1, connection::quit),
    keyed("randomkey", 1, READ, NO_KEY, keys::randomkey),
    keyed("rename", 3, &["write"], TWO_KEYS, keys::rename),
    keyed("renamenx", 3, FREE, TWO_KEYS, keys::renamenx),
    plain("reset", 1, connection::reset),
    on_elements("rpop", -2, FREE, lists::rpop),
    on_several("rpoplpush", 3, WRITE, TWO_KEYS, lists::rpoplpush),
    on_elements("rpush", -3, FAST_WRITE, lists::rpush),
    on_elements("rpushx", -3, FAST_WRITE, lists::rpushx),
    on_elements("sadd", -3, FAST_WRITE, sets::sadd),
    keyed("scan", -2, READ, NO_KEY, keys::scan),
    on_elements("scard", 2, FAST_READ, sets::scard),
    on_several("sdiff", -2, READ, ALL_KEYS, sets::sdiff),
    on_several("sdiffstore", -3, WRITE, ALL_KEYS, sets::sdiffstore),
    plain("select", 2, connection::select),
    keyed("set", -3, WRITE, ONE_KEY, strings::set),
    keyed("setex", 4, WRITE, ONE_KEY, strings::setex),
    keyed("setnx", 3, FAST_WRITE, ONE_KEY, strings::setnx),
    keyed("setrange", 4, WRITE, ONE_KEY, strings::setrange),
    on_several("sinter", -2, READ, ALL_KEYS, sets::sinter),
    numbered("sintercard", -3, NUMBERED_READ, 1, sets::sintercard),
    on_several("sinterstore", -3, WRITE, ALL_KEYS, sets::sinterstore),
    on_elements("sismember", 3, FAST_READ, sets::sismember),
    on_elements("smembers", 2, READ, sets::smembers),
    on_elements("smismember", -3, FAST_READ, sets::smismember),
    on_several("smove", 4, FREE, TWO_KEYS, sets::smove),
    on_elements("sort", -2, NUMBERED_STORE, sort::sort_command),
    on_elements("sort_ro", -2, NUMBERED_READ, sort::sort_command),
    on_elements("spop", -2, FREE, sets::spop),
    on_elements("srandmember", -2, READ, sets::srandmember),
    on_elements("srem", -3, FREE, sets::srem),
    on_elements("sscan", -3, READ, sets::sscan),
    keyed("strlen", 2, FAST_READ, ONE_KEY, strings::strlen),
    plain("subscribe", -2, channels::subscribe),
    keyed("substr", 4, READ, ONE_KEY, strings::getrange),
    on_several("sunion", -2, READ, ALL_KEYS, sets::sunion),
    on_several("sunionstore", -3, WRITE, ALL_KEYS, sets::sunionstore),
    plain("time", 1, info::time),
    keyed("touch", -2, FAST_READ, ALL_KEYS, keys::exists),
    keyed("ttl", 2, FAST_READ, ONE_KEY, keys::ttl),
    keyed("type", 2, FAST_READ, ONE_KEY, keys::type_of),
    keyed("unlink", -2, FREE, ALL_KEYS, keys::del),
    plain("unsubscribe", -1, channels::unsubscribe),
    plain("unwatch", 1, transactions::unwatch),
    plain("wait", 3, info::wait),
    keyed("watch", -2, SERVER, ALL_KEYS, transactions::watch),
    on_elements("zadd", -4, FAST_WRITE, sorted::zadd),
    on_elements("zcard", 2, FAST_READ, sorted::zcard),
    on_elements("zcount", 4, FAST_READ, sorted::zcount),
    numbered("zdiff", -3, NUMBERED_READ, 1, sorted::zdiff),
    storing("zdiffstore", sorted::zdiffstore),
    on_elements("zincrby", 4, FAST_WRITE, sorted::zincrby),
    numbered("zinter", -3, NUMBERED_READ, 1, sorted::zinter),
    numbered("zintercard", -3, NUMBERED_READ, 1, sorted::zintercard),
    storing("zinterstore", sorted::zinterstore),
    on_elements("zlexcount", 4, FAST_READ, sorted::zlexcount),
    numbered("zmpop", -4, NUMBERED_WRITE, 1, sorted::zmpop),
    on_elements("zmscore", -3, FAST_READ, sorted::zmscore),
    on_elements("zpopmax", -2, FREE, sorted::zpopmax),
    on_elements("zpopmin", -2, FREE, sorted::zpopmin),
    on_elements("zrandmember", -2, READ, sorted::zrandmember),
    on_elements("zrange", -4, READ, sorted::zrange),
    on_elements("zrangebylex", -4, READ, sorted::zrangebylex),
    on_elements("zrangebyscore", -4, READ, sorted::zrangebyscore),
    on_several("zrangestore", -5, WRITE, TWO_KEYS, sorted::zrangestore),
    on_elements("zrank", 3, FAST_READ, sorted::zrank),
    on_elements("zrem", -3, FREE, sorted::zrem),
    on_elements("zremrangebylex", 4, &["write"], sorted::zremrangebylex),
    on_elements("zremrangebyrank", 4, &["write"], sorted::zremrangebyrank),
    on_elements("zremrangebyscore", 4, &["write"], sorted::zremrangebyscore),
    on_elements("zrevrange", -4, READ, sorted::zrevrange),
    on_elements("zrevrangebylex", -4, READ, sorted::zrevrangebylex),
    on_elements("zrevrangebyscore", -4, READ, sorted::zrevrangebyscore),
    on_elements("zrevrank", 3, FAST_READ, sorted::zrevrank),
    on_elements("zscan", -3, READ, sorted::zscan),
    on_elements("zscore", 3, FAST_READ, sorted::zscore),
    numbered("zunion", -3, NUMBERED_READ, 1, sorted::zunion),
    storing("zunionstore", sorted::zunionstore),
];

/// The longest name of a command, in bytes.
const MAX_NAME: usize = 16;

/// The names of all commands, as numbers in the same order: with sixteen commands at once, the
/// search for the command was a tenth of the time when it compared strings.
static NAMES: [u128; COMMANDS.len()] = {
    let mut names = [0; COMMANDS.len()];
    let mut at = 0;
    while at < names.len() {
        let (name, mut padded, mut byte) = (COMMANDS[at].name.as_bytes(), [0; MAX_NAME], 0);
        while byte < name.len() {
            padded[byte] = name[byte];
            byte += 1;
        }
        names[at] = u128::from_be_bytes(padded);
        at += 1;
    }
    names
};

/// Finds a command by its name, in either case.
pub(crate) fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    let mut padded = [0; MAX_NAME];
    padded.get_mut(..name.len())?.copy_from_slice(name);
    padded.make_ascii_lowercase();
    let at = NAMES.binary_search(&u128::from_be_bytes(padded)).ok()?;
    // A name that ends in zero bytes is none.
    Some(&COMMANDS[at]).filter(|info| info.name.len() == name.len())
}

/// Finds the command, and checks the number of its arguments.
///
/// # Errors
/// The reply.
pub(crate) fn check(command: &Command<'_>) -> Result<&'static CommandInfo, Vec<u8>> {
    let Some(info) = find(command.name()) else { return Err(unknown(command)) };
    let parts = i32::try_from(command.len()).expect("the parts are limited");
    let fits = if info.arity < 0 { parts >= -info.arity } else { parts == info.arity };
    match fits {
        true => Ok(info),
        false => {
            let name = info.name;
            Err(format!("ERR wrong number of arguments for '{name}' command").into_bytes())
        }
    }
}

/// Returns the reply to a command that a client may not send now; `None` if it may.
pub(crate) fn refusal(session: &Session, name: &str) -> Option<String> {
    if !session.is_authenticated && !matches!(name, "auth" | "hello" | "quit" | "reset") {
        return Some("NOAUTH Authentication required.".to_owned());
    }
    channels::refusal(session, name)
}

/// Bytes of a command's name, and of all its arguments, in the reply to an unknown one.
const SHOWN: usize = 128;

fn unknown(command: &Command<'_>) -> Vec<u8> {
    let mut arguments = Vec::new();
    for argument in command.iter().skip(1) {
        if arguments.len() >= SHOWN {
            break;
        }
        arguments.push(b'\'');
        let room = SHOWN - (arguments.len() - 1);
        arguments.extend_from_slice(shown(argument, room));
        arguments.extend_from_slice(b"' ");
    }
    [
        b"ERR unknown command '",
        shown(command.name(), SHOWN),
        b"', with args beginning with: ",
        &arguments,
    ]
    .concat()
}

/// Returns what Redis shows of a text, in at most `room` bytes: it ends at a zero byte.
fn shown(text: &[u8], room: usize) -> &[u8] {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    &text[..text.len().min(room)]
}

/// Returns the reply to a subcommand that does not exist.
fn unknown_subcommand(call: &Call<'_>) -> Failure {
    let given = String::from_utf8_lossy(call.argument(1)).into_owned();
    let name = call.name.to_ascii_uppercase();
    format!("ERR unknown subcommand '{given}'. Try {name} HELP.").into()
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, MAX_NAME, find};

    #[test]
    fn commands_are_in_the_order_of_their_names() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        assert!(COMMANDS.iter().all(|info| info.name.len() <= MAX_NAME));
        assert_eq!(find(b"GeT").expect("a command").name, "get");
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none());
        assert!(
            find(b"get\0").is_none()
                && COMMANDS.iter().all(|info| find(info.name.as_bytes()).is_some())
        );
    }
}
