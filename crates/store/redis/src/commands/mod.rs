//! The commands: their names, their arguments, and what executes them.

mod channels;
mod connection;
mod hashes;
mod info;
mod keys;
mod strings;
mod transactions;

pub(crate) use channels::write_message;
pub(crate) use transactions::{is_queued, queue};

use crate::call::{Call, Failure};
use crate::session::Session;
use sprat_resp::Command;

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
        (at(first)..end.min(command.len())).step_by(at(step).max(1))
    }
}

const READ: &[&str] = &["readonly"];
const FAST_READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const FAST_WRITE: &[&str] = &["write", "denyoom", "fast"];
const FREE: &[&str] = &["write", "fast"];
const SERVER: &[&str] = &["loading", "stale", "fast"];

const NO_KEY: (i32, i32, i32) = (0, 0, 0);
const ONE_KEY: (i32, i32, i32) = (1, 1, 1);
const ALL_KEYS: (i32, i32, i32) = (1, -1, 1);
const TWO_KEYS: (i32, i32, i32) = (1, 2, 1);
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
    CommandInfo { name, arity, flags, keys, uses_database: true, is_collection: false, run }
}

/// A command on elements of the collection of a key.
const fn on_elements(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    run: fn(&mut Call<'_>) -> Result<(), Failure>,
) -> CommandInfo {
    CommandInfo { is_collection: true, ..keyed(name, arity, flags, ONE_KEY, run) }
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
        uses_database: false,
        is_collection: false,
        run,
    }
}

/// All commands, in the order of their names.
pub(crate) const COMMANDS: &[CommandInfo] = &[
    keyed("append", 3, FAST_WRITE, ONE_KEY, strings::append),
    plain("auth", -2, connection::auth),
    plain("client", -2, connection::client),
    plain("command", -1, info::command),
    plain("config", -2, info::config),
    keyed("copy", -3, WRITE, TWO_KEYS, keys::copy),
    keyed("dbsize", 1, FAST_READ, NO_KEY, keys::dbsize),
    keyed("decr", 2, FAST_WRITE, ONE_KEY, strings::decr),
    keyed("decrby", 3, FAST_WRITE, ONE_KEY, strings::decrby),
    keyed("del", -2, FREE, ALL_KEYS, keys::del),
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
    keyed("scan", -2, READ, NO_KEY, keys::scan),
    plain("select", 2, connection::select),
    keyed("set", -3, WRITE, ONE_KEY, strings::set),
    keyed("setex", 4, WRITE, ONE_KEY, strings::setex),
    keyed("setnx", 3, FAST_WRITE, ONE_KEY, strings::setnx),
    keyed("setrange", 4, WRITE, ONE_KEY, strings::setrange),
    keyed("strlen", 2, FAST_READ, ONE_KEY, strings::strlen),
    plain("subscribe", -2, channels::subscribe),
    keyed("substr", 4, READ, ONE_KEY, strings::getrange),
    plain("time", 1, info::time),
    keyed("touch", -2, FAST_READ, ALL_KEYS, keys::exists),
    keyed("ttl", 2, FAST_READ, ONE_KEY, keys::ttl),
    keyed("type", 2, FAST_READ, ONE_KEY, keys::type_of),
    keyed("unlink", -2, FREE, ALL_KEYS, keys::del),
    plain("unsubscribe", -1, channels::unsubscribe),
    plain("unwatch", 1, transactions::unwatch),
    plain("wait", 3, info::wait),
    keyed("watch", -2, SERVER, ALL_KEYS, transactions::watch),
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
