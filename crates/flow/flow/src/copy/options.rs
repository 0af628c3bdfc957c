//! Options of transfers.

use super::error::Error;
use super::sums::Sums;
use crate::file::MAX_BUFFERS;
use sprat_http::client;
use sprat_pace::Pace;
use sprat_pace::path::MAX_BUFFER;
use std::path::PathBuf;
use std::time::Duration;

/// Limit on the streams of one file.
pub const MAX_STREAMS: usize = 16;

/// Limit on the hosts of one file: each has at least one stream.
pub const MAX_HOSTS: usize = MAX_STREAMS;

/// Groups that the disk writes while streams fill others.
const WRITES: usize = 8;
const _: () = assert!(buffers(MAX_STREAMS) <= MAX_BUFFERS);

/// Returns how many groups are in memory for `streams` streams.
pub(crate) const fn buffers(streams: usize) -> usize {
    WRITES + 2 * streams
}

/// Options of a transfer. [`Default`] fetches verified over one stream, paced automatically, with
/// ten retries, and never replaces a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of TCP streams, at most [`MAX_STREAMS`].
    pub streams: usize,
    /// Consecutive attempts that may fail without receiving a byte.
    pub retries: u32,
    /// Time after which a connection without progress is given up.
    pub patience: Duration,
    /// Total size of all receive buffers in bytes; 0 leaves it to the kernel.
    pub receive_buffer: usize,
    /// Whether to replace a file that has the destination's name.
    pub force: bool,
    /// Whether to discard what an earlier attempt left.
    pub restart: bool,
    /// Whether to request the verified form.
    pub verify: bool,
    /// Whether to set the permissions that the source states.
    pub preserve: bool,
    /// Whether to copy the user's extended attributes (`user.*`).
    pub xattrs: bool,
    /// Bytes between two syncs of the file; each sync makes what it covers safe from an
    /// interruption. 0 chooses by the way the file is written.
    pub sync_bytes: u64,
    /// Selects how the rate of each sending connection is controlled.
    pub pace: Pace,
    /// Rate limit of the transfer, in bytes a second.
    pub limit: Option<u64>,
    /// Sums that the file must have.
    pub sums: Sums,
    /// Bearer token sent to the server.
    pub token: Option<String>,
    /// PEM file of the certificate authorities to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// Whether to accept any certificate.
    pub insecure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: 1,
            retries: 10,
            patience: Duration::from_secs(60),
            receive_buffer: MAX_BUFFER,
            force: false,
            restart: false,
            verify: true,
            preserve: false,
            xattrs: false,
            sync_bytes: 0,
            pace: Pace::Auto,
            limit: None,
            sums: Sums::default(),
            token: None,
            authorities: None,
            insecure: false,
        }
    }
}

/// Takes what one connection needs. Leaves its receive buffer to the kernel, since that of the
/// options is for all streams together.
impl From<&Options> for client::Options {
    fn from(options: &Options) -> Self {
        let Options { patience, ref authorities, insecure, .. } = *options;
        Self { patience, authorities: authorities.clone(), insecure, ..Self::default() }
    }
}

impl Options {
    /// Rejects options that make no sense.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.streams == 0 || self.streams > MAX_STREAMS {
            return Err(Error::Usage(format!("{} streams: want 1 to {MAX_STREAMS}", self.streams)));
        }
        if let Some(token) = &self.token
            && (token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(Error::Usage(
                "the token has characters that no header can have; want visible ASCII".to_owned(),
            ));
        }
        Ok(())
    }
}
