//! A connection to Redis for one command, or a few, at a time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Endpoint;
use super::redis::{decimal, word};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to Redis.
pub struct RedisConnection {
    stream: BufReader<TcpStream>,
}

/// An answer of Redis.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum RedisAnswer {
    /// Nothing: no such key, or a transaction that was not executed.
    Nil,
    /// A line of text.
    Line(String),
    /// The bytes of a value.
    Value(Vec<u8>),
    /// A number.
    Integer(u64),
    /// The number of answers that follow.
    Several(usize),
}

impl RedisConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// When the server does not accept the connection, or does not listen on TCP.
    pub(crate) fn connect(endpoint: &Endpoint) -> Result<Self> {
        let Endpoint::Tcp(_) = endpoint else { bail!("Redis is measured over TCP") };
        let stream = TcpStream::from(endpoint.connect()?);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends commands, all in one write.
    pub(crate) fn send(&mut self, commands: &[&[&[u8]]]) -> Result<()> {
        let mut out = Vec::new();
        for command in commands {
            out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            command.iter().for_each(|text| word(&mut out, text));
        }
        Ok(self.stream.get_mut().write_all(&out)?)
    }

    /// Receives an answer; of an array only its length, so that its items are the next answers.
    pub(crate) fn answer(&mut self) -> Result<RedisAnswer> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("an answer of Redis")?;
        let text = line.trim_end();
        let (kind, rest) = text.split_at_checked(1).context("an empty answer of Redis")?;
        let count = || decimal(rest.as_bytes()).context("a length in an answer of Redis");
        Ok(match (kind, rest) {
            ("$" | "*", "-1") => RedisAnswer::Nil,
            ("+", _) => RedisAnswer::Line(rest.to_owned()),
            (":", _) => RedisAnswer::Integer(rest.parse()?),
            ("*", _) => RedisAnswer::Several(count()?),
            ("$", _) => {
                let mut value = vec![0; count()? + 2];
                self.stream.read_exact(&mut value)?;
                value.truncate(value.len() - 2);
                RedisAnswer::Value(value)
            }
            _ => bail!("Redis answered {text:?}"),
        })
    }
}
