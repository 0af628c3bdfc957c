//! Random numbers from a seed: the same on every machine and in every release.
//!
//! Loads, planned racks, histories of the simulator and tests that must be reproducible draw from a
//! [`Chance`]. Users' files and tests record seeds, so the numbers of a seed never change: the
//! tests of this crate pin them. Nothing here is secret; use `sprat_host::random` for that.

/// A sequence of numbers determined by a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014),
/// which is small and fast, passes the usual tests of randomness, and repeats after 2^64 numbers.
///
/// A clone continues with the same numbers.
///
/// ```
/// use sprat_chance::Chance;
/// let mut chance = Chance::new(2015);
/// let die = 1 + chance.below(6);
/// assert!((1..=6).contains(&die));
/// assert_eq!(die, 1 + Chance::new(2015).below(6));
/// ```
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Returns the sequence of a seed. Seeds may be close to each other: 1 and 2 give unrelated
    /// sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns sequence number `stream` of a seed. A program that needs several unrelated sequences
    /// takes one for each number.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self(Self(seed).draw() ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Draws the next number: any `u64`, each equally likely.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Draws the upper half of the next number: any `u32`, each equally likely.
    pub fn draw_u32(&mut self) -> u32 {
        u32::try_from(self.draw() >> 32).expect("the upper half of 64 bits")
    }

    /// Draws a number from 0 to `bound` - 1, from the upper bits of [`draw`](Self::draw).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "one of none");
        // The high half of the product is as evenly distributed as a remainder, without a division.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of 128 bits")
    }

    /// Draws a number from 0 to `bound` - 1: the remainder of [`draw`](Self::draw) divided by
    /// `bound`. [`below`](Self::below) draws other numbers. The store's simulator and tests have
    /// recorded seeds that depend on this function.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn modulo(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Draws an index into a slice of `len` items, by [`modulo`](Self::modulo).
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.modulo(len as u64)).expect("below a usize")
    }

    /// Returns true once in `chances` draws on average, by [`modulo`](Self::modulo).
    ///
    /// # Panics
    /// If `chances` is 0.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.modulo(chances) == 0
    }

    /// Draws a number from 0 to 1, 1 excluded, with the 53 bits that a double holds.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The finaliser of SplitMix64: each bit of the result depends on all bits of `word`, and no two
/// words have the same result. `mix(0)` is 0.
#[must_use]
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Draws the next number of Marsaglia's xorshift (2003). `state` is the last number drawn; the call
/// replaces it by the next one, and returns that. It must not be 0. Tests of replication and of the
/// kernels have recorded seeds for this function; a [`Chance`] takes any seed and is the better
/// generator.
pub fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::{Chance, mix, xorshift};

    fn drawn<T>(mut chance: Chance, draw: impl Fn(&mut Chance) -> T) -> [T; 4] {
        std::array::from_fn(|_| draw(&mut chance))
    }

    #[test]
    fn numbers_are_those_of_the_paper() {
        // The reference program's first outputs for the seed 1234567.
        let numbers = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!(drawn(Chance::new(1_234_567), Chance::draw), numbers);
    }

    #[test]
    fn seeds_keep_their_numbers() {
        let zero = [
            16_294_208_416_658_607_535,
            7_960_286_522_194_355_700,
            487_617_019_471_545_679,
            17_909_611_376_780_542_444,
        ];
        assert_eq!(drawn(Chance::new(0), Chance::draw), zero);
        assert_eq!(
            drawn(Chance::new(u64::MAX), Chance::draw)[..2],
            [16_490_336_266_968_443_936, 16_834_447_057_089_888_969]
        );
        assert_eq!(
            drawn(Chance::stream(7, 3), Chance::draw)[..2],
            [1_156_648_547_160_330_306, 1_636_221_917_143_832_206]
        );
        assert_eq!(
            drawn(Chance::new(0), Chance::draw_u32),
            [3_793_791_033, 1_853_398_634, 113_532_184, 4_169_906_344]
        );
        assert_eq!(drawn(Chance::new(0), |chance| chance.below(1000)), [883, 431, 26, 970]);
        assert_eq!(drawn(Chance::new(0), |chance| chance.modulo(1000)), [535, 700, 679, 444]);
        assert_eq!(drawn(Chance::new(0), |chance| chance.index(1000)), [535, 700, 679, 444]);
        assert_eq!(drawn(Chance::new(0), |chance| chance.one_in(4)), [false, true, false, true]);
        let shares = [
            0.883_310_808_213_642_6,
            0.431_527_997_048_509_97,
            0.026_433_771_592_597_743,
            0.970_881_978_153_828_5,
        ];
        assert_eq!(drawn(Chance::new(0), Chance::share), shares);
        assert_eq!(
            [0, 1, u64::MAX].map(mix),
            [0, 6_238_072_747_940_578_789, 13_029_008_266_876_403_067]
        );
    }

    #[test]
    fn xorshift_keeps_its_numbers() {
        let mut state = 1;
        assert_eq!(xorshift(&mut state), 1_082_269_761);
        assert_eq!(xorshift(&mut state), 1_152_992_998_833_853_505);
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
