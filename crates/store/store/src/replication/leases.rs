//! Leases from backups, for a master whose coordinator is silent ([decision
//! 41](../../../../../docs/decisions/0041-leases-from-backups.md)).

use super::{Purpose, Replicator, begin, parse_reply};
use crate::coordinator::DRIFT;
use crate::node::Caller;
use sprat_net::Nanos;
use sprat_rpc::CallFailure;
use sprat_wire::op::{Answer, BackupRequest, Status};
use std::time::Duration;

/// Interval at which a master asks each backup for a lease.
const RENEWAL: Duration = Duration::from_millis(100);

impl Replicator {
    /// Asks all servers for leases that are due. The master asks servers without replicas too,
    /// because one of them may get the next head.
    pub fn ask_for_leases(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if self.fenced || self.confirmed == 0 || self.ask_at > now {
            return;
        }
        self.ask_at = now + RENEWAL;
        let asked: Vec<u32> = self.peers.without_request_for_lease().collect();
        for server in asked {
            let Some(session) = self.peers.session(server, caller) else { continue };
            let request = BackupRequest::Lease { master: self.master };
            if let Some(call) = begin(caller, session, request, &[], now) {
                self.calls.insert(call, Purpose::Lease { server, asked: now });
                self.peers.note_request_for_lease(server, true);
            }
        }
    }

    /// Returns the time at which [`ask_for_leases`](Self::ask_for_leases) has something to do.
    #[must_use]
    pub fn ask_at(&self) -> Option<Nanos> {
        (!self.fenced && self.confirmed > 0).then_some(self.ask_at)
    }

    /// Returns the time until which no server can recover this master, by the leases of backups;
    /// [`Nanos`] 0 without such leases. The master must ask again after each
    /// [`call`](Self::call), which may begin a segment on other backups.
    ///
    /// A recovery needs an open replica of the newest head that it finds. So the leases count only
    /// if all backups with a replica of an open segment have granted one. While a replica has been
    /// given up and the coordinator has not confirmed the next head, a recovery could use that
    /// replica.
    #[must_use]
    pub fn leased_until(&self) -> Nanos {
        let is_whole =
            self.open.values().all(|open| !open.tainted && open.replicas.len() == self.copies);
        if self.fenced || self.confirmed == 0 || !is_whole {
            return Nanos(0);
        }
        let servers = self.open.values().flat_map(|open| &open.replicas);
        servers.map(|replica| self.peers.lease(replica.server)).min().unwrap_or(Nanos(0))
    }

    /// Handles the reply of a server to a request for a lease that was sent at `asked`.
    pub(super) fn lease_answered(
        &mut self,
        server: u32,
        asked: Nanos,
        result: Result<&[u8], CallFailure>,
    ) {
        self.peers.note_request_for_lease(server, false);
        match parse_reply(result) {
            Ok(Answer { status: Status::Ok, number, .. }) => {
                let lease = Duration::from_micros(number);
                self.peers.set_lease(server, asked + (lease - lease / DRIFT));
            }
            Ok(Answer { status: Status::Fenced, .. }) => self.fenced = true,
            // A server that grants none is asked again.
            Ok(_) | Err(_) => {}
        }
    }
}
