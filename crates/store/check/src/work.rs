//! The sequence of operations of a seed.

use super::content::Content;
use super::model::Model;
use super::operation::{Action, Operation};
use sprat_client::Condition;
use sprat_sim::Random;
use sprat_wire::MAX_VALUE;

/// Objects that operations are about.
pub const KEYS: usize = 256;

/// Of so many objects one is a counter: what is put there is a number.
const COUNTERS: usize = 4;

/// Gets, puts, removals and increments in a hundred operations.
pub const MIX: [(&str, u64); 4] = [("get", 40), ("put", 35), ("removal", 10), ("increment", 15)];

/// Sizes in a hundred puts, bytes, from and to. Of the longest kind one in four has the most bytes
/// there can be.
pub const SIZES: [(u64, usize, usize); 6] = [
    (10, 0, 0),
    (5, 8, 8),
    (55, 1, 200),
    (20, 201, 10_000),
    (8, 10_001, 100_000),
    (2, 100_001, MAX_VALUE),
];

/// The operations of a seed: the same seed, and the same answers, give the same.
#[derive(Clone, Debug)]
pub struct Work {
    random: Random,
    drawn: u64,
    /// Bytes of a value, at most.
    longest: usize,
}

impl Work {
    /// The operations of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), drawn: 0, longest: MAX_VALUE }
    }

    /// The same with values of `longest` bytes at most: longer ones are cut.
    #[must_use]
    pub fn up_to(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// The next operation. `busy` objects have an operation under way, whose answer the model does
    /// not know yet: they are left alone. There are fewer of them than half of [`KEYS`].
    pub fn draw(&mut self, model: &Model, busy: impl Fn(usize) -> bool) -> Operation {
        self.drawn += 1;
        let mut key = self.index(KEYS);
        while busy(key) {
            key = (key + 1) % KEYS;
        }
        let of_hundred = self.random.below(100);
        let action = match kind(of_hundred) {
            0 => Action::Get,
            1 => Action::Put {
                content: self.content(key),
                condition: self.condition(model.version(key)),
            },
            2 => Action::Remove { condition: self.condition(model.version(key)) },
            _ => {
                // Mostly where there is a number.
                let counter = key - key % COUNTERS;
                if self.random.chance(7, 8) && !busy(counter) {
                    key = counter;
                }
                let delta = self.random.between(0, 2000).cast_signed() - 1000;
                Action::Increment { delta }
            }
        };
        Operation { number: self.drawn, key, action }
    }

    fn content(&mut self, key: usize) -> Content {
        if key.is_multiple_of(COUNTERS) {
            // Now and then so near to the limit that sums overflow.
            let number = self.random.draw().cast_signed();
            return Content::Number(if self.random.chance(1, 8) {
                i64::MAX - number.rem_euclid(1000)
            } else {
                number >> 8
            });
        }
        let mut of_hundred = self.random.below(100);
        let size = SIZES.into_iter().find(|&(share, ..)| {
            let hit = of_hundred < share;
            of_hundred = of_hundred.saturating_sub(share);
            hit
        });
        let (_, from, to) = size.expect("shares of a hundred");
        let limit = to == MAX_VALUE && self.random.chance(1, 4);
        let len = if limit { to } else { from + self.index(to - from + 1) };
        Content::Filled { stamp: self.random.draw(), len: len.min(self.longest) }
    }

    /// Half of the time there is none; of the others some hold and some do not.
    fn condition(&mut self, current: Option<u64>) -> Condition {
        match self.random.below(10) {
            0 => Condition::Absent,
            1 => Condition::Exists,
            2 | 3 => Condition::Version(current.unwrap_or(1)),
            4 => Condition::Version(current.map_or(2, |version| version - 1)),
            _ => Condition::None,
        }
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).expect("below a usize")
    }
}

/// Which of [`MIX`].
fn kind(mut of_hundred: u64) -> usize {
    let found = MIX.iter().position(|&(_, share)| {
        let hit = of_hundred < share;
        of_hundred = of_hundred.saturating_sub(share);
        hit
    });
    found.expect("shares of a hundred")
}

const _: () = {
    let (mut kinds, mut sizes, mut at) = (0, 0, 0);
    while at < MIX.len() {
        kinds += MIX[at].1;
        at += 1;
    }
    at = 0;
    while at < SIZES.len() {
        sizes += SIZES[at].0;
        at += 1;
    }
    assert!(kinds == 100 && sizes == 100);
};
