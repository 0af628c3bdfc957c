//! How connections are made.

use std::path::PathBuf;
use std::time::Duration;

/// How connections are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long nothing may come, or be acknowledged, before a connection is given up.
    pub patience: Duration,
    /// Bytes of a connection's receive buffer; 0: the kernel's choice.
    pub receive_buffer: usize,
    /// The file of the authorities (PEM) that may vouch for a server, in place of this machine's.
    pub authorities: Option<PathBuf>,
    /// Whether any certificate is trusted.
    pub insecure: bool,
    /// The SHA-256 of the one certificate that is trusted, whatever it says of names, times and
    /// authorities.
    pub pin: Option<[u8; 32]>,
}

impl Default for Options {
    fn default() -> Self {
        let patience = Duration::from_secs(60);
        Self { patience, receive_buffer: 0, authorities: None, insecure: false, pin: None }
    }
}
