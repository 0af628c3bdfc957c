//! The backups that there are, and the sessions to them.

use super::SHUN;
use crate::node::Caller;
use sprat_net::Nanos;
use sprat_rpc::SessionId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A server that keeps replicas for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its id.
    pub server: u32,
    /// Where its node is reached.
    pub address: SocketAddr,
}

/// What is known of a member.
struct Peer {
    address: SocketAddr,
    session: Option<SessionId>,
    /// Until when nothing new is given to it: it has failed.
    shunned_until: Nanos,
    /// Open replicas that it was chosen for.
    load: usize,
}

/// All members but the master's own server.
#[derive(Default)]
pub(super) struct Peers {
    peers: BTreeMap<u32, Peer>,
    /// Sessions to servers that are no members any more.
    gone: Vec<SessionId>,
}

impl Peers {
    /// These are the members from now on.
    pub(super) fn set(&mut self, members: &[Member]) {
        let Self { peers, gone } = self;
        peers.retain(|server, peer| {
            let stays = members.iter().any(|member| member.server == *server && member.address == peer.address);
            if !stays {
                gone.extend(peer.session);
            }
            stays
        });
        for member in members {
            peers.entry(member.server).or_insert(Peer {
                address: member.address,
                session: None,
                shunned_until: Nanos(0),
                load: 0,
            });
        }
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

    /// A member has failed: for a while it is chosen only if there is nobody else.
    pub(super) fn shun(&mut self, server: u32, now: Nanos) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.shunned_until = now + SHUN;
        }
    }

    /// Chooses a backup that is none of `not`, one that is shunned only if there are no others.
    pub(super) fn choose(&mut self, now: Nanos, not: &[u32], mut chance: impl FnMut(usize) -> usize) -> Option<u32> {
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

    /// Of two drawn by `chance` the one with less to do: Mitzenmacher's power of two choices.
    fn draw(
        &mut self,
        not: &[u32],
        fits: impl Fn(&Peer) -> bool,
        chance: &mut impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        let fit = self.peers.iter().filter(|(server, peer)| !not.contains(server) && fits(peer));
        let candidates: Vec<_> = fit.map(|(&server, peer)| (peer.load, server)).collect();
        if candidates.is_empty() {
            return None;
        }
        let drawn = [chance(candidates.len()), chance(candidates.len())].map(|at| candidates[at]);
        let (_, server) = drawn[0].min(drawn[1]);
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
