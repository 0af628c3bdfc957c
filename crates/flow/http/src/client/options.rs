//! Options of connections.

use std::path::PathBuf;
use std::time::Duration;

/// Options of connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time after which a connection without progress is given up.
    pub patience: Duration,
    /// Size of a connection's receive buffer in bytes; 0 leaves it to the kernel.
    pub receive_buffer: usize,
    /// PEM file of the certificate authorities to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// Whether to accept any certificate.
    pub insecure: bool,
    /// SHA-256 of the only certificate to trust, whatever names, times and authorities it states.
    pub pin: Option<[u8; 32]>,
}

impl Default for Options {
    fn default() -> Self {
        let patience = Duration::from_secs(60);
        Self { patience, receive_buffer: 0, authorities: None, insecure: false, pin: None }
    }
}
