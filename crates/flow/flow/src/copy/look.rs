//! Finds out what a server says about a file, without fetching the file.

use super::answer::FileRequest;
use super::client::Client;
use super::error::Error;
use super::options::Options;
use sprat_http::{Address, Cancel};

/// What a server says about a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileInfo {
    /// The file's length in bytes, if known.
    pub length: Option<u64>,
    /// Whether the server offers the verified form.
    pub verified: bool,
}

/// Requests the head of the file at `address`, once, following redirects.
/// # Errors
/// The request failed or was rejected. A transient failure is also an error, because the request is
/// not repeated.
pub fn probe(address: &Address, options: &Options) -> Result<FileInfo, Error> {
    let client = Client::new(options, 0)?;
    let file_request = FileRequest { head_only: true, ..FileRequest::default() };
    let (_, reply) = client
        .ask_following(address, &file_request, &Cancel::default())
        .map_err(|trouble| trouble.into_error(&address.to_string()))?;
    Ok(FileInfo { length: reply.start.length, verified: reply.start.verified })
}
