//! Optimistic transactions of Redis: `WATCH`, reads, and then `MULTI` and `EXEC`, which does
//! nothing if a watched key has changed.

use anyhow::{Result, bail, ensure};

use super::connection::{RedisAnswer as Answer, RedisConnection};
use crate::scenarios::{Contender, number_of, value_of};

/// A client of Redis that makes transactions.
pub(crate) struct RedisContender(pub(crate) RedisConnection);

impl RedisContender {
    fn number_in_answer(&mut self) -> Result<u64> {
        match self.0.answer()? {
            Answer::Nil => Ok(0),
            Answer::Value(value) => number_of(&value),
            other => bail!("Redis answered {other:?} instead of a value"),
        }
    }
}

impl Contender for RedisContender {
    fn add_to(&mut self, [first, second]: [&[u8]; 2]) -> Result<u64> {
        for attempt in 1.. {
            self.0.send(&[&[b"WATCH", first, second], &[b"MGET", first, second]])?;
            ensure!(self.0.answer()? == Answer::Line("OK".to_owned()), "WATCH failed");
            ensure!(self.0.answer()? == Answer::Several(2), "MGET failed");
            let one = value_of(self.number_in_answer()? + 1);
            let other = value_of(self.number_in_answer()? + 1);
            let (one, other): (&[&[u8]], &[&[u8]]) =
                (&[b"SET", first, &one], &[b"SET", second, &other]);
            self.0.send(&[&[b"MULTI"], one, other, &[b"EXEC"]])?;
            for expected in ["OK", "QUEUED", "QUEUED"] {
                ensure!(self.0.answer()? == Answer::Line(expected.to_owned()), "MULTI failed");
            }
            match self.0.answer()? {
                Answer::Nil => {}
                Answer::Several(2) => {
                    for _ in 0..2 {
                        ensure!(self.0.answer()? == Answer::Line("OK".to_owned()), "SET failed");
                    }
                    return Ok(attempt);
                }
                other => bail!("Redis answered {other:?} to EXEC"),
            }
        }
        unreachable!("it tries for ever")
    }

    fn number(&mut self, key: &[u8]) -> Result<u64> {
        self.0.send(&[&[b"GET", key]])?;
        self.number_in_answer()
    }
}
