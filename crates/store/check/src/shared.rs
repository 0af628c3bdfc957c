//! A number to which several operations under way add one each: whatever their order, every sum
//! from 1 on is told to one of them.

use std::collections::BTreeSet;

use sprat_client::Row;

use super::model::Disagreement;
use super::operation::Outcome;

/// The key of the number.
pub const SHARED_KEY: &str = "shared";

/// The number, as it must be. A sum that is told twice, or to nobody, is an addition that was done
/// twice, or not at all.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Additions under way at a time, at most. They may be done in any order; what was asked later
    /// than that many others is done later.
    depth: usize,
    asked: u64,
    /// All sums up to here have been told.
    told: u64,
    /// And these, beyond the next: fewer than `depth`.
    ahead: BTreeSet<u64>,
}

impl Shared {
    /// Nothing added yet; `depth` additions under way at a time, at most, whose answers are taken
    /// in the order in which they were asked for.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self { depth, asked: 0, told: 0, ahead: BTreeSet::new() }
    }

    /// An addition is under way.
    pub fn ask(&mut self) {
        self.asked += 1;
    }

    /// Additions asked for so far.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Holds the answer to the oldest addition under way, operation `number`, against what may be.
    ///
    /// # Errors
    /// What does not agree.
    pub fn judge(&mut self, number: u64, outcome: &Outcome) -> Result<(), Disagreement> {
        let sum = match outcome {
            Outcome::Summed { sum, .. } => u64::try_from(*sum).ok(),
            _ => None,
        };
        let fresh =
            |sum: &u64| (self.told + 1..=self.asked).contains(sum) && !self.ahead.contains(sum);
        if let Some(sum) = sum.filter(fresh) {
            self.ahead.insert(sum);
            while self.ahead.remove(&(self.told + 1)) {
                self.told += 1;
            }
            if self.ahead.len() < self.depth {
                return Ok(());
            }
            let expected = format!("the sum {} before, which was told to nobody", self.told + 1);
            return Err(Self::wrong(Some(number), expected, outcome.to_string()));
        }
        let expected =
            format!("a sum from {} to {} that nobody has been told", self.told + 1, self.asked);
        Err(Self::wrong(Some(number), expected, outcome.to_string()))
    }

    /// Holds the number at the end, when nothing is under way, against the additions.
    ///
    /// # Errors
    /// What does not agree.
    pub fn judge_end(&self, row: Option<&Row>) -> Result<(), Disagreement> {
        let number = row.map(|row| row.value.as_slice().try_into().map(i64::from_le_bytes));
        let right = match number {
            None => self.asked == 0,
            Some(number) => number.is_ok_and(|number| u64::try_from(number) == Ok(self.asked)),
        };
        if right {
            return Ok(());
        }
        let got = match number {
            None => "no such object".to_owned(),
            Some(Err(_)) => "no number".to_owned(),
            Some(Ok(number)) => format!("the number {number}"),
        };
        Err(Self::wrong(None, format!("the number {}", self.asked), got))
    }

    fn wrong(operation: Option<u64>, expected: String, got: String) -> Disagreement {
        let asked = match operation {
            Some(_) => "increment by 1, with others under way,",
            None => "the scan of the table at the end",
        };
        Disagreement {
            operation,
            asked: asked.to_owned(),
            key: SHARED_KEY.to_owned(),
            expected,
            got,
        }
    }
}
