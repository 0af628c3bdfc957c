//! The commands: their names, their arguments, and what executes them.

mod channels;
mod connection;
mod elements;
mod hashes;
mod info;
mod keys;
mod lists;
mod scripting;
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
    pub(crate) run: fn(&mut Call<'_>) -> Result<(), Failure>,
}

impl CommandInfo {
    /// Returns whether a command has as many parts as it must have.
    pub(crate) fn has_arity_for(&self, command: &Command<'_>) -> bool {
        let parts = i32::try_from(command.len()).expect("the parts are limited");
        if self.arity < 0 { parts >= -self.arity } else { parts == self.arity }
    }

    /// Returns whether it has a flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns whether it has keys.
    fn has_keys(&self) -> bool {
        self.keys != NO_KEY || self.numbered_at > 0
    }

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

/// The flag of a command that has the number of its keys before them, which may be zero.
const NO_MANDATORY_KEYS: &str = "no_mandatory_keys";

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
    CommandInfo { name, arity, flags, keys, numbered_at: 0, uses_database: true, run }
}

/// A command that has the number of its keys before them.
const fn numbered(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    numbered_at: usize,
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo { numbered_at, ..keyed(name, arity, flags, NO_KEY, run) }
}

/// A command that gives a key what it makes of others, of which it has the number before them.
const fn storing(name: &'static str, run: fn(&mut Call<'_>) -> Result<(), Failure>) -> CommandInfo {
    CommandInfo { keys: ONE_KEY, ..numbered(name, -4, NUMBERED_STORE, 2, run) }
}

/// A command that executes a script.
const fn evaluating(
    name: &'static str,
    flags: &'static [&'static str],
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    numbered(name, -3, flags, 2, run)
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
        run,
    }
}

/// All commands, in the order of their names.
pub(crate) const COMMANDS: &[CommandInfo] = &[
    keyed("append", 3, FAST_WRITE, ONE_KEY, strings::append),
    plain("auth", -2, connection::auth),
    keyed("blmove", 6, &["write", "denyoom", "blocking"], TWO_KEYS, lists::blmove),
    numbered("blmpop", -5, NUMBERED_BLOCKING, 2, lists::blmpop),
    keyed("blpop", -3, BLOCKING, KEYS_BEFORE_TIMEOUT, lists::blpop),
    keyed("brpop", -3, BLOCKING, KEYS_BEFORE_TIMEOUT, lists::brpop),
    keyed("brpoplpush", 4, &["write", "denyoom", "blocking"], TWO_KEYS, lists::brpoplpush),
    numbered("bzmpop", -5, NUMBERED_BLOCKING, 2, sorted::bzmpop),
    keyed("bzpopmax", -3, &["write", "blocking", "fast"], KEYS_BEFORE_TIMEOUT, sorted::bzpopmax),
    keyed("bzpopmin", -3, &["write", "blocking", "fast"], KEYS_BEFORE_TIMEOUT, sorted::bzpopmin),
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
    evaluating("eval", scripting::FLAGS, scripting::eval),
    evaluating("eval_ro", scripting::READ_FLAGS, scripting::eval_ro),
    evaluating("evalsha", scripting::FLAGS, scripting::evalsha),
    evaluating("evalsha_ro", scripting::READ_FLAGS, scripting::evalsha_ro),
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
    keyed("hdel", -3, FREE, ONE_KEY, hashes::hdel),
    plain("hello", -1, connection::hello),
    keyed("hexists", 3, FAST_READ, ONE_KEY, hashes::hexists),
    keyed("hget", 3, FAST_READ, ONE_KEY, hashes::hget),
    keyed("hgetall", 2, READ, ONE_KEY, hashes::hgetall),
    keyed("hincrby", 4, FAST_WRITE, ONE_KEY, hashes::hincrby),
    keyed("hincrbyfloat", 4, FAST_WRITE, ONE_KEY, hashes::hincrbyfloat),
    keyed("hkeys", 2, READ, ONE_KEY, hashes::hkeys),
    keyed("hlen", 2, FAST_READ, ONE_KEY, hashes::hlen),
    keyed("hmget", -3, FAST_READ, ONE_KEY, hashes::hmget),
    keyed("hmset", -4, FAST_WRITE, ONE_KEY, hashes::hmset),
    keyed("hrandfield", -2, READ, ONE_KEY, hashes::hrandfield),
    keyed("hscan", -3, READ, ONE_KEY, hashes::hscan),
    keyed("hset", -4, FAST_WRITE, ONE_KEY, hashes::hset),
    keyed("hsetnx", 4, FAST_WRITE, ONE_KEY, hashes::hsetnx),
    keyed("hstrlen", 3, FAST_READ, ONE_KEY, hashes::hstrlen),
    keyed("hvals", 2, READ, ONE_KEY, hashes::hvals),
    keyed("incr", 2, FAST_WRITE, ONE_KEY, strings::incr),
    keyed("incrby", 3, FAST_WRITE, ONE_KEY, strings::incrby),
    keyed("incrbyfloat", 3, FAST_WRITE, ONE_KEY, strings::incrbyfloat),
    plain("info", -1, info::info),
    keyed("keys", 2, READ, NO_KEY, keys::keys),
    keyed("lindex", 3, READ, ONE_KEY, lists::lindex),
    keyed("linsert", 5, WRITE, ONE_KEY, lists::linsert),
    keyed("llen", 2, FAST_READ, ONE_KEY, lists::llen),
    keyed("lmove", 5, WRITE, TWO_KEYS, lists::lmove),
    numbered("lmpop", -4, NUMBERED_WRITE, 1, lists::lmpop),
    keyed("lpop", -2, FREE, ONE_KEY, lists::lpop),
    keyed("lpos", -3, READ, ONE_KEY, lists::lpos),
    keyed("lpush", -3, FAST_WRITE, ONE_KEY, lists::lpush),
    keyed("lpushx", -3, FAST_WRITE, ONE_KEY, lists::lpushx),
    keyed("lrange", 4, READ, ONE_KEY, lists::lrange),
    keyed("lrem", 4, &["write"], ONE_KEY, lists::lrem),
    keyed("lset", 4, WRITE, ONE_KEY, lists::lset),
    keyed("ltrim", 4, &["write"], ONE_KEY, lists::ltrim),
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
    keyed("rpop", -2, FREE, ONE_KEY, lists::rpop),
    keyed("rpoplpush", 3, WRITE, TWO_KEYS, lists::rpoplpush),
    keyed("rpush", -3, FAST_WRITE, ONE_KEY, lists::rpush),
    keyed("rpushx", -3, FAST_WRITE, ONE_KEY, lists::rpushx),
    keyed("sadd", -3, FAST_WRITE, ONE_KEY, sets::sadd),
    keyed("scan", -2, READ, NO_KEY, keys::scan),
    keyed("scard", 2, FAST_READ, ONE_KEY, sets::scard),
    plain("script", -2, scripting::script),
    keyed("sdiff", -2, READ, ALL_KEYS, sets::sdiff),
    keyed("sdiffstore", -3, WRITE, ALL_KEYS, sets::sdiffstore),
    plain("select", 2, connection::select),
    keyed("set", -3, WRITE, ONE_KEY, strings::set),
    keyed("setex", 4, WRITE, ONE_KEY, strings::setex),
    keyed("setnx", 3, FAST_WRITE, ONE_KEY, strings::setnx),
    keyed("setrange", 4, WRITE, ONE_KEY, strings::setrange),
    keyed("sinter", -2, READ, ALL_KEYS, sets::sinter),
    numbered("sintercard", -3, NUMBERED_READ, 1, sets::sintercard),
    keyed("sinterstore", -3, WRITE, ALL_KEYS, sets::sinterstore),
    keyed("sismember", 3, FAST_READ, ONE_KEY, sets::sismember),
    keyed("smembers", 2, READ, ONE_KEY, sets::smembers),
    keyed("smismember", -3, FAST_READ, ONE_KEY, sets::smismember),
    keyed("smove", 4, FREE, TWO_KEYS, sets::smove),
    keyed("sort", -2, NUMBERED_STORE, ONE_KEY, sort::sort_command),
    keyed("sort_ro", -2, NUMBERED_READ, ONE_KEY, sort::sort_command),
    keyed("spop", -2, FREE, ONE_KEY, sets::spop),
    keyed("srandmember", -2, READ, ONE_KEY, sets::srandmember),
    keyed("srem", -3, FREE, ONE_KEY, sets::srem),
    keyed("sscan", -3, READ, ONE_KEY, sets::sscan),
    keyed("strlen", 2, FAST_READ, ONE_KEY, strings::strlen),
    plain("subscribe", -2, channels::subscribe),
    keyed("substr", 4, READ, ONE_KEY, strings::getrange),
    keyed("sunion", -2, READ, ALL_KEYS, sets::sunion),
    keyed("sunionstore", -3, WRITE, ALL_KEYS, sets::sunionstore),
    plain("time", 1, info::time),
    keyed("touch", -2, FAST_READ, ALL_KEYS, keys::exists),
    keyed("ttl", 2, FAST_READ, ONE_KEY, keys::ttl),
    keyed("type", 2, FAST_READ, ONE_KEY, keys::type_of),
    keyed("unlink", -2, FREE, ALL_KEYS, keys::del),
    plain("unsubscribe", -1, channels::unsubscribe),
    plain("unwatch", 1, transactions::unwatch),
    plain("wait", 3, info::wait),
    keyed("watch", -2, SERVER, ALL_KEYS, transactions::watch),
    keyed("zadd", -4, FAST_WRITE, ONE_KEY, sorted::zadd),
    keyed("zcard", 2, FAST_READ, ONE_KEY, sorted::zcard),
    keyed("zcount", 4, FAST_READ, ONE_KEY, sorted::zcount),
    numbered("zdiff", -3, NUMBERED_READ, 1, sorted::zdiff),
    storing("zdiffstore", sorted::zdiffstore),
    keyed("zincrby", 4, FAST_WRITE, ONE_KEY, sorted::zincrby),
    numbered("zinter", -3, NUMBERED_READ, 1, sorted::zinter),
    numbered("zintercard", -3, NUMBERED_READ, 1, sorted::zintercard),
    storing("zinterstore", sorted::zinterstore),
    keyed("zlexcount", 4, FAST_READ, ONE_KEY, sorted::zlexcount),
    numbered("zmpop", -4, NUMBERED_WRITE, 1, sorted::zmpop),
    keyed("zmscore", -3, FAST_READ, ONE_KEY, sorted::zmscore),
    keyed("zpopmax", -2, FREE, ONE_KEY, sorted::zpopmax),
    keyed("zpopmin", -2, FREE, ONE_KEY, sorted::zpopmin),
    keyed("zrandmember", -2, READ, ONE_KEY, sorted::zrandmember),
    keyed("zrange", -4, READ, ONE_KEY, sorted::zrange),
    keyed("zrangebylex", -4, READ, ONE_KEY, sorted::zrangebylex),
    keyed("zrangebyscore", -4, READ, ONE_KEY, sorted::zrangebyscore),
    keyed("zrangestore", -5, WRITE, TWO_KEYS, sorted::zrangestore),
    keyed("zrank", 3, FAST_READ, ONE_KEY, sorted::zrank),
    keyed("zrem", -3, FREE, ONE_KEY, sorted::zrem),
    keyed("zremrangebylex", 4, &["write"], ONE_KEY, sorted::zremrangebylex),
    keyed("zremrangebyrank", 4, &["write"], ONE_KEY, sorted::zremrangebyrank),
    keyed("zremrangebyscore", 4, &["write"], ONE_KEY, sorted::zremrangebyscore),
    keyed("zrevrange", -4, READ, ONE_KEY, sorted::zrevrange),
    keyed("zrevrangebylex", -4, READ, ONE_KEY, sorted::zrevrangebylex),
    keyed("zrevrangebyscore", -4, READ, ONE_KEY, sorted::zrevrangebyscore),
    keyed("zrevrank", 3, FAST_READ, ONE_KEY, sorted::zrevrank),
    keyed("zscan", -3, READ, ONE_KEY, sorted::zscan),
    keyed("zscore", 3, FAST_READ, ONE_KEY, sorted::zscore),
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
    match info.has_arity_for(command) {
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

/// Replies with the subcommands of a command, and what they do.
fn help(call: &mut Call<'_>, lines: &[&str]) {
    const HELP: [&str; 2] = ["HELP", "    Print this help."];
    call.reply.array(lines.len() + HELP.len());
    lines.iter().chain(&HELP).for_each(|line| call.reply.simple(line));
}

/// Returns the reply to a subcommand that does not exist; or, if it is one of those that are
/// `known`, to one with the wrong number of arguments.
fn wrong_subcommand(call: &Call<'_>, known: &[&str]) -> Failure {
    let given = String::from_utf8_lossy(call.argument(1)).into_owned();
    let (name, lower) = (call.name, given.to_ascii_lowercase());
    if known.contains(&&lower[..]) {
        return format!("ERR wrong number of arguments for '{name}|{lower}' command").into();
    }
    let name = name.to_ascii_uppercase();
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
