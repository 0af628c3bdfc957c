//! Decides who may connect to a process: members of its cluster if it has an identity, otherwise
//! only processes of this machine, unless [`Guard::insecure`] is set.

use super::ServerError;
use sprat_client::Identity;
use sprat_net::{Locator, Transport};
use sprat_rpc::Credentials;
use std::sync::Arc;

/// Kinds of devices that bypass the kernel and whose other end is a process of this machine.
const LOCAL_DEVICES: &[&str] =
    &["net_memif", "net_virtio_user", "net_vhost", "net_ring", "net_null"];

/// Which peers a process accepts, and its own identity.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// The process's identity. A process with an identity communicates only with members of the
    /// same cluster.
    pub identity: Option<Arc<Identity>>,
    /// Whether peers on other machines are accepted without an identity.
    pub insecure: bool,
}

impl Guard {
    /// Refuses to listen where other machines can connect, unless there is an identity or
    /// `insecure` allows it.
    ///
    /// # Errors
    /// [`ServerError::Exposed`] when a locator in `listen` is exposed to other machines and there
    /// is neither an identity nor `insecure`.
    pub(super) fn check<'a>(
        &self,
        listen: impl IntoIterator<Item = &'a Locator>,
    ) -> Result<(), ServerError> {
        if self.identity.is_some() || self.insecure {
            return Ok(());
        }
        match listen.into_iter().find(|locator| is_exposed(locator)) {
            Some(locator) => Err(ServerError::Exposed(locator.to_string())),
            None => Ok(()),
        }
    }

    /// Returns the credentials of a node whose clock begins now.
    pub(super) fn credentials(&self) -> Result<Option<Credentials>, ServerError> {
        self.identity
            .as_ref()
            .map(sprat_client::credentials)
            .transpose()
            .map_err(ServerError::Identity)
    }
}

/// Returns whether other machines can connect to this locator. If the locator's host cannot be
/// resolved, returns true.
#[must_use]
pub fn is_exposed(locator: &Locator) -> bool {
    if let Transport::FastDpdk(bypass) = &locator.transport {
        let local = |device: &String| LOCAL_DEVICES.iter().any(|kind| device.starts_with(kind));
        return bypass.devices.is_empty() || !bypass.devices.iter().all(local);
    }
    // A locator whose name cannot be resolved cannot be opened either.
    !locator
        .resolve()
        .is_ok_and(|addresses| addresses.iter().all(|address| address.ip().is_loopback()))
}
