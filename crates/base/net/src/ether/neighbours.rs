//! The neighbour table, which has each neighbour's hardware address over each link.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::MAX_LINKS;
use crate::{Mac, Nanos};

/// The largest number of neighbours remembered. At the limit, entries without a hardware address
/// are dropped. If every entry has one, no new neighbour is remembered.
pub(super) const MAX_NEIGHBOURS: usize = 4096;

/// Delays between solicitations for a neighbour. After the last one the neighbour counts as absent,
/// until the next frame to the neighbour starts the resolution again.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
];

/// Probes that a neighbour may leave unanswered over a link before it counts as lost there.
const PROBES: u8 = 3;

/// Interval of probes to neighbours that were lost over a link, because they may be back.
const RECALL: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    /// For each link, the neighbour's hardware address; `None` if it is not known or lost.
    macs: [Option<Mac>; MAX_LINKS],
    /// For each link, the hardware address that the neighbour had before it stopped answering
    /// there.
    lost: [Option<Mac>; MAX_LINKS],
    /// For each link, the number of checks since something was sent without anything coming back.
    doubts: [u8; MAX_LINKS],
    /// Solicitations sent since the neighbour was last needed, and when the next is due.
    solicited: usize,
    due: Nanos,
}

/// The neighbours of a host.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: HashMap<IpAddr, Neighbour>,
    /// Incremented whenever a result of [`Neighbours::mac`] may have changed.
    generation: u32,
    /// The number of neighbours without any hardware address.
    wanted: usize,
    /// Whether there may be neighbours that do not answer, or that were lost over a link.
    doubted: bool,
    recalled: Nanos,
}

impl Neighbours {
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the hardware address of a neighbour over a link; `None` if it is not known or lost.
    pub(super) fn mac(&self, ip: IpAddr, link: usize) -> Option<Mac> {
        self.known.get(&ip)?.macs[link]
    }

    /// Notes a hardware address that a neighbour claims. The claim does not prove that we can reach
    /// the neighbour, so a neighbour that was lost over the link stays lost.
    pub(super) fn learn(&mut self, ip: IpAddr, link: usize, mac: Mac) {
        if self.known.get(&ip).is_none_or(|neighbour| neighbour.lost[link] != Some(mac)) {
            self.confirm(ip, link, mac);
        }
    }

    /// Notes a hardware address that has answered our solicitation.
    pub(super) fn confirm(&mut self, ip: IpAddr, link: usize, mac: Mac) {
        let Some(neighbour) = self.entry(ip) else { return };
        (neighbour.doubts[link], neighbour.lost[link]) = (0, None);
        if neighbour.macs[link] == Some(mac) {
            return;
        }
        let wanted = neighbour.is_unresolved();
        neighbour.macs[link] = Some(mac);
        neighbour.due = Nanos::NEVER;
        self.wanted -= usize::from(wanted);
        self.generation = self.generation.wrapping_add(1);
    }

    /// Returns whether a neighbour's hardware address is known over any link.
    pub(super) fn knows(&self, ip: IpAddr) -> bool {
        self.known.get(&ip).is_some_and(|neighbour| !neighbour.is_unresolved())
    }

    /// Forgets all hardware addresses over a link, because another network may be plugged in there
    /// now.
    pub(super) fn forget(&mut self, link: usize) {
        for neighbour in self.known.values_mut() {
            (neighbour.doubts[link], neighbour.lost[link]) = (0, None);
            if neighbour.macs[link].take().is_some() && neighbour.is_unresolved() {
                (neighbour.solicited, neighbour.due) = (0, Nanos::NEVER);
                self.wanted += 1;
            }
        }
        self.generation = self.generation.wrapping_add(1);
    }

    /// Notes that a frame is to be sent to a neighbour without a known hardware address. Returns
    /// whether to solicit it now.
    pub(super) fn want(&mut self, ip: IpAddr, now: Nanos) -> bool {
        let Some(neighbour) = self.entry(ip) else { return false };
        if !neighbour.is_unresolved() || neighbour.due != Nanos::NEVER {
            return false; // already resolved, or being solicited
        }
        (neighbour.solicited, neighbour.due) = (1, now + PATIENCE[0]);
        true
    }

    /// Returns whether every remembered neighbour has a hardware address.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted == 0
    }

    /// Returns a neighbour to solicit again, if one is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<IpAddr> {
        if self.wanted == 0 {
            return None;
        }
        for (ip, neighbour) in &mut self.known {
            if neighbour.is_unresolved() && neighbour.due <= now {
                neighbour.due =
                    PATIENCE.get(neighbour.solicited).map_or(Nanos::NEVER, |&wait| now + wait);
                neighbour.solicited += 1;
                if neighbour.due != Nanos::NEVER {
                    return Some(*ip);
                }
            }
        }
        None
    }

    /// Notes that frames were exchanged with a neighbour over a link. `heard` says whether any was
    /// received over it; otherwise frames were only sent.
    pub(super) fn mark(&mut self, ip: IpAddr, link: usize, heard: bool) {
        let Some(neighbour) = self.known.get_mut(&ip) else { return };
        if heard {
            neighbour.doubts[link] = 0;
        } else if neighbour.doubts[link] == 0 && neighbour.macs[link].is_some() {
            neighbour.doubts[link] = 1;
            self.doubted = true;
        }
    }

    /// Returns whether a neighbour is being probed, or was lost over a link.
    pub(super) fn has_doubts(&self) -> bool {
        self.doubted
    }

    /// Gives up a link to a neighbour that does not answer over it, if another link reaches the
    /// neighbour. Returns the neighbours to probe, each with its address, link and hardware
    /// address.
    pub(super) fn watch(&mut self, now: Nanos) -> Vec<(IpAddr, usize, Mac)> {
        let mut probes = Vec::new();
        if !self.doubted {
            return probes;
        }
        let recall = now.since(self.recalled) >= RECALL;
        if recall {
            self.recalled = now;
        }
        self.doubted = false;
        for (&ip, neighbour) in &mut self.known {
            for link in 0..MAX_LINKS {
                if neighbour.doubts[link] > PROBES {
                    neighbour.doubts[link] = 1;
                    if neighbour.macs.iter().flatten().count() > 1 {
                        neighbour.doubts[link] = 0;
                        neighbour.lost[link] = neighbour.macs[link].take();
                        self.generation = self.generation.wrapping_add(1);
                    }
                }
                let doubted = neighbour.macs[link].filter(|_| neighbour.doubts[link] > 0);
                neighbour.doubts[link] += u8::from(doubted.is_some());
                probes.extend(
                    doubted.or(neighbour.lost[link].filter(|_| recall)).map(|mac| (ip, link, mac)),
                );
                self.doubted |= doubted.is_some() || neighbour.lost[link].is_some();
            }
        }
        probes
    }

    /// Returns the entry of a neighbour, creating it if there is room.
    fn entry(&mut self, ip: IpAddr) -> Option<&mut Neighbour> {
        if !self.known.contains_key(&ip) {
            if self.known.len() >= MAX_NEIGHBOURS {
                self.known.retain(|_, neighbour| !neighbour.is_unresolved());
                self.wanted = 0;
            }
            if self.known.len() >= MAX_NEIGHBOURS {
                return None;
            }
            self.known.insert(
                ip,
                Neighbour {
                    macs: [None; MAX_LINKS],
                    lost: [None; MAX_LINKS],
                    doubts: [0; MAX_LINKS],
                    solicited: 0,
                    due: Nanos::NEVER,
                },
            );
            self.wanted += 1;
        }
        self.known.get_mut(&ip)
    }
}

impl Neighbour {
    fn is_unresolved(&self) -> bool {
        self.macs.iter().all(Option::is_none)
    }
}
