//! The interface of a system under load: Cassandra, or a substitute.

use crate::operations::Operation;

/// A system under load, which answers operations. [`Cassandra`](crate::Cassandra) is one. Tests
/// have targets that stall, fail or forget.
pub trait LoadTarget: Send + Sync + 'static {
    /// Performs one operation and waits for its answer.
    ///
    /// # Errors
    /// The target refused the operation, or did not answer within the timeout. The operation may
    /// still have been executed.
    fn perform(&self, operation: Operation)
    -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Reads the stamp of a key's value. Returns `None` if the key has no value.
    ///
    /// # Errors
    /// The target refused the read, or did not answer within the timeout.
    fn stored(&self, key: u64) -> impl Future<Output = Result<Option<u64>, Failure>> + Send;

    /// Returns the number of rows that each partition has at the start of a load.
    fn rows(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// The answer to an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A write was done, or a read found something.
    Done,
    /// A read found nothing.
    Nothing,
}

/// An operation that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// The kind of the failure, by which failures are counted.
    pub kind: &'static str,
    /// The message.
    pub text: String,
}
