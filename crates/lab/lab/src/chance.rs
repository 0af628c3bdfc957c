//! Random numbers that a seed reproduces.

use sprat_chance::Chance;

/// Returns the random sequence of `seed` and `salts`. Sequences with different salts are
/// independent of each other. The order of the salts matters.
#[must_use]
pub fn salted(seed: u64, salts: &[u64]) -> Chance {
    let mut chance = Chance::new(seed);
    for salt in salts {
        chance = Chance::new(chance.draw() ^ salt);
    }
    Chance::new(chance.draw())
}

/// Returns a salt for [`salted`], computed from a name. Equal names give equal salts on every
/// machine.
#[must_use]
pub fn salt(name: &str) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words: Vec<_> = name.as_bytes().chunks(8).map(word).collect();
    salted(name.len() as u64, &words).draw()
}

/// A probability, in steps of 2^-64.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// Always.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// Returns the probability for a share from 0 to 1; `None` if `share` is outside that range.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the range was checked, and the cast saturates"
        )]
        let steps = (share * u64::MAX as f64) as u64;
        (0.0..=1.0).contains(&share).then_some(Self(steps))
    }

    /// Draws whether something of this probability happens.
    pub fn happens(self, chance: &mut Chance) -> bool {
        // Draws nothing if the probability is 0: a setting that is off costs nothing and does not
        // shift the random numbers of the others.
        self.0 != 0 && (self.0 == u64::MAX || chance.draw() < self.0)
    }

    /// Returns the probability as a share from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a probability to be read by people")]
        let (steps, all) = (self.0 as f64, u64::MAX as f64);
        steps / all
    }
}

#[cfg(test)]
mod tests {
    use super::{salt, salted};

    #[test]
    fn seeds_keep_their_numbers() {
        let drawn = |mut chance: sprat_chance::Chance| [chance.draw(), chance.draw()];
        assert_eq!(drawn(salted(1, &[])), [6_791_897_765_849_424_158, 17_405_687_883_870_564_846]);
        assert_eq!(
            drawn(salted(1, &[2, 3])),
            [1_321_962_074_176_129_191, 15_925_659_190_040_627_001]
        );
        assert_eq!(
            [salt(""), salt("a name that is long")],
            [12_035_550_249_420_947_055, 8_542_711_504_621_174_361]
        );
    }
}
