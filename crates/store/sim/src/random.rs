//! Randomness, from a seed.

use sprat_chance::Chance;
use std::time::Duration;

/// Draws the simulator's random values from a [`Chance`]. Seeds of histories are recorded, so each
/// draw must stay as it is.
#[derive(Clone, Debug)]
pub struct Random(Chance);

impl Random {
    /// Returns the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A separate sequence: draws from it do not change this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// A number below `end`, which is above zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.modulo(end)
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True with probability `of` in `all`.
    pub fn chance(&mut self, of: u64, all: u64) -> bool {
        self.below(all) < of
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.index(choices.len())]
    }

    /// A time from `from` to `to` microseconds.
    pub fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_nanos(self.between(from * 1000, to * 1000))
    }
}
