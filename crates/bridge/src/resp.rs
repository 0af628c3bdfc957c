//! What Redis' clients ask, parsed once. The bytes are parsed by a library.

use bytes::Bytes;
use redis_protocol::resp2::types::BytesFrame;

/// Parts of one question: keys of an MGET or DEL among them.
pub const MAX_ARGUMENTS: usize = 1_024;

/// A question that can be answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Question {
    /// Is anybody there.
    Ping(Option<Bytes>),
    /// The value of a key.
    Get(Bytes),
    /// The values of keys.
    Mget(Vec<Bytes>),
    /// Store a value.
    Set(Bytes, Bytes),
    /// Delete keys.
    Del(Vec<Bytes>),
    /// How it goes.
    Info,
    /// What commands there are: clients ask and are content with nothing.
    Command,
    /// The end.
    Quit,
}

impl Question {
    /// What a frame asks.
    ///
    /// # Errors
    /// What to answer instead, in Redis' manner.
    pub fn of(frame: BytesFrame) -> Result<Self, String> {
        let BytesFrame::Array(parts) = frame else { return Err("ERR want an array of strings".to_owned()) };
        if parts.len() > MAX_ARGUMENTS {
            return Err(format!("ERR {} parts; the most is {MAX_ARGUMENTS}", parts.len()));
        }
        let text = |part| match part {
            BytesFrame::BulkString(bytes) | BytesFrame::SimpleString(bytes) => Ok(bytes),
            _ => Err("ERR want an array of strings".to_owned()),
        };
        let mut parts = parts.into_iter().map(text).collect::<Result<Vec<Bytes>, String>>()?.into_iter();
        let name = String::from_utf8_lossy(&parts.next().unwrap_or_default()).to_ascii_uppercase();
        let rest: Vec<Bytes> = parts.collect();
        match (name.as_str(), &rest[..]) {
            ("PING", []) => Ok(Self::Ping(None)),
            ("PING", [text]) => Ok(Self::Ping(Some(text.clone()))),
            ("GET", [key]) => Ok(Self::Get(key.clone())),
            ("SET", [key, value]) => Ok(Self::Set(key.clone(), value.clone())),
            ("SET", [_, _, ..]) => Err("ERR SET takes a key and a value, no options: nothing expires here".to_owned()),
            ("MGET", [_, ..]) => Ok(Self::Mget(rest)),
            ("DEL", [_, ..]) => Ok(Self::Del(rest)),
            ("INFO", _) => Ok(Self::Info),
            ("COMMAND", _) => Ok(Self::Command),
            ("QUIT", _) => Ok(Self::Quit),
            ("PING" | "GET" | "SET" | "MGET" | "DEL", _) => Err(format!("ERR wrong number of arguments for {name}")),
            _ => Err("ERR unknown command; there are GET, SET, DEL, MGET, PING, INFO, QUIT".to_owned()),
        }
    }
}
