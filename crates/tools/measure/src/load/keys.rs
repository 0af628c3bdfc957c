//! The keys and values of a load.

use serde::Serialize;
use sprat_chance::{Chance, mix};

/// Limit on the length of generated keys, in bytes. [`write_key`] panics beyond it.
pub const MAX_KEY_BYTES: usize = 250;

/// Lower limit on the length of generated keys, in bytes: the 20 digits of a `u64` must fit.
/// [`write_key`] panics below it.
pub const MIN_KEY_BYTES: usize = 20;

/// Limit on the length of generated values, in bytes (8 MiB). [`Values::new`] panics beyond it.
pub const MAX_VALUE_BYTES: usize = 8 << 20;

/// The distribution of keys over operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDistribution {
    /// All keys are equally likely.
    Uniform,
    /// The k-th most popular key is drawn in proportion to k^-exponent; the usual exponent is 0.99.
    /// Popular keys are spread over the key space.
    Zipf(f64),
}

/// Draws key numbers from a distribution.
#[derive(Clone, Debug)]
pub struct Chooser {
    chance: Chance,
    count: u64,
    zipf: Option<Zipf>,
}

impl Chooser {
    /// Creates a generator of numbers in 0..`count`.
    ///
    /// # Panics
    /// If `count` is 0, or the exponent of a [`KeyDistribution::Zipf`] is not finite and above 0.
    #[must_use]
    pub fn new(distribution: KeyDistribution, count: u64, seed: u64) -> Self {
        assert!(count > 0, "there must be a key to draw");
        let zipf = match distribution {
            KeyDistribution::Uniform => None,
            KeyDistribution::Zipf(exponent) => Some(Zipf::new(count, exponent)),
        };
        Self { chance: Chance::new(seed), count, zipf }
    }

    /// Draws the next key number.
    pub fn draw(&mut self) -> u64 {
        match &self.zipf {
            None => self.chance.below(self.count),
            Some(zipf) => mix(zipf.rank(&mut self.chance)) % self.count,
        }
    }

    /// Returns `true` with probability `share`.
    pub fn coin(&mut self, share: f64) -> bool {
        share >= 1.0 || (share > 0.0 && self.chance.share() < share)
    }
}

/// Draws ranks 1..=n in proportion to rank^-exponent, by rejection-inversion (Hörmann and
/// Derflinger, 1996). This method is exact and needs no table.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    first: f64,
    last: f64,
    sure: f64,
}

impl Zipf {
    /// Creates the distribution over ranks 1..=`ranks`.
    ///
    /// # Panics
    /// If `ranks` is 0, or `exponent` is not finite and above 0.
    #[must_use]
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!(
            ranks > 0 && exponent > 0.0 && exponent.is_finite(),
            "zipf of {ranks} ranks, exponent {exponent}"
        );
        let mut zipf = Self { ranks: ranks as f64, exponent, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Draws the next rank.
    pub fn rank(&self, chance: &mut Chance) -> u64 {
        loop {
            let area = self.last + chance.share() * (self.first - self.last);
            let exact = self.inverse(area);
            let rank = exact.round().clamp(1.0, self.ranks);
            if rank - exact <= self.sure || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return whole(rank);
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of `weight` up to a constant. It is stable if the exponent is near 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        log * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 }
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (area * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 1..=ranks, a u64, just before"
)]
fn whole(rank: f64) -> u64 {
    rank as u64
}

/// Writes the key of number `number` into `key`, padded to its length. Keys are printable, without
/// spaces, and distinct.
///
/// # Panics
/// If `key` has fewer than [`MIN_KEY_BYTES`] or more than [`MAX_KEY_BYTES`] bytes.
#[inline]
pub fn write_key(number: u64, key: &mut [u8]) {
    assert!((MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&key.len()), "a key of {} bytes", key.len());
    let (mut rest, mut end) = (number, key.len());
    while rest > 0 && end > 0 {
        end -= 1;
        key[end] = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    key[..end].fill(b'0');
    // Numbers of up to 19 digits leave the first byte free. It holds a mark by which the keys of
    // benchmarks are recognised.
    if rest == 0 && number < 10_u64.pow(19) {
        key[0] = b'k';
    }
}

/// Incompressible values of one size. They are parts of a pool, so that creating a value costs
/// nothing.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    bytes: usize,
}

impl Values {
    /// Creates values of `bytes` bytes.
    ///
    /// # Panics
    /// If `bytes` is more than [`MAX_VALUE_BYTES`].
    #[must_use]
    pub fn new(bytes: usize, seed: u64) -> Self {
        assert!(bytes <= MAX_VALUE_BYTES, "a value of {bytes} bytes");
        let mut chance = Chance::new(seed);
        let words = (bytes + Self::OFFSETS).div_ceil(8);
        let pool = (0..words).flat_map(|_| chance.draw().to_le_bytes()).collect();
        Self { pool, bytes }
    }

    /// The number of different values.
    const OFFSETS: usize = 4096;

    /// Returns the value of key number `number`. There are 4,096 different values, which keys
    /// share.
    #[must_use]
    pub fn of(&self, number: u64) -> &[u8] {
        let offset = usize::try_from(mix(number) % Self::OFFSETS as u64).expect("below 4,096");
        &self.pool[offset..offset + self.bytes]
    }
}
