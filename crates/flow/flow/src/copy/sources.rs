//! The addresses of one file in the order in which they are asked what it is, and what came from
//! each.

use super::event::Served;
use super::host::Host;
use sprat_http::Address;
use std::sync::atomic::Ordering::Relaxed;

/// The addresses, of which there is one at least in the beginning.
pub(super) struct Sources {
    all: Vec<Address>,
    served: Vec<Served>,
}

impl Sources {
    pub(super) fn new(all: Vec<Address>) -> Self {
        Self { all, served: Vec::new() }
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Address] {
        &self.all
    }

    /// Whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Puts one before all others.
    pub(super) fn promote(&mut self, index: usize) {
        self.all[..=index].rotate_right(1);
    }

    /// Puts the first behind all others.
    pub(super) fn demote(&mut self) {
        self.all.rotate_left(1);
    }

    /// Takes one away, for it does not have the file.
    pub(super) fn remove(&mut self, index: usize) {
        self.all.remove(index);
    }

    /// After an attempt: what came from whom, and who does not have the file.
    pub(super) fn learn(&mut self, hosts: &[Host]) {
        for host in hosts {
            let (source, bytes) = (host.address().to_string(), host.received.load(Relaxed));
            match self.served.iter_mut().find(|served| served.source == source) {
                Some(served) => served.bytes += bytes,
                None => self.served.push(Served { source, bytes }),
            }
        }
        self.all.retain(|address| {
            !hosts.iter().any(|host| host.has_another() && host.address() == address)
        });
    }

    /// What came from whom so far.
    pub(super) fn served(&self) -> Vec<Served> {
        self.served.clone()
    }
}
