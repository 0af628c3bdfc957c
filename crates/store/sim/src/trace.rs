//! The events of a history, in order, as text and as a single hash.

use sprat_chance::mix;
use sprat_net::Nanos;
use std::fmt;

/// A log of the events of a history.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Vec<String>,
    hash: u64,
}

impl Trace {
    /// Adds a line.
    pub fn note(&mut self, now: Nanos, what: fmt::Arguments<'_>) {
        let line = format!("{:>12.6} {what}", std::time::Duration::from_nanos(now.0).as_secs_f64());
        for chunk in line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.count(u64::from_le_bytes(word));
        }
        self.lines.push(line);
    }

    /// Adds a number only to the hash, for events that are too many to write down.
    pub fn count(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(5) ^ word);
    }

    /// Returns the lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns the hash. Two histories with equal hashes are almost certainly equal.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
