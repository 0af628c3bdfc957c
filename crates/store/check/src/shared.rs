//! A counter to which several operations in progress add one each. In whatever order they are
//! executed, each sum from 1 on is the answer to exactly one of them.

use std::collections::BTreeSet;

use sprat_client::Row;

use super::model::Disagreement;
use super::operation::Outcome;

/// The key of the number.
pub const SHARED_KEY: &str = "shared";

/// The expected state of the counter. If two answers have the same sum, or a sum is missing from
/// the answers, an addition was executed twice, or not at all.
#[derive(Clone, Debug)]
pub struct SharedCounter {
    /// The largest number of additions in progress at a time. They may be executed in any order,
    /// but an addition is executed later than any that was begun at least `depth` additions before
    /// it.
    depth: usize,
    begun: u64,
    /// All sums up to this one were answers.
    confirmed: u64,
    /// Sums that were answers although the sum after `confirmed` was not yet: fewer than `depth`.
    ahead: BTreeSet<u64>,
}

impl SharedCounter {
    /// Makes a counter without additions; at most `depth` are in progress at a time, and their
    /// answers are taken in the order in which they were begun.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self { depth, begun: 0, confirmed: 0, ahead: BTreeSet::new() }
    }

    /// Notes that an addition was begun.
    pub fn begin(&mut self) {
        self.begun += 1;
    }

    /// Returns the number of additions begun so far.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Checks the answer to the oldest addition in progress, which is operation `number`.
    ///
    /// # Errors
    /// [`Disagreement`] when no correct store gives this answer.
    pub fn verify(&mut self, number: u64, outcome: &Outcome) -> Result<(), Disagreement> {
        let sum = match outcome {
            Outcome::Summed { sum, .. } => u64::try_from(*sum).ok(),
            _ => None,
        };
        let fresh = |sum: &u64| {
            (self.confirmed + 1..=self.begun).contains(sum) && !self.ahead.contains(sum)
        };
        if let Some(sum) = sum.filter(fresh) {
            self.ahead.insert(sum);
            while self.ahead.remove(&(self.confirmed + 1)) {
                self.confirmed += 1;
            }
            if self.ahead.len() < self.depth {
                return Ok(());
            }
            let expected = format!("the sum {}, which no increment returned", self.confirmed + 1);
            return Err(Self::wrong(Some(number), expected, outcome.to_string()));
        }
        let expected = format!(
            "a sum from {} to {} that no other increment returned",
            self.confirmed + 1,
            self.begun
        );
        Err(Self::wrong(Some(number), expected, outcome.to_string()))
    }

    /// Checks the counter's value at the end, when no addition is in progress.
    ///
    /// # Errors
    /// [`Disagreement`] when the value is not the number of additions.
    pub fn verify_end(&self, row: Option<&Row>) -> Result<(), Disagreement> {
        let number = row.map(|row| row.value.as_slice().try_into().map(i64::from_le_bytes));
        let right = match number {
            None => self.begun == 0,
            Some(number) => number.is_ok_and(|number| u64::try_from(number) == Ok(self.begun)),
        };
        if right {
            return Ok(());
        }
        let got = match number {
            None => "no such object".to_owned(),
            Some(Err(_)) => "no number".to_owned(),
            Some(Ok(number)) => format!("the number {number}"),
        };
        Err(Self::wrong(None, format!("the number {}", self.begun), got))
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
