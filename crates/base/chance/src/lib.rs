//! Chance from a seed: the same numbers on every machine, for whatever is to be drawn again. Nothing here keeps a secret.

/// The next number of a sequence: Steele, Lea and Flood's SplitMix64 (OOPSLA 2014).
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of a seed's `stream`s, which know nothing of each other.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut state = seed;
        Self(splitmix(&mut state) ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        splitmix(&mut self.0)
    }

    /// From 0 to `bound`, which is not in it.
    ///
    /// # Panics
    /// A bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "one of none");
        // The high half of a product: as even as a remainder, without a division.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of 128 bits")
    }

    /// From 0 to 1, which is not in it.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn numbers_are_those_of_the_paper() {
        // The reference program's first outputs for the seed 1234567.
        let mut chance = Chance::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut chance = Chance::stream(1, 2);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[usize::try_from(chance.below(5)).expect("small")] = true;
            assert!((0.0..1.0).contains(&chance.share()));
        }
        assert_eq!(seen, [true; 5]);
    }
}
