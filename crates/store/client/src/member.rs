//! The identity with which a client, or a node, proves that it is a member of its cluster.

use crate::error::Error;
use sprat_key::Identity;
use sprat_rpc::Credentials;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An identity, and the time at which its owner's clock was zero.
#[derive(Clone, Debug)]
pub(crate) struct TimedIdentity {
    identity: Arc<Identity>,
    unix: u64,
}

impl TimedIdentity {
    /// Takes the current time as the zero of the owner's clock.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the identity is not valid now.
    pub(crate) fn new(identity: &Arc<Identity>) -> Result<Self, Error> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let name = &identity.certificate().name;
        identity
            .check(unix)
            .map_err(|why| Error::Endpoint(format!("identity `{name}` cannot be used: {why}")))?;
        Ok(Self { identity: Arc::clone(identity), unix })
    }

    /// Makes the credentials of an endpoint that uses the owner's clock.
    pub(crate) fn credentials(&self) -> Result<Credentials, Error> {
        let seed = sprat_key::random().map_err(|why| Error::Endpoint(why.to_string()))?;
        Ok(Credentials::new(Arc::clone(&self.identity), &seed, self.unix))
    }
}

/// Makes the credentials of an endpoint that has this identity and whose clock begins now.
///
/// # Errors
/// [`Error::Endpoint`] when the identity is not valid now, or the system has no random bytes.
pub fn credentials(identity: &Arc<Identity>) -> Result<Credentials, Error> {
    TimedIdentity::new(identity)?.credentials()
}
