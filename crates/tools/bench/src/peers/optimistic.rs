//! Optimistic transactions of Redis: `WATCH`, reads, and then `MULTI` and `EXEC`, which does
//! nothing if a watched key has changed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Endpoint;
use super::redis::{decimal, word};
use crate::scenarios::{Contender, number_of, value_of};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to Redis that makes transactions.
pub(crate) struct RedisContender {
    stream: BufReader<TcpStream>,
}

/// An answer of Redis.
#[derive(Debug, Eq, PartialEq)]
enum Answer {
    /// Nothing: no such key, or a transaction that was not executed.
    Nil,
    /// A line of text.
    Line(String),
    /// The bytes of a value.
    Value(Vec<u8>),
    /// The number of answers that follow.
    Several(usize),
}

impl RedisContender {
    /// Connects to a server.
    ///
    /// # Errors
    /// When the server does not accept the connection, or does not listen on TCP.
    pub(crate) fn connect(endpoint: &Endpoint) -> Result<Self> {
        let Endpoint::Tcp(_) = endpoint else { bail!("transactions are measured over TCP") };
        let stream = TcpStream::from(endpoint.connect()?);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends commands, all in one write.
    fn send(&mut self, commands: &[&[&[u8]]]) -> Result<()> {
        let mut out = Vec::new();
        for command in commands {
            out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            command.iter().for_each(|text| word(&mut out, text));
        }
        Ok(self.stream.get_mut().write_all(&out)?)
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("an answer of Redis")?;
        let text = line.trim_end();
        let (kind, rest) = text.split_at_checked(1).context("an empty answer of Redis")?;
        let count = || decimal(rest.as_bytes()).context("a length in an answer of Redis");
        Ok(match (kind, rest) {
            ("$" | "*", "-1") => Answer::Nil,
            ("+", _) => Answer::Line(rest.to_owned()),
            ("*", _) => Answer::Several(count()?),
            ("$", _) => {
                let mut value = vec![0; count()? + 2];
                self.stream.read_exact(&mut value)?;
                value.truncate(value.len() - 2);
                Answer::Value(value)
            }
            _ => bail!("Redis answered {text:?}"),
        })
    }

    fn number_in_answer(&mut self) -> Result<u64> {
        match self.answer()? {
            Answer::Nil => Ok(0),
            Answer::Value(value) => number_of(&value),
            other => bail!("Redis answered {other:?} instead of a value"),
        }
    }
}

impl Contender for RedisContender {
    fn add_to(&mut self, [first, second]: [&[u8]; 2]) -> Result<u64> {
        for attempt in 1.. {
            self.send(&[&[b"WATCH", first, second], &[b"MGET", first, second]])?;
            ensure!(self.answer()? == Answer::Line("OK".to_owned()), "WATCH failed");
            ensure!(self.answer()? == Answer::Several(2), "MGET failed");
            let one = value_of(self.number_in_answer()? + 1);
            let other = value_of(self.number_in_answer()? + 1);
            let (one, other): (&[&[u8]], &[&[u8]]) =
                (&[b"SET", first, &one], &[b"SET", second, &other]);
            self.send(&[&[b"MULTI"], one, other, &[b"EXEC"]])?;
            for expected in ["OK", "QUEUED", "QUEUED"] {
                ensure!(self.answer()? == Answer::Line(expected.to_owned()), "MULTI failed");
            }
            match self.answer()? {
                Answer::Nil => {}
                Answer::Several(2) => {
                    for _ in 0..2 {
                        ensure!(self.answer()? == Answer::Line("OK".to_owned()), "SET failed");
                    }
                    return Ok(attempt);
                }
                other => bail!("Redis answered {other:?} to EXEC"),
            }
        }
        unreachable!("it tries for ever")
    }

    fn number(&mut self, key: &[u8]) -> Result<u64> {
        self.send(&[&[b"GET", key]])?;
        self.number_in_answer()
    }
}
