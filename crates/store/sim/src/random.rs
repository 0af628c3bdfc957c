//! Randomness, from a seed.

use sprat_chance::Chance;
use std::time::Duration;

/// Draws the simulator's random values from a [`Chance`]. Since seeds of histories are recorded,
/// each draw must always give the same value for a seed.
#[derive(Clone, Debug)]
pub struct Random(Chance);

impl Random {
    /// Returns the random sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a separate sequence. Draws from it do not change this sequence.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// Returns a number below `end`, which must be above zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.modulo(end)
    }

    /// Returns a number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Returns true with a probability of `of` in `all`.
    pub fn chance(&mut self, of: u64, all: u64) -> bool {
        self.below(all) < of
    }

    /// Returns one of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.index(choices.len())]
    }

    /// Returns a time from `from` to `to` microseconds.
    pub fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_nanos(self.between(from * 1000, to * 1000))
    }
}
