//! The interface of a system under load: Cassandra, or a substitute.

use crate::operations::Operation;

/// A system under load, which answers operations. [`Cassandra`](crate::Cassandra) is one; tests
/// have others that stall, fail and forget.
pub trait LoadTarget: Send + Sync + 'static {
    /// Performs one operation, and waits for its answer.
    ///
    /// # Errors
    /// The target refused the operation, or did not answer within its timeout. The operation may
    /// have been done all the same.
    fn perform(&self, operation: Operation)
    -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Reads the stamp of a key's value. Returns `None` if the key has no value.
    ///
    /// # Errors
    /// The target refused the read, or did not answer within its timeout.
    fn stored(&self, key: u64) -> impl Future<Output = Result<Option<u64>, Failure>> + Send;

    /// Returns how many rows each partition has at the start of a load.
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
    /// Kind of the failure; failures are counted by kind.
    pub kind: &'static str,
    /// The message.
    pub text: String,
}
