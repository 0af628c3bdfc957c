//! What answers operations: Cassandra, or what stands in its place.

use crate::operations::Operation;

/// What answers operations.
pub trait Target: Send + Sync + 'static {
    /// Does one operation and waits for its answer.
    ///
    /// # Errors
    /// It was refused, or there was no answer in time.
    fn perform(&self, operation: Operation)
    -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// The stamp that a key's value carries; none where it has no value.
    ///
    /// # Errors
    /// It could not be read.
    fn stored(&self, key: u64) -> impl Future<Output = Result<Option<u64>, Failure>> + Send;

    /// How many rows each partition has that a load is to go on from.
    fn rows(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Written, or found.
    Done,
    /// Read, and nothing was there.
    Nothing,
}

/// An operation that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What kind it is: failures of a kind are counted together.
    pub kind: &'static str,
    /// What was said.
    pub text: String,
}
