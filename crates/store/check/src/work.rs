//! The sequence of operations that a seed determines.

use super::content::Content;
use super::model::Model;
use super::operation::{Action, Operation};
use sprat_client::{Condition, Ttl};
use sprat_sim::Random;
use sprat_wire::MAX_VALUE;

/// Number of keys that operations use.
pub const KEYS: usize = 256;

/// One of this many objects is a counter: puts store numbers there.
const COUNTERS: usize = 4;

/// One of this many puts gives its object a time to live.
pub const TTL_EVERY: u64 = 4;

/// Percentages of gets, puts, removals and increments.
pub const MIX: [(&str, u64); 4] = [("get", 40), ("put", 35), ("removal", 10), ("increment", 15)];

/// Percentages of put sizes, and the range of each in bytes. One in four puts of the longest kind
/// has the maximum size.
pub const SIZES: [(u64, usize, usize); 6] = [
    (10, 0, 0),
    (5, 8, 8),
    (55, 1, 200),
    (20, 201, 10_000),
    (8, 10_001, 100_000),
    (2, 100_001, MAX_VALUE),
];

/// Draws operations: the same seed and the same answers give the same operations.
#[derive(Clone, Debug)]
pub struct Work {
    random: Random,
    drawn: u64,
    /// The longest value, in bytes.
    longest: usize,
}

impl Work {
    /// Makes the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), drawn: 0, longest: MAX_VALUE }
    }

    /// Limits values to `longest` bytes: longer ones are truncated.
    #[must_use]
    pub fn up_to(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Draws the next operation. It avoids keys for which `busy` returns true: these have an
    /// operation in progress, whose answer the model does not know yet. Fewer than half of the
    /// [`KEYS`] may be busy.
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
                ttl: self.ttl(),
            },
            2 => Action::Remove { condition: self.condition(model.version(key)) },
            _ => {
                // Mostly increments an object that is a number.
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
            // Now and then close to the limit, so that sums overflow.
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

    /// Draws a time to live: none most of the time, otherwise a short one, or one that outlasts the
    /// check.
    fn ttl(&mut self) -> Option<Ttl> {
        if !self.random.chance(1, TTL_EVERY) {
            return None;
        }
        let longest = [20, 2000, 60_000, 3_600_000][self.index(4)];
        Ttl::of_millis(self.random.between(1, longest)).ok()
    }

    /// Draws a condition: none half of the time, otherwise one that holds or one that does not.
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

/// Index of the kind in [`MIX`].
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
