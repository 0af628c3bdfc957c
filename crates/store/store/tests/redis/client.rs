//! A client that sends commands to a server, Sprat or Redis, and a process with the real Redis.

use sprat_testing::{PATIENCE, free_port, until};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// A reply, in either version of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Double(String),
    Boolean(bool),
    /// A string with its format in front.
    Verbatim(Vec<u8>),
    Null,
    /// An array, a map, a set or a push, with its mark and all its elements.
    Many(u8, Vec<Reply>),
}

impl Reply {
    /// Parses a reply; returns it with the number of its bytes, or `None` if it is not complete.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let (mark, line) = (bytes[0], std::str::from_utf8(&bytes[1..end]).unwrap());
        let number = || line.parse::<i64>().unwrap();
        let mut at = end + 2;
        let reply = match mark {
            b'+' => Self::Simple(line.to_owned()),
            b'-' => Self::Error(line.to_owned()),
            b':' => Self::Integer(number()),
            b',' => Self::Double(line.to_owned()),
            b'#' => Self::Boolean(line == "t"),
            b'_' => Self::Null,
            b'$' | b'*' if number() < 0 => Self::Null,
            b'$' | b'=' => {
                let bulk = bytes.get(at..at + usize::try_from(number()).unwrap())?;
                at += bulk.len() + 2;
                bytes.get(..at)?;
                if mark == b'=' { Self::Verbatim(bulk.to_vec()) } else { Self::Bulk(bulk.to_vec()) }
            }
            b'*' | b'~' | b'%' | b'>' => {
                let count = number() * if mark == b'%' { 2 } else { 1 };
                let mut all = Vec::new();
                for _ in 0..count {
                    let (one, len) = Self::parse(&bytes[at..])?;
                    at += len;
                    all.push(one);
                }
                Self::Many(mark, all)
            }
            _ => panic!("no reply: {}", bytes.escape_ascii()),
        };
        Some((reply, at))
    }

    pub(crate) fn bulk(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    pub(crate) fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// Returns the elements of an array.
    pub(crate) fn elements(self) -> Vec<Reply> {
        match self {
            Self::Many(_, all) => all,
            other => panic!("no array: {other:?}"),
        }
    }
}

/// A connection of a client.
pub(crate) struct RedisClient {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

/// Encodes a command.
pub(crate) fn encode(parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend(format!("${}\r\n", part.as_ref().len()).into_bytes());
        bytes.extend_from_slice(part.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl RedisClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next reply; `None` if the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, len)) = Reply::parse(&self.received) {
                self.received.drain(..len);
                return Some(reply);
            }
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Sends a command and returns the reply.
    pub(crate) fn ask(&mut self, parts: &[impl AsRef<[u8]>]) -> Reply {
        self.send(&encode(parts));
        self.reply().expect("the connection is open")
    }

    /// Sends a command, given as words, and returns the reply.
    pub(crate) fn say(&mut self, line: &str) -> Reply {
        self.ask(&line.split(' ').collect::<Vec<_>>())
    }

    /// Sends commands at once, and returns the replies.
    pub(crate) fn ask_all(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let bytes: Vec<u8> = commands.iter().flat_map(|parts| encode(parts)).collect();
        self.send(&bytes);
        commands.iter().map(|_| self.reply().expect("the connection is open")).collect()
    }
}

/// The real Redis, in a process of its own.
pub(crate) struct RedisProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl RedisProcess {
    /// Starts Redis; returns `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts Redis with further arguments.
    pub(crate) fn start_with(more: &[&str]) -> Option<Self> {
        let port = free_port();
        let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
        let child = Command::new("redis-server")
            .args(arguments)
            .args(["--appendonly", "no", "--enable-debug-command", "local"])
            .args(more)
            .stdout(Stdio::null())
            .spawn();
        let child = child.ok()?;
        let address = ([127, 0, 0, 1], port).into();
        let process = Self { child, address };
        until("Redis answers", || TcpStream::connect(address).is_ok());
        Some(process)
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
