//! How a copy is made.

use super::error::Error;
use super::sums::Sums;
use crate::file::MAX_BUFFERS;
use sprat_http::client;
use sprat_pace::Pace;
use sprat_pace::path::MAX_BUFFER;
use std::path::PathBuf;
use std::time::Duration;

/// Most streams of one file.
pub const MAX_STREAMS: usize = 16;

/// Most hosts of one file, each of which has a stream at least.
pub const MAX_HOSTS: usize = MAX_STREAMS;

/// Groups that the disk works on while streams fill others.
const WRITES: usize = 8;
const _: () = assert!(buffers(MAX_STREAMS) <= MAX_BUFFERS);

/// Groups in memory for so many streams.
pub(crate) const fn buffers(streams: usize) -> usize {
    WRITES + 2 * streams
}

/// How a copy is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// TCP streams, at most [`MAX_STREAMS`].
    pub streams: usize,
    /// Attempts that may fail one after the other, without a byte between them.
    pub retries: u32,
    /// How long nothing may come before a connection is given up.
    pub patience: Duration,
    /// Bytes of all receive buffers together; 0: the kernel's choice.
    pub receive_buffer: usize,
    /// Whether a file of the destination's name is replaced.
    pub force: bool,
    /// Whether what an earlier attempt left is thrown away.
    pub restart: bool,
    /// Whether the verified form is asked for.
    pub verify: bool,
    /// Whether the file gets the permissions that the source tells.
    pub preserve: bool,
    /// Whether it gets the extended attributes of the user's (`user.*`) too.
    pub xattrs: bool,
    /// Bytes between two syncs of the file, each of which makes what it covers safe from an
    /// interruption; 0: as many as are best for the way that it is written.
    pub sync_bytes: u64,
    /// How fast what is sent leaves, each connection for itself.
    pub pace: Pace,
    /// Bytes a second at most.
    pub limit: Option<u64>,
    /// What the file must be.
    pub sums: Sums,
    /// Who we are: sent as a bearer token.
    pub token: Option<String>,
    /// Whose certificates are trusted (PEM), in place of this machine's authorities.
    pub authorities: Option<PathBuf>,
    /// Whether any certificate is.
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

/// Takes what one connection needs. Its receive buffer is the kernel's choice, since that of the
/// options is for all streams together.
impl From<&Options> for client::Options {
    fn from(options: &Options) -> Self {
        let Options { patience, ref authorities, insecure, .. } = *options;
        Self { patience, authorities: authorities.clone(), insecure, ..Self::default() }
    }
}

impl Options {
    /// What makes no sense.
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
