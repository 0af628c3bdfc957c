//! The backups that there are, and the sessions to them.

use crate::node::Caller;
use sprat_net::Nanos;
use sprat_rpc::SessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A server that keeps replicas for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its id.
    pub server: u32,
    /// Where its node is reached.
    pub address: SocketAddr,
    /// Which rack it is in: those of one number are together. It means nothing beyond one list of
    /// members.
    pub rack: u32,
}

/// Where a server is, as far as it may go together with others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Site {
    rack: u32,
    host: IpAddr,
}

impl Site {
    fn of(address: SocketAddr, rack: u32) -> Self {
        Self { rack, host: address.ip() }
    }

    /// How much it shares with another: the more, the worse.
    fn nearness(self, other: Self) -> u8 {
        2 * u8::from(self.rack == other.rack) + u8::from(self.host == other.host)
    }
}

/// How long a backup that has failed is passed over; longer when it fails again.
const SHUN: Duration = Duration::from_secs(2);

/// So often the time for which a member is shunned is doubled: up to 16 s.
const MAX_DOUBLINGS: u32 = 3;

/// What is known of a member.
struct Peer {
    address: SocketAddr,
    rack: u32,
    session: Option<SessionId>,
    /// Until when nothing new is given to it: it has failed.
    shunned_until: Nanos,
    /// How often it was shunned since it last took something.
    failures: u32,
    /// Why it took nothing the last time.
    refusal: String,
    /// Open replicas that it was chosen for.
    load: usize,
}

/// All members but the master's own server.
#[derive(Default)]
pub(super) struct Peers {
    peers: BTreeMap<u32, Peer>,
    /// How many of them took nothing the last time.
    refusing: usize,
    /// Where the master itself is, once it is known.
    here: Option<Site>,
    /// Sessions to servers that are no members any more.
    gone: Vec<SessionId>,
}

impl Peers {
    /// These are the members from now on; of them `own` is the master's server.
    pub(super) fn set(&mut self, members: &[Member], own: u32) {
        let Self { peers, refusing, here, gone } = self;
        peers.retain(|server, peer| {
            let stays = members
                .iter()
                .any(|member| member.server == *server && member.address == peer.address);
            if !stays {
                gone.extend(peer.session);
            }
            stays
        });
        *here = None;
        for &Member { server, address, rack } in members {
            if server == own {
                *here = Some(Site::of(address, rack));
                continue;
            }
            let new = Peer {
                address,
                rack,
                session: None,
                shunned_until: Nanos(0),
                failures: 0,
                refusal: String::new(),
                load: 0,
            };
            peers.entry(server).or_insert(new).rack = rack;
        }
        *refusing = peers.values().filter(|peer| peer.failures > 0).count();
    }

    /// How many racks there are.
    pub(super) fn racks(&self) -> usize {
        count(self.peers.values().map(|peer| peer.rack).chain(self.here.map(|here| here.rack)))
    }

    /// Whether these servers, and the master's, are in fewer racks than so many could be.
    pub(super) fn are_in_few_racks(
        &self,
        servers: impl Iterator<Item = u32>,
        racks: usize,
    ) -> bool {
        let servers: Vec<u32> =
            servers.filter_map(|server| Some(self.peers.get(&server)?.rack)).collect();
        let most = (servers.len() + self.here.iter().len()).min(racks);
        count(servers.into_iter().chain(self.here.map(|here| here.rack))) < most
    }

    /// How many others keep replicas, whether they take any now or not.
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    /// How many of them took nothing the last time.
    pub(super) fn refuse(&self) -> usize {
        self.refusing
    }

    /// Those that took nothing the last time, and why.
    pub(super) fn refusing(&self) -> impl Iterator<Item = (u32, &str)> {
        let failed = self.peers.iter().filter(|(_, peer)| peer.failures > 0);
        failed.map(|(&server, peer)| (server, peer.refusal.as_str()))
    }

    pub(super) fn contains(&self, server: u32) -> bool {
        self.peers.contains_key(&server)
    }

    /// The session to a member; `None` when it is none any more, or there are too many sessions.
    pub(super) fn session(&mut self, server: u32, caller: &mut dyn Caller) -> Option<SessionId> {
        self.gone.drain(..).for_each(|session| caller.close(session));
        let peer = self.peers.get_mut(&server)?;
        if peer.session.is_none() {
            peer.session = caller.connect(peer.address).ok();
        }
        peer.session
    }

    /// A member has failed: for a while it is chosen only if there is nobody else. Each time that
    /// it fails again before it has taken anything this is twice as long: one whose disk does
    /// not answer any more would hold up everybody every few seconds.
    pub(super) fn shun(&mut self, server: u32, now: Nanos, why: &str) {
        if let Some(peer) = self.peers.get_mut(&server)
            && peer.shunned_until <= now
        {
            why.clone_into(&mut peer.refusal);
            self.refusing += usize::from(peer.failures == 0);
            peer.shunned_until = now + SHUN * (1 << peer.failures.min(MAX_DOUBLINGS));
            peer.failures += 1;
        }
    }

    /// A member has taken something.
    pub(super) fn trust(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            self.refusing -= usize::from(peer.failures > 0);
            peer.failures = 0;
        }
    }

    /// Chooses a backup that is none of `not`, one that is shunned only if there are no others.
    pub(super) fn choose(
        &mut self,
        now: Nanos,
        not: &[u32],
        mut chance: impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        self.choose_willing(now, not, &mut chance).or_else(|| self.draw(not, |_| true, &mut chance))
    }

    /// The same, and never one that is shunned.
    pub(super) fn choose_willing(
        &mut self,
        now: Nanos,
        not: &[u32],
        mut chance: impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        self.draw(not, |peer| peer.shunned_until <= now, &mut chance)
    }

    /// Of those that share least with the master and with `not`, a rack being worse to share than a
    /// host: of two drawn by `chance` the one with less to do, Mitzenmacher's power of two
    /// choices.
    fn draw(
        &mut self,
        not: &[u32],
        fits: impl Fn(&Peer) -> bool,
        chance: &mut impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        let beside = not
            .iter()
            .filter_map(|server| self.peers.get(server))
            .map(|peer| Site::of(peer.address, peer.rack));
        let beside: Vec<Site> = beside.chain(self.here).collect();
        let nearness = |peer: &Peer| {
            let site = Site::of(peer.address, peer.rack);
            beside.iter().map(|other| other.nearness(site)).max().unwrap_or(0)
        };
        let fit = self.peers.iter().filter(|(server, peer)| !not.contains(server) && fits(peer));
        let mut candidates: Vec<_> =
            fit.map(|(&server, peer)| (nearness(peer), peer.load, server)).collect();
        let least = candidates.iter().map(|&(nearness, ..)| nearness).min()?;
        candidates.retain(|&(nearness, ..)| nearness == least);
        let drawn = [chance(candidates.len()), chance(candidates.len())].map(|at| candidates[at]);
        let (.., server) = drawn[0].min(drawn[1]);
        self.peers.get_mut(&server).expect("just seen").load += 1;
        Some(server)
    }

    /// A replica that a member was chosen for is whole, or given up.
    pub(super) fn release(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.load = peer.load.saturating_sub(1);
        }
    }
}

/// How many different numbers there are.
fn count(racks: impl Iterator<Item = u32>) -> usize {
    racks.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::{Member, Peers, SHUN, count};
    use proptest::prelude::*;
    use sprat_net::Nanos;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    const COPIES: usize = 3;

    #[test]
    fn who_fails_again_and_again_is_shunned_for_longer() {
        let members =
            [1, 2, 3].map(|server| Member { server, address: ([10, 0, 0, 1], 1).into(), rack: 0 });
        let mut peers = Peers::default();
        peers.set(&members, 1);
        let mut now = Nanos(1);
        let mut shunned_for = |peers: &mut Peers| {
            let begun = now;
            peers.shun(2, now, "");
            peers.shun(2, now, ""); // of another replica there, which fails with the first
            while peers.choose_willing(now, &[3], |_| 0).is_none() {
                assert_eq!(peers.choose(now, &[3], |_| 0), Some(2), "where there is nobody else");
                now = now + SHUN;
            }
            now.since(begun).as_secs()
        };
        let times: Vec<u64> = (0..6).map(|_| shunned_for(&mut peers)).collect();
        assert_eq!(times, [2, 4, 8, 16, 16, 16]);
        peers.trust(2);
        assert_eq!(shunned_for(&mut peers), 2);
    }

    /// Members by rack and host; the first is the master's own. Its replicas, as they are chosen
    /// one after another.
    fn chosen(sites: &[(u32, u8)], mut seed: usize) -> (Peers, Vec<Member>, Vec<u32>) {
        let member = |(server, &(rack, host)): (u32, &(u32, u8))| {
            let port = 100 + u16::try_from(server).expect("few");
            Member { server, address: SocketAddr::from(([10, 0, 0, host], port)), rack }
        };
        let members: Vec<Member> = (1..).zip(sites).map(member).collect();
        let mut peers = Peers::default();
        peers.set(&members, 1);
        let mut servers = Vec::new();
        for _ in 0..COPIES {
            let draw = |choices: usize| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % choices
            };
            servers.extend(peers.choose(Nanos(0), &servers, draw));
        }
        (peers, members, servers)
    }

    proptest! {
        #[test]
        fn replicas_are_in_as_many_racks_as_can_be(
            sites in proptest::collection::vec((0_u32..4, 0_u8..4), 1..12), seed: usize,
        ) {
            let (peers, members, servers) = chosen(&sites, seed);
            prop_assert_eq!(servers.len(), COPIES.min(sites.len() - 1));
            prop_assert_eq!(servers.iter().collect::<BTreeSet<_>>().len(), servers.len(), "each is another");
            prop_assert!(!servers.contains(&1), "and none the master's");
            let rack = |server: &u32| members[*server as usize - 1].rack;
            let all = count(members.iter().map(|member| member.rack));
            let used = count(servers.iter().chain([&1]).map(rack));
            prop_assert_eq!(used, all.min(servers.len() + 1));
            prop_assert_eq!(peers.racks(), all);
            prop_assert!(!peers.are_in_few_racks(servers.iter().copied(), all));
            // Two in the master's rack, where there is another: that is told.
            let same: Vec<u32> = (2..).zip(&members[1..]).filter(|(_, one)| one.rack == members[0].rack).map(|(at, _)| at).collect();
            if all > 1 && !same.is_empty() {
                prop_assert!(peers.are_in_few_racks(same.into_iter(), all));
            }
        }

        #[test]
        fn and_on_as_many_hosts_where_racks_are_one(hosts in proptest::collection::vec(0_u8..4, 1..12), seed: usize) {
            let sites: Vec<(u32, u8)> = hosts.iter().map(|&host| (0, host)).collect();
            let (_, members, servers) = chosen(&sites, seed);
            let host = |server: &u32| u32::from(match members[*server as usize - 1].address.ip() {
                std::net::IpAddr::V4(host) => host,
                std::net::IpAddr::V6(_) => unreachable!("they are made above"),
            });
            let all = hosts.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(count(servers.iter().chain([&1]).map(host)), all.min(servers.len() + 1));
        }
    }
}
