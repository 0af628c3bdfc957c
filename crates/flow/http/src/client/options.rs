//! Options of connections.

use std::path::PathBuf;
use std::time::Duration;

/// Options of connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time without progress after which a request on a connection fails.
    pub patience: Duration,
    /// Size of a connection's receive buffer in bytes. With 0, the kernel chooses it.
    pub receive_buffer: usize,
    /// PEM file of the certificate authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Whether to accept any certificate. Has no effect if `pin` is set.
    pub insecure: bool,
    /// SHA-256 of the only certificate to trust. Its names, times and authorities are not checked.
    pub pin: Option<[u8; 32]>,
}

impl Default for Options {
    fn default() -> Self {
        let patience = Duration::from_secs(60);
        Self { patience, receive_buffer: 0, authorities: None, insecure: false, pin: None }
    }
}
