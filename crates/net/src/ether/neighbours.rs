//! Who is reached by which hardware address, over which link.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::MAX_LINKS;
use crate::{Mac, Nanos};

/// Neighbours remembered. Beyond that, those that were only asked for go; a known one stays.
pub(super) const MAX_NEIGHBOURS: usize = 4096;

/// Waits between one question for a neighbour and the next; after the last it is held to be absent, until
/// somebody wants to send to it again.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
];

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    /// By link.
    macs: [Option<Mac>; MAX_LINKS],
    /// Questions asked since it was last wanted, and when the next is due.
    asked: usize,
    due: Nanos,
}

/// The neighbours of a host.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: HashMap<IpAddr, Neighbour>,
    /// Changes whenever an answer of [`Neighbours::mac`] may have.
    generation: u32,
    /// Neighbours without any hardware address.
    wanted: usize,
}

impl Neighbours {
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// The hardware address of a neighbour over a link.
    pub(super) fn mac(&self, ip: IpAddr, link: usize) -> Option<Mac> {
        self.known.get(&ip)?.macs[link]
    }

    /// Takes note of a hardware address.
    pub(super) fn learn(&mut self, ip: IpAddr, link: usize, mac: Mac) {
        let Some(neighbour) = self.of(ip) else { return };
        if neighbour.macs[link] == Some(mac) {
            return;
        }
        let wanted = neighbour.is_wanted();
        neighbour.macs[link] = Some(mac);
        neighbour.due = Nanos::NEVER;
        self.wanted -= usize::from(wanted);
        self.generation = self.generation.wrapping_add(1);
    }

    /// Whether a neighbour is known over any link.
    pub(super) fn knows(&self, ip: IpAddr) -> bool {
        self.known.get(&ip).is_some_and(|neighbour| !neighbour.is_wanted())
    }

    /// Forgets what was learnt over a link: what is plugged in there now may be something else.
    pub(super) fn forget(&mut self, link: usize) {
        for neighbour in self.known.values_mut() {
            if neighbour.macs[link].take().is_some() && neighbour.is_wanted() {
                (neighbour.asked, neighbour.due) = (0, Nanos::NEVER);
                self.wanted += 1;
            }
        }
        self.generation = self.generation.wrapping_add(1);
    }

    /// Somebody wants to send to a neighbour that has no hardware address. Returns whether to ask for it now.
    pub(super) fn want(&mut self, ip: IpAddr, now: Nanos) -> bool {
        let Some(neighbour) = self.of(ip) else { return false };
        if !neighbour.is_wanted() || neighbour.due != Nanos::NEVER {
            return false; // known, or asked already
        }
        (neighbour.asked, neighbour.due) = (1, now + PATIENCE[0]);
        true
    }

    /// Whether every neighbour that was wanted is known.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted == 0
    }

    /// A neighbour to ask for again, if one is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<IpAddr> {
        if self.wanted == 0 {
            return None;
        }
        for (ip, neighbour) in &mut self.known {
            if neighbour.is_wanted() && neighbour.due <= now {
                neighbour.due = PATIENCE.get(neighbour.asked).map_or(Nanos::NEVER, |&wait| now + wait);
                neighbour.asked += 1;
                if neighbour.due != Nanos::NEVER {
                    return Some(*ip);
                }
            }
        }
        None
    }

    /// The entry of a neighbour, made if there is none and there is room.
    fn of(&mut self, ip: IpAddr) -> Option<&mut Neighbour> {
        if !self.known.contains_key(&ip) {
            if self.known.len() >= MAX_NEIGHBOURS {
                self.known.retain(|_, neighbour| !neighbour.is_wanted());
                self.wanted = 0;
            }
            if self.known.len() >= MAX_NEIGHBOURS {
                return None;
            }
            self.known.insert(ip, Neighbour { macs: [None; MAX_LINKS], asked: 0, due: Nanos::NEVER });
            self.wanted += 1;
        }
        self.known.get_mut(&ip)
    }
}

impl Neighbour {
    fn is_wanted(&self) -> bool {
        self.macs.iter().all(Option::is_none)
    }
}
