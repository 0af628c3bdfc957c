//! The servers that can keep replicas, the sessions to these servers, and the choice among them.

use crate::node::Caller;
use sprat_net::Nanos;
use sprat_rpc::SessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A server that can keep replicas of other servers' logs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackupServer {
    /// The server's id.
    pub server: u32,
    /// The address of the server's node.
    pub address: SocketAddr,
    /// The number of the server's rack. Servers in one rack have the same number within one list of
    /// servers; numbers of different lists must not be compared.
    pub rack: u32,
}

/// The rack and host of a server: servers that share one can fail together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Site {
    rack: u32,
    host: IpAddr,
}

impl Site {
    fn of(address: SocketAddr, rack: u32) -> Self {
        Self { rack, host: address.ip() }
    }

    /// Returns what this site shares with another: 0 nothing, 1 the host, 2 the rack, 3 both. A
    /// lower number is better.
    fn nearness(self, other: Self) -> u8 {
        2 * u8::from(self.rack == other.rack) + u8::from(self.host == other.host)
    }
}

/// How long a backup that has failed is avoided after its first failure. The time doubles with each
/// further failure in a row.
const BACKOFF: Duration = Duration::from_secs(2);

/// The largest number of times that [`BACKOFF`] is doubled: the wait is 16 s at most.
const MAX_DOUBLINGS: u32 = 3;

/// A server that can keep replicas.
struct Peer {
    address: SocketAddr,
    rack: u32,
    session: Option<SessionId>,
    /// After a failure: the time until which the master chooses the server for an open segment only
    /// if no other is left, and never for a copy of a sealed one.
    backoff_until: Nanos,
    /// Failures since the server's last success, without those before `backoff_until`.
    failures: u32,
    /// The reason of the server's last failure.
    refusal: String,
    /// Replicas for which the server was chosen and that are not complete yet.
    load: usize,
    /// When the lease ends that the server has granted to the master.
    lease: Nanos,
    /// Whether a request for a lease is under way.
    is_asked: bool,
}

/// All servers that can keep replicas, except the master's own.
#[derive(Default)]
pub(super) struct Peers {
    peers: BTreeMap<u32, Peer>,
    /// The number of peers whose `failures` are not zero.
    refusing: usize,
    /// The rack and host of the master itself; `None` if the list of servers lacks the master's.
    here: Option<Site>,
    /// Sessions to servers that have left, to be closed.
    gone: Vec<SessionId>,
}

impl Peers {
    /// Replaces the list of servers, which may contain the master's `own`.
    pub(super) fn set(&mut self, servers: &[BackupServer], own: u32) {
        let Self { peers, refusing, here, gone } = self;
        peers.retain(|id, peer| {
            let stays =
                servers.iter().any(|entry| entry.server == *id && entry.address == peer.address);
            if !stays {
                gone.extend(peer.session);
            }
            stays
        });
        *here = None;
        for &BackupServer { server, address, rack } in servers {
            if server == own {
                *here = Some(Site::of(address, rack));
                continue;
            }
            let new = Peer {
                address,
                rack,
                session: None,
                backoff_until: Nanos(0),
                failures: 0,
                refusal: String::new(),
                load: 0,
                lease: Nanos(0),
                is_asked: false,
            };
            peers.entry(server).or_insert(new).rack = rack;
        }
        *refusing = peers.values().filter(|peer| peer.failures > 0).count();
    }

    /// Returns the number of racks.
    pub(super) fn racks(&self) -> usize {
        count(self.peers.values().map(|peer| peer.rack).chain(self.here.map(|here| here.rack)))
    }

    /// Returns whether these servers, together with the master's, are in fewer racks than they
    /// could be, given that there are `racks` racks.
    pub(super) fn are_in_too_few_racks(
        &self,
        servers: impl Iterator<Item = u32>,
        racks: usize,
    ) -> bool {
        let servers: Vec<u32> =
            servers.filter_map(|server| Some(self.peers.get(&server)?.rack)).collect();
        let most = (servers.len() + self.here.iter().len()).min(racks);
        count(servers.into_iter().chain(self.here.map(|here| here.rack))) < most
    }

    /// Returns the number of peers, including those that refuse.
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns the number of peers that refuse: they have failed since their last success.
    pub(super) fn refusing_count(&self) -> usize {
        self.refusing
    }

    /// Returns the peers that have failed since their last success, and why they failed last.
    pub(super) fn refusing(&self) -> impl Iterator<Item = (u32, &str)> {
        let failed = self.peers.iter().filter(|(_, peer)| peer.failures > 0);
        failed.map(|(&server, peer)| (server, peer.refusal.as_str()))
    }

    pub(super) fn contains(&self, server: u32) -> bool {
        self.peers.contains_key(&server)
    }

    /// Returns the servers to which no request for a lease is under way.
    pub(super) fn without_request_for_lease(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.iter().filter(|(_, peer)| !peer.is_asked).map(|(&server, _)| server)
    }

    /// Notes that a request for a lease begins, or has ended.
    pub(super) fn note_request_for_lease(&mut self, server: u32, begins: bool) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.is_asked = begins;
        }
    }

    pub(super) fn set_lease(&mut self, server: u32, end: Nanos) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.lease = peer.lease.max(end);
        }
    }

    /// Returns the end of the lease that a server has granted; [`Nanos`] 0 if it is not a peer.
    pub(super) fn lease(&self, server: u32) -> Nanos {
        self.peers.get(&server).map_or(Nanos(0), |peer| peer.lease)
    }

    /// Returns the session to a peer, which is opened if need be. `None` if the peer has left, or
    /// there are too many sessions.
    pub(super) fn session(&mut self, server: u32, caller: &mut dyn Caller) -> Option<SessionId> {
        self.gone.drain(..).for_each(|session| caller.close(session));
        let peer = self.peers.get_mut(&server)?;
        if peer.session.is_none() {
            peer.session = caller.connect(peer.address).ok();
        }
        peer.session
    }

    /// Records that a peer has failed, unless a back-off from an earlier failure still lasts. For a
    /// while the peer is chosen only if no other is left. That time doubles with each recorded
    /// failure in a row, so that a server with a dead disk does not hold up all logs every few
    /// seconds.
    pub(super) fn back_off(&mut self, server: u32, now: Nanos, why: &str) {
        if let Some(peer) = self.peers.get_mut(&server)
            && peer.backoff_until <= now
        {
            why.clone_into(&mut peer.refusal);
            self.refusing += usize::from(peer.failures == 0);
            peer.backoff_until = now + BACKOFF * (1 << peer.failures.min(MAX_DOUBLINGS));
            peer.failures += 1;
        }
    }

    /// Notes that a peer has succeeded.
    pub(super) fn mark_healthy(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            self.refusing -= usize::from(peer.failures > 0);
            peer.failures = 0;
        }
    }

    /// Chooses a backup that is not in `exclude`. Chooses one that has failed lately only if there
    /// is no other.
    pub(super) fn choose(
        &mut self,
        now: Nanos,
        exclude: &[u32],
        mut chance: impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        self.choose_healthy(now, exclude, &mut chance)
            .or_else(|| self.pick(exclude, |_| true, &mut chance))
    }

    /// Chooses a backup that is not in `exclude` and has not failed lately.
    pub(super) fn choose_healthy(
        &mut self,
        now: Nanos,
        exclude: &[u32],
        mut chance: impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        self.pick(exclude, |peer| peer.backoff_until <= now, &mut chance)
    }

    /// Chooses among the peers that `fits` accepts. First it finds the peers that share least with
    /// the master and with `exclude`; a shared rack is worse than a shared host. Of these it draws
    /// two by `chance`, and returns the one with less load (Mitzenmacher's power of two choices),
    /// whose load grows by one.
    fn pick(
        &mut self,
        exclude: &[u32],
        fits: impl Fn(&Peer) -> bool,
        chance: &mut impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        let taken = exclude
            .iter()
            .filter_map(|server| self.peers.get(server))
            .map(|peer| Site::of(peer.address, peer.rack));
        let taken: Vec<Site> = taken.chain(self.here).collect();
        let nearness = |peer: &Peer| {
            let site = Site::of(peer.address, peer.rack);
            taken.iter().map(|other| other.nearness(site)).max().unwrap_or(0)
        };
        let fit =
            self.peers.iter().filter(|(server, peer)| !exclude.contains(server) && fits(peer));
        let mut candidates: Vec<_> =
            fit.map(|(&server, peer)| (nearness(peer), peer.load, server)).collect();
        let least = candidates.iter().map(|&(nearness, ..)| nearness).min()?;
        candidates.retain(|&(nearness, ..)| nearness == least);
        let drawn = [chance(candidates.len()), chance(candidates.len())].map(|at| candidates[at]);
        let (.., server) = drawn[0].min(drawn[1]);
        self.peers.get_mut(&server).expect("just seen").load += 1;
        Some(server)
    }

    /// Notes that a replica for which a peer was chosen is complete, or given up.
    pub(super) fn release(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.load = peer.load.saturating_sub(1);
        }
    }
}

/// Returns the number of distinct racks.
fn count(racks: impl Iterator<Item = u32>) -> usize {
    racks.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF, BackupServer, Peers, count};
    use proptest::prelude::*;
    use sprat_net::Nanos;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    const COPIES: usize = 3;

    #[test]
    fn backoff_doubles_with_repeated_failures() {
        let members = [1, 2, 3].map(|server| BackupServer {
            server,
            address: ([10, 0, 0, 1], 1).into(),
            rack: 0,
        });
        let mut peers = Peers::default();
        peers.set(&members, 1);
        let mut now = Nanos(1);
        let mut backed_off_for = |peers: &mut Peers| {
            let begun = now;
            peers.back_off(2, now, "");
            peers.back_off(2, now, ""); // the write to a second replica fails too
            while peers.choose_healthy(now, &[3], |_| 0).is_none() {
                assert_eq!(peers.choose(now, &[3], |_| 0), Some(2), "where there is nobody else");
                now = now + BACKOFF;
            }
            now.since(begun).as_secs()
        };
        let times: Vec<u64> = (0..6).map(|_| backed_off_for(&mut peers)).collect();
        assert_eq!(times, [2, 4, 8, 16, 16, 16]);
        peers.mark_healthy(2);
        assert_eq!(backed_off_for(&mut peers), 2);
    }

    /// Returns servers by rack and host, the first of which is the master's own, and the backups
    /// that are chosen one after another for its replicas.
    fn chosen(sites: &[(u32, u8)], mut seed: usize) -> (Peers, Vec<BackupServer>, Vec<u32>) {
        let member = |(server, &(rack, host)): (u32, &(u32, u8))| {
            let port = 100 + u16::try_from(server).expect("few");
            BackupServer { server, address: SocketAddr::from(([10, 0, 0, host], port)), rack }
        };
        let members: Vec<BackupServer> = (1..).zip(sites).map(member).collect();
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
            prop_assert_eq!(
                servers.iter().collect::<BTreeSet<_>>().len(),
                servers.len(),
                "each is another"
            );
            prop_assert!(!servers.contains(&1), "and none the master's");
            let rack = |server: &u32| members[*server as usize - 1].rack;
            let all = count(members.iter().map(|member| member.rack));
            let used = count(servers.iter().chain([&1]).map(rack));
            prop_assert_eq!(used, all.min(servers.len() + 1));
            prop_assert_eq!(peers.racks(), all);
            prop_assert!(!peers.are_in_too_few_racks(servers.iter().copied(), all));
            // Replicas in the master's rack only, although there is another: that is reported.
            let same: Vec<u32> = (2..)
                .zip(&members[1..])
                .filter(|(_, one)| one.rack == members[0].rack)
                .map(|(at, _)| at)
                .collect();
            if all > 1 && !same.is_empty() {
                prop_assert!(peers.are_in_too_few_racks(same.into_iter(), all));
            }
        }

        #[test]
        fn replicas_are_on_as_many_hosts_as_can_be_within_a_rack(
            hosts in proptest::collection::vec(0_u8..4, 1..12), seed: usize,
        ) {
            let sites: Vec<(u32, u8)> = hosts.iter().map(|&host| (0, host)).collect();
            let (_, members, servers) = chosen(&sites, seed);
            let host = |server: &u32| {
                u32::from(match members[*server as usize - 1].address.ip() {
                    std::net::IpAddr::V4(host) => host,
                    std::net::IpAddr::V6(_) => unreachable!("they are made above"),
                })
            };
            let all = hosts.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(
                count(servers.iter().chain([&1]).map(host)),
                all.min(servers.len() + 1)
            );
        }
    }
}
