//! The addresses of one file, and how many bytes each contributed. A transfer tries the addresses
//! in this order when it chooses the host that defines the file.

use super::event::Served;
use super::host::Host;
use sprat_http::Address;
use std::sync::atomic::Ordering::Relaxed;

/// The addresses of one file. There is at least one in the beginning.
pub(super) struct Sources {
    all: Vec<Address>,
    served: Vec<Served>,
}

impl Sources {
    pub(super) fn new(all: Vec<Address>) -> Self {
        Self { all, served: Vec::new() }
    }

    /// Returns all addresses.
    pub(super) fn all(&self) -> &[Address] {
        &self.all
    }

    /// Returns whether there is more than one address.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Moves an address to the front.
    pub(super) fn promote(&mut self, index: usize) {
        self.all[..=index].rotate_right(1);
    }

    /// Moves the first address to the end.
    pub(super) fn demote(&mut self) {
        self.all.rotate_left(1);
    }

    /// Removes an address that cannot be used, for example because it does not have the file.
    pub(super) fn remove(&mut self, index: usize) {
        self.all.remove(index);
    }

    /// Records after an attempt how many bytes each host contributed. Removes the hosts that were
    /// dropped for good.
    pub(super) fn learn(&mut self, hosts: &[Host]) {
        for host in hosts {
            let (source, bytes) = (host.address().to_string(), host.received.load(Relaxed));
            match self.served.iter_mut().find(|served| served.source == source) {
                Some(served) => served.bytes += bytes,
                None => self.served.push(Served { source, bytes }),
            }
        }
        self.all.retain(|address| {
            !hosts.iter().any(|host| host.lacks_file() && host.address() == address)
        });
    }

    /// Returns how many bytes each host has contributed so far.
    pub(super) fn served(&self) -> Vec<Served> {
        self.served.clone()
    }
}
