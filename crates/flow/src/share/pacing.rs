//! Where the sending of a body meets the rate that it is sent at.

use std::net::TcpStream;

/// A body that is being sent, from its first byte until this is dropped.
pub(super) struct Paced {}

impl Paced {
    /// A body of `bytes` begins on `tcp`.
    pub(super) fn begin(_tcp: &TcpStream, _bytes: u64) -> Self {
        Self {}
    }
}
