//! What a server says of a file, without fetching it.

use super::answer::Asked;
use super::client::Client;
use super::error::Error;
use super::options::Options;
use sprat_http::{Address, Cancel};

/// What a server says of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    /// Its length, bytes, if that is known.
    pub length: Option<u64>,
    /// Whether the server has its verified form.
    pub verified: bool,
}

/// Asks once, and follows redirects.
///
/// # Errors
/// [`Error`]; a failure that may pass is one here.
pub fn look(address: &Address, options: &Options) -> Result<Look, Error> {
    let client = Client::new(options, 0)?;
    let asked = Asked { head_only: true, ..Asked::default() };
    let (_, reply) = client
        .ask_around(address, &asked, &Cancel::default())
        .map_err(|trouble| trouble.into_error(&address.to_string()))?;
    Ok(Look { length: reply.start.length, verified: reply.start.verified })
}
