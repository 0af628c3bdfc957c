//! Chance that a seed reproduces.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns the sequence of `seed` and `salts`. Sequences of one seed with different salts have nothing to do with each
    /// other; the order of salts matters.
    #[must_use]
    pub fn new(seed: u64, salts: &[u64]) -> Self {
        let mut chance = Self(seed);
        for salt in salts {
            chance = Self(chance.draw() ^ salt);
        }
        Self(chance.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; zero when that is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(limit);
        u64::try_from(wide >> 64).expect("the upper half of a product is 64 bits")
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: Probability) -> bool {
        // Nothing is drawn for what never happens: a setting that is off costs nothing and changes no other.
        probability.0 != 0 && (probability.0 == u64::MAX || self.draw() < probability.0)
    }
}

/// Returns a salt for [`Chance::new`] from a name: equal for equal names, on every machine.
#[must_use]
pub fn salt(name: &str) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words: Vec<_> = name.as_bytes().chunks(8).map(word).collect();
    Chance::new(name.len() as u64, &words).draw()
}

/// A probability, in steps of 2^-64.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// Always.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// From a share of one; `None` unless it is one.
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

    /// As a share of one.
    #[must_use]
    pub fn share(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a probability to be read by people")]
        let (steps, all) = (self.0 as f64, u64::MAX as f64);
        steps / all
    }
}
