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

/// Limit on the hosts of one file. Each host has at least one stream.
pub const MAX_HOSTS: usize = MAX_STREAMS;

/// Number of groups that the disk writes while streams fill other groups.
const WRITES: usize = 8;
const _: () = assert!(buffers(MAX_STREAMS) <= MAX_BUFFERS);

/// Returns how many groups can be in memory for `streams` streams.
pub(crate) const fn buffers(streams: usize) -> usize {
    WRITES + 2 * streams
}

/// Options of a transfer. By [`Default`] a transfer is verified, uses one stream with automatic
/// pacing, retries ten times, and never replaces a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of TCP streams, at most [`MAX_STREAMS`].
    pub streams: usize,
    /// Limit on consecutive attempts that fail without transferring a byte. After a further failure
    /// the transfer fails.
    pub retries: u32,
    /// Time after which a connection without progress is given up.
    pub patience: Duration,
    /// Total size of all receive buffers, in bytes; 0 leaves the sizes to the kernel.
    pub receive_buffer: usize,
    /// Whether to replace a file that has the destination's name.
    pub force: bool,
    /// Whether to discard the bytes of an earlier attempt.
    pub restart: bool,
    /// Whether to request the verified form.
    pub verify: bool,
    /// Whether to set the permissions that the source states.
    pub preserve: bool,
    /// Whether to copy the user's extended attributes (`user.*`).
    pub xattrs: bool,
    /// Number of bytes written between two syncs of the file. An interruption loses no bytes that
    /// were synced. With 0 the number depends on how the file is written.
    pub sync_bytes: u64,
    /// How the rate of each sending connection is controlled.
    pub pace: Pace,
    /// Rate limit of the transfer, in bytes per second; `None` for no limit.
    pub limit: Option<u64>,
    /// Sums that the file must have.
    pub sums: Sums,
    /// Bearer token sent to the server.
    pub token: Option<String>,
    /// PEM file of the certificate authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Whether to accept any certificate of the server.
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

/// Takes the options that apply to one connection. Leaves the size of its receive buffer to the
/// kernel, because `receive_buffer` is for all streams together.
impl From<&Options> for client::Options {
    fn from(options: &Options) -> Self {
        let Options { patience, ref authorities, insecure, .. } = *options;
        Self { patience, authorities: authorities.clone(), insecure, ..Self::default() }
    }
}

impl Options {
    /// Rejects invalid options.
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
