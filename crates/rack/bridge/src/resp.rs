//! The commands of Redis clients and the replies to them, in RESP2: commands are arrays of bulk
//! strings.
//!
//! This parser accepts nothing else. A general RESP parser would follow nested arrays to any depth
//! that a client sends.

use crate::cell::MAX_BRIDGED_VALUE;

/// Limit on the parts of a command: its name, and arguments such as the keys of an MGET or DEL. A
/// command with more parts is an error.
pub const MAX_ARGUMENTS: usize = 1_024;

/// Limit on the bytes of a part, and of a command that is not complete yet: the longest value, and
/// 256 KiB for the other parts. A connection that sends more is closed.
pub const MAX_COMMAND: usize = MAX_BRIDGED_VALUE + (256 << 10);

/// Limit on a header line, in bytes: a type byte, a number, and the line's end.
const MAX_LINE: usize = 16;

/// The parts of a command, and its length.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommandParts<'a> {
    /// The name of the command, and its arguments.
    pub parts: Vec<&'a [u8]>,
    /// Bytes of the whole command.
    pub len: usize,
}

/// Parses the first command in `bytes`. Returns `None` if the command is not complete yet.
///
/// # Errors The bytes are not an array of bulk strings, the command has more than [`MAX_ARGUMENTS`]
/// parts, a part is longer than [`MAX_COMMAND`] bytes, or more than that many bytes have come and
/// the command is not complete. The caller must send the returned error and close the connection,
/// since it is unknown where the next command starts.
pub fn parse_command(bytes: &[u8]) -> Result<Option<CommandParts<'_>>, &'static str> {
    let (Some(count), mut at) = header(bytes, b'*')? else { return incomplete(bytes) };
    if count > MAX_ARGUMENTS {
        return Err("ERR more than 1024 parts in one command");
    }
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let (Some(len), head) = header(&bytes[at..], b'$')? else { return incomplete(bytes) };
        if len > MAX_COMMAND {
            return Err("ERR a part is longer than the longest value, 1048575 bytes");
        }
        let begin = at + head;
        let (Some(part), Some(end)) =
            (bytes.get(begin..begin + len), bytes.get(begin + len..begin + len + 2))
        else {
            return incomplete(bytes);
        };
        if end != b"\r\n" {
            return Err("ERR a string does not have the announced length");
        }
        parts.push(part);
        at = begin + len + 2;
    }
    Ok(Some(CommandParts { parts, len: at }))
}

/// Returns `None` for an incomplete command, or an error if it is already too long.
fn incomplete<T>(bytes: &[u8]) -> Result<Option<T>, &'static str> {
    if bytes.len() > MAX_COMMAND { Err("ERR the command is too long") } else { Ok(None) }
}

/// Parses a header line. Returns the number in it (`None` if the line is incomplete), and the
/// length of the line in bytes.
fn header(bytes: &[u8], mark: u8) -> Result<(Option<usize>, usize), &'static str> {
    if bytes.first().is_some_and(|first| *first != mark) {
        return Err("ERR want an array of strings, as clients of Redis send it (RESP2)");
    }
    let head = &bytes[..bytes.len().min(MAX_LINE)];
    let Some(end) = head.windows(2).position(|two| two == b"\r\n") else {
        return if head.len() < MAX_LINE { Ok((None, 0)) } else { Err("ERR a number is too long") };
    };
    let digits = &head[1..end];
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number =
        number.and_then(|text| text.parse().ok()).ok_or("ERR want a number of parts or bytes")?;
    Ok((Some(number), end + 2))
}

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
    /// The command is empty or unknown, or has the wrong number of arguments. The returned text is
    /// the error to send, in Redis's style.
    pub fn from_parts(parts: &[&'a [u8]]) -> Result<Self, String> {
        let (name, rest) = parts.split_first().ok_or("ERR an empty command")?;
        let name = name.to_ascii_uppercase();
        match (&name[..], rest) {
            (b"PING", []) => Ok(Self::Ping(None)),
            (b"PING", [text]) => Ok(Self::Ping(Some(text))),
            (b"GET", [key]) => Ok(Self::Get(key)),
            (b"SET", [key, value]) => Ok(Self::Set(key, value)),
            (b"SET", [_, _, ..]) => {
                Err("ERR SET takes a key and a value, and no options: nothing expires here"
                    .to_owned())
            }
            (b"MGET", [_, ..]) => Ok(Self::Mget(rest.to_vec())),
            (b"DEL", [_, ..]) => Ok(Self::Del(rest.to_vec())),
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

/// A reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedisReply {
    /// A simple string.
    Simple(&'static str),
    /// A bulk string, or null.
    Bulk(Option<Vec<u8>>),
    /// An integer.
    Integer(i64),
    /// An array of replies.
    Array(Vec<RedisReply>),
    /// An error, on one line.
    Error(String),
}

impl RedisReply {
    /// Appends the encoded reply to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Simple(word) => to.extend([b"+", word.as_bytes(), b"\r\n"].concat()),
            Self::Bulk(None) => to.extend(b"$-1\r\n"),
            Self::Bulk(Some(bytes)) => {
                to.extend(format!("${}\r\n", bytes.len()).bytes());
                to.extend(bytes);
                to.extend(b"\r\n");
            }
            Self::Integer(number) => to.extend(format!(":{number}\r\n").bytes()),
            Self::Array(all) => {
                to.extend(format!("*{}\r\n", all.len()).bytes());
                all.iter().for_each(|one| one.encode(to));
            }
            Self::Error(why) => {
                to.extend(format!("-{}\r\n", why.replace(['\r', '\n'], " ")).bytes())
            }
        }
    }
}
