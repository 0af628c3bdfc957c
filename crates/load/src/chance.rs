//! Chance from a seed.

/// Numbers from a seed: splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The `stream`s of a seed know nothing of each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Self(seed);
        let start = chance.draw();
        Self(start ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound`, which is not in it.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "one of none");
        // The high half of a product: as even as a remainder, without a division.
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// From 0 to 1, which is not in it.
    pub(crate) fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
