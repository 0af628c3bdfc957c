//! What Redis' clients ask, and what they are answered: RESP2, of which questions are arrays of
//! strings and nothing else.
//!
//! The parser is our own as it is all of forty lines, and as parsers of all of RESP follow arrays
//! within arrays as deep as whoever sends them likes.

use crate::cell::MAX_BRIDGED_VALUE;

/// Parts of one question: keys of an MGET or DEL among them.
pub const MAX_ARGUMENTS: usize = 1_024;

/// Bytes of one question: the longest value, and keys. A connection that sends more ends.
pub const MAX_QUESTION: usize = MAX_BRIDGED_VALUE + (256 << 10);

/// Bytes of a line that says how much follows: a mark, a number, and the line's end.
const MAX_LINE: usize = 16;

/// What a question is made of, and the bytes it took.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parts<'a> {
    /// Command and arguments.
    pub parts: Vec<&'a [u8]>,
    /// Bytes of all of it.
    pub len: usize,
}

/// The parts of the first question in `bytes`; none if it is not complete.
///
/// # Errors
/// What came is no question, or too long: what to answer before the connection is closed, as nobody
/// knows where the next begins.
pub fn parse(bytes: &[u8]) -> Result<Option<Parts<'_>>, &'static str> {
    let (Some(count), mut at) = line(bytes, b'*')? else { return incomplete(bytes) };
    if count > MAX_ARGUMENTS {
        return Err("ERR more than 1024 parts in one command");
    }
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let (Some(len), head) = line(&bytes[at..], b'$')? else { return incomplete(bytes) };
        if len > MAX_QUESTION {
            return Err("ERR a part is longer than the longest value, 1048575 bytes");
        }
        let begin = at + head;
        let (Some(part), Some(end)) =
            (bytes.get(begin..begin + len), bytes.get(begin + len..begin + len + 2))
        else {
            return incomplete(bytes);
        };
        if end != b"\r\n" {
            return Err("ERR a string does not end where it was said to");
        }
        parts.push(part);
        at = begin + len + 2;
    }
    Ok(Some(Parts { parts, len: at }))
}

/// More has to come, unless there is too much already.
fn incomplete<T>(bytes: &[u8]) -> Result<Option<T>, &'static str> {
    if bytes.len() > MAX_QUESTION { Err("ERR the command is too long") } else { Ok(None) }
}

/// The number that a line says after its mark, and the line's bytes; none if it is not complete.
fn line(bytes: &[u8], mark: u8) -> Result<(Option<usize>, usize), &'static str> {
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

/// A question that can be answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Question<'a> {
    /// Is anybody there.
    Ping(Option<&'a [u8]>),
    /// The value of a key.
    Get(&'a [u8]),
    /// The values of keys.
    Mget(Vec<&'a [u8]>),
    /// Store a value.
    Set(&'a [u8], &'a [u8]),
    /// Delete keys.
    Del(Vec<&'a [u8]>),
    /// How it goes.
    Info,
    /// What commands there are: clients ask and are content with nothing.
    Command,
    /// The end.
    Quit,
}

impl<'a> Question<'a> {
    /// What the parts ask.
    ///
    /// # Errors
    /// What to answer instead, in Redis' manner.
    pub fn of(parts: &[&'a [u8]]) -> Result<Self, String> {
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

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A word.
    Simple(&'static str),
    /// Bytes, or that there are none.
    Bulk(Option<Vec<u8>>),
    /// A number.
    Integer(i64),
    /// Several.
    Array(Vec<Answer>),
    /// What is wrong: one line.
    Error(String),
}

impl Answer {
    /// Appends it to `to`.
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
