//! Who is reached by which hardware address, over which link.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::MAX_LINKS;
use crate::{Mac, Nanos};

/// Neighbours remembered. Beyond that, those that were only asked for go; a known one stays.
pub(super) const MAX_NEIGHBOURS: usize = 4096;

/// Waits between one question for a neighbour and the next; after the last it is held to be absent,
/// until somebody wants to send to it again.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
];

/// Questions that a neighbour may leave unanswered over a link before it is held to be lost there.
const PROBES: u8 = 3;

/// Time between two questions to neighbours lost over a link: they may be back.
const RECALL: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    /// By link.
    macs: [Option<Mac>; MAX_LINKS],
    /// By link: where it was before it stopped answering there.
    lost: [Option<Mac>; MAX_LINKS],
    /// By link: looks since something was sent, to which nothing came back.
    doubts: [u8; MAX_LINKS],
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
    /// Whether there may be doubts, or lost ones.
    doubted: bool,
    recalled: Nanos,
}

impl Neighbours {
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// The hardware address of a neighbour over a link.
    pub(super) fn mac(&self, ip: IpAddr, link: usize) -> Option<Mac> {
        self.known.get(&ip)?.macs[link]
    }

    /// Takes note of a hardware address that somebody said was theirs. It says nothing of whether
    /// we can reach them: one that was lost over the link stays so.
    pub(super) fn learn(&mut self, ip: IpAddr, link: usize, mac: Mac) {
        if self.known.get(&ip).is_none_or(|neighbour| neighbour.lost[link] != Some(mac)) {
            self.confirm(ip, link, mac);
        }
    }

    /// Takes note of a hardware address from which a question of ours was answered.
    pub(super) fn confirm(&mut self, ip: IpAddr, link: usize, mac: Mac) {
        let Some(neighbour) = self.of(ip) else { return };
        (neighbour.doubts[link], neighbour.lost[link]) = (0, None);
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
            (neighbour.doubts[link], neighbour.lost[link]) = (0, None);
            if neighbour.macs[link].take().is_some() && neighbour.is_wanted() {
                (neighbour.asked, neighbour.due) = (0, Nanos::NEVER);
                self.wanted += 1;
            }
        }
        self.generation = self.generation.wrapping_add(1);
    }

    /// Somebody wants to send to a neighbour that has no hardware address. Returns whether to ask
    /// for it now.
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
                neighbour.due =
                    PATIENCE.get(neighbour.asked).map_or(Nanos::NEVER, |&wait| now + wait);
                neighbour.asked += 1;
                if neighbour.due != Nanos::NEVER {
                    return Some(*ip);
                }
            }
        }
        None
    }

    /// Something was sent to a neighbour over a link, and something came back over it, or not.
    pub(super) fn mark(&mut self, ip: IpAddr, link: usize, heard: bool) {
        let Some(neighbour) = self.known.get_mut(&ip) else { return };
        if heard {
            neighbour.doubts[link] = 0;
        } else if neighbour.doubts[link] == 0 && neighbour.macs[link].is_some() {
            neighbour.doubts[link] = 1;
            self.doubted = true;
        }
    }

    /// Whether some neighbour is being asked whether it is still there.
    pub(super) fn has_doubts(&self) -> bool {
        self.doubted
    }

    /// Gives up links over which neighbours do not answer, as long as there is another; returns
    /// whom to ask whether they are there, over which link and where.
    pub(super) fn watch(&mut self, now: Nanos) -> Vec<(IpAddr, usize, Mac)> {
        let mut ask = Vec::new();
        if !self.doubted {
            return ask;
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
                ask.extend(
                    doubted.or(neighbour.lost[link].filter(|_| recall)).map(|mac| (ip, link, mac)),
                );
                self.doubted |= doubted.is_some() || neighbour.lost[link].is_some();
            }
        }
        ask
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
            self.known.insert(
                ip,
                Neighbour {
                    macs: [None; MAX_LINKS],
                    lost: [None; MAX_LINKS],
                    doubts: [0; MAX_LINKS],
                    asked: 0,
                    due: Nanos::NEVER,
                },
            );
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
