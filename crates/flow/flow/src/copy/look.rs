//! What a server says of a file, without fetching it.

use super::answer::Asked;
use super::client::Client;
use super::{Address, Cancel, Error, Options};
use crate::http::client::Trust;

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
    let trust = Trust::new(options.authorities.as_deref(), options.insecure)?;
    let client = Client { trust, receive_buffer: 0, patience: options.patience };
    let asked = Asked { head_only: true, ..Asked::default() };
    let (_, reply) = client
        .ask_around(address, &asked, &Cancel::default())
        .map_err(|trouble| trouble.into_error(&address.to_string()))?;
    Ok(Look { length: reply.start.length, verified: reply.start.verified })
}
