//! The commands that the bridge has for Redis clients.

use crate::cell::MAX_BRIDGED_VALUE;
use sprat_resp::{Command, Limits, MAX_PARTS};

/// What a command may have: a part is at most as long as the longest value, and the other parts
/// have 256 KiB together.
pub const COMMAND_LIMITS: Limits =
    Limits { part: MAX_BRIDGED_VALUE, command: MAX_BRIDGED_VALUE + (256 << 10), parts: MAX_PARTS };

/// Limit on the parts of a command: its name, and arguments such as the keys of an MGET or DEL.
pub const MAX_ARGUMENTS: usize = 1_024;

/// A supported command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedisCommand<'a> {
    /// Checks the connection.
    Ping(Option<&'a [u8]>),
    /// Reads a key.
    Get(&'a [u8]),
    /// Reads several keys.
    Mget(Vec<&'a [u8]>),
    /// Stores a value.
    Set(&'a [u8], &'a [u8]),
    /// Deletes keys.
    Del(Vec<&'a [u8]>),
    /// Reports the bridge's counters.
    Info,
    /// Lists the commands: clients ask for the list, and accept an empty one.
    Command,
    /// Closes the connection.
    Quit,
}

impl<'a> RedisCommand<'a> {
    /// Interprets the arguments of a command.
    ///
    /// # Errors
    /// The command is unknown, has the wrong number of arguments, or more than [`MAX_ARGUMENTS`]
    /// parts. The returned text is the error to send, in Redis's style.
    pub fn of(command: Command<'a>) -> Result<Self, String> {
        if command.len() > MAX_ARGUMENTS {
            return Err(format!("ERR more than {MAX_ARGUMENTS} parts in one command"));
        }
        let name = command.name().to_ascii_uppercase();
        let rest: Vec<&[u8]> = command.iter().skip(1).collect();
        match (&name[..], &rest[..]) {
            (b"PING", []) => Ok(Self::Ping(None)),
            (b"PING", [text]) => Ok(Self::Ping(Some(text))),
            (b"GET", [key]) => Ok(Self::Get(key)),
            (b"SET", [key, value]) => Ok(Self::Set(key, value)),
            (b"SET", [_, _, ..]) => {
                Err("ERR SET takes a key and a value, and no options: nothing expires here"
                    .to_owned())
            }
            (b"MGET", [_, ..]) => Ok(Self::Mget(rest)),
            (b"DEL", [_, ..]) => Ok(Self::Del(rest)),
            (b"INFO", _) => Ok(Self::Info),
            (b"COMMAND", _) => Ok(Self::Command),
            (b"QUIT", _) => Ok(Self::Quit),
            (b"PING" | b"GET" | b"SET" | b"MGET" | b"DEL", _) => {
                Err(format!("ERR wrong number of arguments for {}", String::from_utf8_lossy(&name)))
            }
            _ => {
                Err("ERR unknown command; there are GET, SET, DEL, MGET, PING, INFO, QUIT"
                    .to_owned())
            }
        }
    }
}
