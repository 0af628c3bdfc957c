//! What becomes of each segment on a line, drawn from a seed.

use super::settings::{Loss, Settings};
use crate::chance::{Chance, Probability};

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) twice: bool,
    pub(super) corrupted: bool,
    pub(super) held: bool,
}

impl Fate {
    /// It stays with its neighbours.
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// Draws fates. Each kind of mishap has a sequence of its own, so that asking for one more does not change the others.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    seed: u64,
    loss: Chance,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Chance,
    /// Which bit is turned.
    pub(super) bits: Chance,
    /// How late a packet is.
    pub(super) jitter: Chance,
    bad: bool,
    /// Segments that came.
    number: u64,
}

impl Fates {
    pub(super) fn new(seed: u64) -> Self {
        let chance = |stream| Chance::new(seed, stream);
        Self {
            seed,
            loss: chance(1),
            duplicate: chance(2),
            corrupt: chance(3),
            reorder: chance(4),
            bits: chance(5),
            jitter: chance(6),
            bad: false,
            number: 0,
        }
    }

    /// Begins anew if the seed is another.
    pub(super) fn seed(&mut self, seed: u64) {
        if seed != self.seed {
            *self = Self { number: self.number, ..Self::new(seed) };
        }
    }

    /// The next segment's.
    pub(super) fn next(&mut self, settings: &Settings) -> Fate {
        self.number += 1;
        let lost = match &settings.loss {
            Loss::None => false,
            Loss::Random(share) => self.loss.happens(*share),
            Loss::Listed(numbers) => numbers.binary_search(&self.number).is_ok(),
            Loss::Bursts(model) => {
                let turn = if self.bad { model.to_good } else { model.to_bad };
                self.bad ^= self.loss.happens(turn);
                self.loss.happens(if self.bad { model.loss_bad } else { model.loss_good })
            }
        };
        Fate {
            lost,
            twice: self.duplicate.happens(settings.duplicate),
            corrupted: self.corrupt.happens(settings.corrupt),
            held: settings.reorder.is_some_and(|reorder| self.reorder.happens(reorder.share)),
        }
    }

    /// Counts segments to which nothing can happen.
    pub(super) fn skip(&mut self, segments: u32) {
        self.number += u64::from(segments);
    }
}

/// Whether something can happen to a segment.
pub(super) fn eventful(settings: &Settings) -> bool {
    settings.loss != Loss::None
        || settings.duplicate != Probability::NEVER
        || settings.corrupt != Probability::NEVER
        || settings.reorder.is_some()
}
